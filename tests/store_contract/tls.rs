//! Tests the store for one Redis server over TLS, which requires certificates of its clients.

use std::any::Any;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use leasehold::store::Access;
use leasehold::store::redis::{RedisAddress, RedisStore};

use crate::certificates::{Authority, Files, access};
use crate::client::Client;
use crate::fixture::Fixture;
use crate::redis_server::RedisServer;

struct Secure {
    server: Rc<RedisServer>,
    access: Access,
    /// The server reads the files again when it restarts.
    _files: Files,
}

impl Secure {
    fn fresh() -> Self {
        let authority = Authority::new();
        let files = Files::of(&authority.server(), &authority);
        let mut options = vec!["port 0".to_owned(), "tls-port {port}".to_owned()];
        options.extend(files.settings("yes").into_iter().map(|(name, value)| format!("{name} {value}")));
        let server = RedisServer::start(&options.iter().map(String::as_str).collect::<Vec<_>>());
        let own = authority.sign(&["a client"], (2020, 2100));
        Self { server, access: access(&authority.trusted_by(&own)), _files: files }
    }
}

impl Fixture for Secure {
    fn open(&self) -> Client {
        let url = format!("rediss://127.0.0.1:{}", self.server.port());
        Client::of(RedisStore::new(RedisAddress::parse(&url, &self.access).unwrap()))
    }

    /// Restarts the server, which loses all its data: this is the hardest restart.
    fn reopen(&self, clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        Box::pin(async move {
            for client in clients {
                client.store.close().await;
            }
            self.server.restart();
            self.open()
        })
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(std::future::ready(self.server.keys_without_expiry()))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.server.stall()))
    }
}

crate::contract!(Secure::fresh());
