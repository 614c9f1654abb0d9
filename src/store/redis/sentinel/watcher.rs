//! Listens to the sentinels, to hear of a failover at once.
//!
//! If the client did not listen, it would use a replaced master until that server dies, refuses a
//! request, or hangs for a while. A replaced master that is cut off from the other servers may go
//! on granting leases, and the new master would not know them.
//!
//! The client listens to every sentinel that the URL or another sentinel names, with one connection
//! for each. Only the sentinel that leads a failover tells of its beginning, and any sentinel may
//! lead. The client first subscribes and then asks whether a failover is under way, so it misses
//! none that begins in between.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::abortable;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;

use super::super::address::RedisAddress;
use super::super::budget::Budget;
use super::super::endpoint::Sentinels;
use super::listener::Sentinel;
use super::master_tracker::MasterTracker;
use super::sentinel_list::{AdmittedSentinel, SentinelList};
use super::shared::Shared;

/// Listens to the sentinels of a URL, and to the sentinels that they know.
pub struct SentinelWatcher {
    sentinels: Arc<Sentinels<RedisAddress>>,
    master_tracker: Rc<MasterTracker>,
    /// Limits the memory that the connections take.
    budget: Arc<Budget>,
    sentinel_list: RefCell<SentinelList>,
}

impl SentinelWatcher {
    /// Returns a watcher that updates `master_tracker`. From now on, no grant counts until the
    /// sentinels have answered. The connections take their memory from `budget`.
    pub fn begin(
        sentinels: &Arc<Sentinels<RedisAddress>>,
        master_tracker: Rc<MasterTracker>,
        budget: Arc<Budget>,
    ) -> Self {
        let mut sentinel_list = SentinelList::default();
        for node in &sentinels.nodes {
            let number = sentinel_list.name(node.clone());
            master_tracker.survey(|survey| survey.expect(number, None));
        }
        Self {
            sentinels: sentinels.clone(),
            master_tracker,
            budget,
            sentinel_list: RefCell::new(sentinel_list),
        }
    }

    /// Listens to the sentinels. Calls `switched` whenever another server has become the master.
    /// Never ends.
    pub async fn run(self, switched: impl Fn()) {
        let Self { sentinels, master_tracker, budget, sentinel_list } = &self;
        let (found, mut others) = unbounded_channel();
        let name = &*sentinels.master;
        let shared = Shared {
            name,
            master_tracker,
            switched,
            found,
            budget,
            sentinel_list,
            heard: RefCell::default(),
            any_found: Notify::new(),
        };
        // None of these futures ends unless it is aborted.
        let (mut following, mut handles) = (FuturesUnordered::new(), HashMap::new());
        let follow =
            |number: usize, node: RedisAddress| abortable(Sentinel::new(number, &shared).follow(node));
        for (number, node) in sentinels.nodes.iter().enumerate() {
            let (task, handle) = follow(number, node.clone());
            following.push(task);
            handles.insert(number, handle);
        }
        let mut admitting = pin!(shared.admit_waiting());
        loop {
            tokio::select! {
                () = &mut admitting => {}
                Some((AdmittedSentinel { number, dropped }, node)) = others.recv() => {
                    let (task, handle) = follow(number, node);
                    following.push(task);
                    handles.insert(number, handle);
                    if let Some((dropped, handle)) = dropped.and_then(|dropped| handles.remove_entry(&dropped)) {
                        handle.abort();
                        shared.forget_id(dropped);
                    }
                }
                Some(_) = following.next() => {}
            }
        }
    }
}
