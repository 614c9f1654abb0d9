use tokio::sync::oneshot;

use super::super::job::JobClaim;
use super::*;
use crate::lease::{Token, Ttl};
use crate::store::{AcquireRequest, Answer, Reply, Request};

fn file_thread() -> (FileThread, PathBuf) {
    let folder = std::env::temp_dir().join(format!("leasehold-thread-{}", Token::random()));
    std::fs::create_dir(&folder).unwrap();
    let (notices, _) = tokio::sync::mpsc::unbounded_channel();
    (FileThread::new(folder.join("locks.db"), notices), folder)
}

fn job(request: Request) -> (Job, JobClaim, oneshot::Receiver<Vec<Answer>>) {
    let (claim, (answers, receiver)) = (JobClaim::default(), oneshot::channel());
    let deadline = clock::now() + Duration::from_secs(5);
    (Job { batch: vec![request], deadline, claim: claim.clone(), answers }, claim, receiver)
}

fn acquire() -> Request {
    let ttl = Ttl::from_millis(60_000).unwrap();
    Request::Acquire(AcquireRequest::new("k".into(), Token::random(), ttl, "h".into()))
}

#[test]
fn a_job_that_was_given_up_before_it_began_is_never_done() {
    let (mut file_thread, folder) = file_thread();
    let ((given_up, claim, mut silent), (asked, _, mut heard)) = (job(acquire()), job(acquire()));
    assert!(claim.take(), "the time-out was first");
    file_thread.work(vec![given_up, asked]);
    assert!(silent.try_recv().is_err());
    assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
    file_thread.end();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn unused_files_are_closed_and_opened_again_for_the_next_request() {
    let (mut file_thread, folder) = file_thread();
    file_thread.work(vec![job(Request::Ping).0]);
    assert!(file_thread.check_due().is_some());
    file_thread.usage.touch(Instant::default());
    file_thread.check();
    assert!(
        file_thread.session.is_none() && file_thread.check_due().is_none(),
        "the thread is not woken for them"
    );
    assert!(file_thread.owner.is_some(), "the owner lives");
    let (asked, _, mut heard) = job(acquire());
    file_thread.work(vec![asked]);
    assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
    file_thread.usage.touch(Instant::default());
    file_thread.check();
    assert!(file_thread.session.is_some() && file_thread.check_due().is_some(), "the store has a lease");
    file_thread.end();
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn a_holder_that_has_not_heard_of_its_detachment_hears_that_the_files_are_gone() {
    let detachment = |is_heard: bool| {
        let (mut file_thread, folder) = file_thread();
        let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
        file_thread.notices = sender;
        let (token, ttl) = (Token::random(), Ttl::from_millis(300).unwrap());
        let ask = AcquireRequest::new("k".into(), token, ttl, "h".into());
        let (asked, _, mut heard) = job(Request::Acquire(ask));
        file_thread.work(vec![asked]);
        let Ok(Reply::Acquired { fence, .. }) = heard.try_recv().unwrap()[0] else { panic!("not granted") };
        let detach = Request::Detach { key: "k".into(), token, ttl, fence, own_ttl: ttl };
        let (asked, _, answers) = job(detach);
        // The engine has stopped waiting if it has no receiver any more.
        let answers = is_heard.then_some(answers);
        file_thread.work(vec![asked]);
        drop(answers);
        std::fs::remove_file(folder.join("locks.db")).unwrap();
        file_thread.check();
        let is_told = matches!(notices.try_recv(), Ok(Notice::Lost(_)));
        file_thread.end();
        std::fs::remove_dir_all(folder).unwrap();
        is_told
    };
    assert!(!detachment(true), "the holder has no lease any more");
    assert!(detachment(false), "the holder still has the lease");
}

#[cfg(unix)]
#[test]
fn an_owner_file_removed_after_an_error_costs_no_lease() {
    let (mut file_thread, folder) = file_thread();
    let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
    file_thread.notices = sender;
    let (asked, _, mut heard) = job(acquire());
    file_thread.work(vec![asked]);
    assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
    // After an error of SQLite, a store has no session.
    file_thread.session = None;
    let owners = folder.join("locks.db.owners");
    std::fs::remove_dir_all(&owners).unwrap();
    file_thread.check();
    assert!(notices.try_recv().is_err(), "the engine is told of a loss");
    assert!(file_thread.usage.last_end().is_some() && file_thread.admitted, "the store has its lease");
    assert_eq!(std::fs::read_dir(&owners).unwrap().count(), 1, "others can see the store again");
    file_thread.end();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_second_copy_is_refused_with_advice_and_leaves_no_owner_file() {
    let (mut file_thread, folder) = file_thread();
    file_thread.work(vec![job(Request::Ping).0]);
    let refused = file_thread.refuse_second_copy(true);
    let Err(SessionError::Broken(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind, StoreErrorKind::Unsupported);
    assert!(error.message.contains("external") && error.message.contains("locks.db"), "{error}");
    assert_eq!(std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count(), 0);
    let (asked, _, mut heard) = job(acquire());
    file_thread.work(vec![asked]);
    assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
    assert!(file_thread.refuse_second_copy(true).is_err());
    assert!(file_thread.owner.is_some() && file_thread.session.is_some(), "a copy with leases keeps them");
    file_thread.end();
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_panic_becomes_an_error_and_the_next_batch_is_carried_out() {
    let (mut file_thread, folder) = file_thread();
    let (ping, _, mut heard) = job(Request::Ping);
    file_thread.work(vec![ping]);
    assert!(heard.try_recv().unwrap()[0].is_ok());
    let error = file_thread.catch_panic::<()>(|_| panic!("on purpose")).unwrap_err();
    assert!(error.kind == StoreErrorKind::Internal && error.maybe_done);
    let (again, _, mut heard) = job(acquire());
    file_thread.work(vec![again]);
    assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
    file_thread.end();
    std::fs::remove_dir_all(folder).unwrap();
}
