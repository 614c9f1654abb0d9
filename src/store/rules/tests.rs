//! Tests the rules for one lock, to the microsecond. `tests/rules/` tests them under random
//! schedules.

mod fences;

use std::time::Duration;

use std::cell::Cell;

use super::*;
use crate::store::{Place, Source};

/// A ticket with an old fence and no ttl.
const TICKET: Source = Source::Ticket { fence: Fence(1), with_ttl: false };

const MICRO: Duration = Duration::from_micros(1);
const TTL: u32 = 10_000;
const READ: Mode = Mode::Shared { most: u32::MAX };

/// A lock, its clock, and the waiters that got a notice.
struct Setup {
    lock: Lock,
    now: Instant,
    /// The floor of the fences.
    floor: u64,
    notified: Vec<u64>,
    /// The fences in these notices.
    fences: Vec<Option<Fence>>,
}

/// A client: its token, and its number as a waiter.
#[derive(Clone, Copy)]
struct Owner(Token, u64);

fn owners<const N: usize>() -> [Owner; N] {
    std::array::from_fn(|i| Owner(Token::random(), i as u64))
}

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

impl Setup {
    fn new() -> Self {
        Self {
            lock: Lock::default(),
            now: Instant::from_micros(1_000_000),
            floor: 0,
            notified: Vec::new(),
            fences: Vec::new(),
        }
    }

