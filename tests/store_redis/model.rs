//! Compares the server's scripts with the contract's rules: both get the same requests, and must
//! give the same answers at every instant.
//!
//! The sequences are random. A failure prints the seed; `LEASEHOLD_SEED=n cargo test --test
//! store_redis model` runs the same sequence again. A test in which time passes repeats it only if
//! the machine is as fast as it was.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use leasehold::store::memory::LeaseTable;
use leasehold::store::redis::RedisStore;
use leasehold::store::{
    Answer, Ask, Inherited, LockInfo, Notice, Place, Reply, Request, Source, WAITER_LIFE,
};
use tokio::time::{sleep, timeout};

use crate::ask::{Notices, all, inspect, release, run};
use crate::server::Server;

/// How long a notice may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests the server and the rules have to answer alike, in each test.
const REQUESTS: usize = 10_000;

/// An answer without the numbers of the fences and without the times.
#[derive(Debug, PartialEq)]
enum Said {
    Plainly(Reply),
    Queued(u32, bool),
    Busy,
    Acquired(u32),
    Renewed(Option<u32>),
    Adopted(bool, Option<Ttl>),
    Held(bool, Vec<(Option<String>, bool)>, Vec<(String, bool)>),
}

/// Returns the times in a reply, in order.
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
        Reply::Adopted(Inherited { first, mode, ttl, .. }) => {
            (Said::Adopted(mode.is_shared(), ttl), vec![first])
        }
        other => (Said::Plainly(other), Vec::new()),
    }
}

/// Returns the seed of a test: that of `LEASEHOLD_SEED`, or a random one.
fn seed() -> u64 {
    let given = std::env::var("LEASEHOLD_SEED").ok();
    given.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("LEASEHOLD_SEED is a number"))
}

fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// A lock, and the tokens that the requests for it use.
struct Lock {
    key: String,
    tokens: Vec<Token>,
    /// The range of the ttls in the requests, in ms.
    ttls: Range<u32>,
    /// Whether there are only exclusive acquires and releases of the lock.
    plain: bool,
}

impl Lock {
    fn new(key: String, tokens: usize, ttls: Range<u32>) -> Self {
        Self { key, tokens: (0..tokens).map(|_| Token::random()).collect(), ttls, plain: false }
    }

    fn random_request(&mut self, random: &mut fastrand::Rng) -> Request {
        let key: Key = self.key.as_str().into();
        let ttl = Ttl::from_millis(random.u32(self.ttls.clone())).unwrap();
        // Each token belongs to one holder, whose name does not change.
        let number = random.usize(..self.tokens.len());
        let (token, holder) = (self.tokens[number], format!("holder {number}").into());
        match if self.plain { random.u8(6..18) } else { random.u8(..18) } {
            0 if random.bool() => Request::Break { key, bars_repairs: random.bool() },
            0 => inspect(&self.key),
            1 => {
                let heir = Token::random();
                // Otherwise no later request uses the heir.
                if random.bool() {
                    self.tokens[number] = heir;
                }
                Request::Adopt {
                    key,
                    token,
                    heir,
                    ttl,
                    holder,
                    outlives_process: false,
                    source: Source::Ticket { fence: Fence(1), with_ttl: false },
                }
            }
            2 if random.bool() => {
                let heir = Token::random();
                let to = Token::claim(token, heir);
                // Half of the time, the later requests of this holder use the claim.
                if random.bool() {
                    self.tokens[number] = to;
                }
                Request::Move { key, token, to, heir }
            }
            2 | 3 => Request::Renew { key, token, ttl, fences: random.u32(..3) },
            // The caller sets the fence here, too.
            4 => Request::Detach { key, token, ttl, fence: Fence::NONE, own_ttl: ttl },
            // The caller sets the fence, because it knows the earlier fences.
            5 => Request::Accept { key, token, fence: Fence::NONE, count: random.u32(1..4) },
            6..9 => release(&self.key, token),
            _ => {
                let mode = match random.u8(..6) {
                    0..3 => Mode::Exclusive,
                    _ if self.plain => Mode::Exclusive,
                    most => Mode::Shared { most: u32::from(most) - 1 },
                };
                let place = random.bool().then(|| Place { number: random.u64(..) });
                let fences = random.u32(1..4);
                // A repair has no place of its own.
                let repairs = place.is_none() && random.bool();
                Request::Acquire(Ask { mode, place, fences, repairs, ..Ask::new(key, token, ttl, holder) })
            }
        }
    }
}

