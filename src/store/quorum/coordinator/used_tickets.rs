//! Gives an adopter the nodes that still have its ticket after the adoption, and frees them when
//! the adopter releases the lease.
//!
//! An adoption ends as soon as most nodes have confirmed it. The other nodes may have the ticket:
//! another adopter claimed them and gave them back later, or they were away. They may also have the
//! claim of an adopter that died. A node with either token refuses the adopter. After the adopter's
//! release, it refuses all clients until the ticket ends.
//!
//! So the quorum asks these nodes to move the lease from the ticket to the adopter. It asks several
//! times within the first 5 s, because another adopter may give a node back in that time. It asks
//! again whenever a node answers a renewal with [`Absence::Taken`](crate::store::Absence::Taken).
//! If a node answers with another adopter's claim to the ticket, the quorum moves the lease from
//! that claim. The node counts from the next renewal on. If all nodes have confirmed the adoption,
//! the quorum sends nothing.
//!
//! **Why there are never two holders.** Once most nodes have confirmed an adopter, the ticket is
//! used up. These nodes have the adopter's token. Only the adopter's process gives them back to the
//! ticket, and only if its caller does not have the lease. Until then, only a minority of the nodes
//! has the ticket or a claim to it. So no other adopter gets a majority, whether or not that
//! adopter still lives when its claim moves. A move takes a node only from the ticket or from a
//! claim to the ticket. So a move that arrives late can't take a node from a client that acquired
//! the lock after the adopter, or from a later adopter.
//!
//! **Why a ticket does not come back.** A move does not change when the lease ends at the node, and
//! does nothing if the node does not have the token that the move names. So a move revives no lease
//! that was released or has ended: it only replaces the token. After the adopter has released its
//! lease, the quorum still sends the moves that are pending, and one to each node that is not known
//! to have the adopter's token. If such a node answers that the adopter's token has the lease now,
//! the quorum releases that token there. Releasing the ticket instead would not find the claim of
//! an adopter that died. A move that was sent before the release may arrive after it, so the quorum
//! releases the adopter's token at these nodes in any case.
//!
//! **What happens when the adopter detaches the lease.** The adopter's token is then the next
//! ticket, which may soon be used up, too. The adopter's process does not hear of that. If it gave
//! a used ticket to a node that comes back, the node would keep that ticket. So from the detachment
//! on, the process gives the adopter no more nodes. It frees the nodes that may still have the
//! first ticket or a claim to it: they move the lease to a token that no client uses, and then
//! release that token. A freed node gets the lease back with the renewals of the next adopter. In a
//! chain of hand-overs, each adopter's process does this for the ticket that it adopted: when it
//! detaches the lease, or when it releases it. So a node that was away during the chain keeps no
//! token of the chain, whichever one it has.
//!
//! **Why this never frees a node that a client counts on.** Most nodes have confirmed the adopter.
//! From the detachment on, no process gives these nodes back to the first ticket: the adopter's
//! process could do it only before its client had the lease. So neither the owner of the first
//! ticket nor an adopter with a claim to it can ever get most nodes. The process frees only nodes
//! that have the first ticket or a claim to it, so no client counts on these nodes. It never
//! releases the adopter's own token in this way: a node may have that token although its answer was
//! lost, and the next ticket may need this node.
//!
//! **Why moves do not disturb other adoptions.** Moves take no node from the adopter of the next
//! ticket: they name only the first ticket, and claims to it. A late move may name a claim of the
//! adopter from an attempt that failed. That claim begins with the same bits as the adopter's
//! token, which is the next ticket, and a node recognizes the claims to a ticket by these bits. So
//! a node looks for a claim only if the move names a ticket, and the quorum moves a lease only from
//! a claim to the ticket that the move has named ([`Token::claims`]). If the adopter's process
//! gives the lease back to the first ticket, it sends no more moves from that ticket. A node that a
//! late move gives to the adopter is given back, too. Moves go only to nodes that did not confirm
//! the adopter, so most nodes have the ticket even before that.
//!
//! **Why an adopted lease that has ended is released.** A node keeps an adopter's lease at least
//! until the end of the ticket, because the adopter's process may give the lease back to the
//! ticket. So if all renewals fail, the lease ends for its holder after its ttl, but the nodes
//! would keep the lock until the ticket ends. The quorum therefore releases the lease when it would
//! have ended without the ticket. An earlier release would be wrong, because the former holder's
//! work may still run. If the process has asked to detach the lease, the quorum does not release
//! it, because the lease may be the next ticket by then. If the request failed for certain, or if
//! the process has renewed the lease after a failure, no client has such a ticket. Then the lease
//! counts as adopted again. If the lease is lost before that, the engine releases it.
//!
//! **What is left.** If an adopter dies after a minority of the nodes has confirmed it, its own
//! token stays there. A node can't distinguish that token from the token of another client, so the
//! token stays until it ends.

