//! Settlements as four numbers each: slot, kind, and two that depend on the kind.
//!
//! `lib/native.ts` reads them; the two lists of numbers have to agree.

use std::fmt::{Display, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::holder;
use super::slots::Slots;
use crate::engine::clock;
use crate::engine::command::{Outcome, Settlement};
use crate::engine::known::KnownLease;
use crate::engine::stats::Stats;
use crate::lease::Phase;
use crate::store::breaker::{BreakerState, Health};
use crate::store::diagnosis::{Facts, Finding, Level, Report};
use crate::store::listing::Listing;
use crate::store::{
    Availability, LeaseInfo, LockInfo, Said, Servers, StoreError, StoreErrorKind, Vote, WaiterInfo,
};

/// How many numbers a record has.
pub const LENGTH: usize = 4;

/// Writes `settlement` as a record, keeps the books of `slots`, and puts what can't be said in numbers into `texts`.
/// `None` if there is nothing to tell JavaScript.
pub fn encode(settlement: Settlement, slots: &mut Slots, texts: &mut Vec<String>) -> Option<[f64; LENGTH]> {
    let slot = settlement.op.slot;
    let mut text = |text: String| {
        texts.push(text);
        (texts.len() - 1) as f64
    };
    let (kind, a, b) = match settlement.outcome {
        Outcome::Acquired(fence, token) => {
            slots.granted(slot, token);
            return Some(record(slot, 0, fence.0 as f64, 0.0));
        }
        Outcome::Renewed => return slots.renewed(slot).then(|| record(slot, 8, 0.0, 0.0)),
        Outcome::RenewFailed(error) => {
            return slots
                .renewed(slot)
                .then(|| record(slot, 9, error_number(&error), text(describe_error(&error))));
        }
        Outcome::Breaker(health) => {
            return Some(record(slot, 14, text(describe_health(&health).to_string()), 0.0));
        }
        Outcome::Availability(told) => {
            let number = match told {
                Availability::Usable => 0.0,
                Availability::Refusing => 1.0,
                Availability::Away(_) => 2.0,
            };
            return Some(record(slot, 18, number, 0.0));
        }
        Outcome::Shortened(ttl) => return Some(record(slot, 17, ttl.as_millis().into(), 0.0)),
        Outcome::AutoRenewed => return Some(record(slot, 10, 0.0, 0.0)),
        Outcome::Busy => (1, 0.0, 0.0),
        Outcome::TimedOut { by_itself } => (2, f64::from(u8::from(by_itself)), 0.0),
        Outcome::Failed(error) => (3, error_number(&error), text(describe_error(&error))),
        Outcome::Closed => (4, 0.0, 0.0),
        Outcome::Cancelled => (5, 0.0, 0.0),
        Outcome::Released(confirmed) => (6, f64::from(u8::from(confirmed)), 0.0),
        Outcome::Lost(reason) => {
            let failure = slots.lease(slot).and_then(|(lease, _)| describe_failure(lease));
            // Beside 0 for none.
            (7, phase_number(Phase::Lost(reason)), failure.map_or(0.0, |failure| text(failure) + 1.0))
        }
        Outcome::Inspected(inspected) => match *inspected {
            (Some(info), waiting) => (11, 1.0, text(describe(&info, waiting))),
            (None, _) => (11, 0.0, 0.0),
        },
        Outcome::Listed(listing, waiting) => (16, 1.0, text(describe_listing(&listing, &waiting))),
        Outcome::Diagnosed(reports) => (15, 1.0, text(describe_reports(&reports))),
        Outcome::Done => (12, 0.0, 0.0),
        Outcome::Detached => (13, 0.0, 0.0),
    };
    slots.finish(slot);
    Some(record(slot, kind, a, b))
}

fn record(slot: u32, kind: u32, a: f64, b: f64) -> [f64; LENGTH] {
    [slot.into(), kind.into(), a, b]
}

/// A phase as JavaScript knows it.
pub fn phase_number(phase: Phase) -> f64 {
    phase.number() as f64
}

/// Added to the number of an error that has the votes of a quorum, whose text is JSON.
const WITH_VOTES: f64 = 32.0;

fn error_number(error: &StoreError) -> f64 {
    kind_number(error.kind) + if error.votes.is_empty() { 0.0 } else { WITH_VOTES }
}

/// Its message; with votes `{ message, votes: [{ store, vote, message }] }`, where `vote` is a word, or the number of a
/// reason.
fn describe_error(error: &StoreError) -> String {
    if error.votes.is_empty() {
        return error.message.to_string();
    }
    let votes: Vec<_> = error.votes.iter().map(describe_vote).collect();
    json!({ "message": &*error.message, "votes": votes }).to_string()
}

/// How the last renewal of a lease failed, if it did, as JSON: `{ ago, error, text }`, in ms before its end or now; the other
/// two as a record says them.
pub fn describe_failure(lease: &KnownLease) -> Option<String> {
    let (ago, error) = lease.failure(clock::now())?;
    let failure = json!({ "ago": ms(ago), "error": error_number(&error), "text": describe_error(&error) });
    Some(failure.to_string())
}

fn describe_vote(vote: &Vote) -> Value {
    let (said, message) = match &vote.said {
        Said::Granted => ("granted".into(), None),
        Said::Busy => ("busy".into(), None),
        Said::Missing => ("missing".into(), None),
        Said::Unheard => ("unheard".into(), None),
        Said::Failed(kind, message) => (kind_number(*kind).into(), Some(&**message)),
    };
    let said: Value = said;
    json!({ "store": &*vote.store, "vote": said, "message": message })
}

fn kind_number(kind: StoreErrorKind) -> f64 {
    f64::from(match kind {
        StoreErrorKind::Unreachable => 0,
        StoreErrorKind::TimedOut | StoreErrorKind::Unreplicated => 1,
        StoreErrorKind::Loading => 2,
        StoreErrorKind::ReadOnly => 3,
        StoreErrorKind::Full => 4,
        StoreErrorKind::Denied | StoreErrorKind::Forbidden => 5,
        StoreErrorKind::Unsupported => 6,
        StoreErrorKind::WrongType => 7,
        StoreErrorKind::Internal => 8,
        StoreErrorKind::Untrusted => 9,
        StoreErrorKind::Quorum => 10,
    })
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

/// Locks as JSON: `{ complete, locks }`, each as [`describe`] says it with its whole `key`.
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

/// A client's counters as JSON, with their names as JavaScript writes names.
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

/// What was found, as JSON: `{ ok, findings: [{ store, level, code, message }], stores: [{ store, version, roundTrip,
/// clockOffset }] }`, times in ms, what is not known `null`.
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
                _ => None,
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
