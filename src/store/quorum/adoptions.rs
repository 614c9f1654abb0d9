//! Keeps the attempts to adopt leases over a quorum, and finds them by their adopter and by the
//! time at which they have something to do. Pure.
//!
//! A process may run thousands of adoptions at the same time. The coordinator asks for the next
//! time after each answer, and for the attempts of an adopter when a lease ends. If it searched all
//! attempts, the adoptions would time out.

use std::collections::{BTreeSet, HashMap, VecDeque};

use rustc_hash::FxHashMap;

use super::adoption::AdoptionAttempt;
use crate::lease::{Instant, Token};

/// The most attempts that ask the nodes at the same time. If this is larger, many adoptions on a
/// busy machine take longer than their time-outs, and begin again and again. If it is smaller, many
/// adoptions over a slow network take longer.
pub const MOST_UNDER_WAY: usize = 256;

struct Entry {
    attempt: AdoptionAttempt,
    /// True if the attempt counts in [`Adoptions::under_way`].
    under_way: bool,
    /// The attempt's place in [`Adoptions::wakes`].
    wake: Option<Instant>,
}

/// See the module.
#[derive(Default)]
pub struct Adoptions {
    attempts: FxHashMap<u64, Entry>,
    by_adopter: HashMap<Token, Vec<u64>>,
    wakes: BTreeSet<(Instant, u64)>,
    /// The attempts that wait for their turn, in the order in which they came. Some may have ended
    /// since.
    waiting: VecDeque<u64>,
    /// The number of attempts that have begun and have not ended.
    under_way: usize,
}

impl Adoptions {
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.attempts.contains_key(&id)
    }

    pub fn insert(&mut self, id: u64, attempt: AdoptionAttempt) {
        self.by_adopter.entry(attempt.request.adopter).or_default().push(id);
        if attempt.is_waiting() {
            self.waiting.push_back(id);
        }
        self.attempts.insert(id, Entry { attempt, under_way: false, wake: None });
        self.changed(id);
    }

    pub fn get(&self, id: u64) -> Option<&AdoptionAttempt> {
        self.attempts.get(&id).map(|entry| &entry.attempt)
    }

    /// Returns the attempt to change it. Call [`Adoptions::changed`] after that.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut AdoptionAttempt> {
        self.attempts.get_mut(&id).map(|entry| &mut entry.attempt)
    }

    /// Notes that the attempt has changed. Forgets it if it has ended and all nodes have answered.
    pub fn changed(&mut self, id: u64) {
        let Some(Entry { attempt, under_way, wake }) = self.attempts.get_mut(&id) else { return };
        let was_under_way = std::mem::replace(under_way, !attempt.is_waiting() && !attempt.is_over());
        self.under_way += usize::from(*under_way);
        self.under_way -= usize::from(was_under_way);
        let next = attempt.next_wake();
        if next != *wake {
            if let Some(before) = *wake {
                self.wakes.remove(&(before, id));
            }
            self.wakes.extend(next.map(|at| (at, id)));
            *wake = next;
        }
        if attempt.is_over() && attempt.awaited == 0 {
            let adopter = attempt.request.adopter;
            self.attempts.remove(&id);
            if let Some(ids) = self.by_adopter.get_mut(&adopter) {
                ids.retain(|of| *of != id);
                if ids.is_empty() {
                    self.by_adopter.remove(&adopter);
                }
            }
        }
    }

    /// Takes the attempt whose turn it is. The caller has to begin it.
    pub fn take_turn(&mut self) -> Option<u64> {
        while self.under_way < MOST_UNDER_WAY
            && let Some(id) = self.waiting.pop_front()
        {
            if self.get(id).is_some_and(AdoptionAttempt::is_waiting) {
                return Some(id);
            }
        }
        None
    }

    /// Returns all attempts in the order in which they came.
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.attempts.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the attempts of `adopter` in the order in which they came.
    pub fn of_adopter(&self, adopter: Token) -> Vec<u64> {
        self.by_adopter.get(&adopter).cloned().unwrap_or_default()
    }

    /// Returns true if a node still has to answer an attempt of this adopter.
    pub fn is_asked_for(&self, adopter: Token) -> bool {
        self.by_adopter.contains_key(&adopter)
    }

    /// Returns the attempts that have something to do at `now`, in the order in which they came.
    pub fn due(&self, now: Instant) -> Vec<u64> {
        let mut due: Vec<u64> = self.wakes.range(..=(now, u64::MAX)).map(|(_, id)| *id).collect();
        due.sort_unstable();
        due
    }

    /// Returns when an attempt next has something to do without an answer.
    pub fn next_wake(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::adoption::{AdoptionEnd, AdoptionRequest, AdoptionStage};
    use super::super::nodes::Nodes;
    use super::*;
    use crate::lease::{Fence, Ttl};
    use crate::store::Source;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    /// Returns an attempt of `adopter` that begins at `ms`, and has to end at 1 s.
    fn attempt(adopter: Token, ms: u64) -> AdoptionAttempt {
        let request = AdoptionRequest {
            key: "k".into(),
            ticket: Token::random(),
            adopter,
            ttl: Ttl::MIN,
            holder: "h".into(),
            outlives_process: false,
            source: Source::Quorum(Fence(1)),
        };
        AdoptionAttempt::new(request, &Nodes { names: vec!["n".into()] }, 1, 0, at(1_000), at(ms))
    }

    #[test]
    fn attempts_are_found_by_their_adopters_and_their_times_until_all_nodes_have_answered() {
        let (mut adoptions, [one, other]) = (Adoptions::default(), [Token::random(), Token::random()]);
        for (id, adopter, ms) in [(1, one, 30), (2, other, 10), (3, one, 20)] {
            adoptions.insert(id, attempt(adopter, ms));
        }
        assert_eq!((adoptions.of_adopter(one), adoptions.of_adopter(other)), (vec![1, 3], vec![2]));
        assert_eq!((adoptions.next_wake(), adoptions.due(at(9))), (Some(at(10)), vec![]));
        assert_eq!(adoptions.due(at(30)), [1, 2, 3]);
        // An attempt that asks the nodes waits for their answers until its deadline.
        let asking = adoptions.get_mut(2).expect("it was added");
        (asking.stage, asking.awaited) = (AdoptionStage::Claiming, 1);
        adoptions.changed(2);
        assert_eq!((adoptions.due(at(999)), adoptions.due(at(1_000))), (vec![1, 3], vec![1, 2, 3]));
        // An attempt that has ended is kept until all nodes have answered.
        for (awaited, rest) in [(1, vec![1, 2, 3]), (0, vec![1, 3])] {
            let ended = adoptions.get_mut(2).expect("it is kept");
            (ended.stage, ended.awaited) = (AdoptionStage::Over(AdoptionEnd::Won), awaited);
            adoptions.changed(2);
            assert_eq!((adoptions.ids(), adoptions.due(at(1_000))), (rest, vec![1, 3]));
        }
        assert_eq!((adoptions.len(), adoptions.of_adopter(other)), (2, vec![]));
        assert_eq!(adoptions.next_wake(), Some(at(20)));
    }
}
