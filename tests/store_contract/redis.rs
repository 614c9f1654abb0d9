//! One Redis server.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use leasehold::store::Store;
use rustix::process::Signal;

use crate::fixture::Fixture;
use crate::server::Server;

struct Redis(Rc<RefCell<Server>>);

impl Fixture for Redis {
    fn open(&self) -> Rc<dyn Store> {
        self.0.borrow().store()
    }

    /// After a restart that lost everything only the clock makes the fences grow.
    fn reopen(&self, stores: Vec<Rc<dyn Store>>) -> LocalBoxFuture<'_, Rc<dyn Store>> {
        Box::pin(async move {
            for store in stores {
                store.close().await;
            }
            self.0.borrow_mut().restart(&[], "Ready to accept connections");
            self.open()
        })
    }

    fn traces(&self) -> LocalBoxFuture<'_, usize> {
        let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                      if redis.call('PTTL', key) == -1 then n = n + 1 end end return n";
        let count = self.0.borrow().command(&["EVAL", script, "0"]);
        Box::pin(std::future::ready(count.parse().unwrap()))
    }

    /// A server that is stopped.
    fn stall(&self) -> Option<Box<dyn Any>> {
        self.0.borrow().signal(Signal::STOP);
        Some(Box::new(Stopped(self.0.clone())))
    }
}

struct Stopped(Rc<RefCell<Server>>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.borrow().signal(Signal::CONT);
    }
}

crate::contract!(Redis(Rc::new(RefCell::new(Server::start(&[])))));
