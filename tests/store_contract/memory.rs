//! Tests the store in memory.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use leasehold::store::memory::MemoryStore;

use crate::client::Client;
use crate::fixture::Fixture;

/// A store in memory. All its clients are one process, with one listener.
struct Memory(RefCell<(Rc<MemoryStore>, Client)>);

fn fresh() -> (Rc<MemoryStore>, Client) {
    let store = MemoryStore::new();
    (store.clone(), Client::of(store))
}

impl Memory {
    fn fresh() -> Self {
        Self(RefCell::new(fresh()))
    }
}

impl Fixture for Memory {
    fn open(&self) -> Client {
        self.0.borrow().1.clone()
    }

    /// Replaces the store, which does not outlive the process: after a restart, only the clock
    /// makes the fences grow.
    fn reopen(&self, _clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        self.0.replace(fresh());
        Box::pin(std::future::ready(self.open()))
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(std::future::ready(self.0.borrow().0.len()))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        None
    }
}

crate::contract!(Memory::fresh());
