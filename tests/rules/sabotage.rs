//! What may be wrong with a lock, done to it on purpose.

use std::time::Duration;

use leasehold::lease::{Fence, Instant, Mode};
use leasehold::store::rules::{Held, Lock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The second in the queue is put before the first.
    SwapWaiters,
    /// The last in the queue is dropped.
    ForgetWaiter,
    /// A lease is dropped while it lives.
    ForgetLease,
    /// A lease lives longer than its ttl.
    ProlongLease,
    /// Whoever is first is let in beside the others.
    LetIn,
    /// A waiter is handed the lease and not told.
    TellNobody,
    /// A fence is given out again.
    RepeatFence,
    /// The store forgets the fences of leases that have ended.
    ForgetEndedFences,
    /// A lease shows another fence than the one it was granted with.
    ChangeFence,
}

impl Sabotage {
    pub const ALL: [Sabotage; 9] = [
        Self::SwapWaiters,
        Self::ForgetWaiter,
        Self::ForgetLease,
        Self::ProlongLease,
        Self::LetIn,
        Self::TellNobody,
        Self::RepeatFence,
        Self::ForgetEndedFences,
        Self::ChangeFence,
    ];

    /// Sabotages `lock`, if that is possible now. The world does the sabotage of fences and
    /// notices.
    pub fn strike(self, lock: &mut Lock, now: Instant) {
        match self {
            Self::SwapWaiters if lock.queue.len() > 1 => lock.queue.swap(0, 1),
            Self::ForgetWaiter => drop(lock.queue.pop()),
            Self::ForgetLease => drop(lock.held.pop()),
            Self::ProlongLease => lock.held.iter_mut().for_each(|held| held.ends = held.ends + LONG),
            Self::LetIn if lock.held.iter().any(|held| held.mode == Mode::Exclusive) => {
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
