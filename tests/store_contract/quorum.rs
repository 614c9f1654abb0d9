//! Tests a quorum of three nodes: stores in memory, and Redis servers.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use leasehold::store::memory::MemoryStore;
use leasehold::store::quorum::QuorumStore;
use leasehold::store::redis::{RedisAddress, RedisStore};
use leasehold::store::{Access, Answer, Listener, Request, Store};

use crate::client::{Client, UnderWay};
use crate::fixture::Fixture;
use crate::redis_server::RedisServer;

const NODES: usize = 3;
/// The shortest ttl, in ms: a lease takes two rounds.
const SHORTEST_TTL: u32 = 100;

fn quorum(nodes: impl Iterator<Item = Rc<dyn Store>>) -> Client {
    let under_way = Rc::<UnderWay>::default();
    let node = |(i, store)| {
        let store: Rc<dyn Store> = Rc::new(Node { store, under_way: under_way.clone() });
        (format!("node {i}").into(), store)
    };
    Client::of_nodes(QuorumStore::new(nodes.enumerate().map(node).collect()), under_way.clone())
}

/// A node that counts its calls, because the quorum answers as soon as most nodes have.
struct Node {
    store: Rc<dyn Store>,
    under_way: Rc<UnderWay>,
}

impl Store for Node {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        // Count the call from now on, and not from the first poll: a request that follows from the
        // answer is sent before this call ends.
        let one = self.under_way.one();
        Box::pin(async move {
            let answers = self.store.clone().execute(batch, timeout).await;
            drop(one);
            answers
        })
    }

    fn listen(&self, listener: Listener) {
        self.store.listen(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        self.store.clone().close()
    }
}

/// A quorum of stores in memory. All its clients are one process, with one listener.
struct OfMemory(RefCell<(Vec<Rc<MemoryStore>>, Client)>);

impl OfMemory {
    fn fresh() -> Self {
        Self(RefCell::new(Self::place()))
    }

    fn place() -> (Vec<Rc<MemoryStore>>, Client) {
        let nodes: Vec<_> = (0..NODES).map(|_| MemoryStore::new()).collect();
        let client = quorum(nodes.iter().map(|node| node.clone() as Rc<dyn Store>));
        (nodes, client)
    }
}

impl Fixture for OfMemory {
    fn open(&self) -> Client {
        self.0.borrow().1.clone()
    }

    fn reopen(&self, _clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        self.0.replace(Self::place());
        Box::pin(std::future::ready(self.open()))
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(std::future::ready(self.0.borrow().0.iter().map(|node| node.len()).sum()))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn has_one_order(&self) -> bool {
        false
    }

    fn notices_have_fences(&self) -> bool {
        false
    }

    fn keeps_fences(&self) -> bool {
        false
    }

    fn counts_permits(&self) -> bool {
        false
    }

    fn is_quorum(&self) -> bool {
        true
    }

    fn shortest_ttl(&self) -> u32 {
        SHORTEST_TTL
    }
}

struct OfRedis(Vec<Rc<RedisServer>>);

impl OfRedis {
    fn fresh() -> Self {
        Self((0..NODES).map(|_| RedisServer::start(&[])).collect())
    }
}

impl Fixture for OfRedis {
    fn open(&self) -> Client {
        let address =
            |server: &Rc<RedisServer>| RedisAddress::parse(&server.url(), &Access::default()).unwrap();
        quorum(self.0.iter().map(|server| RedisStore::new(address(server)) as Rc<dyn Store>))
    }

    /// Restarts all servers, which lose all their data: this is the hardest restart.
    fn reopen(&self, clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        Box::pin(async move {
            for client in clients {
                client.store.close().await;
            }
            self.0.iter().for_each(|server| server.restart());
            self.open()
        })
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(std::future::ready(self.0.iter().map(|server| server.keys_without_expiry()).sum()))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.0.iter().take(2).map(|server| server.stall()).collect::<Vec<_>>()))
    }

    fn has_one_order(&self) -> bool {
        false
    }

    fn notices_have_fences(&self) -> bool {
        false
    }

    fn keeps_fences(&self) -> bool {
        false
    }

    fn counts_permits(&self) -> bool {
        false
    }

    fn is_quorum(&self) -> bool {
        true
    }

    fn shortest_ttl(&self) -> u32 {
        SHORTEST_TTL
    }
}

mod of_memory {
    use super::OfMemory;
    crate::contract!(OfMemory::fresh());
}

mod of_redis {
    use super::OfRedis;
    crate::contract!(OfRedis::fresh());
}
