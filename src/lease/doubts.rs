//! Tokens that may yet be granted something of which nobody will hear: an acquire that was not answered may still be on its way,
//! and arrive when its lease was long released.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{Instant, Token};

/// How long an acquire of which nothing was heard may take to arrive.
pub const LONGEST_DOUBT: Duration = Duration::from_secs(60);
/// The most tokens that are remembered. More are in doubt at once only under a load of which they are no great part.
const MOST: usize = 4096;

/// See the module.
#[derive(Default)]
pub struct Doubts(FxHashMap<Token, Instant>);

impl Doubts {
    /// An acquire by `token` was not answered.
    pub fn add(&mut self, now: Instant, token: Token) {
        if self.0.len() >= MOST {
            self.0.retain(|_, until| now < *until);
        }
        if self.0.len() < MOST {
            self.0.insert(token, now + LONGEST_DOUBT);
        }
    }

    /// `token` is being released. Whether that has to be done more than once.
    pub fn settle(&mut self, now: Instant, token: Token) -> bool {
        // Nearly always nothing is in doubt.
        !self.0.is_empty() && self.0.remove(&token).is_some_and(|until| now < until)
    }

    /// How many tokens are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_settled_once_and_not_for_ever() {
        let (mut doubts, [one, other]) = (Doubts::default(), [Token::random(), Token::random()]);
        let begin = Instant::from_micros(0);
        doubts.add(begin, one);
        assert!(!doubts.settle(begin, other));
        assert!(doubts.settle(begin + LONGEST_DOUBT / 2, one));
        assert!(!doubts.settle(begin + LONGEST_DOUBT / 2, one));
        doubts.add(begin, other);
        assert!(!doubts.settle(begin + LONGEST_DOUBT, other));
    }

    #[test]
    fn old_doubts_make_room_and_new_ones_do_not_pile_up() {
        let (mut doubts, begin) = (Doubts::default(), Instant::from_micros(0));
        (0..2 * MOST).for_each(|_| doubts.add(begin, Token::random()));
        assert_eq!(doubts.len(), MOST);
        let token = Token::random();
        doubts.add(begin + LONGEST_DOUBT, token);
        assert_eq!(doubts.len(), 1);
        assert!(doubts.settle(begin + LONGEST_DOUBT, token));
        assert!(doubts.is_empty());
    }
}
