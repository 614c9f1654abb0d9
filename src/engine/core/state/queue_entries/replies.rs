//! Replies: what the answers to polls mean for queue entries. Touches what its parent may touch.

use std::time::Duration;

use super::{LastReply, QueueEntries, QueueEntry, Recipient};
use crate::engine::core::state::clean_ups::PossibleLease;
use crate::engine::core::state::context::{Context, Wake};
use crate::engine::core::state::tags::AcquireTag;
use crate::engine::ids::{OpId, StoreId};
use crate::lease::{Fence, Instant, Token, Ttl, validity};
use crate::store::{Answer, GRANT_TTL, Reply, StoreError, StoreErrorKind, WAITER_LIFE};

/// The longest time between two polls of the first waiter in a queue. Each pause is shorter by a
/// random part of at most half, so that many waiters do not poll together. If this is larger, a
/// waiter that missed its notice has the lock later. If it is smaller, waiters send more requests.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The longest time between two polls of the other waiters, which only keep their places. A waiter
/// that was granted a lease but missed the notice has to poll before that lease ends, and the lock
/// is not used until then. With the store's time-out in front of it, that lasts for less than a
/// second.
const SLOW_HEARTBEAT: Duration = Duration::from_millis(600);
/// The time between the polls of two neighbours in a queue when a lease in the way is due to end.
/// By the second poll, the first waiter has taken the lock, unless it is gone.
const STAGGER: Duration = Duration::from_millis(3);
/// The number of waiters whose polls are set apart by [`STAGGER`].
const MOST_STAGGERED: u32 = 10;

/// The pause before the second poll of a held lock whose store sends no notices; it grows by half
/// each time, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(3);
/// The longest pause between two such polls.
const LONGEST_PAUSE: Duration = Duration::from_millis(30);
/// The pause after the store's first failure; it doubles each time, up to [`LONGEST_OUTAGE_PAUSE`].
const OUTAGE_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to reach a store that fails.
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// What the answer to a poll means.
pub enum PollReply {
    /// The answer has no meaning any more.
    Nothing,
    /// The queue entry is gone, but its token may have a lease or a place.
    Abandoned(PossibleLease),
    /// The queue entry polls again at once.
    PollAgain,
    /// The queue entry has the lease.
    Granted {
        tag: AcquireTag,
        fence: Fence,
        waiting: u32,
    },
    /// The lock is held, and this waiter polls only once.
    Busy(OpId),
    /// The lock is held.
    Held(Held),
    /// No process has a majority of a quorum's nodes. What the poll got is given back.
    Split(PossibleLease),
    Failed(StoreError),
}

/// What a poll learned about a lease in the way.
#[derive(Default)]
pub struct Held {
    /// How long it lives.
    remaining: Option<Duration>,
    /// How many waiters are in front.
    ahead: u32,
    /// Whether the store sends a notice.
    notified: bool,
}

impl AcquireTag {
    /// Returns what the poll may have left at the store.
    pub fn possible_lease(self, store: StoreId, now: Instant, straggler: bool) -> PossibleLease {
        let AcquireTag { client, key, token, ttl, .. } = self;
        let until = now + ttl.as_duration().max(WAITER_LIFE);
        PossibleLease { client, store, key, token, from_ticket: None, until, straggler }
    }
}

impl QueueEntry {
    /// Shortens a pause that fits [`GRANT_TTL`], for a waiter whose grant would end sooner: an
    /// exclusive lease is granted for its own ttl if that is shorter.
    fn before_a_grant_ends(&self, pause: Duration) -> Duration {
        let ttl = self.lock_request.ttl.as_duration();
        if self.lock_request.mode.is_shared() || ttl >= GRANT_TTL {
            return pause;
        }
        pause.mul_f64(ttl.as_secs_f64() / GRANT_TTL.as_secs_f64()).max(LONGEST_PAUSE)
    }
}

