//! Describes one finding of a diagnosis.

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Under the conditions that the message names, locks may fail, or two clients may hold one
    /// lock.
    Warning,
    /// Locks can't be acquired there, or do not keep their promises.
    Error,
}

/// A finding of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How serious the finding is.
    pub level: Level,
    /// Identifies the kind of finding, for programs.
    pub code: &'static str,
    /// Says what was found, what it can lead to, and what to do about it, for people.
    pub message: String,
}

impl Finding {
    /// Returns a finding.
    pub fn new(level: Level, code: &'static str, message: impl Into<String>) -> Self {
        Self { level, code, message: message.into() }
    }
}
