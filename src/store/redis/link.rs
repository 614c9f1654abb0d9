//! One connection, and what is under way on it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, PushInfo, RedisError, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::address::RedisAddress;
use super::budget::{Budget, Intake};
use super::reply_scanner::Excess;

/// A connection to a server. All batches share it; replies come in the order of the requests.
pub struct Link {
    connection: MultiplexedConnection,
    /// Reads and writes the socket. It ends when the connection does.
    driver: JoinHandle<()>,
    /// Nothing more is sent. Who still waits for an answer here may; the last one to leave closes the connection.
    given_up: Cell<bool>,
    /// When each unanswered pipeline was sent, the oldest in front.
    in_flight: RefCell<VecDeque<(u64, Instant)>>,
    sent: Cell<u64>,
    /// The channel to which the connection has subscribed.
    channel: Option<String>,
    pushes: Cell<Option<UnboundedReceiver<PushInfo>>>,
    server: OnceCell<RedisAddress>,
    intake: Arc<Intake>,
    torn: Arc<AtomicBool>,
    /// Whether a reply did not fit its request.
    out_of_step: Cell<bool>,
}

/// Where a connection is told what it did not ask for.
pub struct Inlet {
    pub channel: String,
    pub pushes: UnboundedReceiver<PushInfo>,
    /// Whether replies may have come to belong to other requests than they seem to.
    pub torn: Arc<AtomicBool>,
}

/// Why a pipeline got no replies.
pub enum Cut {
    /// Its time is over.
    TimedOut,
    /// The connection broke, or what came was no RESP.
    Broken(RedisError),
    /// It is not known to whom what came belongs.
    Torn,
    /// A reply did not fit its request, so each reply may belong to another request.
    OutOfStep,
    /// The server sent more than a bound allows.
    TooMuch(Excess),
}

impl Link {
    /// The connection whose socket is served by the task `driver`.
    pub fn new(
        connection: MultiplexedConnection,
        driver: JoinHandle<()>,
        intake: Arc<Intake>,
        inlet: Option<Inlet>,
    ) -> Self {
        let torn = inlet.as_ref().map(|inlet| inlet.torn.clone()).unwrap_or_default();
        let (channel, pushes) = inlet.map(|inlet| (inlet.channel, inlet.pushes)).unzip();
        Self {
            connection,
            driver,
            given_up: Cell::new(false),
            in_flight: RefCell::default(),
            sent: Cell::new(0),
            channel,
            pushes: Cell::new(pushes),
            server: OnceCell::new(),
            intake,
            torn,
            out_of_step: Cell::new(false),
        }
    }

    /// The connection leads to `server`, which was found out for it.
    pub fn leads_to(&self, server: RedisAddress) {
        let _ = self.server.set(server);
    }

    /// Which server it leads to, if that was not known before.
    pub fn server(&self) -> Option<&RedisAddress> {
        self.server.get()
    }

    /// The channel over which those who wait are sent notices, if they are.
    pub fn channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    /// What comes over the channel, for the first who asks.
    pub fn take_pushes(&self) -> Option<UnboundedReceiver<PushInfo>> {
        self.pushes.take()
    }

    /// Notes that the client has read all messages.
    pub fn read_all_pushes(&self) {
        self.intake.read_all_pushes();
    }

    /// Returns the budget from which the connection takes its memory.
    pub fn budget(&self) -> &Arc<Budget> {
        self.intake.budget()
    }

    /// Nothing more is to be sent.
    pub fn give_up(&self) {
        self.given_up.set(true);
    }

    /// Notes that a reply did not fit its request. Later replies do not count any more, and nothing
    /// more is sent.
    pub fn lose_step(&self) {
        self.out_of_step.set(true);
        self.given_up.set(true);
    }

    /// Whether nothing can be sent any more. A connection that the server closed while it was idle is known to be
    /// dead before anything is lost on it.
    pub fn is_dead(&self) -> bool {
        self.given_up.get() || self.driver.is_finished() || self.torn.load(Ordering::Relaxed)
    }

    /// Sends `pipeline` and waits for its replies until `deadline`, which is `timeout` after its batch came.
    pub async fn send(
        &self,
        pipeline: &Pipeline,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<Vec<Value>, Cut> {
        let flight = Flight::begin(self);
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(pipeline, 0, pipeline.len());
        let outcome = timeout_at(deadline, replies).await;
        if matches!(outcome, Ok(Ok(_))) {
            self.intake.answered();
        }
        match outcome {
            Ok(Ok(_)) if self.torn.load(Ordering::Relaxed) => Err(Cut::Torn),
            Ok(Ok(_)) if self.out_of_step.get() => Err(Cut::OutOfStep),
            Ok(Ok(replies)) => Ok(replies),
            Ok(Err(error)) => {
                self.given_up.set(true);
                Err(self.intake.excess().map_or(Cut::Broken(error), Cut::TooMuch))
            }
            Err(_) => {
                // A batch that waited long for the connection says little about it; one that had all of its time
                // on it says that the server hangs or the network swallows what we send. An eighth of tolerance,
                // because packing takes time, too.
                if flight.oldest().elapsed() >= timeout - timeout / 8 {
                    self.given_up.set(true);
                }
                Err(Cut::TimedOut)
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A pipeline's entry among those in flight, for as long as somebody waits for it.
struct Flight<'a> {
    link: &'a Link,
    number: u64,
}

impl<'a> Flight<'a> {
    fn begin(link: &'a Link) -> Self {
        let number = link.sent.get();
        link.sent.set(number + 1);
        link.in_flight.borrow_mut().push_back((number, Instant::now()));
        Self { link, number }
    }

    /// When the oldest pipeline that is still unanswered was sent.
    fn oldest(&self) -> Instant {
        self.link.in_flight.borrow().front().map_or_else(Instant::now, |&(_, sent)| sent)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.link.in_flight.borrow_mut();
        if let Some(place) = in_flight.iter().position(|&(number, _)| number == self.number) {
            in_flight.remove(place);
        }
    }
}
