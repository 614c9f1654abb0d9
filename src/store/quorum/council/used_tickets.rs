//! Gives an heir the nodes that still have its ticket after the adoption, and frees them when the
//! heir releases the lease.
//!
//! An adoption ends as soon as most nodes have confirmed it. The other nodes may have the ticket:
//! another heir claimed them and gave them back later, or they were away. Or they have the claim of
//! an heir that died. Each of these tokens would keep the node from the heir, and after the heir's
//! release from all clients, until the end of the ticket.
//!
//! So the quorum asks these nodes to move the lease from the ticket to the heir: several times within
//! the first five seconds, because another heir may give a node back only then, and again whenever a node
//! answers a renewal with [`Absence::Taken`](crate::store::Absence::Taken). If a node answers with
//! the claim of another heir, the quorum moves the lease from that claim. The node counts from the
//! next renewal on. If all nodes have confirmed the adoption, the quorum sends nothing.
//!
//! **Why there are never two holders.** Once most nodes have confirmed an heir, the ticket is used
//! up. These nodes have the heir's token, and only the heir's process gives them back to the ticket,
//! when its caller does not have the lease. Until then, fewer than most nodes have the ticket or a
//! claim to it. So no other heir gets a majority, and it makes no difference whether that heir still
//! lives when its claim moves. A move takes a node from the ticket or from a claim to it, and from
//! nobody else. So a move that arrives late can't take a node from a client that acquired the lock
//! after the heir, nor from a later heir.
//!
//! **Why a ticket does not come back.** A move keeps the end of the lease at the node, and does
//! nothing if the node does not have the token that it names. So nothing that was released, or has
//! ended, lives again: a token only changes its name. After the heir has released its lease, the
//! moves that are still owed go on, and so does a move at each node that is not known to have the
//! heir's token. When such a node answers that the heir's token has the lease now, that token is
//! released there. Releasing the ticket instead would not find the claim of an heir that died. A move
//! that was sent before the release may arrive after it, so the heir's token is released at these
//! nodes in any case.
//!
//! **Why later adoptions are not disturbed.** If the heir detaches the lease, its token is the next
//! ticket. Moves of the first ticket then add nodes to that ticket, and take none from its heir. If
//! the heir's process gives the lease back to the first ticket, it sends no more moves from that
//! ticket. A node that a late move gives to the heir is given back, too. Moves go only to nodes that
//! did not confirm the heir, so most nodes have the ticket even before that.
//!
//! **What is left.** An heir that died after some nodes, but fewer than most, had confirmed it
//! leaves its own token there. Nothing tells that token from the token of another client, so it
//! stays until it ends.

use super::super::backers::{Forgotten, Terms};
use super::super::debts::Owed;
use super::Council;
use crate::lease::Instant;
use crate::mutants::{self, Mutant};

impl Council {
    /// Owes `node` the move from the used ticket to the heir, if the lease that the request `id` has
    /// renewed was adopted.
    pub(super) fn move_ticket(&mut self, now: Instant, id: u64, node: usize) {
        let Some(motion) = self.motions.get(&id) else { return };
        let Some((heir, _)) = motion.ballot.request.lease() else { return };
        let Some(Terms { key, ticket: Some(ticket), .. }) = self.backers.terms(now, heir) else { return };
        if !mutants::is(Mutant::TicketLeftBehind) {
            let owed = Owed::ticket(key.clone(), *ticket, heir);
            self.debts.owe_move(now, node, owed, false);
        }
    }

    /// Releases the ticket of an adopted lease that has ended, at each node that may still have it.
    pub(super) fn release_ticket(&mut self, now: Instant, ended: Option<&Forgotten>) {
        let Some(Forgotten { key, token, ticket: Some((ticket, nodes)), .. }) = ended else { return };
        if mutants::is(Mutant::TicketKeptAfterRelease) {
            return;
        }
        for node in (0..self.nodes.count()).filter(|node| nodes & 1 << node != 0) {
            // Another heir may give the node back to the ticket only after the first request.
            let owed = Owed { release: true, ..Owed::ticket(key.clone(), *ticket, *token) };
            self.debts.owe_move(now, node, owed, true);
        }
    }
}
