//! What is true of the embedded store alone, in real processes and on real files.

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
