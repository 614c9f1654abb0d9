//! Lets other stores have the engine's thread while a store reads long replies.

use tokio::time::{Duration, Instant};

use super::metered_stream::MOST_READ;
use super::reader::Reader;

/// How long a store reads replies before it asks whether its turn is over. A batch may have
/// thousands of replies, each of which may be an error, and a lock may have thousands of waiters.
/// If this is larger, other stores wait for longer; if it is smaller, the client reads the clock
/// more often.
const MOST_TIME_IN_A_ROW: Duration = Duration::from_millis(1);

/// Charges a reader for the time in which a store reads replies.
pub struct Pace<'a> {
    reader: &'a mut Reader,
    since: Instant,
}

impl<'a> Pace<'a> {
    /// Waits for the turn of `reader`. Charges the reader until the pace is dropped. Drop the pace
    /// before the store waits for something else.
    pub async fn begin(reader: &'a mut Reader) -> Self {
        reader.turn().await;
        let since = Instant::now();
        reader.begin(MOST_READ, since);
        Self { reader, since }
    }

    /// Waits for the next turn if the store has read for [`MOST_TIME_IN_A_ROW`].
    pub async fn keep(&mut self) {
        if self.since.elapsed() >= MOST_TIME_IN_A_ROW {
            self.reader.turn().await;
            self.since = Instant::now();
            self.reader.begin(MOST_READ, self.since);
        }
    }
}

impl Drop for Pace<'_> {
    fn drop(&mut self) {
        self.reader.stop(Instant::now());
    }
}
