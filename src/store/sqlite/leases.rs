//! The store contract's rules, applied to rows. Time, boot and owner come in as arguments; nothing here reads a clock.

mod reading;

use std::cell::Cell;
use std::fs::File;
use std::time::Duration;

use rusqlite::{Connection, named_params};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::super::inheritance::limit;
use super::super::listing::{Listing, Wanted};
use super::super::rules::{self, Lock};
use super::super::{Answer, Ask, Reply, Request, WAITER_LIFE};
use super::breaks;
use super::peers::{Fate, Me, Peers, Span};
use super::rows::{self, Known, Origin, Rows};
use crate::lease::{Fence, Instant, Key, Token};

const END_LEASES: &str = "DELETE FROM leases WHERE owner = :owner";
const END_WAITERS: &str = "DELETE FROM waiters WHERE owner = :owner";
const INHERIT_LEASES: &str = "UPDATE leases SET owner = :heir WHERE owner = :owner";
const INHERIT_WAITERS: &str = "UPDATE waiters SET owner = :heir WHERE owner = :owner";
/// The locks that change hands when an owner is gone; its other leases just end.
const AWAITED: &str = "SELECT key FROM waiters WHERE owner = :owner UNION SELECT key FROM leases
    WHERE owner = :owner AND EXISTS (SELECT 1 FROM waiters WHERE waiters.key = leases.key)";
const ANY_WAITERS: &str = "SELECT EXISTS (SELECT 1 FROM waiters)";
const LAST_OF_OWNER: &str = "SELECT max(last) FROM leases WHERE owner = :owner";
const FLOOR: &str = "SELECT floor FROM fence WHERE only = 0";
const RAISE_FLOOR: &str = "UPDATE fence SET floor = :floor WHERE only = 0 AND floor < :floor";
const NEXT: &str =
    "SELECT key, token, ends, ttl, owner, boot, wall_ends FROM leases WHERE (key, token) > (:key, :token)
    ORDER BY key, token LIMIT :count";
/// Waiters whose time is over, or may be.
const STALE: &str =
    "SELECT DISTINCT key FROM waiters WHERE until <= :now OR until > :longest OR boot <> :boot";

/// The locks of which there are leases, some of which may be over.
const KEYS: &str = "SELECT DISTINCT key FROM leases WHERE key >= :from ORDER BY key LIMIT :count";

/// How many keys a listing reads at a time.
const LIST_STEP: usize = 200;
/// How many leases one step of the sweep looks at.
const SWEEP_STEP: usize = 200;

/// A waiter of this process that was handed a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    pub token: Token,
    pub number: u64,
}

/// What a turn leaves to be done once it is committed.
#[derive(Debug, Default)]
pub struct Aftermath {
    /// Who is to be told.
    pub handed: Vec<Handed>,
    /// Owners of whom nothing is left, to be buried.
    pub graves: Vec<(Uuid, File)>,
}

/// Where a sweep goes on: after this key and token.
pub type Cursor = (String, String);

/// One transaction's look at the locks, at one instant.
pub struct Turn<'a> {
    connection: &'a Connection,
    rows: Rows<'a>,
    me: Me<'a>,
    now: Instant,
    wall_us: u64,
    /// Whether the transaction may write.
    writes: bool,
    /// The locks that were looked at. Nobody else can change them meanwhile.
    known: FxHashMap<Key, Known>,
    /// The floor of the fences in the file, once it was read. See [`rules`].
    floor: Option<Fence>,
    /// The largest fence of the leases that ended in this transaction. The commit raises the floor
    /// to it.
    raised: Fence,
    /// Whether anybody waits in the file, once it was asked: mostly nobody does, and no lock needs to be asked then.
    any_waiters: Option<bool>,
    peers: Peers<'a>,
    /// Waiters of this process that were handed leases.
    handed: Vec<(Key, Handed)>,
}

