//! Registers a JavaScript environment with the engine while the environment has clients.
//!
//! A registration refers to a JavaScript function, and so to all modules that this function can
//! reach. Test runners load the modules again for each test file, and in one environment. So a
//! registration ends with the last client of its modules, and not only with the environment.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use napi::bindgen_prelude::*;
use napi::{check_status, sys};

use super::ending::{self, PATIENCE};
use super::outbox::EnvOutbox;
use crate::engine::clock;
use crate::engine::driver::{Engine, Message};
use crate::engine::ids::EnvId;
use crate::engine::pulse::Pulse;
use crate::engine::thread_hand_offs::ThreadHandOffs;

/// An environment that the engine knows.
pub struct Registration {
    /// The number of the environment: a new one for each registration.
    pub env: EnvId,
    /// Holds the settlements for the environment.
    pub outbox: Arc<EnvOutbox>,
    /// Holds the last sign of life of the environment's thread.
    pub pulse: Arc<Pulse>,
    /// Holds the hand-offs that the engine leaves to the environment's thread.
    pub thread_hand_offs: Arc<ThreadHandOffs>,
    /// The engine of the process.
    pub engine: &'static Engine,
    hook: *mut CleanupHook,
    /// Whether the process is being kept alive.
    keeping_alive: bool,
}

/// The data of the hook that Node calls when the environment ends.
struct CleanupHook {
    engine: &'static Engine,
    env: EnvId,
    outbox: Arc<EnvOutbox>,
}

impl Registration {
    /// Registers an environment. The engine calls `wake` when there is something to drain.
    ///
    /// # Errors
    /// If the engine's thread can't be started, or if Node refuses the function or the hook.
    pub fn new(env: &Env, wake: Function<(), ()>) -> Result<Self> {
        static LAST_ENV: AtomicU32 = AtomicU32::new(0);
        let engine = Engine::of_this_process().map_err(|error| {
            Error::from_reason(format!("the engine's thread could not be started: {error}"))
        })?;
        let id = LAST_ENV.fetch_add(1, Ordering::Relaxed) + 1;
        let pulse = Arc::new(Pulse::default());
        let beating = pulse.clone();
        let wake =
            wake.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build_callback(
                move |_| {
                    // A worker thread that another thread ends runs no more JavaScript, but its
                    // event loop waits for the work in Node's thread pool, and calls this.
                    beating.beat(clock::now());
                    Ok(())
                },
            )?;
        let outbox = Arc::new(EnvOutbox::new(wake));
        // A worker thread that is terminated has no 'exit' event, so this hook releases its leases.
        // The wake function was made before the hook, so Node finalises it after the hook has run.
        let hook = CleanupHook { engine, env: id, outbox: outbox.clone() }.add(env)?;
        let thread_hand_offs = Arc::new(ThreadHandOffs::default());
        engine.send(Message::OpenEnv {
            env: id,
            pulse: pulse.clone(),
            thread_hand_offs: thread_hand_offs.clone(),
            outbox: outbox.clone(),
        });
        Ok(Self { env: id, outbox, pulse, thread_hand_offs, engine, hook, keeping_alive: false })
    }

    /// Keeps the process alive from now on if `wanted`, and no longer otherwise.
    pub fn keep_alive(&mut self, env: &Env, wanted: bool) {
        if wanted == self.keeping_alive {
            return;
        }
        self.keeping_alive = wanted;
        // SAFETY: this runs on the environment's own thread, and the function lives until `end` or
        // the environment's end.
        unsafe {
            if wanted {
                sys::napi_ref_threadsafe_function(env.raw(), self.outbox.raw_wake());
            } else {
                sys::napi_unref_threadsafe_function(env.raw(), self.outbox.raw_wake());
            }
        }
    }

    /// Ends the registration. Call it on the environment's own thread, when nothing is open.
    pub fn end(self, env: &Env) {
        self.outbox.release_wake();
        CleanupHook::remove(self.hook, env);
        ending::leave(self.engine, self.env);
    }
}

// `Env::remove_env_cleanup_hook` does not free the data of the hook, which has the outbox.
impl CleanupHook {
    fn add(self, env: &Env) -> Result<*mut Self> {
        let hook = Box::into_raw(Box::new(self));
        // SAFETY: the data is a box that only `run` and `remove` free. Node calls `run` at most
        // once, and never after `remove`.
        let status = unsafe { sys::napi_add_env_cleanup_hook(env.raw(), Some(Self::run), hook.cast()) };
        check_status!(status).map(|()| hook).inspect_err(|_| {
            // SAFETY: Node did not take the hook.
            drop(unsafe { Box::from_raw(hook) });
        })
    }

    /// Removes a hook that Node has not called. Node calls hooks only when no JavaScript runs any
    /// more.
    fn remove(hook: *mut Self, env: &Env) {
        // SAFETY: `hook` is from `add`. If Node removes it, only this call frees the data.
        unsafe {
            if sys::napi_remove_env_cleanup_hook(env.raw(), Some(Self::run), hook.cast())
                == sys::Status::napi_ok
            {
                drop(Box::from_raw(hook));
            }
        }
    }

    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: `data` is from `add`, and Node calls this once.
        let hook = unsafe { Box::from_raw(data.cast::<Self>()) };
        // No panic may reach C.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // Hooks run last in, first out, so Node has not deleted the function yet.
            hook.outbox.release_wake();
            ending::end(hook.engine, hook.env, PATIENCE);
        }));
    }
}
