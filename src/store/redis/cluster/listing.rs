//! The listing of a cluster: the locks of all masters.

use futures_util::StreamExt;
use futures_util::stream;

use super::super::listing::{Found, MOST_INSPECTED};
use super::super::time_limit::TimeLimit;
use super::slots::NodeAddress;
use super::{ClusterStore, MOST_AT_ONCE};
use crate::store::listing::{ListFilter, Listing};
use crate::store::{Answer, Reply, listing_batch};

impl ClusterStore {
    /// Lists the locks of all masters.
    pub(super) async fn list(&self, filter: &ListFilter, limit: TimeLimit) -> Answer {
        let masters: Vec<NodeAddress> = self.nodes.map().masters().map(|(place, _)| place.clone()).collect();
        let nodes: Vec<_> = masters.iter().map(|place| self.nodes.node(place)).collect();
        // A key whose slot is moving may be at two masters. `found` has it once.
        let found = Found::new(filter);
        let mut scans =
            stream::iter(nodes.iter().map(|node| node.scan(&found, limit))).buffered(MOST_AT_ONCE);
        while let Some(end) = scans.next().await {
            end?;
        }
        drop(scans);
        let (keys, complete) = found.into_keys();
        let mut listing = Listing::begin(complete);
        for keys in keys.chunks(MOST_INSPECTED) {
            let answers = self.run(&listing_batch::inspections(keys), limit).await;
            if !listing.take(filter, keys, answers)? {
                break;
            }
        }
        Ok(Reply::Listed(listing))
    }
}
