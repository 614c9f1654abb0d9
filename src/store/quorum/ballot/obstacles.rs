//! Tells what is in the way of an acquire.

use std::time::Duration;

use super::{Ballot, Nodes};
use crate::store::{Answer, Ask, Reply};

impl Ballot {
    /// Which nodes said that it is next when a lease ends that has no more than `left`, and how much that was.
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

    /// What is in the way of an acquire of which too few nodes say yes.
    pub(super) fn in_the_way(&self, ask: &Ask, nodes: &Nodes) -> Reply {
        let mut ends = Vec::new();
        let mut places = Vec::new();
        let mut telling = 0;
        for vote in self.votes.iter().flatten() {
            match vote {
                Ok(Reply::Busy { remaining }) => ends.push(*remaining),
                Ok(Reply::Queued { remaining, ahead, told, .. }) => {
                    ends.push(*remaining);
                    places.push(*ahead);
                    telling += usize::from(*told);
                }
                _ => {}
            }
        }
        // When so many will have become free as are needed; never sorts last.
        ends.sort_by_key(|end| (end.is_none(), *end));
        places.sort_unstable();
        let needed = nodes.majority() - (self.granted().count_ones() as usize).min(nodes.majority() - 1);
        let remaining = ends.get(needed - 1).or(ends.last()).copied().flatten();
        match ask.place {
            None => Reply::Busy { remaining },
            Some(_) => {
                let ahead = places.get(places.len().saturating_sub(1) / 2).copied().unwrap_or(0);
                let told = telling + self.granted().count_ones() as usize >= nodes.majority();
                Reply::Queued { remaining, ahead, told, by: None }
            }
        }
    }
}
