//! Writes settlements as records: a slot, a kind, and two values that depend on the kind.

use std::fmt::{Display, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::holder;
use super::protocol::{Availability, ErrorKind, Phase, RECORD_LENGTH, RecordKind, WITH_VOTES};
use super::slots::Slots;
use crate::engine::clock;
use crate::engine::command::{Outcome, Settlement};
use crate::engine::known_lease::KnownLease;
use crate::engine::stats::Stats;
use crate::lease::{self, LossReason};
use crate::store::breaker::{BreakerState, Health};
use crate::store::diagnosis::{Facts, Finding, Level, Report};
use crate::store::listing::Listing;
use crate::store::{
    self, LeaseInfo, LockInfo, NodeAnswer, Servers, StoreError, StoreErrorKind, Vote, WaiterInfo,
};

/// Writes `settlement` as a record, and updates `slots`. Puts texts into `texts`. Returns `None` if
/// there is nothing to tell JavaScript.
pub fn encode(
    settlement: Settlement,
    slots: &mut Slots,
    texts: &mut Vec<String>,
) -> Option<[f64; RECORD_LENGTH]> {
    let slot = settlement.op.slot;
    let mut text = |text: String| {
        texts.push(text);
        (texts.len() - 1) as f64
    };
    let (kind, a, b) = match settlement.outcome {
        Outcome::Acquired(fence, token) => {
            slots.granted(slot, token);
            (RecordKind::Acquired, fence.0 as f64, 0.0)
        }
        Outcome::Renewed if slots.renewed(slot) => (RecordKind::Renewed, 0.0, 0.0),
        Outcome::RenewFailed(error) if slots.renewed(slot) => {
            (RecordKind::RenewFailed, error_number(&error), text(describe_error(&error)))
        }
        Outcome::Renewed | Outcome::RenewFailed(_) => return None,
        Outcome::Breaker(health) => (RecordKind::Breaker, text(describe_health(&health).to_string()), 0.0),
        Outcome::Availability(told) => (RecordKind::Availability, availability_number(&told), 0.0),
        Outcome::Adopted { ttl, shared } => (RecordKind::Adopted, ttl.as_millis().into(), flag(shared)),
        Outcome::AutoRenewed => (RecordKind::AutoRenewed, 0.0, 0.0),
        Outcome::Busy => (RecordKind::Busy, 0.0, 0.0),
        Outcome::TimedOut { by_itself } => (RecordKind::TimedOut, flag(by_itself), 0.0),
        Outcome::Failed(error) => (RecordKind::Failed, error_number(&error), text(describe_error(&error))),
        Outcome::Closed => (RecordKind::Closed, 0.0, 0.0),
        Outcome::Cancelled => (RecordKind::Cancelled, 0.0, 0.0),
        Outcome::Released(confirmed) => (RecordKind::Released, flag(confirmed), 0.0),
        Outcome::Lost(reason) => {
            let facts = slots.lease(slot).and_then(|(lease, _)| describe_loss(lease));
            // Add 1, because 0 means that there is no text.
            let facts = facts.map_or(0.0, |facts| text(facts) + 1.0);
            (RecordKind::Lost, phase_number(lease::Phase::Lost(reason)), facts)
        }
        Outcome::Inspected(inspected) => match *inspected {
            (Some(info), waiting) => (RecordKind::Inspected, 1.0, text(describe(&info, waiting))),
            (None, _) => (RecordKind::Inspected, 0.0, 0.0),
        },
        Outcome::Listed(listing, waiting) => {
            (RecordKind::Listed, 1.0, text(describe_listing(&listing, &waiting)))
        }
        Outcome::Diagnosed(reports) => (RecordKind::Diagnosed, 1.0, text(describe_reports(&reports))),
        Outcome::Done => (RecordKind::Done, 0.0, 0.0),
        Outcome::Detached => (RecordKind::Detached, 0.0, 0.0),
    };
    if kind.is_last() {
        slots.finish(slot);
    }
    Some([slot.into(), kind.number().into(), a, b])
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

fn availability_number(availability: &store::Availability) -> f64 {
    let availability = match availability {
        store::Availability::Usable => Availability::Usable,
        store::Availability::Refusing => Availability::Refusing,
        store::Availability::Away(_) => Availability::Away,
    };
    availability.number().into()
}

/// Returns the number of a phase in JavaScript.
pub fn phase_number(phase: lease::Phase) -> f64 {
    let phase = match phase {
        lease::Phase::Pending => Phase::Pending,
        lease::Phase::Held => Phase::Held,
        lease::Phase::Stalled => Phase::Stalled,
        lease::Phase::Released => Phase::Released,
        lease::Phase::Lost(LossReason::Expired) => Phase::Expired,
        lease::Phase::Lost(LossReason::Taken) => Phase::Taken,
        lease::Phase::Lost(LossReason::Missing) => Phase::Missing,
        lease::Phase::Lost(LossReason::Stalled) => Phase::StalledTooLong,
        lease::Phase::Lost(LossReason::Closed) => Phase::Closed,
    };
    phase.number().into()
}

fn error_number(error: &StoreError) -> f64 {
    kind_number(error.kind) + if error.votes.is_empty() { 0.0 } else { WITH_VOTES.into() }
}

/// Returns the error's message. If the error has votes, returns JSON: `{ message, votes: [{ store,
/// vote, message }] }`, where `vote` is a word or the number of an [`ErrorKind`].
fn describe_error(error: &StoreError) -> String {
    if error.votes.is_empty() {
        return error.message.to_string();
    }
    let votes: Vec<_> = error.votes.iter().map(describe_vote).collect();
    json!({ "message": &*error.message, "votes": votes }).to_string()
}

/// Returns what is known of the loss of a lease, as JSON: `{ late, failure }`. Returns `None` if
/// both are missing.
///
/// `late` is how many ms after the lease's end the JavaScript thread noticed the loss.
/// `failure` is how the last renewal failed, if it did: `{ ago, error, text }`. `ago` is in ms
/// before now, or before the lease's end. `error` and `text` are as in a record.
pub fn describe_loss(lease: &KnownLease) -> Option<String> {
    let now = clock::now();
    lease.notice(now);
    let (late, failure) = (ms(lease.noticed_late()), lease.failure(now));
    if late < 1.0 && failure.is_none() {
        return None;
    }
    let failure = failure.map(
        |(ago, error)| json!({ "ago": ms(ago), "error": error_number(&error), "text": describe_error(&error) }),
    );
    Some(json!({ "late": late, "failure": failure }).to_string())
}

fn describe_vote(vote: &Vote) -> Value {
    let (said, message) = match &vote.said {
        NodeAnswer::Granted => ("granted".into(), None),
        NodeAnswer::Busy => ("busy".into(), None),
        NodeAnswer::Missing => ("missing".into(), None),
        NodeAnswer::Unheard => ("unheard".into(), None),
        NodeAnswer::Failed(kind, message) => (kind_number(*kind).into(), Some(&**message)),
    };
    let said: Value = said;
    json!({ "store": &*vote.store, "vote": said, "message": message })
}

fn kind_number(kind: StoreErrorKind) -> f64 {
    let kind = match kind {
        StoreErrorKind::Unreachable => ErrorKind::Unreachable,
        StoreErrorKind::TimedOut | StoreErrorKind::Unreplicated => ErrorKind::Timeout,
        StoreErrorKind::Loading => ErrorKind::Loading,
        StoreErrorKind::ReadOnly => ErrorKind::ReadOnly,
        StoreErrorKind::Full => ErrorKind::Full,
        StoreErrorKind::Denied | StoreErrorKind::Forbidden => ErrorKind::Denied,
        StoreErrorKind::Unsupported => ErrorKind::Unsupported,
        StoreErrorKind::WrongType => ErrorKind::WrongType,
        StoreErrorKind::Internal => ErrorKind::Internal,
        StoreErrorKind::Untrusted => ErrorKind::Untrusted,
        StoreErrorKind::Quorum => ErrorKind::Quorum,
    };
    kind.number().into()
}

/// Describes a lock as JSON: `{ shared, leases: [{ holder, fence, remaining, servers?: { held,
/// total, unheard? }, trace? }], waiters: [{ holder, shared, age, trace? }], waiting }`. Unknown
/// values are `null`. An unknown `trace` or `servers`, and an `unheard` of 0, are missing. Times
/// are in ms. `waiting` counts the waiters of this process.
fn describe(info: &LockInfo, waiting: usize) -> String {
    let leases = array_of(info.leases.iter().map(describe_lease));
    let waiters = array_of(info.waiters.iter().map(describe_waiter));
    format!(r#"{{"shared":{},"leases":{leases},"waiters":{waiters},"waiting":{waiting}}}"#, info.shared)
}

/// Describes locks as JSON: `{ complete, locks }`. [`describe`] says what each lock has; here it
/// also has its whole `key`.
fn describe_listing(listing: &Listing, waiting: &[usize]) -> String {
    let locks = listing.locks.iter().zip(waiting).map(|((key, info), waiting)| {
        let lock = describe(info, *waiting);
        format!(r#"{{"key":{},{}"#, Value::from(&**key), &lock[1..])
    });
    format!(r#"{{"complete":{},"locks":{}}}"#, listing.complete, array_of(locks))
}

/// Returns a JSON array of JSON texts. A tree of all values would take many times the memory.
fn array_of(texts: impl Iterator<Item = impl Display>) -> String {
    let mut array = String::from("[");
    for (index, text) in texts.enumerate() {
        // Writing to a string does not fail.
        let _ = write!(array, "{}{text}", if index > 0 { "," } else { "" });
    }
    array.push(']');
    array
}

fn describe_lease(lease: &LeaseInfo) -> Value {
    let (name, trace) = lease.holder.as_deref().map(holder::split).unzip();
    let mut told = json!({
        "holder": name,
        "fence": lease.fence.map(|fence| fence.0),
        "remaining": lease.remaining.map(ms),
    });
    if let Some(Servers { held, total, unheard }) = lease.servers {
        told["servers"] = json!({ "held": held, "total": total });
        if unheard > 0 {
            told["servers"]["unheard"] = unheard.into();
        }
    }
    with_trace(told, trace.flatten())
}

fn describe_waiter(waiter: &WaiterInfo) -> Value {
    let (name, trace) = holder::split(&waiter.holder);
    with_trace(json!({ "holder": name, "shared": waiter.shared, "age": ms(waiter.age) }), trace)
}

fn with_trace(mut told: Value, trace: Option<&str>) -> Value {
    if let Some(trace) = trace {
        told["trace"] = trace.into();
    }
    told
}

fn ms(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e3
}

/// Describes a client's counters as JSON, with their names in camel case.
pub fn describe_stats(stats: &Stats) -> String {
    let mut all: Map<_, _> = stats.all().map(|(name, count)| (camel_case(name), count.into())).collect();
    all.insert("stores".into(), stats.servers.all().iter().map(|health| describe_health(health)).collect());
    Value::Object(all).to_string()
}

fn describe_health(health: &Health) -> Value {
    let Health { store, state, failures, since, reason } = health;
    let state = match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half-open",
        BreakerState::Refusing => "refusing",
    };
    let mut said = json!({ "store": &**store, "state": state, "failures": failures, "since": since });
    if let Some(reason) = reason {
        said["reason"] = reason.name().into();
    }
    said
}

/// Describes a diagnosis as JSON: `{ ok, findings: [{ store, level, code, message }], stores: [{
/// store, version, roundTrip, clockOffset }] }`. Times are in ms. Unknown values are `null`.
fn describe_reports(reports: &[Report]) -> String {
    let findings =
        || reports.iter().flat_map(|report| report.findings.iter().map(|found| (&report.store, found)));
    let ok = findings().all(|(_, found)| found.level == Level::Info);
    let findings: Vec<_> = findings()
        .map(|(store, Finding { level, code, message })| {
            let level = match level {
                Level::Info => "info",
                Level::Warning => "warning",
                Level::Error => "error",
            };
            json!({ "store": &**store, "level": level, "code": code, "message": message })
        })
        .collect();
    let stores: Vec<_> = reports
        .iter()
        .map(|report| {
            let server = match &report.facts {
                Facts::Server(server) => Some(server),
                Facts::Process | Facts::Host { .. } | Facts::Unusable { .. } => None,
            };
            json!({
                "store": &*report.store,
                "version": server.and_then(|server| server.version.as_deref()),
                "roundTrip": server.and_then(|server| server.round_trip).map(ms),
                "clockOffset": server.and_then(|server| server.clock_ahead).map(|ahead| ahead as f64 / 1e3),
            })
        })
        .collect();
    json!({ "ok": ok, "findings": findings, "stores": stores }).to_string()
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_string();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}
