use super::*;

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

/// A server with which nothing is wrong.
fn sound() -> ServerFacts {
    ServerFacts {
        version: Some("7.2.4".into()),
        is_old: false,
        is_replica: Some(false),
        is_loading: Some(false),
        max_memory: Some(0),
        eviction: Some("noeviction".into()),
        has_log: Some(true),
        log_sync: Some("always".into()),
        has_snapshots: Some(true),
        replicas: Some(0),
        replicas_needed: Some(0),
        clients: Some((10, 10_000)),
        round_trip: Some(Duration::from_micros(200)),
        clock_ahead: Some(150),
        clock_doubt: Duration::from_micros(100),
        notices: true,
        refused: Vec::new(),
    }
}

fn found(facts: ServerFacts, quorum: bool) -> Vec<Finding> {
    findings(&Facts::Server(Box::new(facts)), ttl(10_000), quorum)
}

/// The only finding about a server that is sound but for `change`.
fn only(change: impl FnOnce(&mut ServerFacts)) -> (Level, &'static str, String) {
    let mut facts = sound();
    change(&mut facts);
    let mut found = found(facts, false);
    assert_eq!(found.len(), 1, "{found:?}");
    let Finding { level, code, message } = found.remove(0);
    (level, code, message)
}

#[test]
fn a_sound_server_has_no_findings_and_neither_has_one_that_says_nothing_bad() {
    assert_eq!(found(sound(), false), []);
    assert_eq!(found(sound(), true), []);
    let silent = ServerFacts { notices: true, ..ServerFacts::default() };
    assert_eq!(found(silent, true), []);
}

#[test]
fn a_server_that_drops_keys_for_want_of_memory_drops_locks() {
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
fn what_a_restart_forgets_is_told_and_is_worse_under_a_quorum() {
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
            panic!("under a quorum it is a warning");
        };
        assert!(message.contains("quorum"), "{message}");
    }
    messages.dedup();
    assert_eq!(messages.len(), 3, "each says what it is");
}

#[test]
fn a_clock_that_is_off_by_more_than_a_second_is_told_beyond_what_the_network_may_have_added() {
    for ahead in [1_200_000, -1_200_000] {
        let (level, code, message) = only(|facts| facts.clock_ahead = Some(ahead));
        assert_eq!((level, code), (Level::Warning, "clock"));
        assert!(message.contains(if ahead > 0 { "1.2 s ahead" } else { "1.2 s behind" }), "{message}");
    }
    let mut facts = sound();
    (facts.clock_ahead, facts.clock_doubt) = (Some(-1_200_000), Duration::from_millis(300));
    assert_eq!(found(facts, false), [], "that may as well be the way back");
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
fn what_else_there_is_has_a_code_of_its_own() {
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
fn places_without_a_server_say_how_far_they_reach_and_unusable_ones_why_they_are() {
    let of = |facts| findings(&facts, ttl(10_000), false).remove(0);
    assert_eq!(of(Facts::Process).code, "process-only");
    assert_eq!(of(Facts::Host { network: None }).code, "host-only");
    let nfs = of(Facts::Host { network: Some("NFS") });
    assert_eq!((nfs.level, nfs.code), (Level::Error, "network-filesystem"));
    let gone = StoreError::not_done(StoreErrorKind::Denied, "no entry");
    let report = Report::unusable("redis://x", &gone);
    assert_eq!(report.findings, [Finding::new(Level::Error, "denied", "no entry")]);
    assert!(!report.is_silence());
}
