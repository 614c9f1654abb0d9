//! Being told of a failover at once.
//!
//! Without it a client goes on with a master that was deposed until that is killed, refuses a request, or hangs for a
//! while; and if it is cut off from the others, it may go on granting leases of which the new one knows nothing.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::super::address::{Endpoint, RedisAddress};
use super::super::connect;
use super::super::dial::dial;
use super::address::Sentinels;
use super::{ANSWER, say};

/// The pause before they are asked again when all have been lost.
const PAUSE: Duration = Duration::from_secs(1);
/// How often one that names another master than ours is asked again before it is believed.
const LOOKS: u32 = 4;
/// Where sentinels tell of it: the name, the old host and port, and the new ones.
const CHANNEL: &str = "+switch-master";

/// Ends when the sentinels say that the master is not at `current` any more.
pub async fn until_switched(sentinels: &Sentinels, current: &Endpoint) {
    loop {
        for node in &sentinels.nodes {
            if follow(node, &sentinels.master, current).await == Some(Switched) {
                return;
            }
        }
        sleep(PAUSE).await;
    }
}

#[derive(PartialEq)]
struct Switched;

/// Listens to one sentinel, as long as it talks.
async fn follow(node: &RedisAddress, name: &str, current: &Endpoint) -> Option<Switched> {
    let mut stream = timeout(ANSWER, dial(node)).await.ok()?.ok()?;
    let hello = connect::words_of(&["HELLO", "3"]);
    timeout(ANSWER, say(node, &mut stream, hello)).await.ok()?.ok()?;
    let nobody = RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP3);
    let (sender, pushes) = unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(Some(ANSWER))
        .set_push_sender(sender);
    let connection = timeout(ANSWER, MultiplexedConnection::new_with_config(&nobody, stream, config));
    let (connection, driver) = connection.await.ok()?.ok()?;
    tokio::select! {
        switched = listen(connection, pushes, name, current) => switched,
        () = driver => None,
    }
}

async fn listen(
    mut connection: MultiplexedConnection,
    mut pushes: UnboundedReceiver<PushInfo>,
    name: &str,
    current: &Endpoint,
) -> Option<Switched> {
    connection.subscribe(CHANNEL).await.ok()?;
    // What happened before that; unless this one knows less than we do, and is told so by the others in a while.
    let question = connect::words_of(&["SENTINEL", "get-master-addr-by-name", name]);
    for look in 1.. {
        let known = connection.send_packed_command(&question).await.ok()?;
        let (host, port) = <(String, u16)>::from_redis_value(known).ok()?;
        if !is_elsewhere(&host, port, current) {
            break;
        }
        if look == LOOKS {
            return Some(Switched);
        }
        sleep(PAUSE).await;
    }
    loop {
        let push = pushes.recv().await?;
        let (PushKind::Message, Some(said)) = (push.kind, push.data.into_iter().nth(1)) else { continue };
        let said = String::from_redis_value(said).ok()?;
        if let [of, _, _, host, port] = said.split(' ').collect::<Vec<_>>()[..]
            && of == name
            && port.parse().is_ok_and(|port| is_elsewhere(host, port, current))
        {
            return Some(Switched);
        }
    }
}

fn is_elsewhere(host: &str, port: u16, current: &Endpoint) -> bool {
    *current != Endpoint::Tcp(host.to_owned(), port)
}
