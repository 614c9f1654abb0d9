//! The rules for one lock, instant by instant.
