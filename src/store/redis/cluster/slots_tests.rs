use super::*;

fn place(host: &str, port: u16) -> NodeAddress {
    NodeAddress { host: host.into(), port }
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
    let node = |host: Value| Value::Array(vec![host, Value::Int(port), text("id")]);
    Value::Array(vec![Value::Int(first), Value::Int(last), node(host), node(text("a-replica"))])
}

/// The slots are those that `CLUSTER KEYSLOT` of Redis 7.0 returns.
#[test]
fn slots_are_those_of_redis() {
    for (key, slot) in [
        ("", 0),
        ("123456789", 12739),
        ("foo", 12182),
        ("lock:a", 6035),
        ("{user1000}.following", 3443),
        ("{user1000}.followers", 3443),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("foo{bar}{zap}", 5061),
        ("lock:ä", 16292),
        ("a}b", 7866),
    ] {
        assert_eq!(slot_of(key), slot, "{key}");
    }
}

#[test]
fn every_slot_has_a_tag() {
    // Names of side keys contain these numbers, so the numbers must never change.
    assert_eq!([0, 7135, 16383].map(tag_in), ["3560", "1977", "39296"]);
    for slot in 0..SLOTS as u16 {
        let tag = tag_in(slot);
        assert_eq!(slot_of(&format!("a:{{{tag}}}:b")), slot, "{tag}");
    }
}

#[test]
fn an_unknown_host_is_the_one_that_was_asked() {
    let asked = place("seed", 7000);
    let reply = Value::Array(vec![
        range(0, 99, text("10.0.0.1"), 7001),
        range(100, 199, text(""), 7002),
        range(200, 299, Value::Nil, 7003),
        range(300, 399, text("?"), 7000),
        range(400, 16383, text("10.0.0.1"), 7001),
    ]);
    let map = SlotMap::read(&reply, &asked).unwrap();
    for (slot, owner) in [
        (0, place("10.0.0.1", 7001)),
        (150, place("seed", 7002)),
        (299, place("seed", 7003)),
        (300, asked.clone()),
        (16383, place("10.0.0.1", 7001)),
    ] {
        assert_eq!(map.owner(slot), Some(&owner), "{slot}");
    }
    assert_eq!(map.masters().count(), 4);
    assert_eq!(map.uncovered(), 0);
    assert_eq!(NodeAddress::read(":7005", &asked), Some(place("seed", 7005)));
    assert_eq!(NodeAddress::read("::1:7005", &asked), Some(place("::1", 7005)));
    assert_eq!(NodeAddress::read("host", &asked), None);
    assert_eq!(NodeAddress::read("host:99999", &asked), None);
}

#[test]
fn an_invalid_reply_is_no_map() {
    let asked = place("seed", 7000);
    for reply in [
        Value::Okay,
        Value::Array(vec![Value::Int(1)]),
        Value::Array(vec![range(0, 16384, text("h"), 1)]),
        Value::Array(vec![range(5, 4, text("h"), 1), range(-1, 4, text("h"), 1)]),
        Value::Array(vec![range(0, 1, text("h"), 70_000)]),
        Value::Array(vec![range(0, 1, text("h"), 0)]),
    ] {
        assert_eq!(SlotMap::read(&reply, &asked), None, "{reply:?}");
    }
    let empty = SlotMap::read(&Value::Array(Vec::new()), &asked).unwrap();
    assert_eq!((empty.uncovered(), empty.masters().count()), (SLOTS, 0));
}

