//! Remembers the tokens whose acquire got no answer. Such a request may still arrive after the
//! lease was released, and would then get a lease that no client knows of.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::{Instant, Token};

/// How long an acquire without an answer may take to arrive. If this is smaller, a lease that a
/// late request got may stay until its ttl ends. If it is larger, tokens are remembered longer.
pub const LONGEST_IN_DOUBT: Duration = Duration::from_secs(60);
/// The most tokens that are remembered. If this is larger, the list may take more memory. If it is
/// smaller, more tokens are forgotten when a busy store gives no answers.
const MOST: usize = 4096;

/// A token in doubt.
struct Doubt {
    /// The time until which the token is remembered.
    until: Instant,
    /// For how long the lease lives from its grant on.
    life: Duration,
}

/// The tokens in doubt.
#[derive(Default)]
pub struct InDoubt(FxHashMap<Token, Doubt>);

impl InDoubt {
    /// Notes at `now` that an acquire with `token` got no answer. If it arrives later, the lease
    /// lives for `life` from then on.
    pub fn add(&mut self, now: Instant, token: Token, life: Duration) {
        if self.0.len() >= MOST {
            self.0.retain(|_, doubt| now < doubt.until);
        }
        if self.0.len() < MOST {
            self.0.insert(token, Doubt { until: now + LONGEST_IN_DOUBT, life });
        }
    }

    /// Forgets `token`, which is being released. If it was in doubt, it has to be released more
    /// than once: then this returns how long a lease lives that it may still get.
    pub fn settle(&mut self, now: Instant, token: Token) -> Option<Duration> {
        // Nearly always no token is in doubt.
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&token).filter(|doubt| now < doubt.until).map(|doubt| doubt.life)
    }

    /// Returns the number of tokens that are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no token is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(30);

    #[test]
    fn a_token_is_in_doubt_until_it_is_released_or_its_time_is_over() {
        let (mut in_doubt, [one, other]) = (InDoubt::default(), [Token::random(), Token::random()]);
        let begin = Instant::from_micros(0);
        in_doubt.add(begin, one, LIFE);
        assert_eq!(in_doubt.settle(begin, other), None);
        assert_eq!(in_doubt.settle(begin + LONGEST_IN_DOUBT / 2, one), Some(LIFE));
        assert_eq!(in_doubt.settle(begin + LONGEST_IN_DOUBT / 2, one), None);
        in_doubt.add(begin, other, LIFE);
        assert_eq!(in_doubt.settle(begin + LONGEST_IN_DOUBT, other), None);
    }

    #[test]
    fn expired_tokens_make_room_and_the_number_of_tokens_is_limited() {
        let (mut in_doubt, begin) = (InDoubt::default(), Instant::from_micros(0));
        (0..2 * MOST).for_each(|_| in_doubt.add(begin, Token::random(), LIFE));
        assert_eq!(in_doubt.len(), MOST);
        let token = Token::random();
        in_doubt.add(begin + LONGEST_IN_DOUBT, token, LIFE);
        assert_eq!(in_doubt.len(), 1);
        assert_eq!(in_doubt.settle(begin + LONGEST_IN_DOUBT, token), Some(LIFE));
        assert!(in_doubt.is_empty());
    }
}
