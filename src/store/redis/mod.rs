//! One Redis server, 6.2 or later, or Valkey.
//!
//! A lock is a plain string key that holds the lease's token and expires by itself, so leasehold and any library
//! that does `SET key token NX PX ttl` exclude each other (Redis, "Distributed locks with Redis"). Beside it, in the
//! same slot, a fence key remembers the last fence, and whose it was.
//!
//! - [`address`]: the URL;
//! - [`connect`]: a connection that is fit for locks;
//! - [`scripts`]: what the server runs;
//! - [`plan`]: requests as script calls, replies as answers;
//! - [`fault`]: the server's errors in the contract's words.

mod address;
mod connect;
mod fault;
mod plan;
mod scripts;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

pub use address::RedisAddress;

use self::scripts::SCRIPTS;
use super::{Answer, Request, Store, StoreError, StoreErrorKind, all_failed};

type Connecting = Shared<LocalBoxFuture<'static, Result<MultiplexedConnection, StoreError>>>;

/// A Redis server. Connects when it is first needed, and again whenever the connection has failed; requests that
/// were sent are never sent again, because nobody knows whether they were carried out.
pub struct RedisStore {
    address: RedisAddress,
    link: RefCell<Link>,
}

/// The connection that all batches share, or the attempt to make it.
struct Link {
    connecting: Option<Connecting>,
    /// Counts connections, so that a batch gives up only the one that failed it.
    generation: u64,
}

impl RedisStore {
    /// The server at `address`.
    pub fn new(address: RedisAddress) -> Rc<Self> {
        Rc::new(Self { address, link: RefCell::new(Link { connecting: None, generation: 0 }) })
    }

    /// The connection, made unless it is there or being made.
    fn connection(&self) -> (u64, Connecting) {
        let mut link = self.link.borrow_mut();
        let generation = link.generation;
        let connecting = link
            .connecting
            .get_or_insert_with(|| connect::connect(self.address.clone()).boxed_local().shared());
        (generation, connecting.clone())
    }

    /// The connection of `generation` is not to be used any more: the next batch makes another.
    fn give_up(&self, generation: u64) {
        let mut link = self.link.borrow_mut();
        if link.generation == generation {
            link.connecting = None;
            link.generation += 1;
        }
    }

    async fn run(&self, batch: &[Request], timeout: Duration) -> Vec<Answer> {
        let deadline = Instant::now() + timeout;
        let (generation, connecting) = self.connection();
        let mut connection = match timeout_at(deadline, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                self.give_up(generation);
                return all_failed(batch.len(), &error);
            }
            Err(_) => {
                let message = format!("{} did not let us in within {} ms", self.address, timeout.as_millis());
                return all_failed(batch.len(), &StoreError::not_done(StoreErrorKind::TimedOut, message));
            }
        };
        let mut answers: Vec<Option<Answer>> = vec![None; batch.len()];
        let mut groups = plan::groups(batch);
        // The second round is for those that met a server which did not know the scripts (any more).
        for round in 0..2 {
            let sent = self.send(&mut connection, batch, &groups, round > 0);
            let replies = match timeout_at(deadline, sent).await {
                Ok(Ok(replies)) => replies,
                failed => {
                    self.give_up(generation);
                    let error = match failed {
                        Ok(Err(error)) => fault::failed(&self.address, &error, true),
                        _ => {
                            let message =
                                format!("{} did not answer within {} ms", self.address, timeout.as_millis());
                            StoreError::maybe_done(StoreErrorKind::TimedOut, message)
                        }
                    };
                    return answers.into_iter().map(|answer| answer.unwrap_or(Err(error.clone()))).collect();
                }
            };
            let mut unknown = Vec::new();
            for (group, reply) in groups.into_iter().zip(replies) {
                if round == 0 && plan::is_unknown_script(&reply) {
                    unknown.push(group);
                } else {
                    plan::read(&self.address, &group, reply, &mut answers);
                }
            }
            if unknown.is_empty() {
                break;
            }
            groups = unknown;
        }
        let answers: Vec<Answer> = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(plan::not_understood(&self.address))))
            .collect();
        if answers.iter().any(|answer| answer.as_ref().is_err_and(wants_new_connection)) {
            self.give_up(generation);
        }
        answers
    }

    /// Sends `groups`, behind the scripts themselves if `load`. Returns a reply for each group.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &[Request],
        groups: &[plan::Group],
        load: bool,
    ) -> Result<Vec<Value>, redis::RedisError> {
        if load {
            let mut scripts = redis::Pipeline::new();
            SCRIPTS.load().for_each(|command| {
                scripts.add_command(command);
            });
            connection.send_packed_commands(&scripts, 0, scripts.len()).await?;
        }
        let pipeline = plan::pipeline(batch, groups.iter());
        connection.send_packed_commands(&pipeline, 0, pipeline.len()).await
    }
}

/// After a failover the name may lead to the new master; what answers nonsense may have been replaced.
fn wants_new_connection(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::ReadOnly | StoreErrorKind::Unsupported | StoreErrorKind::Denied)
}

impl Store for RedisStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move { self.run(&batch, timeout).await }.boxed_local()
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        let generation = self.link.borrow().generation;
        self.give_up(generation);
        async {}.boxed_local()
    }
}
