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
    client: ClientId,
    store: StoreId,
    key: Key,
    token: Token,
    timeout: Duration,
    /// When the lease has ended by itself at the store, and there is nothing left to do.
    until: Instant,
    failures: u32,
    /// How often it is to be repeated after it was done, because what it cleans up after may arrive only then.
    repeats: u32,
    /// Whether it is among its client's outstanding requests: until it was done once.
    counted: bool,
    pub(super) wake: Option<Instant>,
}

/// How often the release of a lease is repeated when nobody knows whether its acquire is still on its way: after a second,
/// and after three more.
const REPEATS: u32 = 2;
/// The pause before the first repetition; the second comes three times as long after that.
const FIRST_REPEAT: Duration = Duration::from_secs(1);

/// Somebody who waits until clients have nothing outstanding, but not for ever.
pub struct Barrier {
    clients: Vec<ClientId>,
    pub(super) until: Instant,
    waits: Waits,
}

enum Waits {
    Operation(OpId),
    Thread(SyncSender<()>),
}

impl Core {
    /// The holder gave its lease back; its state says so already.
    pub(super) fn release(&mut self, op: OpId) {
        // Lost in the same moment: the state can't have been both, so the release was counted first.
        let Some(mut tenure) = self.end_tenure(op) else { return self.settle(op, Outcome::Released(false)) };
        tenure.stats.released.up();
        if self.hand_on(op, &mut tenure) {
            return self.settle(op, Outcome::Released(true));
        }
        // Before the release: a place that nobody needs shall not be handed the lease.
        self.leave_line(op, &tenure);
        let Tenure { client, store, key, token, store_expiry, .. } = tenure;
        let timeout = self.store_timeout(client);
        let tag = ReleaseTag { op, client, key: key.clone(), token, until: store_expiry.max(self.now) };
        self.send(store, Request::Release { key, token }, Tag::Release(tag), timeout);
        if let Some(client) = self.clients.get_mut(&client) {
            client.outstanding += 1;
        }
    }

    /// The store answered the release that the holder waits for.
    pub(super) fn gave_back(&mut self, store: StoreId, tag: ReleaseTag, answer: Answer) {
        match answer {
            Ok(reply) => self.settle(tag.op, Outcome::Released(reply == Reply::Released)),
            Err(error) => {
                self.count_error(tag.client);
                let cleanup = self.remember_cleanup(store, tag.client, tag.key, tag.token, tag.until, false);
                self.retry_cleanup(cleanup);
                self.settle(tag.op, Outcome::Failed(error));
            }
        }
        self.answered_one(tag.client);
    }

