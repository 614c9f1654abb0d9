//! Tests what is specific to the SQLite store, with real processes and real files.

mod child;
mod crashes;
mod default_directory;
mod files;
mod measure;
#[cfg(unix)]
mod owners;
#[cfg(unix)]
mod reappearing;
mod support;
mod waiter;
mod waiting;
