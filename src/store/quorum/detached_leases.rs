//! Remembers how long the nodes keep the leases that this process has detached. The caller may end
//! before it has its ticket. Then the engine releases the lease, and a node may refuse the release.
//! Pure.

use std::collections::{HashMap, VecDeque};

use crate::lease::{Instant, Token};

/// The most leases that are remembered. If there are more, the oldest is forgotten: its caller has
/// had the most time to get the ticket. If this is smaller, a refused release of many tickets is
/// given up too early. If it is larger, a process that detaches many leases takes more memory: a
/// lease takes about 100 bytes.
const MOST: usize = 65_536;

/// See the module.
#[derive(Default)]
pub struct DetachedLeases {
    /// For each token, the nodes that may have the lease, as bits, and until when.
    leases: HashMap<Token, (u64, Instant)>,
    /// The tokens in the order of their detachments. Some of them are not in `leases` any more.
    order: VecDeque<Token>,
}

impl DetachedLeases {
    /// Notes that the `nodes` may keep the lease of `token` until that instant.
    pub fn add(&mut self, now: Instant, token: Token, nodes: u64, until: Instant) {
        while let Some(first) = self.order.front() {
            let has_ended = self.leases.get(first).is_none_or(|(_, until)| *until <= now);
            if !has_ended && self.order.len() < MOST {
                break;
            }
            self.leases.remove(first);
            self.order.pop_front();
        }
        self.leases.insert(token, (nodes, until));
        self.order.push_back(token);
    }

    /// Takes out the lease of `token`.
    pub fn take(&mut self, token: Token) -> Option<(u64, Instant)> {
        self.leases.remove(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    #[test]
    fn the_oldest_leases_and_those_that_have_ended_are_forgotten() {
        let (mut leases, first) = (DetachedLeases::default(), Token::random());
        leases.add(at(0), first, 0b011, at(50));
        assert_eq!((leases.take(first), leases.take(first)), (Some((0b011, at(50))), None));
        leases.add(at(0), first, 0b011, at(50));
        leases.add(at(50), Token::random(), 0b011, at(90));
        assert_eq!((leases.take(first), leases.order.len()), (None, 1));
        leases.add(at(50), first, 0b011, at(90));
        for _ in 0..MOST {
            leases.add(at(60), Token::random(), 0b011, at(90));
        }
        assert_eq!((leases.take(first), leases.order.len(), leases.leases.len()), (None, MOST, MOST));
    }
}
