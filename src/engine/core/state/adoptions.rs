//! Adoptions: leases that another process detached, on their way to this one. Touches its own map,
//! counts its requests at the [`Clients`], and uses the timers of the [`Context`].

use rustc_hash::FxHashMap;

use super::clean_ups::PossibleLease;
use super::clients::Clients;
use super::context::{Context, Wake};
use super::outgoing::Outgoing;
use super::tags::{AdoptTag, Tag};
use super::waiters::Waiter;
use crate::engine::command::Outcome;
use crate::engine::ids::{ClientId, OpId, StoreId};
use crate::lease::renewal;
use crate::lease::{Fence, Instant, LossReason, Token, validity};
use crate::store::adopted_lease::limit;
use crate::store::{Absence, AdoptedLease, Answer, Reply, Request, Source, StoreError, StoreErrorKind};

struct Adoption {
    adopter: Waiter,
    from: Token,
    /// The fence in the ticket.
    fence: Fence,
    with_ttl: bool,
    /// When the engine stops trying: the lease would have run out.
    until: Instant,
    failures: u32,
    wake: Option<Instant>,
}

impl Adoption {
    fn source(&self) -> Source {
        Source::Ticket { fence: self.fence, with_ttl: self.with_ttl }
    }
}

/// What an answer of the store means for an adoption.
pub enum AdoptionEffect {
    Nothing,
    /// Asks the store again at once.
    AskAgain,
    /// The adoption has ended without a lease, but its token may have one.
    CleanUp(PossibleLease),
    /// The adopter has the lease.
    Adopted {
        adopter: Waiter,
        fence: Fence,
    },
}

/// See the module.
#[derive(Default)]
pub struct Adoptions {
    adoptions: FxHashMap<OpId, Adoption>,
}

impl Adoptions {
    /// Adds an adoption of the lease of `from`. It sends nothing yet.
    pub fn add(&mut self, adopter: Waiter, from: Token, fence: Fence, with_ttl: bool, now: Instant) {
        let until = now + adopter.acquire.ttl.as_duration();
        let op = adopter.acquire.op;
        self.adoptions
            .insert(op, Adoption { adopter, from, fence, with_ttl, until, failures: 0, wake: None });
    }

    /// Returns the request that moves the lease to its adopter. The same request again is harmless.
    pub fn ask(&mut self, op: OpId, clients: &mut Clients) -> Option<Outgoing> {
        let adoption = self.adoptions.get_mut(&op)?;
        adoption.wake = None;
        let (token, store) = (adoption.from, adoption.adopter.store);
        let acquire = &adoption.adopter.acquire;
        let (client, key, adopter, ttl) = (acquire.client, acquire.key.clone(), acquire.token, acquire.ttl);
        let outlives_process = acquire.outlives_process;
        let known = clients.begin_request(client)?;
        let holder = acquire.holder.as_ref().unwrap_or(&known.settings.name).clone();
        let timeout = known.settings.store_timeout;
        let source = adoption.source();
        let tag = Tag::Adopt(AdoptTag { op, client, key: key.clone(), from: token, adopter, ttl });
        let request = Request::Adopt { key, token, adopter, ttl, holder, outlives_process, source };
        Some(Outgoing { store, request, tag, timeout })
    }

    /// Handles the answer of `store` to a request that was sent at `sent`. If the answer is
    /// `outdated`, the store may have lost the lease since then.
    pub fn answered(
        &mut self,
        store: StoreId,
        sent: Instant,
        tag: AdoptTag,
        answer: Answer,
        outdated: bool,
        cx: &mut Context,
    ) -> AdoptionEffect {
        let ours = self.is_of(&tag);
        match answer {
            // The same request again finds out whether the store has the lease.
            Ok(Reply::Adopted(_)) if ours && outdated => AdoptionEffect::AskAgain,
            Ok(Reply::Adopted(adopted_lease)) if ours => self.take_up(store, sent, tag, adopted_lease, cx),
            Ok(Reply::NotHeld(absence)) if ours => {
                let reason = match absence {
                    Absence::Missing => LossReason::Missing,
                    Absence::Taken => LossReason::Taken,
                };
                self.adoptions.remove(&tag.op);
                cx.settle(tag.op, Outcome::Lost(reason));
                AdoptionEffect::Nothing
            }
            Ok(Reply::NotHeld(_)) => AdoptionEffect::Nothing,
            Ok(Reply::Adopted(_)) => self.give_up(store, tag, timed_out(), cx),
            Ok(other) => {
                let message = format!("the store answered {other:?} to an adoption");
                let error = StoreError::maybe_done(StoreErrorKind::Internal, message);
                self.give_up(store, tag, error, cx)
            }
            Err(error) if ours && error.kind.is_transient() => self.retry(store, tag, error, cx),
            Err(error) => self.give_up(store, tag, error, cx),
        }
    }

