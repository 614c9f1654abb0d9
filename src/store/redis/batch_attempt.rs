//! Reads the replies to one attempt of a batch.

use redis::{ServerError, Value};

use super::address::RedisAddress;
use super::outcomes::Outcomes;
use super::pace::Pace;
use super::pipeline::Group;
use super::reader::Reader;
use super::reply;

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
        let mut pace = Pace::begin(reader).await;
        for (group, reply) in groups.into_iter().zip(replies) {
            self.take(group, reply, &mut pace, &mut next, outcomes).await;
            pace.keep().await;
        }
        next
    }

    async fn take<'a>(
        &self,
        group: Group<'a>,
        reply: Value,
        pace: &mut Pace<'_>,
        next: &mut NextAttempt<'a>,
        outcomes: &mut Outcomes,
    ) {
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
            _ => reply::read(self.address, &group, reply, self.notified, pace, outcomes).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use std::pin::pin;
    use tokio::runtime::Builder;
    use tokio::time::{Duration, Instant, sleep};

    use super::super::budget::Budget;
    use super::super::pipeline;
    use super::*;
    use crate::lease::Token;
    use crate::store::{Access, Reply, Request};

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

    /// The names are not UTF-8, which takes longest to read.
    #[test]
    fn a_lock_with_many_waiters_lets_other_stores_have_the_thread() {
        let address = RedisAddress::parse("redis://host", &Access::default()).unwrap();
        let batch = [Request::Inspect { key: "k".into() }];
        let text = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let waiter = Value::Array(vec![Value::Int(1), text(b"0"), text(&[0xff; 320])]);
        let lock = vec![Value::Int(0), Value::Array(Vec::new()), Value::Array(vec![waiter; 40_000])];
        let replies = [Value::Array(vec![Value::Array(lock)])];
        let mut outcomes = Outcomes::none(1, None);
        let mut reader = Reader::of(&Budget::new());
        let attempt = BatchAttempt { address: &address, loaded: None, is_last: true, notified: false };
        Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
            let mut read =
                pin!(attempt.read(pipeline::groups(&batch, false), replies, &mut reader, &mut outcomes));
            let mut turns = 0;
            loop {
                let began = Instant::now();
                let polled = poll!(&mut read);
                turns += u32::from(began.elapsed() > Duration::from_micros(500));
                if polled.is_ready() {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
            assert!(turns > 5, "the batch read all waiters in {turns} turns");
        });
        let Some(Ok(Reply::Inspected(Some(lock)))) = &outcomes.answers[0] else { panic!("no answer") };
        assert_eq!(lock.waiters.len(), 40_000);
    }
}
