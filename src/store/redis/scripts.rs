//! The Lua scripts that the server runs to change or to describe locks.
//!
//! The scripts share parts, such as the rules of the contract and the texts in which the keys hold
//! a lock's data. `--[[include rules]]` stands for the part `scripts/parts/rules.lua`. Only the
//! first include of a part adds the part to the script. So a later include must be in the scope of
//! the first one: the first one must not be in a block that ends before the later one.

use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, Script};

/// How long a fence key outlives its lease. After that, the next fence comes from the clock alone.
/// So fences keep growing even if the server's clock is set back, by up to this time. If this is
/// larger, keys of unused locks stay longer; if it is smaller, a clock that is set back may make
/// fences smaller.
pub const FENCE_LIFE: Duration = Duration::from_secs(3600);

/// The parts of scripts, by their names.
const PARTS: [(&str, &str); 16] = [
    ("prelude", include_str!("scripts/parts/prelude.lua")),
    ("fence_text", include_str!("scripts/parts/fence_text.lua")),
    ("name_notes", include_str!("scripts/parts/name_notes.lua")),
    ("waiter_text", include_str!("scripts/parts/waiter_text.lua")),
    ("holder_text", include_str!("scripts/parts/holder_text.lua")),
    ("hand_over", include_str!("scripts/parts/hand_over.lua")),
    ("rules", include_str!("scripts/parts/rules.lua")),
    ("acquisition", include_str!("scripts/parts/acquisition.lua")),
    ("renewal", include_str!("scripts/parts/renewal.lua")),
    ("detachment", include_str!("scripts/parts/detachment.lua")),
    ("ending", include_str!("scripts/parts/ending.lua")),
    ("known_lease", include_str!("scripts/parts/known_lease.lua")),
    ("new_fences", include_str!("scripts/parts/new_fences.lua")),
    ("acceptance", include_str!("scripts/parts/acceptance.lua")),
    ("adoption", include_str!("scripts/parts/adoption.lua")),
    ("inspection", include_str!("scripts/parts/inspection.lua")),
];

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
    /// Puts a script together. Leaves out comments and indentation, because every connection begins
    /// by sending all scripts.
    fn new(source: &str) -> Self {
        let mut text = String::new();
        put_together(source, &mut Vec::new(), &mut text);
        let hash = Script::new(&text).get_hash().into();
        Self { text, hash }
    }
}

/// Appends the code of `source` to `text`, with the parts that it includes and that are not among
/// `included`.
fn put_together<'a>(source: &'a str, included: &mut Vec<&'a str>, text: &mut String) {
    for line in source.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("--[[include ").and_then(|rest| rest.strip_suffix("]]")) {
            let part = PARTS.iter().find(|(known, _)| *known == name);
            if let Some((_, part)) = part.filter(|_| !included.contains(&name)) {
                included.push(name);
                put_together(part, included, text);
            }
        } else if !line.is_empty() && !line.starts_with("--") {
            text.push_str(line);
            text.push('\n');
        }
    }
}

impl Scripts {
    /// The number of commands that [`Scripts::load`] returns.
    pub const COUNT: usize = 6;

    /// Returns the commands that load all scripts into a server.
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
        let part = |name| PARTS.iter().find(|(known, _)| *known == name).unwrap().1;
        let [grant, waiter, broken] =
            [GRANT_TTL, WAITER_LIFE, BROKEN_LIFE].map(|time| time.as_millis().to_string());
        for (part, line) in [
            (part("rules"), format!("local GRANT_TTL, WAITER_LIFE, UNHEARD_TTL = {grant}, {waiter}, 200")),
            (part("rules"), format!("local BROKEN_LIFE = {broken}")),
            (part("hand_over"), format!("local FENCE_LIFE = {}", FENCE_LIFE.as_millis())),
            (
                part("hand_over"),
                format!("local GRANT_FENCES, GRANT_BACK = {GRANT_FENCES}, '{}'", GRANT_FENCES - 1),
            ),
        ] {
            assert!(part.lines().any(|known| known == line), "{line}");
        }
    }

    #[test]
    fn every_include_names_a_part_and_every_part_is_included_once() {
        let scripts = [
            &SCRIPTS.acquire,
            &SCRIPTS.renew,
            &SCRIPTS.release,
            &SCRIPTS.adopt,
            &SCRIPTS.accept,
            &SCRIPTS.inspect,
        ];
        for (name, part) in PARTS {
            let begins_code = |line: &&str| line.starts_with("local ") || line.starts_with("function ");
            let first = part.lines().find(begins_code).unwrap();
            assert!(scripts.iter().any(|script| script.text.contains(first)), "{name}");
            assert!(scripts.iter().all(|script| script.text.matches(first).count() <= 1), "{name}");
        }
        let sources = [
            include_str!("scripts/acquire.lua"),
            include_str!("scripts/renew.lua"),
            include_str!("scripts/release.lua"),
            include_str!("scripts/adopt.lua"),
            include_str!("scripts/accept.lua"),
            include_str!("scripts/inspect.lua"),
        ];
        for source in sources.into_iter().chain(PARTS.map(|(_, part)| part)) {
            for line in source.lines().filter(|line| line.contains("--[[")) {
                let name = line.trim().strip_prefix("--[[include ").and_then(|rest| rest.strip_suffix("]]"));
                assert!(PARTS.iter().any(|(known, _)| Some(*known) == name), "{line}");
            }
        }
    }

    #[test]
    fn every_script_begins_with_its_keys_and_arguments() {
        for source in [
            include_str!("scripts/acquire.lua"),
            include_str!("scripts/renew.lua"),
            include_str!("scripts/release.lua"),
            include_str!("scripts/adopt.lua"),
            include_str!("scripts/accept.lua"),
            include_str!("scripts/inspect.lua"),
        ] {
            let header: Vec<&str> = source.lines().take_while(|line| line.starts_with("--")).collect();
            for word in ["-- KEYS ", "-- ARGV", "-- Answers "] {
                assert!(header.iter().any(|line| line.starts_with(word)), "{word}: {}", header[0]);
            }
        }
    }

    #[test]
    fn the_scripts_that_a_connection_sends_first_are_small() {
        let size: usize = SCRIPTS.load().iter().map(|command| command.get_packed_command().len()).sum();
        assert!(size < 88_000, "{size} bytes");
        assert!(SCRIPTS.load().iter().all(|command| {
            let words = command.get_packed_command();
            let text = String::from_utf8_lossy(&words);
            text.lines().all(|line| !line.starts_with("--")) && text.contains("local function hand_on")
        }));
    }
}
