//! Keeps the adopted leases of a quorum in the order of their ends. Pure.
//!
//! A client may hold thousands of adopted leases. The coordinator asks for the next end after each
//! answer, so a search of all leases would take too long.

use std::collections::{BTreeMap, HashMap};

use crate::lease::{Instant, Token};

/// See the module.
#[derive(Default)]
pub struct AdoptedEnds {
    /// The tokens by the ends of their leases. The numbers distinguish leases that end at the same
    /// time.
    tokens: BTreeMap<(Instant, u64), Token>,
    places: HashMap<Token, (Instant, u64)>,
    /// The last number that a lease got.
    serial: u64,
}

impl AdoptedEnds {
    /// Notes that the adopted lease of `token` ends at `end`.
    pub fn set(&mut self, token: Token, end: Instant) {
        self.remove(token);
        self.serial += 1;
        self.places.insert(token, (end, self.serial));
        self.tokens.insert((end, self.serial), token);
    }

    /// Notes that the adopted lease of `token`, if there is one, ends at `end`.
    pub fn change(&mut self, token: Token, end: Instant) {
        if self.contains(token) {
            self.set(token, end);
        }
    }

    pub fn remove(&mut self, token: Token) {
        if let Some(place) = self.places.remove(&token) {
            self.tokens.remove(&place);
        }
    }

    pub fn contains(&self, token: Token) -> bool {
        self.places.contains_key(&token)
    }

    /// Returns the leases that have ended at `now`, in the order of their ends.
    pub fn ended(&self, now: Instant) -> Vec<Token> {
        self.tokens.range(..=(now, u64::MAX)).map(|(_, token)| *token).collect()
    }

    /// Returns when the next lease ends.
    pub fn next(&self) -> Option<Instant> {
        self.tokens.first_key_value().map(|((end, _), _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    #[test]
    fn leases_end_in_the_order_of_their_last_ends() {
        let (mut ends, [first, second, third]) =
            (AdoptedEnds::default(), [Token::random(), Token::random(), Token::random()]);
        ends.set(first, at(10));
        ends.set(second, at(10));
        ends.set(third, at(5));
        assert_eq!((ends.next(), ends.ended(at(4))), (Some(at(5)), vec![]));
        assert_eq!(ends.ended(at(10)), [third, first, second]);
        ends.change(third, at(20));
        ends.set(second, at(9));
        assert_eq!((ends.next(), ends.ended(at(20))), (Some(at(9)), vec![second, first, third]));
        ends.remove(second);
        ends.change(second, at(1));
        assert!(!ends.contains(second) && ends.contains(third));
        assert_eq!(ends.ended(at(99)), [first, third]);
    }
}
