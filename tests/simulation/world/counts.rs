//! Counts what happened in a schedule.

use super::super::process::Process;
use super::World;

/// See the module.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// The leases that were granted.
    pub leases: u64,
    /// The leases that a process handed on by itself.
    pub hand_offs: u64,
    /// The leases that its JavaScript thread handed on by itself.
    pub handed_on_by_thread: u64,
    /// The leases that were taken up on a notice.
    pub on_notice: u64,
    /// The number of times that a worker began its work.
    pub terms: u64,
    /// The acquires that failed fast.
    pub failed_fast: u64,
    /// The digest of the history; 0 in a world without it.
    pub history: u64,
}

impl World {
    /// Returns the counts of this schedule.
    pub(super) fn counts(&self) -> Counts {
        let all = || self.processes.iter();
        Counts {
            leases: self.grants,
            hand_offs: all().map(Process::handed_on).sum(),
            handed_on_by_thread: all().map(|process| process.handed_on_by_thread).sum(),
            on_notice: self.on_notice,
            terms: all().map(|process| process.campaign.terms).sum(),
            failed_fast: all().map(|process| process.failed_fast).sum(),
            history: self.history.digest(),
        }
    }
}
