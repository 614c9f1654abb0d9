use super::*;

const PATIENCE: Duration = Duration::from_millis(10);
const ENOUGH: usize = 2;

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

/// One who waits at place `number`, with its look behind it.
fn waiting(places: &mut Places, number: u64) -> Token {
    let token = Token::random();
    places.look(at(0), token, number, 1);
    places.queued(at(0), token, 1, 0, PATIENCE);
    token
}

fn noticed(places: &mut Places, ms: u64, number: u64, node: usize) -> Heard {
    places.noticed(at(ms), number, node, ENOUGH, PATIENCE)
}

#[test]
fn who_was_handed_the_lock_by_most_nodes_is_called_once() {
    let mut places = Places::default();
    waiting(&mut places, 7);
    assert_eq!(noticed(&mut places, 1, 7, 0), Heard::Nothing);
    assert_eq!(noticed(&mut places, 1, 7, 0), Heard::Nothing, "the same node is no other");
    assert_eq!(noticed(&mut places, 2, 7, 2), Heard::Call(7));
    assert_eq!(noticed(&mut places, 3, 7, 1), Heard::Nothing, "it has been called");
    assert_eq!((places.next_wake(), places.due(at(1_000))), (None, vec![]));
    assert_eq!(noticed(&mut places, 4, 8, 1), Heard::Nothing, "nobody is called that");
}

#[test]
fn who_was_handed_the_lock_by_too_few_is_called_a_little_later() {
    let mut places = Places::default();
    waiting(&mut places, 7);
    noticed(&mut places, 1, 7, 0);
    assert_eq!((places.next_wake(), places.due(at(10))), (Some(at(11)), vec![]));
    assert_eq!(places.due(at(11)), [7]);
    assert_eq!(noticed(&mut places, 12, 7, 1), Heard::Nothing, "once");
    assert_eq!((places.next_wake(), places.due(at(1_000))), (None, vec![]));
}

#[test]
fn who_looks_again_is_called_again() {
    let mut places = Places::default();
    let token = waiting(&mut places, 7);
    noticed(&mut places, 1, 7, 0);
    assert_eq!(noticed(&mut places, 2, 7, 1), Heard::Call(7));
    places.look(at(3), token, 8, 2);
    assert_eq!(places.handed_to(token), 0, "the look will find out");
    places.queued(at(4), token, 2, 0, PATIENCE);
    // One that has not carried out the last look calls the place as it was called before it.
    assert_eq!(noticed(&mut places, 5, 7, 0), Heard::Nothing);
    assert_eq!(noticed(&mut places, 6, 8, 1), Heard::Call(8), "by its last number");
}

#[test]
fn a_look_that_is_under_way_is_told_and_called_after_it() {
    let mut places = Places::default();
    let token = waiting(&mut places, 7);
    places.look(at(1), token, 8, 2);
    assert_eq!(noticed(&mut places, 2, 8, 1), Heard::Look(2));
    assert_eq!(places.handed_to(token), 0b10);
    // That of an earlier look is none of this one's end.
    places.queued(at(3), token, 1, 0, PATIENCE);
    assert_eq!(places.next_wake(), None);
    places.queued(at(3), token, 2, 0, PATIENCE);
    assert_eq!((places.next_wake(), places.due(at(13))), (Some(at(13)), vec![8]));
}

#[test]
fn only_the_last_numbers_of_a_place_are_known() {
    let mut places = Places::default();
    let token = waiting(&mut places, 1);
    for number in 2..=9 {
        places.look(at(number), token, number, number);
        places.queued(at(number), token, number, 0, PATIENCE);
    }
    assert_eq!((places.len(), places.numbers.len()), (1, NUMBERS));
    assert_eq!(noticed(&mut places, 20, 5, 0), Heard::Nothing);
    assert_eq!(places.next_wake(), None, "too old");
    assert_eq!(noticed(&mut places, 20, 6, 0), Heard::Nothing);
    assert_eq!(noticed(&mut places, 20, 9, 1), Heard::Call(9));
}

#[test]
fn who_does_not_wait_any_more_is_forgotten() {
    let mut places = Places::default();
    let token = waiting(&mut places, 7);
    noticed(&mut places, 1, 7, 0);
    places.forget(token);
    assert_eq!((places.len(), places.numbers.len(), places.next_wake()), (0, 0, None));
    assert_eq!(noticed(&mut places, 2, 7, 1), Heard::Nothing);
    // Of whom nothing was heard, too, unless an answer is still to come.
    waiting(&mut places, 1);
    let looking = Token::random();
    places.look(at(0), looking, 2, 5);
    let later = 2 * LIFE.as_millis() as u64;
    places.look(at(later), Token::random(), 3, 6);
    assert_eq!((places.len(), places.numbers.len()), (2, 2));
}
