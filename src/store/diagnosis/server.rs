//! Derives findings from the facts about a server.

use std::time::Duration;

use super::finding::{Finding, Level};
use super::server_facts::ServerFacts;
use crate::lease::Ttl;
use crate::store::StoreErrorKind;

/// How far a server's clock may be from this host's clock without a finding. If this is larger,
/// fences may go back further without a warning, when the clock is set right or another server
/// takes over. If it is smaller, harmless differences are reported.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// A replica's clock may differ from its master's by the ttl divided by this. The engine renews
/// each lease after a third of its ttl, and all leases at once after a failover. So more than this
/// part of the ttl is usually left when a replica becomes the master. If this is smaller, a replica
/// may become the master and end leases whose holders still work. If it is larger, harmless
/// differences are reported.
const REPLICA_TOLERANCE: u32 = 10;
/// The number of round trips that a ttl must have room for: each acquire, renewal and retry takes a
/// few. If this is smaller, leases may end before they are renewed, without a warning. If it is
/// larger, servers that are fast enough are reported as slow.
const ROUND_TRIPS: u32 = 20;
/// Connections or memory of a server are reported as nearly used up from this percentage on. If
/// this is larger, the warning comes later. If it is smaller, servers with enough room are
/// reported.
const CROWDED: u64 = 90;

/// Returns the findings about `server`, for leases of `ttl`.
pub fn findings(server: &ServerFacts, ttl: Ttl, quorum: bool) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        memory(server).into_iter().chain(replicas(server)).chain(copy_delay(server)).collect();
    let mut add = |level, code, message: String| found.push(Finding::new(level, code, message));
    if server.is_replica == Some(true) {
        let message = "it is a replica: a lock taken there excludes nobody at the master, if it can be taken at all; give the \
                       master's address";
        add(Level::Error, "readonly", message.into());
    }
    // If this user may not send WAIT, the trial fails for that reason. `replicas` reports it.
    if let Some(message) = &server.denied
        && !server.may_not_wait
    {
        add(Level::Error, StoreErrorKind::Denied.name(), message.to_string());
    }
    if server.is_loading == Some(true) {
        add(Level::Warning, "loading", "it is reading its data from disk and will take requests soon".into());
    }
    if let (Some(most @ 1..), Some(policy)) = (server.max_memory, server.eviction.as_deref())
        && policy != "noeviction"
    {
        let message = format!(
            "when its maxmemory of {most} bytes is used up it drops keys ({policy}), and a lock that is held may be one of them: \
             set maxmemory-policy to noeviction, or use a server of its own for locks"
        );
        add(Level::Warning, "eviction", message);
    }
    if let Some(message) = persistence(server, quorum) {
        add(if quorum { Level::Warning } else { Level::Info }, "persistence", message);
    }
    if let Some(ahead) = server.clock_ahead {
        let off = Duration::from_micros(ahead.unsigned_abs());
        if off.saturating_sub(server.clock_uncertainty) > CLOCK_TOLERANCE {
            let way = if ahead > 0 { "ahead of" } else { "behind" };
            let message = format!(
                "its clock is {:.1} s {way} this host's; fences are made with the server's clock, and may go back when it is set \
                 right or another server takes over: let both follow NTP",
                off.as_secs_f64()
            );
            add(Level::Warning, "clock", message);
        }
    }
    found.extend(replica_clocks(server, ttl));
    let mut add = |level, code, message: String| found.push(Finding::new(level, code, message));
    if let Some(round_trip) = server.round_trip.filter(|took| *took * ROUND_TRIPS > ttl.as_duration()) {
        let message = format!(
            "a round trip takes {:.1} ms, which is much beside a ttl of {} ms: leases may end before they are renewed; raise the \
             ttl to {} ms at least",
            round_trip.as_secs_f64() * 1e3,
            ttl.as_millis(),
            (round_trip * ROUND_TRIPS).as_millis() + 1
        );
        add(Level::Warning, "slow", message);
    }
    if !server.notices {
        let message = "waiters are not told when a lock is free, and have to ask every few milliseconds: the user needs \
                       the channels &leasehold:* and +subscribe +publish, and the server has to speak RESP3 (HELLO 3)";
        add(Level::Warning, "notices", message.into());
    }
    if server.may_not_list {
        let message = "this user may not list locks, so list(), leasehold ls and leasehold watch fail; locks work all the same; to \
                       list locks, the user needs the right +scan";
        add(Level::Info, "no-listing", message.into());
    }
    if let Some(right) = server.may_not_count {
        let message = format!(
            "each hand-over to a waiting client takes a round trip more than it has to: the server does not tell the waiter its \
             fence, and the waiter asks for it; the user needs the right {right}"
        );
        add(Level::Info, "slow-notices", message);
    }
    if let Some((clients, most)) = server.clients
        && clients * 100 >= most.saturating_mul(CROWDED)
    {
        let message = format!(
            "{clients} of its {most} connections are in use: when there are none left, nobody can connect; raise maxclients"
        );
        add(Level::Warning, "clients", message);
    }
    if server.is_old {
        let message = format!(
            "it runs version {}, of the oldest series that serves; the next leasehold may want a newer one",
            server.version.as_deref().unwrap_or("?")
        );
        add(Level::Info, "old", message);
    }
    if !server.refused.is_empty() {
        let message = format!(
            "not everything could be looked at: it refused {} to this user (managed servers often do)",
            server.refused.join(", ")
        );
        add(Level::Info, "unchecked", message);
    }
    found
}

