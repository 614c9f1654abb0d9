//! Simulates the owner of one token.

use std::sync::Arc;
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use leasehold::store::{AcquireRequest, Place, Reply, Request, Source};

/// The goal of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Gets the lease.
    Acquire,
    /// Takes over the lease of another token.
    Adopt(Token),
    /// Keeps the lease until then.
    Keep { until: Instant },
    /// Releases the lease, or leaves the queue.
    Leave,
    /// Does nothing: the owner has left or died.
    Nothing,
}

pub struct Actor {
    pub token: Token,
    pub number: u64,
    pub mode: Mode,
    pub ttl: Ttl,
    pub goal: Goal,
    /// True if the actor waits in the queue.
    pub waits: bool,
    pub fences: u32,
    /// The last fence that the actor used, and the last one that it may use. `None` if it took its
    /// lease over.
    used: Option<Fence>,
    last: Option<Fence>,
    /// When its lease ends, as far as the actor knows.
    pub holds_until: Instant,
    /// How many waiters were before the actor when the store last said so while the network worked.
    pub ahead: Option<u32>,
}

/// Returns modes for the owners of one lock. Shared modes of one lock have the same limit.
pub fn modes(rng: &mut fastrand::Rng) -> Vec<Mode> {
    let few = Mode::Shared { most: rng.u32(1..4) };
    let many = Mode::Shared { most: u32::MAX };
    match rng.u8(..4) {
        0 => vec![Mode::Exclusive],
        1 => vec![few],
        2 => vec![Mode::Exclusive, many, many],
        _ => vec![Mode::Exclusive, few, few],
    }
}

impl Actor {
    pub fn new(number: u64, modes: &[Mode], goal: Goal, rng: &mut fastrand::Rng) -> Self {
        let ttl = if rng.bool() { rng.u32(10..300) } else { rng.u32(300..3_000) };
        Self {
            // The process's own generator would make the schedule impossible to repeat.
            token: Token::parse(&uuid(rng)).expect("a UUID"),
            number,
            mode: modes[rng.usize(..modes.len())],
            ttl: Ttl::from_millis(ttl).expect("in range"),
            goal,
            waits: rng.u8(..10) < 8,
            fences: if rng.u8(..4) == 0 { rng.u32(2..10) } else { 1 },
            used: None,
            last: None,
            holds_until: Instant::default(),
            ahead: None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.goal != Goal::Nothing
    }

    pub fn relies_on_lease_at(&self, now: Instant) -> bool {
        matches!(self.goal, Goal::Keep { .. }) && now < self.holds_until
    }

    /// Returns the last fence that the actor has used, if it knows.
    pub fn used(&self) -> Option<Fence> {
        self.used
    }

    /// Hands the lease on within the process if the actor has another fence for that. The lease may
    /// have ended already without the actor's knowledge.
    pub fn hand_on(&mut self) {
        if let (Goal::Keep { .. }, Some(used), Some(last)) = (self.goal, self.used, self.last)
            && used < last
        {
            self.used = Some(Fence(used.0 + 1));
        }
    }

    /// Returns the actor's next request at `now`. An actor that has kept its lease long enough
    /// gives it up.
    pub fn ask(&mut self, key: &Key, now: Instant, rng: &mut fastrand::Rng) -> Option<Request> {
        if matches!(self.goal, Goal::Keep { until } if now >= until || now >= self.holds_until) {
            self.goal = Goal::Leave;
        }
        let (key, token, ttl) = (key.clone(), self.token, self.ttl);
        let holder: Arc<str> = "actor".into();
        match self.goal {
            Goal::Acquire => {
                let place = self.waits.then_some(Place { number: self.number });
                let ask = AcquireRequest::new(key, token, ttl, holder);
                Some(Request::Acquire(AcquireRequest { mode: self.mode, fences: self.fences, place, ..ask }))
            }
            Goal::Adopt(of) => Some(Request::Adopt {
                key,
                token: of,
                adopter: token,
                ttl,
                holder,
                outlives_process: false,
                source: Source::Ticket { fence: Fence(1), with_ttl: false },
            }),
            Goal::Keep { .. } => {
                let fences = if rng.u8(..3) == 0 { rng.u32(1..20) } else { 0 };
                Some(Request::Renew { key, token, ttl, fences })
            }
            Goal::Leave => Some(Request::Release { key, token, used: self.used }),
            Goal::Nothing => None,
        }
    }

    /// Handles the reply to the request that was sent at `sent`. Returns true if the actor holds
    /// the lease from now on and did not before.
    pub fn handle(&mut self, now: Instant, sent: Instant, reply: &Reply, rng: &mut fastrand::Rng) -> bool {
        let until = sent + self.ttl.as_duration();
        match (self.goal, reply) {
            (Goal::Acquire, Reply::Acquired { fence, .. }) if now < until => {
                (self.used, self.last) = (Some(*fence), Some(fence.last_of(self.fences)));
            }
            (Goal::Acquire, Reply::Acquired { .. }) | (Goal::Adopt(_), Reply::Adopted(_)) => {}
            (Goal::Adopt(_), _) => {
                self.goal = Goal::Nothing;
                return false;
            }
            (Goal::Keep { .. }, Reply::Renewed { .. } | Reply::Acquired { .. }) => {
                // The actor goes on with the first fence of a block. The answer does not tell the
                // block's size.
                if let (Reply::Renewed { block: Some((first, _)) }, Some(used)) = (reply, self.used)
                    && *first > used
                {
                    (self.used, self.last) = (Some(*first), Some(*first));
                }
                self.holds_until = self.holds_until.max(until);
                return false;
            }
            (Goal::Keep { .. }, Reply::NotHeld(_)) | (Goal::Leave, Reply::Released | Reply::NotHeld(_)) => {
                self.goal = Goal::Nothing;
                return false;
            }
            _ => return false,
        }
        if now >= until {
            // The reply came too late: the lease has ended.
            self.goal = Goal::Leave;
            return false;
        }
        self.holds_until = until;
        self.goal = Goal::Keep { until: now + Duration::from_micros(rng.u64(1_000..800_000)) };
        true
    }
}

fn uuid(rng: &mut fastrand::Rng) -> String {
    let hex = format!("{:032x}", rng.u128(..));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
