//! Tests of what a diagnosis reads from a server.

use tokio::io::AsyncReadExt;

use super::*;
use crate::store::Access;

fn read(info: &str) -> ServerFacts {
    let mut facts = ServerFacts::default();
    read_info(&mut facts, &Info::read(info), &parsed("redis://:hunter2@host"));
    facts
}

#[test]
fn only_replicas_that_are_online_count() {
    let slave = |number, state| format!("slave{number}:ip=::1,port=7,state={state},offset=0,lag=0\r\n");
    let info = ["role:master\r\nconnected_slaves:3\r\n".into(), slave(0, "online"), slave(1, "wait_bgsave")];
    assert_eq!(read(&(info.concat() + &slave(2, "send_bulk"))).replicas, Some(1));
    assert_eq!(read(&info.concat()).replicas, Some(2), "a replica that is not listed counts as online");
    assert_eq!(read("connected_slaves:1\r\nslave_priority:100\r\n").replicas, Some(1));
    assert_eq!(read("role:master\r\n").replicas, None);
}

#[test]
fn the_addresses_of_replicas_are_read_from_info() {
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
        // Hangs up as soon as the client has sent something, so that the client need not wait for
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
fn used_memory_is_the_memory_that_counts_for_the_limit() {
    let facts = read("used_memory:1000\r\nmaxmemory:900\r\nmem_not_counted_for_evict:200\r\n");
    assert_eq!((facts.used_memory, facts.max_memory), (Some(800), Some(900)));
    assert_eq!(read("used_memory:1000\r\nused_memory_rss:7\r\n").used_memory, Some(1000));
    assert_eq!(read("used_memory_rss:7\r\n").used_memory, None);
}

#[test]
fn no_fact_shows_a_password_that_the_server_repeats() {
    for name in ["redis_version", "valkey_version", "maxmemory_policy", "run_id"] {
        let facts = read(&format!("{name}:7.2-hunter2{}\r\n", "x".repeat(MOST_WORD)));
        let told = [facts.version, facts.eviction, facts.run_id].into_iter().flatten().collect::<String>();
        assert!(told.contains("a text that contains the password") && !told.contains("hunter"), "{told}");
    }
    // A text that any server may send is shown, even if it contains the password.
    let address = parsed("redis://:no@host");
    assert_eq!(shown("noeviction", &EVICTIONS, &address), "noeviction");
    assert_eq!(shown("everysec-no", &LOG_SYNCS, &address), "a text that contains the password");
}

#[test]
fn a_server_is_identified_by_its_run_id() {
    assert_eq!(read("run_id:0a1b\r\n").run_id.as_deref(), Some("0a1b"));
    for info in ["", "run_id:\r\n", "run_id:0000\r\n"] {
        assert_eq!(read(info).run_id, None, "{info:?} says nothing");
    }
}
