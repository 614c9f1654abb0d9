//! What became of each request of a batch.

use redis::ServerError;
use rustc_hash::FxHashSet;

use super::address::RedisAddress;
use super::cluster::{ClusterAddress, Elsewhere, Place};
use super::fault;
use crate::store::listing::size_of;
use crate::store::{Answer, Reply, StoreError};

/// For each request of a batch its answer, or why the node of a cluster that was asked has none.
pub struct Outcomes {
    /// In the batch's order; `None` as long as there is none.
    pub answers: Vec<Option<Answer>>,
    /// The requests that the node did not carry out because it is not, or not quite, the one to do it.
    pub elsewhere: Vec<(usize, Elsewhere)>,
    /// The node of a cluster that is asked, if it is one.
    node: Option<Place>,
}

impl Outcomes {
    /// None yet, for `count` requests.
    pub fn none(count: usize, node: Option<Place>) -> Self {
        Self { answers: vec![None; count], elsewhere: Vec::new(), node }
    }

    /// The server did not do what `members` ask, and said why.
    pub fn refuse(&mut self, address: &RedisAddress, members: &[usize], said: &ServerError) {
        if let Some(elsewhere) = self.node.as_ref().and_then(|node| Elsewhere::read(said, node, address)) {
            return self.elsewhere.extend(members.iter().map(|&member| (member, elsewhere.clone())));
        }
        // Read once, because the text may be long.
        let error = fault::refused(address, said);
        for &member in members {
            self.answers[member] = Some(Err(error.clone()));
        }
    }

    /// Takes from `room` the bytes that the answers about locks need. Replaces each answer for which
    /// `room` is too small with an error, which names the cluster at `address`.
    pub fn spend(&mut self, room: &mut usize, address: &ClusterAddress) {
        for answer in self.answers.iter_mut().flatten() {
            let Ok(Reply::Inspected(Some(info))) = answer else { continue };
            match room.checked_sub(size_of(info)) {
                Some(left) => *room = left,
                None => *answer = Err(fault::told_too_much(address)),
            }
        }
    }

    /// Returns whether the outcome of each request is known.
    pub fn are_whole(&self) -> bool {
        let elsewhere = self.members_elsewhere();
        (0..self.answers.len()).all(|index| self.answers[index].is_some() || elsewhere.contains(&index))
    }

    fn members_elsewhere(&self) -> FxHashSet<usize> {
        self.elsewhere.iter().map(|(member, _)| *member).collect()
    }

    /// Answers each request with `error` whose outcome is not known.
    pub fn fill_in(&mut self, error: &StoreError) {
        let elsewhere = self.members_elsewhere();
        for index in 0..self.answers.len() {
            if self.answers[index].is_none() && !elsewhere.contains(&index) {
                self.answers[index] = Some(Err(error.clone()));
            }
        }
    }
}