impl QueueEntries {
    /// Handles the answer of `store` to a poll that was sent at `sent`. If the answer is
    /// `outdated`, the store may have lost the lease since then.
    pub fn answered(
        &mut self,
        store: StoreId,
        sent: Instant,
        tag: AcquireTag,
        answer: Answer,
        outdated: bool,
        now: Instant,
    ) -> PollReply {
        let Some(entry) = self.entries.get_mut(&tag.entry) else {
            let straggler = match &answer {
                Ok(Reply::Acquired { .. } | Reply::Queued { .. } | Reply::Split) => false,
                Err(error) if error.maybe_done => true,
                _ => return PollReply::Nothing,
            };
            return PollReply::Abandoned(tag.possible_lease(store, now, straggler));
        };
        entry.polling = false;
        match answer {
            // The same request again finds out whether the store has the lease.
            Ok(Reply::Acquired { .. }) if outdated => PollReply::PollAgain,
            Ok(Reply::Acquired { fence, waiting }) if now < validity::deadline(sent, tag.ttl) => {
                PollReply::Granted { tag, fence, waiting }
            }
            Ok(Reply::Acquired { .. }) => {
                // The answer took longer than the lease lives, so it counts as no answer.
                entry.tainted = true;
                let message =
                    format!("the store's answer took longer than the ttl of {} ms", tag.ttl.as_millis());
                PollReply::Failed(StoreError::maybe_done(StoreErrorKind::TimedOut, message))
            }
            Ok(Reply::Busy { remaining }) => match entry.recipient {
                Recipient::One(op) => PollReply::Busy(op),
                // No store should give a cohort this answer. The cohort polls again.
                Recipient::Cohort => PollReply::Held(Held { remaining, ..Held::default() }),
            },
            Ok(Reply::Split) => {
                self.renew_token(tag.entry);
                PollReply::Split(tag.possible_lease(store, now, false))
            }
            Ok(Reply::Queued { remaining, ahead, notified, .. }) => {
                entry.place = Some((tag.number, sent));
                PollReply::Held(Held { remaining, ahead, notified })
            }
            Ok(other) => {
                let message = format!("the store answered {other:?} to an acquire");
                PollReply::Failed(StoreError::maybe_done(StoreErrorKind::Internal, message))
            }
            Err(error) => {
                if error.kind == StoreErrorKind::Quorum {
                    self.renew_token(tag.entry);
                }
                PollReply::Failed(error)
            }
        }
    }

    /// Lets the queue entry wait until the lease in the way may have changed. Returns its
    /// recipient, and whether it has to poll again at once because something has happened during
    /// its last poll.
    pub fn wait(&mut self, number: u64, held: &Held, cx: &mut Context) -> Option<(Recipient, bool)> {
        let jitter = 0.5 + 0.5 * cx.jitter();
        let Held { remaining, ahead, notified } = *held;
        let entry = self.entries.get_mut(&number)?;
        if !entry.queued {
            entry.queued = true;
            entry.lock_request.stats.contended.up();
        }
        entry.last = LastReply::Held;
        let pause = if notified {
            entry.polls = 0;
            let pause = if ahead == 0 { HEARTBEAT } else { SLOW_HEARTBEAT };
            entry.before_a_grant_ends(pause)
        } else {
            let growth = 1.5f64.powi(entry.polls.min(20) as i32);
            entry.polls += 1;
            SHORTEST_PAUSE.mul_f64(growth).min(LONGEST_PAUSE)
        };
        // Wait a millisecond longer than the store said: it counts in whole milliseconds.
        let ends =
            remaining.map(|left| left + Duration::from_millis(1) + STAGGER * ahead.min(MOST_STAGGERED));
        let pause = ends.unwrap_or(Duration::MAX).min(pause.mul_f64(jitter));
        if !entry.poll_again {
            entry.schedule(number, cx.now + pause, cx);
        }
        Some((entry.recipient, entry.poll_again))
    }

    /// Handles a poll that has failed. Returns the recipient of the queue entry, and the token and
    /// the ttl of the poll if the poll may still arrive at the store.
    pub fn failed(&mut self, number: u64, error: &StoreError) -> Option<(Recipient, Option<(Token, Ttl)>)> {
        let entry = self.entries.get_mut(&number)?;
        entry.lock_request.stats.errors.up();
        // What a quorum's error leaves behind belongs to a token that the queue entry has given up.
        let in_doubt = error.maybe_done && error.kind != StoreErrorKind::Quorum;
        entry.tainted |= in_doubt;
        Some((entry.recipient, in_doubt.then_some((entry.lock_request.token, entry.lock_request.ttl))))
    }

    /// Lets the queue entry poll again after a pause because its last poll has failed. Returns
    /// `false` if it is gone.
    pub fn retry(&mut self, number: u64, error: StoreError, jitter: f64, cx: &mut Context) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        let pause = OUTAGE_PAUSE.saturating_mul(1 << entry.polls.min(10)).min(LONGEST_OUTAGE_PAUSE);
        entry.polls += 1;
        entry.last = LastReply::Failed(error);
        entry.schedule(number, cx.now + pause.mul_f64(jitter), cx);
        true
    }
}

impl QueueEntry {
    fn schedule(&mut self, number: u64, at: Instant, cx: &mut Context) {
        self.wake = Some(at);
        cx.timers.schedule(at, Wake::QueueEntry(number));
    }
}
