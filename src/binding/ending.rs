//! Ends environments: releases their leases and waits until that is done.
//!
//! **The main thread ends last.** After a call of `process.exit()` or an uncaught exception, no
//! more JavaScript runs, but work that it has begun may go on: Node first waits for worker threads
//! and for its thread pool, which may still write a file. Only then does it call the C function
//! `exit()`. If a lock were released before that, another process could get it while that work
//! still runs. So `atexit(3)` registers the release, and `exit()` runs it.
//!
//! A worker thread needs none of this: the cleanup hook of its environment runs after its work.

#[cfg(unix)]
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(unix)]
use std::sync::MutexGuard;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::outbox::EnvOutbox;
use crate::engine::command::Command;
use crate::engine::driver::{Engine, Message};
use crate::engine::ids::EnvId;

/// How long a client, an environment or the process may take to end. If this is larger, a store
/// that can't be reached delays each end for longer. If it is smaller, more leases are left to
/// their ttl.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// How much longer than its patience an end waits for the engine, which answers when that time is
/// over. If this is larger, an end without an engine takes longer. If it is smaller, an end misses
/// the engine's answer on a busy machine.
const SPARE: Duration = Duration::from_millis(50);
/// The patience of an end that begins within [`PATIENCE`] after another one got no answer. Node
/// ends the worker threads of a process one after the other, and each would wait for the same
/// store. If this is larger, a process with many threads ends later. If it is smaller, a store that
/// answers again misses more releases.
const SHORT_PATIENCE: Duration = Duration::from_millis(20);

/// When an end last got no answer in time.
static UNANSWERED: Mutex<Option<Instant>> = Mutex::new(None);

/// Ends all operations of `env`, and waits until its leases are released, for at most about
/// `patience`.
pub fn end(engine: &Engine, env: EnvId, patience: Duration) {
    forget(env);
    let unanswered = || UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let waits_again = unanswered().is_some_and(|at| at.elapsed() < PATIENCE);
    let patience = if waits_again { patience.min(SHORT_PATIENCE) } else { patience };
    let (begin, (done, ended)) = (Instant::now(), sync_channel(1));
    engine.send(Message::Commands(vec![Command::CloseEnv { env, done, patience }]));
    // If the engine does not answer, the ttl ends the leases. If the store does not, the engine
    // answers when the time is over.
    let _ = ended.recv_timeout(patience.saturating_add(SPARE));
    if begin.elapsed() >= patience {
        *unanswered() = Some(Instant::now());
    }
}

/// Lets the engine forget `env`, which has no client and no lease any more. Waits for nothing.
pub fn leave(engine: &Engine, env: EnvId) {
    forget(env);
    let (done, _) = sync_channel(1);
    let patience = Duration::ZERO;
    engine.send(Message::Commands(vec![Command::CloseEnv { env, done, patience }]));
}

/// The environments that end with the process.
#[cfg(unix)]
#[derive(Default)]
struct Last {
    /// The id of the process that called `atexit`; 0 before that.
    process: u32,
    envs: BTreeMap<EnvId, Arc<EnvOutbox>>,
}

#[cfg(unix)]
static LAST: Mutex<Last> = Mutex::new(Last { process: 0, envs: BTreeMap::new() });

#[cfg(unix)]
fn last() -> MutexGuard<'static, Last> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers `env` to be ended by `exit()`. Returns false if `atexit` fails.
#[cfg(unix)]
pub fn end_with_process(env: EnvId, outbox: &Arc<EnvOutbox>) -> bool {
    let mut last = last();
    if last.process == 0 {
        if atexit(end_all) != 0 {
            return false;
        }
        last.process = std::process::id();
    }
    last.envs.insert(env, outbox.clone());
    true
}

#[cfg(unix)]
fn forget(env: EnvId) {
    last().envs.remove(&env);
}

#[cfg(unix)]
unsafe extern "C" {
    safe fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
}

#[cfg(unix)]
extern "C" fn end_all() {
    // No panic may reach C.
    let _ = std::panic::catch_unwind(|| {
        let Last { process, envs } = std::mem::take(&mut *last());
        // A child that was forked without `exec` has no engine.
        if process != std::process::id() {
            return;
        }
        let Ok(engine) = Engine::of_this_process() else { return };
        let until = Instant::now() + PATIENCE;
        for (env, outbox) in envs {
            outbox.close();
            end(engine, env, until.saturating_duration_since(Instant::now()));
        }
    });
}

/// Returns false. When Windows calls the `atexit` functions of a DLL, it has already ended all
/// other threads of the process, including the engine's.
#[cfg(not(unix))]
pub fn end_with_process(_: EnvId, _: &Arc<EnvOutbox>) -> bool {
    false
}

#[cfg(not(unix))]
fn forget(_: EnvId) {}
