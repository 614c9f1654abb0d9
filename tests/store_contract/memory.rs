//! The store in memory.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use leasehold::store::Store;
use leasehold::store::memory::MemoryStore;

use crate::fixture::Fixture;

struct Memory(RefCell<Rc<MemoryStore>>);

impl Memory {
    fn fresh() -> Self {
        Self(RefCell::new(MemoryStore::new()))
    }
}

impl Fixture for Memory {
    fn open(&self) -> Rc<dyn Store> {
        self.0.borrow().clone()
    }

    /// Its place does not outlive the process: after a restart only the clock makes the fences grow.
    fn reopen(&self, _stores: Vec<Rc<dyn Store>>) -> LocalBoxFuture<'_, Rc<dyn Store>> {
        self.0.replace(MemoryStore::new());
        Box::pin(std::future::ready(self.open()))
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        Box::pin(std::future::ready(self.0.borrow().len()))
    }

    fn stall(&self) -> Option<Box<dyn Any>> {
        None
    }
}

crate::contract!(Memory::fresh());
