//! The Lua scripts that every change of a lock is, and the keys that they are given.

use std::sync::LazyLock;

use redis::{Cmd, Script};

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
    /// All of them.
    pub fn all(&self) -> [&LockScript; 4] {
        [&self.acquire, &self.renew, &self.release, &self.inspect]
    }

    /// The commands that make all of them known to a server. It answers with their hashes.
    pub fn load(&self) -> impl Iterator<Item = Cmd> {
        self.all().into_iter().map(|script| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(script.text);
            command
        })
    }
}

/// The key beside `lock` that keeps its fence, in the same slot of a Redis Cluster: by the lock's own hash tag if it
/// has one ("Redis cluster specification", hash tags), else the whole lock is the tag. It begins with a brace, so that it
/// can't be the lock of another key.
pub fn fence_key(lock: &str) -> String {
    match lock.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
        Some((tag, _)) if !tag.is_empty() => format!("{{{tag}}}:fence:{lock}"),
        _ => format!("{{{lock}}}:fence"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_is_in_the_locks_slot() {
        assert_eq!(fence_key("lock:a"), "{lock:a}:fence");
        assert_eq!(fence_key("lock:a{b}c"), "{b}:fence:lock:a{b}c");
        assert_eq!(fence_key("lock:{b}"), "{b}:fence:lock:{b}");
        assert_eq!(fence_key("lock:a{}c"), "{lock:a{}c}:fence");
    }
}
