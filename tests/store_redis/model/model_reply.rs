//! Reduces answers to what the server and the rules have in common.

use std::time::Duration;

use leasehold::lease::{Fence, Ttl};
use leasehold::store::{AdoptedLease, LockInfo, Reply};

/// An answer without the numbers of the fences and without the times.
#[derive(Debug, PartialEq)]
pub enum ModelReply {
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
        Reply::Adopted(lease) => lease.remaining.into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns a reply without fences and times, and its fences.
pub fn split_reply(reply: Reply) -> (ModelReply, Vec<Fence>) {
    match reply {
        Reply::Acquired { fence, waiting } => (ModelReply::Acquired(waiting), vec![fence]),
        Reply::Renewed { block } => {
            (ModelReply::Renewed(block.map(|(_, w)| w)), block.map(|(f, _)| f).into_iter().collect())
        }
        Reply::Queued { ahead, notified, .. } => (ModelReply::Queued(ahead, notified), Vec::new()),
        Reply::Busy { .. } => (ModelReply::Busy, Vec::new()),
        Reply::Inspected(Some(LockInfo { shared, mut leases, waiters })) => {
            // A detachment may give a lease the fence of another one.
            leases.sort_by_key(|lease| (lease.fence.unwrap_or(Fence::MAX), lease.mark));
            let fences = leases.iter().filter_map(|lease| lease.fence).collect();
            let mut leases: Vec<_> = leases
                .into_iter()
                .map(|l| (l.holder.map(|name| name.to_string()), l.fence.is_some()))
                .collect();
            // Leases that were not taken up are in no order.
            let taken = leases.iter().take_while(|(_, taken)| *taken).count();
            leases[taken..].sort();
            let waiters = waiters.into_iter().map(|w| (w.holder.to_string(), w.shared)).collect();
            (ModelReply::Held(shared, leases, waiters), fences)
        }
        Reply::Adopted(AdoptedLease { first, granted, mode, ttl, .. }) => {
            let fences = if granted < first { vec![first, granted] } else { vec![first] };
            (ModelReply::Adopted(mode.is_shared(), ttl), fences)
        }
        other => (ModelReply::Plainly(other), Vec::new()),
    }
}
