//! Adoptions: leases that another process detached, on their way to this one.

use super::cleanup::Leftover;
use super::outgoing::{AdoptTag, Tag};
use super::waiting::Waiter;
use super::{Core, Wake};
use crate::engine::command::{AdoptCommand, ClientId, OpId, Outcome, StoreId};
use crate::lease::renewal;
use crate::lease::{Fence, Instant, LossReason, Token, validity};
use crate::store::inheritance::limit;
use crate::store::{Absence, Answer, Inherited, Reply, Request, Source, StoreError, StoreErrorKind};

/// See the module.
pub struct Adoption {
    heir: Waiter,
    from: Token,
    /// The fence in the ticket.
    fence: Fence,
    with_ttl: bool,
    /// When it is no longer tried: the lease would have run out.
    until: Instant,
    failures: u32,
    pub(super) wake: Option<Instant>,
}

impl Adoption {
    pub(super) fn client(&self) -> ClientId {
        self.heir.asked.client
    }

    fn source(&self) -> Source {
        Source::Ticket { fence: self.fence, with_ttl: self.with_ttl }
    }
}

impl Core {
    pub(super) fn adopt(&mut self, command: AdoptCommand) {
        let AdoptCommand { asked, from, fence, with_ttl } = command;
        let op = asked.op;
        let Some(client) = self.asking_client(asked.client) else { return self.settle(op, Outcome::Closed) };
        let (store, stats) = (client.store, client.settings.stats.clone());
        let until = self.now + asked.ttl.as_duration();
        let heir = Waiter::new(asked, store, stats, self.now);
        self.adoptions.insert(op, Adoption { heir, from, fence, with_ttl, until, failures: 0, wake: None });
        self.try_to_adopt(op);
    }

    /// Asks the store to make the lease over. The same again is harmless.
    pub(super) fn try_to_adopt(&mut self, op: OpId) {
        let Some(adoption) = self.adoptions.get_mut(&op) else { return };
        adoption.wake = None;
        let (token, store) = (adoption.from, adoption.heir.store);
        let asked = &adoption.heir.asked;
        let (client, key, heir, ttl) = (asked.client, asked.key.clone(), asked.token, asked.ttl);
        let outlives_process = asked.outlives_process;
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.outstanding += 1;
        let holder = asked.holder.as_ref().unwrap_or(&known.settings.name).clone();
        let timeout = known.settings.store_timeout;
        let source = adoption.source();
        let request = Request::Adopt { key: key.clone(), token, heir, ttl, holder, outlives_process, source };
        self.send(store, request, Tag::Adopt(AdoptTag { op, client, key, from: token, heir, ttl }), timeout);
    }

    /// The store answered an adoption that was sent at `sent`.
    pub(super) fn adopted(&mut self, store: StoreId, sent: Instant, tag: AdoptTag, answer: Answer) {
        let client = tag.client;
        self.take_adoption(store, sent, tag, answer);
        self.answered_one(client);
    }

    fn take_adoption(&mut self, store: StoreId, sent: Instant, tag: AdoptTag, answer: Answer) {
        let ours = self.adoptions.get(&tag.op).is_some_and(|a| a.heir.asked.token == tag.heir);
        match answer {
            // The store may have lost the lease before this answer came. The same request again
            // finds that out.
            Ok(Reply::Adopted(_)) if ours && self.is_outdated(store, sent) => self.try_to_adopt(tag.op),
            Ok(Reply::Adopted(inherited)) if ours && !self.is_of_ticket(tag.op, &inherited) => {
                self.end_adoption(tag.op, Outcome::Lost(LossReason::Taken));
            }
            Ok(Reply::Adopted(inherited)) if ours => self.inherit(store, sent, tag, inherited),
            Ok(Reply::NotHeld(absence)) if ours => {
                let reason = match absence {
                    Absence::Missing => LossReason::Missing,
                    Absence::Taken => LossReason::Taken,
                };
                self.adoptions.remove(&tag.op);
                self.settle(tag.op, Outcome::Lost(reason));
            }
            Ok(Reply::NotHeld(_)) => {}
            Ok(Reply::Adopted(_)) => self.give_up_adoption(store, tag, timed_out()),
            Ok(other) => {
                let message = format!("the store answered {other:?} to an adoption");
                self.give_up_adoption(store, tag, StoreError::maybe_done(StoreErrorKind::Internal, message));
            }
            Err(error) if ours && error.kind.is_transient() => self.retry_adoption(store, tag, error),
            Err(error) => self.give_up_adoption(store, tag, error),
        }
    }

