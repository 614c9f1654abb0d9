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

    /// Answers with `error` those of whom nothing is known.
    pub fn fill_in(&mut self, error: &StoreError) {
        let Self { answers, elsewhere, .. } = self;
        let is_elsewhere = |index| elsewhere.iter().any(|(member, _)| *member == index);
        for (index, answer) in answers.iter_mut().enumerate() {
            if answer.is_none() && !is_elsewhere(index) {
                *answer = Some(Err(error.clone()));
            }
        }
    }
}
