//! Counts the memory and the time that the connections of one store make the client use.
//!
//! All connections of a store share one budget: a cluster map or a sentinel can make the client
//! open many of them. A [`ConnectionBudget`] counts what one connection has taken of it:
//!
//! - replies count until the client has read those to a pipeline ([`Charge`]). A pipeline inspects
//!   at most 1024 locks, see [`listing`](super::listing). [`ROOM`] is enough for 1024 locks with 80
//!   waiters each, for one lock with 90 000 waiters, and for a cluster of 9000 ranges of slots with
//!   two replicas each. A thousand masters that answer `INFO` at the same time take a third of it;
//! - messages count until the client has read all of them, which it does before it reads more from
//!   the socket. [`ROOM`] is enough for 29 000 notices at a time;
//! - the buffer for long strings counts until the connection ends, because it does not shrink.
//!
//! The real memory is less than twice what is charged, so the connections of a store take at most
//! about 70 MB.
//!
//! The connections also share one [`ReadTurn`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::time::Instant;

use super::read_turn::ReadTurn;
use super::reply_scanner::{ByteLimits, Excess, ReplyScanner};

/// The memory, in bytes, of what a store's connections may receive before the client takes it. If
/// this is larger, a false server can take more memory; if it is smaller, long lists fail.
pub const ROOM: ByteLimits = ByteLimits { replies: 32 << 20, pushes: 16 << 20 };
/// The length, in bytes, up to which the buffer of a connection is not charged. If this is larger,
/// many connections take more memory that is not counted; if it is smaller, the replies to `INFO`
/// take room in large clusters until the connections end.
const FREE_BUFFER: u64 = 16 << 10;

/// What is left for the connections of a store, in bytes, and their turn. All of them run in one
/// thread. The numbers are atomic, and the turn has a lock, only because redis-rs needs a stream
/// that can be sent to other threads.
#[derive(Debug)]
pub struct Budget {
    replies: AtomicU64,
    pushes: AtomicU64,
    turn: Mutex<ReadTurn>,
}

impl Budget {
    /// Returns a budget from which nothing has been taken.
    pub fn new() -> Arc<Self> {
        let turn = Mutex::new(ReadTurn::new(Instant::now()));
        Arc::new(Self { replies: ROOM.replies.into(), pushes: ROOM.pushes.into(), turn })
    }

    /// Returns the turn of the store's connections to read.
    pub fn turn(&self) -> MutexGuard<'_, ReadTurn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> ByteLimits {
        ByteLimits {
            replies: self.replies.load(Ordering::Relaxed),
            pushes: self.pushes.load(Ordering::Relaxed),
        }
    }
}

/// Gives back what a connection's replies took of the budget, when the charge is dropped. Keep it
/// while you read the replies.
#[derive(Debug)]
pub struct Charge(Arc<ConnectionBudget>);

impl Charge {
    /// Returns the charge for a pipeline that was answered.
    pub fn of(connection_budget: &Arc<ConnectionBudget>) -> Self {
        Self(connection_budget.clone())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// Counts what a connection has received and the client has not taken yet. Gives the memory back to
/// the budget when it is dropped.
#[derive(Debug)]
pub struct ConnectionBudget {
    budget: Arc<Budget>,
    replies: AtomicU64,
    pushes: AtomicU64,
    /// The part of `replies` that the connection's buffer takes.
    buffer: AtomicU64,
    excess: OnceLock<Excess>,
}

impl ConnectionBudget {
    /// Returns the count of a new connection, which takes its memory from `budget`.
    pub fn of(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            budget: budget.clone(),
            replies: 0.into(),
            pushes: 0.into(),
            buffer: 0.into(),
            excess: OnceLock::new(),
        })
    }

