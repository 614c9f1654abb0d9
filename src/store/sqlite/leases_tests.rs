//! The rules on rows at chosen instants, boots and owners.

use super::super::super::Ask;
use super::super::owner::{self, Owner};
use super::super::schema;
use super::*;
use crate::lease::Ttl;

pub const WALL: u64 = 1_700_000_000_000_000;

/// A lock file in memory, with a real directory for the owners' files.
pub struct Ledger {
    pub connection: Connection,
    pub owners: std::path::PathBuf,
}

impl Ledger {
    pub fn new() -> Self {
        let owners = std::env::temp_dir().join(format!("leasehold-owners-{}", Uuid::new_v4()));
        std::fs::create_dir(&owners).unwrap();
        let connection = Connection::open_in_memory().unwrap();
        schema::prepare(&connection).unwrap();
        Self { connection, owners }
    }

    pub fn owner(&self) -> Owner {
        Owner::create(&self.owners).unwrap()
    }

    /// One transaction of one request.
    pub fn ask(&self, owner: Uuid, boot: Uuid, ms: u64, request: &Request) -> Reply {
        let (mut answers, _) = self.turn(owner, boot, ms, std::slice::from_ref(request));
        answers.pop().unwrap().unwrap()
    }

    /// One transaction. Returns the answers, and the numbers of those who were handed leases.
    pub fn turn(&self, owner: Uuid, boot: Uuid, ms: u64, batch: &[Request]) -> (Vec<Answer>, Vec<u64>) {
        let me = Me { owner, boot, owners: &self.owners };
        let mut turn = Turn::new(&self.connection, me, Instant::from_micros(ms * 1000), WALL, true).unwrap();
        let answers = turn.batch(batch).unwrap();
        let Aftermath { handed, graves } = turn.finish().unwrap();
        for (id, handle) in graves {
            owner::bury(&self.owners, id, handle);
        }
        (answers, handed.into_iter().map(|handed| handed.number).collect())
    }

    pub fn rows(&self) -> i64 {
        let rows = "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM waiters)";
        self.connection.query_row(rows, [], |row| row.get(0)).unwrap()
    }

    pub fn sweep(&self, owner: Uuid, boot: Uuid, ms: u64) {
        let me = Me { owner, boot, owners: &self.owners };
        let mut turn = Turn::new(&self.connection, me, Instant::from_micros(ms * 1000), WALL, true).unwrap();
        let mut after = Cursor::default();
        loop {
            after = turn.sweep(&after).unwrap();
            if after == Cursor::default() {
                break;
            }
        }
        turn.finish().unwrap();
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.owners);
    }
}

fn acquire(key: &str, ttl: u32) -> Request {
    let ttl = Ttl::from_millis(ttl).unwrap();
    Request::Acquire(Ask::new(key.into(), Token::random(), ttl, "h".into()))
}

