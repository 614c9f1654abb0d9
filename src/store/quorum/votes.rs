//! Makes the error of a request that failed at a quorum: its text, and the votes that a program can
//! read. `vote_round` counts the votes.

use std::sync::Arc;

use super::nodes::Nodes;
use crate::store::breaker::NOT_ASKED;
use crate::store::{Answer, NodeAnswer, Reply, StoreError, StoreErrorKind, Vote};

/// Returns the error of a request to which too few nodes said yes; `needed` nodes would have been
/// enough.
pub fn error(nodes: &Nodes, answers: &[Option<Answer>], needed: usize) -> StoreError {
    let names = nodes.names.iter().cloned();
    let votes: Arc<[Vote]> =
        names.zip(answers).map(|(store, answer)| Vote { store, said: said(answer.as_ref()) }).collect();
    // Use the same words for the same failure, without figures that vary, so that logs can count
    // it. Leave out nodes that only said that another client has the lock.
    let count = votes.len();
    let mut failed: Vec<_> = votes.iter().filter_map(failure).collect();
    if failed.len() < nodes.veto() {
        // If the failed nodes do not explain the error, name those that had not answered.
        // Otherwise, the quorum did not wait for them, and they may be well.
        let unheard = votes.iter().filter(|vote| matches!(vote.said, NodeAnswer::Unheard));
        failed.extend(unheard.map(|vote| format!("{} had not answered", vote.store)));
    }
    let message = format!(
        "no quorum: too few of the {count} servers could be reached or used ({needed} are needed): {}",
        failed.join("; ")
    );
    let lasting: Vec<_> = votes
        .iter()
        .filter_map(|vote| match &vote.said {
            NodeAnswer::Failed(kind, _) if !kind.is_transient() => Some(*kind),
            _ => None,
        })
        .collect();
    // If lasting failures are enough to prevent a majority, trying again does not help.
    let kind = match lasting.first() {
        Some(kind) if lasting.len() >= nodes.veto() => *kind,
        _ => StoreErrorKind::Quorum,
    };
    let maybe_done = answers.iter().any(|answer| match answer {
        Some(Err(error)) => error.maybe_done,
        Some(Ok(reply)) => !matches!(reply, Reply::Busy { .. } | Reply::NotHeld(_)),
        None => true,
    });
    StoreError { kind, maybe_done, message: message.into(), votes }
}

/// Returns why a node could not say yes, if it could not.
fn failure(vote: &Vote) -> Option<String> {
    match &vote.said {
        // Leave out the breaker's part of the message, which would be repeated for each server.
        NodeAnswer::Failed(_, message) => {
            Some(message.strip_suffix(NOT_ASKED).unwrap_or(message).to_string())
        }
        NodeAnswer::Missing => Some(format!("{} knows nothing of the lease", vote.store)),
        NodeAnswer::Granted | NodeAnswer::Busy | NodeAnswer::Unheard => None,
    }
}

fn said(answer: Option<&Answer>) -> NodeAnswer {
    match answer {
        None => NodeAnswer::Unheard,
        Some(Err(error)) => NodeAnswer::Failed(error.kind, error.message.clone()),
        Some(Ok(Reply::Busy { .. } | Reply::Queued { .. } | Reply::Split | Reply::Claimed { .. })) => {
            NodeAnswer::Busy
        }
        Some(Ok(Reply::NotHeld(_) | Reply::Inspected(None))) => NodeAnswer::Missing,
        Some(Ok(_)) => NodeAnswer::Granted,
    }
}

#[cfg(test)]
#[path = "votes_tests.rs"]
mod tests;
