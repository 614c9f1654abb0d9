//! Turns the messages that a server pushes into notices.

use std::rc::Weak;

use redis::{PushInfo, PushKind};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use super::link::Link;
use super::pace::Pace;
use super::reader::Reader;
use super::short_text::short_text;
use crate::lease::Fence;
use crate::store::{Listener, Notice};

/// The most messages that the client takes at a time. If this is smaller, a server may send
/// messages faster than the client takes them; if it is larger, they take more memory at a time.
const MOST: usize = 4096;
/// The most bytes of a notice: it has two numbers of at most 20 digits. If this is larger, a false
/// server takes more of the engine's time; if it is smaller, the client may miss notices.
const MOST_NOTICE: usize = 64;

/// Passes the notices in `pushes`, the messages of `link`, to `listener` until the connection ends.
pub fn forward(mut pushes: UnboundedReceiver<PushInfo>, listener: Listener, link: Weak<Link>) {
    let Some(mut reader) = link.upgrade().map(|link| Reader::of(link.budget())) else { return };
    spawn_local(async move {
        let mut news = Vec::new();
        while pushes.recv_many(&mut news, MOST).await > 0 {
            // A server may send without end, and each notice may make a waiter poll.
            let mut pace = Pace::begin(&mut reader).await;
            for push in news.drain(..) {
                pace.keep().await;
                let is_over = push.kind == PushKind::SUnsubscribe;
                if let Some(notice) = read(push) {
                    listener(notice);
                }
                // Later messages do not matter: all waiters ask again, on another connection.
                if is_over {
                    return link.upgrade().iter().for_each(|link| link.give_up());
                }
            }
            if pushes.is_empty()
                && let Some(link) = link.upgrade()
            {
                link.read_all_pushes();
            }
        }
    });
}

pub(super) fn read(push: PushInfo) -> Option<Notice> {
    match (push.kind, push.data.into_iter().nth(1)) {
        // The message has the waiter's number, and perhaps a fence.
        (PushKind::Message | PushKind::SMessage, Some(said)) => {
            let said = short_text(&said, MOST_NOTICE)?;
            let mut words = said.split(' ').map(str::parse::<u64>);
            let number = words.next()?.ok()?;
            // Ignore a fence that is out of range: no later holder could get a larger one. The
            // waiter then asks for the lease.
            let fence = words
                .next()
                .and_then(Result::ok)
                .map(Fence)
                .filter(|fence| (Fence(1)..=Fence::MAX).contains(fence));
            Some(Notice::Granted { number, fence })
        }
        // This message is from redis-rs, not from the server. A waiter that asks again gets another
        // connection.
        (PushKind::Disconnection, _) => Some(Notice::Missed),
        // The slot of the channel has moved to another node.
        (PushKind::SUnsubscribe, _) => Some(Notice::Missed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn said(text: &str) -> Option<Notice> {
        let data = vec![Value::BulkString(b"channel".to_vec()), Value::BulkString(text.as_bytes().to_vec())];
        read(PushInfo { kind: PushKind::Message, data })
    }

    #[test]
    fn a_fence_out_of_range_in_a_notice_is_ignored() {
        let fence = Fence::EARLIEST_WALL_US;
        assert_eq!(
            said(&format!("7 {fence}")),
            Some(Notice::Granted { number: 7, fence: Some(Fence(fence)) })
        );
        for wrong in ["0", "-1", "9223372036854775807", "18446744073709551615", "x", ""] {
            assert_eq!(
                said(&format!("7 {wrong}")),
                Some(Notice::Granted { number: 7, fence: None }),
                "{wrong}"
            );
        }
        assert_eq!(said("-7"), None);
    }

    #[test]
    fn a_long_message_and_one_that_is_no_text_are_no_notices() {
        assert_eq!(said(&format!("7 {}", "0".repeat(MOST_NOTICE))), None);
        let data = vec![Value::Nil, Value::Array(vec![Value::Int(7); 3])];
        assert_eq!(read(PushInfo { kind: PushKind::Message, data }), None);
    }
}
