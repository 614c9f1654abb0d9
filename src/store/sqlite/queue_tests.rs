//! Tests waiters on rows at chosen instants, boots and owners.

use super::super::super::memory::LeaseTable;
use super::super::super::{AcquireRequest, Place, Source, WAITER_LIFE};
use super::detached_tests::detach;
use super::tests::{TestDatabase, WALL};
use super::*;
use crate::lease::{Mode, Ttl};

fn ask(key: &str, token: Token, mode: Mode, ttl: u32, number: Option<u64>) -> Request {
    let ttl = Ttl::from_millis(ttl).unwrap();
    let ask = AcquireRequest::new(key.into(), token, ttl, format!("holder of {token}").into());
    let place = number.map(|number| Place { number });
    Request::Acquire(AcquireRequest { mode, place, ..ask })
}

fn wait(key: &str, token: Token, number: u64) -> Request {
    ask(key, token, Mode::Exclusive, 60_000, Some(number))
}

fn release(key: &str, token: Token) -> Request {
    Request::Release { key: key.into(), token, used: None }
}

/// Returns a random request of the store that uses the first tokens. Another store uses the second
/// ones. An adopter becomes a token of the asking store.
fn any_request([tokens, others]: [&mut Vec<Token>; 2]) -> Request {
    let key = ["a", "b"][fastrand::usize(..2)];
    let token = *fastrand::choice(&*tokens).unwrap();
    // Only the store that a token belongs to acquires and renews with it.
    let any = *fastrand::choice([&*tokens, &*others][fastrand::usize(..2)]).unwrap();
    let ttl = Ttl::from_millis(fastrand::u32(10..400)).unwrap();
    let number = tokens.iter().position(|other| *other == token).map(|number| number as u64);
    match fastrand::u32(..20) {
        0 if fastrand::bool() => Request::Break { key: key.into(), bars_repairs: false },
        0 => Request::Inspect { key: key.into() },
        1 => {
            let adopter = Token::random();
            tokens.remove(fastrand::usize(..tokens.len()));
            tokens.push(adopter);
            Request::Adopt {
                key: key.into(),
                token: any,
                adopter,
                ttl,
                holder: "adopter".into(),
                outlives_process: false,
                source: Source::Ticket { fence: Fence(1), with_ttl: false },
            }
        }
        2 if fastrand::bool() => {
            let adopter = Token::random();
            Request::Move { key: key.into(), token: any, to: Token::claim(any, adopter), adopter, most: None }
        }
        2 => Request::Renew { key: key.into(), token, ttl, fences: fastrand::u32(..3) },
        3 => detach(key.into(), any, ttl),
        // `Notified` fills in the last used fence, if there is one.
        4..9 => {
            Request::Release { key: key.into(), token: any, used: fastrand::bool().then_some(Fence::NONE) }
        }
        _ => {
            let mode = match fastrand::u32(..3) {
                0 => Mode::Exclusive,
                _ => Mode::Shared { most: fastrand::u32(1..4) },
            };
            let place = number.filter(|_| fastrand::u32(..4) > 0);
            let Request::Acquire(ask) = ask(key, token, mode, ttl.as_millis(), place) else { unreachable!() };
            let repairs = ask.place.is_none() && fastrand::bool();
            Request::Acquire(AcquireRequest { fences: fastrand::u32(1..3), repairs, ..ask })
        }
    }
}

/// The fences in the answers of a store. Two stores may find out at different times that leases of
/// a key have ended, which moves the fences of all keys. So the numbers differ. Only the rank of a
/// fence among the fences of its key has to be the same.
#[derive(Default)]
struct Notified {
    /// The fences of each key, in order.
    of_key: HashMap<Key, Vec<Fence>>,
    /// The last fence of each token.
    of_token: HashMap<Token, Fence>,
}

impl Notified {
    /// Returns the request for that store: if the token has a fence, a release names it as the last
    /// used one.
    fn request(&self, request: &Request) -> Request {
        let mut request = request.clone();
        if let Request::Release { token, used: used @ Some(_), .. } = &mut request {
            *used = self.of_token.get(token).copied();
        }
        request
    }

