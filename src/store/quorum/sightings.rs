//! What the nodes of a quorum say of locks, as one. Pure.

use std::collections::BTreeMap;

use crate::lease::Key;
use crate::store::listing::{Listing, Wanted};
use crate::store::{LockInfo, Reply};

/// What most nodes say of a lock, by the last fence: one that has not accepted it shows another. The larger if as many say
/// something else.
pub fn most_common<'a>(said: impl Iterator<Item = &'a LockInfo>) -> Option<&'a LockInfo> {
    let fence = |info: &LockInfo| info.leases.iter().filter_map(|lease| lease.fence).max();
    let said: Vec<&LockInfo> = said.collect();
    let share = |info: &LockInfo| said.iter().filter(|other| fence(other) == fence(info)).count();
    said.iter().copied().max_by_key(|info| (share(info), fence(info)))
}

/// What a node says of a lock, if it is held there.
pub fn inspected(reply: &Reply) -> Option<&LockInfo> {
    match reply {
        Reply::Inspected(info) => info.as_ref(),
        _ => None,
    }
}

/// The listing of a node.
pub fn listed(reply: &Reply) -> Option<&Listing> {
    match reply {
        Reply::Listed(listing) => Some(listing),
        _ => None,
    }
}

/// Of the locks in the listings of nodes those that at least `enough` of them have.
pub fn merged<'a>(wanted: &Wanted, listings: impl Iterator<Item = &'a Listing>, enough: usize) -> Listing {
    let mut seen: BTreeMap<&Key, Vec<&LockInfo>> = BTreeMap::new();
    let mut whole = Listing::default();
    for listing in listings {
        whole.complete &= listing.complete;
        for (key, info) in &listing.locks {
            seen.entry(key).or_default().push(info);
        }
    }
    for (key, said) in seen {
        if said.len() >= enough
            && let Some(info) = most_common(said.into_iter())
            && !whole.add(wanted, key.clone(), info.clone())
        {
            break;
        }
    }
    whole
}
