//! The rules for one lock, to the microsecond. Random schedules of them are in `tests/rules/`.

use std::time::Duration;

use std::cell::Cell;

use super::*;
use crate::store::Place;

/// A ticket with an old fence and no ttl.
const TICKET: Source = Source::Ticket { fence: Fence(1), with_ttl: false };

const MICRO: Duration = Duration::from_micros(1);
const TTL: u32 = 10_000;
const READ: Mode = Mode::Shared { most: u32::MAX };

/// A lock, its clock, and who was told.
struct Scene {
    lock: Lock,
    now: Instant,
    /// The floor of the fences.
    floor: u64,
    told: Vec<u64>,
    /// The fences that they were told.
    fences: Vec<Option<Fence>>,
}

/// One who asks: a token, and its number as a waiter.
#[derive(Clone, Copy)]
struct Owner(Token, u64);

fn owners<const N: usize>() -> [Owner; N] {
    std::array::from_fn(|i| Owner(Token::random(), i as u64))
}

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

impl Scene {
    fn new() -> Self {
        Self {
            lock: Lock::default(),
            now: Instant::from_micros(1_000_000),
            floor: 0,
            told: Vec::new(),
            fences: Vec::new(),
        }
    }

    fn turn<T>(&mut self, act: impl FnOnce(&mut Lock, &mut Turn<'_>) -> T) -> T {
        let (floor, told, with) = (Cell::new(self.floor), &mut self.told, &mut self.fences);
        let mut fences = |after: Fence, _: u32| Fence(floor.get().max(after.0) + 1);
        let mut raise = |fence: Fence| floor.set(floor.get().max(fence.0));
        let mut handed = |waiting: &Waiting, fence| {
            told.push(waiting.number);
            with.push(fence);
        };
        let now = self.now;
        let mut turn = Turn { now, fences: &mut fences, raise: &mut raise, handed: &mut handed };
        let result = act(&mut self.lock, &mut turn);
        self.floor = floor.get();
        result
    }

    fn ask(&mut self, ask: Ask) -> Reply {
        self.turn(|lock, turn| lock.acquire(&ask, turn))
    }

    fn wait(&mut self, owner: Owner, mode: Mode) -> Reply {
        let place = Some(Place { number: owner.1 });
        self.ask(Ask { mode, place, ..Ask::new("k".into(), owner.0, ttl(TTL), "h".into()) })
    }

    fn lock(&mut self, owner: Owner) -> Reply {
        self.wait(owner, Mode::Exclusive)
    }

    fn release(&mut self, owner: Owner) -> Reply {
        self.give_back(owner, None)
    }

    /// Releases the lease; `used` is the last fence that was used.
    fn give_back(&mut self, owner: Owner, used: Option<u64>) -> Reply {
        self.turn(|lock, turn| lock.release(owner.0, used.map(Fence), turn))
    }

    /// Acquires a lease with `fences` fences and returns the first one.
    fn block(&mut self, owner: Owner, mode: Mode, fences: u32) -> u64 {
        match self.ask(Ask { mode, fences, ..Ask::new("k".into(), owner.0, ttl(TTL), "h".into()) }) {
            Reply::Acquired { fence, .. } => fence.0,
            other => panic!("expected a lease, got {other:?}"),
        }
    }

    fn after(&mut self, span: Duration) -> &mut Self {
        self.now = self.now + span;
        self
    }
}

fn acquired(fence: u64, waiting: u32) -> Reply {
    Reply::Acquired { fence: Fence(fence), waiting }
}

fn queued(remaining: Duration, ahead: u32, holder: Owner) -> Reply {
    Reply::Queued { remaining: Some(remaining), ahead, told: true, by: Some(holder.0.mark()) }
}

#[test]
fn a_lease_not_taken_up_ends_at_the_very_microsecond() {
    let ([holder, first, second], mut s) = (owners(), Scene::new());
    assert_eq!(s.lock(holder), acquired(1, 0));
    s.lock(first);
    s.lock(second);
    assert_eq!(s.release(holder), Reply::Released);
    assert_eq!(s.told, [1]);
    assert_eq!(s.after(GRANT_TTL - MICRO).lock(second), queued(MICRO, 0, first));
    assert_eq!(
        s.after(MICRO).lock(second),
        acquired(2 + u64::from(GRANT_FENCES), 0),
        "it was the next, and asks itself"
    );
    assert_eq!(s.told, [1]);
    assert_eq!(s.lock(first), queued(ttl(TTL).as_duration(), 0, second), "and the first is the last now");
}

#[test]
fn a_place_is_lost_at_the_very_microsecond() {
    let ([holder, first, second], mut s) = (owners(), Scene::new());
    s.lock(holder);
    s.lock(first);
    s.after(MICRO).lock(second);
    let left = |s: &Scene| s.lock.held[0].ends.since(s.now);
    s.after(WAITER_LIFE - MICRO * 2);
    assert_eq!(s.lock(second), queued(left(&s), 1, holder));
    s.after(MICRO);
    assert_eq!(s.lock(second), queued(left(&s), 0, holder));
    assert_eq!(s.lock(first), queued(left(&s), 1, holder));
}

#[test]
fn whoever_takes_up_a_shared_lease_gets_its_own_ttl() {
    let ([holder, next], mut s) = (owners(), Scene::new());
    for ms in [10, 60_000] {
        s.lock(holder);
        s.wait(next, READ);
        s.release(holder);
        assert_eq!(s.lock.held[0].fence, None);
        let asks = |ms| Ask { mode: READ, ..Ask::new("k".into(), next.0, ttl(ms), "h".into()) };
        assert!(matches!(s.ask(asks(ms)), Reply::Acquired { .. }));
        assert_eq!(s.lock.held[0].ends, s.now + ttl(ms).as_duration());
        // From now on it is its own, which no repetition makes shorter.
        s.ask(asks(10));
        assert_eq!(s.lock.held[0].ends, s.now + ttl(ms).as_duration());
        s.release(next);
    }
}

#[test]
fn an_exclusive_lease_has_its_fence_with_the_grant_and_nothing_makes_it_shorter() {
    let ([holder, next], mut s) = (owners(), Scene::new());
    assert_eq!(s.lock(holder), acquired(1, 0));
    s.lock(next);
    s.release(holder);
    assert_eq!((&s.told[..], &s.fences[..]), (&[1][..], &[Some(Fence(2))][..]));
    let ends = s.now + GRANT_TTL;
    assert_eq!((s.lock.held[0].fence, s.lock.held[0].ends), (Some(Fence(2)), ends));
    let asks = |ms, fences| Ask { fences, ..Ask::new("k".into(), next.0, ttl(ms), "h".into()) };
    // A renewal may have come first: then this is a straggler.
    assert_eq!(s.ask(asks(10, 1)), acquired(2, 0));
    assert_eq!(s.lock.held[0].ends, ends);
    let after = 2 + u64::from(GRANT_FENCES);
    assert_eq!(s.ask(asks(60_000, 5)), acquired(after, 0));
    assert_eq!(s.lock.held[0].ends, s.now + ttl(60_000).as_duration());
    s.release(next);
    assert_eq!(s.lock(holder), acquired(after + 5, 0));
}

#[test]
fn who_looks_first_after_a_lease_ran_out_gains_nothing_by_it() {
    for mode in [Mode::Exclusive, READ] {
        let ([holder, first, newcomer], mut s) = (owners(), Scene::new());
        s.lock(holder);
        s.after(ttl(TTL).as_duration() - MICRO).wait(first, mode);
        s.after(MICRO);
        let ask = Ask::new("k".into(), newcomer.0, ttl(TTL), "h".into());
        assert_eq!(s.ask(ask), Reply::Busy { remaining: Some(GRANT_TTL) });
        assert_eq!(s.told, [1]);
        assert!(matches!(s.wait(first, mode), Reply::Acquired { .. }));
    }
}

#[test]
fn a_waiter_that_asks_when_it_is_its_turn_is_not_told_as_well() {
    let ([holder, first, second], mut s) = (owners(), Scene::new());
    s.lock(holder);
    s.after(ttl(TTL).as_duration() - MICRO);
    s.wait(first, READ);
    s.wait(second, READ);
    assert!(matches!(s.after(MICRO).wait(first, READ), Reply::Acquired { .. }));
    assert_eq!(s.told, [2], "the one that fits beside it is");
}

#[test]
fn readers_are_let_in_up_to_the_writer() {
    let ([holder, a, b, writer, c], mut s) = (owners(), Scene::new());
    s.lock(holder);
    s.wait(a, READ);
    s.wait(b, READ);
    s.lock(writer);
    s.wait(c, READ);
    s.release(holder);
    assert_eq!(s.told, [1, 2]);
    s.release(a);
    assert_eq!(s.told, [1, 2]);
    s.release(b);
    assert_eq!(s.told, [1, 2, 3]);
    s.release(writer);
    assert_eq!(s.told, [1, 2, 3, 4]);
}

#[test]
fn every_way_to_find_a_lease_ended_hands_it_on() {
    let requests: [fn(&mut Scene, Owner); 4] =
        [
            |s, other| drop(s.lock(other)),
            |s, other| drop(s.turn(|lock, turn| lock.renew(other.0, ttl(TTL), 0, turn))),
            |s, other| drop(s.release(other)),
            |s, other| {
                drop(s.turn(|lock, turn| {
                    lock.adopt(other.0, Token::random(), ttl(TTL), TICKET, &"h".into(), turn)
                }))
            },
        ];
    for request in requests {
        let ([holder, first, other], mut s) = (owners(), Scene::new());
        s.lock(holder);
        s.after(ttl(TTL).as_duration() - MICRO).lock(first);
        request(s.after(MICRO), other);
        assert_eq!(s.told, [1]);
        assert_eq!((s.lock.held.len(), s.lock.held[0].token), (1, first.0));
    }
}

#[test]
fn who_gives_up_its_place_makes_way_for_those_behind() {
    let ([holder, writer, reader], mut s) = (owners(), Scene::new());
    s.wait(holder, READ);
    s.lock(writer);
    s.wait(reader, READ);
    assert_eq!(s.release(writer), Reply::NotHeld(Absence::Taken));
    assert_eq!(s.told, [2]);
    assert!(s.lock.queue.is_empty());
}

#[test]
fn a_semaphore_counts_those_who_were_handed_a_permit() {
    let two = Mode::Shared { most: 2 };
    let ([a, b, c, d], mut s) = (owners(), Scene::new());
    for owner in [a, b, c, d] {
        s.wait(owner, two);
    }
    assert_eq!((s.lock.held.len(), s.lock.queue.len()), (2, 2));
    s.release(a);
    assert_eq!(s.told, [2]);
    let busy = s.ask(Ask { mode: two, ..Ask::new("k".into(), Token::random(), ttl(TTL), "h".into()) });
    assert_eq!(
        busy,
        Reply::Busy { remaining: Some(GRANT_TTL) },
        "it is there, though nobody has taken it up"
    );
    s.release(b);
    assert_eq!(s.told, [2, 3]);
}

#[test]
fn a_block_of_fences_comes_after_all_that_were_reserved() {
    let ([holder, next], mut s) = (owners(), Scene::new());
    let wants = |fences| Ask { fences, ..Ask::new("k".into(), holder.0, ttl(TTL), "h".into()) };
    assert_eq!(s.ask(wants(10)), acquired(1, 0));
    assert_eq!(s.ask(wants(1)), acquired(1, 0));
    assert_eq!(s.ask(wants(10)), acquired(11, 0));
    s.lock(next);
    let block = s.turn(|lock, turn| lock.renew(holder.0, ttl(TTL), 5, turn));
    assert_eq!(block, Reply::Renewed { block: Some((Fence(21), 1)) });
    s.release(holder);
    assert_eq!(s.lock(next), acquired(26, 0));
}

#[test]
fn one_heir_adopts_a_lease() {
    let ([old, heir, late, waiter], mut s) = (owners(), Scene::new());
    s.lock(old);
    s.lock(waiter);
    let adopt = |s: &mut Scene, heir: Owner| {
        s.turn(|lock, turn| lock.adopt(old.0, heir.0, ttl(20_000), TICKET, &"heir".into(), turn))
    };
    assert!(adopt(&mut s, heir).is_adopted());
    assert_eq!(adopt(&mut s, late), Reply::NotHeld(Absence::Taken));
    assert!(adopt(&mut s, heir).is_adopted());
    assert_eq!(s.lock.held[0].ends, s.now + ttl(20_000).as_duration());
    assert_eq!(s.release(old), Reply::NotHeld(Absence::Taken));
    assert!(s.told.is_empty());
    assert_eq!(s.release(heir), Reply::Released);
    assert_eq!(s.told, [3]);
}

#[test]
fn a_lock_knows_when_nothing_is_left_of_it() {
    let ([holder, waiter], mut s) = (owners(), Scene::new());
    assert!(s.lock.is_empty());
    s.ask(Ask::new("k".into(), holder.0, ttl(10), "h".into()));
    s.lock(waiter);
    assert_eq!(s.lock.ends(), s.now + WAITER_LIFE);
    s.release(waiter);
    assert_eq!(s.lock.ends(), s.now + ttl(10).as_duration());
    s.release(holder);
    assert!(s.lock.is_empty());
}

#[test]
fn a_release_gives_back_the_fences_that_were_not_used() {
    // 64 fences are reserved, from 1 on. Each pair is the last used fence, and the next one.
    for (used, next) in [(Some(1), 2), (Some(5), 6), (Some(64), 65), (None, 65)] {
        let ([a, b], mut s) = (owners(), Scene::new());
        assert_eq!(s.block(a, Mode::Exclusive, 64), 1);
        assert_eq!(s.give_back(a, used), Reply::Released);
        assert_eq!(s.block(b, Mode::Exclusive, 1), next, "{used:?} was used");
    }
}

#[test]
fn a_wrong_last_used_fence_makes_fences_neither_go_back_nor_run_ahead() {
    let ([a, b, c], mut s) = (owners(), Scene::new());
    s.block(a, Mode::Exclusive, 64);
    s.give_back(a, Some(1_000_000));
    assert_eq!(s.block(b, Mode::Exclusive, 64), 65, "more than the reserved fences");
    s.give_back(b, Some(3));
    assert_eq!(s.block(c, Mode::Exclusive, 1), 66, "less than the lease's own fence");
}

#[test]
fn a_repeated_or_late_release_gives_no_fences_back() {
    let ([a, b, c], mut s) = (owners(), Scene::new());
    s.block(a, Mode::Exclusive, 64);
    s.give_back(a, Some(10));
    assert_eq!(s.block(b, Mode::Exclusive, 64), 11);
    assert_eq!(s.give_back(a, Some(1)), Reply::NotHeld(Absence::Taken));
    s.after(ttl(TTL).as_duration());
    assert_eq!(s.give_back(b, Some(11)), Reply::NotHeld(Absence::Missing));
    assert_eq!(s.block(c, Mode::Exclusive, 1), 75, "the holder may still hand on a lease that ran out");
}

#[test]
fn if_a_lease_ends_without_its_holders_release_its_last_fence_counts() {
    type End = fn(&mut Scene, Owner);
    let ends: [(&str, End); 4] = [
        ("the lease runs out", |s, _| s.now = s.now + ttl(TTL).as_duration()),
        ("the lease is broken", |s, _| drop(s.turn(|lock, turn| lock.break_all(turn)))),
        ("its heir does not know which fences were used", |s, a| {
            let heir = Token::random();
            s.turn(|lock, turn| lock.adopt(a.0, heir, ttl(TTL), TICKET, &"h".into(), turn));
            s.release(Owner(heir, 9));
        }),
        ("the lease ran out, and another client only looked", |s, _| {
            s.after(ttl(TTL).as_duration()).turn(|lock, turn| lock.settle(turn));
        }),
    ];
    for (how, end) in ends {
        let ([a, b], mut s) = (owners(), Scene::new());
        s.block(a, Mode::Exclusive, 10);
        let more = s.turn(|lock, turn| lock.renew(a.0, ttl(TTL), 20, turn));
        assert_eq!(more, Reply::Renewed { block: Some((Fence(11), 0)) });
        end(&mut s, a);
        assert_eq!(s.block(b, Mode::Exclusive, 1), 31, "{how}");
    }
}

#[test]
fn the_next_waiter_gets_the_fences_that_the_holder_gave_back() {
    let ([a, b, c], mut s) = (owners(), Scene::new());
    s.block(a, Mode::Exclusive, 64);
    s.lock(b);
    s.lock(c);
    s.give_back(a, Some(7));
    s.give_back(b, Some(9));
    assert_eq!(s.fences, [Some(Fence(8)), Some(Fence(10))]);
}

#[test]
fn each_shared_lease_has_its_own_fences_and_gives_none_back() {
    let ([a, b, c, d], mut s) = (owners(), Scene::new());
    assert_eq!(s.block(a, READ, 3), 1);
    assert_eq!(s.block(b, READ, 1), 4, "above the fences of the other lease");
    s.give_back(b, Some(1));
    assert_eq!(s.block(c, READ, 1), 5);
    s.give_back(a, Some(1));
    s.give_back(c, Some(1));
    assert_eq!(s.block(d, READ, 1), 6);
}

#[test]
fn an_accepted_fence_is_above_the_floor_only_once_the_lease_has_ended() {
    let ([a, b], mut s) = (owners(), Scene::new());
    s.block(a, Mode::Exclusive, 1);
    s.turn(|lock, turn| lock.accept(a.0, Fence(100), 10, turn));
    assert_eq!(s.floor, 0);
    s.release(a);
    assert_eq!(s.block(b, Mode::Exclusive, 1), 110);
    s.turn(|lock, turn| lock.accept(b.0, Fence(50), 1, turn));
    s.release(b);
    assert_eq!(s.floor, 110, "a smaller fence does not lower the floor");
}

#[test]
fn a_detached_lease_keeps_its_own_fence_when_more_fences_are_reserved() {
    for mode in [Mode::Exclusive, READ] {
        let ([a, heir, next], mut s) = (owners(), Scene::new());
        s.block(a, mode, 1);
        s.turn(|lock, turn| lock.detach(a.0, ttl(TTL), Fence(40), ttl(7_000), turn));
        s.turn(|lock, turn| lock.accept(a.0, Fence(100), 64, turn));
        assert_eq!((s.lock.held[0].fence, s.lock.held[0].last), (Some(Fence(40)), Fence(163)));
        assert_eq!(s.block(a, mode, 3), 164, "a late acquire");
        assert_eq!((s.lock.held[0].fence, s.lock.held[0].last), (Some(Fence(40)), Fence(166)));
        s.turn(|lock, turn| lock.accept(a.0, Fence(20), 1, turn));
        let adopted = s.turn(|lock, turn| lock.adopt(a.0, heir.0, ttl(TTL), TICKET, &"heir".into(), turn));
        let Reply::Adopted(lease) = adopted else { panic!("{adopted:?}") };
        assert_eq!((lease.first, lease.last), (Fence(40), Fence(166)));
        s.release(heir);
        assert_eq!(s.block(next, mode, 1), 167, "no later lease gets a reserved fence");
    }
}
