//! Starts Redis Clusters, each for one test.

// Each test crate that includes this file uses another part of it.
#![allow(dead_code)]

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::redis_server::RedisServer;

/// How long the nodes may take to agree on something on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// The number of hash slots.
const SLOTS: usize = 16384;
/// The time in ms after which a silent node counts as failed.
pub const NODE_TIMEOUT: u64 = 1_000;

pub struct RedisCluster {
    /// The masters, until a failover, and then the replicas. Each replica has the same position as
    /// its master.
    pub nodes: Vec<Rc<RedisServer>>,
}

impl RedisCluster {
    /// Starts `masters` masters with about as many slots each, and a replica of each if
    /// `replicated`.
    pub fn start(masters: usize, replicated: bool) -> Self {
        let count = if replicated { 2 * masters } else { masters };
        // The bus uses the node's port plus 10 000. If that port does not exist, the node tries
        // another one.
        let timeout = format!("cluster-node-timeout {NODE_TIMEOUT}");
        let options = ["cluster-enabled yes", "repl-diskless-sync-delay 0", &timeout];
        let nodes: Vec<_> = (0..count).map(|_| RedisServer::start(&options)).collect();
        let cluster = Self { nodes };
        for (index, node) in cluster.nodes.iter().enumerate() {
            node.run(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < masters {
                let slots: Vec<String> = (0..SLOTS)
                    .filter(|slot| slot * masters / SLOTS == index)
                    .map(|slot| slot.to_string())
                    .collect();
                let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
                node.run(&words.collect::<Vec<_>>());
            }
        }
        for other in &cluster.nodes[1..] {
            cluster.nodes[0].run(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
        }
        wait("all nodes know each other", || {
            cluster.nodes.iter().all(|node| {
                let known: String = node.ask(&["CLUSTER", "NODES"]);
                known.lines().count() == count
                    && !known.contains("handshake")
                    && !known.contains("disconnected")
            })
        });
        for index in masters..count {
            let id: String = cluster.nodes[index - masters].ask(&["CLUSTER", "MYID"]);
            cluster.nodes[index].run(&["CLUSTER", "REPLICATE", &id]);
        }
        wait("the cluster is up", || cluster.is_up());
        cluster
    }

    /// Returns true if every node serves, and every replica follows its master.
    pub fn is_up(&self) -> bool {
        let mut epochs = Vec::new();
        let good = self.nodes.iter().all(|node| {
            let state: String = node.ask(&["CLUSTER", "INFO"]);
            epochs.extend(
                state.lines().find(|line| line.starts_with("cluster_current_epoch")).map(str::to_owned),
            );
            let role: String = node.ask(&["INFO", "replication"]);
            state.contains("cluster_state:ok")
                && (role.contains("role:master") || role.contains("link_status:up"))
        });
        epochs.dedup();
        good && epochs.len() == 1
    }

    /// Returns true if the nodes are older than 7, and have no sharded channels.
    pub fn is_old(&self) -> bool {
        self.nodes[0].ask::<String>(&["INFO", "server"]).contains("redis_version:6")
    }

    /// Returns a `redis-cluster://` URL with all nodes as seeds.
    pub fn url(&self) -> String {
        let seeds: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", seeds.join(","))
    }

    /// Kills all nodes and starts them again at the same addresses. They only keep what they know
    /// of each other.
    pub fn restart(&self) {
        self.nodes.iter().for_each(|node| node.kill());
        self.nodes.iter().for_each(|node| node.restart());
        wait("the cluster is up again", || self.is_up());
    }

    /// Returns the slot of a key, according to the server.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// Returns the node that has the slot, according to that node.
    pub fn owner_of(&self, slot: u16) -> usize {
        let has_it = |node: &Rc<RedisServer>| {
            let id: String = node.ask(&["CLUSTER", "MYID"]);
            let lines: String = node.ask(&["CLUSTER", "NODES"]);
            let line = lines.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
            line.split(' ').skip(8).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse::<u16>().is_ok_and(|first| first <= slot)
                    && last.parse::<u16>().is_ok_and(|last| slot <= last)
            })
        };
        self.nodes.iter().position(has_it).expect("a node has the slot")
    }

    /// Makes the slot begin to move, as `redis-cli --cluster reshard` does.
    pub fn open_slot(&self, slot: u16, from: usize, to: usize) {
        let [source, target] = [from, to].map(|node| self.nodes[node].ask::<String>(&["CLUSTER", "MYID"]));
        let slot = slot.to_string();
        self.nodes[to].run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.nodes[from].run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Moves up to `most` keys of the slot. Returns how many it moved.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, most: usize) -> usize {
        let keys: Vec<String> =
            self.nodes[from].ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &most.to_string()]);
        self.move_these(&keys.iter().map(String::as_str).collect::<Vec<_>>(), from, to);
        keys.len()
    }

    pub fn move_these(&self, keys: &[&str], from: usize, to: usize) {
        if keys.is_empty() {
            return;
        }
        let port = self.nodes[to].port().to_string();
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        self.nodes[from].run(&words.into_iter().chain(keys.iter().copied()).collect::<Vec<_>>());
    }

    /// Ends the move of the slot: its new node owns it.
    pub fn close_slot(&self, slot: u16, from: usize, to: usize) {
        let target: String = self.nodes[to].ask(&["CLUSTER", "MYID"]);
        for node in [to, from] {
            self.nodes[node].run(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &target]);
        }
    }

    /// Moves the slot and all its keys.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.open_slot(slot, from, to);
        while self.move_keys(slot, from, to, 10) > 0 {}
        self.close_slot(slot, from, to);
    }
}

/// Polls until `is_so` returns true. No event reports what the nodes do among themselves.
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