/// Returns a finding for each replica whose clock would shorten or prolong leases after a failover.
/// The master sets the time at which a lease ends, by its own clock. A replica that becomes the
/// master ends the lease at that time by its own clock.
fn replica_clocks(server: &ServerFacts, ttl: Ttl) -> impl Iterator<Item = Finding> {
    let tolerance = ttl.as_duration() / REPLICA_TOLERANCE;
    let off = |ahead: i64| Duration::from_micros(ahead.unsigned_abs());
    let wrong = server
        .replica_clocks
        .iter()
        .filter(move |clock| off(clock.ahead).saturating_sub(clock.uncertainty) > tolerance);
    wrong.map(move |clock| {
        let by = off(clock.ahead).as_secs_f64();
        let (way, then) = if clock.ahead > 0 {
            ("ahead of", format!("leases end {by:.1} s too early there, and two clients may hold one lock"))
        } else {
            ("behind", format!("a lease whose holder is gone keeps its lock for {by:.1} s longer there"))
        };
        let message = format!(
            "the clock of its replica {} is {by:.1} s {way} its own: if that replica becomes the master, {then}; run NTP on \
             the master and on all replicas",
            clock.replica
        );
        Finding::new(Level::Warning, "replica-clock", message)
    })
}

/// Describes what a restart of the server costs.
fn persistence(server: &ServerFacts, quorum: bool) -> Option<String> {
    let forgets = match (server.has_log, server.has_snapshots, server.log_sync.as_deref()) {
        (Some(false), Some(false), _) => "it keeps nothing on disk: a restart forgets all leases",
        (Some(false), _, _) => {
            "it saves its data only now and then (no appendonly): a restart forgets the leases since then"
        }
        (Some(true), _, Some("always")) | (None, ..) => return None,
        (Some(true), _, Some(_)) => {
            "its log reaches the disk later than its answers do (appendfsync is not always): when its host crashes, it forgets \
             the leases of the last seconds"
        }
        (Some(true), _, None) => return None,
    };
    let cure = if quorum {
        "in a quorum that can give a lock to two: set appendonly yes and appendfsync always, or start it again only after the \
         longest ttl"
    } else {
        "their holders learn of it by their next renewal, and fences keep late writers out; appendonly yes with appendfsync \
         always prevents it"
    };
    Some(format!("{forgets}; {cure}"))
}

/// Returns a finding if a server is full or nearly full and refuses writes instead of dropping
/// keys.
fn memory(server: &ServerFacts) -> Option<Finding> {
    let (Some(most @ 1..), Some(used)) = (server.max_memory, server.used_memory) else { return None };
    if server.eviction.as_deref() != Some("noeviction") {
        return None;
    }
    let cure = "raise maxmemory, make room, or use a server of its own for locks";
    if used > most {
        let message = format!(
            "its memory is full: {used} bytes are in use, its maxmemory is {most}, and it drops nothing (noeviction), so it refuses \
             what is written and no lock can be had: {cure}"
        );
        return Some(Finding::new(Level::Error, "full", message));
    }
    (u128::from(used) * 100 > u128::from(most) * u128::from(CROWDED)).then(|| {
        let message = format!(
            "{used} of the {most} bytes of its maxmemory are in use, and it drops nothing (noeviction): when they are used up, it \
             refuses what is written and no lock can be had; {cure}"
        );
        Finding::new(Level::Warning, "nearly-full", message)
    })
}

/// Returns a finding if a planned failover stops all grants and renewals for longer than it has to.
/// After the failover, the other replicas often need a full copy of the new master's data, and do
/// not count for `minReplicas` until they have it.
fn copy_delay(server: &ServerFacts) -> Option<Finding> {
    let delay = server.copy_delay.filter(|delay| !delay.is_zero())?;
    if server.min_replicas == 0 || server.is_replica == Some(true) {
        return None;
    }
    let message = format!(
        "it waits {} s before it sends a replica a full copy of its data (repl-diskless-sync-delay): after a planned failover, \
         no lease is granted or renewed for about that long, because minReplicas needs the replicas; set \
         repl-diskless-sync-delay 0 on the master and on all replicas",
        delay.as_secs()
    );
    Some(Finding::new(Level::Warning, "copy-delay", message))
}

/// Returns a finding about a master's replicas: whether there are enough, and what they protect.
fn replicas(server: &ServerFacts) -> Option<Finding> {
    if server.is_replica == Some(true) {
        return None;
    }
    if server.may_not_wait {
        let message = "this user may not ask what replicas have, so no lease can be granted: minReplicas needs the right +wait";
        return Some(Finding::new(Level::Error, StoreErrorKind::Denied.name(), message));
    }
    let (there, wanted) = (server.replicas?, u64::from(server.min_replicas));
    let so_many = if there == 1 { "1 replica".into() } else { format!("{there} replicas") };
    if there < wanted {
        let message = format!(
            "it has {so_many} connected, and minReplicas asks for {wanted}: no lease is granted or renewed until more are there; \
             start them, or lower minReplicas"
        );
        return Some(Finding::new(Level::Error, "too-few-replicas", message));
    }
    if wanted > 0 {
        let message = format!(
            "it has {so_many} connected, which is just what minReplicas asks for: when one is lost, or takes the master's place, no \
             lease is granted or renewed until another is there; one more than minReplicas keeps locks going"
        );
        return (there == wanted).then(|| Finding::new(Level::Warning, "no-spare-replica", message));
    }
    (there > 0 && server.replicas_needed == Some(0)).then(|| {
        let message = format!(
            "it has {so_many} and waits for none: a failover forgets what has not reached them yet, and a lock may then be had \
             twice; minReplicas prevents most of that, min-replicas-to-write narrows it, and fences make it harmless"
        );
        Finding::new(Level::Info, "replicas", message)
    })
}
