//! Tells which names can't be keys.

use super::redis as redis_store;

/// Returns true if a Redis store keeps data of a lock under `name`. Then `name` is no key in any
/// store.
pub fn is_side_key(name: &str) -> bool {
    redis_store::lock_beside(name).is_some()
}
