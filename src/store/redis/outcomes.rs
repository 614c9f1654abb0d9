//! What became of each request of a batch.

use redis::ServerError;

use super::address::RedisAddress;
use super::cluster::{Elsewhere, Place};
use super::fault;
use crate::store::{Answer, StoreError};

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
        let elsewhere = self.node.as_ref().and_then(|node| Elsewhere::read(said, node));
        for &member in members {
            match &elsewhere {
                Some(elsewhere) => self.elsewhere.push((member, elsewhere.clone())),
                None => self.answers[member] = Some(Err(fault::refused(address, said))),
            }
        }
    }

    /// Returns whether the outcome of each request is known.
    pub fn are_whole(&self) -> bool {
        (0..self.answers.len()).all(|index| self.answers[index].is_some() || self.is_elsewhere(index))
    }

    fn is_elsewhere(&self, index: usize) -> bool {
        self.elsewhere.iter().any(|(member, _)| *member == index)
    }

    /// Answers each request with `error` whose outcome is not known.
    pub fn fill_in(&mut self, error: &StoreError) {
        for index in 0..self.answers.len() {
            if self.answers[index].is_none() && !self.is_elsewhere(index) {
                self.answers[index] = Some(Err(error.clone()));
            }
        }
    }
}
