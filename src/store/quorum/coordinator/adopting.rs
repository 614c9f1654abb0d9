//! Runs adoptions: an adopter gets most nodes while other adopters try the same.
//!
//! If several adopters have claimed some nodes each, the adopter with the smallest
//! [mark](Token::mark) keeps its nodes and asks the other nodes again. The other adopters give
//! their nodes back to the ticket, and begin again after a random pause. The pause grows with each
//! attempt.
//!
//! An adopter gives its claims back when its request ends. So a claim that stands for longer than a
//! request may take belongs to a dead adopter, or to an adopter that can't reach the node. Other
//! adopters take such a claim over.
//!
//! A process may begin thousands of adoptions at once. If all of them asked the nodes, a busy
//! machine would not answer most of them in time. They would give back what they have claimed and
//! begin again, which would make the machine busier. So only some of them ask the nodes, and the
//! others wait for their [turn](super::super::adoptions::Adoptions::take_turn).

use std::time::Duration;

use super::super::adoption::{
    AdoptionAttempt, AdoptionEnd, AdoptionRequest, AdoptionStage, Step, given_up, no_turn,
};
use super::super::call_queue::CallTag;
use super::super::lease_nodes::{Agreement, LeaseTerms};
use super::super::pending_releases::TokenChange;
use super::lost::forgotten;
use super::{Coordinator, LONGEST_PATIENCE, SHORTEST_PATIENCE};
use crate::lease::validity::longest_life;
use crate::lease::{Instant, Token};
use crate::store::{Absence, AdoptedLease, Answer, Reply, Request};

/// The longest pause before an adopter that backed off begins again, and before an adopter asks the
/// nodes of other adopters again. If this is larger, a ticket stays unused for longer after its
/// other adopters have died. If it is smaller, adopters disturb each other over a slow network.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often these pauses double at most. If this is larger, adopters pause for longer than a fast
/// network needs. If it is smaller, adopters disturb each other over a slow network.
const MOST_DOUBLINGS: u32 = 5;
/// How long the claim of another adopter may stand before this adopter takes it over, as a multiple
/// of the time that this adopter's request may take. If this is larger, an adopter that died during
/// its adoption blocks the ticket for longer. If it is smaller, adopters with longer time-outs lose
/// their claims, and begin again.
const STALE: f64 = 1.5;

