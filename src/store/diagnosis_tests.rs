use std::time::Duration;

use super::*;

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

/// Returns a server with which nothing is wrong.
fn sound() -> ServerFacts {
    ServerFacts {
        run_id: Some("c0ffee".into()),
        version: Some("7.2.4".into()),
        is_old: false,
        is_replica: Some(false),
        is_loading: Some(false),
        max_memory: Some(0),
        used_memory: Some(1 << 20),
        eviction: Some("noeviction".into()),
        has_log: Some(true),
        log_sync: Some("always".into()),
        has_snapshots: Some(true),
        replicas: Some(0),
        replicas_needed: Some(0),
        copy_delay: Some(Duration::ZERO),
        min_replicas: 0,
        may_not_wait: false,
        clients: Some((10, 10_000)),
        round_trip: Some(Duration::from_micros(200)),
        clock_ahead: Some(150),
        clock_uncertainty: Duration::from_micros(100),
        replica_clocks: Vec::new(),
        notices: true,
        may_not_list: false,
        may_not_count: None,
        refused: Vec::new(),
        denied: None,
    }
}

fn found(facts: ServerFacts, quorum: bool) -> Vec<Finding> {
    findings(&Facts::Server(Box::new(facts)), ttl(10_000), quorum)
}

/// Returns the only finding about a server that is sound except for `change`.
fn only(change: impl FnOnce(&mut ServerFacts)) -> (Level, &'static str, String) {
    let mut facts = sound();
    change(&mut facts);
    let mut found = found(facts, false);
    assert_eq!(found.len(), 1, "{found:?}");
    let Finding { level, code, message } = found.remove(0);
    (level, code, message)
}

#[test]
fn a_sound_server_and_a_server_that_reports_no_facts_have_no_findings() {
    assert_eq!(found(sound(), false), []);
    assert_eq!(found(sound(), true), []);
    let silent = ServerFacts { notices: true, ..ServerFacts::default() };
    assert_eq!(found(silent, true), []);
}

#[test]
fn a_server_that_drops_keys_when_its_memory_is_full_is_reported() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let (level, code, message) = only(|facts| {
            facts.max_memory = Some(10 << 20);
            facts.eviction = Some(policy.into());
        });
        assert_eq!((level, code), (Level::Warning, "eviction"));
        assert!(message.contains(policy) && message.contains("10485760"), "{message}");
    }
    let mut facts = sound();
    facts.max_memory = Some(10 << 20);
    assert_eq!(found(facts, false), [], "it refuses writes instead");
    let mut facts = sound();
    facts.eviction = Some("allkeys-lru".into());
    assert_eq!(found(facts, false), [], "there is no limit");
}

#[test]
fn a_server_that_refuses_writes_when_its_memory_is_full_is_reported() {
    let with = |used, most, policy: &str| {
        let mut facts = sound();
        (facts.used_memory, facts.max_memory) = (used, most);
        facts.eviction = Some(policy.into());
        let found = found(facts, false);
        found.into_iter().map(|Finding { level, code, .. }| (level, code)).collect::<Vec<_>>()
    };
    assert_eq!(with(Some(1_001), Some(1_000), "noeviction"), [(Level::Error, "full")]);
    assert_eq!(with(Some(1_000), Some(1_000), "noeviction"), [(Level::Warning, "nearly-full")]);
    assert_eq!(with(Some(999), Some(1_000), "noeviction"), [(Level::Warning, "nearly-full")]);
    assert_eq!(with(Some(901), Some(1_000), "noeviction"), [(Level::Warning, "nearly-full")]);
    assert_eq!(with(Some(900), Some(1_000), "noeviction"), []);
    assert_eq!(with(Some(u64::MAX - 1), Some(u64::MAX), "noeviction"), [(Level::Warning, "nearly-full")]);
    assert_eq!(with(Some(1_000), Some(0), "noeviction"), [], "there is no limit");
    assert_eq!(with(None, Some(1_000), "noeviction"), [], "the server does not report its use");
    assert_eq!(with(Some(1_000), Some(1_000), "allkeys-lru"), [(Level::Warning, "eviction")]);
    let (_, _, message) = only(|facts| (facts.used_memory, facts.max_memory) = (Some(12_345), Some(10_000)));
    assert!(
        message.contains("12345 bytes") && message.contains("10000") && message.contains("raise"),
        "{message}"
    );
}

