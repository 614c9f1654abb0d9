//! Ends: leases given back, what ambiguous requests may have left behind, clients and environments closed.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::holding::Tenure;
use super::outgoing::{ReleaseTag, Tag};
use super::{Core, Wake};
use crate::engine::command::{ClientId, EnvId, OpId, Outcome, StoreId};
use crate::lease::{Instant, Key, LossReason, Phase, Token};
use crate::store::{Answer, Reply, Request};

/// The first pause before a release that failed is tried again; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to release.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A release that nobody waits for but that has to happen: of a lease whose acquire was ambiguous, that was
/// lost with a renewal on its way, or that somebody could not give back in time.
pub struct Cleanup {
    store: StoreId,
    key: Key,
    token: Token,
    timeout: Duration,
    /// When the lease has ended by itself at the store, and there is nothing left to do.
    until: Instant,
    failures: u32,
    pub(super) wake: Option<Instant>,
    /// Who waits for it after all.
    barrier: Option<u64>,
}

/// Somebody who waits until an environment has nothing left to release, but not for ever.
pub struct Barrier {
    env: EnvId,
    /// Clean-ups that are not done yet. The releases that the environment's own code asked for count too.
    left: usize,
    pub(super) until: Instant,
    waits: Waits,
    /// Whether the environment ends with it.
    last: bool,
}

enum Waits {
    Operation(OpId),
    Thread(SyncSender<()>),
}

impl Core {
    /// The holder gave its lease back; its state says so already.
    pub(super) fn release(&mut self, op: OpId) {
        // Lost in the same moment: the state can't have been both, so the release was counted first.
        let Some(tenure) = self.end_tenure(op) else { return self.settle(op, Outcome::Released(false)) };
        tenure.stats.released.up();
        let lock = tenure.lock();
        let Tenure { client, store, key, token, store_expiry, .. } = tenure;
        let timeout = self.store_timeout(client);
        let tag = ReleaseTag { op, client, key: key.clone(), token, until: store_expiry.max(self.now) };
        self.send(store, Request::Release { key, token }, Tag::Release(tag), timeout);
        if let Some(env) = self.envs.get_mut(&op.env) {
            env.releasing += 1;
        }
        self.promote(&lock, self.now);
    }

    /// The store answered the release that the holder waits for.
    pub(super) fn gave_back(&mut self, store: StoreId, tag: ReleaseTag, answer: Answer) {
        match answer {
            Ok(reply) => self.settle(tag.op, Outcome::Released(reply == Reply::Released)),
            Err(error) => {
                self.count_error(tag.client);
                self.clean_up_later(store, tag.client, tag.key, tag.token, tag.until);
                self.settle(tag.op, Outcome::Failed(error));
            }
        }
        if let Some(env) = self.envs.get_mut(&tag.op.env) {
            env.releasing -= 1;
        }
        if !self.barriers.is_empty() {
            self.lift_barriers(tag.op.env);
        }
    }

    /// Gives back a lease whose grant the caller will never see, because it cancelled.
    pub(super) fn give_back_unseen(&mut self, op: OpId) {
        let Some(tenure) = self.end_tenure(op) else { return };
        tenure.state.release(self.now);
        tenure.stats.aborted.up();
        let lock = tenure.lock();
        self.clean_up(
            tenure.store,
            tenure.client,
            tenure.key,
            tenure.token,
            tenure.store_expiry.max(self.now),
        );
        self.promote(&lock, self.now);
    }

    /// Releases whatever lease `token` may have, now and again until the store has said so, or until it has
    /// ended by itself at `until`.
    pub(super) fn clean_up(
        &mut self,
        store: StoreId,
        client: ClientId,
        key: Key,
        token: Token,
        until: Instant,
    ) {
        let id = self.remember_cleanup(store, client, key, token, until, None);
        self.wake_cleanup(id);
    }

    /// The same, when the first attempt has just failed.
    fn clean_up_later(&mut self, store: StoreId, client: ClientId, key: Key, token: Token, until: Instant) {
        let id = self.remember_cleanup(store, client, key, token, until, None);
        self.retry_cleanup(id);
    }

    fn remember_cleanup(
        &mut self,
        store: StoreId,
        client: ClientId,
        key: Key,
        token: Token,
        until: Instant,
        barrier: Option<u64>,
    ) -> u64 {
        let id = self.next_serial();
        let timeout = self.store_timeout(client);
        self.stores.entry(store).or_default().cleanups += 1;
        let cleanup = Cleanup { store, key, token, timeout, until, failures: 0, wake: None, barrier };
        self.cleanups.insert(id, cleanup);
        id
    }

