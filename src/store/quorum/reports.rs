//! Merges the diagnoses of the nodes of a quorum, and adds findings about all nodes together. Pure.

use super::nodes::Nodes;
use crate::lease::Ttl;
use crate::store::diagnosis::{Facts, Finding, Level, Report};
use crate::store::{Answer, Reply};

/// Returns the reports on all nodes that were asked, in the order of the nodes. Findings about all
/// of them are in the first report.
pub fn reports(nodes: &Nodes, votes: &[Option<Answer>], ttl: Ttl) -> Vec<Report> {
    let mut all = Vec::new();
    for (name, vote) in nodes.names.iter().zip(votes) {
        match vote {
            Some(Ok(Reply::Diagnosed(reports))) => {
                all.extend(
                    reports
                        .iter()
                        .map(|known| Report::new(known.store.clone(), known.facts.clone(), ttl, true)),
                );
            }
            Some(Err(error)) => all.push(Report::unusable(name.clone(), error)),
            _ => {}
        }
    }
    let about_all: Vec<Finding> = bare_majority(nodes, &all).into_iter().chain(even(nodes)).collect();
    forgive_minority(nodes, &mut all);
    // Do this last: two names of one server stay an error, because no other node makes up for that.
    accuse_twins(&mut all);
    if let Some(first) = all.first_mut() {
        first.findings.extend(about_all);
    }
    all
}

/// Adds a finding for each node that works and does not have all leases of this process. `missing`
/// says for each node how many leases it lacks; `all` is the number of all leases. A node that does
/// not work has its own finding.
pub fn missing_leases(nodes: &Nodes, missing: &[usize], all: usize, reports: &mut [Report]) {
    for (name, missing) in nodes.names.iter().zip(missing).filter(|(_, missing)| **missing > 0) {
        let of_node = |report: &&mut Report| report.store == *name;
        let Some(report) = reports.iter_mut().find(of_node) else { continue };
        if matches!(report.facts, Facts::Unusable { .. }) {
            continue;
        }
        let message = format!(
            "{missing} of the {all} leases that this process holds are not at this server: it was away, lost its data, or \
             did not get the request in time; until it has them, they outlive fewer failures of other servers; the next \
             renewals give them back, once the clients that wait at this server have been served there; do not restart \
             another server before that"
        );
        report.findings.push(Finding::new(Level::Warning, "missing-leases", message));
    }
}

fn fails(report: &Report) -> bool {
    report.findings.iter().any(|found| found.level == Level::Error)
}

/// Returns a finding if the failure of one more node would end the quorum.
fn bare_majority(nodes: &Nodes, all: &[Report]) -> Option<Finding> {
    let failing: Vec<&str> = all.iter().filter(|report| fails(report)).map(|report| &*report.store).collect();
    // Go on only if exactly as many nodes fail as the quorum survives.
    if failing.is_empty() || failing.len() + 1 != nodes.veto() {
        return None;
    }
    let message = format!(
        "only {} of the quorum's {} nodes can be used, which is a bare majority: when one more fails, no lease is granted or \
         renewed; see to {}",
        nodes.count() - failing.len(),
        nodes.count(),
        failing.join(" and ")
    );
    Some(Finding::new(Level::Warning, "bare-majority", message))
}

fn even(nodes: &Nodes) -> Option<Finding> {
    nodes.count().is_multiple_of(2).then(|| {
        let message = format!(
            "it is one of {} nodes of a quorum: no more of them may fail than of {}, and another one would be of use",
            nodes.count(),
            nodes.count() - 1
        );
        Finding::new(Level::Warning, "even", message)
    })
}

/// Turns errors of nodes into warnings if most nodes work: the quorum then still grants locks.
fn forgive_minority(nodes: &Nodes, all: &mut [Report]) {
    let failing: Vec<&mut Report> = all.iter_mut().filter(|report| fails(report)).collect();
    if failing.len() >= nodes.veto() {
        return;
    }
    for finding in failing.into_iter().flat_map(|report| &mut report.findings) {
        if finding.level == Level::Error {
            finding.level = Level::Warning;
            finding.message += " (the other nodes are still a quorum)";
        }
    }
}

/// Adds an error for nodes that are the same server, under two names or with two of its databases.
/// The vote of that server would count twice.
fn accuse_twins(all: &mut [Report]) {
    for later in 1..all.len() {
        let (before, rest) = all.split_at_mut(later);
        let report = &mut rest[0];
        let Some(twin) = run_id(report).and_then(|id| before.iter().find(|other| run_id(other) == Some(id)))
        else {
            continue;
        };
        let message = format!(
            "two nodes, {} and {}, are one and the same server: a crash of it takes both votes, and what one of them has released is \
             missing at the other, so that a release may seem to come too late; let each node of the quorum be a server of its own",
            twin.store, report.store
        );
        report.findings.push(Finding::new(Level::Error, "same-server", message));
    }
}

fn run_id(report: &Report) -> Option<&str> {
    match &report.facts {
        Facts::Server(server) => server.run_id.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
