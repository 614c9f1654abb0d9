//! Runs adoptions: an heir gets most nodes while other heirs try the same.
//!
//! If several heirs have claimed some nodes each, the heir with the smallest [mark](Token::mark)
//! keeps its nodes and asks the other nodes again. The other heirs give their nodes back to the
//! ticket, and begin again after a random pause. The pause grows with each attempt.
//!
//! An heir gives its claims back when its request ends. So a claim that stands for longer than a
//! request may take belongs to a dead heir, or to an heir that can't reach the node. Other heirs
//! take such a claim over.

use std::time::Duration;

use super::super::adoption::{Adoption, Claimant, Fate, Stage, Step, given_up};
use super::super::backers::{Decision, Terms};
use super::super::debts::Owed;
use super::super::post::Tag;
use super::lost::forgotten;
use super::{Council, LONGEST_PATIENCE, SHORTEST_PATIENCE};
use crate::lease::{Instant, Token};
use crate::store::{Answer, Reply, Request};

/// The longest pause before an heir that gave way begins again, and before an heir asks the nodes
/// of other heirs again. If this is larger, a ticket stays unused for longer after its other heirs
/// have died. If it is smaller, heirs disturb each other over a slow network.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often these pauses double at most. If this is larger, heirs pause for longer than a fast
/// network needs. If it is smaller, heirs disturb each other over a slow network.
const MOST_DOUBLINGS: u32 = 5;
/// How long the claim of another heir may stand before this heir takes it over, as a multiple of
/// the time that this heir's request may take. If this is larger, an heir that died during its
/// adoption blocks the ticket for longer. If it is smaller, heirs whose requests may take longer
/// lose their claims, and begin again.
const STALE: f64 = 1.5;