#[test]
fn too_few_replicas_for_min_replicas_are_reported_and_so_is_a_lack_of_a_spare_one() {
    let with = |there: Option<u64>, min_replicas: u32| {
        let mut facts = sound();
        (facts.replicas, facts.min_replicas) = (there, min_replicas);
        found(facts, false)
            .into_iter()
            .map(|Finding { level, code, message }| ((level, code), message))
            .next()
    };
    let cases = [
        (0, 1, Level::Error, "too-few-replicas", "it has 0 replicas connected, and minReplicas asks for 1:"),
        (1, 2, Level::Error, "too-few-replicas", "it has 1 replica connected, and minReplicas asks for 2:"),
        (1, 1, Level::Warning, "no-spare-replica", "it has 1 replica connected, which is just"),
        (2, 2, Level::Warning, "no-spare-replica", "it has 2 replicas connected, which is just"),
        (1, 0, Level::Info, "replicas", "it has 1 replica and"),
        (2, 0, Level::Info, "replicas", "it has 2 replicas and"),
    ];
    for (there, wanted, level, code, words) in cases {
        let (told, message) = with(Some(there), wanted).unwrap_or_else(|| panic!("nothing of {code}"));
        assert_eq!(told, (level, code));
        assert!(message.starts_with(words), "{message}");
    }
    assert_eq!(with(Some(2), 1), None, "one may be lost");
    assert_eq!(with(Some(0), 0), None);
    let (level, code, message) = only(|facts| (facts.min_replicas, facts.may_not_wait) = (1, true));
    assert_eq!((level, code), (Level::Error, "denied"));
    assert!(message.contains("+wait"), "{message}");
    assert_eq!(with(None, 1), None, "the server does not report its replicas");
    let (_, code, _) = only(|facts| (facts.is_replica, facts.min_replicas) = (Some(true), 1));
    assert_eq!(code, "readonly", "the replicas of a replica do not matter");
}

#[test]
fn a_delayed_copy_to_replicas_matters_if_a_lease_waits_for_them() {
    let with = |delay: Option<u64>, min_replicas: u32| {
        let mut facts = sound();
        (facts.replicas, facts.min_replicas) = (Some(2), min_replicas);
        facts.copy_delay = delay.map(Duration::from_secs);
        found(facts, false).into_iter().map(|finding| (finding.level, finding.code)).next()
    };
    assert_eq!(with(Some(5), 1), Some((Level::Warning, "copy-delay")));
    for (delay, min_replicas) in [(Some(0), 1), (None, 1), (Some(5), 0)] {
        let told = with(delay, min_replicas).filter(|(_, code)| *code != "replicas");
        assert_eq!(told, None, "{delay:?} with {min_replicas}");
    }
}

#[test]
fn what_a_restart_forgets_is_reported_and_is_a_warning_for_a_quorum() {
    let states: [fn(&mut ServerFacts); 3] = [
        |facts| (facts.has_log, facts.has_snapshots) = (Some(false), Some(false)),
        |facts| facts.has_log = Some(false),
        |facts| facts.log_sync = Some("everysec".into()),
    ];
    let mut messages = Vec::new();
    for state in states {
        let (level, code, message) = only(state);
        assert_eq!((level, code), (Level::Info, "persistence"));
        messages.push(message);
        let mut facts = sound();
        state(&mut facts);
        let [Finding { level: Level::Warning, code: "persistence", message }] = &found(facts, true)[..]
        else {
            panic!("for a quorum it is a warning");
        };
        assert!(message.contains("quorum"), "{message}");
    }
    messages.dedup();
    assert_eq!(messages.len(), 3, "each says what it is");
}

#[test]
fn a_clock_that_is_wrong_by_more_than_a_second_is_reported_unless_the_network_may_be_the_cause() {
    for ahead in [1_200_000, -1_200_000] {
        let (level, code, message) = only(|facts| facts.clock_ahead = Some(ahead));
        assert_eq!((level, code), (Level::Warning, "clock"));
        assert!(message.contains(if ahead > 0 { "1.2 s ahead" } else { "1.2 s behind" }), "{message}");
    }
    let mut facts = sound();
    (facts.clock_ahead, facts.clock_uncertainty) = (Some(-1_200_000), Duration::from_millis(300));
    assert_eq!(found(facts, false), [], "the difference may come from the network");
}

#[test]
fn a_round_trip_of_more_than_a_twentieth_of_the_ttl_is_too_slow() {
    let mut facts = sound();
    facts.round_trip = Some(Duration::from_millis(6));
    let facts = Facts::Server(Box::new(facts));
    assert_eq!(findings(&facts, ttl(120), false), []);
    let found = findings(&facts, ttl(119), false);
    assert_eq!((found[0].level, found[0].code), (Level::Warning, "slow"));
    assert!(found[0].message.contains("6.0 ms") && found[0].message.contains("121 ms"), "{found:?}");
}

