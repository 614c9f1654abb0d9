//! Listening to sentinels, to hear of a failover at once.
//!
//! Without it a client goes on with a master that was deposed until that is killed, refuses a request, or hangs for a
//! while; and if it is cut off from the others, it may go on granting leases of which the new one knows nothing.
//!
//! Every sentinel of the URL is listened to, with one connection for each: only the one that leads a failover tells of its
//! beginning, and any of them may be that one.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::address::RedisAddress;
use super::super::connect;
use super::super::dial::dial;
use super::address::Sentinels;
use super::failover::{CHANNELS, Event, SWITCH};
use super::lookout::Lookout;
use super::{ANSWER, say};

/// The pause before a sentinel that was lost is connected to again, and between two questions.
const PAUSE: Duration = Duration::from_secs(1);
/// How often one that names another master than ours is asked before it is believed.
const LOOKS: u32 = 4;

/// Listens to `sentinels` for ever, and keeps `lookout` informed. Calls `switched` whenever the master is another.
pub async fn watch(sentinels: &Sentinels, lookout: Rc<Lookout>, switched: impl Fn()) {
    let follow = async |number, node| {
        let (lookout, switched) = (&*lookout, &switched);
        let sentinel =
            Sentinel { number, name: &sentinels.master, lookout, switched, heard_elected: false, looks: 0 };
        sentinel.follow(node).await;
    };
    join_all(sentinels.nodes.iter().enumerate().map(|(number, node)| follow(number, node))).await;
}

/// One sentinel, and what it has said so far.
struct Sentinel<'a, F: Fn()> {
    number: usize,
    /// What it calls our master.
    name: &'a str,
    lookout: &'a Lookout,
    switched: &'a F,
    /// Whether it was heard to be elected, and not only seen to be in a failover, which may be a try that comes to nothing.
    heard_elected: bool,
    /// How often in a row it has named another master than ours.
    looks: u32,
}

impl<F: Fn()> Sentinel<'_, F> {
    /// Listens to it for ever.
    async fn follow(mut self, node: &RedisAddress) {
        loop {
            self.listen_at(node).await;
            // What it said last is taken for true until its time is over.
            (self.heard_elected, self.looks) = (false, 0);
            sleep(PAUSE).await;
        }
    }

    /// Listens to it as long as it talks.
    async fn listen_at(&mut self, node: &RedisAddress) -> Option<()> {
        let mut stream = timeout(ANSWER, dial(node)).await.ok()?.ok()?;
        let hello = connect::words_of(&["HELLO", "3"]);
        timeout(ANSWER, say(node, &mut stream, hello)).await.ok()?.ok()?;
        let nobody =
            RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP3);
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(ANSWER))
            .set_push_sender(sender);
        let connection = timeout(ANSWER, MultiplexedConnection::new_with_config(&nobody, stream, config));
        let (connection, driver) = connection.await.ok()?.ok()?;
        tokio::select! {
            end = self.listen(connection, pushes) => end,
            () = driver => None,
        }
    }

    async fn listen(
        &mut self,
        mut connection: MultiplexedConnection,
        mut pushes: UnboundedReceiver<PushInfo>,
    ) -> Option<()> {
        connection.subscribe(SWITCH).await.ok()?;
        for channel in CHANNELS {
            // Who may not hear it hears of the switch all the same.
            let denied = connection.subscribe(channel).await;
            if denied.is_err_and(|error| error.is_io_error()) {
                return None;
            }
        }
        // What happened before that.
        let mut question = Some(Instant::now());
        loop {
            let due = question;
            let ask_at = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                push = pushes.recv() => self.take(push?),
                () = ask_at => {
                    self.ask(&mut connection).await?;
                    question = None;
                }
            }
            if question.is_none() && (self.looks > 0 || self.lookout.leads(self.number)) {
                question = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// Takes in what it says by itself.
    fn take(&mut self, push: PushInfo) {
        let PushInfo { kind: PushKind::Message, data } = push else { return };
        let mut words = data.into_iter().map_while(|word| String::from_redis_value(word).ok());
        let (Some(channel), Some(said)) = (words.next(), words.next()) else { return };
        match Event::read(&channel, &said, self.name) {
            Some(Event::UnderWay) => {
                self.heard_elected = true;
                self.lookout.note(|failover, now| failover.begun(self.number, now));
            }
            Some(Event::Aborted) => self.over(),
            Some(Event::Switched { new: (host, port), .. }) if self.lookout.is_master(&host, port) => {
                self.over();
            }
            Some(Event::Switched { old: (host, port), new }) if self.lookout.is_master(&host, port) => {
                self.switch(new);
            }
            // From one to another of which we know neither: it is late, or we are. Who is asked a few times knows.
            Some(Event::Switched { .. }) => self.looks = self.looks.max(1),
            None => {}
        }
    }

    fn over(&mut self) {
        self.heard_elected = false;
        self.lookout.note(|failover, _| failover.over(self.number));
    }

    fn switch(&mut self, (host, port): (String, u16)) {
        (self.heard_elected, self.looks) = (false, 0);
        self.lookout.switch(host, port);
        (self.switched)();
    }

    /// Asks which server is the master, and whether a failover is under way.
    async fn ask(&mut self, connection: &mut MultiplexedConnection) -> Option<()> {
        let where_is = connect::words_of(&["SENTINEL", "get-master-addr-by-name", self.name]);
        let known = connection.send_packed_command(&where_is).await.ok()?;
        let (host, port) = <(String, u16)>::from_redis_value(known).ok()?;
        let leads = self.lookout.leads(self.number);
        if !self.lookout.is_master(&host, port) {
            self.looks += 1;
            // One that led the failover knows. Another may know less than we do, and hears it from the others in a while.
            if leads || self.looks >= LOOKS {
                self.switch((host, port));
            }
            return Some(());
        }
        self.looks = 0;
        let how_is = connect::words_of(&["SENTINEL", "MASTER", self.name]);
        match is_in_failover(connection.send_packed_command(&how_is).await.ok()?, port) {
            true if leads && self.heard_elected => {
                self.lookout.note(|failover, now| failover.goes_on(self.number, now));
            }
            true if !leads => self.lookout.note(|failover, now| failover.begun(self.number, now)),
            true => {}
            false => self.over(),
        }
        Some(())
    }
}

/// Reads the reply to `SENTINEL MASTER`, names and values in turn, or a map of them: whether a failover is under way that
/// has promoted no replica yet. Once it has, the master that is told there is not the one at `port` any more.
fn is_in_failover(reply: Value, port: u16) -> bool {
    let Ok(told) = HashMap::<String, String>::from_redis_value(reply) else { return false };
    let flags = told.get("flags").map_or("", String::as_str);
    flags.split(',').any(|flag| flag == "failover_in_progress") && told.get("port") == Some(&port.to_string())
}
