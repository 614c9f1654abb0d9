//! Merges what the nodes of a quorum say about locks. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::lease::{Fence, Key};
use crate::store::listing::{ListFilter, Listing};
use crate::store::{LeaseInfo, LockInfo, Reply, Servers};

/// Counts the nodes that were asked.
#[derive(Clone, Copy)]
pub struct Counts {
    pub total: usize,
    /// The nodes that did not answer.
    pub unheard: usize,
}

/// Returns what most nodes say of a lock. Nodes agree if they show the same last fence with the
/// same mark. A node that has not accepted the fence shows another fence. A node that has not
/// heard of an adoption yet shows the mark of the ticket. If two answers are equally common,
/// returns the one with the larger fence. Among nodes that agree, the most common name counts: a
/// node that only moved the lease to the adopter still shows the former holder's name.
fn most_common<'a>(said: impl Iterator<Item = &'a LockInfo>) -> Option<&'a LockInfo> {
    let last = |info: &LockInfo| info.leases.iter().map(|lease| (lease.fence, lease.mark)).max();
    let said: Vec<&LockInfo> = said.collect();
    let share = |info: &LockInfo| said.iter().filter(|other| last(other) == last(info)).count();
    let has_names = |info: &LockInfo, other: &LockInfo| {
        let names = info.leases.iter().map(|lease| &lease.holder);
        last(info) == last(other) && names.eq(other.leases.iter().map(|lease| &lease.holder))
    };
    let same_names = |info: &LockInfo| said.iter().filter(|other| has_names(info, other)).count();
    said.iter().copied().max_by_key(|info| (share(info), last(info), same_names(info)))
}

/// Returns what most nodes say of a lock, and how many of them have each of its leases.
pub fn counted<'a>(said: impl Iterator<Item = &'a LockInfo> + Clone, counts: Counts) -> Option<LockInfo> {
    let mut info = most_common(said.clone())?.clone();
    if info.shared {
        add_leases(&mut info, said.clone(), counts.total / 2 + 1);
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (total, unheard) = (number(counts.total), number(counts.unheard));
    for lease in info.leases.iter_mut().filter(|lease| lease.mark.is_some()) {
        let has = |other: &LockInfo| other.leases.iter().any(|known| known.mark == lease.mark);
        let held = number(said.clone().filter(|other| has(other)).count());
        lease.servers = Some(Servers { held, total, unheard });
    }
    Some(info)
}

/// Adds the leases of a shared lock that at least `enough` nodes have. A node that shows the same
/// last lease as most nodes may lack another one.
fn add_leases<'a>(info: &mut LockInfo, said: impl Iterator<Item = &'a LockInfo> + Clone, enough: usize) {
    let has = |leases: &[LeaseInfo], mark| leases.iter().any(|lease| lease.mark == mark);
    let leases = said.clone().filter(|other| other.shared).flat_map(|other| &other.leases);
    // A node that has not accepted the fence of a lease shows a smaller one.
    let mut missing: Vec<&LeaseInfo> = leases
        .filter(|lease| lease.mark.is_some() && !has(&info.leases, lease.mark))
        .filter(|lease| said.clone().filter(|other| has(&other.leases, lease.mark)).count() >= enough)
        .collect();
    missing.sort_by_key(|lease| (lease.mark, Reverse(lease.fence)));
    missing.dedup_by_key(|lease| lease.mark);
    info.leases.extend(missing.into_iter().cloned());
    info.leases.sort_by_key(|lease| lease.fence.unwrap_or(Fence::MAX));
}

/// Returns what a node says about a lock; `None` if the lock is not held there.
pub fn inspected(reply: &Reply) -> Option<&LockInfo> {
    match reply {
        Reply::Inspected(info) => info.as_ref(),
        _ => None,
    }
}

/// Returns the listing of a node.
pub fn listed(reply: &Reply) -> Option<&Listing> {
    match reply {
        Reply::Listed(listing) => Some(listing),
        _ => None,
    }
}

/// Returns the locks that at least `enough` nodes list.
pub fn merged<'a>(
    filter: &ListFilter,
    listings: impl Iterator<Item = &'a Listing>,
    enough: usize,
    counts: Counts,
) -> Listing {
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
            && let Some(info) = counted(said.into_iter(), counts)
            && !whole.add(filter, key.clone(), info)
        {
            break;
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(fence: u64, mark: u32) -> LockInfo {
        let fence = Some(Fence(fence));
        let lease = LeaseInfo { mark: Some(mark), holder: None, fence, remaining: None, servers: None };
        LockInfo { shared: false, leases: vec![lease], waiters: vec![] }
    }

    /// Returns the fence and the mark that are shown for three nodes with these fences and marks,
    /// and how many nodes have them.
    fn shown(nodes: [(u64, u32); 3]) -> (Option<Fence>, Option<u32>, u32) {
        let said = nodes.map(|(fence, mark)| held(fence, mark));
        let info = counted(said.iter(), Counts { total: 3, unheard: 0 }).unwrap();
        let lease = &info.leases[0];
        (lease.fence, lease.mark, lease.servers.unwrap().held)
    }

    #[test]
    fn the_adopter_is_shown_whichever_node_has_not_heard_of_the_adoption() {
        let (old, adopter) = ((5, 9), (5, 1));
        for nodes in [[old, adopter, adopter], [adopter, old, adopter], [adopter, adopter, old]] {
            assert_eq!(shown(nodes), (Some(Fence(5)), Some(1), 2), "{nodes:?}");
        }
    }

    #[test]
    fn the_name_of_the_adopter_is_shown_whichever_node_only_moved_the_lease() {
        for old in 0..3 {
            let said = [0, 1, 2].map(|node| {
                let mut info = held(5, 1);
                info.leases[0].holder = Some(if node == old { "old".into() } else { "adopter".into() });
                info
            });
            let info = counted(said.iter(), Counts { total: 3, unheard: 0 }).unwrap();
            assert_eq!(info.leases[0].holder.as_deref(), Some("adopter"), "old name at {old}");
        }
    }

    #[test]
    fn the_most_common_fence_is_shown_and_among_equals_the_largest() {
        assert_eq!(shown([(5, 1), (5, 1), (8, 2)]), (Some(Fence(5)), Some(1), 2));
        assert_eq!(shown([(5, 1), (8, 2), (6, 3)]), (Some(Fence(8)), Some(2), 1));
    }

    #[test]
    fn a_lease_of_a_shared_lock_is_shown_whichever_nodes_lack_it() {
        let node = |marks: &[u32]| {
            let leases = marks.iter().flat_map(|mark| held(u64::from(*mark), *mark).leases).collect();
            LockInfo { shared: true, leases, waiters: vec![] }
        };
        for nodes in [[node(&[1, 3, 4]), node(&[2, 3, 4]), node(&[1, 2, 4])], {
            [node(&[1, 2, 4]), node(&[1, 3, 4]), node(&[2, 3, 4])]
        }] {
            let info = counted(nodes.iter(), Counts { total: 3, unheard: 0 }).unwrap();
            let told = info.leases.iter().map(|lease| (lease.mark.unwrap(), lease.servers.unwrap().held));
            assert_eq!(told.collect::<Vec<_>>(), [(1, 2), (2, 2), (3, 2), (4, 3)]);
        }
        let nodes = [node(&[4]), node(&[3, 4]), node(&[4])];
        let info = counted(nodes.iter(), Counts { total: 3, unheard: 0 }).unwrap();
        assert_eq!(info.leases.len(), 1, "a lease that most nodes lack is lost");
    }
}
