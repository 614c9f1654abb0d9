//! The server's scripts against the contract's rules: whatever is asked, both say the same, at every instant.
//!
//! The sequences are random. A failure prints the seed; `LEASEHOLD_SEED=n cargo test --test store_redis model` runs the
//! same again. Where time passes, it is the same only as far as the machine is as quick as it was.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use leasehold::store::memory::LeaseTable;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Answer, Ask, LockInfo, Notice, Place, Reply, Request, WAITER_LIFE};
use tokio::time::{sleep, timeout};

use crate::ask::{Notices, all, inspect, release, run};
use crate::server::Server;

/// How long a notice may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many requests the two have to answer alike, in each test.
const REQUESTS: usize = 10_000;

/// An answer but for which numbers the fences are, and for times.
#[derive(Debug, PartialEq)]
enum Said {
    Plainly(Reply),
    Queued(u32, bool),
    Busy,
    Acquired(u32),
    Renewed(Option<u32>),
    Held(bool, Vec<(Option<String>, bool)>, Vec<(String, bool)>),
}

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

/// The seed of a test: that of `LEASEHOLD_SEED`, or another one each time.
fn seed() -> u64 {
    let given = std::env::var("LEASEHOLD_SEED").ok();
    given.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("LEASEHOLD_SEED is a number"))
}

fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// One lock, and the tokens that are used for it.
struct Lock {
    key: String,
    tokens: Vec<Token>,
    /// The ttls that are asked for, in ms.
    ttls: Range<u32>,
    /// Whether it is only asked for, exclusively, and released.
    plain: bool,
}

impl Lock {
    fn new(key: String, tokens: usize, ttls: Range<u32>) -> Self {
        Self { key, tokens: (0..tokens).map(|_| Token::random()).collect(), ttls, plain: false }
    }

    fn random_request(&mut self, random: &mut fastrand::Rng) -> Request {
        let key: Key = self.key.as_str().into();
        let ttl = Ttl::from_millis(random.u32(self.ttls.clone())).unwrap();
        // A token is of one holder, whose name does not change.
        let number = random.usize(..self.tokens.len());
        let (token, holder) = (self.tokens[number], format!("holder {number}").into());
        match if self.plain { random.u8(6..18) } else { random.u8(..18) } {
            0 if random.bool() => Request::Break { key },
            0 => inspect(&self.key),
            1 => {
                let heir = Token::random();
                // Otherwise the heir is not heard of again.
                if random.bool() {
                    self.tokens[number] = heir;
                }
                Request::Adopt { key, token, heir, ttl, holder, outlives_process: false }
            }
            2 | 3 => Request::Renew { key, token, ttl, fences: random.u32(..3) },
            4 => Request::Detach { key, token, ttl },
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
                Request::Acquire(Ask { mode, place, fences, ..Ask::new(key, token, ttl, holder) })
            }
        }
    }
}

/// The rules, and what a server has said that does not differ from what they say.
struct Rules {
    table: LeaseTable,
    /// The fences that the server gave where the rules gave those. Fences of different locks may be the same in the rules.
    fences: BTreeMap<(Key, Fence), Fence>,
    /// The largest that the rules gave, which share one floor between all locks, and that the server gave for each.
    top: Fence,
    tops: BTreeMap<Key, Fence>,
    awaited: BTreeMap<u64, Key>,
    history: BTreeMap<Key, Vec<String>>,
    /// How far apart the times of the two may be.
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

    /// The request as the rules, and as the server are to be asked; the `place` of each in its batch is another one.
    fn pair(&self, place: usize, request: Request) -> (Request, Request) {
        match request {
            Request::Accept { key, token, count, .. } => {
                // Beyond every block of fences that either has reserved or reserves in the same batch; the server's
                // fences follow its clock. No two leases have the same.
                let place = u64::try_from(place).unwrap() + 1;
                let server = self.tops.get(&key).map_or_else(wall_us, |top| top.0);
                let accept = |fence| Request::Accept { key: key.clone(), token, fence, count };
                (accept(Fence(self.top.0 + 1_000 * place)), accept(Fence(server + 10_000_000 * place)))
            }
            request => (request.clone(), request),
        }
    }

    fn knows(&mut self, key: &Key, rules: Fence, server: Fence) -> bool {
        self.top = self.top.max(rules);
        let top = self.tops.entry(key.clone()).or_insert(server);
        *top = server.max(*top);
        *self.fences.entry((key.clone(), rules)).or_insert(server) == server
    }

