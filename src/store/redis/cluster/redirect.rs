//! Reads the errors with which the nodes of a cluster redirect requests.

use redis::ServerError;

use super::super::address::RedisAddress;
use super::super::fault;
use super::slots::NodeAddress;

/// Says why a node did not carry out a request. The client may send the request again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// Another node has the slot.
    Moved(u16, NodeAddress),
    /// The slot is moving to another node, which has the keys already or will get them.
    Ask(NodeAddress),
    /// The slot is moving, and the keys are partly at one node and partly at the other.
    Torn,
    /// The node does not serve the slot now. Contains the text of its error.
    Down(String),
}

impl Redirect {
    /// Reads the error of the node at `place`. Returns `None` if the error is about something else.
    /// `address` has the password that no message may show.
    pub fn read(error: &ServerError, place: &NodeAddress, address: &RedisAddress) -> Option<Self> {
        let details = error.details().unwrap_or_default();
        // Read everything after the slot as the address. A word of it could be a part of the
        // password, which the check for the whole password would not find.
        let mut words = details.splitn(2, ' ');
        match error.code() {
            "MOVED" => {
                let slot = words.next()?.parse().ok()?;
                Some(Self::Moved(slot, NodeAddress::read(words.next()?, place)?))
            }
            "ASK" => {
                words.next();
                Some(Self::Ask(NodeAddress::read(words.next()?, place)?))
            }
            "TRYAGAIN" => Some(Self::Torn),
            "CLUSTERDOWN" => Some(Self::Down(fault::said_by(address, error))),
            // A script fails so if it needs a key that is at the other node, or nowhere. It may
            // have done a part of its work. The client may still send the request again: the script
            // then does the same part once more.
            _ if details.contains("access a non local key") => Some(Self::Torn),
            _ if details.contains("the cluster is down") => Some(Self::Down("the cluster is down".into())),
            _ => None,
        }
    }
}
