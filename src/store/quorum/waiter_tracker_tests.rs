use super::*;

const PATIENCE: Duration = Duration::from_millis(10);
const ENOUGH: usize = 2;

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

/// Adds a waiter with the place `number` whose poll has ended.
fn waiting(waiters: &mut WaiterTracker, number: u64) -> Token {
    let token = Token::random();
    waiters.poll(at(0), token, number, 1);
    waiters.queued(at(0), token, 1, 0, PATIENCE);
    token
}

fn noticed(waiters: &mut WaiterTracker, ms: u64, number: u64, node: usize) -> NoticeEffect {
    waiters.noticed(at(ms), number, node, ENOUGH, PATIENCE)
}

#[test]
fn a_waiter_that_most_nodes_handed_the_lock_is_called_once() {
    let mut waiters = WaiterTracker::default();
    waiting(&mut waiters, 7);
    assert_eq!(noticed(&mut waiters, 1, 7, 0), NoticeEffect::Nothing);
    assert_eq!(noticed(&mut waiters, 1, 7, 0), NoticeEffect::Nothing, "the same node is no other");
    assert_eq!(noticed(&mut waiters, 2, 7, 2), NoticeEffect::Call(7));
    assert_eq!(noticed(&mut waiters, 3, 7, 1), NoticeEffect::Nothing, "it has been called");
    assert_eq!((waiters.next_wake(), waiters.due(at(1_000))), (None, vec![]));
    assert_eq!(noticed(&mut waiters, 4, 8, 1), NoticeEffect::Nothing, "nobody is called that");
}

#[test]
fn a_waiter_that_too_few_nodes_handed_the_lock_is_called_a_little_later() {
    let mut waiters = WaiterTracker::default();
    waiting(&mut waiters, 7);
    noticed(&mut waiters, 1, 7, 0);
    assert_eq!((waiters.next_wake(), waiters.due(at(10))), (Some(at(11)), vec![]));
    assert_eq!(waiters.due(at(11)), [7]);
    assert_eq!(noticed(&mut waiters, 12, 7, 1), NoticeEffect::Nothing, "once");
    assert_eq!((waiters.next_wake(), waiters.due(at(1_000))), (None, vec![]));
}

#[test]
fn a_waiter_that_polls_again_is_called_again() {
    let mut waiters = WaiterTracker::default();
    let token = waiting(&mut waiters, 7);
    noticed(&mut waiters, 1, 7, 0);
    assert_eq!(noticed(&mut waiters, 2, 7, 1), NoticeEffect::Call(7));
    waiters.poll(at(3), token, 8, 2);
    assert_eq!(waiters.handed_to(token), 0, "the poll will find out");
    waiters.queued(at(4), token, 2, 0, PATIENCE);
    // A node that has not received the last poll names the number of the poll before.
    assert_eq!(noticed(&mut waiters, 5, 7, 0), NoticeEffect::Nothing);
    assert_eq!(noticed(&mut waiters, 6, 8, 1), NoticeEffect::Call(8), "by its last number");
}

#[test]
fn a_waiter_whose_poll_is_under_way_is_called_after_it() {
    let mut waiters = WaiterTracker::default();
    let token = waiting(&mut waiters, 7);
    waiters.poll(at(1), token, 8, 2);
    assert_eq!(noticed(&mut waiters, 2, 8, 1), NoticeEffect::Poll(2));
    assert_eq!(waiters.handed_to(token), 0b10);
    // The end of an earlier poll is not the end of this one.
    waiters.queued(at(3), token, 1, 0, PATIENCE);
    assert_eq!(waiters.next_wake(), None);
    waiters.queued(at(3), token, 2, 0, PATIENCE);
    assert_eq!((waiters.next_wake(), waiters.due(at(13))), (Some(at(13)), vec![8]));
}

#[test]
fn only_the_last_numbers_of_a_place_are_known() {
    let mut waiters = WaiterTracker::default();
    let token = waiting(&mut waiters, 1);
    for number in 2..=9 {
        waiters.poll(at(number), token, number, number);
        waiters.queued(at(number), token, number, 0, PATIENCE);
    }
    assert_eq!((waiters.len(), waiters.numbers.len()), (1, NUMBERS));
    assert_eq!(noticed(&mut waiters, 20, 5, 0), NoticeEffect::Nothing);
    assert_eq!(waiters.next_wake(), None, "too old");
    assert_eq!(noticed(&mut waiters, 20, 6, 0), NoticeEffect::Nothing);
    assert_eq!(noticed(&mut waiters, 20, 9, 1), NoticeEffect::Call(9));
}

#[test]
fn a_waiter_that_does_not_wait_any_more_is_forgotten() {
    let mut waiters = WaiterTracker::default();
    let token = waiting(&mut waiters, 7);
    noticed(&mut waiters, 1, 7, 0);
    waiters.forget(token);
    assert_eq!((waiters.len(), waiters.numbers.len(), waiters.next_wake()), (0, 0, None));
    assert!(waiters.calls.0.is_empty());
    assert_eq!(noticed(&mut waiters, 2, 7, 1), NoticeEffect::Nothing);
    // A silent waiter is forgotten, too, unless its poll is still under way.
    waiting(&mut waiters, 1);
    let polling = Token::random();
    waiters.poll(at(0), polling, 2, 5);
    let later = 2 * LIFE.as_millis() as u64;
    waiters.poll(at(later), Token::random(), 3, 6);
    assert_eq!((waiters.len(), waiters.numbers.len()), (2, 2));
}
