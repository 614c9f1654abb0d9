//! Applies the store contract's rules to rows. Time, boot and owner come in as arguments; nothing
//! here reads a clock.

mod listing;
mod reading;
mod sweep;

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::time::Duration;

use rusqlite::{Connection, named_params};
use uuid::Uuid;

use super::super::adopted_lease::limit;
use super::super::rules::{self, Lock};
use super::super::{AcquireRequest, Answer, Reply, Request};
use super::breaks;
use super::row_lifetimes::{RowLifetimes, ThisStore};
use super::rows::{self, Origin, RowCache, Rows};
use crate::lease::{Fence, Instant, Key, Token};

const END_LEASES: &str = "DELETE FROM leases WHERE owner = :owner";
const END_WAITERS: &str = "DELETE FROM waiters WHERE owner = :owner";
const TAKE_OVER_LEASES: &str = "UPDATE leases SET owner = :new_owner WHERE owner = :owner";
const TAKE_OVER_WAITERS: &str = "UPDATE waiters SET owner = :new_owner WHERE owner = :owner";
/// The locks that change hands when an owner is gone; its other leases just end.
const AWAITED: &str = "SELECT key FROM waiters WHERE owner = :owner UNION SELECT key FROM leases
    WHERE owner = :owner AND EXISTS (SELECT 1 FROM waiters WHERE waiters.key = leases.key)";
const ANY_WAITERS: &str = "SELECT EXISTS (SELECT 1 FROM waiters)";
const LAST_OF_OWNER: &str = "SELECT max(last) FROM leases WHERE owner = :owner";
const FLOOR: &str = "SELECT floor FROM fence WHERE only = 0";
const RAISE_FLOOR: &str = "UPDATE fence SET floor = :floor WHERE only = 0 AND floor < :floor";
/// A waiter of this process that was handed a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedLease {
    pub token: Token,
    pub number: u64,
}

/// What has to be done after a transaction is committed.
#[derive(Debug, Default)]
pub struct AfterCommit {
    /// The waiters that get a notice.
    pub handed: Vec<HandedLease>,
    /// The owners that have no rows left and have to be removed.
    pub dead_owner_files: Vec<(Uuid, File)>,
}

/// Where a sweep goes on: after this key and token.
pub type Cursor = (String, String);

/// Carries out requests within one transaction, at one instant.
pub struct Transaction<'a> {
    connection: &'a Connection,
    rows: Rows<'a>,
    me: ThisStore<'a>,
    now: Instant,
    wall_us: u64,
    /// True if the transaction may write.
    writes: bool,
    /// The locks that were read. No other process can change them meanwhile.
    known: HashMap<Key, RowCache>,
    /// The floor of the fences in the file, once it was read. See [`rules`].
    floor: Option<Fence>,
    /// The largest fence of the leases that ended in this transaction. The commit raises the floor
    /// to it.
    raised: Fence,
    /// Whether the file has any waiters, once that was read. Mostly it has none, and then the queue
    /// of no lock has to be read.
    any_waiters: Option<bool>,
    row_lifetimes: RowLifetimes<'a>,
    /// Waiters of this process that were handed leases.
    handed: Vec<(Key, HandedLease)>,
}

