//! Batches of which some requests are not settled. Pure.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::lease::{Instant, Key};
use crate::store::{Answer, Request};

/// A request that may be asked now, and where in its batch its answer belongs.
pub type Ready = (usize, Request);

/// One batch.
struct Batch {
    answers: Vec<Option<Answer>>,
    open: usize,
    /// When all have to be answered.
    deadline: Instant,
    /// Those that have to wait for an earlier one on the same key: of what takes two rounds, the second would else come
    /// after them.
    behind: Vec<Ready>,
}

/// What follows when a request is settled.
pub enum Settled {
    /// Its batch goes on.
    Open,
    /// This one waited for it, and has until then.
    Next(Ready, Instant),
    /// All of the batch is answered.
    Done(Vec<Answer>),
}

/// See the module.
#[derive(Default)]
pub struct Batches(FxHashMap<u64, Batch>);

impl Batches {
    /// Takes a batch in. Returns those of it that may be asked at once: the first on each key.
    pub fn begin(&mut self, id: u64, requests: Vec<Request>, deadline: Instant) -> Vec<Ready> {
        let answers: Vec<Option<Answer>> = vec![None; requests.len()];
        let mut keys = FxHashSet::default();
        let (first, behind) = requests
            .into_iter()
            .enumerate()
            .partition(|(_, request)| request.key().is_none_or(|key| keys.insert(key.clone())));
        self.0.insert(id, Batch { open: answers.len(), answers, deadline, behind });
        first
    }

    /// A request of that batch is answered; `key` is what it was about.
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
