//! Listens to one sentinel.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::super::address::{RedisAddress, named_host};
use super::super::budget::ConnectionBudget;
use super::super::connect;
use super::super::dial::dial;
use super::super::endpoint::Endpoint;
use super::super::metered_stream::{MOST_READ, MeteredStream};
use super::super::reader::Reader;
use super::failover::{CHANNELS, Event, FOUND, SWITCH};
use super::master_status::{FailoverStage, MasterStatus};
use super::master_tracker::MasterTracker;
use super::sentinel_list::FoundSentinel;
use super::sentinel_reply::{self, OtherSentinel};
use super::shared::Shared;
use super::survey::MasterClaim;
use super::{ANSWER, say};

/// How long grants wait while the client connects to a sentinel and subscribes there. If this is
/// smaller, a client on a busy machine may miss a failover that is under way. If it is larger, a
/// sentinel whose machine is gone delays the first lease of each client for longer.
const SUBSCRIPTION: Duration = Duration::from_millis(500);
/// How long the client tries to connect to a sentinel and to subscribe there. This takes up to
/// seven round trips. If this is smaller, the client never listens to a sentinel that is far away.
/// If it is larger, the client stays longer on a connection that leads nowhere.
const ATTEMPT: Duration = Duration::from_secs(3);
/// The pause between two questions to a sentinel, and the first pause before the client connects to
/// a lost sentinel again. The latter doubles with each failed attempt, up to [`LONGEST_PAUSE`]. If
/// this is smaller, the sentinels get more requests. If it is larger, the client takes longer to
/// learn that a failover has ended.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before the client connects to a lost sentinel again. If this is smaller,
/// sentinels that are gone cost more attempts. If it is larger, the client is more likely to miss
/// the beginning of a failover that is led by a sentinel which has just come back.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most bytes of a sentinel's id. An id has 40; the client ignores longer ones than this. If
/// this is larger, a false sentinel can take more memory; if it is smaller, real ids may be
/// ignored.
const MOST_ID: usize = 64;
/// How many times in a row a sentinel has to name another master than ours before the client
/// believes it. If this is smaller, a sentinel that is late sends the client back to the old
/// master. If it is larger, the client takes longer to follow a switch whose event it missed.
const LOOKS: u32 = 4;

/// Listens to one sentinel, and keeps what it has said so far.
pub struct Sentinel<'a, F: Fn()> {
    number: usize,
    shared: &'a Shared<'a, F>,
    master_tracker: &'a MasterTracker,
    name: &'a str,
    /// True if the sentinel announced its election or a later state of the failover. The flag
    /// `failover_in_progress` alone may belong to an attempt for which it finds no majority.
    heard_elected: bool,
    /// How many times in a row the sentinel has named another master than ours.
    looks: u32,
    /// The time of the last subscription. `None` if the last attempt to subscribe has failed, or if
    /// the sentinel was silent when the client asked it.
    heard_since: Option<Instant>,
}

/// A connection on which the client has subscribed to a sentinel's messages.
struct Subscription {
    connection: MultiplexedConnection,
    /// Reads from the connection and writes to it. Ends with the connection.
    driver: Pin<Box<dyn Future<Output = ()>>>,
    pushes: UnboundedReceiver<PushInfo>,
    /// Limits what the sentinel sends.
    connection_budget: Arc<ConnectionBudget>,
}

impl<'a, F: Fn()> Sentinel<'a, F> {
    /// Returns the listener of the sentinel with that number.
    pub fn new(number: usize, shared: &'a Shared<'a, F>) -> Self {
        let Shared { master_tracker, name, .. } = shared;
        Self { number, shared, master_tracker, name, heard_elected: false, looks: 0, heard_since: None }
    }