/// The map of a false server costs no more than the map of the largest cluster.
#[test]
fn a_map_of_too_many_masters_is_refused() {
    let asked = place("seed", 7000);
    let masters = |count: i64| {
        let each = |slot: i64| range(slot, slot, text("10.0.0.1"), 1 + slot);
        Value::Array((0..count).map(each).collect())
    };
    let most = SlotMap::read(&masters(MOST_MASTERS as i64), &asked).unwrap();
    assert_eq!(most.masters().count(), MOST_MASTERS);
    assert_eq!(most.masters().nth(5), Some((&place("10.0.0.1", 6), [5, 5])));
    assert_eq!(SlotMap::read(&masters(MOST_MASTERS as i64 + 1), &asked), None);
    assert_eq!(SlotMap::read(&masters(SLOTS as i64), &asked), None);
    let overlapping = (0..16_384).map(|_| range(0, 16_383, text("h"), 1)).collect();
    assert_eq!(SlotMap::read(&Value::Array(overlapping), &asked), None);

    // All these hosts are too long, so the client would show each as the same text.
    let spellings =
        (0..=MOST_MASTERS as i64).map(|slot| range(slot, slot, text(&format!("{slot:0>300}")), 1));
    assert_eq!(SlotMap::read(&Value::Array(spellings.collect()), &asked), None);

    let mut map = most;
    assert!(!map.moved(9_000, place("one-more", 1)), "MOVED adds no master to a full map");
    assert_eq!(map.owner(9_000), None);
}

/// A host may take long to escape.
#[test]
fn a_host_that_a_map_repeats_is_read_once() {
    let ranges = (0..SLOTS as i64).map(|slot| range(slot, slot, text("10.0.0.1"), 1 + slot % 2)).collect();
    HOSTS.set(0);
    let map = SlotMap::read(&Value::Array(ranges), &place("seed", 7000)).unwrap();
    assert_eq!((map.count_masters(), HOSTS.get()), (2, 2));
}

#[test]
fn a_moved_slot_is_known_at_once_and_is_news_only_once() {
    let asked = place("a", 1);
    let reply = Value::Array(vec![range(0, 9, text("a"), 1), range(10, 16383, text("b"), 2)]);
    let before = SlotMap::read(&reply, &asked).unwrap();
    let mut map = before.clone();
    assert!(!map.differs_from(&before));
    assert!(map.moved(3, place("c", 3)));
    assert!(!map.moved(3, place("c", 3)));
    assert_eq!(map.owner(3), Some(&place("c", 3)));
    assert!(map.differs_from(&before));
    for slot in 0..10 {
        map.moved(slot, place("c", 3));
    }
    let masters: Vec<_> = map.masters().map(|(place, homes)| (place.host.as_str(), homes)).collect();
    assert_eq!(masters, [("b", [16383, 10]), ("c", [9, 0])]);
    for (before, after) in [(("a", 1), ("b", 2)), (("b", 2), ("c", 3)), (("c", 3), ("a", 1))] {
        let mut map = map.clone();
        for slot in (0..SLOTS as u16).rev() {
            if map.owner(slot) == Some(&place(before.0, before.1)) {
                map.moved(slot, place(after.0, after.1));
                assert_eq!(map.count_masters(), map.masters().count());
            }
        }
        for known in ["a", "b", "c", "d"].into_iter().zip(1..).map(|(host, port)| place(host, port)) {
            let homes = map.masters().find(|(master, _)| **master == known).map(|(_, homes)| homes);
            assert_eq!((map.homes_of(&known), map.is_master(&known)), (homes, homes.is_some()));
        }
    }
    // The owner of a slot that was not known before is no move.
    assert!(!before.differs_from(&SlotMap::empty()));
}

/// However many redirects arrive, the client asks for the map only a few times a second.
#[test]
fn the_map_is_not_asked_for_too_often() {
    let (start, mut refresh_limiter) = (Instant::now(), RefreshLimiter::default());
    let mut asked = Vec::new();
    for ms in 0..3_000 {
        let now = start + Duration::from_millis(ms);
        if refresh_limiter.next(now) <= now {
            refresh_limiter.asked(now, false);
            asked.push(ms);
        }
    }
    assert_eq!(asked, [0, 100, 300, 700, 1_100, 1_500, 1_900, 2_300, 2_700]);
    let now = start + Duration::from_secs(10);
    refresh_limiter.asked(now, true);
    assert_eq!(refresh_limiter.next(now), now + SHORTEST_GAP);
}