impl<'a> Turn<'a> {
    /// A turn of `me` in the transaction that `connection` is in, at `now`; `wall_us` is the wall clock
    /// for fences.
    pub fn new(
        connection: &'a Connection,
        me: Me<'a>,
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
            known: FxHashMap::default(),
            floor: None,
            raised: Fence::NONE,
            any_waiters: None,
            peers: Peers::new(me, now, wall_us, writes),
            handed: Vec::new(),
        })
    }

    /// Carries out one batch, in order.
    pub fn batch(&mut self, batch: &[Request]) -> rusqlite::Result<Vec<Answer>> {
        self.known.reserve(batch.len());
        batch.iter().map(|request| self.apply(request).map(Ok)).collect()
    }

    /// Carries out one request. Nothing of it is in the file before [`Turn::finish`].
    pub fn apply(&mut self, request: &Request) -> rusqlite::Result<Reply> {
        let me = self.me;
        match request {
            Request::Ping => Ok(Reply::Ready),
            // That the file could be opened and read is what there is to find out here.
            Request::Diagnose { .. } => Ok(Reply::Diagnosed(Vec::new())),
            Request::Inspect { key } => {
                let now = self.now;
                Ok(self.load(key)?.lock.inspect(now))
            }
            Request::List(wanted) => Ok(Reply::Listed(self.list(wanted)?)),
            Request::Break { key, bars_repairs } => {
                if *bars_repairs {
                    breaks::note(self.connection, key, self.now, self.me.boot)?;
                }
                self.act(key, |lock, turn| lock.break_all(turn))
            }
            Request::Acquire(ask)
                if ask.repairs && breaks::is_recent(self.connection, &ask.key, self.now, self.me.boot)? =>
            {
                Ok(Reply::Busy { remaining: Some(Duration::ZERO) })
            }
            Request::Acquire(ask) => {
                self.read_floor()?;
                self.drop_old_fence(ask)?;
                let reply = self.act(&ask.key, |lock, turn| lock.acquire(ask, turn))?;
                match reply {
                    Reply::Acquired { .. } => {
                        let owner = me.owner_of(ask.outlives_process);
                        self.own(&ask.key, ask.token, owner, ask.ttl.as_duration())?
                    }
                    Reply::Queued { .. } if ask.repairs => {
                        let owner = me.owner_of(ask.outlives_process);
                        let origin = self.load(&ask.key)?.place_first(ask.token, owner, me.boot);
                        (origin.owner, origin.boot, origin.number) = (owner, me.boot, Some(0));
                    }
                    // The place of a repair stays as it is.
                    Reply::Queued { .. } if self.load(&ask.key)?.repairs(ask.token) => {}
                    Reply::Queued { .. } => {
                        let origin = self.load(&ask.key)?.place(ask.token, me.owner, me.boot);
                        (origin.owner, origin.boot) = (me.owner, me.boot);
                        origin.number = ask.place.map(|place| place.number);
                    }
                    _ => {}
                }
                Ok(reply)
            }
            Request::Renew { key, token, ttl, fences } => {
                if *fences > 0 {
                    self.read_floor()?;
                }
                let reply = self.act(key, |lock, turn| lock.renew(*token, *ttl, *fences, turn))?;
                if matches!(reply, Reply::Renewed { .. }) {
                    // The owner too: should its file have been deleted, the lease names the new one from now on.
                    let outlives_process = self.load(key)?.entry(*token, me.owner, me.boot).owner.is_nil();
                    self.own(key, *token, me.owner_of(outlives_process), ttl.as_duration())?;
                }
                Ok(reply)
            }
            Request::Detach { key, token, ttl, fence, own_ttl } => {
                let reply = self.act(key, |lock, turn| lock.detach(*token, *ttl, *fence, *own_ttl, turn))?;
                if matches!(reply, Reply::Renewed { .. }) {
                    self.own(key, *token, Uuid::nil(), ttl.as_duration())?;
                    self.outlive(key, *token)?;
                }
                Ok(reply)
            }
            Request::Adopt { key, token, heir, ttl, holder, outlives_process, source } => {
                // A lease that has no fence gets one.
                self.read_floor()?;
                // It has what its ticket gave it, if that is more.
                let given = self.load(key)?.entry(*token, me.owner, me.boot).ttl;
                let reply =
                    self.act(key, |lock, turn| lock.adopt(*token, *heir, *ttl, *source, holder, turn))?;
                if let Reply::Adopted(inherited) = reply {
                    let owner = me.owner_of(*outlives_process);
                    let ttl = limit(*ttl, *source, inherited.ttl).as_duration();
                    self.own(key, *heir, owner, given.max(ttl))?;
                }
                Ok(reply)
            }
            Request::Move { key, token, to, heir } => {
                let given = self.load(key)?.entry(*token, me.owner, me.boot).ttl;
                let reply = self.act(key, |lock, turn| lock.pass(*token, *to, *heir, turn))?;
                // If the heir has the lease already, its process stays the owner.
                if reply.is_adopted() && self.load(key)?.lock.held.iter().any(|held| held.token == *to) {
                    self.own(key, *to, Uuid::nil(), given)?;
                    self.outlive(key, *to)?;
                }
                Ok(reply)
            }
            Request::Accept { key, token, fence, count } => {
                self.act(key, |lock, turn| lock.accept(*token, *fence, *count, turn))
            }
            Request::Release { key, token, used } => self.release(key, *token, *used),
            Request::GiveBack { key, token, .. } => self.release(key, *token, None),
        }
    }

    /// Drops the fence of the asker's lease if no live owner is known to have written it, so that
    /// the acquire reserves a new fence. The files may have been moved away and back, and other
    /// files gave larger fences meanwhile. Every store gave up its owner before that. A lease that
    /// outlives its process names no owner, so it always gets a new fence.
    fn drop_old_fence(&mut self, ask: &Ask) -> rusqlite::Result<()> {
        let me = self.me;
        let known = self.load(&ask.key)?;
        let Some(index) = known.lock.held.iter().position(|held| held.token == ask.token) else {
            return Ok(());
        };
        let owner = known.entry(ask.token, me.owner, me.boot).owner;
        let is_old =
            if owner.is_nil() { ask.outlives_process } else { self.peers.is_alive(owner) != Some(true) };
        if is_old {
            self.load(&ask.key)?.lock.held[index].fence = None;
        }
        Ok(())
    }

    fn release(&mut self, key: &Key, token: Token, used: Option<Fence>) -> rusqlite::Result<Reply> {
        let me = self.me;
        let reply = self.act(key, |lock, turn| lock.release(token, used, turn))?;
        // If it comes back within the turn, it does so at the end of the queue.
        self.load(key)?.entry(token, me.owner, me.boot).place = 0;
        Ok(reply)
    }

    fn list(&mut self, wanted: &Wanted) -> rusqlite::Result<Listing> {
        let (mut listing, mut from, now) = (Listing::default(), wanted.prefix.to_string(), self.now);
        loop {
            let mut statement = self.connection.prepare_cached(KEYS)?;
            let named = named_params! { ":from": from, ":count": LIST_STEP as i64 };
            let keys =
                statement.query_map(named, |row| row.get(0))?.collect::<rusqlite::Result<Vec<Key>>>()?;
            for key in keys.iter().filter(|key| wanted.matches(key)) {
                if let Reply::Inspected(Some(info)) = self.load(key)?.lock.inspect(now)
                    && !listing.add(wanted, key.clone(), info)
                {
                    return Ok(listing);
                }
            }
            match keys.last().filter(|last| keys.len() == LIST_STEP && last.starts_with(&*wanted.prefix)) {
                // No key has a NUL in it, so nothing comes between this one and that.
                Some(last) => from = format!("{last}\0"),
                None => return Ok(listing),
            }
        }
    }

    /// Looks whether a lease of `key` has ended or its process is gone, and hands it on then.
    pub fn look(&mut self, key: &Key) -> rusqlite::Result<()> {
        self.act(key, |lock, turn| lock.settle(turn))
    }

    /// Gives all rows of the `former` owner to this store's owner. Call it before any row is read.
    pub fn inherit(&mut self, former: Uuid) -> rusqlite::Result<()> {
        for inherit in [INHERIT_LEASES, INHERIT_WAITERS] {
            self.connection.execute(
                inherit,
                named_params! { ":heir": self.me.owner.as_bytes(), ":owner": former.as_bytes() },
            )?;
        }
        Ok(())
    }

    /// Frees the leases and waiters of an owner whose process is gone.
    pub fn free(&mut self, owner: Uuid, handle: File) {
        self.peers.bury(owner, handle);
    }

    /// Frees what this store has itself, which is about to end.
    pub fn retire(&mut self) {
        self.peers.retire();
    }

    /// One step of the sweep: looks at the locks after `after` of which a lease has run out, in case nobody asks. At
    /// the beginning of a round also at those where a waiter's time has. Returns where to go on; the beginning at the end.
    pub fn sweep(&mut self, after: &Cursor) -> rusqlite::Result<Cursor> {
        let (key, token) = after;
        if key.is_empty() && token.is_empty() {
            let (now, longest) = (self.now, self.now + WAITER_LIFE);
            let mut statement = self.connection.prepare_cached(STALE)?;
            let keys = statement.query_map(
                named_params! {
                    ":now": now.as_micros().cast_signed(), ":longest": longest.as_micros().cast_signed(),
                    ":boot": self.me.boot.as_bytes(),
                },
                |row| row.get(0),
            )?;
            for key in keys.collect::<rusqlite::Result<Vec<Key>>>()? {
                self.look(&key)?;
            }
            breaks::sweep(self.connection, self.now, self.me.boot)?;
        }
        let mut statement = self.connection.prepare_cached(NEXT)?;
        let rows = statement.query_map(
            named_params! { ":key": key, ":token": token, ":count": SWEEP_STEP as i64 },
            |row| {
                let cursor: Cursor = (row.get(0)?, row.get(1)?);
                let span = Span {
                    ends: Instant::from_micros(rows::number_of(row, 2)?),
                    ttl: Duration::from_millis(rows::number_of(row, 3)?),
                    is_place: false,
                    owner: rows::id_of(row, 4)?,
                    boot: rows::id_of(row, 5)?,
                    wall_ends: row.get::<_, Option<i64>>(6)?.map(i64::cast_unsigned),
                };
                Ok((cursor, span))
            },
        )?;
        let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        for ((key, _), span) in &rows {
            if matches!(self.peers.fate_by_time(*span), Fate::Over | Fate::Outlives(_)) {
                self.look(&key.as_str().into())?;
            }
        }
        let last = rows.pop().filter(|_| rows.len() == SWEEP_STEP - 1);
        Ok(last.map(|(cursor, _)| cursor).unwrap_or_default())
    }

    /// Writes everything down, and hands on what those leave who were found to be gone. What it returns is to be done
    /// after the commit.
    pub fn finish(mut self) -> rusqlite::Result<Aftermath> {
        if !self.writes {
            return Ok(Aftermath::default());
        }
        let mut handled = 0;
        // Looking at their locks may show that others are gone, too.
        while let Some(owner) = self.peers.gone().get(handled) {
            let mut statement = self.connection.prepare_cached(AWAITED)?;
            let keys = statement.query_map(named_params! { ":owner": owner.as_bytes() }, |row| row.get(0))?;
            for key in keys.collect::<rusqlite::Result<Vec<Key>>>()? {
                self.look(&key)?;
            }
            handled += 1;
        }
        let (known, me) = (&mut self.known, self.me);
        // Who was handed a lease and took it up in the same turn knows.
        self.handed.retain(|(key, handed)| {
            let Some(known) = known.get_mut(key) else { return false };
            let holds = known.lock.held.iter().any(|held| held.token == handed.token);
            holds && known.entry(handed.token, me.owner, me.boot).number.is_some()
        });
        for (key, known) in self.known.drain() {
            self.rows.store(&key, known)?;
        }
        for owner in self.peers.gone() {
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
        Ok(Aftermath { handed, graves: self.peers.into_graves() })
    }

    /// Applies one of the rules to the lock `key`.
    fn act<T>(
        &mut self,
        key: &Key,
        rule: impl FnOnce(&mut Lock, &mut rules::Turn<'_>) -> T,
    ) -> rusqlite::Result<T> {
        if !self.load(key)?.lock.queue.is_empty() {
            // Whoever is handed the lock gets a fence.
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
            let told = Handed { token: waiting.token, number: waiting.number };
            handed.push((told, lives, waiting.repairs()));
        };
        let mut turn = rules::Turn { now, fences: &mut fences, raise: &mut raise, handed: &mut hand };
        let result = rule(&mut known.lock, &mut turn);
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

    /// Writes down whose the lease of `token` is from now on, that it is taken up, and that it was wanted for `ttl`.
    fn own(&mut self, key: &Key, token: Token, owner: Uuid, ttl: Duration) -> rusqlite::Result<()> {
        let boot = self.me.boot;
        let origin = self.load(key)?.entry(token, owner, boot);
        *origin = Origin::new(owner, boot, origin.ttl.max(ttl));
        Ok(())
    }

    /// Writes down when the lease of `token` ends by the wall clock. That instant counts in another
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
#[path = "queue_tests.rs"]
mod queue_tests;

#[cfg(test)]
#[path = "outliving_tests.rs"]
mod outliving_tests;

#[cfg(test)]
#[path = "boots_tests.rs"]
mod boots_tests;
