use super::*;

fn at(ms: u64, start: Instant) -> Instant {
    start + Duration::from_millis(ms)
}

fn tcp(port: u16) -> (String, u16) {
    ("10.0.0.1".into(), port)
}

#[test]
fn events_are_read_as_sentinels_write_them() {
    let slave = "slave 10.0.0.1:7001 10.0.0.1 7001 @ mymaster 10.0.0.1 7000";
    let read = |channel, said| Event::read(channel, said, "mymaster");
    assert_eq!(read("+elected-leader", "master mymaster 10.0.0.1 7000"), Some(Event::UnderWay));
    assert_eq!(read("+selected-slave", slave), Some(Event::UnderWay));
    assert_eq!(read("+failover-state-wait-promotion", slave), Some(Event::UnderWay));
    assert_eq!(read("-failover-abort-slave-timeout", "master mymaster 10.0.0.1 7000"), Some(Event::Aborted));
    let switched = Some(Event::Switched { old: tcp(7000), new: tcp(7001) });
    assert_eq!(read("+promoted-slave", slave), switched);
    assert_eq!(read(SWITCH, "mymaster 10.0.0.1 7000 10.0.0.1 7001"), switched);
}

#[test]
fn a_found_sentinel_is_read_with_its_host_and_port() {
    let read = |said| Event::read(FOUND, said, "mymaster");
    let found = Event::Found { id: "0a1b".into(), at: tcp(26380) };
    assert_eq!(read("sentinel 0a1b 10.0.0.1 26380 @ mymaster 10.0.0.1 7000"), Some(found));
    assert_eq!(read("sentinel 0a1b 10.0.0.1 26380 @ other 10.0.0.1 7000"), None);
    assert_eq!(read("sentinel 0a1b 10.0.0.1 none @ mymaster 10.0.0.1 7000"), None);
    assert_eq!(read("sentinel 0a1b"), None);
}

#[test]
fn messages_about_other_masters_or_unreadable_ones_are_no_events() {
    for (channel, said) in [
        ("+elected-leader", "master other 10.0.0.1 7000"),
        ("+selected-slave", "slave mymaster 10.0.0.1 7001 @ other 10.0.0.1 7000"),
        ("+promoted-slave", "slave a 10.0.0.1 none @ mymaster 10.0.0.1 7000"),
        ("+promoted-slave", "slave a 10.0.0.1 7001 @ mymaster 10.0.0.1 none"),
        // This message names no new master.
        ("+promoted-slave", "master mymaster 10.0.0.1 7000"),
        ("+elected-leader", "master"),
        ("+elected-leader", ""),
        (SWITCH, "other 10.0.0.1 7000 10.0.0.1 7001"),
        (SWITCH, "mymaster 10.0.0.1 7000"),
        (SWITCH, "mymaster 10.0.0.1 7000 10.0.0.1 70001"),
    ] {
        assert_eq!(Event::read(channel, said, "mymaster"), None, "{channel} {said}");
    }
}

#[test]
fn a_failover_lasts_until_its_leader_ends_it() {
    let start = Instant::now();
    let mut failover = Failover::default();
    assert_eq!(failover.until(start), None);
    failover.begun(1, start);
    assert!(failover.until(start).is_some() && failover.leads(1) && !failover.leads(0));
    // Another sentinel can't end this failover.
    failover.over(0);
    assert!(failover.until(start).is_some());
    failover.over(1);
    assert_eq!(failover.until(start), None);
}

#[test]
fn a_failover_whose_leader_falls_silent_is_over_after_a_while() {
    let start = Instant::now();
    let mut failover = Failover::default();
    failover.begun(0, start);
    assert!(failover.until(at(2_999, start)).is_some());
    failover.goes_on(0, at(2_000, start));
    assert!(failover.until(at(4_999, start)).is_some());
    assert_eq!(failover.until(at(5_000, start)), None);
}

#[test]
fn a_sentinel_that_was_not_elected_leads_no_failover() {
    let start = Instant::now();
    let mut failover = Failover::default();
    // This sentinel tries to be elected for up to 10 s, and fails.
    failover.goes_on(0, start);
    assert_eq!(failover.until(start), None);
}

#[test]
fn a_switch_ends_the_failovers_of_all_sentinels() {
    let start = Instant::now();
    let mut failover = Failover::default();
    failover.begun(0, start);
    failover.begun(1, at(500, start));
    failover.over(0);
    assert!(failover.until(at(600, start)).is_some(), "the other sentinel still leads one");
    failover.begun(0, at(700, start));
    failover.switched();
    assert_eq!(failover.until(at(700, start)), None);
}
