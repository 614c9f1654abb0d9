//! Keeps the batches that have open requests. Pure.

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Key};
use crate::store::{Answer, Request};

/// A request that may be sent now, and its index in the batch.
pub type Ready = (usize, Request);

/// One batch.
struct Batch {
    answers: Vec<Option<Answer>>,
    open: usize,
    /// When all requests have to be answered.
    deadline: Instant,
    /// The requests that have to wait for an earlier one on the same key. Otherwise, they would
    /// overtake the second round of the earlier request.
    behind: Vec<Ready>,
}

/// Says what follows when a request is settled.
pub enum Settled {
    /// The batch still has open requests, and none of them waited for this one.
    Open,
    /// This request waited for the settled one. It may be sent now, and has to be answered by that
    /// instant.
    Next(Ready, Instant),
    /// All requests of the batch are answered.
    Done(Vec<Answer>),
}

/// See the module.
#[derive(Default)]
pub struct Batches(FxHashMap<u64, Batch>);

impl Batches {
    /// Adds a batch. Returns the requests that may be sent at once: the first one for each key, and
    /// all without a key.
    pub fn begin(&mut self, id: u64, requests: Vec<Request>, deadline: Instant) -> Vec<Ready> {
        let answers: Vec<Option<Answer>> = vec![None; requests.len()];
        let mut keys = HashSet::new();
        let (first, behind) = requests
            .into_iter()
            .enumerate()
            .partition(|(_, request)| request.key().is_none_or(|key| keys.insert(key.clone())));
        self.0.insert(id, Batch { open: answers.len(), answers, deadline, behind });
        first
    }

    /// Takes the answer to a request of that batch. `key` is the key of the request.
    pub fn settle(&mut self, id: u64, index: usize, key: Option<&Key>, answer: Answer) -> Settled {
        let Some(batch) = self.0.get_mut(&id) else { return Settled::Open };
        batch.answers[index] = Some(answer);
        batch.open -= 1;
        if batch.open > 0 {
            let next = batch.behind.iter().position(|(_, request)| key.is_some() && request.key() == key);
            return match next {
                Some(next) => Settled::Next(batch.behind.remove(next), batch.deadline),
                None => Settled::Open,
            };
        }
        match self.0.remove(&id) {
            Some(batch) => Settled::Done(batch.answers.into_iter().flatten().collect()),
            None => Settled::Open,
        }
    }
}
