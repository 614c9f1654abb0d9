//! Prolongations: requests that could let a lease outlive its own ttl. These are detachments, and
//! renewals with a longer ttl. Tracks until when the store may keep a lease because of them, while
//! the lease is held here. Plain data; touches nothing.

use crate::lease::Instant;

/// A request of the holder that may keep the lease at the store for longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prolongation {
    pub detaches: bool,
    /// When the lease ends at the latest if the store carries out the request.
    pub until: Instant,
}

/// See the module.
#[derive(Default)]
pub struct Prolongations {
    /// The requests that have no answer yet.
    pending: Vec<Prolongation>,
    /// When the lease ends at the latest if the store has carried out all requests that failed
    /// here.
    in_doubt: Option<Instant>,
}

impl Prolongations {
    /// Notes that a request is sent.
    pub fn begin(&mut self, prolongation: Prolongation) {
        self.pending.push(prolongation);
    }

    /// Notes that a request has failed. The store has not carried it out unless `maybe_done`.
    pub fn failed(&mut self, prolongation: Prolongation, maybe_done: bool) {
        if self.take(prolongation) && maybe_done {
            self.in_doubt = self.in_doubt.max(Some(prolongation.until));
        }
    }

    /// Notes that a request has succeeded: the holder knows that the lease lives for longer.
    pub fn succeeded(&mut self, prolongation: Prolongation) {
        self.take(prolongation);
    }

    fn take(&mut self, prolongation: Prolongation) -> bool {
        let place = self.pending.iter().position(|pending| *pending == prolongation);
        place.map(|place| self.pending.swap_remove(place)).is_some()
    }

    /// Returns whether a detachment has no answer yet. A renewal during that time would take the
    /// lease back.
    pub fn is_detaching(&self) -> bool {
        self.pending.iter().any(|pending| pending.detaches)
    }

    /// Returns when the lease ends at the latest by a request that the store may have carried out
    /// without an answer in time. Returns `None` if there is none.
    pub fn until(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.until).max().max(self.in_doubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detachment(ms: u64) -> Prolongation {
        Prolongation { detaches: true, ..renewal(ms) }
    }

    fn renewal(ms: u64) -> Prolongation {
        Prolongation { detaches: false, until: at(ms) }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    #[test]
    fn only_a_certain_answer_ends_the_doubt_about_a_request_and_only_about_that_one() {
        let mut prolongations = Prolongations::default();
        assert_eq!((prolongations.until(), prolongations.is_detaching()), (None, false));
        prolongations.begin(detachment(50));
        assert_eq!((prolongations.until(), prolongations.is_detaching()), (Some(at(50)), true));
        prolongations.failed(detachment(50), false);
        assert_eq!((prolongations.until(), prolongations.is_detaching()), (None, false));
        prolongations.begin(renewal(60));
        assert_eq!((prolongations.until(), prolongations.is_detaching()), (Some(at(60)), false));
        prolongations.succeeded(renewal(60));
        assert_eq!(prolongations.until(), None);
        prolongations.begin(detachment(50));
        prolongations.failed(detachment(50), true);
        assert_eq!((prolongations.until(), prolongations.is_detaching()), (Some(at(50)), false));
        prolongations.begin(renewal(90));
        prolongations.begin(detachment(70));
        assert_eq!(prolongations.until(), Some(at(90)));
        prolongations.failed(renewal(90), false);
        assert_eq!((prolongations.until(), prolongations.is_detaching()), (Some(at(70)), true));
        prolongations.failed(detachment(70), false);
        assert_eq!(prolongations.until(), Some(at(50)));
    }

    #[test]
    fn the_answer_to_a_request_of_an_earlier_holder_changes_nothing() {
        let mut prolongations = Prolongations::default();
        prolongations.failed(renewal(90), true);
        assert_eq!(prolongations.until(), None);
    }
}
