//! Tracks which sentinels have said which server is the master, and whether a failover is under
//! way. Pure.
//!
//! Sentinels publish the beginning of a failover once. A client that subscribes later does not
//! hear of it, so it has to ask. Only the sentinel that leads the failover knows, and any sentinel
//! may lead, so the client asks all of them. Until each one has answered or can't be reached, no
//! grant counts.
//!
//! After the leader has promoted a replica, it names the new master about a second before the other
//! sentinels do. The sentinels number their configurations: the one with the largest epoch is
//! right.

/// A server that a sentinel named as the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterClaim {
    /// The host and port of the server.
    pub master: (String, u16),
    /// The epoch of the sentinel's configuration.
    pub epoch: u64,
}

/// Tracks the answers of the sentinels: see the module.
#[derive(Debug, Default)]
pub struct Survey {
    sentinels: Vec<SentinelProgress>,
    /// A lower bound for the epoch in which our master became the master, if one is known.
    epoch: Option<u64>,
    /// The claim with the largest epoch that names another master than ours.
    other: Option<MasterClaim>,
    /// True if a sentinel announced the switch to our master. A sentinel that names another master
    /// may not have received that announcement yet.
    notified: bool,
}

#[derive(Debug)]
struct SentinelProgress {
    number: usize,
    id: Option<String>,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The sentinel has not answered yet.
    Pending,
    Answered,
    /// The sentinel can't be reached, so the survey does not wait for it.
    Unreachable,
}

impl Survey {
    /// Waits for an answer of the sentinel with that number from now on. `id` is the sentinel's id,
    /// if it is known.
    pub fn expect(&mut self, number: usize, id: Option<&str>) {
        let id = id.map(str::to_owned);
        match self.sentinels.iter_mut().find(|known| known.number == number) {
            Some(known) => {
                known.progress = Progress::Pending;
                known.id = id.or_else(|| known.id.take());
            }
            None => self.sentinels.push(SentinelProgress { number, id, progress: Progress::Pending }),
        }
    }

    /// Makes grants wait for the sentinel with that number again, unless the survey has forgotten
    /// the sentinel.
    pub fn expect_again(&mut self, number: usize) {
        self.set(number, Progress::Pending);
    }

    /// Notes the id of the sentinel with that number, unless the survey has forgotten the sentinel.
    pub fn identify(&mut self, number: usize, id: &str) {
        if let Some(known) = self.sentinels.iter_mut().find(|known| known.number == number) {
            known.id = Some(id.to_owned());
        }
    }

    /// Notes that the sentinel has answered. `claim` is the server that it names as the master, if
    /// it names an epoch. `is_ours` is true if this server is the last known master.
    pub fn answered(&mut self, number: usize, claim: Option<MasterClaim>, is_ours: bool) {
        self.set(number, Progress::Answered);
        match claim {
            Some(MasterClaim { epoch, .. }) if is_ours => self.epoch = self.epoch.max(Some(epoch)),
            Some(claim) if self.other.as_ref().is_none_or(|other| claim.epoch > other.epoch) => {
                self.other = Some(claim);
            }
            _ => {}
        }
    }

    /// Notes that the sentinel can't be reached.
    pub fn failed(&mut self, number: usize) {
        self.set(number, Progress::Unreachable);
    }

    /// Forgets the sentinel with that number.
    pub fn remove(&mut self, number: usize) {
        self.sentinels.retain(|known| known.number != number);
    }

    /// Waits for new answers of all sentinels that have answered before.
    pub fn repeat(&mut self) {
        for known in &mut self.sentinels {
            if known.progress == Progress::Answered {
                known.progress = Progress::Pending;
            }
        }
    }

    /// Returns true if the sentinel with that number has not answered yet.
    pub fn is_pending(&self, number: usize) -> bool {
        self.sentinels.iter().any(|known| known.number == number && known.progress == Progress::Pending)
    }

    /// Returns true if no answer is missing. A sentinel may have two addresses, and the client may
    /// reach only one of them: an answer from that address is enough.
    pub fn is_complete(&self) -> bool {
        let has_answered = |id: &String| {
            let mut others = self.sentinels.iter();
            others.any(|known| known.progress == Progress::Answered && known.id.as_ref() == Some(id))
        };
        let is_missing = |known: &SentinelProgress| {
            known.progress == Progress::Pending && !known.id.as_ref().is_some_and(has_answered)
        };
        !self.sentinels.iter().any(is_missing)
    }

