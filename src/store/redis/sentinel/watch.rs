//! Listening to sentinels, to hear of a failover at once.
//!
//! Without it a client goes on with a master that was deposed until that is killed, refuses a request, or hangs for a
//! while; and if it is cut off from the others, it may go on granting leases of which the new one knows nothing.
//!
//! Every sentinel is listened to, with one connection for each, whether the URL names it or another sentinel does: only the one
//! that leads a failover tells of its beginning, and any of them may be that one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::address::RedisAddress;
use super::super::connect;
use super::super::dial::dial;
use super::address::Sentinels;
use super::failover::{CHANNELS, Event, SWITCH};
use super::lookout::Lookout;
use super::{ANSWER, say};

/// The pause before a sentinel that was lost is connected to again, and between two questions. It doubles with each attempt
/// that fails, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before a sentinel is connected to again. A larger one lets a failover begin unheard that is led by a
/// sentinel which has just come back.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most sentinels to listen to. Sentinels remember others that are gone, until they are told to forget them.
const MOST_SENTINELS: usize = 16;
/// How often one that names another master than ours is asked before it is believed.
const LOOKS: u32 = 4;

/// Listens to `sentinels`, and to those that they know, for ever, and keeps `lookout` informed. Calls `switched` whenever the
/// master is another.
pub async fn watch(sentinels: &Sentinels, lookout: Rc<Lookout>, switched: impl Fn()) {
    let (found, mut others) = unbounded_channel();
    let name = &*sentinels.master;
    let shared = Shared { name, lookout: &lookout, switched, found, heard: RefCell::default() };
    let mut known = sentinels.nodes.clone();
    let first = known.iter().cloned().enumerate();
    let mut following: FuturesUnordered<_> =
        first.map(|(number, node)| Sentinel::new(number, &shared).follow(node)).collect();
    loop {
        tokio::select! {
            Some(node) = others.recv() => {
                if !known.contains(&node) && known.len() < MOST_SENTINELS {
                    following.push(Sentinel::new(known.len(), &shared).follow(node.clone()));
                    known.push(node);
                }
            }
            // They never end.
            Some(()) = following.next() => {}
        }
    }
}

/// What all sentinels have in common.
struct Shared<'a, F: Fn()> {
    /// What they call our master.
    name: &'a str,
    lookout: &'a Lookout,
    switched: F,
    /// Takes the addresses of further sentinels.
    found: UnboundedSender<RedisAddress>,
    /// Who is listened to, by the id that each has: one may be known by a name and by an IP address.
    heard: RefCell<HashMap<String, usize>>,
}

/// One sentinel, and what it has said so far.
struct Sentinel<'a, F: Fn()> {
    number: usize,
    shared: &'a Shared<'a, F>,
    lookout: &'a Lookout,
    name: &'a str,
    /// Whether it was heard to be elected, and not only seen to be in a failover, which may be a try that comes to nothing.
    heard_elected: bool,
    /// How often in a row it has named another master than ours.
    looks: u32,
}

impl<'a, F: Fn()> Sentinel<'a, F> {
    fn new(number: usize, shared: &'a Shared<'a, F>) -> Self {
        let Shared { lookout, name, .. } = shared;
        Self { number, shared, lookout, name, heard_elected: false, looks: 0 }
    }

    /// Listens to it for ever.
    async fn follow(mut self, node: RedisAddress) {
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            self.listen_at(&node).await;
            self.shared.heard.borrow_mut().retain(|_, number| *number != self.number);
            // What it said last is taken for true until its time is over.
            (self.heard_elected, self.looks) = (false, 0);
            pause = if began.elapsed() > LONGEST_PAUSE { PAUSE } else { pause };
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
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
            end = self.listen(node, connection, pushes) => end,
            () = driver => None,
        }
    }

    async fn listen(
        &mut self,
        node: &RedisAddress,
        mut connection: MultiplexedConnection,
        mut pushes: UnboundedReceiver<PushInfo>,
    ) -> Option<()> {
        // One that is older than 6.2 does not tell.
        if let Some(id) = question::<String>(&mut connection, &["SENTINEL", "MYID"]).await? {
            let number = *self.shared.heard.borrow_mut().entry(id).or_insert(self.number);
            if number != self.number {
                return None;
            }
        }
        connection.subscribe(SWITCH).await.ok()?;
        for channel in CHANNELS {
            // Who may not hear it hears of the switch all the same.
            let denied = connection.subscribe(channel).await;
            if denied.is_err_and(|error| error.is_io_error()) {
                return None;
            }
        }
        self.find_others(node, &mut connection).await?;
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

    /// Asks which other sentinels there are: the URL need not name all of them.
    async fn find_others(&self, node: &RedisAddress, connection: &mut MultiplexedConnection) -> Option<()> {
        let others: Option<Vec<HashMap<String, String>>> =
            question(connection, &["SENTINEL", "SENTINELS", self.name]).await?;
        for other in others.unwrap_or_default() {
            let told = |field: &str| other.get(field).map(String::as_str);
            let (Some(host), Some(Ok(port))) = (told("ip"), told("port").map(str::parse)) else { continue };
            if told("runid").is_none_or(|id| !self.shared.heard.borrow().contains_key(id)) {
                let _ = self.shared.found.send(node.at(host, port));
            }
        }
        Some(())
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
        (self.shared.switched)();
    }

    /// Asks which server is the master, and whether a failover is under way.
    async fn ask(&mut self, connection: &mut MultiplexedConnection) -> Option<()> {
        let where_is = ["SENTINEL", "get-master-addr-by-name", self.name];
        let (host, port): (String, u16) = question(connection, &where_is).await??;
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
        let master = question(connection, &["SENTINEL", "MASTER", self.name]).await?;
        match master.is_some_and(|master| is_in_failover(&master, port)) {
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

/// Reads the reply to a question to a sentinel: `Some(None)` if it does not answer that, `None` if it is gone.
async fn question<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> Option<Option<T>> {
    match connection.send_packed_command(&connect::words_of(words)).await {
        Ok(reply) => Some(T::from_redis_value(reply).ok()),
        Err(error) if error.is_io_error() || error.is_timeout() => None,
        Err(_) => Some(None),
    }
}

/// Whether what `SENTINEL MASTER` tells is a failover that has promoted no replica yet. Once it has, the master that is told
/// there is not the one at `port` any more.
fn is_in_failover(told: &HashMap<String, String>, port: u16) -> bool {
    let flags = told.get("flags").map_or("", String::as_str);
    flags.split(',').any(|flag| flag == "failover_in_progress") && told.get("port") == Some(&port.to_string())
}