/// The rules, and what the answers of the server have shown so far.
struct Rules {
    table: LeaseTable,
    /// Maps the fences of the rules to the fences of the server. In the rules, different locks may
    /// have the same fences.
    fences: BTreeMap<(Key, Fence), Fence>,
    /// The largest fence of the rules, which have one floor for all locks.
    top: Fence,
    /// The largest fence of the server for each lock.
    tops: BTreeMap<Key, Fence>,
    /// The lock of each place in a queue.
    awaited: BTreeMap<u64, Key>,
    history: BTreeMap<Key, Vec<String>>,
    /// How far apart the times of the server and of the rules may be.
    tolerance: Duration,
}

impl Rules {
    fn new(tolerance: Duration) -> Self {
        Self {
            table: LeaseTable::default(),
            fences: BTreeMap::new(),
            top: Fence::NONE,
            tops: BTreeMap::new(),
            awaited: BTreeMap::new(),
            history: BTreeMap::new(),
            tolerance,
        }
    }

    /// Returns the request for the rules and the request for the server. `place` is the position of
    /// the request in its batch.
    fn pair(&self, place: usize, request: Request) -> (Request, Request) {
        match request {
            Request::Accept { key, token, count, .. } => {
                let (own, other) = self.fences_beyond(&key, place);
                let accept = |fence| Request::Accept { key: key.clone(), token, fence, count };
                (accept(own), accept(other))
            }
            Request::Detach { key, token, ttl, own_ttl, .. } => {
                let (own, other) = self.fences_beyond(&key, place);
                let detach = |fence| Request::Detach { key: key.clone(), token, ttl, fence, own_ttl };
                (detach(own), detach(other))
            }
            request => (request.clone(), request),
        }
    }

    /// Returns fences for the rules and for the server that are larger than all that they have
    /// reserved, or reserve in the same batch. The server's fences follow its clock. No two requests
    /// get the same fences.
    fn fences_beyond(&self, key: &Key, place: usize) -> (Fence, Fence) {
        let place = u64::try_from(place).unwrap() + 1;
        let server = self.tops.get(key).map_or_else(wall_us, |top| top.0);
        (Fence(self.top.0 + 1_000 * place), Fence(server + 10_000_000 * place))
    }

    /// Notes that the server gave the fence `server` where the rules gave `rules`. Returns false if
    /// it gave another one before.
    fn knows(&mut self, key: &Key, rules: Fence, server: Fence) -> bool {
        self.top = self.top.max(rules);
        let top = self.tops.entry(key.clone()).or_insert(server);
        *top = server.max(*top);
        *self.fences.entry((key.clone(), rules)).or_insert(server) == server
    }

    /// Returns the reply of the rules to `request` at `now`.
    fn expect(&mut self, request: &Request, now: Instant) -> Reply {
        if let Request::Acquire(Ask { key, place: Some(Place { number }), .. }) = request {
            self.awaited.insert(*number, key.clone());
        }
        let reply = self.table.apply(request.clone(), now, 1).expect("rules have no errors");
        match (request, reply) {
            // The lease was not taken up, so it has no fence.
            (Request::Move { key, token, to, heir }, Reply::Adopted(inherited))
                if [token, to, heir].iter().any(|token| self.has_no_fence(key, **token, now)) =>
            {
                Reply::Adopted(Inherited { first: Fence::NONE, last: Fence::NONE, ..inherited })
            }
            (_, reply) => reply,
        }
    }

    fn has_no_fence(&mut self, key: &Key, token: Token, now: Instant) -> bool {
        let inspected = self.table.apply(Request::Inspect { key: key.clone() }, now, 1);
        let Ok(Reply::Inspected(Some(info))) = inspected else { return false };
        info.leases.iter().any(|lease| lease.mark == Some(token.mark()) && lease.fence.is_none())
    }

    /// Compares the reply that the rules `expected` with the answer of the server.
    fn compare(
        &mut self,
        (asked, sent): (Request, Request),
        expected: Reply,
        answer: Answer,
    ) -> Result<(), String> {
        let key = asked.key().expect("each is about one lock").clone();
        let history = self.history.entry(key.clone()).or_default();
        history.push(format!("{sent:?}\n    {expected:?}\n    {answer:?}"));
        let differ = |what: &str| Err(format!("{what}:\n{}", history.join("\n")));
        let Ok(answer) = answer else { return differ("the server does not answer") };
        let (late, soon) = (times(&expected), times(&answer));
        let is_accepted = matches!(answer, Reply::Accepted | Reply::Renewed { block: None });
        let (expected, mut rules) = said(expected);
        let (answer, mut server) = said(answer);
        // A move does not give a fence to a lease that was not taken up. The server then answers
        // the fence that it would give.
        if matches!(asked, Request::Move { .. }) && rules == [Fence::NONE] {
            (rules, server) = (Vec::new(), Vec::new());
        }
        if answer != expected || rules.len() != server.len() || late.len() != soon.len() {
            return differ("the server and the rules give different answers");
        }
        if late.iter().zip(&soon).any(|(late, soon)| late.abs_diff(*soon) > self.tolerance) {
            return differ("the server and the rules give different times");
        }
        let mut pairs: Vec<_> = rules.into_iter().zip(server).collect();
        if let (
            Request::Accept { fence, .. } | Request::Detach { fence, .. },
            Request::Accept { fence: other, .. } | Request::Detach { fence: other, .. },
            true,
        ) = (&asked, &sent, is_accepted)
        {
            pairs.push((*fence, *other));
        }
        for (rules, server) in pairs {
            if !self.knows(&key, rules, server) {
                return Err(format!("they give different fences:\n{}", self.history[&key].join("\n")));
            }
        }
        Ok(())
    }

