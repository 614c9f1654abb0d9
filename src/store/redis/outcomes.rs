//! Collects the outcomes of the requests of a batch.

use redis::ServerError;
use rustc_hash::FxHashSet;

use super::address::RedisAddress;
use super::cluster::{ClusterAddress, NodeAddress, Redirect};
use super::fault;
use crate::store::listing::size_of;
use crate::store::{Answer, Reply, StoreError};

/// For each request of a batch, the answer, or the redirect that a node of a cluster sent instead.
pub struct Outcomes {
    /// The answers in the order of the batch. `None` for a request that has no answer yet.
    pub answers: Vec<Option<Answer>>,
    /// The places of the requests that the node did not carry out, with the redirect for each.
    pub redirects: Vec<(usize, Redirect)>,
    /// The address of the server, if it is a node of a cluster.
    node: Option<NodeAddress>,
}

impl Outcomes {
    /// Returns the outcomes of `count` requests, none of which has an answer yet.
    pub fn none(count: usize, node: Option<NodeAddress>) -> Self {
        Self { answers: vec![None; count], redirects: Vec::new(), node }
    }

    /// Notes that the server refused the requests at the places `members`, with the error `said`.
    pub fn refuse(&mut self, address: &RedisAddress, members: &[usize], said: &ServerError) {
        if let Some(redirects) = self.node.as_ref().and_then(|node| Redirect::read(said, node, address)) {
            return self.redirects.extend(members.iter().map(|&member| (member, redirects.clone())));
        }
        // Read the error once, because its text may be long.
        let error = fault::refused(address, said);
        for &member in members {
            self.answers[member] = Some(Err(error.clone()));
        }
    }

    /// Takes from `room` the bytes that the answers about locks need. Replaces each answer for
    /// which `room` is too small with an error, which names the cluster at `address`.
    pub fn spend(&mut self, room: &mut usize, address: &ClusterAddress) {
        for answer in self.answers.iter_mut().flatten() {
            let Ok(Reply::Inspected(Some(info))) = answer else { continue };
            match room.checked_sub(size_of(info)) {
                Some(left) => *room = left,
                None => *answer = Err(fault::told_too_much(address)),
            }
        }
    }

    /// Returns true if each request has an answer or a redirect.
    pub fn are_whole(&self) -> bool {
        let redirects = self.redirected_members();
        (0..self.answers.len()).all(|index| self.answers[index].is_some() || redirects.contains(&index))
    }

    fn redirected_members(&self) -> FxHashSet<usize> {
        self.redirects.iter().map(|(member, _)| *member).collect()
    }

    /// Gives each request that has neither an answer nor a redirect the answer `error`.
    pub fn fill_in(&mut self, error: &StoreError) {
        let redirects = self.redirected_members();
        for index in 0..self.answers.len() {
            if self.answers[index].is_none() && !redirects.contains(&index) {
                self.answers[index] = Some(Err(error.clone()));
            }
        }
    }
}