impl Council {
    /// Begins the adoption `request`, and answers it by `deadline`.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        batch: u64,
        index: usize,
        request: Request,
        deadline: Instant,
    ) {
        let Request::Adopt { key, token: ticket, heir, ttl, holder, outlives_process, source } = request
        else {
            return;
        };
        let who = Claimant { key, ticket, heir, ttl, holder, outlives_process, source };
        let mut adoption = Adoption::new(who, &self.nodes, batch, index, deadline, now);
        adoption.stale_after = deadline.since(now).mul_f64(STALE);
        let id = self.insert(adoption);
        self.claim(now, id);
    }

    fn insert(&mut self, adoption: Adoption) -> u64 {
        self.serial += 1;
        self.adoptions.insert(self.serial, adoption);
        self.serial
    }

    /// Begins the first round of an attempt: claims all nodes.
    fn claim(&mut self, now: Instant, id: u64) {
        let count = self.nodes.count();
        let Some(adoption) = self.adoptions.get_mut(&id) else { return };
        adoption.stage = Stage::Claiming;
        (adoption.asked, adoption.awaited) = (now, count);
        self.ask_claim(now, id, 0..count);
    }

    fn ask_claim(&mut self, now: Instant, id: u64, nodes: impl IntoIterator<Item = usize>) {
        let Some(adoption) = self.adoptions.get(&id) else { return };
        let timeout = adoption.timeout(now).max(SHORTEST_PATIENCE);
        for node in nodes {
            self.post.draft(node, timeout, adoption.claiming(node), Tag::Claim(id));
        }
    }

    /// Takes the answer of a node to a claim.
    pub(super) fn claimed(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let majority = self.nodes.majority();
        let Some(adoption) = self.adoptions.get_mut(&id) else { return };
        adoption.awaited -= 1;
        if let Stage::Over(fate) = adoption.stage {
            let owed: Vec<_> = adoption.after_claim(fate, &answer).collect();
            self.owe_after(now, owed.into_iter().map(|(owed, late)| (node, owed, late)));
        } else {
            let is_stale = matches!(&answer, Ok(Reply::Claimed { by })
                if self.rivals.heard_of(now, *by) > adoption.stale_after);
            let step = adoption.claimed(node, answer, is_stale, &self.nodes);
            if adoption.asked_again == 0 && adoption.heard() == majority {
                let took = now.since(adoption.asked).min(LONGEST_PATIENCE);
                self.trip = (self.trip * 7 + took) / 8;
            }
            self.follow_adoption(now, id, step);
        }
        self.forget_adoption(id);
    }

    /// Takes the answer of a node to the second round of an adoption.
    pub(super) fn confirmed(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(adoption) = self.adoptions.get_mut(&id) else { return };
        adoption.awaited -= 1;
        if let Stage::Over(fate) = adoption.stage {
            if let (Fate::Won, Ok(Reply::Adopted(_)), Some(lease)) = (fate, &answer, adoption.decided) {
                self.backers.joined(adoption.who.heir, id, node);
                self.backers.fenced(adoption.who.heir, node, lease.first);
            }
            let owed: Vec<_> = adoption.after_confirm(fate, &answer).collect();
            self.owe_after(now, owed.into_iter().map(|(owed, late)| (node, owed, late)));
        } else {
            let step = adoption.confirmed(node, answer, &self.nodes);
            self.follow_adoption(now, id, step);
        }
        self.forget_adoption(id);
    }

    /// Counts `node`, which has lost its leases, as failed in all adoptions.
    pub(super) fn adoptions_lost(&mut self, now: Instant, node: usize) {
        let mut open: Vec<u64> = self.adoptions.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            let Some(adoption) = self.adoptions.get_mut(&id).filter(|adoption| !adoption.is_over()) else {
                continue;
            };
            let step = adoption.lost(node, forgotten(&self.nodes.names[node]), &self.nodes);
            self.follow_adoption(now, id, step);
            self.forget_adoption(id);
        }
    }

    fn follow_adoption(&mut self, now: Instant, id: u64, step: Step) {
        match step {
            Step::Wait => self.contend(now, id),
            Step::Confirm(nodes) => {
                let Some(adoption) = self.adoptions.get_mut(&id) else { return };
                adoption.awaited += nodes.len();
                let timeout = adoption.timeout(now).max(SHORTEST_PATIENCE);
                for node in nodes {
                    self.post.draft(node, timeout, adoption.confirming(), Tag::Confirm(id));
                }
            }
            Step::GiveWay => self.give_way(now, id),
            Step::Settle(answer) => {
                let fate = match answer {
                    Ok(Reply::Adopted(_)) => Fate::Won,
                    Ok(_) => Fate::Lost,
                    Err(_) => Fate::GaveWay,
                };
                self.end_adoption(now, id, fate, answer);
            }
        }
    }

    /// Decides when to give way to other heirs, or to ask their nodes again. Does nothing if no
    /// other heir is in the way.
    fn contend(&mut self, now: Instant, id: u64) {
        let (patience, share) = (self.patience(), 0.5 + self.rng.f64());
        let Some(adoption) = self.adoptions.get_mut(&id) else { return };
        let Some(all_heard) = adoption.contends() else { return };
        let pause = match adoption.asked_again {
            _ if all_heard && adoption.gives_way() => Duration::ZERO,
            0 if all_heard => SHORTEST_PATIENCE,
            0 => patience,
            again => patience.mul_f64(share) * (1 << again.min(MOST_DOUBLINGS)),
        };
        let at = now + pause.min(LONGEST_PAUSE);
        adoption.act_at = Some(adoption.act_at.map_or(at, |act_at| act_at.min(at)));
    }

    /// Does what is due at `now` in all adoptions.
    pub(super) fn tick_adoptions(&mut self, now: Instant) {
        let due = |adoption: &Adoption| adoption.next_wake().is_some_and(|at| at <= now);
        let mut due: Vec<u64> =
            self.adoptions.iter().filter(|(_, adoption)| due(adoption)).map(|(id, _)| *id).collect();
        due.sort_unstable();
        for id in due {
            let Some(adoption) = self.adoptions.get_mut(&id) else { continue };
            adoption.act_at = None;
            match adoption.stage {
                _ if adoption.deadline <= now => {
                    let overdue = adoption.overdue(&self.nodes);
                    self.end_adoption(now, id, Fate::GaveWay, Err(overdue));
                }
                Stage::Resting(_) => self.claim(now, id),
                _ if adoption.gives_way() => self.give_way(now, id),
                _ => {
                    let nodes = adoption.ask_again();
                    self.ask_claim(now, id, nodes);
                }
            }
            self.forget_adoption(id);
        }
    }

    /// Gives the claimed nodes back to the ticket, and plans the next attempt.
    fn give_way(&mut self, now: Instant, id: u64) {
        let (patience, share) = (self.patience(), 1.0 + self.rng.f64());
        let Some(adoption) = self.adoptions.get_mut(&id) else { return };
        // In this time, all nodes can answer the heir with the smallest mark.
        let pause = patience.max(now.since(adoption.asked)) * (1 << adoption.before.min(MOST_DOUBLINGS));
        let next = adoption.next(&self.nodes, now + pause.mul_f64(share).min(LONGEST_PAUSE));
        let owed = adoption.end(Fate::GaveWay);
        self.owe_after(now, owed);
        self.insert(next);
    }

    fn end_adoption(&mut self, now: Instant, id: u64, fate: Fate, answer: Answer) {
        let Some(adoption) = self.adoptions.get_mut(&id) else { return };
        let (batch, index, who, asked) =
            (adoption.batch, adoption.index, adoption.who.clone(), adoption.asked);
        let (ttl, decided) = (adoption.ttl().as_duration(), adoption.decided);
        let (owed, nodes) = (adoption.end(fate), adoption.agreeing());
        self.owe_after(now, owed);
        if let (Fate::Won, Some(lease)) = (fate, decided) {
            let Claimant { key, ticket, heir, holder, outlives_process, .. } = who.clone();
            self.debts.redirect(now, ticket, Some(heir));
            let (fences, ticket) = ((lease.first, 1), Some(ticket));
            let terms = Terms { key, mode: lease.mode, holder, outlives_process, fences, ticket };
            let decision = Decision { ballot: id, nodes, fenced: Some(nodes), asked, ttl };
            self.backers.granted(now, heir, decision, terms);
        }
        self.settle(now, batch, index, Some(who.key), answer);
    }

    fn owe_after(&mut self, now: Instant, owed: impl IntoIterator<Item = (usize, Owed, bool)>) {
        for (node, owed, is_straggler) in owed {
            self.debts.owe_move(now, node, owed, is_straggler);
        }
    }

    /// Ends the adoptions of `heir`, whose lease ends or goes back to the ticket `to`. Nodes that
    /// would still pass to the heir are released or go back to the ticket, too.
    pub(super) fn heir_ended(&mut self, now: Instant, heir: Token, to: Option<Token>) {
        self.debts.redirect(now, heir, to);
        let mut of_heir: Vec<u64> = self
            .adoptions
            .iter()
            .filter(|(_, adoption)| adoption.who.heir == heir)
            .map(|(id, _)| *id)
            .collect();
        of_heir.sort_unstable();
        let fate = if to.is_some() { Fate::GaveUp } else { Fate::Released };
        for id in of_heir {
            let Some(adoption) = self.adoptions.get_mut(&id) else { continue };
            match adoption.stage {
                Stage::Over(Fate::Won | Fate::GaveWay) => adoption.stage = Stage::Over(fate),
                Stage::Over(_) => {}
                _ => self.end_adoption(now, id, fate, Err(given_up())),
            }
            self.forget_adoption(id);
        }
    }

    /// Forgets the adoption if it has ended and all nodes have answered.
    fn forget_adoption(&mut self, id: u64) {
        if self.adoptions.get(&id).is_some_and(|adoption| adoption.is_over() && adoption.awaited == 0) {
            self.adoptions.remove(&id);
        }
    }
}
