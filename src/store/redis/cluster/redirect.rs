//! What a node of a cluster says when it does not do what it was asked.

use redis::ServerError;

use super::super::address::RedisAddress;
use super::super::fault;
use super::slots::Place;

/// Why a node did not do what it was asked. In every case it has not been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The slot is another node's.
    Moved(u16, Place),
    /// The slot is on its way to another node, which has the keys already, or is to have them.
    Ask(Place),
    /// The slot is on its way, and its keys are partly here and partly there.
    Torn,
    /// The node does not serve the slot now: what it said.
    Down(String),
}

impl Elsewhere {
    /// Reads the error of the node at `place`. Returns `None` if the error is about something else. `address` has the
    /// password that no message may show.
    pub fn read(error: &ServerError, place: &Place, address: &RedisAddress) -> Option<Self> {
        let details = error.details().unwrap_or_default();
        // All that follows the slot is the address: a part of it could be a part of the password.
        let mut words = details.splitn(2, ' ');
        match error.code() {
            "MOVED" => {
                let slot = words.next()?.parse().ok()?;
                Some(Self::Moved(slot, Place::read(words.next()?, place)?))
            }
            "ASK" => {
                words.next();
                Some(Self::Ask(Place::read(words.next()?, place)?))
            }
            "TRYAGAIN" => Some(Self::Torn),
            "CLUSTERDOWN" => Some(Self::Down(fault::said_by(address, error))),
            // What a script meets that looks for a key which is at the other node, or nowhere. Some of what it was to
            // do may have been done: no more than what doing it again does once more.
            _ if details.contains("access a non local key") => Some(Self::Torn),
            _ if details.contains("the cluster is down") => Some(Self::Down("the cluster is down".into())),
            _ => None,
        }
    }
}
