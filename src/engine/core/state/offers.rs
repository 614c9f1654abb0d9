//! Offers: the cohorts whose hand-offs are left to JavaScript threads; see
//! [`thread_hand_offs`](crate::engine::thread_hand_offs). Touches its own lists only.

use std::mem::take;

use crate::engine::ids::CohortId;

/// The number of locks whose hand-offs are left to JavaScript threads at a time. If more locks are
/// handed on, each crossing between the threads carries many messages anyway.
const MOST_COHORTS: usize = 16;

/// See the module.
#[derive(Default)]
pub struct Offers {
    offered: Vec<CohortId>,
    /// The cohorts whose leases may be handed on next.
    soon: Vec<CohortId>,
}

impl Offers {
    /// Notes that the lease of the cohort may be handed on soon.
    pub fn add(&mut self, cohort: CohortId) {
        self.soon.push(cohort);
    }

    /// Takes the cohorts whose hand-offs are offered next.
    pub fn take_next(&mut self) -> Vec<CohortId> {
        let mut cohorts = take(&mut self.soon);
        cohorts.sort_unstable();
        cohorts.dedup();
        cohorts.truncate(MOST_COHORTS);
        cohorts
    }

    /// Notes the cohorts whose hand-offs are left to threads from now on.
    pub fn set_offered(&mut self, cohorts: Vec<CohortId>) {
        self.offered = cohorts;
    }

    /// Returns whether hand-offs are left to threads.
    pub fn has_offered(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Takes back the cohorts whose hand-offs were left to threads.
    pub fn take_offered(&mut self) -> Vec<CohortId> {
        take(&mut self.offered)
    }

    /// Notes that the leases of the cohorts may be handed on soon again.
    pub fn add_all(&mut self, mut cohorts: Vec<CohortId>) {
        self.soon.append(&mut cohorts);
    }
}
