//! The suite. Each function breaks one promise of `src/store/mod.rs`, if the store lets it.

use std::time::Duration;

mod batches;
mod exclusion;
mod tokens;

pub use batches::*;
pub use exclusion::*;
pub use tokens::*;

/// How much later than it could a free lock may be found free on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// A ttl in ms that no test outlives.
const LONG: u32 = 60_000;
