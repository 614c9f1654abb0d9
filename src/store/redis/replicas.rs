//! Leases count only when enough replicas have them, if the user wants that (`minReplicas`).
//!
//! A server that fails takes with it what its replicas had not heard of yet. So behind the scripts of a batch that may
//! grant or renew comes a WAIT, which ends when so many replicas have all that was written before it; and what too few
//! have is an error, of something that may have been done. It is of no use to whoever is handed a lease by somebody
//! else's release to be told its fence: the channel is marked so that the scripts tell none, and it has to ask.

use std::time::Duration;

use redis::{Cmd, Value};

use super::address::RedisAddress;
use super::fault;
use super::plan::{Class, Group};
use crate::store::{Answer, Reply, StoreError, StoreErrorKind};

/// How much later than it should a server may notice that a WAIT is over: it looks ten times a second.
const LATENESS: Duration = Duration::from_millis(110);

/// Requests whose answers depend on what replicas have.
pub struct Watched {
    /// Their places in the batch.
    members: Vec<usize>,
    /// How long the server waits.
    span: Duration,
}

impl Watched {
    /// Those in `groups`, at a server of which replicas are wanted; with `left` of the time that the batch has, half of which
    /// may go by until replicas have answered: what comes behind on the same connection waits, too.
    pub fn of(address: &RedisAddress, groups: &[Group<'_>], left: Duration) -> Option<Self> {
        let grants = |group: &&Group<'_>| {
            matches!(group.class, Class::Acquire(_) | Class::Renew(..) | Class::Detach(_) | Class::Adopt(..))
        };
        let members: Vec<usize> =
            groups.iter().filter(grants).flat_map(|group| group.members.iter().copied()).collect();
        let watched = address.min_replicas > 0 && !members.is_empty();
        // 0 would be for ever.
        let least = Duration::from_millis(1).max(left / 8);
        watched.then(|| Self { members, span: (left / 2).min(left.saturating_sub(LATENESS)).max(least) })
    }

    /// The command that comes behind those of the groups.
    pub fn command(&self, address: &RedisAddress) -> Cmd {
        let mut command = redis::cmd("WAIT");
        command.arg(address.min_replicas).arg(u64::try_from(self.span.as_millis()).unwrap_or(u64::MAX));
        command
    }

    /// Takes back what was answered, unless `reply` says that enough replicas have it.
    pub fn check(self, address: &RedisAddress, reply: Option<Value>, answers: &mut [Option<Answer>]) {
        let wanted = address.min_replicas;
        let error = match reply {
            Some(Value::Int(count)) if count >= i64::from(wanted) => return,
            Some(Value::Int(_)) => {
                let message = format!(
                    "{address}: fewer than the {wanted} of minReplicas had it in time, so it does not count; are they up, and do they \
                     keep up?"
                );
                StoreError::maybe_done(StoreErrorKind::Unreplicated, message)
            }
            Some(Value::ServerError(error)) => {
                StoreError { maybe_done: true, ..fault::refused(address, &error) }
            }
            _ => fault::not_a_redis(address, true),
        };
        for member in self.members {
            if let Some(Ok(Reply::Acquired { .. } | Reply::Renewed { .. } | Reply::Adopted(_))) =
                answers[member]
            {
                answers[member] = Some(Err(error.clone()));
            }
        }
    }
}