    /// Returns the answer with each fence replaced by its rank among the fences of its key.
    fn ranked(&mut self, request: &Request, mut answer: Answer) -> Answer {
        let Some(key) = request.key() else { return answer };
        let of_key = self.of_key.entry(key.clone()).or_default();
        let mut rank = |fence: &mut Fence| {
            let place = of_key.binary_search(fence).unwrap_or_else(|place| {
                of_key.insert(place, *fence);
                place
            });
            *fence = Fence(place as u64);
        };
        match &mut answer {
            Ok(Reply::Acquired { fence, .. } | Reply::Renewed { block: Some((fence, _)) }) => {
                if let Request::Acquire(AcquireRequest { token, .. }) | Request::Renew { token, .. } = request
                {
                    self.of_token.insert(*token, *fence);
                }
                rank(fence);
            }
            Ok(Reply::Adopted(adopted_lease)) => {
                rank(&mut adopted_lease.first);
                rank(&mut adopted_lease.granted);
                // Other keys may move the last fences of leases apart.
                adopted_lease.last = adopted_lease.first;
            }
            Ok(Reply::Inspected(Some(info))) => {
                info.leases.iter_mut().filter_map(|lease| lease.fence.as_mut()).for_each(rank);
            }
            _ => {}
        }
        answer
    }
}

/// Sorts leases that were not taken up yet, because they are in no order.
fn sorted(mut answer: Answer) -> Answer {
    if let Ok(Reply::Inspected(Some(info))) = &mut answer {
        info.leases
            .sort_by_key(|lease| (lease.fence.unwrap_or(Fence::MAX), lease.holder.clone(), lease.mark));
    }
    answer
}

/// Compares two stores that take turns at the file with the reference in memory.
#[test]
fn rows_answer_and_hand_on_as_the_reference_does() {
    for round in 0..60 {
        let seed = fastrand::u64(..);
        fastrand::seed(seed);
        let (database, mut table) = (TestDatabase::new(), LeaseTable::default());
        let (owners, boot) = ([database.owner(), database.owner()], Uuid::new_v4());
        let mut tokens = [(); 2].map(|()| (0..4).map(|_| Token::random()).collect::<Vec<_>>());
        let (mut told, mut told_of_rows) = (Notified::default(), Notified::default());
        let (mut ms, mut handed) = (0, 0);
        for step in 0..150 {
            ms += [0, 1, 7, 60, 900][fastrand::usize(..5)];
            let asks = fastrand::usize(..2);
            let mut request = || {
                let [first, second] = &mut tokens;
                any_request(if asks == 0 { [first, second] } else { [second, first] })
            };
            let mut batch: Vec<Request> = (0..fastrand::usize(1..5)).map(|_| request()).collect();
            // Each detached lease has a fence that is larger than all earlier fences.
            for (index, request) in batch.iter_mut().enumerate() {
                if let Request::Detach { fence, .. } = request {
                    *fence = Fence(WALL + 1_000_000 * (10 * step + index as u64 + 1));
                }
            }
            let answers = |told: &mut Notified, carried_out: Vec<Answer>| -> Vec<Answer> {
                let both = batch.iter().zip(carried_out);
                both.map(|(request, answer)| sorted(told.ranked(request, answer))).collect()
            };
            let now = Instant::from_micros(ms * 1000);
            let asked: Vec<Request> = batch.iter().map(|request| told.request(request)).collect();
            let carried_out = asked.into_iter().map(|request| table.apply(request, now, WALL)).collect();
            let expected = answers(&mut told, carried_out);
            let owner = &owners[asks];
            let asked: Vec<Request> = batch.iter().map(|request| told_of_rows.request(request)).collect();
            let found = answers(&mut told_of_rows, database.transaction(owner.id(), boot, ms, &asked).0);
            let same = format!("{found:?}") == format!("{expected:?}");
            assert!(same, "seed {seed} step {step}: {batch:?}\nfound    {found:?}\nexpected {expected:?}");
            handed += table.take_notices().len();
        }
        assert!(handed > 0, "round {round} handed nothing on");
        database.sweep(owners[0].id(), boot, ms + 10_000);
        database.sweep(owners[0].id(), boot, ms + 20_000);
        assert_eq!(database.rows(), 0, "seed {seed}");
    }
}

