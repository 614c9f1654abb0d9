//! What the client knows of all sentinels that it listens to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep_until};

use super::super::address::RedisAddress;
use super::super::budget::Budget;
use super::super::endpoint::Endpoint;
use super::master_tracker::MasterTracker;
use super::sentinel_list::{AdmittedSentinel, FoundSentinel, SentinelList};
use super::survey::MasterClaim;

/// Holds what the tasks of all sentinels share.
pub struct Shared<'a, F: Fn()> {
    /// The name of our master at the sentinels.
    pub name: &'a str,
    pub master_tracker: &'a MasterTracker,
    pub switched: F,
    /// Takes further sentinels that the sentinel list has admitted.
    pub found: UnboundedSender<(AdmittedSentinel, RedisAddress)>,
    pub budget: &'a Arc<Budget>,
    pub sentinel_list: &'a RefCell<SentinelList>,
    /// The number of each sentinel that the client listens to, by the sentinel's id. The id shows
    /// that a host name and an IP address are the same sentinel.
    pub heard: RefCell<HashMap<String, usize>>,
    /// Wakes [`Shared::admit_waiting`] when a sentinel was found.
    pub any_found: Notify,
}

impl<F: Fn()> Shared<'_, F> {
    /// Notes that the master is at `new` from now on. `epoch` is the epoch in which this server
    /// became the master, if known.
    pub fn switch(&self, new: (String, u16), epoch: Option<u64>) {
        self.master_tracker.switch(new, epoch);
        (self.switched)();
    }

    /// Switches to the master that the sentinels name, if that one is newer than ours. Returns true
    /// if it is.
    pub fn follow_newer(&self) -> bool {
        let newer = self.master_tracker.newer_master();
        let is_newer = newer.is_some();
        if let Some(MasterClaim { master, epoch }) = newer {
            self.switch(master, Some(epoch));
        }
        is_newer
    }

    /// Lets grants count without an answer of the sentinel with that number.
    pub fn give_up(&self, number: usize) {
        self.master_tracker.survey(|survey| survey.failed(number));
        self.follow_newer();
    }

    /// Forgets the id of the sentinel with that number. The client may listen to this sentinel at
    /// another address from now on.
    pub fn forget_id(&self, number: usize) {
        self.heard.borrow_mut().retain(|_, heard| *heard != number);
    }

    /// Returns true if the client listens to a sentinel with this id.
    fn hears(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.heard.borrow().contains_key(id))
    }

    /// Returns true if the client does not listen yet to the sentinel with this id at `endpoint`,
    /// and has a place for it.
    pub fn has_place_for(&self, id: Option<&str>, endpoint: &Endpoint<RedisAddress>) -> bool {
        !self.hears(id) && self.sentinel_list.borrow().has_place_for(endpoint, Instant::now())
    }

    /// Lets the client listen to a sentinel that another one has reported, unless the client
    /// already listens to a sentinel with this id.
    pub fn admit(&self, found: FoundSentinel) {
        if self.hears(found.id.as_deref()) {
            return;
        }
        let admitted = self.sentinel_list.borrow_mut().admit(&found, Instant::now());
        self.any_found.notify_one();
        let Some(admitted) = admitted else { return };
        // Do this before the sentinel that reported it answers: its answer may be the last one that
        // is missing.
        self.master_tracker.survey(|survey| {
            survey.expect(admitted.number, found.id.as_deref());
            if let Some(dropped) = admitted.dropped {
                survey.remove(dropped);
            }
        });
        let _ = self.found.send((admitted, found.node));
    }

    /// Admits each waiting sentinel when it may replace another one. Never ends.
    pub async fn admit_waiting(&self) {
        loop {
            let replaces_at = self.sentinel_list.borrow().replaces_at();
            match replaces_at {
                Some(at) => sleep_until(at).await,
                None => self.any_found.notified().await,
            }
            let next = self.sentinel_list.borrow_mut().next_waiting(Instant::now());
            if let Some(found) = next {
                self.admit(found);
            }
        }
    }
}
