//! What a quorum says that other stores don't.

use super::*;
use crate::lease::Token;
use crate::store::AcquireRequest;

/// Whose poll it is that is to be sent, and whose leftovers are to be released.
fn tokens(batches: &[Batch]) -> (Vec<Token>, Vec<Token>) {
    let requests = || batches.iter().flat_map(|batch| &batch.requests);
    let polls = requests().filter_map(|request| match request {
        Request::Acquire(AcquireRequest { token, .. }) => Some(*token),
        _ => None,
    });
    let releases = requests().filter_map(|request| match request {
        Request::Release { token, .. } => Some(*token),
        _ => None,
    });
    (polls.collect(), releases.collect())
}

fn too_few() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::Quorum, "no quorum"))
}

#[test]
fn a_token_that_may_have_some_nodes_is_released_and_not_used_again() {
    // After an error the quorum itself releases what there may be.
    for (answer, is_released) in [(Ok(Reply::Split), true), (too_few(), false)] {
        let mut world = World::new();
        world.acquire(Wait::Forever);
        let batch = world.only_batch();
        let (first, _) = tokens(std::slice::from_ref(&batch));
        world.answer(batch, [answer]);
        let left = world.batches();
        assert_eq!(tokens(&left).1, if is_released { first.clone() } else { vec![] });
        for batch in left {
            let answers = vec![Ok(Reply::Released); batch.requests.len()];
            world.answer(batch, answers);
        }
        world.pass_until_due();
        let (second, none) = tokens(&world.batches());
        assert_eq!((second.len(), none.len()), (1, 0));
        assert_ne!(second, first);
    }
}

#[test]
fn an_acquire_that_polls_once_and_finds_no_quorum_leaves_the_clean_up_to_the_quorum() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.answer(batch, [too_few()]);
    assert!(
        matches!(world.outcome_of(asked.op), Outcome::Failed(error) if error.kind == StoreErrorKind::Quorum)
    );
    assert_eq!(tokens(&world.batches()), (vec![], vec![]));
}

#[test]
fn a_client_that_closes_without_a_quorum_waits_until_its_lease_is_released() {
    let mut world = World::new();
    world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    world.settled();
    let batch = world.only_batch();
    world.answer(batch, [too_few()]);
    assert!(world.settled().is_empty(), "it is not over yet");
    world.pass_until_due();
    let batch = world.only_batch();
    assert_eq!(tokens(std::slice::from_ref(&batch)).1.len(), 1);
    world.answer(batch, [Ok(Reply::Released)]);
    assert!(matches!(world.outcome_of(op), Outcome::Done));
}
