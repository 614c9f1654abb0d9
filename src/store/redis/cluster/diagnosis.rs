//! The diagnosis of a cluster: a report on each master.

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::Instant;

use super::super::permission_check;
use super::super::time_limit::TimeLimit;
use super::slots::NodeAddress;
use super::{ClusterStore, MOST_AT_ONCE};
use crate::lease::{Key, Ttl};
use crate::store::diagnosis::{Facts, Report, ServerFacts};
use crate::store::{Answer, Reply, Request, Store};

impl ClusterStore {
    /// Reports on each master. `reached` is the answer to a ping of the cluster.
    pub(super) async fn diagnose(
        &self,
        reached: &Answer,
        ttl: Ttl,
        key: Option<Key>,
        limit: TimeLimit,
    ) -> Answer {
        if let Err(error) = reached {
            return Ok(Reply::Diagnosed(vec![Report::unusable(self.address().to_string(), error)]));
        }
        let masters: Vec<NodeAddress> = self.nodes.map().masters().map(|(place, _)| place.clone()).collect();
        let left = limit.deadline.saturating_duration_since(Instant::now()).max(limit.timeout / 4);
        let asked = masters
            .iter()
            .map(|place| self.nodes.node(place).execute(vec![Request::Diagnose { ttl, key: None }], left));
        let reports: Vec<_> = stream::iter(asked).buffered(MOST_AT_ONCE).collect().await;
        let reports = reports.into_iter().flatten().filter_map(|answer| match answer {
            Ok(Reply::Diagnosed(reports)) => Some(reports),
            _ => None,
        });
        let mut reports: Vec<_> = reports.flatten().collect();
        if let Some(key) = key
            && let Some(denied) =
                permission_check::denial(&self.run(&permission_check::requests(key), limit).await)
            && let Some((report, facts)) = reports.iter_mut().find_map(|report| match report.facts.clone() {
                Facts::Server(facts) => Some((report, facts)),
                _ => None,
            })
        {
            let facts = Facts::Server(Box::new(ServerFacts { denied: Some(denied), ..*facts }));
            *report = Report::new(report.store.clone(), facts, ttl, false);
        }
        Ok(Reply::Diagnosed(reports))
    }
}
