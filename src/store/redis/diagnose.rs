//! What there is to know about a server before it is trusted with locks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use super::address::{Endpoint, RedisAddress, told_host};
use super::budget::{Budget, Intake};
use super::dial::dial;
use super::info::{self, Info};
use super::link::{Cut, Link};
use super::{connect, fault, greeting, reply};
use crate::engine::clock;
use crate::store::diagnosis::{ReplicaClock, ServerFacts};
use crate::store::printable::printable;

/// What INFO does not tell. One at a time: 6.2 takes one name.
const SETTINGS: [&str; 3] = ["save", "appendfsync", "min-replicas-to-write"];
/// How often the server is asked for the time, to see how long that takes: the middle of so many.
const ROUNDS: usize = 5;
/// How long the replicas may take to tell the time. A smaller value leaves out replicas that are
/// far away. A larger one delays a diagnosis if a replica can't be reached.
const REPLICA_ANSWER: Duration = Duration::from_millis(300);
/// The most replicas that are asked for the time. A smaller value leaves out more replicas. A
/// larger one opens more connections at a time.
const MOST_REPLICAS: usize = 16;
/// The first version that is not of the oldest series that serves.
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
) -> Result<Box<ServerFacts>, Cut> {
    let min_replicas = address.min_replicas;
    let mut pipeline = Pipeline::new();
    pipeline.add_command(redis::cmd("INFO"));
    for name in SETTINGS {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        pipeline.add_command(command);
    }
    if min_replicas > 0 {
        // For none, which takes no time: whether we may.
        let mut command = redis::cmd("WAIT");
        command.arg(0).arg(1);
        pipeline.add_command(command);
    }
    let replies = link.send(&pipeline, deadline, timeout).await?;
    let mut facts =
        Box::new(ServerFacts { notices: link.channel().is_some(), min_replicas, ..ServerFacts::default() });
    let mut replies = replies.into_iter();
    let mut places = Vec::new();
    match replies.next().as_ref().and_then(text) {
        Some(info) => {
            let info = Info::read(&info);
            read_info(&mut facts, &info, address);
            places = replicas_in(&info);
        }
        None => facts.refused.push("INFO"),
    }
    let [save, sync, replicas] = SETTINGS.map(|_| replies.next().as_ref().and_then(setting));
    if sync.is_none() {
        facts.refused.push("CONFIG GET");
    }
    facts.has_snapshots = save.map(|schedule| !schedule.is_empty());
    facts.log_sync = sync.map(|sync| shown(&sync, &LOG_SYNCS, address));
    facts.replicas_needed = replicas.and_then(|count| count.parse().ok());
    facts.may_not_wait = replies.next().as_ref().and_then(reply::refusal) == Some("NOPERM");
    read_clock(&mut facts, link, deadline, timeout).await?;
    if let Some(ahead) = facts.clock_ahead {
        let until = deadline.min(Instant::now() + REPLICA_ANSWER);
        let asked = places
            .iter()
            .map(|(host, port)| replica_clock(at_replica(address, host, *port), until, link.budget()));
        let doubt = facts.clock_doubt;
        let of_master = |clock: ReplicaClock| ReplicaClock {
            ahead: clock.ahead.saturating_sub(ahead),
            doubt: clock.doubt + doubt,
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
    // Valkey says which Redis it is like, and its own version beside it.
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
    // What is on its way to replicas and to the log is not held against the limit.
    let spared = number("mem_not_counted_for_evict").unwrap_or(0);
    facts.used_memory = number("used_memory").map(|used| used.saturating_sub(spared));
    facts.eviction = word("maxmemory_policy").map(|policy| shown(policy, &EVICTIONS, address));
    facts.has_log = number("aof_enabled").map(|enabled| enabled == 1);
    // One that is still being given all the data does not count for a WAIT.
    let away = info.replicas.iter().filter(|said| is_away(said)).count();
    facts.replicas = number("connected_slaves").map(|replicas| replicas.saturating_sub(away as u64));
    facts.clients = number("connected_clients").zip(number("maxclients"));
}

/// Returns what a server `said` as the facts show it. `known` are the texts that every server may say,
/// so they show nothing of a password.
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
        Some((told_host(told("ip=")?), told("port=")?.parse().ok()?))
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
    let intake = Intake::of(budget);
    let mut stream = timeout_at(until, dial(&address)).await.ok()?.ok()?;
    if let Some(login) = connect::login(&address) {
        timeout_at(until, greeting::exchange(&mut stream, &[login], &intake)).await.ok()?;
    }
    let (asked, began) = (clock::wall_us(), Instant::now());
    let question = [redis::cmd("TIME")];
    let replies = timeout_at(until, greeting::exchange(&mut stream, &question, &intake)).await.ok()?;
    let took = began.elapsed();
    let theirs = replies.values.first().and_then(time)?;
    let ours = asked.saturating_add(took.as_micros() as u64 / 2);
    let replica = address.to_string().into();
    Some(ReplicaClock {
        replica,
        ahead: theirs.cast_signed().saturating_sub(ours.cast_signed()),
        doubt: took / 2,
    })
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
        Value::BulkString(bytes) => Some(info::text_in(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => {
            Some(info::text_in(text.as_bytes()).into_owned())
        }
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::store::Access;

    fn read(info: &str) -> ServerFacts {
        let mut facts = ServerFacts::default();
        read_info(&mut facts, &Info::read(info), &parsed("redis://:hunter2@host"));
        facts
    }

    #[test]
    fn replicas_count_when_they_are_there() {
        let slave = |number, state| format!("slave{number}:ip=::1,port=7,state={state},offset=0,lag=0\r\n");
        let info =
            ["role:master\r\nconnected_slaves:3\r\n".into(), slave(0, "online"), slave(1, "wait_bgsave")];
        assert_eq!(read(&(info.concat() + &slave(2, "send_bulk"))).replicas, Some(1));
        assert_eq!(read(&info.concat()).replicas, Some(2), "of one that is not shown the best is believed");
        assert_eq!(read("connected_slaves:1\r\nslave_priority:100\r\n").replicas, Some(1));
        assert_eq!(read("role:master\r\n").replicas, None);
    }

    #[test]
    fn replicas_are_where_info_says() {
        let info = "role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.1,port=6380,state=online,offset=1,lag=0\r\n\
                    slave1:ip=::1,port=6381,state=wait_bgsave,offset=0,lag=1\r\nslave_priority:ip=1,port=2\r\n\
                    slave2:ip=10.0.0.2,port=none\r\nslaves:ip=10.0.0.3,port=1\r\n";
        assert_eq!(replicas_in(&Info::read(info)), [("10.0.0.1".to_owned(), 6380), ("::1".to_owned(), 6381)]);
    }

    fn parsed(url: &str) -> RedisAddress {
        RedisAddress::parse(url, &Access::default()).unwrap()
    }

    #[test]
    fn a_replica_is_not_told_a_password_that_only_this_machine_knows() {
        let knows = |url: &str, host| connect::login(&at_replica(&parsed(url), host, 6380)).is_some();
        for url in
            ["redis://:hunter2@127.0.0.1", "redis://:hunter2@localhost", "redis+unix:///r.sock?pass=hunter2"]
        {
            assert!(!knows(url, "10.0.0.7") && knows(url, "127.0.0.1"), "{url}");
        }
        assert!(knows("redis://:hunter2@10.0.0.1", "10.0.0.7"));
        assert!(knows("rediss://:hunter2@127.0.0.1", "10.0.0.7"), "over TLS");
    }

    #[test]
    fn a_password_is_not_sent_in_plain_to_the_replica_of_a_master_with_tls() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let master = parsed("rediss://locks:hunter2@127.0.0.1:1");
            let until = Instant::now() + Duration::from_secs(30);
            let budget = Budget::new();
            let mut heard = Vec::new();
            // Hangs up as soon as the client has said something, so the client need not wait for
            // `until`.
            let replica = async {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.read_buf(&mut heard).await;
                }
            };
            let clock = tokio::select! {
                clock = replica_clock(at_replica(&master, "127.0.0.1", port), until, &budget) => clock,
                () = replica => unreachable!("the listener failed"),
            };
            assert!(clock.is_none() && !heard.is_empty());
            assert!(!String::from_utf8_lossy(&heard).contains("hunter2"), "{heard:?}");
        });
    }

    #[test]
    fn what_is_in_use_is_what_the_limit_is_for() {
        let facts = read("used_memory:1000\r\nmaxmemory:900\r\nmem_not_counted_for_evict:200\r\n");
        assert_eq!((facts.used_memory, facts.max_memory), (Some(800), Some(900)));
        assert_eq!(read("used_memory:1000\r\nused_memory_rss:7\r\n").used_memory, Some(1000));
        assert_eq!(read("used_memory_rss:7\r\n").used_memory, None);
    }

    #[test]
    fn no_fact_shows_a_password_that_the_server_repeats() {
        for name in ["redis_version", "valkey_version", "maxmemory_policy", "run_id"] {
            let facts = read(&format!("{name}:7.2-hunter2{}\r\n", "x".repeat(MOST_WORD)));
            let told =
                [facts.version, facts.eviction, facts.run_id].into_iter().flatten().collect::<String>();
            assert!(told.contains("a text that contains the password") && !told.contains("hunter"), "{told}");
        }
        // What every server says is no password, even if it contains one.
        let address = parsed("redis://:no@host");
        assert_eq!(shown("noeviction", &EVICTIONS, &address), "noeviction");
        assert_eq!(shown("everysec-no", &LOG_SYNCS, &address), "a text that contains the password");
    }

    #[test]
    fn a_server_is_known_by_its_run() {
        assert_eq!(read("run_id:0a1b\r\n").run_id.as_deref(), Some("0a1b"));
        for info in ["", "run_id:\r\n", "run_id:0000\r\n"] {
            assert_eq!(read(info).run_id, None, "{info:?} says nothing");
        }
    }
}