    /// Compares the notices of the rules with the notices of the server.
    async fn compare_notices(&mut self, notices: &mut Notices) -> Result<(), String> {
        let expected = self.table.take_notices();
        let mut came = BTreeMap::new();
        for count in 0..expected.len() {
            let Ok((number, fence)) = timeout(PATIENCE, notices.granted()).await else {
                return Err(format!("{count} notices came, and not {expected:?}"));
            };
            came.insert(number, fence);
        }
        for notice in expected {
            let Notice::Granted { number, fence } = notice else { unreachable!("no notice is lost") };
            let key = self.awaited[&number].clone();
            let is_same = match (fence, came.get(&number)) {
                (Some(rules), Some(Some(server))) => self.knows(&key, rules, *server),
                (fence, told) => fence.is_none() && told == Some(&None),
            };
            if !is_same {
                let told = came.get(&number);
                return Err(format!("notices {fence:?}, {told:?}:\n{}", self.history[&key].join("\n")));
            }
        }
        match notices.more()[..] {
            [] => Ok(()),
            ref more => Err(format!("the server also sends {more:?}")),
        }
    }

    /// Sends `requests` to the server, applies them to the rules at `now`, and compares both.
    async fn exchange(
        &mut self,
        store: &Rc<RedisStore>,
        notices: &mut Notices,
        requests: Vec<Request>,
        now: Instant,
    ) -> Result<(), String> {
        let pairs: Vec<_> =
            requests.into_iter().enumerate().map(|(place, request)| self.pair(place, request)).collect();
        let expected: Vec<_> = pairs.iter().map(|(asked, _)| self.expect(asked, now)).collect();
        let answers = all(store, pairs.iter().map(|(_, sent)| sent.clone()).collect()).await;
        for ((pair, expected), answer) in pairs.into_iter().zip(expected).zip(answers) {
            self.compare(pair, expected, answer)?;
        }
        self.compare_notices(notices).await
    }
}

/// Runs rounds in which no lease ends by itself. Each round is shorter than the shortest time in
/// the rules, so the clock of the rules stands still.
async fn rounds(seed: u64) -> Result<(), String> {
    let server = Server::start(&[]);
    let store = server.store();
    let mut notices = Notices::of(&store);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut count, mut round) = (0, 0);
    while count < REQUESTS {
        round += 1;
        let mut rules = Rules::new(Duration::from_millis(900));
        let mut locks = [format!("lock:{round}"), format!("lock:{{{round}}}:b")]
            .map(|key| Lock::new(key, 6, 5_000..100_000));
        for _ in 0..20 {
            let requests: Vec<_> = (0..random.usize(1..5))
                .map(|_| locks[random.usize(..2)].random_request(&mut random))
                .collect();
            count += requests.len();
            rules.exchange(&store, &mut notices, requests, Instant::from_micros(1)).await?;
        }
    }
    Ok(())
}

/// How long the server may take to carry out a request. The ends of a lease may be that far apart.
const SPREAD: Duration = Duration::from_millis(100);

/// When leases and places of one lock may end, by the clock of the rules. Some of them may have
/// ended earlier, which does no harm.
#[derive(Default)]
struct Ends(Vec<Instant>);

impl Ends {
    /// Returns whether no lease or place may end while a request is under way that is sent at
    /// `now`. What ends in the rules ends up to [`SPREAD`] later at the server, which counts in
    /// milliseconds.
    fn are_far(&self, now: Instant) -> bool {
        let margin = SPREAD + Duration::from_millis(5);
        self.0.iter().all(|end| *end > now + margin || *end + margin < now)
    }

    /// Notes the ends of the leases that exist after requests at `now`, of a new place if one was
    /// `queued`, and of the `places` of repairs.
    fn note(&mut self, rules: &mut Rules, lock: &Lock, now: Instant, queued: bool, places: Vec<Instant>) {
        self.0.retain(|end| *end + 2 * SPREAD > now);
        if let Ok(Reply::Inspected(Some(info))) = rules.table.apply(inspect(&lock.key), now, 1) {
            self.0.extend(info.leases.iter().filter_map(|lease| lease.remaining).map(|left| now + left));
        }
        if queued {
            self.0.push(now + WAITER_LIFE);
        }
        self.0.extend(places);
    }
}