    /// Returns the server that is certainly the master instead of ours: a sentinel names it, and
    /// its epoch is larger than that of our master.
    pub fn newer(&self) -> Option<&MasterClaim> {
        let other = self.other.as_ref()?;
        let is_newer = match self.epoch {
            Some(ours) => other.epoch > ours,
            // The sentinel that named our master may not have named the epoch yet.
            None => !self.notified && self.is_complete(),
        };
        is_newer.then_some(other)
    }

    /// Notes that a sentinel has named the new master `master`. `epoch` is the epoch of that
    /// master, if known.
    pub fn switched(&mut self, master: &(String, u16), epoch: Option<u64>) {
        // Each switch has a larger epoch than the one before.
        let after_ours = self.epoch.map(|ours| ours.saturating_add(1));
        let claimed = self.other.as_ref().map(|other| match other.master == *master {
            true => other.epoch,
            false => other.epoch.saturating_add(1),
        });
        self.epoch = epoch.or(after_ours.max(claimed));
        self.notified = true;
    }

    /// Notes that another server is the master, and that its epoch is not known.
    pub fn lost_track(&mut self) {
        (self.epoch, self.other, self.notified) = (None, None, false);
    }

    fn set(&mut self, number: usize, progress: Progress) {
        if let Some(known) = self.sentinels.iter_mut().find(|known| known.number == number) {
            known.progress = progress;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(count: usize) -> Survey {
        let mut survey = Survey::default();
        for number in 0..count {
            survey.expect(number, None);
        }
        survey
    }

    fn at(port: u16) -> (String, u16) {
        ("10.0.0.1".into(), port)
    }

    fn claim(port: u16, epoch: u64) -> Option<MasterClaim> {
        Some(MasterClaim { master: at(port), epoch })
    }

    #[test]
    fn a_survey_is_complete_when_each_sentinel_has_answered_or_is_unreachable() {
        assert!(Survey::default().is_complete(), "a store without sentinels waits for none");
        let mut survey = survey(3);
        survey.answered(0, claim(7000, 1), true);
        survey.failed(1);
        assert!(!survey.is_complete(), "the last one may lead a failover");
        survey.answered(2, None, true);
        assert!(survey.is_complete());
        survey.expect(3, None);
        assert!(!survey.is_complete(), "another sentinel was found");
        survey.remove(3);
        assert!(survey.is_complete());
    }

    #[test]
    fn a_lost_sentinel_is_waited_for_until_the_new_subscription_stands() {
        let mut survey = survey(2);
        survey.answered(0, None, true);
        survey.answered(1, None, true);
        survey.expect_again(1);
        assert!(!survey.is_complete() && survey.is_pending(1) && !survey.is_pending(0));
        survey.failed(1);
        assert!(survey.is_complete());
    }

    #[test]
    fn a_new_connection_asks_the_sentinels_that_answered_again() {
        let mut survey = survey(2);
        survey.answered(0, None, true);
        survey.failed(1);
        survey.repeat();
        assert!(survey.is_pending(0) && !survey.is_pending(1) && !survey.is_complete());
    }

    #[test]
    fn a_second_address_of_a_sentinel_that_answered_is_not_waited_for() {
        let mut survey = survey(1);
        survey.expect(0, Some("a"));
        survey.expect(1, Some("a"));
        survey.expect(2, Some("c"));
        survey.answered(0, None, true);
        assert!(!survey.is_complete());
        survey.failed(2);
        assert!(survey.is_complete());
    }

    #[test]
    fn the_master_with_the_larger_epoch_is_right_in_any_order_of_answers() {
        for leader_first in [true, false] {
            let mut survey = survey(3);
            if leader_first {
                survey.answered(0, claim(7001, 5), false);
                assert_eq!(survey.newer(), None, "our master may have a larger epoch");
                survey.answered(1, claim(7000, 4), true);
            } else {
                survey.answered(1, claim(7000, 4), true);
                assert_eq!(survey.newer(), None);
                survey.answered(0, claim(7001, 5), false);
            }
            assert_eq!(survey.newer().cloned(), claim(7001, 5));
        }
    }

    #[test]
    fn a_sentinel_that_is_late_changes_nothing() {
        let mut survey = survey(2);
        survey.answered(0, claim(7001, 5), true);
        survey.answered(1, claim(7000, 4), false);
        assert_eq!(survey.newer(), None);
        // Our master may be the old one, which no sentinel names any more.
        let mut survey = self::survey(2);
        survey.failed(1);
        survey.answered(0, claim(7001, 5), false);
        assert_eq!(survey.newer().cloned(), claim(7001, 5));
    }

    #[test]
    fn after_a_switch_older_claims_do_not_lead_back() {
        let mut survey = survey(2);
        survey.answered(0, claim(7000, 4), true);
        survey.answered(1, claim(7000, 4), true);
        survey.switched(&at(7001), None);
        // This sentinel missed the switch.
        survey.answered(1, claim(7000, 4), false);
        assert_eq!(survey.newer(), None);
        survey.answered(0, claim(7001, 5), true);
        assert_eq!(survey.newer(), None);
        survey.answered(0, claim(7002, 6), false);
        assert_eq!(survey.newer().cloned(), claim(7002, 6));
        survey.switched(&at(7002), Some(6));
        assert_eq!(survey.newer(), None);
    }

    #[test]
    fn a_switch_that_is_told_before_any_answer_is_not_undone_by_a_sentinel_that_is_late() {
        let mut survey = survey(2);
        survey.switched(&at(7001), None);
        survey.answered(0, claim(7000, 4), false);
        survey.failed(1);
        assert!(survey.is_complete());
        assert_eq!(survey.newer(), None, "the old master");
        survey.answered(0, claim(7001, 5), true);
        assert_eq!(survey.newer(), None);
        survey.answered(0, claim(7002, 6), false);
        assert_eq!(survey.newer().cloned(), claim(7002, 6));
    }

    #[test]
    fn a_new_master_that_a_sentinel_has_claimed_before_has_the_epoch_of_the_claim() {
        for ours in [None, claim(7000, 4)] {
            let mut survey = survey(3);
            survey.answered(0, claim(7001, 5), false);
            if ours.is_some() {
                survey.answered(1, ours, true);
            }
            survey.switched(&at(7001), None);
            assert_eq!(survey.newer(), None);
            // The next switch has the next epoch.
            survey.answered(2, claim(7002, 6), false);
            assert_eq!(survey.newer().cloned(), claim(7002, 6));
        }
        // The sentinel promoted the replica after it had named the epoch.
        let mut survey = self::survey(2);
        survey.answered(1, claim(7000, 4), true);
        survey.answered(0, claim(7001, 4), false);
        survey.switched(&at(7001), None);
        survey.answered(1, claim(7000, 5), false);
        assert_eq!(survey.newer(), None, "an equal epoch is not newer");
    }

    #[test]
    fn a_sentinel_that_was_dropped_is_not_waited_for_again() {
        let mut survey = survey(2);
        survey.answered(0, None, true);
        survey.remove(1);
        // The task that listens to this sentinel does not know yet.
        survey.identify(1, "b");
        survey.expect_again(1);
        assert!(survey.is_complete() && !survey.is_pending(1));
    }

    #[test]
    fn a_sentinel_that_was_given_up_is_asked_when_its_subscription_stands() {
        let mut survey = survey(1);
        survey.failed(0);
        survey.identify(0, "a");
        assert!(survey.is_complete(), "the id alone is no subscription");
        survey.expect_again(0);
        assert!(survey.is_pending(0));
        // The survey still knows the id.
        survey.expect(1, Some("a"));
        survey.answered(1, None, true);
        assert!(survey.is_complete());
    }

    #[test]
    fn a_master_that_no_sentinel_told_of_is_judged_by_new_answers() {
        let mut survey = survey(2);
        survey.answered(0, claim(7000, 4), true);
        survey.answered(1, claim(7001, 5), false);
        survey.lost_track();
        survey.repeat();
        assert_eq!(survey.newer(), None);
        survey.answered(0, claim(7001, 5), true);
        survey.answered(1, claim(7001, 5), true);
        assert_eq!(survey.newer(), None);
    }
}