impl<'a> Transaction<'a> {
    /// Returns the transaction that `connection` has begun, for the store `me` and the instant
    /// `now`. `wall_us` is the wall clock for fences, in µs since 1970.
    pub fn new(
        connection: &'a Connection,
        me: ThisStore<'a>,
        now: Instant,
        wall_us: u64,
        writes: bool,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            rows: Rows::new(connection)?,
            me,
            now,
            wall_us,
            writes,
            known: HashMap::new(),
            floor: None,
            raised: Fence::NONE,
            any_waiters: None,
            row_lifetimes: RowLifetimes::new(me, now, wall_us, writes),
            handed: Vec::new(),
        })
    }

    /// Carries out one batch, in order.
    pub fn batch(&mut self, batch: &[Request]) -> rusqlite::Result<Vec<Answer>> {
        self.known.reserve(batch.len());
        batch.iter().map(|request| self.apply(request).map(Ok)).collect()
    }

    /// Carries out one request. Nothing of it is in the file before [`Transaction::finish`].
    pub fn apply(&mut self, request: &Request) -> rusqlite::Result<Reply> {
        let me = self.me;
        match request {
            Request::Ping => Ok(Reply::Ready),
            // A diagnosis only has to find out whether the file can be opened and read.
            Request::Diagnose { .. } => Ok(Reply::Diagnosed(Vec::new())),
            Request::Inspect { key } => {
                let now = self.now;
                Ok(self.load(key)?.lock.inspect(now))
            }
            Request::List(filter) => Ok(Reply::Listed(self.list(filter)?)),
            Request::Break { key, bars_repairs } => {
                if *bars_repairs {
                    breaks::note(self.connection, key, self.now, self.me.boot)?;
                }
                self.act(key, |lock, context| lock.break_all(context))
            }
            Request::Acquire(acquire)
                if acquire.repairs
                    && breaks::is_recent(self.connection, &acquire.key, self.now, self.me.boot)? =>
            {
                Ok(Reply::Busy { remaining: Some(Duration::ZERO) })
            }
            Request::Acquire(acquire) => {
                self.read_floor()?;
                self.drop_old_fence(acquire)?;
                let reply = self.act(&acquire.key, |lock, context| lock.acquire(acquire, context))?;
                match reply {
                    Reply::Acquired { .. } => {
                        let owner = me.owner_of(acquire.outlives_process);
                        self.own(&acquire.key, acquire.token, owner, acquire.ttl.as_duration())?
                    }
                    Reply::Queued { .. } if acquire.repairs => {
                        let owner = me.owner_of(acquire.outlives_process);
                        let origin = self.load(&acquire.key)?.place_first(acquire.token, owner, me.boot);
                        (origin.owner, origin.boot, origin.number) = (owner, me.boot, Some(0));
                    }
                    // The place of a repair stays as it is.
                    Reply::Queued { .. } if self.load(&acquire.key)?.repairs(acquire.token) => {}
                    Reply::Queued { .. } => {
                        let origin = self.load(&acquire.key)?.place(acquire.token, me.owner, me.boot);
                        (origin.owner, origin.boot) = (me.owner, me.boot);
                        origin.number = acquire.place.map(|place| place.number);
                    }
                    _ => {}
                }
                Ok(reply)
            }
            Request::Renew { key, token, ttl, fences } => {
                if *fences > 0 {
                    self.read_floor()?;
                }
                let reply = self.act(key, |lock, context| lock.renew(*token, *ttl, *fences, context))?;
                if matches!(reply, Reply::Renewed { .. }) {
                    // Write the owner, too: if the owner's file was deleted, the lease names the
                    // new owner from now on.
                    let outlives_process = self.load(key)?.entry(*token, me.owner, me.boot).owner.is_nil();
                    self.own(key, *token, me.owner_of(outlives_process), ttl.as_duration())?;
                }
                Ok(reply)
            }
            Request::Detach { key, token, ttl, fence, own_ttl } => {
                let reply =
                    self.act(key, |lock, context| lock.detach(*token, *ttl, *fence, *own_ttl, context))?;
                if matches!(reply, Reply::Renewed { .. }) {
                    self.own(key, *token, Uuid::nil(), ttl.as_duration())?;
                    self.outlive(key, *token)?;
                }
                Ok(reply)
            }
            Request::Adopt { key, token, adopter, ttl, holder, outlives_process, source } => {
                // A lease that has no fence gets one.
                self.read_floor()?;
                // The lease keeps the ttl of its ticket if that is longer.
                let given = self.load(key)?.entry(*token, me.owner, me.boot).ttl;
                let reply = self
                    .act(key, |lock, context| lock.adopt(*token, *adopter, *ttl, *source, holder, context))?;
                if let Reply::Adopted(adopted_lease) = reply {
                    let owner = me.owner_of(*outlives_process);
                    let ttl = limit(*ttl, *source, adopted_lease.ttl).as_duration();
                    self.own(key, *adopter, owner, given.max(ttl))?;
                }
                Ok(reply)
            }
            Request::Move { key, token, to, adopter, most } => {
                let given = self.load(key)?.entry(*token, me.owner, me.boot).ttl;
                let reply =
                    self.act(key, |lock, context| lock.pass(*token, *to, *adopter, *most, context))?;
                // If the adopter has the lease already, its process stays the owner.
                if reply.is_adopted() && self.load(key)?.lock.held.iter().any(|held| held.token == *to) {
                    self.own(key, *to, Uuid::nil(), given)?;
                    self.outlive(key, *to)?;
                }
                Ok(reply)
            }
            Request::Accept { key, token, fence, count } => {
                self.act(key, |lock, context| lock.accept(*token, *fence, *count, context))
            }
            Request::Release { key, token, used } => self.release(key, *token, *used),
            Request::GiveBack { key, token, .. } => self.release(key, *token, None),
        }
    }

    /// Drops the fence of the asker's lease if no live owner is known to have written it, so that
    /// the acquire reserves a new fence. The files may have been moved away and back, and other
    /// files gave larger fences meanwhile. Every store gave up its owner before that. A lease that
    /// outlives its process names no owner, so it always gets a new fence, unless it was detached.
    fn drop_old_fence(&mut self, acquire: &AcquireRequest) -> rusqlite::Result<()> {
        let me = self.me;
        let known = self.load(&acquire.key)?;
        let Some(index) = known.lock.held.iter().position(|held| held.token == acquire.token) else {
            return Ok(());
        };
        let owner = known.entry(acquire.token, me.owner, me.boot).owner;
        let is_old = if owner.is_nil() {
            acquire.outlives_process
        } else {
            self.row_lifetimes.look_up_owner(owner) != Some(true)
        };
        if is_old {
            self.load(&acquire.key)?.lock.held[index].drop_fence();
        }
        Ok(())
    }

    fn release(&mut self, key: &Key, token: Token, used: Option<Fence>) -> rusqlite::Result<Reply> {
        let me = self.me;
        let reply = self.act(key, |lock, context| lock.release(token, used, context))?;
        // If the token waits again within the transaction, it gets the last place in the queue.
        self.load(key)?.entry(token, me.owner, me.boot).place = 0;
        Ok(reply)
    }

    /// Ends the leases of `key` that have run out or whose processes are gone, and hands the lock
    /// on.
    pub fn look(&mut self, key: &Key) -> rusqlite::Result<()> {
        self.act(key, |lock, context| lock.settle(context))
    }

    /// Gives all rows of the `former` owner to this store's owner. Call it before any row is read.
    pub fn take_over(&mut self, former: Uuid) -> rusqlite::Result<()> {
        for take_over in [TAKE_OVER_LEASES, TAKE_OVER_WAITERS] {
            self.connection.execute(
                take_over,
                named_params! { ":new_owner": self.me.owner.as_bytes(), ":owner": former.as_bytes() },
            )?;
        }
        Ok(())
    }

    /// Frees the leases and waiters of an owner whose process is gone.
    pub fn free(&mut self, owner: Uuid, handle: File) {
        self.row_lifetimes.note_gone(owner, handle);
    }

    /// Frees the leases and waiters of this store, which is about to end.
    pub fn retire(&mut self) {
        self.row_lifetimes.retire();
    }

    /// Hands on the leases of processes that are gone, and writes all changes into the file.
    /// Returns what has to be done after the commit.
    pub fn finish(mut self) -> rusqlite::Result<AfterCommit> {
        if !self.writes {
            return Ok(AfterCommit::default());
        }
        let mut handled = 0;
        // Reading the locks of one owner may show that other owners are gone, too.
        while let Some(owner) = self.row_lifetimes.gone().get(handled) {
            let mut statement = self.connection.prepare_cached(AWAITED)?;
            let keys = statement.query_map(named_params! { ":owner": owner.as_bytes() }, |row| row.get(0))?;
            for key in keys.collect::<rusqlite::Result<Vec<Key>>>()? {
                self.look(&key)?;
            }
            handled += 1;
        }
        let (known, me) = (&mut self.known, self.me);
        // A waiter that took up its lease in the same transaction needs no notice.
        self.handed.retain(|(key, handed)| {
            let Some(known) = known.get_mut(key) else { return false };
            let holds = known.lock.held.iter().any(|held| held.token == handed.token);
            holds && known.entry(handed.token, me.owner, me.boot).number.is_some()
        });
        for (key, known) in self.known.drain() {
            self.rows.store(&key, known)?;
        }
        for owner in self.row_lifetimes.gone() {
            // This transaction may not have read these leases. Only the rows say how far their
            // fences went.
            let mut statement = self.connection.prepare_cached(LAST_OF_OWNER)?;
            let last: Option<i64> =
                statement.query_row(named_params! { ":owner": owner.as_bytes() }, |row| row.get(0))?;
            self.raised = self.raised.max(last.map_or(Fence::NONE, rows::fence_of));
            for end in [END_LEASES, END_WAITERS] {
                self.connection.prepare_cached(end)?.execute(named_params! { ":owner": owner.as_bytes() })?;
            }
        }
        if self.raised > self.floor.unwrap_or(Fence::NONE) {
            let floor = self.raised.0.cast_signed();
            self.connection.prepare_cached(RAISE_FLOOR)?.execute(named_params! { ":floor": floor })?;
        }
        let handed = self.handed.into_iter().map(|(_, handed)| handed).collect();
        Ok(AfterCommit { handed, dead_owner_files: self.row_lifetimes.into_dead_owner_files() })
    }

    /// Applies one of the rules to the lock `key`.
    fn act<T>(
        &mut self,
        key: &Key,
        rule: impl FnOnce(&mut Lock, &mut rules::RuleContext<'_>) -> T,
    ) -> rusqlite::Result<T> {
        if !self.load(key)?.lock.queue.is_empty() {
            // A waiter that is handed the lock gets a fence.
            self.read_floor()?;
        }
        let known = self.known.get_mut(key).expect("just loaded");
        let (me, now, wall_us, floor) = (self.me, self.now, self.wall_us, self.floor);
        let raised = Cell::from_mut(&mut self.raised);
        let mut fences = |after: Fence, _: u32| {
            let floor = floor.expect("the floor is read before a rule that reserves fences");
            floor.max(raised.get()).max(after).next(wall_us)
        };
        let mut raise = |fence: Fence| raised.set(raised.get().max(fence));
        let mut handed = Vec::new();
        let mut hand = |waiting: &rules::Waiting, _: Option<Fence>| {
            let lives = waiting.handed_until(now).since(now);
            let told = HandedLease { token: waiting.token, number: waiting.number };
            handed.push((told, lives, waiting.repairs()));
        };
        let mut context =
            rules::RuleContext { now, fences: &mut fences, raise: &mut raise, handed: &mut hand };
        let result = rule(&mut known.lock, &mut context);
        for (handed, lives, repairs) in handed {
            let origin = known.entry(handed.token, me.owner, me.boot);
            (origin.boot, origin.ttl, origin.place) = (me.boot, lives, 0);
            if repairs {
                // No waiter has to take up the lease of a repair.
                origin.number = None;
            } else if origin.owner == me.owner {
                self.handed.push((key.clone(), handed));
            }
        }
        Ok(result)
    }

    /// Records that the lease of `token` belongs to `owner` from now on, that it is taken up, and
    /// its ttl: `ttl`, or the recorded one if that is longer.
    fn own(&mut self, key: &Key, token: Token, owner: Uuid, ttl: Duration) -> rusqlite::Result<()> {
        let boot = self.me.boot;
        let origin = self.load(key)?.entry(token, owner, boot);
        *origin = Origin::new(owner, boot, origin.ttl.max(ttl));
        Ok(())
    }

    /// Records when the lease of `token` ends by the wall clock. That instant counts in another
    /// boot.
    fn outlive(&mut self, key: &Key, token: Token) -> rusqlite::Result<()> {
        let (me, now, wall) = (self.me, self.now, Instant::from_micros(self.wall_us));
        let known = self.load(key)?;
        let ends = known.lock.held.iter().find(|held| held.token == token).map(|held| held.ends);
        let wall_ends = ends.map(|ends| (wall + ends.since(now)).as_micros());
        known.entry(token, me.owner, me.boot).wall_ends = wall_ends;
        Ok(())
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "detached_tests.rs"]
mod detached_tests;

#[cfg(test)]
#[path = "queue_tests.rs"]
mod queue_tests;

#[cfg(test)]
#[path = "outliving_tests.rs"]
mod outliving_tests;

#[cfg(test)]
#[path = "boots_tests.rs"]
mod boots_tests;