impl Coordinator {
    /// Begins the adoption `request` when it is its turn, and answers it by `deadline`. It waits
    /// for at most half of the time until then: the other half is for the answers of the nodes.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        batch: u64,
        index: usize,
        request: Request,
        deadline: Instant,
    ) {
        let Request::Adopt { key, token: ticket, adopter, ttl, holder, outlives_process, source } = request
        else {
            return;
        };
        let request = AdoptionRequest { key, ticket, adopter, ttl, holder, outlives_process, source };
        let mut adoption = AdoptionAttempt::new(request, &self.nodes, batch, index, deadline, now);
        adoption.stale_after = deadline.since(now).mul_f64(STALE);
        adoption.stage = AdoptionStage::Waiting(now + deadline.since(now) / 2);
        self.insert(adoption);
        self.begin_adoptions(now);
    }

    /// Begins the adoptions whose turn it is.
    pub(super) fn begin_adoptions(&mut self, now: Instant) {
        while let Some(id) = self.adoptions.take_turn() {
            self.claim(now, id);
            self.adoptions.changed(id);
        }
    }

    fn insert(&mut self, adoption: AdoptionAttempt) -> u64 {
        self.serial += 1;
        self.adoptions.insert(self.serial, adoption);
        self.serial
    }

    /// Begins the first round of an attempt: claims all nodes.
    fn claim(&mut self, now: Instant, id: u64) {
        let count = self.nodes.count();
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        adoption.stage = AdoptionStage::Claiming;
        (adoption.asked, adoption.awaited) = (now, count);
        self.ask_claim(now, id, 0..count);
    }

    fn ask_claim(&mut self, now: Instant, id: u64, nodes: impl IntoIterator<Item = usize>) {
        let Some(adoption) = self.adoptions.get(id) else { return };
        let timeout = adoption.timeout(now).max(SHORTEST_PATIENCE);
        for node in nodes {
            self.call_queue.add(node, timeout, adoption.claiming(node), CallTag::Claim(id));
        }
    }

    /// Takes the answer of a node to a claim.
    pub(super) fn claimed(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let (majority, count) = (self.nodes.majority(), self.nodes.count());
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        adoption.awaited -= 1;
        let (answer, release) = adoption.refuse_newer(answer);
        if let Ok(Reply::Adopted(AdoptedLease { remaining: Some(remaining), .. })) = answer {
            let (adopter, ttl) = (adoption.request.adopter, adoption.request.ttl.as_duration());
            self.ticket_ends.told(now, adopter, (node, count), remaining, ttl);
        }
        if let Some(release) = release {
            self.pending_releases.add_move(now, node, release, false);
        }
        if adoption.confirms_late(now, node, &answer) {
            self.ask_to_confirm(now, id, &[node]);
        } else if let AdoptionStage::Over(end) = adoption.stage {
            if end == AdoptionEnd::Won {
                self.lease_nodes.refused(adoption.request.adopter, node);
            }
            let changes: Vec<_> = adoption.after_claim(end, &answer).collect();
            let (adopter, ticket) = (adoption.request.adopter, adoption.request.ticket);
            let changes = changes.into_iter().map(|(change, late)| (node, change, late));
            self.add_changes_after(now, (adopter, ticket), changes);
        } else {
            let is_stale = matches!(&answer, Ok(Reply::Claimed { by })
                if self.other_adopters.heard_of(now, *by) > adoption.stale_after);
            let step = adoption.claimed(node, answer, is_stale, &self.nodes);
            if adoption.asked_again == 0 && adoption.heard() == majority {
                let took = now.since(adoption.asked).min(LONGEST_PATIENCE);
                self.majority_time = (self.majority_time * 7 + took) / 8;
            }
            self.follow_adoption(now, id, step);
        }
        self.node_answered(id);
    }

    /// Takes the answer of a node to the second round of an adoption.
    pub(super) fn confirmed(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        adoption.awaited -= 1;
        if let AdoptionStage::Over(end) = adoption.stage {
            if let (AdoptionEnd::Won, Ok(Reply::Adopted(_)), Some(lease)) = (end, &answer, adoption.decided) {
                self.lease_nodes.joined(adoption.request.adopter, id, node);
                let end = now + longest_life(adoption.ttl());
                self.lease_nodes.may_live(adoption.request.adopter, end);
                self.lease_nodes.fenced(adoption.request.adopter, node, lease.first);
            } else if end == AdoptionEnd::Won {
                self.lease_nodes.refused(adoption.request.adopter, node);
            }
            let changes: Vec<_> = adoption.after_confirm(end, &answer).collect();
            let (adopter, ticket) = (adoption.request.adopter, adoption.request.ticket);
            let changes = changes.into_iter().map(|(change, late)| (node, change, late));
            self.add_changes_after(now, (adopter, ticket), changes);
        } else {
            let step = adoption.confirmed(node, answer, &self.nodes);
            self.follow_adoption(now, id, step);
        }
        self.node_answered(id);
    }

    /// Notes that a node has answered an attempt. A detachment may wait for this answer.
    fn node_answered(&mut self, id: u64) {
        let Some(adoption) = self.adoptions.get(id) else { return };
        self.detachments.answered(adoption.request.adopter);
        self.adoptions.changed(id);
    }

    /// Counts `node`, which has lost its leases, as failed in all adoptions.
    pub(super) fn adoptions_lost(&mut self, now: Instant, node: usize) {
        for id in self.adoptions.ids() {
            let Some(adoption) = self.adoptions.get_mut(id).filter(|adoption| !adoption.is_over()) else {
                continue;
            };
            let step = adoption.lost(node, forgotten(&self.nodes.names[node]), &self.nodes);
            self.follow_adoption(now, id, step);
            self.adoptions.changed(id);
        }
    }

    fn follow_adoption(&mut self, now: Instant, id: u64, step: Step) {
        match step {
            Step::Wait => self.contend(now, id),
            Step::Confirm(nodes) => self.ask_to_confirm(now, id, &nodes),
            Step::BackOff => self.back_off(now, id),
            Step::Retry => self.retry(now, id),
            Step::Settle(answer) => self.settle_adoption(now, id, answer),
        }
    }

    /// Asks these nodes for the second round of an adoption.
    fn ask_to_confirm(&mut self, now: Instant, id: u64, nodes: &[usize]) {
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        adoption.awaited += nodes.len();
        let timeout = adoption.timeout(now).max(SHORTEST_PATIENCE);
        let (adopter, ttl) = (adoption.request.adopter, adoption.ttl().as_duration());
        self.ticket_ends.prolonged(now + timeout, adopter, ttl);
        for &node in nodes {
            self.call_queue.add(node, timeout, adoption.confirming(), CallTag::Confirm(id));
        }
    }

    /// Decides when to back off to other adopters, or to ask their nodes again. Does nothing if no
    /// other adopter is in the way.
    fn contend(&mut self, now: Instant, id: u64) {
        let (patience, share) = (self.patience(), 0.5 + self.rng.f64());
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        let Some(all_heard) = adoption.contends() else { return };
        let pause = match adoption.asked_again {
            _ if all_heard && adoption.backs_off() => Duration::ZERO,
            0 if all_heard => SHORTEST_PATIENCE,
            0 => patience,
            again => patience.mul_f64(share) * (1 << again.min(MOST_DOUBLINGS)),
        };
        let at = now + pause.min(LONGEST_PAUSE);
        adoption.act_at = Some(adoption.act_at.map_or(at, |act_at| act_at.min(at)));
    }

    /// Does what is due at `now` in all adoptions.
    pub(super) fn tick_adoptions(&mut self, now: Instant) {
        for id in self.adoptions.due(now) {
            let Some(adoption) = self.adoptions.get_mut(id) else { continue };
            adoption.act_at = None;
            match adoption.stage {
                AdoptionStage::Waiting(_) => self.settle_adoption(now, id, Err(no_turn())),
                _ if adoption.deadline <= now => {
                    let overdue = adoption.overdue(&self.nodes);
                    self.settle_adoption(now, id, Err(overdue));
                }
                AdoptionStage::Resting(_) => self.claim(now, id),
                _ if adoption.backs_off() => self.back_off(now, id),
                _ => {
                    let nodes = adoption.ask_again();
                    self.ask_claim(now, id, nodes);
                }
            }
            self.adoptions.changed(id);
        }
        self.begin_adoptions(now);
    }

    /// Gives the claimed nodes back to the ticket, and plans the next attempt.
    fn back_off(&mut self, now: Instant, id: u64) {
        let Some(pause) = self.pause_after(now, id) else { return };
        self.begin_again(now, id, pause);
    }

    /// Looks again after a pause, if another attempt has the time for that. Otherwise tells the
    /// adopter that the lock is taken.
    fn retry(&mut self, now: Instant, id: u64) {
        let Some(pause) = self.pause_after(now, id) else { return };
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        adoption.found_taken = true;
        if now + pause * 2 <= adoption.deadline {
            self.begin_again(now, id, pause);
        } else {
            self.settle_adoption(now, id, Ok(Reply::NotHeld(Absence::Taken)));
        }
    }

    /// Returns the pause between this attempt and the next one.
    fn pause_after(&mut self, now: Instant, id: u64) -> Option<Duration> {
        let (patience, share) = (self.patience(), 1.0 + self.rng.f64());
        let adoption = self.adoptions.get(id)?;
        // In this time, all nodes can answer the adopter with the smallest mark.
        let pause = patience.max(now.since(adoption.asked)) * (1 << adoption.before.min(MOST_DOUBLINGS));
        Some(pause.mul_f64(share).min(LONGEST_PAUSE))
    }

    fn begin_again(&mut self, now: Instant, id: u64, pause: Duration) {
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        let next = adoption.next(&self.nodes, now + pause);
        let (adopter, ticket) = (adoption.request.adopter, adoption.request.ticket);
        let changes = adoption.end(AdoptionEnd::BackedOff);
        self.add_changes_after(now, (adopter, ticket), changes);
        self.insert(next);
    }

    fn settle_adoption(&mut self, now: Instant, id: u64, answer: Answer) {
        let Some(adoption) = self.adoptions.get(id) else { return };
        let (end, answer) = adoption.ends_with(answer);
        self.end_adoption(now, id, end, answer);
    }

    fn end_adoption(&mut self, now: Instant, id: u64, end: AdoptionEnd, answer: Answer) {
        let Some(adoption) = self.adoptions.get_mut(id) else { return };
        let (batch, index, request, asked) =
            (adoption.batch, adoption.index, adoption.request.clone(), adoption.asked);
        let (ttl, decided) = (adoption.ttl(), adoption.decided);
        let (changes, nodes, answered) = (adoption.end(end), adoption.agreeing(), adoption.answered());
        self.add_changes_after(now, (request.adopter, request.ticket), changes);
        if let (AdoptionEnd::Won, Some(lease)) = (end, decided) {
            let AdoptionRequest { key, ticket, adopter, holder, outlives_process, .. } = request.clone();
            self.pending_releases.redirect(now, ticket, Some(adopter));
            let (fences, ticket) = ((lease.first, 1), Some(ticket));
            let terms = LeaseTerms { key, mode: lease.mode, holder, outlives_process, fences, ticket };
            let (fenced, undone) = (Some(nodes), 0);
            let agreement =
                Agreement { vote_round: id, nodes, answered, undone, fenced, asked, ttl: ttl.as_duration() };
            self.lease_nodes.granted(now, adopter, agreement, terms);
            self.lease_nodes.may_live(adopter, now + longest_life(ttl));
        }
        self.settle(now, batch, index, Some(request.key), answer);
    }

    /// Adds what nodes have to carry out after an attempt of `adopter` to adopt `ticket`.
    fn add_changes_after(
        &mut self,
        now: Instant,
        (adopter, ticket): (Token, Token),
        changes: impl IntoIterator<Item = (usize, TokenChange, bool)>,
    ) {
        for (node, mut change, is_straggler) in changes {
            if change.to == Some(ticket) {
                change.ends = self.ticket_ends.of(adopter, node);
            }
            self.pending_releases.add_move(now, node, change, is_straggler);
        }
    }

    /// Ends the adoptions of `adopter`, whose lease ends or goes back to the ticket `to`. Nodes
    /// that would pass to the adopter later are released or go back to the ticket, too.
    pub(super) fn adopter_ended(&mut self, now: Instant, adopter: Token, to: Option<Token>) {
        self.pending_releases.redirect(now, adopter, to);
        let end = if to.is_some() { AdoptionEnd::GaveUp } else { AdoptionEnd::Released };
        self.end_adoptions(now, adopter, end);
    }

    /// Ends the adoptions of `adopter` with `end`.
    pub(super) fn end_adoptions(&mut self, now: Instant, adopter: Token, end: AdoptionEnd) {
        for id in self.adoptions.of_adopter(adopter) {
            let Some(adoption) = self.adoptions.get_mut(id) else { continue };
            match adoption.stage {
                AdoptionStage::Over(AdoptionEnd::Won | AdoptionEnd::BackedOff) => {
                    adoption.stage = AdoptionStage::Over(end)
                }
                AdoptionStage::Over(_) => {}
                _ => self.end_adoption(now, id, end, Err(given_up())),
            }
            self.adoptions.changed(id);
        }
    }
}
