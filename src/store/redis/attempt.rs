//! One attempt to connect, for all who wait for it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::{Endpoint, RedisAddress};
use super::budget::Budget;
use super::connect::Role;
use super::link::Link;
use super::sentinel::lookout::Lookout;
use super::{connect, sentinel};
use crate::store::{StoreError, StoreErrorKind};

/// What becomes of it.
pub type Connecting = Shared<LocalBoxFuture<'static, Result<Rc<Link>, StoreError>>>;

/// How long it may take; the batch after that begins another.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Begins to connect, in a task of its own. The task runs for at most [`ATTEMPT`], even if no
/// caller waits for it. It is cancelled when the last clone of the result is dropped. `lookout`
/// says where the master is, if sentinels name it. The connection takes its memory from `budget`.
pub fn begin(address: RedisAddress, role: Role, lookout: Rc<Lookout>, budget: Arc<Budget>) -> Connecting {
    let connecting = async move {
        let mut task = JoinSet::new();
        let to = address.clone();
        task.spawn_local(timeout(ATTEMPT, async move {
            match &to.endpoint {
                Endpoint::Master(sentinels) => sentinel::connect(&to, sentinels, &lookout, &budget).await,
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
