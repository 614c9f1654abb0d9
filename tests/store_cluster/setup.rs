//! Starts clusters and clients.

use std::future::Future;
use std::time::{Duration, Instant};

use leasehold::lease::Key;
use leasehold::store::redis::{ClusterAddress, ClusterStore};
use leasehold::store::{Notice, Reply, Request, StoreError};

use crate::client::Client;
use crate::redis_cluster::RedisCluster;
use crate::redis_server::RedisServer;

/// The longest time that a test waits for something on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a client of the cluster at `url`.
pub fn client(url: &str) -> Client {
    Client::of(ClusterStore::new(ClusterAddress::parse(url, &leasehold::store::Access::default()).unwrap()))
}

/// Runs one test on a runtime like the engine's. Fails if the test hangs.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs");
    });
}

/// Sends a request once, with a time-out of `ms`.
pub async fn within(client: &Client, ms: u64, request: Request) -> Result<Reply, StoreError> {
    let mut answers = client.store.clone().execute(vec![request], Duration::from_millis(ms)).await;
    answers.pop().expect("one answer each")
}

/// Repeats a request until it is answered or fails for good. Returns the answer, and how long it
/// took.
pub async fn persist(client: &Client, request: Request) -> (Reply, Duration) {
    let start = Instant::now();
    loop {
        match within(client, 1_000, request.clone()).await {
            Ok(reply) => return (reply, start.elapsed()),
            Err(error) => {
                assert!(error.kind.is_transient(), "{error}");
                assert!(start.elapsed() < PATIENCE, "the request still fails: {error}");
            }
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Waits until `is_so` returns true.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a key of the slots that `node` has.
pub fn key_at(cluster: &RedisCluster, node: usize) -> Key {
    let mut names = (0..).map(|n| format!("lock:{n}"));
    names
        .find(|name| cluster.owner_of(cluster.slot_of(name)) == node)
        .expect("there are enough names")
        .as_str()
        .into()
}

/// Returns how often the node has carried out `command`.
pub fn calls(node: &RedisServer, command: &str) -> usize {
    let stats: String = node.ask(&["INFO", "commandstats"]);
    let rest = stats.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0,");
    rest.split(',').next().unwrap().parse().unwrap()
}

impl Client {
    /// Returns how many notices said that other notices may have been missed.
    pub fn missed(&self) -> usize {
        self.notices.received().iter().filter(|notice| **notice == Notice::Missed).count()
    }
}
