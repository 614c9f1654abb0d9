//! One Redis server, 6.2 or later, or Valkey.
//!
//! A lock is a plain string key that holds the lease's token and expires by itself, so leasehold and any library
//! that does `SET key token NX PX ttl` exclude each other (Redis, "Distributed locks with Redis"). Beside it, in the
//! same slot, a fence key remembers the last fence, and whose it was.
//!
//! - [`address`]: the URL;
//! - [`link`]: the one connection that all batches share;
//! - [`connect`]: a connection that is fit for locks;
//! - [`dial`]: a connection;
//! - [`scripts`]: what the server runs;
//! - [`plan`]: requests as script calls, replies as answers;
//! - [`fault`]: the server's errors in the contract's words.

mod address;
mod connect;
mod dial;
mod fault;
mod link;
mod plan;
mod scripts;

use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout_at};

pub use address::RedisAddress;

use self::link::Link;
use self::scripts::SCRIPTS;
use super::{Answer, Request, Store, StoreError, StoreErrorKind, all_failed};

/// A Redis server. Connects when it is first needed, and again whenever the connection has failed; requests that
/// were sent are never sent again, because nobody knows whether they were carried out.
pub struct RedisStore {
    address: RedisAddress,
    link: Link,
}

impl RedisStore {
    /// The server at `address`.
    pub fn new(address: RedisAddress) -> Rc<Self> {
        Rc::new(Self { address, link: Link::new() })
    }

    async fn run(&self, batch: &[Request], timeout: Duration) -> Vec<Answer> {
        let deadline = Instant::now() + timeout;
        let (generation, mut wire) = match self.link.connection(&self.address, deadline).await {
            Ok(found) => found,
            Err(error) => return all_failed(batch.len(), &error),
        };
        let mut answers: Vec<Option<Answer>> = vec![None; batch.len()];
        let mut groups = plan::groups(batch);
        let mut load = false;
        while !groups.is_empty() {
            let sent = self.send(&mut wire.connection, batch, &groups, load);
            let replies = match timeout_at(deadline, sent).await {
                Ok(Ok(replies)) => replies,
                failed => {
                    self.link.give_up(generation);
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
            // Those of which the server did nothing, but may if they are sent in another way.
            let mut again = Vec::new();
            let loaded = load;
            for (group, reply) in groups.into_iter().zip(replies) {
                if !loaded && plan::is_unknown_script(&reply) {
                    load = true;
                    again.push(group);
                } else if plan::is_denied(&reply) && group.is_many() {
                    again.extend(group.one_by_one());
                } else {
                    plan::read(&self.address, &group, reply, &mut answers);
                }
            }
            groups = again;
        }
        let answers: Vec<Answer> = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(plan::not_understood(&self.address))))
            .collect();
        if answers.iter().any(|answer| answer.as_ref().is_err_and(wants_new_connection)) {
            self.link.give_up(generation);
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
    matches!(error.kind, StoreErrorKind::ReadOnly | StoreErrorKind::Unsupported)
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
        self.link.close();
        async {}.boxed_local()
    }
}
