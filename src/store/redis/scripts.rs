//! The Lua scripts that every change of a lock is, and the keys that they are given.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script};

/// How long a fence outlives its lease. Once it is gone, the next fence comes from the clock alone: so far the
/// server's clock may be set back without a fence ever growing smaller.
pub const FENCE_LIFE: Duration = Duration::from_secs(3600);

/// One script, known to the server by the hash of its text.
pub struct LockScript {
    text: &'static str,
    /// Its SHA-1, in hexadecimal.
    pub hash: String,
}

/// The scripts, by what they do.
pub struct Scripts {
    pub acquire: LockScript,
    pub renew: LockScript,
    pub release: LockScript,
    pub inspect: LockScript,
}

pub static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: LockScript::new(include_str!("scripts/acquire.lua")),
    renew: LockScript::new(include_str!("scripts/renew.lua")),
    release: LockScript::new(include_str!("scripts/release.lua")),
    inspect: LockScript::new(include_str!("scripts/inspect.lua")),
});

impl LockScript {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Script::new(text).get_hash().into() }
    }
}

impl Scripts {
    /// How many commands [`Scripts::load`] makes.
    pub const COUNT: usize = 4;

    /// The commands that make all of them known to a server.
    pub fn load(&self) -> [Cmd; Self::COUNT] {
        [&self.acquire, &self.renew, &self.release, &self.inspect].map(|script| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(script.text);
            command
        })
    }
}

/// The key beside `lock` that keeps its fence, in pieces: `{lock:a}:fence`.
///
/// It lies in the lock's slot of a Redis Cluster ("Redis cluster specification", hash tags). A lock with a hash tag
/// of its own keeps that: `{tag}:lock:a{tag}b:fence`, and not just `:fence` behind the lock, for that may be the name
/// of another lock. (No key lies in the slot of a lock that has a } but no tag.)
pub fn fence_key(lock: &str) -> [&str; 5] {
    let tag = lock.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    match tag.filter(|tag| !tag.is_empty()) {
        Some(tag) => ["{", tag, "}:", lock, ":fence"],
        None => ["{", lock, "}", "", ":fence"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_is_in_the_locks_slot_and_is_no_other_locks_key() {
        assert_eq!(fence_key("lock:a").concat(), "{lock:a}:fence");
        assert_eq!(fence_key("lock:a{b}c").concat(), "{b}:lock:a{b}c:fence");
        assert_eq!(fence_key("{b}").concat(), "{b}:{b}:fence");
        assert_eq!(fence_key("lock:{b").concat(), "{lock:{b}:fence");
        assert_eq!(fence_key("lock:a{}c").concat(), "{lock:a{}c}:fence");
    }
}
