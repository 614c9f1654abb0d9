//! Keeps what one node of a quorum still has to carry out, and decides when it is asked. Pure.

use std::time::Duration;

use super::super::release_result::ReleaseResult;
use super::move_result::MoveResult;
use super::release_table::{PendingRelease, ReleaseTable};
use super::token_change::{SHORTEST_PAUSE, STRAGGLER_PAUSES, TokenChange};
use crate::lease::in_doubt::InDoubt;
use crate::lease::{Instant, Token};
use crate::mutants::{self, Mutant};
use crate::store::Answer;

/// The longest pause between two attempts. If this is smaller, a node that stays away is asked more
/// often. If it is larger, a node that is back keeps released leases for longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a pending release is kept for a node that does not answer. After that, the lease ends
/// with its ttl. Few leases have a longer ttl. If a node refuses a release, the release is kept
/// until the end of the lease.
const LIFE: Duration = Duration::from_secs(600);
/// The most requests that are pending at one node. If there are more, the one whose lease ends
/// first is dropped, and that lease ends with its ttl. If this is smaller, more leases are left to
/// their ttl when a node fails under load. If it is larger, a long outage takes more memory: a
/// release takes about 500 bytes, and a move 800 bytes, without the key.
pub(super) const MOST: usize = 65_536;
/// The most requests that are sent to a node together. If this is smaller, many pending releases
/// take more calls. If it is larger, a call takes longer and may time out.
pub(super) const MOST_AT_ONCE: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct NodeReleases {
    releases: ReleaseTable,
    /// The tokens of the pending releases whose requests are on their way to the node.
    in_flight: Vec<Token>,
    failures: u32,
    /// When the node may be asked again after a failure.
    rests_until: Option<Instant>,
    /// The tokens to which the node may still grant a lease.
    pub(super) in_doubt: InDoubt,
}

impl NodeReleases {
    pub(super) fn len(&self) -> usize {
        self.releases.len()
    }

    /// Notes that the token of `release` is being released. Returns true if the node may still
    /// grant the token a lease. Then `release` gets the life of that lease.
    pub(super) fn settle_doubt(&mut self, now: Instant, release: &mut TokenChange) -> bool {
        let life = self.in_doubt.settle(now, release.token);
        release.life = release.life.max(life);
        life.is_some()
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        let (due, _) = self.releases.first_due().filter(|_| self.in_flight.is_empty())?;
        Some(self.rests_until.map_or(due, |until| until.max(due)))
    }

    pub(super) fn add(&mut self, now: Instant, mut change: TokenChange, is_straggler: bool, pause: Duration) {
        let token = change.token;
        if mutants::is(Mutant::NoPendingReleases) {
            return;
        }
        let pauses = change.pauses();
        let (pause, again) = match pauses {
            [first, again @ ..] if is_straggler => (*first, again),
            _ => (pause, [].as_slice()),
        };
        let Some(before) = self.releases.get(token) else {
            let (due, until) = (now + pause, now + LIFE);
            self.releases.add(PendingRelease { change, due, until, again, sent: false });
            if self.releases.len() > MOST {
                self.releases.remove_first_end();
            }
            return;
        };
        if before.change.to == change.to {
            let before = &before.change;
            (change.ends, change.life) = (change.ends.max(before.ends), change.life.max(before.life));
        }
        // A token has only one pending release, and the newest one counts. A request that is on its
        // way may arrive too early, so it is repeated.
        let (is_new, is_in_flight) = (before.change != change, self.releases.is_in_flight(token));
        self.releases.update(token, |pending| {
            pending.again = match pending.again {
                _ if is_straggler => again,
                _ if is_new && pending.sent => pauses,
                [] if is_in_flight => &STRAGGLER_PAUSES[..1],
                again => again,
            };
            if is_straggler || is_new {
                pending.due = pending.due.min(now + pause);
            }
            pending.change = change;
        });
    }

