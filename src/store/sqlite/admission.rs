//! When a store may use the files, and what happens when they are exchanged.
//!
//! **Nobody grants anything in other files than a live owner uses.** A store first *registers*: it writes into its owner's
//! file which files it has open. Then it *looks* at all other live owners, and waits as long as one of them uses others. Two
//! stores A and B with different files can't both go on: each looks after it has registered, so the later of the two
//! registrations comes before its own look and after the other's registration, which that look therefore sees. (That is
//! Dekker's argument; the fence below keeps both in that order on every processor.)
//!
//! Whoever was admitted looks at the others no more. It looks after its own files, every [`CHECK_EVERY`]; what it grants in
//! between counts, because nobody else is let in. When a name leads elsewhere, it tells the engine, which takes all leases of the store for lost; then it
//! unlocks its owner's file, and those who wait go on. What it had in the old files is freed by that, should they come back.
//!
//! A store that has nothing in the files for a while closes them and says so, and is not woken any more.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::super::{Acknowledgement, Notice, StoreError, StoreErrorKind};
use super::owner::{self, Obstacle, Owner};
use super::session::{Place, Session, Trouble};
use super::thread::Keeper;
use super::watch::Watch;
use super::{directory, failure, identity};
use crate::engine::clock;
use crate::lease::Instant;

