//! A server as a node of a cluster.

use super::super::cut_off;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::Instant;

use super::super::address::RedisAddress;
use super::super::budget::Budget;
use super::super::connect::Role;
use super::super::outcomes::Outcomes;
use super::super::{Limit, RedisStore, State, fault};
use super::slots::{Place, SlotMap};
use crate::store::{Request, StoreError, StoreErrorKind};

impl RedisStore {
    /// Returns the node at `address`, without any known slots. It shares `budget` with the other nodes.
    pub(super) fn of_cluster(address: RedisAddress, budget: Arc<Budget>) -> Rc<Self> {
        Self::with_role(address, Role::Node { homes: None }, budget)
    }

    /// Where it listens, if it is a node of a cluster.
    pub(in super::super) fn node(&self) -> Option<Place> {
        match self.role.get() {
            Role::Node { .. } => Place::of_address(&self.address),
            Role::Alone => None,
        }
    }

    /// The slots in one of which its channel is to lie.
    pub(super) fn homes(&self) -> Option<[u16; 2]> {
        match self.role.get() {
            Role::Node { homes } => homes,
            Role::Alone => None,
        }
    }

    /// Connections from now on have their channel in one of those slots.
    pub(super) fn settle(&self, homes: [u16; 2]) {
        if self.homes().is_none() {
            // Whoever was asked the way when nothing was known has a channel that is none of a node's own. Nobody waits
            // there yet.
            *self.state.borrow_mut() = State::Apart;
            self.met.set(false);
        }
        self.role.set(Role::Node { homes: Some(homes) });
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Connected(link) if !link.is_dead())
    }

    /// Asks for what is in its slots, and, if `asking`, in one that it is still being given.
    pub(super) async fn ask_node(&self, batch: &[Request], limit: Limit, asking: bool) -> Outcomes {
        self.run(batch, limit, asking).await
    }

    /// Which node has which slot, as this one knows it.
    ///
    /// # Errors
    /// When it can't be reached within `timeout`, is no node of a cluster, or knows of no slot.
    pub(super) async fn slots(self: Rc<Self>, timeout: Duration) -> Result<SlotMap, StoreError> {
        let limit = Limit { deadline: Instant::now() + timeout, timeout };
        let link = self.link(limit).await?;
        let mut question = Pipeline::with_capacity(1);
        question.cmd("CLUSTER").arg("SLOTS");
        let replies = link.send(&question, limit.deadline, timeout).await;
        let reply = replies.map_err(|cut| cut_off(&cut, &self.address))?.pop().unwrap_or(Value::Nil);
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
        let asked = self.node().unwrap_or_else(|| Place { host: String::new(), port: 0 });
        let Some(map) = SlotMap::read(&reply, &asked) else { return Err(fault::not_a_redis(address, false)) };
        if map.is_empty() {
            let why = "knows of no node that has slots: is the cluster still being made?";
            return refuse(StoreErrorKind::Loading, why);
        }
        Ok(map)
    }
}
