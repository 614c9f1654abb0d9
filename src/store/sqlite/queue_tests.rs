//! Waiters on rows at chosen instants, boots and owners.

use super::super::super::memory::LeaseTable;
use super::super::super::{Ask, Place, Source};
use super::tests::{Ledger, WALL, detach};
use super::*;
use crate::lease::{Mode, Ttl};

fn ask(key: &str, token: Token, mode: Mode, ttl: u32, number: Option<u64>) -> Request {
    let ttl = Ttl::from_millis(ttl).unwrap();
    let ask = Ask::new(key.into(), token, ttl, format!("holder of {token}").into());
    let place = number.map(|number| Place { number });
    Request::Acquire(Ask { mode, place, ..ask })
}

fn wait(key: &str, token: Token, number: u64) -> Request {
    ask(key, token, Mode::Exclusive, 60_000, Some(number))
}

fn release(key: &str, token: Token) -> Request {
    Request::Release { key: key.into(), token, used: None }
}

/// Returns a random request of the store that uses the first tokens. Another store uses the second
/// ones. An heir becomes a token of the asking store.
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
            let heir = Token::random();
            tokens.remove(fastrand::usize(..tokens.len()));
            tokens.push(heir);
            Request::Adopt {
                key: key.into(),
                token: any,
                heir,
                ttl,
                holder: "heir".into(),
                outlives_process: false,
                source: Source::Ticket { fence: Fence(1), with_ttl: false },
            }
        }
        2 if fastrand::bool() => {
            let heir = Token::random();
            Request::Move { key: key.into(), token: any, to: Token::claim(any, heir), heir }
        }
        2 => Request::Renew { key: key.into(), token, ttl, fences: fastrand::u32(..3) },
        3 => detach(key.into(), any, ttl),
        // `Told` fills in the last used fence, if there is one.
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
            Request::Acquire(Ask { fences: fastrand::u32(1..3), repairs, ..ask })
        }
    }
}

/// The fences in the answers of a store. Two stores may find out at different times that leases of
/// a key have ended, which moves the fences of all keys. So the numbers differ. Only the rank of a
/// fence among the fences of its key has to be the same.
#[derive(Default)]
struct Told {
    /// The fences of each key, in order.
    of_key: FxHashMap<Key, Vec<Fence>>,
    /// The last fence of each token.
    of_token: FxHashMap<Token, Fence>,
}

impl Told {
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
                if let Request::Acquire(Ask { token, .. }) | Request::Renew { token, .. } = request {
                    self.of_token.insert(*token, *fence);
                }
                rank(fence);
            }
            Ok(Reply::Adopted(inherited)) => {
                rank(&mut inherited.first);
                // Other keys may move the last fences of leases apart.
                inherited.last = inherited.first;
            }
            Ok(Reply::Inspected(Some(info))) => {
                info.leases.iter_mut().filter_map(|lease| lease.fence.as_mut()).for_each(rank);
            }
            _ => {}
        }
        answer
    }
}

/// Leases that were not taken up yet have no order.
fn sorted(mut answer: Answer) -> Answer {
    if let Ok(Reply::Inspected(Some(info))) = &mut answer {
        info.leases
            .sort_by_key(|lease| (lease.fence.unwrap_or(Fence::MAX), lease.holder.clone(), lease.mark));
    }
    answer
}

/// Two stores that take turns on the file, against the reference in memory.
#[test]
fn rows_answer_and_hand_on_as_the_reference_does() {
    for round in 0..60 {
        let seed = fastrand::u64(..);
        fastrand::seed(seed);
        let (ledger, mut table) = (Ledger::new(), LeaseTable::default());
        let (owners, boot) = ([ledger.owner(), ledger.owner()], Uuid::new_v4());
        let mut tokens = [(); 2].map(|()| (0..4).map(|_| Token::random()).collect::<Vec<_>>());
        let (mut told, mut told_of_rows) = (Told::default(), Told::default());
        let (mut ms, mut handed) = (0, 0);
        for step in 0..150 {
            ms += [0, 1, 7, 60, 900][fastrand::usize(..5)];
            let asks = fastrand::usize(..2);
            let mut request = || {
                let [first, second] = &mut tokens;
                any_request(if asks == 0 { [first, second] } else { [second, first] })
            };
            let mut batch: Vec<Request> = (0..fastrand::usize(1..5)).map(|_| request()).collect();
            // Each detached lease has a fence that is larger than all before.
            for (index, request) in batch.iter_mut().enumerate() {
                if let Request::Detach { fence, .. } = request {
                    *fence = Fence(WALL + 1_000_000 * (10 * step + index as u64 + 1));
                }
            }
            let answers = |told: &mut Told, carried_out: Vec<Answer>| -> Vec<Answer> {
                let both = batch.iter().zip(carried_out);
                both.map(|(request, answer)| sorted(told.ranked(request, answer))).collect()
            };
            let now = Instant::from_micros(ms * 1000);
            let asked: Vec<Request> = batch.iter().map(|request| told.request(request)).collect();
            let carried_out = asked.into_iter().map(|request| table.apply(request, now, WALL)).collect();
            let expected = answers(&mut told, carried_out);
            let owner = &owners[asks];
            let asked: Vec<Request> = batch.iter().map(|request| told_of_rows.request(request)).collect();
            let found = answers(&mut told_of_rows, ledger.turn(owner.id(), boot, ms, &asked).0);
            let same = format!("{found:?}") == format!("{expected:?}");
            assert!(same, "seed {seed} step {step}: {batch:?}\nfound    {found:?}\nexpected {expected:?}");
            handed += table.take_notices().len();
        }
        assert!(handed > 0, "round {round} handed nothing on");
        ledger.sweep(owners[0].id(), boot, ms + 10_000);
        ledger.sweep(owners[0].id(), boot, ms + 20_000);
        assert_eq!(ledger.rows(), 0, "seed {seed}");
    }
}