fn granted(reply: &Reply) -> Fence {
    match reply {
        Reply::Acquired { fence, .. } => *fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

fn busy(reply: &Reply) -> u64 {
    match reply {
        Reply::Busy { remaining: Some(left) } => left.as_micros() as u64,
        other => panic!("expected busy, got {other:?}"),
    }
}

#[test]
fn a_lease_ends_by_the_boot_clock_to_the_microsecond_whatever_the_wall_clock_shows() {
    let ledger = Ledger::new();
    let (a, b, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let at = |owner: &Owner, us, wall| {
        let me = Me { owner: owner.id(), boot, owners: &ledger.owners };
        let mut turn = Turn::new(&ledger.connection, me, Instant::from_micros(us), wall, true).unwrap();
        let reply = turn.apply(&acquire("k", 10)).unwrap();
        turn.finish().unwrap();
        reply
    };
    let first = granted(&at(&a, 5, WALL));
    // A wall clock that jumps by a year, or back to 1970, frees nothing early and holds nothing longer.
    assert_eq!(busy(&at(&b, 10_004, WALL + 31_536_000_000_000)), 1);
    assert_eq!(busy(&at(&b, 10_004, 0)), 1);
    assert!(granted(&at(&b, 10_005, 0)) > first);
}

#[test]
fn every_lease_of_an_earlier_boot_is_free_and_fences_grow_on() {
    let ledger = Ledger::new();
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let owner = ledger.owner();
    let id = owner.id();
    let first = granted(&ledger.ask(id, before, 1_000_000, &acquire("k", 1_000_000)));
    let second = granted(&ledger.ask(id, before, 1_000_000, &acquire("other", 1_000_000)));
    assert!(second > first);
    drop(owner);
    // The machine starts again: its clock too. The files are there, but nobody has them locked.
    let me = ledger.owner();
    assert_eq!(ledger.ask(me.id(), after, 1, &Request::Inspect { key: "k".into() }), Reply::Inspected(None));
    assert!(granted(&ledger.ask(me.id(), after, 1, &acquire("k", 1_000))) > second);
    assert_eq!(ledger.rows(), 1, "the dead owner's other lease went too");
}

#[test]
fn a_lease_of_an_earlier_boot_is_free_and_swept_though_its_owners_file_is_gone() {
    let ledger = Ledger::new();
    let (before, after, me) = (Uuid::new_v4(), Uuid::new_v4(), ledger.owner());
    for key in ["a", "b"] {
        granted(&ledger.ask(Uuid::new_v4(), before, 1_000_000, &acquire(key, 1_000_000)));
    }
    granted(&ledger.ask(me.id(), after, 1, &acquire("a", 1_000)));
    assert_eq!(ledger.rows(), 2);
    ledger.sweep(me.id(), after, 2);
    assert_eq!(ledger.rows(), 1);
}

#[test]
fn what_looks_like_another_boot_is_believed_while_its_owner_lives() {
    let ledger = Ledger::new();
    let (theirs, mine) = (ledger.owner(), ledger.owner());
    let (here, there) = (Uuid::new_v4(), Uuid::new_v4());
    granted(&ledger.ask(theirs.id(), there, 50_000, &acquire("k", 1_000)));
    assert_eq!(busy(&ledger.ask(mine.id(), here, 1, &acquire("k", 1_000))), 1_000_000);
    ledger.sweep(mine.id(), here, 1);
    assert_eq!(ledger.rows(), 1);
    drop(theirs);
    granted(&ledger.ask(mine.id(), here, 1, &acquire("k", 1_000)));
}

#[test]
fn where_boots_have_no_names_a_lease_cannot_outlive_its_ttl_by_a_reboot() {
    let ledger = Ledger::new();
    let (nil, me) = (Uuid::nil(), ledger.owner());
    granted(&ledger.ask(Uuid::new_v4(), nil, 1_000_000, &acquire("k", 1_000)));
    assert_eq!(busy(&ledger.ask(me.id(), nil, 1_000_500, &acquire("k", 1_000))), 500_000);
    // More left than it ever had: the clock began anew.
    granted(&ledger.ask(me.id(), nil, 5, &acquire("k", 1_000)));
}

#[test]
fn where_boots_have_no_names_a_lease_that_was_detached_for_longer_than_its_heir_wants_is_none_of_an_earlier_one()
 {
    let ledger = Ledger::new();
    let (nil, me) = (Uuid::nil(), ledger.owner());
    let (key, token, heir) = (Key::from("k"), Token::random(), Token::random());
    let ttl = |ms| Ttl::from_millis(ms).unwrap();
    let ask = |ms, request| ledger.ask(me.id(), nil, ms, &request);
    granted(&ask(0, Request::Acquire(Ask::new(key.clone(), token, ttl(1_000), "h".into()))));
    ask(1, Request::Detach { key: key.clone(), token, ttl: ttl(60_000) });
    let adopt = Request::Adopt {
        key: key.clone(),
        token,
        heir,
        ttl: ttl(1_000),
        holder: "i".into(),
        outlives_process: false,
    };
    assert_eq!(ask(2, adopt), Reply::Adopted);
    ledger.sweep(me.id(), nil, 3);
    let renewed = ask(3, Request::Renew { key, token: heir, ttl: ttl(1_000), fences: 0 });
    assert_eq!(renewed, Reply::Renewed { block: None });
    assert_eq!(busy(&ask(4, acquire("k", 1_000))), 59_997_000);
}

#[test]
fn a_dead_owners_leases_are_free_at_once_and_a_missing_owner_is_believed() {
    let ledger = Ledger::new();
    let (dying, tidied, me) = (ledger.owner(), ledger.owner(), ledger.owner());
    let boot = Uuid::new_v4();
    for i in 0..300 {
        granted(&ledger.ask(dying.id(), boot, 0, &acquire(&format!("d{i}"), 60_000)));
    }
    granted(&ledger.ask(tidied.id(), boot, 0, &acquire("t", 60_000)));
    assert_eq!(busy(&ledger.ask(me.id(), boot, 1, &acquire("d7", 1_000))), 59_999_000);

    drop(dying);
    granted(&ledger.ask(me.id(), boot, 1, &acquire("d7", 1_000)));
    assert_eq!(ledger.rows(), 2, "all its leases are freed together");
    assert_eq!(std::fs::read_dir(&ledger.owners).unwrap().count(), 2, "and its file is gone");

    std::fs::remove_file(ledger.owners.join(tidied.id().to_string())).unwrap();
    drop(tidied);
    assert_eq!(busy(&ledger.ask(me.id(), boot, 59_999, &acquire("t", 1_000))), 1_000);
    granted(&ledger.ask(me.id(), boot, 60_000, &acquire("t", 1_000)));
}

#[test]
fn a_turn_that_may_not_write_tells_the_truth_and_changes_nothing() {
    let ledger = Ledger::new();
    let (dying, me, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    granted(&ledger.ask(dying.id(), boot, 0, &acquire("k", 60_000)));
    drop(dying);
    let reader = Me { owner: me.id(), boot, owners: &ledger.owners };
    let mut turn = Turn::new(&ledger.connection, reader, Instant::from_micros(1), WALL, false).unwrap();
    assert_eq!(turn.apply(&Request::Inspect { key: "k".into() }).unwrap(), Reply::Inspected(None));
    assert!(turn.finish().unwrap().graves.is_empty());
    assert_eq!(ledger.rows(), 1);
}

#[test]
fn the_sweep_goes_through_all_leases_and_takes_only_those_that_ran_out() {
    let ledger = Ledger::new();
    let (me, boot) = (ledger.owner(), Uuid::new_v4());
    for i in 0..1_000 {
        let ttl = if i % 10 == 0 { 60_000 } else { 10 };
        granted(&ledger.ask(me.id(), boot, 0, &acquire(&format!("k{i}"), ttl)));
    }
    ledger.sweep(me.id(), boot, 9);
    assert_eq!(ledger.rows(), 1_000);
    ledger.sweep(me.id(), boot, 10);
    assert_eq!(ledger.rows(), 100);
}

#[test]
fn an_owner_whose_file_was_lost_hands_its_lease_to_the_new_one_with_the_next_renewal() {
    let ledger = Ledger::new();
    let (old, new, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let (token, ttl) = (Token::random(), Ttl::from_millis(60_000).unwrap());
    let acquire_it = Request::Acquire(Ask::new("k".into(), token, ttl, "h".into()));
    granted(&ledger.ask(old.id(), boot, 0, &acquire_it));
    assert_eq!(
        ledger.ask(new.id(), boot, 1, &Request::Renew { key: "k".into(), token, ttl, fences: 0 }),
        Reply::Renewed { block: None }
    );
    drop(new);
    let other = ledger.owner();
    granted(&ledger.ask(other.id(), boot, 2, &acquire("k", 10)));
}