use super::super::adoption::AdoptionEnd;
use super::super::lease_nodes::{EndedLease, LeaseTerms};
use super::super::pending_releases::TokenChange;
use super::Coordinator;
use crate::lease::{Instant, Token};
use crate::mutants::{self, Mutant};
use crate::store::Request;

impl Coordinator {
    /// Adds for `node` the move from the used ticket to the adopter, if the lease that the request
    /// `id` has renewed was adopted.
    pub(super) fn move_ticket(&mut self, now: Instant, id: u64, node: usize) {
        let Some(pending) = self.pending_requests.get(&id) else { return };
        let Some((adopter, _)) = pending.vote_round.request.lease() else { return };
        let Some(LeaseTerms { key, ticket: Some(ticket), .. }) = self.lease_nodes.terms(now, adopter) else {
            return;
        };
        if !mutants::is(Mutant::TicketLeftBehind) {
            let change = TokenChange::ticket(key.clone(), *ticket, adopter);
            self.pending_releases.add_move(now, node, change, false);
        }
    }

    /// Counts the lease of `token` as adopted again if the process has asked to detach the lease
    /// and still holds it. Does nothing while such a request is open: the lease may become a
    /// ticket.
    pub(super) fn count_as_adopted(&mut self, token: Token) {
        if !self.lease_nodes.is_detaching(token) {
            return;
        }
        let open = self.pending_requests.values().filter(|pending| !pending.vote_round.is_settled());
        let is_open = open.into_iter().any(|pending| {
            matches!(&pending.vote_round.request, Request::Detach { token: detached, .. } if *detached == token)
        });
        if !is_open {
            self.lease_nodes.not_detached(token);
        }
    }

    /// Releases the adopted leases that have ended without a release. If the client is repeating
    /// the adoption of such a lease, the lease stays until the deadline of that adoption.
    pub(super) fn end_adopted_leases(&mut self, now: Instant) {
        for token in self.lease_nodes.ended(now) {
            let attempts = self.adoptions.of_adopter(token).into_iter();
            let attempts = attempts.filter_map(|id| self.adoptions.get(id));
            let open = attempts.filter(|attempt| !attempt.is_over());
            if let Some(deadline) = open.map(|attempt| attempt.deadline).max() {
                self.lease_nodes.postpone(token, deadline);
            } else if mutants::is(Mutant::TicketKeptAfterRelease) {
                drop(self.end_repairs(token));
            } else {
                self.lease_is_gone(now, token);
            }
        }
    }

    /// Forgets the lease of `token`, which was detached: no client of this process holds it any
    /// more. If it was adopted, frees each node that may still have its ticket or a claim to that
    /// ticket.
    pub(super) fn detached(&mut self, now: Instant, token: Token) {
        let ended = self.lease_nodes.forget(token);
        if let Some(EndedLease { may_have, may_live_until, .. }) = &ended {
            self.detached_leases.add(now, token, *may_have, *may_live_until);
        }
        if mutants::is(Mutant::TicketKeptAfterDetach) {
            return;
        }
        self.end_adoptions(now, token, AdoptionEnd::Detached);
        if let Some(ended @ EndedLease { ticket: Some(_), .. }) = &ended {
            let unused = Token::random();
            self.pending_releases.release_moved(token, unused);
            self.release_ticket(now, ended, unused);
        }
    }

    /// Releases the ticket of an adopted lease that has ended or was detached, at each node that
    /// may still have the ticket. The node first moves the lease to `to`, which no client uses.
    pub(super) fn release_ticket(&mut self, now: Instant, ended: &EndedLease, to: Token) {
        let EndedLease { key, token, ticket: Some((ticket, nodes)), may_live_until, .. } = ended else {
            return;
        };
        if mutants::is(Mutant::TicketKeptAfterRelease) {
            return;
        }
        let ends = Some(*may_live_until).max(self.ticket_ends.latest(*token));
        for node in (0..self.nodes.count()).filter(|node| nodes & 1 << node != 0) {
            // Another adopter may give the node back to the ticket only after the first request.
            let change = TokenChange { release: true, ends, ..TokenChange::ticket(key.clone(), *ticket, to) };
            self.pending_releases.add_move(now, node, change, true);
        }
    }
}
