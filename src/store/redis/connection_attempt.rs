//! Makes one attempt to connect, for all batches that wait for it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::RedisAddress;
use super::budget::Budget;
use super::connect::Role;
use super::endpoint::Endpoint;
use super::link::Link;
use super::sentinel::master_tracker::MasterTracker;
use super::{connect, sentinel};
use crate::store::{StoreError, StoreErrorKind};

/// An attempt to connect. Its clones share the result.
pub type Connecting = Shared<LocalBoxFuture<'static, Result<Rc<Link>, StoreError>>>;

/// How long an attempt may take. The next batch begins a new one. If this is smaller, the client
/// may never reach a server that is far away; if it is larger, the client stays longer with a
/// server that does not answer.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Begins to connect, in a task of its own. The task runs for at most [`ATTEMPT`], even if no
/// caller waits for it. It is cancelled when the last clone of the result is dropped.
/// `master_tracker` says where the master is, if sentinels name it. The connection takes its memory
/// from `budget`.
pub fn begin(
    address: RedisAddress,
    role: Role,
    master_tracker: Rc<MasterTracker>,
    budget: Arc<Budget>,
) -> Connecting {
    let connecting = async move {
        let mut task = JoinSet::new();
        let to = address.clone();
        task.spawn_local(timeout(ATTEMPT, async move {
            match &to.endpoint {
                Endpoint::Master(sentinels) => {
                    sentinel::connect(&to, sentinels, &master_tracker, &budget).await
                }
                Endpoint::Tcp(..) | Endpoint::Unix(_) => connect::connect(to, role, budget).await,
            }
        }));
        match task.join_next().await {
            Some(Ok(Ok(link))) => link.map(Rc::new),
            Some(Ok(Err(_))) => Err(StoreError::not_done(
                StoreErrorKind::TimedOut,
                format!(
                    "{address} did not answer within {} s when connecting to it: it may be frozen, overloaded, or no \
                     Redis server",
                    ATTEMPT.as_secs()
                ),
            )),
            _ => Err(StoreError::not_done(StoreErrorKind::Internal, format!("{address}: connecting failed"))),
        }
    };
    connecting.boxed_local().shared()
}
