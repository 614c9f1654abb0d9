//! The engine.

pub mod clock;
