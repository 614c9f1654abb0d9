//! Merges what the nodes of a quorum say about locks. Sends nothing and reads no clock. Calls the
//! `pause` of the caller often, so that the caller can let other tasks run.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::iter::Peekable;
use std::vec::IntoIter;

#[cfg(test)]
use futures_util::FutureExt;

use crate::lease::{Fence, Key};
#[cfg(test)]
use crate::store::Answer;
use crate::store::listing::{ListFilter, Listing};
use crate::store::node_views::{NodeCounts, NodeViews, ShownLocks};
use crate::store::{LeaseInfo, LockInfo, Reply, Servers};

/// Returns the reply of a quorum whose nodes have these views. Calls `pause` at least once for each
/// lock of each node.
pub async fn merge(views: NodeViews, pause: &mut impl AsyncFnMut()) -> Reply {
    match views.shown {
        ShownLocks::One(said) => Reply::Inspected(counted(said.iter(), views.counts, pause).await),
        ShownLocks::All { filter, listings, enough } => {
            Reply::Listed(merged(&filter, listings, enough, views.counts, pause).await)
        }
    }
}

/// Merges the views of an answer without a pause, if it has views.
#[cfg(test)]
pub fn merge_at_once(answer: Answer) -> Answer {
    match answer {
        Ok(Reply::Views(views)) => Ok(merge(views, &mut async || ()).now_or_never().expect("no pause")),
        other => other,
    }
}

/// Returns what most nodes say of a lock. Nodes agree if they show the same last fence with the
/// same mark. A node that has not accepted the fence shows another fence. A node that has not
/// heard of an adoption yet shows the mark of the ticket. If two answers are equally common,
/// returns the one with the larger fence. Among nodes that agree, the most common name counts: a
/// node that only moved the lease to the adopter still shows the former holder's name.
async fn most_common<'a>(said: &[&'a LockInfo], pause: &mut impl AsyncFnMut()) -> Option<&'a LockInfo> {
    // Count in maps, and hash the names once: if the views were compared in pairs, long views of
    // many nodes would take long.
    let seeds = RandomState::new();
    let (mut shares, mut same_names) = (HashMap::new(), HashMap::new());
    let mut views = Vec::with_capacity(said.len());
    for info in said {
        let last = info.leases.iter().map(|lease| (lease.fence, lease.mark)).max();
        let names: Vec<_> = info.leases.iter().map(|lease| lease.holder.as_deref()).collect();
        let view = (last, seeds.hash_one(names));
        *shares.entry(last).or_insert(0) += 1;
        *same_names.entry(view).or_insert(0) += 1;
        views.push(view);
        pause().await;
    }
    let common = said.iter().zip(&views).max_by_key(|(_, view)| (shares[&view.0], view.0, same_names[view]));
    common.map(|(info, _)| *info)
}

/// Returns what most nodes say of a lock, and how many of them have each of its leases.
///
/// The time grows with the number of leases, not with its square: one hostile node can describe a
/// lock with some 20 000 leases.
async fn counted<'a>(
    said: impl Iterator<Item = &'a LockInfo>,
    counts: NodeCounts,
    pause: &mut impl AsyncFnMut(),
) -> Option<LockInfo> {
    let said: Vec<&LockInfo> = said.collect();
    let mut info = most_common(&said, pause).await?.clone();
    let nodes = nodes_by_mark(&said, pause).await;
    if info.shared {
        add_leases(&mut info, &said, &nodes, counts.total / 2 + 1, pause).await;
    }
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (total, unheard) = (number(counts.total), number(counts.unheard));
    for lease in &mut info.leases {
        let held = lease.mark.map(|mark| number(nodes[&mark]));
        lease.servers = held.map(|held| Servers { held, total, unheard });
    }
    Some(info)
}

