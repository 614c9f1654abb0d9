//! Makes leases count only when enough replicas have them, if the user sets `minReplicas`.
//!
//! If a server fails, the writes that no replica has received are lost. So the client sends a WAIT
//! after the scripts of a batch that may grant or prolong leases, or give them fences. The WAIT
//! ends when enough replicas have all writes before it, or when its time is over. If too few
//! replicas have them, the client turns these answers into errors, which say that the requests may
//! have been carried out. A fence that no replica has must not count: a later lease could get a
//! smaller one.
//!
//! A move gives no client a lease. An adopter gets the lease with a later request, which waits for
//! replicas. So a move does not wait for them.
//!
//! A waiter that gets a lease by another client's release must not use the fence of a notice. So
//! the scripts send it no fence, and it has to ask for the lease.

use std::time::Duration;

use redis::{Cmd, Value};

use super::address::RedisAddress;
use super::fault;
use super::pipeline::{Class, Group};
use crate::store::{Answer, Reply, StoreError, StoreErrorKind};

/// How late a server may notice that the time of a WAIT is over: it checks ten times a second. If
/// this is smaller, the reply may come after the deadline of the batch; if it is larger, replicas
/// have less time.
const LATENESS: Duration = Duration::from_millis(110);

/// The requests of a batch whose answers count only if enough replicas have the writes.
pub struct AwaitedWrites {
    /// Their places in the batch.
    members: Vec<usize>,
    /// How long the server waits for the replicas.
    span: Duration,
}

impl AwaitedWrites {
    /// Returns the requests in `groups` that may grant or prolong leases, or give them fences.
    /// Returns `None` if there are none, or if the address wants no replicas. `left` is the time
    /// that the batch has left. The replicas get at most half of it, because later commands on the
    /// same connection wait, too.
    pub fn of(address: &RedisAddress, groups: &[Group<'_>], left: Duration) -> Option<Self> {
        let grants = |group: &&Group<'_>| {
            matches!(
                group.class,
                Class::Acquire(_) | Class::Renew(..) | Class::Detach(_) | Class::Adopt(..) | Class::Accept
            )
        };
        let members: Vec<usize> =
            groups.iter().filter(grants).flat_map(|group| group.members.iter().copied()).collect();
        let awaited = address.min_replicas > 0 && !members.is_empty();
        // With 0, the server would wait without limit.
        let least = Duration::from_millis(1).max(left / 8);
        awaited.then(|| Self { members, span: (left / 2).min(left.saturating_sub(LATENESS)).max(least) })
    }

    /// Returns the WAIT that follows the commands of the groups.
    pub fn command(&self, address: &RedisAddress) -> Cmd {
        let mut command = redis::cmd("WAIT");
        command.arg(address.min_replicas).arg(u64::try_from(self.span.as_millis()).unwrap_or(u64::MAX));
        command
    }

    /// Replaces the grants, renewals and accepted fences among `answers` with an error, unless
    /// `reply` says that enough replicas have them.
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
            if let Some(Ok(
                Reply::Acquired { .. } | Reply::Renewed { .. } | Reply::Adopted(_) | Reply::Accepted,
            )) = answers[member]
            {
                answers[member] = Some(Err(error.clone()));
            }
        }
    }
}
