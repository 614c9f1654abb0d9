//! The Lua scripts that the server runs to change a lock: one script for each change.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script};

/// How long a fence outlives its lease. Once it is gone, the next fence comes from the clock alone: so far the
/// server's clock may be set back without a fence ever growing smaller.
pub const FENCE_LIFE: Duration = Duration::from_secs(3600);

/// One script, known to the server by the hash of its text.
pub struct LockScript {
    text: String,
    /// Its SHA-1, in hexadecimal.
    pub hash: String,
}

/// The scripts, by what they do.
pub struct Scripts {
    pub acquire: LockScript,
    pub renew: LockScript,
    pub release: LockScript,
    pub adopt: LockScript,
    pub accept: LockScript,
    pub inspect: LockScript,
}

pub static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: LockScript::new(include_str!("scripts/acquire.lua")),
    renew: LockScript::new(include_str!("scripts/renew.lua")),
    release: LockScript::new(include_str!("scripts/release.lua")),
    adopt: LockScript::new(include_str!("scripts/adopt.lua")),
    accept: LockScript::new(include_str!("scripts/accept.lua")),
    inspect: LockScript::new(include_str!("scripts/inspect.lua")),
});

impl LockScript {
    /// A script whose text calls for the rules. Comments and indentation stay here: every connection begins by sending
    /// all scripts.
    fn new(text: &str) -> Self {
        let part = |file: &str| format!("\n{file}");
        let uses = |rule: &str| text.contains(rule);
        let more = if uses("rules.detach") || uses("rules.adopt") {
            include_str!("scripts/adoption.lua")
        } else if uses("rules.inspect") {
            include_str!("scripts/inspection.lua")
        } else {
            ""
        };
        let rules = include_str!("scripts/rules.lua").replacen("--[[more]]", &part(more), 1);
        let text = text.replacen("--[[rules]]", &part(&rules), 1);
        let lines =
            text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let hash = Script::new(&text).get_hash().into();
        Self { text, hash }
    }
}

impl Scripts {
    /// How many commands [`Scripts::load`] makes.
    pub const COUNT: usize = 6;

    /// The commands that make all of them known to a server.
    pub fn load(&self) -> [Cmd; Self::COUNT] {
        [&self.acquire, &self.renew, &self.release, &self.adopt, &self.accept, &self.inspect].map(|script| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(&script.text);
            command
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{BROKEN_LIFE, GRANT_FENCES, GRANT_TTL, WAITER_LIFE};

    #[test]
    fn scripts_and_contract_agree() {
        let [fence, grant, waiter] = [FENCE_LIFE, GRANT_TTL, WAITER_LIFE].map(|time| time.as_millis());
        let line = format!("local FENCE_LIFE, GRANT_TTL, WAITER_LIFE = {fence}, {grant}, {waiter}\n");
        assert!(include_str!("scripts/rules.lua").contains(&line), "{line}");
        let line = format!("local BROKEN_LIFE = {}\n", BROKEN_LIFE.as_millis());
        assert!(include_str!("scripts/rules.lua").contains(&line), "{line}");
        let line = format!("local GRANT_FENCES = {GRANT_FENCES}\n");
        assert!(include_str!("scripts/release.lua").contains(&line), "{line}");
        let line = format!(", GRANT_FENCES = 200, {GRANT_FENCES}\n");
        assert!(include_str!("scripts/rules.lua").contains(&line), "{line}");
    }

    #[test]
    fn what_a_connection_begins_with_is_small() {
        let size: usize = SCRIPTS.load().iter().map(|command| command.get_packed_command().len()).sum();
        assert!(size < 88_000, "{size} bytes");
        assert!(SCRIPTS.load().iter().all(|command| {
            let words = command.get_packed_command();
            let text = String::from_utf8_lossy(&words);
            text.lines().all(|line| !line.starts_with("--")) && text.contains("function rules.acquire")
        }));
    }
}
