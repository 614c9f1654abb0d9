//! Why a quorum failed, in words and for programs.

use std::fmt::Write;
use std::sync::Arc;

use super::ballot::Nodes;
use crate::store::{Answer, Reply, Said, StoreError, StoreErrorKind, Vote};

/// The error of a request for which too few nodes said yes; `needed` would have been enough.
pub fn error(nodes: &Nodes, answers: &[Option<Answer>], needed: usize) -> StoreError {
    let names = nodes.names.iter().cloned();
    let votes: Arc<[Vote]> =
        names.zip(answers).map(|(store, answer)| Vote { store, said: said(answer.as_ref()) }).collect();
    let yes = votes.iter().filter(|vote| vote.said == Said::Granted).count();
    let mut message = format!("no quorum: {yes} of {} nodes agreed, {needed} are needed", votes.len());
    let mut lasting = Vec::new();
    for vote in votes.iter() {
        let _ = match &vote.said {
            Said::Granted => continue,
            Said::Busy => write!(message, "; {}: busy", vote.store),
            Said::Missing => write!(message, "; {}: knows nothing of the lease", vote.store),
            Said::Unheard => write!(message, "; {}: not heard, as the others had decided", vote.store),
            Said::Failed(kind, why) => {
                if !kind.is_transient() {
                    lasting.push(*kind);
                }
                write!(message, "; {why}")
            }
        };
    }
    // What does not pass by itself and is enough to prevent a majority: then there is no use in trying again.
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

fn said(answer: Option<&Answer>) -> Said {
    match answer {
        None => Said::Unheard,
        Some(Err(error)) => Said::Failed(error.kind, error.message.clone()),
        Some(Ok(Reply::Busy { .. } | Reply::Queued { .. } | Reply::Split)) => Said::Busy,
        Some(Ok(Reply::NotHeld(_) | Reply::Inspected(None))) => Said::Missing,
        Some(Ok(_)) => Said::Granted,
    }
}

#[cfg(test)]
#[path = "votes_tests.rs"]
mod tests;
