use super::*;
use crate::lease::Fence;
use crate::store::Absence;

fn nodes(count: usize) -> Nodes {
    Nodes { names: (0..count).map(|node| format!("n{node}").into()).collect() }
}

fn yes() -> Option<Answer> {
    Some(Ok(Reply::Acquired { fence: Fence(1), waiting: 0 }))
}

fn failed(kind: StoreErrorKind) -> Option<Answer> {
    Some(Err(StoreError::not_done(kind, format!("it is {kind:?}"))))
}

const BUSY: Option<Answer> = Some(Ok(Reply::Busy { remaining: None }));
const MISSING: Option<Answer> = Some(Ok(Reply::NotHeld(Absence::Missing)));

#[test]
fn the_error_tells_what_each_node_answered() {
    let answers = [yes(), BUSY, MISSING, None, failed(StoreErrorKind::TimedOut)];
    let error = error(&nodes(5), &answers, 3);
    let said: Vec<_> = error.votes.iter().map(|vote| (&*vote.store, &vote.said)).collect();
    let late = NodeAnswer::Failed(StoreErrorKind::TimedOut, "it is TimedOut".into());
    assert_eq!(
        said,
        [
            ("n0", &NodeAnswer::Granted),
            ("n1", &NodeAnswer::Busy),
            ("n2", &NodeAnswer::Missing),
            ("n3", &NodeAnswer::Unheard),
            ("n4", &late)
        ]
    );
    assert_eq!(error.kind, StoreErrorKind::Quorum);
}

#[test]
fn the_error_names_failures_and_no_node_that_only_refused() {
    let away = || failed(StoreErrorKind::Unreachable);
    let not_asked =
        || Some(Err(StoreError::not_done(StoreErrorKind::Unreachable, format!("it is away{NOT_ASKED}"))));
    for (answers, said) in [
        ([away(), away(), yes()], "it is Unreachable; it is Unreachable"),
        ([BUSY, failed(StoreErrorKind::TimedOut), away()], "it is TimedOut; it is Unreachable"),
        ([away(), None, BUSY], "it is Unreachable; n1 had not answered"),
        ([away(), None, away()], "it is Unreachable; it is Unreachable"),
        ([not_asked(), not_asked(), None], "it is away; it is away"),
        ([MISSING, MISSING, yes()], "n0 knows nothing of the lease; n1 knows nothing of the lease"),
    ] {
        let begin = "no quorum: too few of the 3 servers could be reached or used (2 are needed): ";
        assert_eq!(*error(&nodes(3), &answers, 2).message, format!("{begin}{said}"));
    }
}

#[test]
fn a_lasting_failure_is_reported_if_it_prevents_a_majority() {
    let denied = || failed(StoreErrorKind::Denied);
    let away = || failed(StoreErrorKind::Unreachable);
    let kind = |answers: &[Option<Answer>]| error(&nodes(answers.len()), answers, 2).kind;
    assert_eq!(kind(&[denied(), denied(), yes()]), StoreErrorKind::Denied);
    assert_eq!(kind(&[denied(), away(), yes()]), StoreErrorKind::Quorum, "the other one may come back");
    assert_eq!(kind(&[denied(), away(), denied(), yes()]), StoreErrorKind::Denied, "of four two are enough");
    assert_eq!(kind(&[denied(), away(), denied(), away(), yes()]), StoreErrorKind::Quorum, "of five not");
}

#[test]
fn a_request_may_be_done_if_any_node_may_have_done_it() {
    let maybe = |answers: &[Option<Answer>]| error(&nodes(answers.len()), answers, 2).maybe_done;
    let away = || failed(StoreErrorKind::Unreachable);
    let late = Some(Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late")));
    assert!(!maybe(&[away(), away(), BUSY]));
    assert!(!maybe(&[away(), away(), MISSING]));
    assert!(maybe(&[away(), away(), yes()]));
    assert!(maybe(&[away(), away(), None]), "an answer may still be on its way");
    assert!(maybe(&[away(), late, BUSY]));
    let queued = Some(Ok(Reply::Queued { remaining: None, ahead: 0, notified: true, by: None }));
    assert!(maybe(&[away(), away(), queued]), "it may stand in a queue");
}
