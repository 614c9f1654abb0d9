//! What the server says without being asked.

use redis::{FromRedisValue, PushInfo, PushKind};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use crate::store::{Listener, Notice};

/// Hands on what `pushes` tell to `listener`, as long as their connection lasts.
pub fn hand_on(mut pushes: UnboundedReceiver<PushInfo>, listener: Listener) {
    spawn_local(async move {
        while let Some(push) = pushes.recv().await {
            if let Some(notice) = read(push) {
                listener(notice);
            }
        }
    });
}

fn read(push: PushInfo) -> Option<Notice> {
    match (push.kind, push.data.into_iter().nth(1)) {
        (PushKind::Message, Some(number)) => {
            String::from_redis_value(number).ok()?.parse().ok().map(Notice::Granted)
        }
        // Not said by the server, but by the client about it: whoever waits gets another connection by asking again.
        (PushKind::Disconnection, _) => Some(Notice::Missed),
        _ => None,
    }
}
