//! The server's scripts against the contract's rules: whatever is asked, both say the same.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use leasehold::store::memory::LeaseTable;
use leasehold::store::{Ask, LockInfo, Notice, Place, Reply, Request};

use crate::ask::{Notices, all, inspect, release, run};
use crate::server::Server;

/// An answer but for which numbers the fences are, and for times: the rules' stands still.
#[derive(Debug, PartialEq)]
enum Said {
    Plainly(Reply),
    Queued(u32, bool),
    Busy,
    Acquired(u32),
    Renewed(Option<u32>),
    Held(bool, Vec<(Option<String>, bool)>, Vec<(String, bool)>),
}

/// How far apart the times of the two may be: a round takes a part of it.
const TOLERANCE: Duration = Duration::from_millis(900);

/// The times that are told, in order.
fn times(reply: &Reply) -> Vec<Duration> {
    match reply {
        Reply::Queued { remaining, .. } | Reply::Busy { remaining } => remaining.iter().copied().collect(),
        Reply::Inspected(Some(info)) => {
            let mut times: Vec<_> = info.leases.iter().filter_map(|lease| lease.remaining).collect();
            times.sort();
            times
        }
        _ => Vec::new(),
    }
}

/// What was said, and the fences in it.
fn said(reply: Reply) -> (Said, Vec<Fence>) {
    match reply {
        Reply::Acquired { fence, waiting } => (Said::Acquired(waiting), vec![fence]),
        Reply::Renewed { block } => {
            (Said::Renewed(block.map(|(_, w)| w)), block.map(|(f, _)| f).into_iter().collect())
        }
        Reply::Queued { ahead, told, .. } => (Said::Queued(ahead, told), Vec::new()),
        Reply::Busy { .. } => (Said::Busy, Vec::new()),
        Reply::Inspected(Some(LockInfo { shared, leases, waiters })) => {
            let fences = leases.iter().filter_map(|lease| lease.fence).collect();
            let mut leases: Vec<_> = leases
                .into_iter()
                .map(|l| (l.holder.map(|name| name.to_string()), l.fence.is_some()))
                .collect();
            // Among those who have not taken theirs up, there is no order.
            let taken = leases.iter().take_while(|(_, taken)| *taken).count();
            leases[taken..].sort();
            let waiters = waiters.into_iter().map(|w| (w.holder.to_string(), w.shared)).collect();
            (Said::Held(shared, leases, waiters), fences)
        }
        other => (Said::Plainly(other), Vec::new()),
    }
}

/// None that could end within a round.
fn random_ttl(random: &mut fastrand::Rng) -> Ttl {
    Ttl::from_millis(random.u32(5..100) * 1_000).unwrap()
}

fn random_request(random: &mut fastrand::Rng, key: &str, tokens: &mut [Token]) -> Request {
    // A token is of one holder, whose name does not change.
    let number = random.usize(..tokens.len());
    let token = tokens[number];
    match random.u8(..16) {
        0 if random.bool() => Request::Break { key: key.into() },
        0 => inspect(key),
        1 => {
            let heir = Token::random();
            // Otherwise the heir is not heard of again.
            if random.bool() {
                tokens[number] = heir;
            }
            let (ttl, holder) = (random_ttl(random), format!("holder {number}").into());
            Request::Adopt { key: key.into(), token, heir, ttl, holder, outlives_process: false }
        }
        2 | 3 => Request::Renew { key: key.into(), token, ttl: random_ttl(random), fences: random.u32(..3) },
        4..7 => release(key, token),
        _ => {
            let mode = match random.u8(..6) {
                0..3 => Mode::Exclusive,
                most => Mode::Shared { most: u32::from(most) - 1 },
            };
            let place = random.bool().then(|| Place { number: random.u64(..) });
            let holder = format!("holder {number}").into();
            let fences = random.u32(1..4);
            Request::Acquire(Ask {
                mode,
                place,
                fences,
                ttl: random_ttl(random),
                ..Ask::new(key.into(), token, Ttl::MIN, holder)
            })
        }
    }
}

#[test]
fn scripts_and_rules_say_the_same() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notices = Notices::of(&store);
        let seed = 20_261_121;
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..300 {
            let mut table = LeaseTable::default();
            // Keyed by lock, too: in the model, two locks may have the same fence.
            let mut fences: BTreeMap<(Key, Fence), Fence> = BTreeMap::new();
            let mut awaited: BTreeMap<u64, Key> = BTreeMap::new();
            let keys = [format!("lock:{round}"), format!("lock:{{{round}}}:b")];
            let mut tokens: Vec<_> = (0..6).map(|_| Token::random()).collect();
            let mut history = Vec::new();
            // A round is over before the least of the times in the rules.
            for _ in 0..20 {
                let count = random.usize(1..5);
                let batch: Vec<_> = (0..count)
                    .map(|_| {
                        let key = random.usize(..keys.len());
                        random_request(&mut random, &keys[key], &mut tokens)
                    })
                    .collect();
                let expected: Vec<_> = batch
                    .iter()
                    .map(|request| {
                        table
                            .apply(request.clone(), Instant::from_micros(1), 1)
                            .expect("rules have no errors")
                    })
                    .collect();
                for request in &batch {
                    if let Request::Acquire(Ask { key, place: Some(Place { number }), .. }) = request {
                        awaited.insert(*number, key.clone());
                    }
                }
                let answers = all(&store, batch.clone()).await;
                for ((request, expected), answer) in batch.into_iter().zip(expected).zip(answers) {
                    let answer = answer.expect("the server answers");
                    let key = request.key().expect("each is about one lock").clone();
                    history.push(format!("{request:?}\n    {expected:?}\n    {answer:?}"));
                    let (late, soon) = (times(&expected), times(&answer));
                    let (expected, model) = said(expected);
                    let (answer, real) = said(answer);
                    let context = || format!("seed {seed}, round {round}:\n{}", history.join("\n"));
                    assert_eq!(answer, expected, "{}", context());
                    assert_eq!(model.len(), real.len(), "{}", context());
                    assert!(late.len() == soon.len(), "{}", context());
                    for (late, soon) in late.into_iter().zip(soon) {
                        assert!(soon <= late && late - soon < TOLERANCE, "{late:?}, {soon:?}: {}", context());
                    }
                    for (model, real) in model.into_iter().zip(real) {
                        let known = *fences.entry((key.clone(), model)).or_insert(real);
                        assert_eq!(known, real, "{}", context());
                    }
                }
                for expected in table.take_notices() {
                    let Notice::Granted { number, fence } = expected else {
                        unreachable!("no notice is lost")
                    };
                    let (whose, told) = notices.granted().await;
                    if let (Some(model), Some(real)) = (fence, told) {
                        let known = fences.entry((awaited[&number].clone(), model)).or_insert(real);
                        assert_eq!(*known, real, "{}", history.join("\n"));
                    }
                    assert_eq!((whose, told.is_some()), (number, fence.is_some()), "{}", history.join("\n"));
                }
            }
            assert_eq!(notices.more(), [], "{}", history.join("\n"));
        }
    });
}
