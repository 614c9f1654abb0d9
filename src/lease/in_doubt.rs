//! Remembers the tokens whose acquire got no answer. Such a request may still arrive after the
//! lease was released, and would then get a lease that no client knows of.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

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
    /// Distinguishes tokens that are remembered until the same time.
    number: u64,
    /// For how long the lease lives from its grant on.
    life: Duration,
}

/// The tokens in doubt. No step searches all of them: a store that is away may leave thousands.
#[derive(Default)]
pub struct InDoubt {
    tokens: HashMap<Token, Doubt>,
    /// The same tokens by the times until which they are remembered.
    by_until: BTreeMap<(Instant, u64), Token>,
    /// The last number that a token got.
    last: u64,
}

impl InDoubt {
    /// Notes at `now` that an acquire with `token` got no answer. If it arrives later, the lease
    /// lives for `life` from then on.
    pub fn add(&mut self, now: Instant, token: Token, life: Duration) {
        let life = self.remove(token).map_or(life, |before| before.life.max(life));
        while let Some((_, first)) = self.by_until.first_key_value().filter(|((until, _), _)| *until <= now) {
            self.remove(*first);
        }
        if self.tokens.len() >= MOST {
            return;
        }
        self.last += 1;
        let (until, number) = (now + LONGEST_IN_DOUBT, self.last);
        self.tokens.insert(token, Doubt { until, number, life });
        self.by_until.insert((until, number), token);
    }

    /// Forgets `token`, which is being released. If it was in doubt, it has to be released more
    /// than once: then this returns how long the lease lives that the token may still get.
    pub fn settle(&mut self, now: Instant, token: Token) -> Option<Duration> {
        // Nearly always no token is in doubt.
        if self.is_empty() {
            return None;
        }
        self.remove(token).filter(|doubt| now < doubt.until).map(|doubt| doubt.life)
    }

    fn remove(&mut self, token: Token) -> Option<Doubt> {
        let doubt = self.tokens.remove(&token)?;
        self.by_until.remove(&(doubt.until, doubt.number));
        Some(doubt)
    }

    /// Returns the number of tokens that are remembered.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns true if no token is remembered.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
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

    #[test]
    fn a_token_that_is_known_is_remembered_for_longer_even_if_there_is_no_room() {
        let (mut in_doubt, token, begin) = (InDoubt::default(), Token::random(), Instant::from_micros(0));
        in_doubt.add(begin, token, 2 * LIFE);
        (1..MOST).for_each(|_| in_doubt.add(begin, Token::random(), LIFE));
        in_doubt.add(begin + LONGEST_IN_DOUBT / 2, token, LIFE);
        assert_eq!(in_doubt.len(), MOST);
        assert_eq!(in_doubt.settle(begin + LONGEST_IN_DOUBT, token), Some(2 * LIFE));
    }
}