    /// Returns whether the adoption that the tag names is the one whose request was answered.
    fn is_of(&self, tag: &AdoptTag) -> bool {
        self.adoptions.get(&tag.op).is_some_and(|a| a.adopter.acquire.token == tag.adopter)
    }

    /// Takes up a lease that the store has moved to its adopter.
    fn take_up(
        &mut self,
        store: StoreId,
        sent: Instant,
        tag: AdoptTag,
        adopted_lease: AdoptedLease,
        cx: &mut Context,
    ) -> AdoptionEffect {
        let Some(adoption) = self.adoptions.get(&tag.op) else { return AdoptionEffect::Nothing };
        if !adopted_lease.is_of_ticket(adoption.fence) {
            let possible = self.end(tag.op, Outcome::Lost(LossReason::Taken), cx);
            return possible.map_or(AdoptionEffect::Nothing, AdoptionEffect::CleanUp);
        }
        let ttl = limit(tag.ttl, adoption.source(), adopted_lease.ttl);
        if cx.now >= validity::deadline(sent, ttl) {
            return self.give_up(store, tag, timed_out(), cx);
        }
        let Some(Adoption { mut adopter, fence, .. }) = self.adoptions.remove(&tag.op) else {
            return AdoptionEffect::Nothing;
        };
        adopter.acquire.ttl = ttl;
        cx.settle(tag.op, Outcome::Adopted { ttl, shared: adopted_lease.mode.is_shared() });
        AdoptionEffect::Adopted { adopter, fence: adopted_lease.fence(fence) }
    }

    fn retry(
        &mut self,
        store: StoreId,
        tag: AdoptTag,
        error: StoreError,
        cx: &mut Context,
    ) -> AdoptionEffect {
        let jitter = cx.jitter();
        let Some(adoption) = self.adoptions.get_mut(&tag.op) else { return AdoptionEffect::Nothing };
        adoption.adopter.stats.errors.up();
        adoption.failures += 1;
        let at = renewal::retry(cx.now, tag.ttl, adoption.failures, jitter);
        if at >= adoption.until {
            return self.give_up(store, tag, error, cx);
        }
        adoption.wake = Some(at);
        cx.timers.schedule(at, Wake::Adoption(tag.op));
        AdoptionEffect::Nothing
    }

    /// Ends an adoption whose request failed. If its token has a lease at the store, the engine
    /// releases that lease.
    fn give_up(
        &mut self,
        store: StoreId,
        tag: AdoptTag,
        error: StoreError,
        cx: &mut Context,
    ) -> AdoptionEffect {
        let until = cx.now + tag.ttl.as_duration();
        // An attempt before the last may have been carried out, too.
        let tried_before = self.adoptions.get(&tag.op).is_some_and(|adoption| adoption.failures > 1);
        let may_have_it = error.maybe_done || tried_before;
        if self.is_of(&tag) {
            self.adoptions.remove(&tag.op);
            cx.settle(tag.op, Outcome::Failed(error));
        }
        if !may_have_it {
            return AdoptionEffect::Nothing;
        }
        let AdoptTag { client, key, from, adopter: token, .. } = tag;
        let from_ticket = Some(from);
        AdoptionEffect::CleanUp(PossibleLease {
            client,
            store,
            key,
            token,
            from_ticket,
            until,
            straggler: true,
        })
    }

    /// Ends the adoption `op` with `outcome`. Returns what its requests may have left at the store.
    /// The clean-up must start at once. A quorum that is still asking its nodes must stop, so that
    /// the ticket is free for other adopters.
    pub fn end(&mut self, op: OpId, outcome: Outcome, cx: &mut Context) -> Option<PossibleLease> {
        let adoption = self.adoptions.remove(&op)?;
        cx.settle(op, outcome);
        let acquire = &adoption.adopter.acquire;
        Some(PossibleLease {
            client: acquire.client,
            store: adoption.adopter.store,
            key: acquire.key.clone(),
            token: acquire.token,
            from_ticket: Some(adoption.from),
            // The time counts from now, because the last attempt may have prolonged the lease.
            until: cx.now + acquire.ttl.as_duration(),
            straggler: adoption.failures > 0,
        })
    }

    pub fn contains(&self, op: OpId) -> bool {
        self.adoptions.contains_key(&op)
    }

    /// Returns the adoptions of the clients.
    pub fn of_clients(&self, clients: &[ClientId]) -> Vec<OpId> {
        let ours = self.adoptions.iter().filter(|(_, a)| clients.contains(&a.adopter.acquire.client));
        ours.map(|(op, _)| *op).collect()
    }

    /// Returns when the adoption is due.
    pub fn due_at(&self, op: OpId) -> Option<Instant> {
        self.adoptions.get(&op).and_then(|adoption| adoption.wake)
    }

    pub fn len(&self) -> usize {
        self.adoptions.len()
    }
}

fn timed_out() -> StoreError {
    StoreError::maybe_done(StoreErrorKind::TimedOut, "the store's answer took longer than the lease lives")
}
