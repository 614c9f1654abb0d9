//! Tests of the turn that the connections of a store share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use super::*;

const KILOBYTE: usize = 1024;
const MS: Duration = Duration::from_millis(1);

/// Returns when a connection behind `place` others may read, if the next turn begins after `pause`.
fn behind(place: u32, pause: Duration) -> MayRead {
    MayRead::After(pause + place * LONGEST_DELAY)
}

/// Counts how often a connection is woken.
#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A turn, and the time.
struct World {
    turn: ReadTurn,
    schedule: TurnSchedule,
    now: Instant,
    wakes: Vec<Arc<Wakes>>,
}

impl World {
    /// Returns a world in which `count` connections, with the numbers from 1, have not read yet.
    fn with(count: usize) -> Self {
        let now = Instant::now();
        let mut turn = ReadTurn::new(now);
        let wakes = (0..count).map(|_| Arc::default()).collect();
        for reader in 1..=count {
            assert_eq!(turn.new_reader(), reader as ReaderId);
        }
        Self { turn, schedule: TurnSchedule::default(), now, wakes }
    }

    fn ask(&mut self, reader: usize) -> MayRead {
        self.turn.ask(reader as ReaderId, self.now, &self.wakes[reader - 1].clone().into())
    }

    fn read(&mut self, bytes: usize, took: Duration) {
        self.turn.charge(bytes, self.now, self.now + took, &mut self.schedule);
        self.now += took;
    }

    /// Returns how often each connection was woken.
    fn wakes(&self) -> Vec<u32> {
        self.wakes.iter().map(|wakes| wakes.0.load(Ordering::Relaxed)).collect()
    }
}

#[test]
fn connections_that_have_used_up_their_turn_together_pause_for_as_long() {
    let mut world = World::with(2);
    assert_eq!(world.ask(1), MayRead::Now);
    world.read(KILOBYTE, MS);
    assert_eq!(world.ask(2), MayRead::Now);
    world.read(KILOBYTE, MS);
    assert_eq!([world.ask(1), world.ask(2)], [behind(0, 2 * MS), behind(1, 2 * MS)]);
    world.now += MS;
    assert_eq!([world.ask(1), world.ask(2)], [behind(0, MS), behind(1, MS)]);
    world.now += MS;
    assert_eq!(world.wakes(), [0, 0]);
    assert_eq!([world.ask(1), world.ask(2)], [MayRead::Now; 2]);
    assert_eq!(world.wakes(), [0, 1]);
}

#[test]
fn connections_that_read_for_less_than_half_of_the_time_do_not_pause() {
    let mut world = World::with(2);
    for _ in 0..1000 {
        for reader in [1, 2] {
            assert_eq!(world.ask(reader), MayRead::Now);
            world.read(KILOBYTE, MS);
            world.now += MS;
        }
    }
}

#[test]
fn connections_read_in_the_order_in_which_they_began_to_wait() {
    let mut world = World::with(3);
    world.read(KILOBYTE, 2 * MS);
    assert_eq!(world.ask(2), MayRead::After(2 * MS));
    assert_eq!([world.ask(3), world.ask(1)], [behind(1, 2 * MS), behind(2, 2 * MS)]);
    world.now += 2 * MS;
    let later = [behind(2, Duration::ZERO), behind(1, Duration::ZERO)];
    assert_eq!([world.ask(1), world.ask(3)], later, "the first one has not read");
    assert_eq!(world.ask(2), MayRead::Now);
    assert_eq!(world.wakes(), [0, 0, 1]);
    assert_eq!(world.ask(2), behind(2, Duration::ZERO), "others wait");
    assert_eq!(world.ask(3), MayRead::Now);
    assert_eq!([world.ask(1), world.ask(2)], [MayRead::Now; 2]);
}

#[test]
fn a_connection_that_ends_wakes_the_next_one_if_it_was_the_first() {
    let mut world = World::with(3);
    world.read(KILOBYTE, 2 * MS);
    assert_eq!(
        [1, 2, 3].map(|reader| world.ask(reader)),
        [behind(0, 2 * MS), behind(1, 2 * MS), behind(2, 2 * MS)]
    );
    world.turn.leave(2, world.now);
    assert_eq!(world.wakes(), [0, 0, 0]);
    world.turn.leave(1, world.now);
    assert_eq!(world.wakes(), [0, 0, 1]);
    assert_eq!(world.ask(3), MayRead::After(2 * MS));
}

#[test]
fn the_time_that_few_bytes_cost_is_limited() {
    let mut world = World::with(1);
    for _ in 0..3 {
        world.read(100, Duration::from_secs(9));
        assert_eq!(world.ask(1), MayRead::Now);
    }
    world.now += MOST_TIME_IN_A_ROW;
    world.read(KILOBYTE, Duration::from_secs(9));
    assert_eq!(world.ask(1), MayRead::After(MOST_TIME_PER_BYTE * 1024 + MOST_TIME_PER_READ));
}

#[test]
fn reads_of_a_single_byte_use_up_the_turn() {
    let mut world = World::with(1);
    for _ in 0..200 {
        assert_eq!(world.ask(1), MayRead::Now);
        world.read(1, MS / 100);
    }
    assert_eq!(world.ask(1), MayRead::After(2 * MS));
}

#[test]
fn the_next_connection_goes_on_if_the_first_one_does_not_take_its_turn() {
    let mut world = World::with(4);
    world.read(KILOBYTE, 2 * MS);
    for reader in 1..=4 {
        assert_ne!(world.ask(reader), MayRead::Now);
    }
    world.now += 2 * MS + LONGEST_DELAY - MS;
    assert_ne!(world.ask(2), MayRead::Now, "the first one still has time");
    world.now += MS;
    assert_eq!(world.ask(2), MayRead::Now);
    assert_eq!(world.wakes(), [0, 1, 1, 0]);
    // The third one does not take its turn either.
    world.now += LONGEST_DELAY;
    assert_eq!(world.ask(4), MayRead::Now);
    assert_eq!([world.ask(1), world.ask(3)], [MayRead::Now; 2], "they are no longer in the queue");
}