#[test]
fn only_a_waiter_of_this_store_gets_a_notice_and_not_if_it_has_its_lease() {
    let database = TestDatabase::new();
    let (mine, theirs, boot) = (database.owner(), database.owner(), Uuid::new_v4());
    let [a, b, c] = [(); 3].map(|()| Token::random());
    database.ask(mine.id(), boot, 0, &ask("k", a, Mode::Exclusive, 60_000, None));
    database.ask(mine.id(), boot, 1, &wait("k", b, 1));
    database.ask(theirs.id(), boot, 2, &wait("k", c, 2));
    assert_eq!(database.transaction(mine.id(), boot, 3, &[release("k", a)]).1, [1]);
    assert_eq!(database.transaction(mine.id(), boot, 4, &[wait("k", b, 1), release("k", b)]).1, [0; 0]);
    database.ask(mine.id(), boot, 5, &wait("k", a, 3));
    assert!(matches!(database.ask(theirs.id(), boot, 6, &wait("k", c, 2)), Reply::Acquired { .. }));
    let at_once = [release("k", c), wait("k", a, 3)];
    let (answers, handed) = database.transaction(mine.id(), boot, 7, &at_once);
    assert!(matches!(answers[1], Ok(Reply::Acquired { .. })));
    assert!(handed.is_empty(), "the waiter has taken up the lease already");
}

#[test]
fn leases_of_a_dead_process_are_handed_on_in_the_transaction_that_finds_it_dead() {
    let database = TestDatabase::new();
    let (dying, other, me, boot) = (database.owner(), database.owner(), database.owner(), Uuid::new_v4());
    for i in 0..20 {
        let key = format!("k{i}");
        database.ask(dying.id(), boot, 0, &ask(&key, Token::random(), Mode::Exclusive, 60_000, None));
        // On some keys, a waiter of the dying process is first.
        if i % 3 == 0 {
            database.ask(dying.id(), boot, 0, &wait(&key, Token::random(), 99));
        }
        if i % 2 == 0 {
            database.ask(me.id(), boot, 0, &wait(&key, Token::random(), i));
        }
    }
    // It also waits before another waiter, at the lock of another holder.
    database.ask(
        other.id(),
        boot,
        0,
        &ask("theirs", Token::random(), Mode::Shared { most: 9 }, 60_000, None),
    );
    database.ask(dying.id(), boot, 0, &wait("theirs", Token::random(), 99));
    database.ask(
        me.id(),
        boot,
        0,
        &ask("theirs", Token::random(), Mode::Shared { most: 9 }, 60_000, Some(50)),
    );
    drop(dying);
    // A request for one of its locks is enough to find that the process is dead.
    let (answers, mut handed) = database.transaction(me.id(), boot, 1, &[wait("k1", Token::random(), 60)]);
    assert!(matches!(answers[0], Ok(Reply::Acquired { .. })));
    handed.sort();
    assert_eq!(handed, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 50]);
    assert_eq!(database.rows(), 10 + 1 + 2, "no row of the dead process is left");
}

#[test]
fn a_store_that_ends_hands_its_leases_on() {
    let database = TestDatabase::new();
    let (ending, me, boot) = (database.owner(), database.owner(), Uuid::new_v4());
    let [held, next] = [(); 2].map(|()| Token::random());
    database.ask(ending.id(), boot, 0, &ask("k", held, Mode::Exclusive, 60_000, None));
    database.ask(ending.id(), boot, 0, &wait("k", Token::random(), 1));
    database.ask(me.id(), boot, 0, &wait("k", next, 2));
    let ends = ThisStore { owner: ending.id(), boot, kernel: &database.kernel, owners: &database.owners };
    let mut transaction =
        Transaction::new(&database.connection, ends, Instant::from_micros(1), WALL, true).unwrap();
    transaction.retire();
    assert!(transaction.finish().unwrap().handed.is_empty());
    assert_eq!(database.rows(), 1);
    let unasked = Request::Renew { key: "k".into(), token: next, ttl: Ttl::MIN, fences: 0 };
    assert_eq!(database.ask(me.id(), boot, 1, &unasked), Reply::Renewed { block: None });
}

