//! The suite. Each function breaks one promise of `src/store/mod.rs`, if the store lets it.

use std::time::Duration;

mod accept;
mod batches;
mod breaking;
mod ends;
mod exclusion;
mod grants;
mod heirs;
mod leftovers;
mod listing;
mod names;
mod queue;
mod shared;
mod tokens;

pub use accept::*;
pub use batches::*;
pub use breaking::*;
pub use ends::*;
pub use exclusion::*;
pub use grants::*;
pub use heirs::*;
pub use leftovers::*;
pub use listing::*;
pub use names::*;
pub use queue::*;
pub use shared::*;
pub use tokens::*;

/// How much later than it could a free lock may be found free on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// A ttl in ms that no test outlives.
const LONG: u32 = 60_000;

/// A store may count in whole milliseconds, so it may end a lease by that much too early; the holder's
/// drift allowance covers it.
const GRAIN: Duration = Duration::from_millis(1);