/// Runs requests for many locks whose leases and waiters end by time. If a batch takes so long that
/// it is unknown what had ended by then, its answers are not compared, and the test begins again.
async fn in_time(seed: u64) -> Result<(), String> {
    let server = Server::start(&[]);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut count, mut part) = (0, 0);
    while count < REQUESTS {
        part += 1;
        let (store, mut rules) = (server.store(), Rules::new(SPREAD + Duration::from_millis(5)));
        let mut notices = Notices::of(&store);
        all(&store, vec![Request::Ping]).await;
        // Most locks get requests so seldom that waiters lose their places while the holder keeps
        // its lease.
        let is_rare = |n: usize| !n.is_multiple_of(3);
        let mut locks: Vec<_> = (0..360)
            .map(|n| {
                let key = format!("lock:{part}:{n}");
                let rare = || Lock { plain: n % 3 == 1, ..Lock::new(key.clone(), 2, 3_000..10_000) };
                let lock = if is_rare(n) { rare() } else { Lock::new(key, 4, 200..2_000) };
                (lock, Ends::default())
            })
            .collect();
        let began = std::time::Instant::now();
        let now = || Instant::from_micros(u64::try_from(began.elapsed().as_micros()).unwrap() + 1);
        'part: for _ in 0..80 {
            // Requests for the frequent locks go out together. A request for a rare lock goes out
            // alone, because the scripts have a faster path for one lock.
            let often = (0..locks.len()).filter(|n| !is_rare(*n)).collect();
            let rarely = (0..locks.len()).filter(|n| is_rare(*n) && random.u8(..30) == 0);
            let alone = rarely.flat_map(|n| [vec![n], vec![n]]).collect::<Vec<_>>();
            for group in std::iter::once(often).chain(alone) {
                let (at, mut requests, mut asked) = (now(), Vec::new(), Vec::new());
                for index in group {
                    let (lock, ends) = &mut locks[index];
                    if !ends.are_far(at) {
                        continue;
                    }
                    let most = if is_rare(index) { 1 } else { 3 };
                    let some: Vec<_> =
                        (0..random.usize(1..=most)).map(|_| lock.random_request(&mut random)).collect();
                    let places = some.iter().filter_map(|request| repaired_until(request, at)).collect();
                    asked.push((index, some.iter().any(waits), places));
                    requests.extend(some);
                }
                let sent = requests.len();
                let same = rules.exchange(&store, &mut notices, requests, at).await;
                if now().since(at) > SPREAD {
                    break 'part;
                }
                same?;
                count += sent;
                for (index, queued, places) in asked {
                    let (lock, ends) = &mut locks[index];
                    ends.note(&mut rules, lock, at, queued, places);
                }
            }
            sleep(Duration::from_millis(random.u64(30..80))).await;
        }
    }
    Ok(())
}

/// Returns whether a request asks for a place in the queue.
fn waits(request: &Request) -> bool {
    matches!(request, Request::Acquire(Ask { place: Some(_), .. }))
}

/// Returns until when a repair at `now` may have a place in the queue; `None` for other requests.
fn repaired_until(request: &Request, now: Instant) -> Option<Instant> {
    match request {
        Request::Acquire(Ask { repairs: true, ttl, .. }) => Some(now + ttl.as_duration()),
        _ => None,
    }
}

/// Runs one of the tests with a seed. A failure prints the seed.
fn check<T: Future<Output = Result<(), String>>>(test: fn(u64) -> T) {
    let seed = seed();
    if let Err(differ) = run(test(seed)) {
        panic!("{differ}\nthe failing sequence: LEASEHOLD_SEED={seed} cargo test --test store_redis model");
    }
}

#[test]
fn scripts_and_rules_say_the_same() {
    check(rounds);
}

#[test]
fn scripts_and_rules_say_the_same_as_leases_and_places_end() {
    check(in_time);
}

/// Shows that the tests find mistakes, with rules that are wrong on purpose.
#[cfg(feature = "mutants")]
mod wrong {
    use leasehold::mutants::{self, Mutant};

    use super::*;

    fn is_found<T: Future<Output = Result<(), String>>>(test: fn(u64) -> T, mutant: Mutant) {
        mutants::set(Some(mutant));
        let result = run(test(seed()));
        mutants::set(None);
        assert!(result.is_err(), "{mutant:?} is not found");
    }

    #[test]
    fn a_release_without_a_token_is_found() {
        is_found(rounds, Mutant::ReleaseWithoutToken);
        is_found(in_time, Mutant::ReleaseWithoutToken);
    }

    #[test]
    fn a_repair_without_a_place_is_found() {
        is_found(rounds, Mutant::RepairDoesNotWait);
        is_found(in_time, Mutant::RepairDoesNotWait);
    }
}