    /// Listens to the sentinel at `node`, and connects again whenever the connection is lost. Never
    /// ends.
    pub async fn follow(mut self, node: RedisAddress) {
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            self.heard_since = None;
            self.listen_at(&node).await;
            self.shared.forget_id(self.number);
            // A failover that the sentinel reported still counts until its time is over.
            (self.heard_elected, self.looks) = (false, 0);
            if self.heard_since.is_some_and(|since| since.elapsed() >= PAUSE) {
                // Most likely only the connection is gone, so the sentinel may begin a failover
                // now. The client subscribes again at once, and grants wait for that.
                self.master_tracker.survey(|survey| survey.expect_again(self.number));
                continue;
            }
            if self.heard_since.is_none() {
                self.shared.sentinel_list.borrow_mut().failed(self.number);
            }
            self.shared.give_up(self.number);
            pause = if began.elapsed() > LONGEST_PAUSE { PAUSE } else { pause };
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects to the sentinel at `node` and listens to it until the connection ends.
    async fn listen_at(&mut self, node: &RedisAddress) -> Option<()> {
        let end = Instant::now() + ATTEMPT;
        let subscription = {
            let mut subscribing = pin!(self.subscribe_at(node));
            match timeout(SUBSCRIPTION, &mut subscribing).await {
                Ok(subscription) => subscription?,
                Err(_) => {
                    // The sentinel is gone or far away, so grants no longer wait for it.
                    self.shared.give_up(self.number);
                    timeout_at(end, subscribing).await.ok()??
                }
            }
        };
        let Subscription { connection, driver, pushes, connection_budget } = subscription;
        tokio::select! {
            end = self.listen(node, connection, pushes, connection_budget) => end,
            () = driver => None,
        }
    }

    /// Connects to the sentinel at `node` and subscribes to its messages.
    async fn subscribe_at(&self, node: &RedisAddress) -> Option<Subscription> {
        let mut stream = dial(node, self.shared.budget).await.ok()?;
        let connection_budget = ConnectionBudget::of(self.shared.budget);
        say(node, &mut stream, connect::words_of(&["HELLO", "3"]), &connection_budget).await.ok()?;
        connection_budget.ended();
        let nobody =
            RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP3);
        let stream = MeteredStream::new(stream, connection_budget.clone());
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(ANSWER))
            .set_push_sender(sender);
        let connection = MultiplexedConnection::new_with_config(&nobody, stream, config);
        let (mut connection, driver) = connection.await.ok()?;
        let mut driver: Pin<Box<dyn Future<Output = ()>>> = Box::pin(driver);
        tokio::select! {
            subscribed = self.subscribe(node, &mut connection) => subscribed?,
            () = &mut driver => return None,
        }
        Some(Subscription { connection, driver, pushes, connection_budget })
    }

    async fn listen(
        &mut self,
        node: &RedisAddress,
        mut connection: MultiplexedConnection,
        mut pushes: UnboundedReceiver<PushInfo>,
        connection_budget: Arc<ConnectionBudget>,
    ) -> Option<()> {
        connection_budget.answered();
        self.heard_since = Some(Instant::now());
        self.shared.sentinel_list.borrow_mut().heard(self.number);
        // Ask the sentinel even if grants went on without it.
        self.master_tracker.survey(|survey| survey.expect_again(self.number));
        let mut question = None;
        let mut reader = Reader::of(self.shared.budget);
        loop {
            let due = question;
            let ask_at = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let is_time = tokio::select! {
                push = pushes.recv() => {
                    let push = push?;
                    // A sentinel may send messages without end.
                    reader.turn().await;
                    reader.begin(MOST_READ, Instant::now());
                    self.take(node, push);
                    reader.stop(Instant::now());
                    if pushes.is_empty() {
                        connection_budget.read_all_pushes();
                    }
                    false
                }
                () = ask_at => true,
                // Ask the sentinel what happened before the subscription.
                () = self.master_tracker.is_due(self.number) => true,
            };
            if is_time {
                question = None;
                let asked = Instant::now();
                if self.ask(&mut connection).await.is_none() {
                    // Grants wait for a new connection to the sentinel, unless the sentinel is
                    // silent.
                    self.heard_since = self.heard_since.filter(|_| asked.elapsed() < ANSWER);
                    return None;
                }
                connection_budget.answered();
            }
            let is_open = self.looks > 0 || self.master_tracker.leads(self.number);
            if question.is_none() && is_open && self.master_tracker.knows_master() {
                question = Some(Instant::now() + PAUSE);
            }
        }
    }

    /// Subscribes to the sentinel's messages, and asks it for the other sentinels.
    async fn subscribe(&self, node: &RedisAddress, connection: &mut MultiplexedConnection) -> Option<()> {
        // A sentinel before 6.2 does not know this command.
        let reply = question(connection, &["SENTINEL", "MYID"]).await?;
        if let Some(id) = reply.as_ref().and_then(sentinel_reply::text).filter(|id| id.len() <= MOST_ID) {
            let number = *self.shared.heard.borrow_mut().entry(id.to_owned()).or_insert(self.number);
            if number != self.number {
                return None;
            }
            self.master_tracker.survey(|survey| survey.identify(number, id));
        }
        let channels = [SWITCH].into_iter().chain(CHANNELS).chain([FOUND]);
        let subscribed = channels.map(|channel| {
            let mut connection = connection.clone();
            async move { connection.subscribe(channel).await }
        });
        for (place, subscribed) in join_all(subscribed).await.into_iter().enumerate() {
            // A user without the right to another channel still hears of the switch.
            if subscribed.is_err_and(|error| place == 0 || error.is_io_error()) {
                return None;
            }
        }
        self.find_others(node, connection).await
    }

    /// Asks the sentinel which others it knows: the URL need not name all of them.
    async fn find_others(&self, node: &RedisAddress, connection: &mut MultiplexedConnection) -> Option<()> {
        let reply = question(connection, &["SENTINEL", "SENTINELS", self.name]).await?;
        for OtherSentinel { host, port, id } in reply.iter().flat_map(sentinel_reply::others) {
            self.found(node, id.filter(|id| id.len() <= MOST_ID), (named_host(host), port));
        }
        Some(())
    }

    /// Lets the client listen to the sentinel at that host and port, too. The sentinel at `node`
    /// has reported it.
    fn found(&self, node: &RedisAddress, id: Option<&str>, (host, port): (String, u16)) {
        let endpoint = Endpoint::Tcp(host, port);
        // Look for a place first: making the address takes longer.
        if self.shared.has_place_for(id, &endpoint)
            && let Endpoint::Tcp(host, port) = endpoint
        {
            self.shared.admit(FoundSentinel { node: node.at(&host, port), id: id.map(str::to_owned) });
        }
    }

    /// Takes in a message that the sentinel published.
    fn take(&mut self, node: &RedisAddress, push: PushInfo) {
        let PushInfo { kind: PushKind::Message, data } = push else { return };
        let [channel, said, ..] = &data[..] else { return };
        let (Some(channel), Some(said)) = (sentinel_reply::text(channel), sentinel_reply::text(said)) else {
            return;
        };
        match Event::read(channel, said, self.name) {
            Some(Event::UnderWay) => {
                self.heard_elected = true;
                self.master_tracker.note(|failover, now| failover.begun(self.number, now));
            }
            Some(Event::Aborted) => self.over(),
            Some(Event::Found { id, at }) if id.len() <= MOST_ID => self.found(node, Some(&id), at),
            Some(Event::Switched { new: (host, port), .. }) if self.master_tracker.is_master(&host, port) => {
                self.over();
            }
            Some(Event::Switched { old: (host, port), new })
                if self.master_tracker.is_master(&host, port) =>
            {
                self.switch(new, None);
            }
            // Our master is neither the old nor the new one. Either the message is late or our
            // knowledge is. Ask this sentinel a few times which server is the master.
            Some(Event::Switched { .. }) => self.looks = self.looks.max(1),
            Some(Event::Found { .. }) | None => {}
        }
    }

    /// Notes that this sentinel leads no failover.
    fn over(&mut self) {
        self.heard_elected = false;
        self.master_tracker.note(|failover, _| failover.over(self.number));
    }

    /// Notes that the master is at `new` from now on. `epoch` is the epoch in which this server
    /// became the master, if known.
    fn switch(&mut self, new: (String, u16), epoch: Option<u64>) {
        (self.heard_elected, self.looks) = (false, 0);
        self.shared.switch(new, epoch);
    }

    /// Switches to the master that the sentinels name, if that one is newer than ours.
    fn follow_newer(&mut self) {
        if self.shared.follow_newer() {
            (self.heard_elected, self.looks) = (false, 0);
        }
    }

    /// Asks the sentinel which server is the master, and whether a failover is under way.
    async fn ask(&mut self, connection: &mut MultiplexedConnection) -> Option<()> {
        let mut another = connection.clone();
        let [details, where_is] =
            [["SENTINEL", "MASTER", self.name], ["SENTINEL", "get-master-addr-by-name", self.name]];
        // Send the requests in this order. If the sentinel promotes a replica in between, the old
        // master must not get the new epoch.
        let (details, master) =
            futures_util::join!(question(connection, &details), question(&mut another, &where_is));
        let (master, details) = (master??, details?);
        let (host, port) = sentinel_reply::place(&master)?;
        let MasterStatus { master, epoch, stage } =
            MasterStatus::read((host, port.parse().ok()?), details.as_ref());
        let is_ours = self.master_tracker.is_master(&master.0, master.1);
        let leads = self.master_tracker.leads(self.number);
        if is_ours {
            self.looks = 0;
            self.heard_elected |= stage == FailoverStage::Elected;
            match stage {
                FailoverStage::None => self.over(),
                _ if !leads => self.master_tracker.note(|failover, now| failover.begun(self.number, now)),
                _ if self.heard_elected => {
                    self.master_tracker.note(|failover, now| failover.goes_on(self.number, now));
                }
                _ => {}
            }
        }
        let claim = epoch.map(|epoch| MasterClaim { master: master.clone(), epoch });
        self.master_tracker.survey(|survey| survey.answered(self.number, claim, is_ours));
        self.follow_newer();
        if is_ours || self.master_tracker.is_master(&master.0, master.1) {
            return Some(());
        }
        self.looks += 1;
        // The sentinel that led the failover knows the new master. Another sentinel may know less
        // than this client, until the others tell it.
        if leads || self.looks >= LOOKS {
            self.switch(master, epoch);
        }
        Some(())
    }
}

/// Asks a sentinel a question and reads its reply. Returns `Some(None)` if the sentinel does not
/// answer this question, and `None` if the connection is lost.
async fn question(connection: &mut MultiplexedConnection, words: &[&str]) -> Option<Option<Value>> {
    match connection.send_packed_command(&connect::words_of(words)).await {
        Ok(reply) => Some(Some(reply)),
        Err(error) if error.is_io_error() || error.is_timeout() => None,
        Err(_) => Some(None),
    }
}
