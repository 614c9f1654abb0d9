//! Ends: leases given back, clients and environments closed.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::cleanup::Leftover;
use super::holding::Tenure;
use super::outgoing::{ReleaseTag, Tag};
use super::{Core, Wake};
use crate::engine::command::{ClientId, EnvId, OpId, Outcome, StoreId};
use crate::lease::doubts::LONGEST_DOUBT;
use crate::lease::{Instant, LossReason, Phase};
use crate::store::{Answer, Reply, Request};

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
        let used = tenure.last_used();
        let Tenure { client, store, key, token, store_expiry, .. } = tenure;
        let timeout = self.store_timeout(client);
        let tag = ReleaseTag { op, client, key: key.clone(), token, until: store_expiry.max(self.now) };
        self.send(store, Request::Release { key, token, used }, Tag::Release(tag), timeout);
        if let Some(client) = self.clients.get_mut(&client) {
            client.outstanding += 1;
        }
    }

    /// The store answered the release that the holder waits for.
    pub(super) fn gave_back(&mut self, store: StoreId, tag: ReleaseTag, answer: Answer) {
        let client = tag.client;
        match answer {
            Ok(reply) => {
                self.settle(tag.op, Outcome::Released(reply == Reply::Released));
                let ReleaseTag { key, token, .. } = tag;
                if self.doubts.settle(self.now, token) {
                    let until = self.now + LONGEST_DOUBT;
                    self.clean_up_again(Leftover {
                        client,
                        store,
                        key,
                        token,
                        ticket: None,
                        until,
                        straggler: true,
                    });
                }
            }
            Err(error) => {
                self.count_error(client);
                let ReleaseTag { key, token, until, .. } = tag;
                let left = Leftover { client, store, key, token, ticket: None, until, straggler: false };
                self.clean_up_later(left);
                self.settle(tag.op, Outcome::Failed(error));
            }
        }
        self.answered_one(client);
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
        let until = store_expiry.max(self.now);
        self.clean_up(Leftover { client, store, key, token, ticket: None, until, straggler: false });
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
        self.close(self.clients_of(env), patience, Waits::Thread(done));
        self.envs.remove(&env);
    }

    /// Refuses the waiting acquires of an environment whose JavaScript has ended. Its leases stay.
    pub(super) fn excuse_env(&mut self, env: EnvId) {
        if let Some(env) = self.envs.get(&env) {
            env.pulse.excuse();
        }
        let clients = self.clients_of(env);
        for client in &clients {
            self.clients.entry(*client).and_modify(|client| client.draining = true);
        }
        self.end_all(&clients, |_| false);
    }

    fn clients_of(&self, env: EnvId) -> Vec<ClientId> {
        self.clients.iter().filter(|(_, client)| client.settings.env == env).map(|(id, _)| *id).collect()
    }

    /// Refuses the client's waiting acquires and releases its leases, except those of sections:
    /// sections release their own leases.
    pub(super) fn drain_client(&mut self, client: ClientId) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.draining = true;
        self.end_all(&[client], |tenure| !tenure.section);
    }

    /// Ends everything of `clients`; whoever `waits` is told when their leases are released, or `patience` is over.
    fn close(&mut self, clients: Vec<ClientId>, patience: Duration, waits: Waits) {
        self.end_all(&clients, |_| true);
        let id = self.next_serial();
        let until = self.now + patience;
        self.barriers.insert(id, Barrier { clients: clients.clone(), until, waits });
        self.timers.schedule(until, Wake::Barrier(id));
        for client in clients {
            self.forget_client(client);
        }
        self.lift_barriers();
    }

    /// Ends all waiting acquires of `clients`, and those of their leases for which `ends` returns
    /// true.
    fn end_all(&mut self, clients: &[ClientId], ends: impl Fn(&Tenure) -> bool) {
        let is_ours = |client: &ClientId| clients.contains(client);
        let waiting: Vec<OpId> =
            self.waiters.iter().filter(|(_, w)| is_ours(&w.asked.client)).map(|(op, _)| *op).collect();
        let adopting: Vec<OpId> =
            self.adoptions.iter().filter(|(_, a)| is_ours(&a.client())).map(|(op, _)| *op).collect();
        let held: Vec<OpId> =
            self.tenures.iter().filter(|(_, t)| is_ours(&t.client) && ends(t)).map(|(op, _)| *op).collect();
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
                if !tenure.outlives {
                    self.clean_up_after(tenure);
                }
            }
        }
    }

    fn forget_client(&mut self, client: ClientId) {
        let Some(known) = self.clients.get_mut(&client).filter(|client| !client.closed) else { return };
        known.closed = true;
        let (store, watch) = (known.store, known.watch.take());
        if known.outstanding == 0 {
            self.clients.remove(&client);
        }
        if let Some(watch) = watch {
            self.settle(watch, Outcome::Done);
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
