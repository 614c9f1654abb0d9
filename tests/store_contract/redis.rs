//! Tests the store for one Redis server.

use std::any::Any;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use leasehold::store::Access;
use leasehold::store::redis::{RedisAddress, RedisStore};

use crate::client::Client;
use crate::fixture::Fixture;
use crate::redis_server::RedisServer;

struct Redis(Rc<RedisServer>);

impl Redis {
    fn fresh() -> Self {
        Self(RedisServer::start(&[]))
    }
}

impl Fixture for Redis {
    fn open(&self) -> Client {
        Client::of(RedisStore::new(RedisAddress::parse(&self.0.url(), &Access::default()).unwrap()))
    }

    /// Restarts the server, which loses all its data: this is the hardest restart.
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
        Box::pin(std::future::ready(self.0.keys_without_expiry()))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.0.stall()))
    }
}

crate::contract!(Redis::fresh());
