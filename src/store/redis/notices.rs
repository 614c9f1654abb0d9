//! What the server says without being asked.

use redis::{FromRedisValue, PushInfo, PushKind};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use crate::lease::Fence;
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
        // The number, and the fence if one is told.
        (PushKind::Message, Some(said)) => {
            let said = String::from_redis_value(said).ok()?;
            let mut words = said.split(' ').map(str::parse);
            let number = words.next()?.ok()?;
            Some(Notice::Granted { number, fence: words.next().and_then(Result::ok).map(Fence) })
        }
        // Not said by the server, but by the client about it: whoever waits gets another connection by asking again.
        (PushKind::Disconnection, _) => Some(Notice::Missed),
        _ => None,
    }
}