#[test]
fn only_the_waiter_of_this_store_is_told_and_not_if_it_knows() {
    let ledger = Ledger::new();
    let (mine, theirs, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let [a, b, c] = [(); 3].map(|()| Token::random());
    ledger.ask(mine.id(), boot, 0, &ask("k", a, Mode::Exclusive, 60_000, None));
    ledger.ask(mine.id(), boot, 1, &wait("k", b, 1));
    ledger.ask(theirs.id(), boot, 2, &wait("k", c, 2));
    assert_eq!(ledger.turn(mine.id(), boot, 3, &[release("k", a)]).1, [1]);
    assert_eq!(ledger.turn(mine.id(), boot, 4, &[wait("k", b, 1), release("k", b)]).1, [0; 0]);
    ledger.ask(mine.id(), boot, 5, &wait("k", a, 3));
    assert!(matches!(ledger.ask(theirs.id(), boot, 6, &wait("k", c, 2)), Reply::Acquired { .. }));
    let at_once = [release("k", c), wait("k", a, 3)];
    let (answers, handed) = ledger.turn(mine.id(), boot, 7, &at_once);
    assert!(matches!(answers[1], Ok(Reply::Acquired { .. })));
    assert!(handed.is_empty(), "it has taken up the lease already");
}

#[test]
fn what_a_dead_process_leaves_goes_to_the_queue_in_the_turn_that_finds_it_dead() {
    let ledger = Ledger::new();
    let (dying, other, me, boot) = (ledger.owner(), ledger.owner(), ledger.owner(), Uuid::new_v4());
    for i in 0..20 {
        let key = format!("k{i}");
        ledger.ask(dying.id(), boot, 0, &ask(&key, Token::random(), Mode::Exclusive, 60_000, None));
        // On some keys, the dead one's own waiter is first.
        if i % 3 == 0 {
            ledger.ask(dying.id(), boot, 0, &wait(&key, Token::random(), 99));
        }
        if i % 2 == 0 {
            ledger.ask(me.id(), boot, 0, &wait(&key, Token::random(), i));
        }
    }
    // It also stands before somebody at a lock of another.
    ledger.ask(other.id(), boot, 0, &ask("theirs", Token::random(), Mode::Shared { most: 9 }, 60_000, None));
    ledger.ask(dying.id(), boot, 0, &wait("theirs", Token::random(), 99));
    ledger.ask(me.id(), boot, 0, &ask("theirs", Token::random(), Mode::Shared { most: 9 }, 60_000, Some(50)));
    drop(dying);
    // To find it out it is enough to ask about one of its locks.
    let (answers, mut handed) = ledger.turn(me.id(), boot, 1, &[wait("k1", Token::random(), 60)]);
    assert!(matches!(answers[0], Ok(Reply::Acquired { .. })));
    handed.sort();
    assert_eq!(handed, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 50]);
    assert_eq!(ledger.rows(), 10 + 1 + 2, "nothing of the dead one is left");
}

