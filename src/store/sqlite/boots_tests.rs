//! Tests rows of processes that share the kernel but read different boot ids: some are in
//! containers with a boot id of their own, and some may not read the id.

use super::super::super::AcquireRequest;
use super::super::boot;
use super::super::kernel::Kernel;
use super::super::owner::Owner;
use super::detached_tests::{Detached, detach};
use super::tests::{TestDatabase, acquire, busy, granted};
use super::*;
use crate::lease::Ttl;

/// A lock file on a local file system, and two processes that use it: one in a container, and one
/// on the host, which reads another boot id.
struct Machine {
    database: TestDatabase,
    theirs: Owner,
    mine: Owner,
    host: Uuid,
}

impl Machine {
    fn new() -> Self {
        let host = Uuid::new_v4();
        let mut database = TestDatabase::new();
        database.kernel = Kernel::named(host, true);
        let (theirs, mine) = (database.owner(), database.owner());
        Self { database, theirs, mine, host }
    }

    fn in_container(&self, ms: u64, request: &Request) -> Reply {
        self.database.ask(self.theirs.id(), boot::id(), ms, request)
    }

    fn on_host(&self, ms: u64, request: &Request) -> Reply {
        self.database.ask(self.mine.id(), self.host, ms, request)
    }

    /// Returns how many ms the lock is still held, as the process on the host sees it; `None` if it
    /// is free.
    fn left(&self, ms: u64) -> Option<u128> {
        match self.on_host(ms, &request(Token::random(), false)) {
            Reply::Busy { remaining } => remaining.map(|left| left.as_millis()),
            Reply::Acquired { .. } => None,
            other => panic!("{other:?}"),
        }
    }
}

fn request(token: Token, outlives_process: bool) -> Request {
    let ask = AcquireRequest::new("k".into(), token, Ttl::from_millis(1_000).unwrap(), "h".into());
    Request::Acquire(AcquireRequest { outlives_process, ..ask })
}

#[test]
fn a_lease_of_a_live_process_in_a_container_ends_with_its_ttl() {
    let machine = Machine::new();
    machine.in_container(50_000, &request(Token::random(), false));
    assert_eq!(machine.left(50_400), Some(600));
    assert_eq!(machine.left(51_000), None);
}

#[test]
fn a_lease_of_no_process_from_a_container_counts_until_its_ttl_is_over() {
    let machine = Machine::new();
    machine.in_container(50_000, &request(Token::random(), true));
    machine.database.sweep(machine.mine.id(), machine.host, 50_300);
    assert_eq!(machine.left(50_400), Some(600));
    assert_eq!(machine.left(51_000), None);
}

#[test]
fn a_lease_of_no_process_counts_though_no_live_process_knows_its_boot() {
    let (machine, container) = (Machine::new(), Uuid::new_v4());
    machine.database.ask(machine.theirs.id(), container, 50_000, &request(Token::random(), true));
    assert_eq!(machine.left(50_400), Some(600));
    assert_eq!(machine.left(51_000), None);
}

#[test]
fn a_detached_lease_ends_though_containers_come_and_go() {
    let (machine, token) = (Machine::new(), Token::random());
    let in_another =
        |ms, request: &Request| machine.database.ask(machine.theirs.id(), Uuid::new_v4(), ms, request);
    in_another(50_000, &request(token, false));
    in_another(50_000, &detach("k".into(), token, Ttl::from_millis(2_000).unwrap()));
    for ms in [50_900, 51_800] {
        let reply = in_another(ms, &request(Token::random(), false));
        assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
    }
    assert_eq!(machine.left(52_000), None);
}

#[test]
fn a_detached_lease_from_a_container_is_not_prolonged_by_a_look() {
    let (machine, token) = (Machine::new(), Token::random());
    machine.in_container(50_000, &request(token, false));
    let ttl = Ttl::from_millis(2_000).unwrap();
    machine.in_container(50_000, &detach("k".into(), token, ttl));
    for (ms, left) in [(50_500, Some(1_500)), (51_900, Some(100)), (52_000, None)] {
        assert_eq!(machine.left(ms), left, "at {ms} ms");
    }
}

#[test]
fn a_lease_from_a_container_counts_though_the_owners_files_are_gone() {
    let machine = Machine::new();
    machine.in_container(50_000, &request(Token::random(), false));
    let Machine { database, theirs, mine, host } = machine;
    std::fs::remove_dir_all(&database.owners).unwrap();
    let reply = database.ask(mine.id(), host, 50_200, &request(Token::random(), false));
    assert!(matches!(reply, Reply::Busy { .. }), "the directory is gone, not the process: {reply:?}");
    drop(theirs);
}

#[test]
fn a_lease_of_no_process_from_an_earlier_boot_has_ended() {
    let machine = Machine::new();
    let past = Uuid::new_v4();
    machine.database.ask(machine.theirs.id(), past, 50_000, &request(Token::random(), true));
    assert_eq!(machine.left(100), None);
}

/// Returns the boot ids that two processes read in one boot, if one of them may not read the id.
fn half_named() -> [(Uuid, Uuid); 2] {
    let named = Uuid::new_v4();
    [(named, Uuid::nil()), (Uuid::nil(), named)]
}

#[test]
fn a_process_that_cannot_read_the_boot_counts_leases_of_others_and_others_count_its_leases() {
    for (theirs, mine) in half_named() {
        let (database, me) = (TestDatabase::new(), Uuid::new_v4());
        // The owner's file is missing.
        granted(&database.ask(Uuid::new_v4(), theirs, 50_000, &acquire("k", 1_000)));
        assert_eq!(busy(&database.ask(me, mine, 50_400, &acquire("k", 1_000))), 600_000);
        database.sweep(me, mine, 50_400);
        assert_eq!(database.rows(), 1);
        granted(&database.ask(me, mine, 51_000, &acquire("k", 1_000)));

        let holder = database.owner();
        granted(&database.ask(holder.id(), theirs, 50_000, &acquire("l", 1_000)));
        assert_eq!(busy(&database.ask(me, mine, 50_400, &acquire("l", 1_000))), 1_000_000, "its whole ttl");
        drop(holder);
        granted(&database.ask(me, mine, 50_400, &acquire("l", 1_000)));
    }
}

#[test]
fn a_lease_of_an_earlier_boot_is_free_also_if_one_of_the_boots_has_no_name() {
    for (theirs, mine) in half_named() {
        let (database, me) = (TestDatabase::new(), Uuid::new_v4());
        granted(&database.ask(Uuid::new_v4(), theirs, 1_000_000, &acquire("k", 1_000)));
        granted(&database.ask(me, mine, 5, &acquire("k", 1_000)));
    }
}

#[test]
fn a_detached_lease_ends_in_time_though_not_all_processes_can_read_the_boot() {
    for (theirs, mine) in half_named() {
        let lease = Detached::new(theirs, 600);
        assert_eq!(lease.left(mine, 3_700, 100), Some(500));
        assert_eq!(lease.left(theirs, 3_800, 200), Some(400));
        assert_eq!(lease.left(mine, 4_200, 600), None);
        // In the next boot, the lease lives on.
        let lease = Detached::new(theirs, 600);
        assert_eq!(lease.left(mine, 5, 200), Some(600));
    }
}
