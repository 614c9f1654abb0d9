//! Makes random requests for one lock.

use std::ops::Range;
use std::time::Duration;

use leasehold::lease::{Fence, Key, Mode, Token, Ttl};
use leasehold::store::{AcquireRequest, Place, Request, Source};

use crate::ask::{inspect, release};

/// A lock, and the tokens that the requests for it use.
pub struct Lock {
    pub key: String,
    tokens: Vec<Token>,
    /// The range of the ttls in the requests, in ms.
    ttls: Range<u32>,
    /// True if the lock has only exclusive acquires and releases.
    plain: bool,
}

impl Lock {
    pub fn new(key: String, tokens: usize, ttls: Range<u32>) -> Self {
        Self { key, tokens: (0..tokens).map(|_| Token::random()).collect(), ttls, plain: false }
    }

    /// Returns the lock with exclusive acquires and releases only, if `plain`.
    pub fn plainly(self, plain: bool) -> Self {
        Self { plain, ..self }
    }

    /// Returns a request for the lock.
    pub fn random_request(&mut self, random: &mut fastrand::Rng) -> Request {
        let key: Key = self.key.as_str().into();
        let ttl = Ttl::from_millis(random.u32(self.ttls.clone())).unwrap();
        // Each token belongs to one holder, whose name does not change.
        let number = random.usize(..self.tokens.len());
        let (token, holder) = (self.tokens[number], format!("holder {number}").into());
        match if self.plain { random.u8(6..18) } else { random.u8(..18) } {
            0 if random.bool() => Request::Break { key, bars_repairs: random.bool() },
            0 => inspect(&self.key),
            1 => {
                let adopter = Token::random();
                // Otherwise, no later request uses the adopter.
                if random.bool() {
                    self.tokens[number] = adopter;
                }
                Request::Adopt {
                    key,
                    token,
                    adopter,
                    ttl,
                    holder,
                    outlives_process: false,
                    source: Source::Ticket { fence: Fence(1), with_ttl: false },
                }
            }
            2 if random.bool() => {
                let adopter = Token::random();
                let to = Token::claim(token, adopter);
                // Half of the time, later requests of this holder use the claim.
                if random.bool() {
                    self.tokens[number] = to;
                }
                let most = (random.u8(..4) == 0).then(|| Duration::from_millis(random.u64(..5_000)));
                Request::Move { key, token, to, adopter, most }
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
                // A repair takes its place by itself.
                let repairs = place.is_none() && random.bool();
                Request::Acquire(AcquireRequest {
                    mode,
                    place,
                    fences,
                    repairs,
                    ..AcquireRequest::new(key, token, ttl, holder)
                })
            }
        }
    }
}