    fn context<T>(&mut self, act: impl FnOnce(&mut Lock, &mut RuleContext<'_>) -> T) -> T {
        let (floor, notified, with) = (Cell::new(self.floor), &mut self.notified, &mut self.fences);
        let mut fences = |after: Fence, _: u32| Fence(floor.get().max(after.0) + 1);
        let mut raise = |fence: Fence| floor.set(floor.get().max(fence.0));
        let mut handed = |waiting: &Waiting, fence| {
            notified.push(waiting.number);
            with.push(fence);
        };
        let now = self.now;
        let mut context = RuleContext { now, fences: &mut fences, raise: &mut raise, handed: &mut handed };
        let result = act(&mut self.lock, &mut context);
        self.floor = floor.get();
        result
    }

    fn ask(&mut self, ask: AcquireRequest) -> Reply {
        self.context(|lock, context| lock.acquire(&ask, context))
    }

    fn wait(&mut self, owner: Owner, mode: Mode) -> Reply {
        let place = Some(Place { number: owner.1 });
        self.ask(AcquireRequest {
            mode,
            place,
            ..AcquireRequest::new("k".into(), owner.0, ttl(TTL), "h".into())
        })
    }

    fn lock(&mut self, owner: Owner) -> Reply {
        self.wait(owner, Mode::Exclusive)
    }

    fn release(&mut self, owner: Owner) -> Reply {
        self.give_back(owner, None)
    }

    /// Releases the lease; `used` is the last fence that was used.
    fn give_back(&mut self, owner: Owner, used: Option<u64>) -> Reply {
        self.context(|lock, context| lock.release(owner.0, used.map(Fence), context))
    }

    /// Acquires a lease with `fences` fences and returns the first one.
    fn block(&mut self, owner: Owner, mode: Mode, fences: u32) -> u64 {
        match self.ask(AcquireRequest {
            mode,
            fences,
            ..AcquireRequest::new("k".into(), owner.0, ttl(TTL), "h".into())
        }) {
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
    Reply::Queued { remaining: Some(remaining), ahead, notified: true, by: Some(holder.0.mark()) }
}

#[test]
fn a_lease_not_taken_up_ends_at_the_very_microsecond() {
    let ([holder, first, second], mut s) = (owners(), Setup::new());
    assert_eq!(s.lock(holder), acquired(1, 0));
    s.lock(first);
    s.lock(second);
    assert_eq!(s.release(holder), Reply::Released);
    assert_eq!(s.notified, [1]);
    assert_eq!(s.after(GRANT_TTL - MICRO).lock(second), queued(MICRO, 0, first));
    assert_eq!(
        s.after(MICRO).lock(second),
        acquired(2 + u64::from(GRANT_FENCES), 0),
        "the second waiter is next, and its own request takes the lease"
    );
    assert_eq!(s.notified, [1]);
    assert_eq!(s.lock(first), queued(ttl(TTL).as_duration(), 0, second), "the first waiter is last now");
}

#[test]
fn a_place_is_lost_at_the_very_microsecond() {
    let ([holder, first, second], mut s) = (owners(), Setup::new());
    s.lock(holder);
    s.lock(first);
    s.after(MICRO).lock(second);
    let left = |s: &Setup| s.lock.held[0].ends.since(s.now);
    s.after(WAITER_LIFE - MICRO * 2);
    assert_eq!(s.lock(second), queued(left(&s), 1, holder));
    s.after(MICRO);
    assert_eq!(s.lock(second), queued(left(&s), 0, holder));
    assert_eq!(s.lock(first), queued(left(&s), 1, holder));
}

#[test]
fn a_waiter_that_takes_up_a_shared_lease_gets_its_own_ttl() {
    let ([holder, next], mut s) = (owners(), Setup::new());
    for ms in [10, 60_000] {
        s.lock(holder);
        s.wait(next, READ);
        s.release(holder);
        assert_eq!(s.lock.held[0].fence, None);
        let asks = |ms| AcquireRequest {
            mode: READ,
            ..AcquireRequest::new("k".into(), next.0, ttl(ms), "h".into())
        };
        assert!(matches!(s.ask(asks(ms)), Reply::Acquired { .. }));
        assert_eq!(s.lock.held[0].ends, s.now + ttl(ms).as_duration());
        // The waiter has taken up the lease, so a repeated acquire does not shorten it.
        s.ask(asks(10));
        assert_eq!(s.lock.held[0].ends, s.now + ttl(ms).as_duration());
        s.release(next);
    }
}

#[test]
fn an_exclusive_lease_has_its_fence_with_the_grant_and_nothing_makes_it_shorter() {
    let ([holder, next], mut s) = (owners(), Setup::new());
    assert_eq!(s.lock(holder), acquired(1, 0));
    s.lock(next);
    s.release(holder);
    assert_eq!((&s.notified[..], &s.fences[..]), (&[1][..], &[Some(Fence(2))][..]));
    let ends = s.now + GRANT_TTL;
    assert_eq!((s.lock.held[0].fence, s.lock.held[0].ends), (Some(Fence(2)), ends));
    let asks = |ms, fences| AcquireRequest {
        fences,
        ..AcquireRequest::new("k".into(), next.0, ttl(ms), "h".into())
    };
    // The acquire may be a straggler that arrives after a renewal.
    assert_eq!(s.ask(asks(10, 1)), acquired(2, 0));
    assert_eq!(s.lock.held[0].ends, ends);
    let after = 2 + u64::from(GRANT_FENCES);
    assert_eq!(s.ask(asks(60_000, 5)), acquired(after, 0));
    assert_eq!(s.lock.held[0].ends, s.now + ttl(60_000).as_duration());
    s.release(next);
    assert_eq!(s.lock(holder), acquired(after + 5, 0));
}

#[test]
fn the_first_poll_after_a_lease_ran_out_does_not_overtake_the_queue() {
    for mode in [Mode::Exclusive, READ] {
        let ([holder, first, newcomer], mut s) = (owners(), Setup::new());
        s.lock(holder);
        s.after(ttl(TTL).as_duration() - MICRO).wait(first, mode);
        s.after(MICRO);
        let ask = AcquireRequest::new("k".into(), newcomer.0, ttl(TTL), "h".into());
        assert_eq!(s.ask(ask), Reply::Busy { remaining: Some(GRANT_TTL) });
        assert_eq!(s.notified, [1]);
        assert!(matches!(s.wait(first, mode), Reply::Acquired { .. }));
    }
}

#[test]
fn a_waiter_whose_own_request_takes_the_lease_gets_no_notice() {
    let ([holder, first, second], mut s) = (owners(), Setup::new());
    s.lock(holder);
    s.after(ttl(TTL).as_duration() - MICRO);
    s.wait(first, READ);
    s.wait(second, READ);
    assert!(matches!(s.after(MICRO).wait(first, READ), Reply::Acquired { .. }));
    assert_eq!(s.notified, [2], "the other waiter, which fits too, gets one");
}

#[test]
fn readers_are_let_in_up_to_the_writer() {
    let ([holder, a, b, writer, c], mut s) = (owners(), Setup::new());
    s.lock(holder);
    s.wait(a, READ);
    s.wait(b, READ);
    s.lock(writer);
    s.wait(c, READ);
    s.release(holder);
    assert_eq!(s.notified, [1, 2]);
    s.release(a);
    assert_eq!(s.notified, [1, 2]);
    s.release(b);
    assert_eq!(s.notified, [1, 2, 3]);
    s.release(writer);
    assert_eq!(s.notified, [1, 2, 3, 4]);
}

#[test]
fn every_request_that_finds_a_lease_ended_hands_it_on() {
    let requests: [fn(&mut Setup, Owner); 4] = [
        |s, other| drop(s.lock(other)),
        |s, other| drop(s.context(|lock, context| lock.renew(other.0, ttl(TTL), 0, context))),
        |s, other| drop(s.release(other)),
        |s, other| {
            drop(s.context(|lock, context| {
                lock.adopt(other.0, Token::random(), ttl(TTL), TICKET, &"h".into(), context)
            }))
        },
    ];
    for request in requests {
        let ([holder, first, other], mut s) = (owners(), Setup::new());
        s.lock(holder);
        s.after(ttl(TTL).as_duration() - MICRO).lock(first);
        request(s.after(MICRO), other);
        assert_eq!(s.notified, [1]);
        assert_eq!((s.lock.held.len(), s.lock.held[0].token), (1, first.0));
    }
}

#[test]
fn a_waiter_that_gives_up_its_place_lets_the_next_ones_in() {
    let ([holder, writer, reader], mut s) = (owners(), Setup::new());
    s.wait(holder, READ);
    s.lock(writer);
    s.wait(reader, READ);
    assert_eq!(s.release(writer), Reply::NotHeld(Absence::Taken));
    assert_eq!(s.notified, [2]);
    assert!(s.lock.queue.is_empty());
}

#[test]
fn a_semaphore_counts_permits_that_were_handed_over() {
    let two = Mode::Shared { most: 2 };
    let ([a, b, c, d], mut s) = (owners(), Setup::new());
    for owner in [a, b, c, d] {
        s.wait(owner, two);
    }
    assert_eq!((s.lock.held.len(), s.lock.queue.len()), (2, 2));
    s.release(a);
    assert_eq!(s.notified, [2]);
    let busy = s.ask(AcquireRequest {
        mode: two,
        ..AcquireRequest::new("k".into(), Token::random(), ttl(TTL), "h".into())
    });
    assert_eq!(
        busy,
        Reply::Busy { remaining: Some(GRANT_TTL) },
        "the permit counts although no waiter has taken it up"
    );
    s.release(b);
    assert_eq!(s.notified, [2, 3]);
}

#[test]
fn only_one_adopter_gets_a_lease() {
    let ([old, adopter, late, waiter], mut s) = (owners(), Setup::new());
    s.lock(old);
    s.lock(waiter);
    let adopt = |s: &mut Setup, adopter: Owner| {
        s.context(|lock, context| {
            lock.adopt(old.0, adopter.0, ttl(20_000), TICKET, &"adopter".into(), context)
        })
    };
    assert!(adopt(&mut s, adopter).is_adopted());
    assert_eq!(adopt(&mut s, late), Reply::NotHeld(Absence::Taken));
    assert!(adopt(&mut s, adopter).is_adopted());
    assert_eq!(s.lock.held[0].ends, s.now + ttl(20_000).as_duration());
    assert_eq!(s.release(old), Reply::NotHeld(Absence::Taken));
    assert!(s.notified.is_empty());
    assert_eq!(s.release(adopter), Reply::Released);
    assert_eq!(s.notified, [3]);
}

#[test]
fn a_lock_tells_when_its_last_lease_and_place_end() {
    let ([holder, waiter], mut s) = (owners(), Setup::new());
    assert!(s.lock.is_empty());
    s.ask(AcquireRequest::new("k".into(), holder.0, ttl(10), "h".into()));
    s.lock(waiter);
    assert_eq!(s.lock.ends(), s.now + WAITER_LIFE);
    s.release(waiter);
    assert_eq!(s.lock.ends(), s.now + ttl(10).as_duration());
    s.release(holder);
    assert!(s.lock.is_empty());
}
