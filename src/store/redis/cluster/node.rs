//! A server as a node of a cluster.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::Instant;

use super::super::address::RedisAddress;
use super::super::budget::Budget;
use super::super::connect::Role;
use super::super::fault;
use super::super::outcomes::Outcomes;
use super::super::pace::Pace;
use super::super::reader::Reader;
use super::super::store::{RedisStore, State};
use super::super::time_limit::TimeLimit;
use super::slots::{NodeAddress, SlotMap};
use crate::store::{Request, StoreError, StoreErrorKind};

impl RedisStore {
    /// Returns the node at `address`, without any known slots. It shares `budget` with the other
    /// nodes.
    pub(super) fn of_cluster(address: RedisAddress, budget: Arc<Budget>) -> Rc<Self> {
        Self::with_role(address, Role::Node { homes: None }, budget)
    }

    /// Returns the host and port of the server, if it is a node of a cluster.
    pub(in super::super) fn node(&self) -> Option<NodeAddress> {
        match self.role.get() {
            Role::Node { .. } => NodeAddress::of_address(&self.address),
            Role::Alone => None,
        }
    }

    /// Returns the slots of the node in which the channel may lie, if they are known.
    pub(super) fn homes(&self) -> Option<[u16; 2]> {
        match self.role.get() {
            Role::Node { homes } => homes,
            Role::Alone => None,
        }
    }

    /// Puts the channels of later connections into one of these slots.
    pub(super) fn settle(&self, homes: [u16; 2]) {
        if self.homes().is_none() {
            // A node that was asked for the map at first has a channel in no slot of its own. No
            // waiter uses that channel yet.
            *self.state.borrow_mut() = State::Apart;
            self.met.set(false);
        }
        self.role.set(Role::Node { homes: Some(homes) });
    }

    /// Returns true if there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Connected(link) if !link.is_dead())
    }

    /// Sends requests to the node. If `asking` is true, the node also carries them out in a slot
    /// that it is still importing.
    pub(super) async fn ask_node(&self, batch: &[Request], limit: TimeLimit, asking: bool) -> Outcomes {
        self.run(batch, limit, asking).await
    }

    /// Asks the node which node has which slot.
    ///
    /// # Errors
    ///
    /// Returns an error if the node can't be reached within `timeout`, refuses to answer, is not a
    /// node of a cluster, or knows no slots.
    pub(super) async fn slots(self: Rc<Self>, timeout: Duration) -> Result<SlotMap, StoreError> {
        let limit = TimeLimit { deadline: Instant::now() + timeout, timeout };
        let link = self.link(limit).await?;
        let mut question = Pipeline::with_capacity(1);
        question.cmd("CLUSTER").arg("SLOTS");
        let replies = link.send(&question, limit.deadline, timeout).await;
        let (mut replies, _charge) = replies.map_err(|cut| cut.error(&self.address))?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        let address = &self.address;
        let refuse = |kind, why: &str| Err(StoreError::not_done(kind, format!("{address} {why}")));
        if let Value::ServerError(error) = &reply {
            let details = error.details().unwrap_or_default();
            if details.contains("cluster support disabled") {
                let why = "is not a node of a Redis Cluster: use redis:// in place of redis-cluster://";
                return refuse(StoreErrorKind::Unsupported, why);
            }
            if error.code() == "NOPERM" {
                let why = "does not tell us which node has which slot: the user needs +cluster|slots too \
                           (+cluster on Redis 6.2)";
                return refuse(StoreErrorKind::Denied, why);
            }
            return Err(fault::refused(address, error));
        }
        let asked = self.node().unwrap_or_else(|| NodeAddress { host: String::new(), port: 0 });
        let mut reader = Reader::of(link.budget());
        let pace = Pace::begin(&mut reader).await;
        let map = SlotMap::read(&reply, &asked);
        drop(pace);
        let Some(map) = map else { return Err(fault::not_a_redis(address, false)) };
        if map.is_empty() {
            let why = "knows of no node that has slots: is the cluster still being made?";
            return refuse(StoreErrorKind::Loading, why);
        }
        Ok(map)
    }
}
