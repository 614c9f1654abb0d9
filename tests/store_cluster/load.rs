//! Makes contenders take turns at locks while a test changes the cluster.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::{Fence, Key};
use leasehold::store::{AcquireRequest, Reply, Request};
use tokio::task::{JoinHandle, spawn_local};

use crate::asking::renew;
use crate::client::Client;
use crate::setup::{persist, within};
use crate::waiter::Waiter;

/// How often a waiter polls without a notice, as in the engine.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// What a lock protects. It fails if two contenders use it at a time, or if a fence is not larger
/// than the last one.
#[derive(Default)]
struct Resource {
    is_used: Cell<bool>,
    last: Cell<u64>,
    turns: RefCell<Vec<Instant>>,
}

impl Resource {
    fn enter(&self, fence: Fence) {
        assert!(!self.is_used.replace(true), "two at a time");
        assert!(fence.0 > self.last.replace(fence.0), "{fence:?} is not larger than the last");
        self.turns.borrow_mut().push(Instant::now());
    }
}

pub struct Load {
    resources: Vec<Rc<Resource>>,
    stop: Rc<Cell<bool>>,
    contenders: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts two contenders of each client for each of `keys`.
    pub fn begin(clients: &[Client], keys: &[Key]) -> Self {
        let stop = Rc::new(Cell::new(false));
        let (mut resources, mut contenders) = (Vec::new(), Vec::new());
        for key in keys {
            let resource = Rc::<Resource>::default();
            for client in clients.iter().chain(clients) {
                contenders.push(spawn_local(contend(
                    client.clone(),
                    key.clone(),
                    resource.clone(),
                    stop.clone(),
                )));
            }
            resources.push(resource);
        }
        Self { resources, stop, contenders }
    }

    /// Returns the number of turns so far, of the lock that had the fewest.
    pub fn turns(&self) -> usize {
        self.resources.iter().map(|resource| resource.turns.borrow().len()).min().unwrap()
    }

    /// Lets all contenders finish. Returns the longest time in which no contender got a lock.
    pub async fn end(self) -> Duration {
        self.stop.set(true);
        for contender in self.contenders {
            contender.await.expect("a contender failed");
        }
        let gap = |resource: &Rc<Resource>| {
            let turns = resource.turns.borrow();
            turns.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
        };
        self.resources.iter().map(gap).max().unwrap()
    }
}

async fn contend(client: Client, key: Key, resource: Rc<Resource>, stop: Rc<Cell<bool>>) {
    while !stop.get() {
        let waiter = Waiter::exclusive(&client, &key, "a contender");
        let AcquireRequest { token, .. } = waiter.request;
        while !stop.get() {
            let seen = client.notices.count();
            match within(&client, 1_000, Request::Acquire(waiter.request.clone())).await {
                Ok(Reply::Acquired { fence, .. }) => {
                    resource.enter(fence);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    let (renewed, _) = persist(&client, renew(&key, token, 60_000)).await;
                    assert!(
                        matches!(renewed, Reply::Renewed { .. }),
                        "the lease of {key:?} is lost: {renewed:?}"
                    );
                    resource.is_used.set(false);
                    break;
                }
                Ok(Reply::Queued { remaining, .. }) => {
                    let pause = remaining.unwrap_or(HEARTBEAT).clamp(Duration::from_millis(1), HEARTBEAT);
                    let _notice_or_heartbeat = tokio::time::timeout(pause, client.notices.after(seen)).await;
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert!(error.kind.is_transient(), "{error}");
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
            }
        }
        // Release the lease or the place that the token may have.
        persist(&client, Request::Release { key: key.clone(), token, used: None }).await;
    }
}