    /// One of the client's outstanding requests is answered.
    pub(super) fn answered_one(&mut self, client: ClientId) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.outstanding -= 1;
        if known.outstanding == 0 && known.closed {
            self.clients.remove(&client);
        }
        if !self.barriers.is_empty() {
            self.lift_barriers();
        }
    }

    /// Gives back a lease whose grant the caller will never see, because it cancelled.
    pub(super) fn give_back_unseen(&mut self, op: OpId) {
        let Some(tenure) = self.end_tenure(op) else { return };
        tenure.state.release(self.now);
        tenure.stats.aborted.up();
        self.leave_line(op, &tenure);
        self.clean_up_after(tenure);
    }

    /// Releases a lease that has ended here and may live on at the store.
    pub(super) fn clean_up_after(&mut self, tenure: Tenure) {
        let Tenure { client, store, key, token, store_expiry, .. } = tenure;
        self.clean_up(store, client, key, token, store_expiry.max(self.now), false);
    }

    /// Releases whatever lease `token` may have, now and again until the store has said so, or until it has
    /// ended by itself at `until`. `straggler` if the request that makes the lease may still be on its way.
    pub(super) fn clean_up(
        &mut self,
        store: StoreId,
        client: ClientId,
        key: Key,
        token: Token,
        until: Instant,
        straggler: bool,
    ) {
        let id = self.remember_cleanup(store, client, key, token, until, straggler);
        self.wake_cleanup(id);
    }

    fn remember_cleanup(
        &mut self,
        store: StoreId,
        client: ClientId,
        key: Key,
        token: Token,
        until: Instant,
        straggler: bool,
    ) -> u64 {
        let id = self.next_serial();
        let timeout = self.store_timeout(client);
        self.stores.entry(store).or_default().cleanups += 1;
        let counted = self.clients.get_mut(&client).map(|client| client.outstanding += 1).is_some();
        let repeats = if straggler { REPEATS } else { 0 };
        let cleanup =
            Cleanup { client, store, key, token, timeout, until, failures: 0, repeats, counted, wake: None };
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
            Ok(Reply::NotHeld(_)) => self.repeat_cleanup(id),
            // Done; or an error that no repetition mends, and the ttl has to do it.
            _ => self.forget_cleanup(id),
        }
    }

    /// There was nothing to release; what is still on its way may change that.
    fn repeat_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        let at = self.now + FIRST_REPEAT * 3u32.pow(REPEATS - cleanup.repeats);
        if cleanup.repeats == 0 || at >= cleanup.until {
            return self.forget_cleanup(id);
        }
        cleanup.repeats -= 1;
        cleanup.wake = Some(at);
        self.timers.schedule(at, Wake::Cleanup(id));
        if std::mem::take(&mut cleanup.counted) {
            let client = cleanup.client;
            self.answered_one(client);
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
        if cleanup.counted {
            self.answered_one(cleanup.client);
        }
    }

    /// Lets those go on who wait for nothing any longer.
    fn lift_barriers(&mut self) {
        let is_idle =
            |client: &ClientId| self.clients.get(client).is_none_or(|client| client.outstanding == 0);
        let done = self.barriers.iter().filter(|(_, barrier)| barrier.clients.iter().all(is_idle));
        let done: Vec<u64> = done.map(|(id, _)| *id).collect();
        for id in done {
            self.lift_barrier(id);
        }
    }

    pub(super) fn lift_barrier(&mut self, id: u64) {
        match self.barriers.remove(&id).map(|barrier| barrier.waits) {
            Some(Waits::Operation(op)) => self.settle(op, Outcome::Done),
            Some(Waits::Thread(done)) => self.effects.unblocked.push(done),
            None => {}
        }
    }

    pub(super) fn close_client(&mut self, client: ClientId, op: OpId, patience: Duration) {
        self.close(vec![client], patience, Waits::Operation(op));
    }

    pub(super) fn close_env(&mut self, env: EnvId, done: SyncSender<()>, patience: Duration) {
        let clients = self.clients.iter().filter(|(_, c)| c.settings.env == env).map(|(id, _)| *id).collect();
        self.close(clients, patience, Waits::Thread(done));
        self.envs.remove(&env);
    }

    /// Ends everything of `clients`; whoever `waits` is told when their leases are released, or `patience` is over.
    fn close(&mut self, clients: Vec<ClientId>, patience: Duration, waits: Waits) {
        let is_ours = |client: &ClientId| clients.contains(client);
        let waiting: Vec<OpId> =
            self.waiters.iter().filter(|(_, w)| is_ours(&w.asked.client)).map(|(op, _)| *op).collect();
        let adopting: Vec<OpId> =
            self.adoptions.iter().filter(|(_, a)| is_ours(&a.client())).map(|(op, _)| *op).collect();
        let held: Vec<OpId> =
            self.tenures.iter().filter(|(_, t)| is_ours(&t.client)).map(|(op, _)| *op).collect();
        // First whoever waits, so that nothing is handed to them.
        for op in waiting {
            self.end_waiter(op, Outcome::Closed);
        }
        for op in adopting {
            self.end_adoption(op, Outcome::Closed);
        }
        for op in held {
            if let Some(tenure) = self.close_tenure(op) {
                self.leave_line(op, &tenure);
                self.clean_up_after(tenure);
            }
        }
        let id = self.next_serial();
        let until = self.now + patience;
        self.barriers.insert(id, Barrier { clients: clients.clone(), until, waits });
        self.timers.schedule(until, Wake::Barrier(id));
        for client in clients {
            self.forget_client(client);
        }
        self.lift_barriers();
    }

    fn forget_client(&mut self, client: ClientId) {
        let Some(known) = self.clients.get_mut(&client).filter(|client| !client.closed) else { return };
        known.closed = true;
        let store = known.store;
        if known.outstanding == 0 {
            self.clients.remove(&client);
        }
        if let Some(link) = self.stores.get_mut(&store) {
            link.clients -= 1;
        }
        self.drop_if_unused(store);
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
}