    pub(super) fn wake_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        cleanup.wake = None;
        let (store, timeout) = (cleanup.store, cleanup.timeout);
        let request = Request::Release { key: cleanup.key.clone(), token: cleanup.token };
        self.send(store, request, Tag::Cleanup(id), timeout);
    }

    pub(super) fn cleaned_up(&mut self, id: u64, answer: Answer) {
        match answer {
            Err(error) if error.kind.is_transient() => self.retry_cleanup(id),
            // Done; or an error that no repetition mends, and the ttl has to do it.
            _ => self.forget_cleanup(id),
        }
    }

    fn retry_cleanup(&mut self, id: u64) {
        let jitter = self.jitter();
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << cleanup.failures.min(10)).min(LONGEST_PAUSE);
        let at = self.now + pause.mul_f64(0.5 + 0.5 * jitter);
        if at >= cleanup.until {
            return self.forget_cleanup(id);
        }
        cleanup.failures += 1;
        cleanup.wake = Some(at);
        self.timers.schedule(at, Wake::Cleanup(id));
    }

    fn forget_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.remove(&id) else { return };
        if let Some(link) = self.stores.get_mut(&cleanup.store) {
            link.cleanups -= 1;
        }
        self.drop_if_unused(cleanup.store);
        let Some(id) = cleanup.barrier else { return };
        if let Some(barrier) = self.barriers.get_mut(&id) {
            barrier.left -= 1;
            let env = barrier.env;
            self.lift_barriers(env);
        }
    }

    /// Lets those go on who wait for `env` and need not any longer.
    fn lift_barriers(&mut self, env: EnvId) {
        if self.envs.get(&env).is_some_and(|env| env.releasing > 0) {
            return;
        }
        let done: Vec<u64> =
            self.barriers.iter().filter(|(_, b)| b.env == env && b.left == 0).map(|(id, _)| *id).collect();
        for id in done {
            self.lift_barrier(id);
        }
    }

    pub(super) fn lift_barrier(&mut self, id: u64) {
        let Some(barrier) = self.barriers.remove(&id) else { return };
        if barrier.last {
            self.envs.remove(&barrier.env);
        }
        match barrier.waits {
            Waits::Operation(op) => self.settle(op, Outcome::Done),
            Waits::Thread(done) => self.effects.unblocked.push(done),
        }
    }

    pub(super) fn close_client(&mut self, client: ClientId, op: OpId, patience: Duration) {
        let store = self.clients.get(&client).map(|client| client.store);
        let held = self.shut(client);
        self.release_and_tell(op.env, held, patience, Waits::Operation(op), false);
        // Not before: what was held is still to be released there.
        if let Some(store) = store {
            self.drop_if_unused(store);
        }
    }

    pub(super) fn close_env(&mut self, env: EnvId, done: SyncSender<()>, patience: Duration) {
        let clients: Vec<(ClientId, StoreId)> = self
            .clients
            .iter()
            .filter(|(_, c)| c.settings.env == env)
            .map(|(id, c)| (*id, c.store))
            .collect();
        let held = clients.iter().flat_map(|(client, _)| self.shut(*client)).collect();
        self.release_and_tell(env, held, patience, Waits::Thread(done), true);
        for (_, store) in clients {
            self.drop_if_unused(store);
        }
    }

    pub(super) fn release_all(&mut self, env: EnvId, done: SyncSender<()>, patience: Duration) {
        let held: Vec<OpId> = self.tenures.keys().filter(|op| op.env == env).copied().collect();
        let held = held.into_iter().filter_map(|op| self.close_tenure(op)).collect();
        self.release_and_tell(env, held, patience, Waits::Thread(done), false);
    }

    /// Ends everything of a client. Returns the leases that are now to be released at the store.
    fn shut(&mut self, client: ClientId) -> Vec<Tenure> {
        let waiting: Vec<OpId> =
            self.waiters.iter().filter(|(_, w)| w.asked.client == client).map(|(op, _)| *op).collect();
        for op in waiting {
            self.end_waiter(op, Outcome::Closed);
        }
        let held: Vec<OpId> =
            self.tenures.iter().filter(|(_, t)| t.client == client).map(|(op, _)| *op).collect();
        let held: Vec<Tenure> = held.into_iter().filter_map(|op| self.close_tenure(op)).collect();
        if let Some(client) = self.clients.remove(&client)
            && let Some(link) = self.stores.get_mut(&client.store)
        {
            link.clients -= 1;
        }
        held
    }

    /// Ends a lease because its client does, and says so to the holder unless it has just given it back itself.
    fn close_tenure(&mut self, op: OpId) -> Option<Tenure> {
        let state = &self.tenures.get(&op)?.state;
        // Else its own release is under way: that command was given before this one.
        let Phase::Lost(reason) = state.lose(self.now, LossReason::Closed) else { return None };
        let tenure = self.end_tenure(op)?;
        tenure.stats.lost.up();
        self.settle(op, Outcome::Lost(reason));
        Some(tenure)
    }

    fn release_and_tell(
        &mut self,
        env: EnvId,
        held: Vec<Tenure>,
        patience: Duration,
        waits: Waits,
        last: bool,
    ) {
        let id = self.next_serial();
        let until = self.now + patience;
        self.barriers.insert(id, Barrier { env, left: held.len(), until, waits, last });
        self.timers.schedule(until, Wake::Barrier(id));
        for tenure in held {
            let lock = tenure.lock();
            let until = tenure.store_expiry.max(self.now);
            let (store, client) = (tenure.store, tenure.client);
            let cleanup = self.remember_cleanup(store, client, tenure.key, tenure.token, until, Some(id));
            self.wake_cleanup(cleanup);
            self.promote(&lock, self.now);
        }
        self.lift_barriers(env);
    }
}
