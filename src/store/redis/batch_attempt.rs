//! Reads the replies to one attempt of a batch.

use redis::{ServerError, Value};
use tokio::time::{Duration, Instant};

use super::address::RedisAddress;
use super::metered_stream::MOST_READ;
use super::outcomes::Outcomes;
use super::pipeline::Group;
use super::reader::Reader;
use super::reply;

/// How long a batch reads replies before it asks whether the store's turn is over. A batch may have
/// thousands of replies, each of which may be an error. If this is larger, other stores wait for
/// longer; if it is smaller, the client reads the clock more often.
const MOST_TIME_IN_A_ROW: Duration = Duration::from_millis(1);

/// One attempt of a batch: the groups were sent, and the server has replied.
pub struct BatchAttempt<'a> {
    pub address: &'a RedisAddress,
    /// The server's error, if it could not load the scripts.
    pub loaded: Option<ServerError>,
    /// True if the groups are not sent again.
    pub is_last: bool,
    /// True if waiters get notices on this connection.
    pub notified: bool,
}

/// What an attempt leaves to the next one.
#[derive(Default)]
pub struct NextAttempt<'a> {
    /// True if the server does not know the scripts.
    pub load: bool,
    /// The groups that the server refused as a whole, and so did not carry out.
    pub groups: Vec<Group<'a>>,
}

impl BatchAttempt<'_> {
    /// Reads the reply to each of `groups`, and adds the answers to `outcomes`. In between, lets
    /// other stores have the thread, as `reader` says.
    pub async fn read<'a>(
        &self,
        groups: Vec<Group<'a>>,
        replies: impl IntoIterator<Item = Value>,
        reader: &mut Reader,
        outcomes: &mut Outcomes,
    ) -> NextAttempt<'a> {
        let mut next = NextAttempt::default();
        reader.turn().await;
        let mut began = Instant::now();
        reader.begin(MOST_READ, began);
        for (group, reply) in groups.into_iter().zip(replies) {
            self.take(group, reply, &mut next, outcomes);
            if began.elapsed() >= MOST_TIME_IN_A_ROW {
                reader.turn().await;
                began = Instant::now();
                reader.begin(MOST_READ, began);
            }
        }
        // Don't charge the time in which the next attempt waits for the server.
        reader.stop(Instant::now());
        next
    }

    fn take<'a>(&self, group: Group<'a>, reply: Value, next: &mut NextAttempt<'a>, outcomes: &mut Outcomes) {
        match (reply::refusal(&reply), &self.loaded) {
            (Some("NOSCRIPT"), None) if !self.is_last => {
                next.load = true;
                next.groups.push(group);
            }
            // The error of loading the script says more than the error that the script is missing.
            (Some("NOSCRIPT"), Some(error)) => outcomes.refuse(self.address, &group.members, error),
            (Some("NOPERM" | "TRYAGAIN"), _) if !self.is_last && group.members.len() > 1 => {
                next.groups.extend(group.apart())
            }
            _ => reply::read(self.address, &group, reply, self.notified, outcomes),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use std::pin::pin;
    use tokio::runtime::Builder;

    use super::super::budget::Budget;
    use super::super::pipeline;
    use super::*;
    use crate::lease::Token;
    use crate::store::{Access, Request};

    #[test]
    fn a_batch_with_many_errors_lets_other_stores_have_the_thread() {
        let address = RedisAddress::parse("redis://:S3cr3t-word@host", &Access::default()).unwrap();
        let release = |index| Request::Release {
            key: format!("{index}").as_str().into(),
            token: Token::random(),
            used: None,
        };
        let batch: Vec<_> = (0..5_000).map(release).collect();
        let groups: Vec<_> = pipeline::groups(&batch, false).into_iter().flat_map(Group::apart).collect();
        let replies = groups.iter().map(|_| redis::parse_redis_value(b"-NOPERM no right to it\r\n").unwrap());
        let replies: Vec<_> = replies.collect();
        let mut outcomes = Outcomes::none(batch.len(), None);
        let mut reader = Reader::of(&Budget::new());
        let attempt = BatchAttempt { address: &address, loaded: None, is_last: true, notified: false };
        Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
            let mut read = pin!(attempt.read(groups, replies, &mut reader, &mut outcomes));
            assert!(poll!(&mut read).is_pending(), "the batch read all errors in a row");
            let next = read.await;
            assert!(next.groups.is_empty() && !next.load);
        });
        assert!(outcomes.are_whole());
    }
}
