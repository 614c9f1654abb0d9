//! Reduces answers to what the server and the rules have in common.

use std::time::Duration;

use leasehold::lease::{Fence, Ttl};
use leasehold::store::{Inherited, LockInfo, Reply};

/// An answer without the numbers of the fences and without the times.
#[derive(Debug, PartialEq)]
pub enum Said {
    Plainly(Reply),
    Queued(u32, bool),
    Busy,
    Acquired(u32),
    Renewed(Option<u32>),
    Adopted(bool, Option<Ttl>),
    Held(bool, Vec<(Option<String>, bool)>, Vec<(String, bool)>),
}

/// Returns the times in a reply, in order.
pub fn times(reply: &Reply) -> Vec<Duration> {
    match reply {
        Reply::Queued { remaining, .. } | Reply::Busy { remaining } => remaining.iter().copied().collect(),
        Reply::Inspected(Some(info)) => {
            let mut times: Vec<_> = info.leases.iter().filter_map(|lease| lease.remaining).collect();
            times.sort();
            times
        }
        _ => Vec::new(),
    }
}

/// Returns what was said, and the fences in it.
pub fn said(reply: Reply) -> (Said, Vec<Fence>) {
    match reply {
        Reply::Acquired { fence, waiting } => (Said::Acquired(waiting), vec![fence]),
        Reply::Renewed { block } => {
            (Said::Renewed(block.map(|(_, w)| w)), block.map(|(f, _)| f).into_iter().collect())
        }
        Reply::Queued { ahead, told, .. } => (Said::Queued(ahead, told), Vec::new()),
        Reply::Busy { .. } => (Said::Busy, Vec::new()),
        Reply::Inspected(Some(LockInfo { shared, leases, waiters })) => {
            let fences = leases.iter().filter_map(|lease| lease.fence).collect();
            let mut leases: Vec<_> = leases
                .into_iter()
                .map(|l| (l.holder.map(|name| name.to_string()), l.fence.is_some()))
                .collect();
            // Among those who have not taken theirs up, there is no order.
            let taken = leases.iter().take_while(|(_, taken)| *taken).count();
            leases[taken..].sort();
            let waiters = waiters.into_iter().map(|w| (w.holder.to_string(), w.shared)).collect();
            (Said::Held(shared, leases, waiters), fences)
        }
        Reply::Adopted(Inherited { first, mode, ttl, .. }) => {
            (Said::Adopted(mode.is_shared(), ttl), vec![first])
        }
        other => (Said::Plainly(other), Vec::new()),
    }
}
