//! The store errors of a cluster.

use super::address::ClusterAddress;
use super::slots::{NodeAddress, SLOTS};
use crate::store::{StoreError, StoreErrorKind};

/// Returns the error for a lock whose keys are partly at one node and partly at another.
pub fn moving(address: &ClusterAddress, slot: u16) -> StoreError {
    let message = format!(
        "hash slot {slot} of {address} is being moved to another node, and not all of the lock is there yet"
    );
    StoreError::not_done(StoreErrorKind::Loading, message)
}

/// Returns the error for a slot if each node names another node as its owner.
pub fn at_odds(address: &ClusterAddress, slot: u16) -> StoreError {
    let message = format!("the nodes of {address} do not agree who has hash slot {slot}");
    StoreError::not_done(StoreErrorKind::Loading, message)
}

/// Returns the error for a slot that no node serves. `said` says how the client knows that.
pub fn down(address: &ClusterAddress, slot: u16, said: &str) -> StoreError {
    let message = format!(
        "{address} does not serve hash slot {slot} now ({said}): is a master down that has no replica?"
    );
    StoreError::not_done(StoreErrorKind::Unreachable, message)
}

/// Returns the error for a cluster in which `count` slots have no owner.
pub fn uncovered(address: &ClusterAddress, count: usize) -> StoreError {
    let message = format!(
        "no node of {address} has {count} of the {SLOTS} hash slots: is a master down that has no replica?"
    );
    StoreError::not_done(StoreErrorKind::Unreachable, message)
}

/// Returns the error for a node that lost its slots before it answered.
pub fn replaced(address: &ClusterAddress, place: &NodeAddress) -> StoreError {
    let node = address.at(place).place();
    let message = format!("{node} has no slots of {address} any more, and had not answered yet");
    StoreError::maybe_done(StoreErrorKind::Unreachable, message)
}

/// Returns the error if no node told in time which node has which slot.
pub fn silent(address: &ClusterAddress) -> StoreError {
    let message = format!("no node of {address} told in time who has which slot");
    StoreError::not_done(StoreErrorKind::TimedOut, message)
}