/// How often a store that has something in the files looks whether they are still there. Half of what a newcomer waits then, on
/// average; a look costs about 3 µs.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// How often a newcomer looks whether the others have noticed.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Keeper {
    /// Opens the files if need be, and waits until it may use them, but not after `deadline`.
    pub(super) fn admit(&mut self, deadline: Instant) -> Result<(&mut Session, &Owner), Trouble> {
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

    fn open(&mut self, deadline: Instant) -> Result<(), Trouble> {
        directory::secure(&self.path).map_err(Trouble::Broken)?;
        let place = Place::of(&self.path)?;
        let elsewhere = self.owner.as_ref().is_some_and(|owner| !owner.is_of(&place.owners));
        if elsewhere || self.used.as_ref().is_some_and(|used| !used.are_named()) {
            return Err(Trouble::Moved);
        }
        // Before anything is opened: who opens a database without its log has the log made anew, and disturbs those who
        // use the one that was moved.
        self.wait_for_others(&place, deadline)?;
        let session = Session::open(&self.path, &place, deadline)?;
        if self.used.as_ref().is_some_and(|used| used.ids != session.files().ids) {
            return Err(Trouble::Moved);
        }
        self.check_at = clock::now() + CHECK_EVERY;
        self.place = Some(place);
        self.session = Some(session);
        self.admitted = false;
        if !self.watch.is_empty() {
            // It may be another file, in which nobody of ours waits.
            let _ = self.notices.send(Notice::Missed);
        }
        Ok(())
    }

    /// Says which files are used, and waits until nobody uses others.
    fn register(&mut self, deadline: Instant) -> Result<(), Trouble> {
        let (Some(session), Some(place)) = (&self.session, self.place.clone()) else {
            return Err(Trouble::Moved);
        };
        let files = session.files().clone();
        let failed = |error| Trouble::Broken(failure::of_system(&place.owners, &error));
        let owner = match &mut self.owner {
            Some(owner) => owner,
            none => {
                let made = owner::prepare(&place.owners, &place.real);
                none.insert(made.and_then(|()| Owner::create(&place.owners)).map_err(failed)?)
            }
        };
        owner.say(Some(files.ids)).map_err(failed)?;
        self.used = Some(files);
        self.wait_for_others(&place, deadline)
    }

    /// Waits until no live owner uses other files: than the opened ones, or before they are opened than have the names.
    fn wait_for_others(&mut self, place: &Place, deadline: Instant) -> Result<(), Trouble> {
        loop {
            let ids = self.session.as_ref().map_or_else(|| place.names.look(), |session| session.files().ids);
            // What this store has said is there before it reads what others say.
            fence(Ordering::SeqCst);
            let obstacle = owner::obstacle(&place.owners, self.owner.as_ref().map(Owner::id), &ids);
            // Of two who see each other, one has files whose names lead elsewhere by now.
            if self.session.as_ref().is_some_and(Session::is_moved) {
                return Err(Trouble::Moved);
            }
            let Some(obstacle) = obstacle else { break };
            if clock::now() >= deadline {
                return Err(Trouble::Busy(self.in_the_way(obstacle)));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let apart = identity::copies_exclude_each_other(&place.owners);
        self.refuse_second_copy(!apart && owner::is_second_copy(&place.owners))
    }

    pub(super) fn refuse_second_copy(&mut self, is_second: bool) -> Result<(), Trouble> {
        if !is_second {
            return Ok(());
        }
        // The other copy is not to be refused in its turn. What is held here goes on.
        if self.usage.is_empty()
            && let Some(owner) = self.owner.take()
        {
            self.close();
            owner.retire();
        }
        Err(Trouble::Broken(self.second_copy()))
    }

    fn in_the_way(&self, obstacle: Obstacle) -> StoreError {
        let who = match obstacle.pid {
            Some(pid) => format!("process {pid}"),
            None => "another process".into(),
        };
        let message = format!(
            "the lock file {} or its -wal or -shm was moved, replaced or removed while {who} was using it; \
             locks are granted again when that process has noticed, which takes 0.1 s unless it is stopped: \
             resume or end it",
            self.path.display()
        );
        StoreError::not_done(StoreErrorKind::Loading, message)
    }

    fn second_copy(&self) -> StoreError {
        let message = format!(
            "the lock file {} is open in another copy of leasehold in this process, and this system can't keep \
             the two apart; install one version only, mark leasehold as external for the bundler, or use Redis",
            self.path.display()
        );
        StoreError::not_done(StoreErrorKind::Unsupported, message)
    }

    /// When to look after the files next; never while they are closed.
    pub(super) fn check_due(&self) -> Option<Instant> {
        (self.session.is_some() || self.used.is_some()).then_some(self.check_at)
    }

    /// Looks after the files, and closes them when nothing is left to do there.
    pub(super) fn check(&mut self) {
        let now = clock::now();
        self.check_at = now + CHECK_EVERY;
        let moved = self.used.as_ref().is_some_and(|used| !used.are_named())
            || self.session.as_ref().is_some_and(Session::is_moved);
        if moved {
            return self.lose();
        }
        if self.usage.may_rest(now) && self.watch.is_empty() {
            return self.rest();
        }
        if self.owner.as_ref().is_some_and(|owner| !owner.is_in_place()) {
            // Others can't find it any more. What was granted names it all the same, and counts until its time is over.
            self.owner = None;
            (self.used, self.admitted) = (None, false);
            let registered = self.register(now);
            self.admitted = registered.is_ok();
            if let Err(Trouble::Moved) = registered {
                self.lose();
            }
        }
    }

    /// The names lead to other files: nothing that was granted in those counts any more. Returns when the engine has heard
    /// that, or when the last of the leases has run out.
    pub(super) fn lose(&mut self) {
        if let Some(end) = self.usage.last_end() {
            let (acknowledgement, dropped) = Acknowledgement::pair();
            if self.notices.send(Notice::Lost(acknowledgement)).is_ok() {
                let _ = dropped.recv_timeout(end.since(clock::now()));
            }
        } else if !self.watch.is_empty() {
            let _ = self.notices.send(Notice::Missed);
        }
        self.usage.clear();
        self.watch = Watch::default();
        self.close();
        // Unlocks its file, which lets others in.
        self.owner = None;
    }

    /// Closes the files until they are needed again.
    fn rest(&mut self) {
        if let (Some(session), Some(owner)) = (&self.session, &self.owner) {
            session.shorten_log(owner);
        }
        self.close();
        // If it can't be written, those who find other files wait for the end of this process.
        if let Some(owner) = &self.owner {
            let _ = owner.say(None);
        }
    }

    fn close(&mut self) {
        (self.session, self.used, self.place) = (None, None, None);
        self.admitted = false;
    }
}
