//! The suite. Each function fails if the store breaks one promise of `src/store/mod.rs`.

use std::time::Duration;

mod accept;
mod adoption;
mod batches;
mod breaking;
mod ends;
mod exclusion;
mod grants;
mod leftovers;
mod listing;
mod names;
mod queue;
mod repairs;
mod shared;
mod tokens;

pub use accept::*;
pub use adoption::*;
pub use batches::*;
pub use breaking::*;
pub use ends::*;
pub use exclusion::*;
pub use grants::*;
pub use leftovers::*;
pub use listing::*;
pub use names::*;
pub use queue::*;
pub use repairs::*;
pub use shared::*;
pub use tokens::*;

/// How long after its lease has ended a lock may still be reported as held on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// A ttl in ms that is longer than any test.
const LONG: u32 = 60_000;

/// A store may count in whole milliseconds, so it may end a lease that much too early. The holder's
/// drift allowance covers this.
const GRAIN: Duration = Duration::from_millis(1);