/// Returns how many nodes have a lease with each mark.
async fn nodes_by_mark(said: &[&LockInfo], pause: &mut impl AsyncFnMut()) -> HashMap<u32, usize> {
    // Keep the number of nodes and the last of them: a node may show the same mark several times.
    let mut seen: HashMap<u32, (usize, Option<usize>)> = HashMap::new();
    for (node, info) in said.iter().enumerate() {
        for mark in info.leases.iter().filter_map(|lease| lease.mark) {
            let (count, last) = seen.entry(mark).or_default();
            if last.replace(node) != Some(node) {
                *count += 1;
            }
        }
        pause().await;
    }
    seen.into_iter().map(|(mark, (count, _))| (mark, count)).collect()
}

/// Adds the leases of a shared lock that at least `enough` nodes have. A node that shows the same
/// last lease as most nodes may lack another one.
async fn add_leases(
    info: &mut LockInfo,
    said: &[&LockInfo],
    nodes: &HashMap<u32, usize>,
    enough: usize,
    pause: &mut impl AsyncFnMut(),
) {
    let known: HashSet<u32> = info.leases.iter().filter_map(|lease| lease.mark).collect();
    // A node that has not accepted the fence of a lease shows a smaller one.
    let is_missing = |mark: &u32| !known.contains(mark) && nodes[mark] >= enough;
    let mut missing: Vec<&LeaseInfo> = Vec::new();
    for other in said.iter().filter(|other| other.shared) {
        pause().await;
        missing.extend(other.leases.iter().filter(|lease| lease.mark.as_ref().is_some_and(is_missing)));
    }
    pause().await;
    missing.sort_by_key(|lease| (lease.mark, Reverse(lease.fence)));
    missing.dedup_by_key(|lease| lease.mark);
    info.leases.extend(missing.into_iter().cloned());
    pause().await;
    info.leases.sort_by_key(|lease| lease.fence.unwrap_or(Fence::MAX));
}

/// The locks that a node lists, in the order of their keys.
type NodeLocks = Peekable<IntoIter<(Key, LockInfo)>>;

/// Returns the locks that at least `enough` nodes list.
async fn merged(
    filter: &ListFilter,
    listings: Vec<Listing>,
    enough: usize,
    counts: NodeCounts,
    pause: &mut impl AsyncFnMut(),
) -> Listing {
    let mut whole = Listing::begin(listings.iter().all(|listing| listing.complete));
    let mut nodes: Vec<NodeLocks> =
        listings.into_iter().map(|listing| listing.locks.into_iter().peekable()).collect();
    while let Some((key, said)) = next_lock(&mut nodes) {
        pause().await;
        if said.len() >= enough
            && let Some(info) = counted(said.iter(), counts, pause).await
            && !whole.add_in_memory(filter, key, info)
        {
            break;
        }
    }
    whole
}

