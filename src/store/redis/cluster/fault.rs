//! What goes wrong with a cluster, in the contract's words.

use super::address::ClusterAddress;
use super::slots::{Place, SLOTS};
use crate::store::{StoreError, StoreErrorKind};

/// Some of what is kept of a lock is here, and some is there.
pub fn moving(address: &ClusterAddress, slot: u16) -> StoreError {
    let message = format!(
        "hash slot {slot} of {address} is being moved to another node, and not all of the lock is there yet"
    );
    StoreError::not_done(StoreErrorKind::Loading, message)
}

/// Each of some nodes says that another has the slot.
pub fn at_odds(address: &ClusterAddress, slot: u16) -> StoreError {
    let message = format!("the nodes of {address} do not agree who has hash slot {slot}");
    StoreError::not_done(StoreErrorKind::Loading, message)
}

/// Nobody serves the slot; `said` is how that is known.
pub fn down(address: &ClusterAddress, slot: u16, said: &str) -> StoreError {
    let message = format!(
        "{address} does not serve hash slot {slot} now ({said}): is a master down that has no replica?"
    );
    StoreError::not_done(StoreErrorKind::Unreachable, message)
}

/// Nobody has so many of the slots.
pub fn uncovered(address: &ClusterAddress, count: usize) -> StoreError {
    let message = format!(
        "no node of {address} has {count} of the {SLOTS} hash slots: is a master down that has no replica?"
    );
    StoreError::not_done(StoreErrorKind::Unreachable, message)
}

/// A node lost its slots while it was waited for.
pub fn replaced(address: &ClusterAddress, place: &Place) -> StoreError {
    let node = address.at(place).place();
    let message = format!("{node} has no slots of {address} any more, and had not answered yet");
    StoreError::maybe_done(StoreErrorKind::Unreachable, message)
}

/// Nobody told in time who has which slot.
pub fn silent(address: &ClusterAddress) -> StoreError {
    let message = format!("no node of {address} told in time who has which slot");
    StoreError::not_done(StoreErrorKind::TimedOut, message)
}
