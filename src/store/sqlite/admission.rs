//! When a store may use the files, and what happens when the files are replaced.
//!
//! **While a live owner uses the files, no store grants a lease in other files.** A store first
//! *registers*: it writes into its owner's file which files it has open. Then it *looks* at all
//! other live owners, and waits as long as one of them uses other files. Two stores A and B with
//! different files can't both go on. Each looks only once it has registered. So when the store that
//! registers last looks, both registrations are written, and it sees the other's. (That is Dekker's
//! argument; the fence below keeps both steps in that order on every processor.)
//!
//! An admitted store does not look at the others again. It checks its own files, every
//! [`CHECK_EVERY`]. Its grants in between are valid, because no other store is admitted meanwhile.
//! If a name leads elsewhere, the store tells the engine, which marks all leases of the store as
//! lost. Then the store unlocks its owner's file, and the waiting stores go on. That also frees
//! what the store had in the old files, in case they come back.
//!
//! **Before a store is admitted, it writes nothing into files that others may use.** After the
//! database is opened and before its log is opened, the names may begin to lead to other files: an
//! operator may move the database away and back. So the store may have another store's log open,
//! with a database of its own. It finds that out before it registers. Until then, it only reads,
//! except that
//!
//! - SQLite may create an empty log, and may rebuild an index that no other store has open. An
//!   index depends on its log alone.
//! - The store may remove a log of SQLite whose database is missing (`creation`). If another store
//!   has opened that log meanwhile, that store notices the removal, and this store waits for it,
//!   because they have different logs.
//! - Where possible, a new database is written under another name, and gets its own name when it is
//!   complete (`creation`). SQLite would write it in place, where its journal and its log might be
//!   those of another database.
//!
//! A store that has had no leases or waiters in the files for a while closes them and records that.
//! Nothing wakes it any more.
//!
//! **An owner's file stays locked as long as a row of a live lease names it.** If the file is no
//! longer in its place, the store makes a new owner. The file of the former owner may come back: an
//! operator may move the directory away and back. If the file were unlocked by then, it would look
//! like the file of a dead process. So the store keeps the file locked until a transaction has
//! given the rows to the new owner. Until then, other stores do not find the file that the rows
//! name, or find it locked. The rows count in both cases. If the store can't tell whether the file
//! is in its place, it keeps its owner.

use std::fs::File;
#[cfg(unix)]
use std::fs::Metadata;
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use uuid::Uuid;

use super::super::{Acknowledgement, Notice, StoreError, StoreErrorKind};
use super::change_watcher::ChangeWatcher;
#[cfg(unix)]
use super::file_id::FileId;
use super::file_location::FileLocation;
use super::file_thread::{FileThread, WATCH_PATIENCE};
use super::owner::Owner;
#[cfg(not(unix))]
use super::owner::prepare;
use super::owners::{self, Obstacle};
#[cfg(unix)]
use super::rights::{self, prepare};
use super::session::Session;
use super::session_error::SessionError;
use super::work::Work;
use super::{boot, creation, directory, failure, identity, leftovers};
use crate::engine::clock;
use crate::lease::Instant;

