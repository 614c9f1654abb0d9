//! Environments: whether their JavaScript threads answer, and the hand-offs that are left to these
//! threads. Touches its own map and the data that it shares with the threads, and asks for signs of
//! life through the [`Context`].

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::context::Context;
use crate::engine::ids::{EnvId, OpId};
use crate::engine::pulse::Pulse;
use crate::engine::thread_hand_offs::{HandedOn, Successors, ThreadHandOffs};
use crate::lease::{Instant, renewal};

/// The longest time between two questions to a thread that holds leases.
const LONGEST_WITHOUT_QUESTION: Duration = Duration::from_secs(1);

struct Env {
    pulse: Arc<Pulse>,
    thread_hand_offs: Arc<ThreadHandOffs>,
    /// When its thread was last asked for a sign of life.
    asked_at: Instant,
}

/// See the module.
#[derive(Default)]
pub struct Envs {
    envs: FxHashMap<EnvId, Env>,
}

impl Envs {
    pub fn open(
        &mut self,
        env: EnvId,
        pulse: Arc<Pulse>,
        thread_hand_offs: Arc<ThreadHandOffs>,
        now: Instant,
    ) {
        pulse.beat(now);
        self.envs.insert(env, Env { pulse, thread_hand_offs, asked_at: now });
    }

    pub fn close(&mut self, env: EnvId) {
        self.envs.remove(&env);
    }

    /// Counts the thread as alive from now on, although it does not answer any more.
    pub fn excuse(&self, env: EnvId) {
        if let Some(env) = self.envs.get(&env) {
            env.pulse.excuse();
        }
    }

    /// Returns true if the thread has not answered for `max_stall`. If its last sign of life is
    /// old, also asks it for one, so that a later call knows.
    pub fn check_stalled(&mut self, env: EnvId, max_stall: Duration, cx: &mut Context) -> bool {
        let Some(known) = self.envs.get_mut(&env) else { return true };
        let answered = known.pulse.last();
        if answered < known.asked_at {
            return renewal::is_stalled(known.asked_at, answered, cx.now, max_stall);
        }
        // Asking this often notices a stall in time, and disturbs an idle thread little.
        if cx.now.since(known.asked_at) >= LONGEST_WITHOUT_QUESTION.min(max_stall / 10) {
            known.asked_at = cx.now;
            cx.effects.pings.push(env);
        }
        false
    }

    /// Takes back all hand-offs that were left to threads. Returns what the threads did.
    pub fn recall_hand_offs(&self) -> Vec<HandedOn> {
        let mut done = Vec::new();
        self.envs.values().for_each(|env| env.thread_hand_offs.recall(&mut done));
        done
    }

    /// Lets the holder's thread hand the lease on. Returns `false` if the environment is gone.
    pub fn offer_hand_offs(&self, holder: OpId, successors: Successors) -> bool {
        let env = self.envs.get(&holder.env);
        env.map(|env| env.thread_hand_offs.offer(holder, successors)).is_some()
    }
}
