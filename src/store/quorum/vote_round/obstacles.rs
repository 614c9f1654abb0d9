//! Finds out which leases and waiters are in the way of an acquire.

use std::time::Duration;

use super::{Nodes, VoteRound};
use crate::store::{AcquireRequest, Answer, Reply};

impl VoteRound {
    /// Returns the nodes at which the waiter is next in the queue and the lease in its way ends
    /// within `left`, each with the time that is left of that lease.
    pub fn ending(&self, left: Duration) -> impl Iterator<Item = (usize, Duration)> {
        self.votes.iter().enumerate().filter_map(move |(node, vote)| match vote {
            Some(Ok(Reply::Queued { remaining: Some(ends), ahead: 0, .. })) if *ends <= left => {
                Some((node, *ends))
            }
            _ => None,
        })
    }

    /// Returns the mark of the client that holds the lock at most nodes, if there is one.
    pub fn held_by(&self, majority: usize) -> Option<u32> {
        let by = |vote: &Option<Answer>| match vote {
            Some(Ok(Reply::Queued { by, .. })) => *by,
            _ => None,
        };
        let holders: Vec<u32> = self.votes.iter().filter_map(by).collect();
        let of = |holder: u32| holders.iter().filter(move |other| **other == holder).count();
        holders.iter().copied().find(|holder| of(*holder) >= majority)
    }

    /// Returns the reply to an acquire that too few nodes have granted.
    pub(super) fn in_the_way(&self, acquire: &AcquireRequest, nodes: &Nodes) -> Reply {
        let mut ends = Vec::new();
        let mut places = Vec::new();
        let mut notifying = 0;
        for vote in self.votes.iter().flatten() {
            match vote {
                Ok(Reply::Busy { remaining }) => ends.push(*remaining),
                Ok(Reply::Queued { remaining, ahead, notified, .. }) => {
                    ends.push(*remaining);
                    places.push(*ahead);
                    notifying += usize::from(*notified);
                }
                _ => {}
            }
        }
        // Sort by when each node becomes free, to find when enough nodes are free. Nodes that never
        // become free are last.
        ends.sort_by_key(|end| (end.is_none(), *end));
        places.sort_unstable();
        let needed = nodes.majority() - (self.granted().count_ones() as usize).min(nodes.majority() - 1);
        let remaining = ends.get(needed - 1).or(ends.last()).copied().flatten();
        match acquire.place {
            None => Reply::Busy { remaining },
            Some(_) => {
                let ahead = places.get(places.len().saturating_sub(1) / 2).copied().unwrap_or(0);
                let notified = notifying + self.granted().count_ones() as usize >= nodes.majority();
                Reply::Queued { remaining, ahead, notified, by: None }
            }
        }
    }
}
