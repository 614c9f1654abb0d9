//! Sends requests to the server, applies them to the rules, and compares the answers.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::lease::{Fence, Instant, Key, Token};
use leasehold::store::memory::LeaseTable;
use leasehold::store::redis::RedisStore;
use leasehold::store::{AcquireRequest, AdoptedLease, Answer, Notice, Place, Reply, Request};
use tokio::time::timeout;

use super::model_reply::{split_reply, times};
use crate::ask::{Notices, all};

/// How long a notice may take.
const PATIENCE: Duration = Duration::from_secs(5);

fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// The rules, and what the answers of the server have shown so far.
pub struct Rules {
    pub table: LeaseTable,
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
    pub fn new(tolerance: Duration) -> Self {
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
                // The ttl is random: every second detachment has a fence that was given before.
                let known = self.fences.range((key.clone(), Fence::NONE)..=(key.clone(), Fence::MAX));
                let count = known.clone().count() + usize::from(own_ttl.as_millis() % 2 == 0) * 1_000_000;
                let (own, other) = known
                    .map(|((_, own), other)| (*own, *other))
                    .nth((own_ttl.as_millis() / 2) as usize % count.max(1))
                    .unwrap_or_else(|| self.fences_beyond(&key, place));
                let detach = |fence| Request::Detach { key: key.clone(), token, ttl, fence, own_ttl };
                (detach(own), detach(other))
            }
            request => (request.clone(), request),
        }
    }

    /// Returns fences for the rules and for the server that are larger than all that they have
    /// reserved, or reserve in the same batch. The server's fences follow its clock. No two
    /// requests get the same fences.
    fn fences_beyond(&self, key: &Key, place: usize) -> (Fence, Fence) {
        let place = u64::try_from(place).unwrap() + 1;
        let server = self.tops.get(key).map_or_else(wall_us, |top| top.0);
        (Fence(self.top.0 + 1_000 * place), Fence(server + 10_000_000 * place))
    }

    /// Records that the server gave the fence `server` where the rules gave `rules`. Returns false
    /// if the server gave another one before.
    fn knows(&mut self, key: &Key, rules: Fence, server: Fence) -> bool {
        self.top = self.top.max(rules);
        let top = self.tops.entry(key.clone()).or_insert(server);
        *top = server.max(*top);
        *self.fences.entry((key.clone(), rules)).or_insert(server) == server
    }

    /// Returns the reply of the rules to `request` at `now`.
    fn expect(&mut self, request: &Request, now: Instant) -> Reply {
        if let Request::Acquire(AcquireRequest { key, place: Some(Place { number }), .. }) = request {
            self.awaited.insert(*number, key.clone());
        }
        let reply = self.table.apply(request.clone(), now, 1).expect("rules have no errors");
        match (request, reply) {
            // The lease was not taken up, so it has no fence.
            (Request::Move { key, token, to, adopter, .. }, Reply::Adopted(adopted_lease))
                if [token, to, adopter].iter().any(|token| self.has_no_fence(key, **token, now)) =>
            {
                let (first, last, granted) = (Fence::NONE, Fence::NONE, Fence::NONE);
                Reply::Adopted(AdoptedLease { first, last, granted, ..adopted_lease })
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
        let (expected, mut rules) = split_reply(expected);
        let (answer, mut server) = split_reply(answer);
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
                (fence, received) => fence.is_none() && received == Some(&None),
            };
            if !is_same {
                let received = came.get(&number);
                return Err(format!("notices {fence:?}, {received:?}:\n{}", self.history[&key].join("\n")));
            }
        }
        match notices.more()[..] {
            [] => Ok(()),
            ref more => Err(format!("the server also sends {more:?}")),
        }
    }

    /// Sends `requests` to the server, applies them to the rules at `now`, and compares both.
    pub async fn exchange(
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