#[test]
fn a_store_that_ends_hands_its_leases_on() {
    let ledger = Ledger::new();
    let (ending, me, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let [held, next] = [(); 2].map(|()| Token::random());
    ledger.ask(ending.id(), boot, 0, &ask("k", held, Mode::Exclusive, 60_000, None));
    ledger.ask(ending.id(), boot, 0, &wait("k", Token::random(), 1));
    ledger.ask(me.id(), boot, 0, &wait("k", next, 2));
    let ends = Me { owner: ending.id(), boot, kernel: &ledger.kernel, owners: &ledger.owners };
    let mut turn = Turn::new(&ledger.connection, ends, Instant::from_micros(1), WALL, true).unwrap();
    turn.retire();
    assert!(turn.finish().unwrap().handed.is_empty());
    assert_eq!(ledger.rows(), 1);
    let unasked = Request::Renew { key: "k".into(), token: next, ttl: Ttl::MIN, fences: 0 };
    assert_eq!(ledger.ask(me.id(), boot, 1, &unasked), Reply::Renewed { block: None });
}

#[test]
fn a_detached_lease_is_nobodys_until_it_is_adopted() {
    let ledger = Ledger::new();
    let (old, heir, me, boot) = (ledger.owner(), ledger.owner(), ledger.owner(), Uuid::new_v4());
    let ([token, next], ttl) = ([(); 2].map(|()| Token::random()), Ttl::from_millis(60_000).unwrap());
    for key in ["k", "lost"] {
        ledger.ask(old.id(), boot, 0, &ask(key, token, Mode::Exclusive, 60_000, None));
        ledger.ask(old.id(), boot, 1, &detach(key.into(), token, ttl));
    }
    drop(old);
    let wanted = |key| ask(key, Token::random(), Mode::Exclusive, 1_000, None);
    assert!(matches!(ledger.ask(me.id(), boot, 2, &wanted("k")), Reply::Busy { .. }));
    let adopt = Request::Adopt {
        key: "k".into(),
        token,
        heir: next,
        ttl,
        holder: "heir".into(),
        outlives_process: false,
        source: Source::Ticket { fence: Fence(1), with_ttl: false },
    };
    assert!(ledger.ask(heir.id(), boot, 3, &adopt).is_adopted());
    drop(heir);
    assert!(matches!(ledger.ask(me.id(), boot, 4, &wanted("k")), Reply::Acquired { .. }));
    assert!(matches!(ledger.ask(me.id(), boot, 5, &wanted("lost")), Reply::Busy { .. }));
}

#[test]
fn waiters_of_an_earlier_boot_are_no_more() {
    let ledger = Ledger::new();
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let (old, me) = (ledger.owner(), ledger.owner());
    ledger.ask(old.id(), before, 1_000_000, &ask("k", Token::random(), Mode::Exclusive, 60_000, None));
    ledger.ask(old.id(), before, 1_000_000, &wait("k", Token::random(), 1));
    drop(old);
    assert!(matches!(ledger.ask(me.id(), after, 1, &wait("k", Token::random(), 2)), Reply::Acquired { .. }));
    assert_eq!(ledger.rows(), 1);
}

#[test]
fn a_place_ends_by_time_though_its_process_lives_and_cannot_read_the_boot() {
    let (ledger, here) = (Ledger::new(), Uuid::new_v4());
    let (mine, theirs) = (ledger.owner(), ledger.owner());
    let (a, b, c) = (Token::random(), Token::random(), Token::random());
    ledger.ask(mine.id(), here, 0, &ask("k", a, Mode::Exclusive, 60_000, None));
    ledger.ask(theirs.id(), Uuid::nil(), 1, &wait("k", b, 1));
    // The waiter stops polling.
    let late = WAITER_LIFE.as_millis() as u64 + 1;
    for ms in [late / 2, late - 1, late] {
        ledger.ask(mine.id(), here, ms, &wait("k", c, 2));
    }
    let (_, handed) = ledger.turn(mine.id(), here, late, &[release("k", a)]);
    assert_eq!(handed, [2], "the waiter after it is next");
}

#[test]
fn a_lease_of_files_that_came_back_gets_a_fence_above_those_of_the_files_used_meanwhile() {
    let (ledger, others, boot) = (Ledger::new(), Ledger::new(), Uuid::new_v4());
    let (holder, waiter) = (ledger.owner(), ledger.owner());
    let (held, waiting) = (Token::random(), Token::random());
    let first = ask("k", held, Mode::Exclusive, 60_000, None);
    assert!(matches!(ledger.ask(holder.id(), boot, 0, &first), Reply::Acquired { .. }));
    assert!(matches!(ledger.ask(waiter.id(), boot, 1, &wait("k", waiting, 7)), Reply::Queued { .. }));
    assert_eq!(ledger.ask(holder.id(), boot, 2, &release("k", held)), Reply::Released);
    // The waiter has the lease in these files. Its store notices that they were moved away, and
    // gives up its owner. Another store grants the lock in other files.
    waiter.retire();
    let (other, again) = (others.owner(), ledger.owner());
    let now = WALL + 500_000;
    let (answers, _) = others.turn_at(
        other.id(),
        boot,
        500,
        now,
        &[ask("k", Token::random(), Mode::Exclusive, 60_000, None)],
    );
    let meanwhile = super::tests::granted(answers[0].as_ref().unwrap());
    // The files come back, and the waiter asks again.
    let (answers, _) = ledger.turn_at(again.id(), boot, 600, now + 100_000, &[wait("k", waiting, 7)]);
    let fence = super::tests::granted(answers[0].as_ref().unwrap());
    assert!(fence > meanwhile, "fence {fence:?} after {meanwhile:?}");
    // The row is this store's now: a repeated request gets the same answer.
    let (answers, _) = ledger.turn_at(again.id(), boot, 601, now + 101_000, &[wait("k", waiting, 7)]);
    assert_eq!(super::tests::granted(answers[0].as_ref().unwrap()), fence);
}
