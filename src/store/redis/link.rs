//! One connection, and the pipelines that are in flight on it.

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
use super::budget::{Budget, Charge, ConnectionBudget};
use super::reply_scanner::Excess;

/// A connection to a server. All batches share it; replies come in the order of the requests.
pub struct Link {
    connection: MultiplexedConnection,
    /// Reads and writes the socket. It ends when the connection does.
    driver: JoinHandle<()>,
    /// True if no further batch may use the connection. Batches in flight still wait for their
    /// answers, and the last one closes the connection.
    given_up: Cell<bool>,
    /// The number of each unanswered pipeline and when it was sent, the oldest in front.
    in_flight: RefCell<VecDeque<(u64, Instant)>>,
    sent: Cell<u64>,
    /// The channel to which the connection has subscribed.
    channel: Option<String>,
    pushes: Cell<Option<UnboundedReceiver<PushInfo>>>,
    server: OnceCell<RedisAddress>,
    connection_budget: Arc<ConnectionBudget>,
    torn: Arc<AtomicBool>,
    /// True if a reply did not fit its request.
    out_of_step: Cell<bool>,
}

/// The messages that a server pushes over a connection.
pub struct PushInlet {
    pub channel: String,
    pub pushes: UnboundedReceiver<PushInfo>,
    /// True if redis-rs may assign replies to the wrong requests.
    pub torn: Arc<AtomicBool>,
}

/// Says why a pipeline got no replies.
pub enum Disconnect {
    /// The time of the batch is over.
    TimedOut,
    /// The connection broke, or the server sent something other than RESP.
    Broken(RedisError),
    /// The client can't know which requests the replies belong to.
    Torn,
    /// A reply did not fit its request, so each reply may belong to another request.
    OutOfStep,
    /// The server sent more than a limit permits.
    TooMuch(Excess),
}

impl Link {
    /// Returns a link over `connection`. The task `driver` reads and writes its socket.
    pub fn new(
        connection: MultiplexedConnection,
        driver: JoinHandle<()>,
        connection_budget: Arc<ConnectionBudget>,
        inlet: Option<PushInlet>,
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
            connection_budget,
            torn,
            out_of_step: Cell::new(false),
        }
    }

    /// Notes that the connection leads to `server`, which sentinels named.
    pub fn leads_to(&self, server: RedisAddress) {
        let _ = self.server.set(server);
    }

    /// Returns the server that sentinels named for this connection. Returns `None` if the store's
    /// address is that of the server.
    pub fn server(&self) -> Option<&RedisAddress> {
        self.server.get()
    }

    /// Returns the channel for the waiters' notices, if there is one.
    pub fn channel(&self) -> Option<&str> {
        self.channel.as_deref()
    }

    /// Takes the messages that the server pushes. Later calls return `None`.
    pub fn take_pushes(&self) -> Option<UnboundedReceiver<PushInfo>> {
        self.pushes.take()
    }

    /// Notes that the client has read all messages.
    pub fn read_all_pushes(&self) {
        self.connection_budget.read_all_pushes();
    }

    /// Returns the budget from which the connection takes its memory.
    pub fn budget(&self) -> &Arc<Budget> {
        self.connection_budget.budget()
    }

    /// Notes that no further batch may use the connection.
    pub fn give_up(&self) {
        self.given_up.set(true);
    }

    /// Notes that a reply did not fit its request. Later replies do not count any more, and nothing
    /// more is sent.
    pub fn lose_step(&self) {
        self.out_of_step.set(true);
        self.given_up.set(true);
    }

    /// Returns true if nothing can be sent any more. If the server closes an idle connection, this
    /// is known before a request is lost on it.
    pub fn is_dead(&self) -> bool {
        self.given_up.get() || self.driver.is_finished() || self.torn.load(Ordering::Relaxed)
    }

    /// Sends `pipeline` and waits for its replies until `deadline`, which is `timeout` after its
    /// batch came. Keep the charge while you read the replies.
    pub async fn send(
        &self,
        pipeline: &Pipeline,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<(Vec<Value>, Charge), Disconnect> {
        let flight = InFlightGuard::begin(self);
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(pipeline, 0, pipeline.len());
        let outcome = timeout_at(deadline, replies).await;
        let charge = matches!(outcome, Ok(Ok(_))).then(|| Charge::of(&self.connection_budget));
        match outcome {
            Ok(Ok(_)) if self.torn.load(Ordering::Relaxed) => Err(Disconnect::Torn),
            Ok(Ok(_)) if self.out_of_step.get() => Err(Disconnect::OutOfStep),
            Ok(Ok(replies)) => Ok((replies, charge.expect("it was answered"))),
            Ok(Err(error)) => {
                self.given_up.set(true);
                Err(self.connection_budget.excess().map_or(Disconnect::Broken(error), Disconnect::TooMuch))
            }
            Err(_) => {
                // If the oldest pipeline has had nearly the whole time-out on this connection, the
                // server hangs, or the network loses the data. If the batch spent its time waiting
                // for the connection, this says little about the server. Tolerate an eighth of the
                // time-out, because encoding takes time, too.
                if flight.oldest().elapsed() >= timeout - timeout / 8 {
                    self.given_up.set(true);
                }
                Err(Disconnect::TimedOut)
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Keeps a pipeline among those in flight for as long as its caller waits.
struct InFlightGuard<'a> {
    link: &'a Link,
    number: u64,
}

impl<'a> InFlightGuard<'a> {
    fn begin(link: &'a Link) -> Self {
        let number = link.sent.get();
        link.sent.set(number + 1);
        link.in_flight.borrow_mut().push_back((number, Instant::now()));
        Self { link, number }
    }

    /// Returns when the oldest unanswered pipeline was sent.
    fn oldest(&self) -> Instant {
        self.link.in_flight.borrow().front().map_or_else(Instant::now, |&(_, sent)| sent)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.link.in_flight.borrow_mut();
        if let Some(place) = in_flight.iter().position(|&(number, _)| number == self.number) {
            in_flight.remove(place);
        }
    }
}