#[test]
fn each_other_finding_has_a_code_of_its_own() {
    type Case = (fn(&mut ServerFacts), Level, &'static str);
    let cases: [Case; 7] = [
        (|facts| facts.is_replica = Some(true), Level::Error, "readonly"),
        (|facts| facts.is_loading = Some(true), Level::Warning, "loading"),
        (|facts| facts.notices = false, Level::Warning, "notices"),
        (|facts| facts.clients = Some((90, 100)), Level::Warning, "clients"),
        (|facts| facts.replicas = Some(2), Level::Info, "replicas"),
        (|facts| facts.is_old = true, Level::Info, "old"),
        (|facts| facts.refused = vec!["CONFIG GET"], Level::Info, "unchecked"),
    ];
    for (change, level, code) in cases {
        let (told, named, message) = only(change);
        assert_eq!((told, named), (level, code), "{message}");
    }
    let mut facts = sound();
    (facts.replicas, facts.replicas_needed, facts.clients) = (Some(2), Some(1), Some((89, 100)));
    assert_eq!(found(facts, false), []);
}

#[test]
fn reports_say_which_processes_a_store_without_a_server_excludes_and_why_a_store_is_unusable() {
    let of = |facts| findings(&facts, ttl(10_000), false).remove(0);
    let host = |network| Facts::Host { network, exposure: None };
    assert_eq!(of(Facts::Process).code, "process-only");
    assert_eq!(of(host(None)).code, "host-only");
    let nfs = of(host(Some("NFS")));
    assert_eq!((nfs.level, nfs.code), (Level::Error, "network-filesystem"));
    let gone = StoreError::not_done(StoreErrorKind::Denied, "no entry");
    let report = Report::unusable("redis://x", &gone);
    assert_eq!(report.findings, [Finding::new(Level::Error, "denied", "no entry")]);
    assert!(!report.is_silence());
}

#[test]
fn a_lock_file_that_other_users_can_access_is_reported_with_its_mode() {
    let of = |file_mode, directory_mode| {
        let exposure = Some(Exposure { file_mode, directory_mode });
        let mut found = findings(&Facts::Host { network: None, exposure }, ttl(10_000), false);
        assert_eq!((found.len(), found[0].code, found[1].code), (2, "host-only", "exposed"));
        found.remove(1)
    };
    assert_eq!(of(Some(0o660), None).level, Level::Info, "a group of users is meant");
    for (file, directory, told) in [
        (Some(0o644), None, &["0644", "chmod 600"][..]),
        (None, Some(0o1777), &["1777", "private directory"]),
        (Some(0o666), Some(0o777), &["0666", "0777"]),
    ] {
        let finding = of(file, directory);
        assert_eq!(finding.level, Level::Warning);
        assert!(!finding.message.contains("  "), "{}", finding.message);
        assert!(told.iter().all(|part| finding.message.contains(part)), "{}", finding.message);
    }
}

#[test]
fn a_replica_whose_clock_is_wrong_by_a_tenth_of_the_ttl_is_reported() {
    let with = |ahead_ms: i64| {
        let mut facts = sound();
        facts.replica_clocks = vec![ReplicaClock {
            replica: "redis://b:1".into(),
            ahead: ahead_ms * 1_000,
            uncertainty: Duration::from_millis(5),
        }];
        found(facts, false)
            .into_iter()
            .map(|Finding { level, code, message }| ((level, code), message))
            .next()
    };
    // The tolerance is the uncertainty and a tenth of the ttl of 10 s.
    for within in [0, 1_005, -1_005] {
        assert_eq!(with(within), None, "{within} ms");
    }
    let wrong = (Level::Warning, "replica-clock");
    for (ahead, words) in [
        (6_000, ["redis://b:1 is 6.0 s ahead of its own", "leases end 6.0 s too early there"]),
        (-2_000, ["redis://b:1 is 2.0 s behind its own", "keeps its lock for 2.0 s longer there"]),
    ] {
        let (told, message) = with(ahead).unwrap();
        assert_eq!(told, wrong);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    assert!(with(1_007).is_some());
}

#[test]
fn a_missing_right_that_locks_do_not_need_is_reported_with_what_does_not_work() {
    let (level, code, message) = only(|server| server.may_not_list = true);
    assert_eq!((level, code), (Level::Info, "no-listing"));
    assert!(message.contains("list(), leasehold ls and leasehold watch") && message.contains("+scan"));
    let (level, code, message) = only(|server| server.may_not_count = Some("+pubsub|numsub"));
    assert_eq!((level, code), (Level::Info, "slow-notices"));
    assert!(message.ends_with("needs the right +pubsub|numsub"), "{message}");
}
