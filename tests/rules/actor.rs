//! One token and what its owner does with it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use leasehold::store::{Ask, Place, Reply, Request, Source};

/// What an owner is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To hold the lease.
    Get,
    /// To take over the lease of another token.
    Inherit(Token),
    /// To keep it until then.
    Keep { until: Instant },
    /// To give up whatever it has.
    Leave,
    /// Nothing any more: it has left, or it has died.
    Nothing,
}

pub struct Actor {
    pub token: Token,
    pub number: u64,
    pub mode: Mode,
    pub ttl: Ttl,
    pub aim: Aim,
    /// Whether it stands in line.
    pub waits: bool,
    pub fences: u32,
    /// The last fence that the actor used, and the last one that it may use. `None` if it took its
    /// lease over.
    used: Option<Fence>,
    last: Option<Fence>,
    /// Until when it may believe in its lease.
    pub believes: Instant,
    /// How many were before it when it was told last, since when the network works.
    pub ahead: Option<u32>,
}

/// The modes of one lock: its owners agree on how many it bears.
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
    pub fn new(number: u64, modes: &[Mode], aim: Aim, rng: &mut fastrand::Rng) -> Self {
        let ttl = if rng.bool() { rng.u32(10..300) } else { rng.u32(300..3_000) };
        Self {
            // Not from the process's own generator: a schedule has to be repeatable.
            token: Token::parse(&uuid(rng)).expect("a UUID"),
            number,
            mode: modes[rng.usize(..modes.len())],
            ttl: Ttl::from_millis(ttl).expect("in range"),
            aim,
            waits: rng.u8(..10) < 8,
            fences: if rng.u8(..4) == 0 { rng.u32(2..10) } else { 1 },
            used: None,
            last: None,
            believes: Instant::default(),
            ahead: None,
        }
    }

    pub fn is_open(&self) -> bool {
        self.aim != Aim::Nothing
    }

    pub fn believes_at(&self, now: Instant) -> bool {
        matches!(self.aim, Aim::Keep { .. }) && now < self.believes
    }

    /// Returns the last fence that the actor has used, if it knows.
    pub fn used(&self) -> Option<Fence> {
        self.used
    }

    /// Hands the lease on within the process if the actor has another fence for that. The lease may
    /// have ended already without the actor's knowledge.
    pub fn hand_on(&mut self) {
        if let (Aim::Keep { .. }, Some(used), Some(last)) = (self.aim, self.used, self.last)
            && used < last
        {
            self.used = Some(Fence(used.0 + 1));
        }
    }

    /// What it asks now. It changes its mind by itself: `now` may end what it keeps.
    pub fn ask(&mut self, key: &Key, now: Instant, rng: &mut fastrand::Rng) -> Option<Request> {
        if matches!(self.aim, Aim::Keep { until } if now >= until || now >= self.believes) {
            self.aim = Aim::Leave;
        }
        let (key, token, ttl) = (key.clone(), self.token, self.ttl);
        let holder: Arc<str> = "actor".into();
        match self.aim {
            Aim::Get => {
                let place = self.waits.then_some(Place { number: self.number });
                let ask = Ask::new(key, token, ttl, holder);
                Some(Request::Acquire(Ask { mode: self.mode, fences: self.fences, place, ..ask }))
            }
            Aim::Inherit(of) => Some(Request::Adopt {
                key,
                token: of,
                heir: token,
                ttl,
                holder,
                outlives_process: false,
                source: Source::Ticket { fence: Fence(1), with_ttl: false },
            }),
            Aim::Keep { .. } => {
                let fences = if rng.u8(..3) == 0 { rng.u32(1..20) } else { 0 };
                Some(Request::Renew { key, token, ttl, fences })
            }
            Aim::Leave => Some(Request::Release { key, token, used: self.used }),
            Aim::Nothing => None,
        }
    }

    /// Hears the answer to what it sent at `sent`. Returns whether it holds from now on and did not before.
    pub fn hear(&mut self, now: Instant, sent: Instant, reply: &Reply, rng: &mut fastrand::Rng) -> bool {
        let until = sent + self.ttl.as_duration();
        match (self.aim, reply) {
            (Aim::Get, Reply::Acquired { fence, .. }) if now < until => {
                (self.used, self.last) = (Some(*fence), Some(fence.last_of(self.fences)));
            }
            (Aim::Get, Reply::Acquired { .. }) | (Aim::Inherit(_), Reply::Adopted(_)) => {}
            (Aim::Inherit(_), _) => {
                self.aim = Aim::Nothing;
                return false;
            }
            (Aim::Keep { .. }, Reply::Renewed { .. } | Reply::Acquired { .. }) => {
                // The actor goes on with the first fence of a block. The answer does not tell the
                // block's size.
                if let (Reply::Renewed { block: Some((first, _)) }, Some(used)) = (reply, self.used)
                    && *first > used
                {
                    (self.used, self.last) = (Some(*first), Some(*first));
                }
                self.believes = self.believes.max(until);
                return false;
            }
            (Aim::Keep { .. }, Reply::NotHeld(_)) | (Aim::Leave, Reply::Released | Reply::NotHeld(_)) => {
                self.aim = Aim::Nothing;
                return false;
            }
            _ => return false,
        }
        if now >= until {
            // It came too late to be of use.
            self.aim = Aim::Leave;
            return false;
        }
        self.believes = until;
        self.aim = Aim::Keep { until: now + Duration::from_micros(rng.u64(1_000..800_000)) };
        true
    }
}

fn uuid(rng: &mut fastrand::Rng) -> String {
    let hex = format!("{:032x}", rng.u128(..));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
