//! What there is to know about a server before it is trusted with locks.

use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::Instant;

use super::link::{Cut, Link};
use crate::engine::clock;
use crate::store::diagnosis::ServerFacts;

/// What INFO does not tell. One at a time: 6.2 takes one name.
const SETTINGS: [&str; 3] = ["save", "appendfsync", "min-replicas-to-write"];
/// How often the server is asked for the time, to see how long that takes: the middle of so many.
const ROUNDS: usize = 5;
/// The first version that is not of the oldest series that serves.
const NOT_OLD: u32 = 7;

/// Asks the server at the other end of `link`, within `timeout`, which is over at `deadline`.
pub async fn facts(link: &Link, deadline: Instant, timeout: Duration) -> Result<Box<ServerFacts>, Cut> {
    let mut pipeline = Pipeline::new();
    pipeline.add_command(redis::cmd("INFO"));
    for name in SETTINGS {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        pipeline.add_command(command);
    }
    let replies = link.send(&pipeline, deadline, timeout).await?;
    let mut facts = Box::new(ServerFacts { notices: link.channel().is_some(), ..ServerFacts::default() });
    let mut replies = replies.into_iter();
    match replies.next().as_ref().and_then(text) {
        Some(info) => read_info(&mut facts, &info),
        None => facts.refused.push("INFO"),
    }
    let [save, sync, replicas] = SETTINGS.map(|_| replies.next().as_ref().and_then(setting));
    if sync.is_none() {
        facts.refused.push("CONFIG GET");
    }
    facts.has_snapshots = save.map(|schedule| !schedule.is_empty());
    facts.log_sync = sync;
    facts.replicas_needed = replicas.and_then(|count| count.parse().ok());
    read_clock(&mut facts, link, deadline, timeout).await?;
    Ok(facts)
}

fn read_info(facts: &mut ServerFacts, info: &str) {
    let word = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(|said| said.trim().to_owned())
    };
    let number = |name| word(name).and_then(|said| said.parse::<u64>().ok());
    let redis = word("redis_version");
    let major = redis.as_ref().and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    // Valkey says which Redis it is like, and its own version beside it.
    let valkey = word("valkey_version");
    facts.is_old = valkey.is_none() && major.is_some_and(|major| major < NOT_OLD);
    facts.version = valkey.map(|version| format!("Valkey {version}")).or(redis);
    facts.is_replica = word("role").map(|role| role == "slave");
    facts.is_loading = number("loading").map(|loading| loading == 1);
    facts.max_memory = number("maxmemory");
    facts.eviction = word("maxmemory_policy");
    facts.has_log = number("aof_enabled").map(|enabled| enabled == 1);
    facts.replicas = number("connected_slaves");
    facts.clients = number("connected_clients").zip(number("maxclients"));
}

/// How long the server takes to answer, and how its clock differs from ours.
async fn read_clock(
    facts: &mut ServerFacts,
    link: &Link,
    deadline: Instant,
    timeout: Duration,
) -> Result<(), Cut> {
    let mut samples = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(redis::cmd("TIME"));
        let (asked, began) = (clock::wall_us(), Instant::now());
        let reply = link.send(&pipeline, deadline, timeout).await?.pop();
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
    facts.clock_doubt = took / 2;
    Ok(())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// The value that CONFIG GET tells of one setting: RESP3 sends a map, RESP2 a list.
fn setting(reply: &Value) -> Option<String> {
    match reply {
        Value::Map(pairs) => text(&pairs.first()?.1),
        Value::Array(items) => text(items.get(1)?),
        _ => None,
    }
}

/// TIME's seconds and microseconds, in µs since 1970.
fn time(reply: &Value) -> Option<u64> {
    let Value::Array(parts) = reply else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let number = |value| text(value)?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}