    /// Asks the rules at `now`.
    fn expect(&mut self, request: &Request, now: Instant) -> Reply {
        if let Request::Acquire(Ask { key, place: Some(Place { number }), .. }) = request {
            self.awaited.insert(*number, key.clone());
        }
        self.table.apply(request.clone(), now, 1).expect("rules have no errors")
    }

    /// Compares what the rules `expected` with what the server answered.
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
        let is_accepted = answer == Reply::Accepted;
        let (expected, rules) = said(expected);
        let (answer, server) = said(answer);
        if answer != expected || rules.len() != server.len() || late.len() != soon.len() {
            return differ("they say different things");
        }
        if late.iter().zip(&soon).any(|(late, soon)| late.abs_diff(*soon) > self.tolerance) {
            return differ("they tell different times");
        }
        let mut pairs: Vec<_> = rules.into_iter().zip(server).collect();
        if let (Request::Accept { fence, .. }, Request::Accept { fence: other, .. }, true) =
            (&asked, &sent, is_accepted)
        {
            pairs.push((*fence, *other));
        }
        for (rules, server) in pairs {
            if !self.knows(&key, rules, server) {
                return Err(format!("they tell different fences:\n{}", self.history[&key].join("\n")));
            }
        }
        Ok(())
    }

    /// Compares the notices that the rules send with those that came.
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

    /// Asks both at `now` and compares what they say.
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

/// Rounds in which no lease ends by itself, each shorter than the least of the times in the rules: there the rules' time
/// stands still.
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

/// How long a request may take to be carried out, and so how far apart the ends of a lease may be.
const SPREAD: Duration = Duration::from_millis(100);

/// When leases and places of one lock may end, by the rules' clock. Those that are gone earlier do no harm.
#[derive(Default)]
struct Ends(Vec<Instant>);

impl Ends {
    /// Whether nothing may end while a request is on its way that is sent at `now`. What ends at the rules does so up to
    /// [`SPREAD`] later at the server, which counts in milliseconds.
    fn are_far(&self, now: Instant) -> bool {
        let margin = SPREAD + Duration::from_millis(5);
        self.0.iter().all(|end| *end > now + margin || *end + margin < now)
    }

    /// Takes in what there is after requests that were carried out at `now`.
    fn note(&mut self, rules: &mut Rules, lock: &Lock, now: Instant, queued: bool) {
        self.0.retain(|end| *end + 2 * SPREAD > now);
        if let Ok(Reply::Inspected(Some(info))) = rules.table.apply(inspect(&lock.key), now, 1) {
            self.0.extend(info.leases.iter().filter_map(|lease| lease.remaining).map(|left| now + left));
        }
        if queued {
            self.0.push(now + WAITER_LIFE);
        }
    }
}

/// Many locks, whose leases and waiters come to their ends. A batch that took so long that nobody knows what had ended by
/// then is not looked at, and the test begins anew.
async fn in_time(seed: u64) -> Result<(), String> {
    let server = Server::start(&[]);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut count, mut part) = (0, 0);
    while count < REQUESTS {
        part += 1;
        let (store, mut rules) = (server.store(), Rules::new(SPREAD + Duration::from_millis(5)));
        let mut notices = Notices::of(&store);
        all(&store, vec![Request::Ping]).await;
        // Most of them are asked for so seldom that waiters lose their places while the holder keeps its lease.
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
            // The others are asked for together, and each of those alone: the scripts have a quicker way for one lock.
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
                    asked.push((index, some.iter().any(waits)));
                    requests.extend(some);
                }
                let sent = requests.len();
                let same = rules.exchange(&store, &mut notices, requests, at).await;
                if now().since(at) > SPREAD {
                    break 'part;
                }
                same?;
                count += sent;
                for (index, queued) in asked {
                    let (lock, ends) = &mut locks[index];
                    ends.note(&mut rules, lock, at, queued);
                }
            }
            sleep(Duration::from_millis(random.u64(30..80))).await;
        }
    }
    Ok(())
}

/// Whether a request asks for a place in the queue.
fn waits(request: &Request) -> bool {
    matches!(request, Request::Acquire(Ask { place: Some(_), .. }))
}

/// Runs one of the tests with a seed, which a failure tells.
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

/// That the tests find something is shown by rules that are wrong.
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
}
