//! Detachments: what the store may have done with the requests to detach a lease that is still held
//! here. Plain data; touches nothing.

use crate::lease::Instant;

/// See the module.
#[derive(Default)]
pub struct Detachments {
    /// When the lease ends at the latest if the store carries out the detachment that has no answer
    /// yet.
    pending: Option<Instant>,
    /// When the lease ends at the latest if the store has carried out a detachment that failed
    /// here.
    in_doubt: Option<Instant>,
}

impl Detachments {
    /// Notes that a detachment is sent. If the store carries it out, the lease ends at `until` at
    /// the latest.
    pub fn begin(&mut self, until: Instant) {
        self.answered(true);
        self.pending = Some(until);
    }

    /// Notes the answer to the pending detachment, which the store has not carried out unless
    /// `maybe_done`.
    pub fn answered(&mut self, maybe_done: bool) {
        let pending = self.pending.take();
        if maybe_done {
            self.in_doubt = self.in_doubt.max(pending);
        }
    }

    /// Returns whether a detachment has no answer yet. A renewal during that time would take the
    /// lease back.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns when the lease ends at the latest by a detachment that the store may have carried
    /// out. Returns `None` if there is none.
    pub fn until(&self) -> Option<Instant> {
        self.pending.max(self.in_doubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    #[test]
    fn only_a_certain_failure_ends_the_doubt_about_a_detachment_and_only_about_that_one() {
        let mut detachments = Detachments::default();
        assert_eq!((detachments.until(), detachments.is_pending()), (None, false));
        detachments.begin(at(50));
        assert_eq!((detachments.until(), detachments.is_pending()), (Some(at(50)), true));
        detachments.answered(false);
        assert_eq!((detachments.until(), detachments.is_pending()), (None, false));
        detachments.begin(at(50));
        detachments.answered(true);
        assert_eq!((detachments.until(), detachments.is_pending()), (Some(at(50)), false));
        detachments.begin(at(90));
        assert_eq!(detachments.until(), Some(at(90)));
        detachments.answered(false);
        assert_eq!(detachments.until(), Some(at(50)));
        detachments.begin(at(20));
        detachments.begin(at(30));
        detachments.answered(false);
        assert_eq!(detachments.until(), Some(at(50)));
    }
}