    fn is_of_ticket(&self, op: OpId, inherited: &Inherited) -> bool {
        self.adoptions.get(&op).is_none_or(|adoption| inherited.is_of_ticket(adoption.fence))
    }

    /// Takes up a lease that the store has moved to its heir, as the store describes the lease.
    fn inherit(&mut self, store: StoreId, sent: Instant, tag: AdoptTag, inherited: Inherited) {
        let Some(adoption) = self.adoptions.get(&tag.op) else { return };
        let ttl = limit(tag.ttl, adoption.source(), inherited.ttl);
        if self.now >= validity::deadline(sent, ttl) {
            return self.give_up_adoption(store, tag, timed_out());
        }
        let Some(Adoption { mut heir, fence, .. }) = self.adoptions.remove(&tag.op) else { return };
        if ttl < tag.ttl {
            heir.asked.ttl = ttl;
            self.settle(tag.op, Outcome::Shortened(ttl));
        }
        self.hold(heir, tag.heir, sent, inherited.fence(fence), None);
        if let Some(tenure) = self.tenures.get_mut(&tag.op) {
            tenure.adopted = true;
        }
    }

    fn retry_adoption(&mut self, store: StoreId, tag: AdoptTag, error: StoreError) {
        let jitter = self.jitter();
        let now = self.now;
        let Some(adoption) = self.adoptions.get_mut(&tag.op) else { return };
        adoption.heir.stats.errors.up();
        adoption.failures += 1;
        let at = renewal::retry(now, tag.ttl, adoption.failures, jitter);
        if at >= adoption.until {
            return self.give_up_adoption(store, tag, error);
        }
        adoption.wake = Some(at);
        self.timers.schedule(at, Wake::Adoption(tag.op));
    }

    /// Nobody will have the lease of the heir's token, if there is one.
    fn give_up_adoption(&mut self, store: StoreId, tag: AdoptTag, error: StoreError) {
        let until = self.now + tag.ttl.as_duration();
        // An attempt before the last may have been carried out, too.
        let tried_before = self.adoptions.get(&tag.op).is_some_and(|adoption| adoption.failures > 1);
        if error.maybe_done || tried_before {
            let AdoptTag { client, ref key, from, heir: token, .. } = tag;
            let (key, ticket) = (key.clone(), Some(from));
            self.clean_up(Leftover { client, store, key, token, ticket, until, straggler: true });
        }
        if self.adoptions.get(&tag.op).is_some_and(|a| a.heir.asked.token == tag.heir) {
            self.adoptions.remove(&tag.op);
            self.settle(tag.op, Outcome::Failed(error));
        }
    }

    /// Ends the adoption `op` with `outcome`, and cleans up what its requests leave at the store.
    /// The clean-up starts at once: a quorum that is still asking its nodes must stop, so that the
    /// ticket is free for other heirs.
    pub(super) fn end_adoption(&mut self, op: OpId, outcome: Outcome) {
        let Some(adoption) = self.adoptions.remove(&op) else { return };
        let asked = &adoption.heir.asked;
        let (client, key, token) = (asked.client, asked.key.clone(), asked.token);
        // Counted from now: the last attempt may have prolonged it.
        let (store, until) = (adoption.heir.store, self.now + asked.ttl.as_duration());
        let (ticket, straggler) = (Some(adoption.from), adoption.failures > 0);
        self.clean_up(Leftover { client, store, key, token, ticket, until, straggler });
        self.settle(op, outcome);
    }
}

fn timed_out() -> StoreError {
    StoreError::maybe_done(StoreErrorKind::TimedOut, "the store's answer took longer than the lease lives")
}
