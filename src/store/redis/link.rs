//! The one connection that all batches share: made when it is needed, and made again when it has failed.

use std::cell::RefCell;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::address::RedisAddress;
use super::connect;
use super::dial::Wire;
use crate::store::{StoreError, StoreErrorKind};

type Attempt = Shared<LocalBoxFuture<'static, Result<Wire, StoreError>>>;

/// A connection, or the way to one.
pub struct Link {
    state: RefCell<State>,
}

struct State {
    stage: Stage,
    /// Counts connections, so that a batch gives up only the one that failed it.
    generation: u64,
}

enum Stage {
    Apart,
    Connecting(Attempt),
    Connected(Wire),
}

impl Link {
    /// Not connected.
    pub fn new() -> Self {
        Self { state: RefCell::new(State { stage: Stage::Apart, generation: 0 }) }
    }

    /// The connection and its generation, once it is there, but not later than `deadline`.
    pub async fn connection(
        &self,
        address: &RedisAddress,
        deadline: Instant,
    ) -> Result<(u64, Wire), StoreError> {
        let asked = Instant::now();
        let (generation, attempt) = {
            let mut state = self.state.borrow_mut();
            match &state.stage {
                Stage::Connected(wire) if wire.is_open() => return Ok((state.generation, wire.clone())),
                // One that failed while nobody waited for it says nothing about now.
                Stage::Connecting(attempt) if attempt.clone().now_or_never().is_none_or(|r| r.is_ok()) => {
                    (state.generation, attempt.clone())
                }
                _ => {
                    let attempt = attempt(address.clone());
                    state.generation += 1;
                    state.stage = Stage::Connecting(attempt.clone());
                    (state.generation, attempt)
                }
            }
        };
        match timeout_at(deadline, attempt).await {
            Ok(Ok(wire)) => {
                let mut state = self.state.borrow_mut();
                if state.generation == generation {
                    state.stage = Stage::Connected(wire.clone());
                }
                Ok((generation, wire))
            }
            Ok(Err(error)) => {
                self.give_up(generation);
                Err(error)
            }
            // The attempt goes on: those who come later may find it done.
            Err(_) => {
                let waited = (deadline - asked).as_millis();
                let message = format!("{address} did not let us in within {waited} ms");
                Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
            }
        }
    }

    /// The connection of `generation` is not to be used any more: the next batch makes another.
    pub fn give_up(&self, generation: u64) {
        let mut state = self.state.borrow_mut();
        if state.generation == generation {
            state.stage = Stage::Apart;
            state.generation += 1;
        }
    }

    /// Gives up whatever there is.
    pub fn close(&self) {
        let generation = self.state.borrow().generation;
        self.give_up(generation);
    }
}

/// A task of its own, so that an attempt goes on, and ends, even while no batch waits for it. Ends with the last of
/// the attempt's clones, too.
fn attempt(address: RedisAddress) -> Attempt {
    let connecting = async move {
        let mut task = JoinSet::new();
        task.spawn(connect::connect(address.clone()));
        match task.join_next().await {
            Some(Ok(result)) => result,
            _ => Err(StoreError::not_done(StoreErrorKind::Internal, format!("{address}: connecting failed"))),
        }
    };
    connecting.boxed_local().shared()
}
