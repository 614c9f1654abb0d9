//! Breaks a lock on purpose, each mutant in its own way.

use std::time::Duration;

use leasehold::lease::{Fence, Instant, Mode};
use leasehold::store::rules::{Held, Lock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The first two waiters in the queue are swapped.
    SwapWaiters,
    /// The last waiter in the queue is removed.
    ForgetWaiter,
    /// A valid lease is removed.
    ForgetLease,
    /// A lease is valid for longer than its ttl.
    ProlongLease,
    /// The first waiter gets a lease although the lock is held.
    GrantTwice,
    /// A waiter is handed the lease without a notice.
    NoNotice,
    /// A fence is reserved again.
    RepeatFence,
    /// The store forgets the fences of leases that have ended.
    ForgetEndedFences,
    /// A lease shows another fence than that of its grant.
    ChangeFence,
}

impl Mutant {
    pub const ALL: [Mutant; 9] = [
        Self::SwapWaiters,
        Self::ForgetWaiter,
        Self::ForgetLease,
        Self::ProlongLease,
        Self::GrantTwice,
        Self::NoNotice,
        Self::RepeatFence,
        Self::ForgetEndedFences,
        Self::ChangeFence,
    ];

    /// Breaks `lock` if that is possible now. The world itself breaks the handling of fences and
    /// notices.
    pub fn strike(self, lock: &mut Lock, now: Instant) {
        match self {
            Self::SwapWaiters if lock.queue.len() > 1 => lock.queue.swap(0, 1),
            Self::ForgetWaiter => drop(lock.queue.pop()),
            Self::ForgetLease => drop(lock.held.pop()),
            Self::ProlongLease => lock.held.iter_mut().for_each(|held| held.ends = held.ends + LONG),
            Self::GrantTwice if lock.held.iter().any(|held| held.mode == Mode::Exclusive) => {
                if let Some(first) = (!lock.queue.is_empty()).then(|| lock.queue.remove(0)) {
                    let (token, holder, mode) = (first.token, first.holder, first.mode);
                    lock.held.push(Held {
                        token,
                        holder,
                        mode,
                        fence: None,
                        last: Fence::NONE,
                        ends: now + LONG,
                    });
                }
            }
            Self::ChangeFence => lock.held.iter_mut().for_each(|held| {
                held.fence = held.fence.map(|fence| Fence(fence.0 + 1));
            }),
            _ => {}
        }
    }
}

const LONG: Duration = Duration::from_secs(2);
