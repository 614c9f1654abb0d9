//! Tests the store for a Redis Cluster of three masters.

use std::any::Any;

use futures_util::future::LocalBoxFuture;
use leasehold::store::redis::{ClusterAddress, ClusterStore};

use crate::client::Client;
use crate::cluster_server::RedisCluster;
use crate::fixture::Fixture;

struct Cluster(RedisCluster);

impl Cluster {
    fn fresh() -> Self {
        Self(RedisCluster::start(3, false))
    }
}

impl Fixture for Cluster {
    fn open(&self) -> Client {
        Client::of(ClusterStore::new(
            ClusterAddress::parse(&self.0.url(), &leasehold::store::Access::default()).unwrap(),
        ))
    }

    /// Restarts the nodes, which lose all locks: this is the hardest restart.
    fn reopen(&self, clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        Box::pin(async move {
            for client in clients {
                client.store.close().await;
            }
            self.0.restart();
            self.open()
        })
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        let keys = self.0.nodes.iter().map(|node| node.keys_without_expiry()).sum();
        Box::pin(std::future::ready(keys))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.0.nodes.iter().map(|node| node.stall()).collect::<Vec<_>>()))
    }
}

crate::contract!(Cluster::fresh());
