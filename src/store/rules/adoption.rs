//! The rules for leases that pass to other tokens.

use std::sync::Arc;
use std::time::Duration;

use super::super::adopted_lease::{AdoptedLease, limit, split_note, with_note};
use super::super::{Reply, Source};
use super::held::Held;
use super::{Lock, RuleContext};
use crate::lease::{Token, Ttl};

impl Lock {
    /// Carries out [`Request::Adopt`](super::super::Request::Adopt).
    pub fn adopt(
        &mut self,
        token: Token,
        adopter: Token,
        ttl: Ttl,
        source: Source,
        holder: &Arc<str>,
        context: &mut RuleContext<'_>,
    ) -> Reply {
        self.refresh(context, None);
        self.forget_repairs(&[token, adopter]);
        let known_last = self.last_fence();
        let Some(held) = self.first_of(&[adopter, token]) else { return self.absence() };
        // Keep the note, so that a repeated request gets the same answer.
        let (_, noted) = split_note(&held.holder);
        let is_passed = held.token != adopter;
        held.token = adopter;
        held.holder = with_note(holder, noted);
        let ends = context.now + limit(ttl, source, noted).as_duration();
        // Neither a repeated request nor an adoption over a quorum may shorten the lease.
        held.ends = if is_passed && source.ends_ticket() { ends } else { held.ends.max(ends) };
        if let Source::Quorum(fence) = source {
            held.has_from(fence, 1);
        } else if held.fence.is_none() {
            held.has_from((context.fences)(known_last, 1), 1);
        }
        Reply::Adopted(held.adopted_lease())
    }

    /// Carries out [`Request::Move`](super::super::Request::Move).
    pub fn pass(
        &mut self,
        token: Token,
        to: Token,
        adopter: Token,
        most: Option<Duration>,
        context: &mut RuleContext<'_>,
    ) -> Reply {
        self.refresh(context, None);
        self.forget_repairs(&[token, to, adopter]);
        if let Some(held) = self.first_of(&[adopter, to, token]) {
            if held.token == token {
                held.token = to;
            }
            if let Some(most) = most.filter(|_| held.token == to) {
                held.ends = held.ends.min(context.now + most);
            }
            let remaining = (held.token != adopter).then(|| held.ends.since(context.now));
            return Reply::Adopted(AdoptedLease { remaining, ..held.adopted_lease() });
        }
        match self.held.iter().find(|held| held.token.claims(token)) {
            Some(held) => Reply::Claimed { by: held.token },
            None => self.absence(),
        }
    }

    /// Returns the lease of the first of these tokens that has one. Of a shared lock, a ticket and
    /// its adopter may both have one.
    fn first_of(&mut self, tokens: &[Token]) -> Option<&mut Held> {
        let index = |token: &Token| self.held.iter().position(|held| held.token == *token);
        tokens.iter().find_map(index).map(|index| &mut self.held[index])
    }

    /// Removes the places of repairs by these tokens. No client uses the former token of a lease
    /// that moves, and the new token may have the lease at this node already.
    fn forget_repairs(&mut self, tokens: &[Token]) {
        self.queue.retain(|waiting| !waiting.repairs() || !tokens.contains(&waiting.token));
    }
}
