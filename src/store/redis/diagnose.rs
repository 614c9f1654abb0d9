//! Collects the facts that show whether a server is fit for locks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use super::address::{RedisAddress, named_host};
use super::budget::{Budget, ConnectionBudget};
use super::dial::dial;
use super::endpoint::Endpoint;
use super::info::{self, Info};
use super::link::{Disconnect, Link};
use super::pace::Pace;
use super::reader::Reader;
use super::{connect, fault, handshake, reply};
use crate::engine::clock;
use crate::store::diagnosis::{ReplicaClock, ServerFacts};
use crate::store::printable::printable;

/// The settings that `INFO` does not show. Each takes a command of its own, because `CONFIG GET` of
/// Redis 6.2 accepts only one name.
const SETTINGS: [&str; 5] =
    ["save", "appendfsync", "min-replicas-to-write", "repl-diskless-sync", "repl-diskless-sync-delay"];
/// How many times the client asks the server for the time. The median is the round trip. If this is
/// larger, a diagnosis takes longer; if it is smaller, one late answer can distort the round trip.
const ROUNDS: usize = 5;
/// How long the replicas may take to tell the time. A smaller value leaves out replicas that are
/// far away. A larger one delays a diagnosis if a replica can't be reached.
const REPLICA_ANSWER: Duration = Duration::from_millis(300);
/// The most replicas that are asked for the time. A smaller value leaves out more replicas. A
/// larger one opens more connections at a time.
const MOST_REPLICAS: usize = 16;
/// The first major version that does not count as old. The client also accepts 6.2.
const NOT_OLD: u32 = 7;
/// The most characters that the client keeps of a value in `INFO` or of a setting. The longest
/// value in use is a run id of 40 characters.
const MOST_WORD: usize = 100;
/// The values of the setting `appendfsync`.
const LOG_SYNCS: [&str; 3] = ["always", "everysec", "no"];
/// The values of the setting `maxmemory-policy`.
const EVICTIONS: [&str; 8] = [
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// Asks the server at the other end of `link` for its facts, and its replicas for the time.
/// `address` is that of the server; it also says how many replicas must have a lease before the
/// lease counts. The answers have to arrive within `timeout`, which ends at `deadline`.
pub async fn facts(
    link: &Link,
    address: &RedisAddress,
    deadline: Instant,
    timeout: Duration,
) -> Result<Box<ServerFacts>, Disconnect> {
    let min_replicas = address.min_replicas;
    let mut pipeline = Pipeline::new();
    pipeline.add_command(redis::cmd("INFO"));
    for name in SETTINGS {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        pipeline.add_command(command);
    }
    if min_replicas > 0 {
        // Wait for no replica, which takes no time, to see whether the user may use WAIT.
        let mut command = redis::cmd("WAIT");
        command.arg(0).arg(1);
        pipeline.add_command(command);
    }
    // These commands test rights that locks can do without. The pattern has no wildcard, so the
    // reply has at most one key.
    let mut scan = redis::cmd("SCAN");
    scan.arg(0).arg("MATCH").arg("leasehold-doctor").arg("COUNT").arg(1);
    pipeline.add_command(scan);
    let counting = link.channel().map(|channel| {
        // A channel with a tag belongs to a node of a cluster.
        let (word, right) = if channel.contains('{') {
            ("SHARDNUMSUB", "+pubsub|shardnumsub")
        } else {
            ("NUMSUB", "+pubsub|numsub")
        };
        let mut command = redis::cmd("PUBSUB");
        command.arg(word).arg(channel);
        pipeline.add_command(command);
        right
    });
    let (replies, _charge) = link.send(&pipeline, deadline, timeout).await?;
    let mut facts =
        Box::new(ServerFacts { notices: link.channel().is_some(), min_replicas, ..ServerFacts::default() });
    let mut replies = replies.into_iter();
    let mut places = Vec::new();
    let mut reader = Reader::of(link.budget());
    let pace = Pace::begin(&mut reader).await;
    match replies.next().as_ref().and_then(text) {
        Some(info) => {
            let info = Info::read(&info);
            read_info(&mut facts, &info, address);
            places = replicas_in(&info);
        }
        None => facts.refused.push("INFO"),
    }
    let [save, sync, replicas, diskless, delay] = SETTINGS.map(|_| replies.next().as_ref().and_then(setting));
    if sync.is_none() {
        facts.refused.push("CONFIG GET");
    }
    facts.has_snapshots = save.map(|schedule| !schedule.is_empty());
    facts.log_sync = sync.map(|sync| shown(&sync, &LOG_SYNCS, address));
    facts.replicas_needed = replicas.and_then(|count| count.parse().ok());
    facts.copy_delay = copy_delay(diskless.as_deref(), delay.as_deref());
    let mut is_forbidden = || replies.next().as_ref().and_then(reply::refusal) == Some("NOPERM");
    facts.may_not_wait = min_replicas > 0 && is_forbidden();
    facts.may_not_list = is_forbidden();
    facts.may_not_count = counting.filter(|_| is_forbidden());
    drop(pace);
    read_clock(&mut facts, link, deadline, timeout).await?;
    if let Some(ahead) = facts.clock_ahead {
        let until = deadline.min(Instant::now() + REPLICA_ANSWER);
        let asked = places
            .iter()
            .map(|(host, port)| replica_clock(at_replica(address, host, *port), until, link.budget()));
        let uncertainty = facts.clock_uncertainty;
        let of_master = |clock: ReplicaClock| ReplicaClock {
            ahead: clock.ahead.saturating_sub(ahead),
            uncertainty: clock.uncertainty + uncertainty,
            ..clock
        };
        facts.replica_clocks = join_all(asked).await.into_iter().flatten().map(of_master).collect();
    }
    Ok(facts)
}

/// Reads `INFO` into `facts`. `address` has the password that no text in the facts may show.
fn read_info(facts: &mut ServerFacts, info: &Info<'_>, address: &RedisAddress) {
    let word = |name: &str| info.get(name);
    let number = |name| word(name).and_then(|said| said.parse::<u64>().ok());
    let redis = word("redis_version");
    let major = redis.as_ref().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    // Valkey names the version of Redis that it is compatible with, and also its own version.
    let valkey = word("valkey_version");
    facts.is_old = valkey.is_none() && major.is_some_and(|major| major < NOT_OLD);
    facts.version = valkey
        .map(|version| format!("Valkey {}", shown(version, &[], address)))
        .or_else(|| redis.map(|version| shown(version, &[], address)));
    facts.is_replica = word("role").map(|role| role == "slave");
    facts.is_loading = number("loading").map(|loading| loading == 1);
    facts.run_id =
        word("run_id").filter(|id| id.bytes().any(|byte| byte != b'0')).map(|id| shown(id, &[], address));
    facts.max_memory = number("maxmemory");
    // The buffers for replicas and for the append-only file do not count for the limit.
    let spared = number("mem_not_counted_for_evict").unwrap_or(0);
    facts.used_memory = number("used_memory").map(|used| used.saturating_sub(spared));
    facts.eviction = word("maxmemory_policy").map(|policy| shown(policy, &EVICTIONS, address));
    facts.has_log = number("aof_enabled").map(|enabled| enabled == 1);
    // WAIT does not count a replica that is still receiving the full copy of the data.
    let away = info.replicas.iter().filter(|said| is_away(said)).count();
    facts.replicas = number("connected_slaves").map(|replicas| replicas.saturating_sub(away as u64));
    facts.clients = number("connected_clients").zip(number("maxclients"));
}

/// Returns the server's text `said` in the form that the facts show. `known` has the texts that any
/// server may send, so they reveal no password.
fn shown(said: &str, known: &[&str], address: &RedisAddress) -> String {
    if known.contains(&said) {
        return said.to_owned();
    }
    fault::without_secrets(address, said, &printable(said, MOST_WORD)).to_owned()
}

/// Returns true if a replica is not online yet. `said` is what `INFO` says of the replica.
fn is_away(said: &str) -> bool {
    let state = said.split(',').find_map(|pair| pair.strip_prefix("state="));
    state.is_some_and(|state| state.trim() != "online")
}

/// Returns the hosts and ports of the replicas in a reply to INFO.
fn replicas_in(info: &Info<'_>) -> Vec<(String, u16)> {
    let place = |said: &&str| {
        let told = |name| said.split(',').find_map(|pair| pair.trim().strip_prefix(name));
        let port = told("port=")?.parse().ok()?;
        // Read the host last, because it takes the longest.
        Some((named_host(told("ip=")?), port))
    };
    info.replicas.iter().filter_map(place).take(MOST_REPLICAS).collect()
}

/// Returns the address of the replica at `host` and `port`. The client connects to the replica over
/// TLS if it connects to the `master` over TLS. Without TLS, the password would go over a network
/// in plain text. So if the password has not left this machine so far, a replica on another machine
/// does not get it.
fn at_replica(master: &RedisAddress, host: &str, port: u16) -> RedisAddress {
    let is_here =
        |host: &str| host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let is_private = match &master.endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp(master, _) => is_here(master),
        Endpoint::Master(_) => false,
    };
    let address = master.at(host, port);
    if master.tls.is_none() && is_private && !is_here(host) { address.without_login() } else { address }
}