/// How often a store that has something in the files checks that they are still there. A new store
/// waits half of this on average, after the files were replaced. If this is larger, it waits
/// longer; if this is smaller, idle holders wake more often, for about 3 µs each.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// How often a new store checks whether the others have noticed that the files were replaced.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl FileThread {
    /// Opens the files if need be, and waits until it may use them, but not after `deadline`.
    pub(super) fn admit(&mut self, deadline: Instant) -> Result<(&mut Session, &Owner), SessionError> {
        if self.session.is_none() {
            self.open(deadline)?;
        }
        if !self.admitted {
            self.register(deadline)?;
            self.admitted = true;
        }
        match (&mut self.session, &self.owner) {
            (Some(session), Some(owner)) => Ok((session, owner)),
            _ => unreachable!("both were made above"),
        }
    }

    fn open(&mut self, deadline: Instant) -> Result<(), SessionError> {
        directory::secure(&self.path).map_err(SessionError::Broken)?;
        boot::learn().map_err(|error| SessionError::Broken(failure::of_system(&self.path, &error)))?;
        let place = FileLocation::of(&self.path)?;
        let elsewhere = self.owner.as_ref().is_some_and(|owner| !owner.is_of(&place.owners));
        if elsewhere || self.used.as_ref().is_some_and(|used| !used.are_named()) {
            return Err(SessionError::Moved);
        }
        #[cfg(unix)]
        {
            let database = place.real.metadata().ok();
            self.check_planted(&place, database.as_ref())?;
            rights::check(&place.owners, database.as_ref())
                .map_err(|error| SessionError::Broken(failure::of_owners(&place.owners, &error)))?;
        }
        // Wait before opening: opening a database without its log creates a new log, which disturbs
        // the stores that use the moved one.
        let mut is_missing = false;
        let session = loop {
            self.wait_for_others(&place, deadline)?;
            if is_missing {
                // No live owner uses any files any more.
                creation::create(&self.path, &place, deadline)?;
            }
            leftovers::check_beside(&place.real, false)
                .map_err(|error| SessionError::Broken(failure::of_system(&self.path, &error)))?;
            match Session::open(&self.path, &place, deadline)? {
                Some(session) => break session,
                None if clock::now() >= deadline => return Err(SessionError::Moved),
                None => is_missing = true,
            }
        };
        if self.used.as_ref().is_some_and(|used| used.ids != session.files().ids) {
            return Err(SessionError::Moved);
        }
        #[cfg(unix)]
        {
            // Another user may have put the file there since the first check. While it is open, no
            // other file has its id.
            let is_opened = |found: &Metadata| Some(FileId::of_metadata(found)) == session.files().ids.main;
            let opened = place.real.symlink_metadata().ok().filter(is_opened).ok_or(SessionError::Moved)?;
            self.check_planted(&place, Some(&opened))?;
        }
        self.check_at = clock::now() + CHECK_EVERY;
        self.place = Some(place);
        self.session = Some(session);
        self.admitted = false;
        if !self.change_watcher.is_empty() {
            // It may be another file, in which no waiter of this process is queued.
            let _ = self.notices.send(Notice::Missed);
        }
        Ok(())
    }

    #[cfg(unix)]
    fn check_planted(&self, place: &FileLocation, database: Option<&Metadata>) -> Result<(), SessionError> {
        rights::check_planted(&self.path, &place.real, database)
            .map_err(|error| SessionError::Broken(failure::of_system(&place.real, &error)))
    }

    /// Registers the files that this store uses, and waits until no live owner uses others.
    fn register(&mut self, deadline: Instant) -> Result<(), SessionError> {
        let (Some(session), Some(place)) = (&self.session, self.place.clone()) else {
            return Err(SessionError::Moved);
        };
        let files = session.files().clone();
        let failed = |error| SessionError::Broken(failure::of_owners(&place.owners, &error));
        // While the files were closed, no check looked for the owner's file.
        self.leave_lost_owner().map_err(failed)?;
        let Some(session) = &self.session else { return Err(SessionError::Moved) };
        let owner = match &mut self.owner {
            Some(owner) => owner,
            none => {
                let database = place.real.metadata().map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => SessionError::Moved,
                    _ => SessionError::Broken(failure::of_system(&place.real, &error)),
                })?;
                #[cfg(unix)]
                rights::share_log(&place.real, &database);
                let make = || {
                    prepare(&place.owners, &database).and_then(|()| Owner::create(&place.owners, &database))
                };
                let made = make().or_else(|error| {
                    // The log may fill the disk, and no process may be left that could empty it.
                    let is_alone = !owners::has_others(&place.owners, Uuid::nil());
                    if failure::is_full(&error) && is_alone && session.put_log_back() {
                        make()
                    } else {
                        Err(error)
                    }
                });
                none.insert(made.map_err(failed)?)
            }
        };
        owner.say(Some(files.ids)).map_err(failed)?;
        self.used = Some(files);
        let dead = self.wait_for_others(&place, deadline)?;
        if let Some(session) = &mut self.session {
            session.free_first(dead);
        }
        Ok(())
    }

    /// Waits until no live owner uses files other than the opened ones. If none are open yet,
    /// compares with the files that have the names now. Returns the owners whose processes are
    /// gone.
    fn wait_for_others(
        &mut self,
        place: &FileLocation,
        deadline: Instant,
    ) -> Result<Vec<(Uuid, File)>, SessionError> {
        let failed = |error| SessionError::Broken(failure::of_owners(&place.owners, &error));
        let dead = loop {
            let ids = self.session.as_ref().map_or_else(|| place.names.look(), |session| session.files().ids);
            // This store's registration has to be visible before it reads those of others.
            fence(Ordering::SeqCst);
            let except = self.owner.as_ref().map(Owner::id);
            let scan = owners::scan(&place.owners, except, &ids, &place.kernel).map_err(failed)?;
            // If two stores see each other, the file names of one of them now lead to other files.
            if self.session.as_ref().is_some_and(Session::is_moved) {
                return Err(SessionError::Moved);
            }
            let Some(obstacle) = scan.obstacle else { break scan.dead };
            if clock::now() >= deadline {
                return Err(SessionError::Busy(self.in_the_way(obstacle)));
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        let apart = identity::copies_exclude_each_other(&place.owners);
        self.refuse_second_copy(!apart && owners::is_second_copy(&place.owners).map_err(failed)?)?;
        Ok(dead)
    }

    pub(super) fn refuse_second_copy(&mut self, is_second: bool) -> Result<(), SessionError> {
        if !is_second {
            return Ok(());
        }
        // Remove this copy's owner, so that the other copy is not refused in its turn. If this copy
        // holds leases, it keeps them.
        if self.usage.is_empty()
            && let Some(owner) = self.owner.take()
        {
            self.close();
            self.former.clear();
            owner.retire();
        }
        Err(SessionError::Broken(self.second_copy()))
    }

    fn in_the_way(&self, obstacle: Obstacle) -> StoreError {
        let path = self.path.display();
        let message = match obstacle {
            Obstacle::OtherFiles { pid } => format!(
                "the lock file {path} or its -wal or -shm was moved, replaced or removed while process {pid} was \
                 using it, or that process sees the files on another device, as with two mounts of a network \
                 file system; locks are granted again when that process has noticed, after about 0.1 s; if \
                 that process is stopped, resume or end it; if there are two mounts, use only one"
            ),
            Obstacle::Unreadable { file, why } => format!(
                "can't tell whether another process uses the lock file {path}, because {} can't be read ({why}); \
                 allow this user to read that file, or delete it if no process uses the lock file",
                file.display()
            ),
        };
        StoreError::not_done(StoreErrorKind::Loading, message)
    }

    fn second_copy(&self) -> StoreError {
        let message = format!(
            "the lock file {} is open in another copy of leasehold in this process, and this system has no file \
             locks that keep the two copies apart; install one version only, declare leasehold external in the \
             bundler, or use Redis",
            self.path.display()
        );
        StoreError::not_done(StoreErrorKind::Unsupported, message)
    }

    /// Returns when to check the files next; `None` while they are closed.
    pub(super) fn check_due(&self) -> Option<Instant> {
        (self.session.is_some() || self.used.is_some()).then_some(self.check_at)
    }

    /// Checks the files, and closes them when this store has nothing left in them.
    pub(super) fn check(&mut self) {
        let now = clock::now();
        self.check_at = now + CHECK_EVERY;
        let moved = self.used.as_ref().is_some_and(|used| !used.are_named())
            || self.session.as_ref().is_some_and(Session::is_moved);
        if moved {
            return self.lose();
        }
        if self.usage.may_rest(now) && self.change_watcher.is_empty() {
            return self.rest();
        }
        // If this store can't tell where the file is, the next check looks again.
        let _ = self.leave_lost_owner();
        if let Some(owner) = self.owner.as_ref().filter(|owner| owner.is_damaged()) {
            let _ = owner.say(self.used.as_ref().map(|used| used.ids));
        }
        // Until other stores see a new owner, only these checks protect the leases. If this store
        // can't be admitted now, the next check tries again.
        let is_unseen = self.owner.is_none() || !self.admitted && !self.former.is_empty();
        if is_unseen && let Err(SessionError::Moved) = self.admit(now).map(drop) {
            return self.lose();
        }
        if !self.former.is_empty() {
            self.take_over();
        }
    }

    /// Makes the owner a former one if other stores can no longer find its file. Its leases count
    /// until their ttl ends or a new owner takes them over.
    fn leave_lost_owner(&mut self) -> io::Result<()> {
        let is_lost = self.owner.as_ref().map_or(Ok(false), |owner| owner.is_in_place().map(|is| !is))?;
        if is_lost {
            self.former.extend(self.owner.take());
            self.admitted = false;
        }
        Ok(())
    }

    /// Gives the rows of the former owners to the current owner, and then removes the files of the
    /// former owners. If that is not possible now, the next check tries again.
    fn take_over(&mut self) {
        let (Some(session), Some(owner), true) = (&mut self.session, &self.owner, self.admitted) else {
            return;
        };
        let work = Work { former: self.former.iter().map(Owner::id).collect(), ..Work::default() };
        let done = session.transact(owner, work, clock::now() + WATCH_PATIENCE);
        if let Some(done) = self.unless_broken(done) {
            self.former.drain(..).for_each(Owner::retire);
            let notices = self.change_watcher.tell(&done.handed, done.at);
            self.send(notices);
        }
    }

    /// Gives up the leases, because the names lead to other files. Returns when the engine has
    /// marked the leases as lost, or when the last of them has run out.
    pub(super) fn lose(&mut self) {
        if let Some(end) = self.usage.last_end() {
            let (acknowledgement, dropped) = Acknowledgement::pair();
            if self.notices.send(Notice::Lost(acknowledgement)).is_ok() {
                let _ = dropped.recv_timeout(end.since(clock::now()));
            }
        } else if !self.change_watcher.is_empty() {
            let _ = self.notices.send(Notice::Missed);
        }
        self.usage.clear();
        self.change_watcher = ChangeWatcher::default();
        self.close();
        // Unlocks the owner's file, which admits the other stores.
        self.owner = None;
        self.former.clear();
    }

    /// Closes the files until they are needed again.
    fn rest(&mut self) {
        if let (Some(session), Some(owner)) = (&self.session, &self.owner) {
            session.shorten_log(owner);
        }
        self.close();
        // No lease is left that could name the former owners.
        self.former.drain(..).for_each(Owner::retire);
        // If the record can't be written, stores that find other files wait for the end of this
        // process.
        if let Some(owner) = &self.owner {
            let _ = owner.say(None);
        }
    }

    fn close(&mut self) {
        (self.session, self.used, self.place) = (None, None, None);
        self.admitted = false;
    }
}

#[cfg(all(test, unix))]
#[path = "admission_tests.rs"]
mod tests;

#[cfg(all(test, unix))]
#[path = "reappearing_tests.rs"]
mod reappearing_tests;
