//! Tests stores that open the files while the database is moved away and back.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use tokio::sync::oneshot;

use super::super::super::{AcquireRequest, Answer, Reply, Request};
use super::super::job::{Job, JobClaim};
use super::super::syscalls::tests::hook_open;
use super::*;
use crate::lease::{Token, Ttl};

/// How long a store waits for another one.
const BRIEFLY: Duration = Duration::from_millis(200);

fn file_thread(path: &Path) -> FileThread {
    FileThread::new(path.into(), tokio::sync::mpsc::unbounded_channel().0)
}

fn ask(file_thread: &mut FileThread, request: Request, patience: Duration) -> Answer {
    let (answers, mut receiver) = oneshot::channel();
    let deadline = clock::now() + patience;
    file_thread.work(vec![Job { batch: vec![request], deadline, claim: JobClaim::default(), answers }]);
    receiver.try_recv().unwrap().pop().unwrap()
}

fn acquire(file_thread: &mut FileThread, patience: Duration) -> Answer {
    let ttl = Ttl::from_millis(60_000).unwrap();
    ask(
        file_thread,
        Request::Acquire(AcquireRequest::new("k".into(), Token::random(), ttl, "h".into())),
        patience,
    )
}

fn is_granted(answer: &Answer) -> bool {
    matches!(answer, Ok(Reply::Acquired { .. }))
}

/// Creates files that no store uses.
fn make_files(path: &Path) {
    let mut file_thread = file_thread(path);
    assert!(ask(&mut file_thread, Request::Ping, Duration::from_secs(5)).is_ok());
    file_thread.end();
}

/// The answers to two stores that wanted the same lock.
struct Outcome {
    /// The ends of the names of the files that the late store has opened, in order.
    opened: Vec<String>,
    early: Option<Answer>,
    late: Answer,
}

/// Lets a late store open the files while the database is moved away. Before the late store opens a
/// file for the `step`th time, the database comes back, and an early store wants the lock.
fn race(step: usize) -> Outcome {
    let folder = std::env::temp_dir().join(format!("leasehold-reappearing-{}", Token::random()));
    fs::create_dir(&folder).unwrap();
    let (path, aside) = (folder.join("locks.db"), folder.join("aside"));
    make_files(&path);
    fs::rename(&path, &aside).unwrap();
    let opened = Rc::new(RefCell::new(Vec::new()));
    let (sender, early) = std::sync::mpsc::channel();
    let mut late = file_thread(&path);
    hook_open(Some(Box::new({
        let (opened, path) = (opened.clone(), path.clone());
        move |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // SQLite holds a mutex of all its connections while it opens an index.
            if name.ends_with("-shm") {
                return;
            }
            opened.borrow_mut().push(name.trim_start_matches("locks.db").to_owned());
            if opened.borrow().len() == step {
                fs::rename(&aside, &path).unwrap();
                let path = path.clone();
                let early = std::thread::spawn(move || {
                    let mut early = file_thread(&path);
                    let answer = acquire(&mut early, BRIEFLY);
                    (early, answer)
                });
                let _ = sender.send(early.join().unwrap());
            }
        }
    })));
    let answer = acquire(&mut late, BRIEFLY);
    hook_open(None);
    let early = early.try_recv().ok();
    late.end();
    let early = early.map(|(file_thread, answer)| {
        file_thread.end();
        answer
    });
    fs::remove_dir_all(folder).unwrap();
    Outcome { opened: opened.take(), early, late: answer }
}

#[test]
fn no_lock_is_granted_twice_if_the_database_comes_back_while_a_store_opens_it() {
    let (mut step, mut won) = (1, 0);
    loop {
        let Outcome { opened, early, late } = race(step);
        let Some(early) = early else { break };
        let at = format!("step {step} of {opened:?}");
        assert!(!(is_granted(&early) && is_granted(&late)), "{at}: both stores were granted the lock");
        assert!(is_granted(&early) || is_granted(&late), "{at}: {early:?}, {late:?}");
        // A journal is found by its name, so it may be applied to another database.
        assert!(!opened.iter().any(|end| end == "-journal"), "{at}");
        won += usize::from(is_granted(&early));
        step += 1;
    }
    assert!(won > 2, "the early store was granted the lock in {won} of {} steps", step - 1);
}