/// Asks the replica at `address` for the time, and returns how its clock differs from ours. Returns
/// `None` if the replica does not answer before `until`. That is not rare: the replica may announce
/// an address that only the master reaches. The connection takes its memory from `budget`.
async fn replica_clock(address: RedisAddress, until: Instant, budget: &Arc<Budget>) -> Option<ReplicaClock> {
    let connection_budget = ConnectionBudget::of(budget);
    let mut stream = timeout_at(until, dial(&address, budget)).await.ok()?.ok()?;
    if let Some(login) = connect::login(&address) {
        timeout_at(until, handshake::exchange(&mut stream, &[login], &connection_budget)).await.ok()?;
    }
    let (asked, began) = (clock::wall_us(), Instant::now());
    let question = [redis::cmd("TIME")];
    let replies =
        timeout_at(until, handshake::exchange(&mut stream, &question, &connection_budget)).await.ok()?;
    let took = began.elapsed();
    let theirs = replies.values.first().and_then(time)?;
    let ours = asked.saturating_add(took.as_micros() as u64 / 2);
    let replica = address.to_string().into();
    Some(ReplicaClock {
        replica,
        ahead: theirs.cast_signed().saturating_sub(ours.cast_signed()),
        uncertainty: took / 2,
    })
}

/// Measures how long the server takes to answer, and how its clock differs from ours. Writes the
/// result to `facts`.
async fn read_clock(
    facts: &mut ServerFacts,
    link: &Link,
    deadline: Instant,
    timeout: Duration,
) -> Result<(), Disconnect> {
    let mut samples = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(redis::cmd("TIME"));
        let (asked, began) = (clock::wall_us(), Instant::now());
        let reply = link.send(&pipeline, deadline, timeout).await?.0.pop();
        let took = began.elapsed();
        let Some(theirs) = reply.as_ref().and_then(time) else {
            facts.refused.push("TIME");
            return Ok(());
        };
        let ours = asked.saturating_add(took.as_micros() as u64 / 2);
        samples.push((took, theirs.cast_signed().saturating_sub(ours.cast_signed())));
    }
    samples.sort_unstable();
    facts.round_trip = Some(samples[ROUNDS / 2].0);
    let (took, ahead) = samples[0];
    facts.clock_ahead = Some(ahead);
    facts.clock_uncertainty = took / 2;
    Ok(())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(info::text_in(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => {
            Some(info::text_in(text.as_bytes()).into_owned())
        }
        _ => None,
    }
}

/// Returns the value of the setting in a reply to `CONFIG GET`, which is a map in RESP3 and a list
/// in RESP2.
fn setting(reply: &Value) -> Option<String> {
    match reply {
        Value::Map(pairs) => text(&pairs.first()?.1),
        Value::Array(items) => text(items.get(1)?),
        _ => None,
    }
}

/// Returns how long the server waits before it begins to send a full copy of its data to a replica,
/// by its settings `repl-diskless-sync` and `repl-diskless-sync-delay`.
fn copy_delay(diskless: Option<&str>, delay: Option<&str>) -> Option<Duration> {
    // A copy over the disk begins at once.
    if diskless? == "no" {
        return Some(Duration::ZERO);
    }
    delay?.parse().ok().map(Duration::from_secs)
}

/// Returns the time in a reply to TIME, in µs since 1970.
fn time(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let number = |value| text(value)?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
