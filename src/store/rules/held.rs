//! One lease of a lock: its fences, and the notes behind its holder's name.

use std::sync::Arc;

use super::super::AdoptedLease;
use super::super::adopted_lease::{split_grant, split_note, with_grant};
use crate::lease::{Fence, Instant, Mode, Token};
use crate::mutants::{self, Mutant};

/// A lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The token that has the lease.
    pub token: Token,
    /// The holder's name, and the note of a lease that was detached, or the note of its grant; see
    /// [`adopted_lease`](crate::store::adopted_lease).
    pub holder: Arc<str>,
    /// Exclusive, or shared with a limit.
    pub mode: Mode,
    /// The fence; `None` until a waiter that was handed a shared lease has taken it up. An
    /// exclusive lease has its fence with the grant, so that the notice can tell it.
    pub fence: Option<Fence>,
    /// The last fence that was reserved with the lease; [`Fence::NONE`] as long as the lease has no
    /// fence.
    pub last: Fence,
    /// When the lease ends unless it is renewed.
    pub ends: Instant,
}

impl Held {
    /// Returns the last fence that counts as used when the holder releases the lease.
    pub(super) fn last_used(&self, used: Option<Fence>) -> Fence {
        match (self.mode, used) {
            (Mode::Exclusive, Some(used)) => used.max(self.fence.unwrap_or(self.last)).min(self.last),
            _ => self.last,
        }
    }

    /// Lets the lease have the `count` fences from `fence` on.
    pub(super) fn has_from(&mut self, fence: Fence, count: u32) {
        self.fence = Some(fence);
        // Another node's proposal may be below the fences that this node has reserved.
        self.last = self.last.max(fence.last_of(count));
    }

    /// Reserves the `count` fences from `fence` on with the lease.
    ///
    /// They become the lease's own unless the lease was detached: see
    /// [`adopted_lease`](crate::store::adopted_lease).
    pub(super) fn reserves(&mut self, fence: Fence, count: u32) {
        match (self.fence, split_note(&self.holder)) {
            (Some(_), (_, Some(_))) if !mutants::is(Mutant::DetachedFenceReplaced) => {
                self.last = self.last.max(fence.last_of(count));
            }
            (_, (name, None)) => {
                self.holder = match self.granted() {
                    Some(granted) if granted < fence => with_grant(&self.holder, granted),
                    Some(_) if name.len() < self.holder.len() => name.into(),
                    _ => self.holder.clone(),
                };
                self.has_from(fence, count);
            }
            _ => self.has_from(fence, count),
        }
    }

    /// Forgets the lease's own fence, so that the next acquire by its token reserves another one. A
    /// lease that was detached keeps its fence: its ticket contains it.
    pub fn drop_fence(&mut self) {
        if let (Some(granted), (_, None)) = (self.granted(), split_note(&self.holder)) {
            self.holder = with_grant(&self.holder, granted);
            self.fence = None;
        }
    }

    /// Returns the fence with which the lease was granted, or the fence with which it was detached.
    pub fn granted(&self) -> Option<Fence> {
        match split_grant(&self.holder) {
            Some((_, fence)) if !mutants::is(Mutant::GrantForgotten) => Some(fence),
            _ => self.fence,
        }
    }

    pub(super) fn adopted_lease(&self) -> AdoptedLease {
        let (_, ttl) = split_note(&self.holder);
        let first = self.fence.unwrap_or(self.last);
        AdoptedLease {
            first,
            last: self.last,
            granted: self.granted().map_or(first, |granted| granted.min(first)),
            mode: self.mode,
            ttl,
            remaining: None,
        }
    }
}

/// Returns the holder's name as an inspection shows it, without a note.
pub(super) fn shown(holder: &Arc<str>) -> Arc<str> {
    let (name, _) = split_note(holder);
    if name.len() == holder.len() { holder.clone() } else { name.into() }
}