/// Takes the lock with the first key out of all lists. Returns the view of each node that lists it.
fn next_lock(nodes: &mut [NodeLocks]) -> Option<(Key, Vec<LockInfo>)> {
    let first = nodes.iter_mut().filter_map(|locks| locks.peek()).map(|(key, _)| key).min()?.clone();
    let said = nodes.iter_mut().filter_map(|locks| locks.next_if(|(key, _)| *key == first));
    let said = said.map(|(_, info)| info).collect();
    Some((first, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::listing::{MOST_LISTED, size_of};

    const OF_THREE: NodeCounts = NodeCounts { total: 3, unheard: 0 };

    fn counted_at_once<'a>(said: impl Iterator<Item = &'a LockInfo>) -> Option<LockInfo> {
        counted(said, OF_THREE, &mut async || ()).now_or_never().expect("no pause")
    }

    fn held(fence: u64, mark: u32) -> LockInfo {
        let fence = Some(Fence(fence));
        let lease = LeaseInfo { mark: Some(mark), holder: None, fence, remaining: None, servers: None };
        LockInfo { shared: false, leases: vec![lease], waiters: vec![] }
    }

    /// Returns the fence and the mark that are shown for three nodes with these fences and marks,
    /// and how many nodes have them.
    fn shown(nodes: [(u64, u32); 3]) -> (Option<Fence>, Option<u32>, u32) {
        let said = nodes.map(|(fence, mark)| held(fence, mark));
        let info = counted_at_once(said.iter()).unwrap();
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
            let info = counted_at_once(said.iter()).unwrap();
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
            let info = counted_at_once(nodes.iter()).unwrap();
            let told = info.leases.iter().map(|lease| (lease.mark.unwrap(), lease.servers.unwrap().held));
            assert_eq!(told.collect::<Vec<_>>(), [(1, 2), (2, 2), (3, 2), (4, 3)]);
        }
        let nodes = [node(&[4]), node(&[3, 4]), node(&[4])];
        let info = counted_at_once(nodes.iter()).unwrap();
        assert_eq!(info.leases.len(), 1, "a lease that most nodes lack is lost");
    }

    /// Returns the listing of a node with `leases` shared leases of each of `keys`.
    fn listing(keys: &[&str], leases: u32) -> Listing {
        let shared = LockInfo {
            shared: true,
            leases: (0..leases).flat_map(|mark| held(mark.into(), mark).leases).collect(),
            waiters: vec![],
        };
        let mut listing = Listing::default();
        listing.locks = keys.iter().map(|key| (Key::from(*key), shared.clone())).collect();
        listing
    }

    /// Returns the merged listing, and the number of pauses.
    fn merged_at_once(listings: Vec<Listing>, limit: u32) -> (Listing, usize) {
        let filter = ListFilter { prefix: "".into(), pattern: "*".into(), limit };
        let views = NodeViews { shown: ShownLocks::All { filter, listings, enough: 2 }, counts: OF_THREE };
        let mut pauses = 0;
        let reply = merge(views, &mut async || pauses += 1).now_or_never();
        let Some(Reply::Listed(listing)) = reply else { panic!("{reply:?}") };
        (listing, pauses)
    }

    #[test]
    fn a_lock_is_listed_if_enough_nodes_list_it() {
        let nodes =
            || vec![listing(&["a", "b", "d"], 1), listing(&["b", "c", "d"], 1), listing(&["a", "e"], 1)];
        let keys = |listing: &Listing| -> Vec<String> {
            listing.locks.iter().map(|(key, _)| key.to_string()).collect()
        };
        let (all, pauses) = merged_at_once(nodes(), 10);
        assert_eq!((keys(&all), all.complete), (["a", "b", "d"].map(String::from).into(), true));
        assert!(pauses >= 8, "one for each lock of each node: {pauses}");
        let (some, _) = merged_at_once(nodes(), 2);
        assert_eq!((keys(&some), some.complete), (["a", "b"].map(String::from).into(), false));
    }

    #[test]
    fn a_merged_listing_takes_no_more_memory_than_that_of_one_store() {
        let keys: Vec<String> = (0..300).map(|index| format!("key {index:03}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let node = listing(&keys, 1_000);
        let (merged, _) = merged_at_once(vec![node.clone(), node], 1_000);
        assert!(!merged.complete);
        let taken: usize = merged.locks.iter().map(|(_, info)| size_of(info)).sum();
        assert!((MOST_LISTED / 2..MOST_LISTED).contains(&taken), "{taken} bytes");
    }

    #[test]
    fn a_view_is_walked_as_often_if_a_node_shows_thousands_of_leases() {
        let shared = |marks: std::ops::Range<u32>| {
            let leases = marks.flat_map(|mark| held(u64::from(mark), mark).leases).collect();
            LockInfo { shared: true, leases, waiters: vec![] }
        };
        // How often the function takes the view of a node.
        let walks = |leases: u32| {
            let said = [shared(0..leases), shared(0..1)];
            let count = std::cell::Cell::new(0);
            let counting = said.iter().inspect(|_| count.set(count.get() + 1));
            let info = counted_at_once(counting).unwrap();
            assert_eq!(info.leases.len() as u32, leases);
            count.get()
        };
        assert_eq!(walks(2_000), walks(1));
    }
}