    /// Changes the pending releases that would move a lease to `token`: they move it to `to`, or
    /// release it after the move if `to` is `None`.
    pub(super) fn redirect(&mut self, now: Instant, token: Token, to: Option<Token>) {
        let mut sent = None;
        for moved in self.releases.moving_to(token) {
            self.releases.update(moved, |PendingRelease { change, sent: was_sent, .. }| {
                (change.to, change.release) = (to.or(change.to), to.is_none());
                // `to` may be an adopter, whose lease outlives the ticket.
                change.ends = None;
                if *was_sent {
                    sent = Some(change.key.clone());
                }
            });
        }
        if let Some(key) = sent {
            let change = match to {
                Some(to) => TokenChange::moved(key, token, to),
                None => TokenChange::release(key, token),
            };
            self.add(now, change, true, Duration::ZERO);
        }
    }

    /// Changes the pending releases that would move a lease to `token`: the node moves these leases
    /// to `unused` instead, and then releases them.
    pub(super) fn release_moved(&mut self, token: Token, unused: Token) {
        for moved in self.releases.moving_to(token) {
            self.releases.update(moved, |PendingRelease { change, .. }| {
                (change.to, change.release) = (Some(unused), true);
            });
        }
    }

    /// Takes what the node said to the requests in flight.
    /// Call it before [`NodeReleases::answered`].
    pub(super) fn said(&mut self, now: Instant, said: &[MoveResult]) {
        let mut follow = Vec::new();
        for (token, said) in self.in_flight.iter().zip(said) {
            let Some(PendingRelease { change, .. }) = self.releases.get(*token) else { continue };
            match (said, change.to) {
                // A node with the rules of an earlier version may answer with a claim to another
                // ticket (see `Token::claims`).
                (MoveResult::Claimed(claim), _) if claim.claims(change.token) && !change.is_void() => {
                    follow.push(TokenChange { token: *claim, ticket: false, ..change.clone() });
                }
                (MoveResult::Moved, Some(to)) if change.release => {
                    let ends = change.ends;
                    follow.push(TokenChange { ends, ..TokenChange::release(change.key.clone(), to) });
                }
                _ => {}
            }
        }
        for change in follow {
            self.add(now, change, false, Duration::ZERO);
        }
    }

    /// Takes what is due, and returns it. Nothing is due before [`NodeReleases::next_wake`].
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<TokenChange> {
        if self.next_wake().is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        while changes.len() < MOST_AT_ONCE
            && let Some((_, token)) = self.releases.first_due().filter(|(due, _)| *due <= now)
        {
            match self.releases.get(token) {
                Some(pending) if now < pending.until && !pending.change.is_void() => {
                    changes.push(pending.change.clone());
                    self.in_flight.push(token);
                    self.releases.set_in_flight(token);
                }
                _ => drop(self.releases.remove(token)),
            }
        }
        changes
    }

    /// Takes the answers of the node to the requests in flight.
    pub(super) fn answered(&mut self, now: Instant, answers: &[Answer], jitter: f64) {
        let jittered = |pause: Duration| pause.mul_f64(0.5 + 0.5 * jitter);
        let mut any_failed = false;
        for (token, answer) in std::mem::take(&mut self.in_flight).into_iter().zip(answers) {
            let Some(mut pending) = self.releases.remove(token) else { continue };
            let ends = pending.change.ends.or_else(|| pending.change.ends_after(now));
            match (ReleaseResult::of(answer, now, ends), pending.again) {
                (ReleaseResult::Failed, _) => {
                    // It goes behind all that were due before: some requests may fail again and
                    // again.
                    (pending.due, any_failed) = (now, true);
                }
                (ReleaseResult::Refused, _) => {
                    pending.due = now + jittered(LONGEST_PAUSE);
                    pending.change.ends = ends;
                    // The node answers, so it costs little to keep the release for long.
                    pending.until = ends.map_or(pending.until, |ends| ends.max(pending.until));
                }
                (ReleaseResult::Done, [pause, again @ ..]) => {
                    (pending.due, pending.again) = (now + *pause, again);
                }
                (ReleaseResult::Done, []) => continue,
            }
            self.releases.add(pending);
        }
        self.failures = if any_failed { self.failures + 1 } else { 0 };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << self.failures.min(8)).min(LONGEST_PAUSE);
        self.rests_until = any_failed.then(|| now + jittered(pause));
    }
}