#[test]
fn a_detached_lease_belongs_to_no_process_until_it_is_adopted() {
    let database = TestDatabase::new();
    let (old, adopter, me, boot) = (database.owner(), database.owner(), database.owner(), Uuid::new_v4());
    let ([token, next], ttl) = ([(); 2].map(|()| Token::random()), Ttl::from_millis(60_000).unwrap());
    for key in ["k", "lost"] {
        database.ask(old.id(), boot, 0, &ask(key, token, Mode::Exclusive, 60_000, None));
        database.ask(old.id(), boot, 1, &detach(key.into(), token, ttl));
    }
    drop(old);
    let wanted = |key| ask(key, Token::random(), Mode::Exclusive, 1_000, None);
    assert!(matches!(database.ask(me.id(), boot, 2, &wanted("k")), Reply::Busy { .. }));
    let adopt = Request::Adopt {
        key: "k".into(),
        token,
        adopter: next,
        ttl,
        holder: "adopter".into(),
        outlives_process: false,
        source: Source::Ticket { fence: Fence(1), with_ttl: false },
    };
    assert!(database.ask(adopter.id(), boot, 3, &adopt).is_adopted());
    drop(adopter);
    assert!(matches!(database.ask(me.id(), boot, 4, &wanted("k")), Reply::Acquired { .. }));
    assert!(matches!(database.ask(me.id(), boot, 5, &wanted("lost")), Reply::Busy { .. }));
}

#[test]
fn waiters_of_an_earlier_boot_have_lost_their_places() {
    let database = TestDatabase::new();
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let (old, me) = (database.owner(), database.owner());
    database.ask(old.id(), before, 1_000_000, &ask("k", Token::random(), Mode::Exclusive, 60_000, None));
    database.ask(old.id(), before, 1_000_000, &wait("k", Token::random(), 1));
    drop(old);
    assert!(matches!(
        database.ask(me.id(), after, 1, &wait("k", Token::random(), 2)),
        Reply::Acquired { .. }
    ));
    assert_eq!(database.rows(), 1);
}

#[test]
fn a_place_ends_by_time_though_its_process_lives_and_cannot_read_the_boot() {
    let (database, here) = (TestDatabase::new(), Uuid::new_v4());
    let (mine, theirs) = (database.owner(), database.owner());
    let (a, b, c) = (Token::random(), Token::random(), Token::random());
    database.ask(mine.id(), here, 0, &ask("k", a, Mode::Exclusive, 60_000, None));
    database.ask(theirs.id(), Uuid::nil(), 1, &wait("k", b, 1));
    // The waiter stops polling.
    let late = WAITER_LIFE.as_millis() as u64 + 1;
    for ms in [late / 2, late - 1, late] {
        database.ask(mine.id(), here, ms, &wait("k", c, 2));
    }
    let (_, handed) = database.transaction(mine.id(), here, late, &[release("k", a)]);
    assert_eq!(handed, [2], "the waiter after it is next");
}

#[test]
fn a_lease_of_files_that_came_back_gets_a_fence_above_those_of_the_files_used_meanwhile() {
    let (database, others, boot) = (TestDatabase::new(), TestDatabase::new(), Uuid::new_v4());
    let (holder, waiter) = (database.owner(), database.owner());
    let (held, waiting) = (Token::random(), Token::random());
    let first = ask("k", held, Mode::Exclusive, 60_000, None);
    assert!(matches!(database.ask(holder.id(), boot, 0, &first), Reply::Acquired { .. }));
    assert!(matches!(database.ask(waiter.id(), boot, 1, &wait("k", waiting, 7)), Reply::Queued { .. }));
    assert_eq!(database.ask(holder.id(), boot, 2, &release("k", held)), Reply::Released);
    // The waiter has the lease in these files. Its store notices that they were moved away, and
    // gives up its owner. Another store grants the lock in other files.
    waiter.retire();
    let (other, again) = (others.owner(), database.owner());
    let now = WALL + 500_000;
    let (answers, _) = others.transaction_at(
        other.id(),
        boot,
        500,
        now,
        &[ask("k", Token::random(), Mode::Exclusive, 60_000, None)],
    );
    let meanwhile = super::tests::granted(answers[0].as_ref().unwrap());
    // The files come back, and the waiter asks again.
    let (answers, _) =
        database.transaction_at(again.id(), boot, 600, now + 100_000, &[wait("k", waiting, 7)]);
    let fence = super::tests::granted(answers[0].as_ref().unwrap());
    assert!(fence > meanwhile, "fence {fence:?} after {meanwhile:?}");
    // The row is this store's now: a repeated request gets the same answer.
    let (answers, _) =
        database.transaction_at(again.id(), boot, 601, now + 101_000, &[wait("k", waiting, 7)]);
    assert_eq!(super::tests::granted(answers[0].as_ref().unwrap()), fence);
}