    /// Returns the budget of the connection's store.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Lets `scan` scan what has arrived, and takes from the budget what `scan` charges.
    pub fn charge<T>(
        &self,
        scanner: &mut ReplyScanner,
        scan: impl FnOnce(&mut ReplyScanner, &mut ByteLimits) -> Result<T, (usize, Excess)>,
    ) -> Result<T, (usize, Excess)> {
        let before = self.budget.left();
        let mut room = before;
        let scanned = scan(scanner, &mut room);
        self.budget.replies.store(room.replies, Ordering::Relaxed);
        self.budget.pushes.store(room.pushes, Ordering::Relaxed);
        self.replies.fetch_add(before.replies - room.replies, Ordering::Relaxed);
        self.pushes.fetch_add(before.pushes - room.pushes, Ordering::Relaxed);
        self.buffer.fetch_max(scanner.longest().saturating_sub(FREE_BUFFER), Ordering::Relaxed);
        if let Err((_, excess)) = scanned {
            let _ = self.excess.set(excess);
        }
        scanned
    }

    /// Notes that the replies to a pipeline were read, or that an awaited message arrived.
    pub fn answered(&self) {
        let taken = self.replies.load(Ordering::Relaxed);
        let kept = self.buffer.load(Ordering::Relaxed).min(taken);
        self.replies.store(kept, Ordering::Relaxed);
        self.budget.replies.fetch_add(taken - kept, Ordering::Relaxed);
    }

    /// Notes that the client has read all messages.
    pub fn read_all_pushes(&self) {
        self.budget.pushes.fetch_add(self.pushes.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes that the connection has ended, and gives back all that it took.
    pub fn ended(&self) {
        self.buffer.store(0, Ordering::Relaxed);
        self.answered();
        self.read_all_pushes();
    }

    /// Returns the limit that the server exceeded, if that ended the connection.
    pub fn excess(&self) -> Option<Excess> {
        self.excess.get().copied()
    }
}

impl Drop for ConnectionBudget {
    fn drop(&mut self) {
        self.ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(
        connection_budget: &ConnectionBudget,
        scanner: &mut ReplyScanner,
        bytes: &[u8],
    ) -> Result<(), Excess> {
        let taken = connection_budget.charge(scanner, |scanner, room| scanner.read(bytes, room));
        taken.map_err(|(_, excess)| excess)
    }

    #[test]
    fn the_connections_of_a_store_share_its_room() {
        let budget = Budget::new();
        let connections: Vec<_> = (0..9).map(|_| ConnectionBudget::of(&budget)).collect();
        let announced = b"$4000000\r\n";
        for connection_budget in &connections[..8] {
            assert_eq!(take(connection_budget, &mut ReplyScanner::default(), announced), Ok(()));
        }
        let last = take(&connections[8], &mut ReplyScanner::default(), announced);
        assert_eq!((last, connections[8].excess()), (Err(Excess::Replies), Some(Excess::Replies)));
        drop(connections);
        assert_eq!(budget.left(), ROOM);
    }

    #[test]
    fn the_buffer_of_a_connection_is_charged_until_the_connection_ends() {
        let budget = Budget::new();
        let (connection_budget, mut scanner) = (ConnectionBudget::of(&budget), ReplyScanner::default());
        let reply = [&b"$3000000\r\n"[..], &vec![b'x'; 3_000_000], b"\r\n"].concat();
        for _ in 0..30 {
            assert_eq!(take(&connection_budget, &mut scanner, &reply), Ok(()));
            connection_budget.answered();
        }
        assert_eq!(ROOM.replies - budget.left().replies, 3_000_000 - FREE_BUFFER);
        connection_budget.ended();
        assert_eq!(budget.left(), ROOM);
    }

    #[test]
    fn short_replies_and_messages_leave_nothing_charged() {
        let budget = Budget::new();
        let (connection_budget, mut scanner) = (ConnectionBudget::of(&budget), ReplyScanner::default());
        assert_eq!(take(&connection_budget, &mut scanner, b"*1\r\n$2\r\nhi\r\n>1\r\n:1\r\n"), Ok(()));
        assert!(budget.left().replies < ROOM.replies && budget.left().pushes < ROOM.pushes);
        connection_budget.answered();
        connection_budget.read_all_pushes();
        assert_eq!(budget.left(), ROOM);
    }
}
