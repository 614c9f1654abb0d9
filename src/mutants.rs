//! Mutants: deliberately wrong variants of the rules. They show that a test would find such
//! mistakes. The simulation (`tests/simulation/mutants.rs`) finds the mutants in the list `ALL`,
//! and `tests/store_redis/model.rs` finds the only one that is not in that list. Mutants exist only
//! with the feature `mutants`, which no build for use has.

/// A mistake that a change of the rules could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A lease's deadline counts from the arrival of its answer, so the time of the request is not
    /// subtracted.
    GrantFromReply,
    /// A renewed lease's deadline counts from the arrival of its answer.
    RenewalFromReply,
    /// Deadlines have no allowance for clocks that run at different rates.
    NoDrift,
    /// The deadline of a lease that was handed over counts from the arrival of its notice.
    GrantFromNotice,
    /// A release ends the lease of any holder.
    ReleaseWithoutToken,
    /// Half of the nodes count as a majority.
    HalfIsMost,
    /// A quorum's fence is the largest that a node answered, and the quorum does not write it to
    /// the other nodes.
    FenceNotWrittenBack,
    /// A token is used again although its release may still be on its way.
    TokenUsedAgain,
    /// A node that knows nothing of a lease counts for its renewal.
    MissingCountsAsYes,
    /// The engine does not release the leases that a token may have left at a store.
    NoCleanUp,
    /// If a node of a quorum missed a release, the lease stays there until its ttl ends.
    NoPendingReleases,
    /// A release does not name the fences of local hand-offs.
    HandOffsForgotten,
    /// A store reserves the fences of an expired lease again.
    ExpiredFencesForgotten,
    /// A detached lease gets the fences that its process reserved before as its own. The comparison
    /// with the scripts of Redis finds it.
    DetachedFenceReplaced,
    /// A detachment that arrives late detaches a newer lease of its token.
    NewerLeaseDetached,
    /// A lease forgets the fence of its grant when its token reserves more fences.
    GrantForgotten,
    /// An adopter that gives way or gives up releases its nodes, and does not give them back to the
    /// ticket.
    ClaimsFreed,
    /// An adopter has the lease when it has claimed most nodes, although no node has confirmed the
    /// adopter yet.
    ClaimsNotConfirmed,
    /// If a node grants a repair after the lease was released, the quorum does not release it
    /// there.
    RepairKeptAfterRelease,
    /// The quorum undoes a repair that was not answered while the lease is held.
    RepairUndone,
    /// A repair asks for a shared lease, even if the lease is exclusive.
    RepairForgetsMode,
    /// A repair does not send the lease's fence to the node.
    RepairWithoutFence,
    /// The quorum repairs a lease even when most nodes say that it is gone.
    RepairWithoutMajority,
    /// A repair that a node refuses takes no place in the node's queue.
    RepairDoesNotWait,
    /// A node grants a repair although the lock was broken there.
    RepairAfterBreak,
    /// After an adoption, the quorum does not move the ticket to the adopter at nodes that did not
    /// confirm the adoption.
    TicketLeftBehind,
    /// The release of an adopted lease does not release the ticket.
    TicketKeptAfterRelease,
    /// The detachment of an adopted lease does not free the nodes that still have the ticket.
    TicketKeptAfterDetach,
    /// The end of a client does not release a lease whose detachment has failed.
    LeaseKeptAtEnd,
    /// The engine does not release a lease that was lost after a prolongation without an answer.
    LostProlongationForgotten,
    /// The engine releases such a lease too early: the holder's work may still run.
    LostProlongationFreedEarly,
    /// The quorum detaches a lease while nodes still have to answer the acquire.
    DetachedTooSoon,
    /// An adopter counts a node whose lease is newer than the ticket.
    NewerLeaseAdopted,
    /// A move that names an earlier claim of an adopter finds the claims to that adopter's token.
    ClaimTakenForTicket,
    /// A node whose lease is newer than the ticket does not release that lease after an adopter has
    /// claimed it.
    NewerLeaseKept,
    /// A lease granted to an acquire that has failed fast is not released while the store is away.
    FailedFastKept,
    /// A lease that is granted to a lock worker after it has stopped asking is not released.
    GrantAfterStopKept,
}

impl Mutant {
    /// The mutants that the simulation has to find.
    pub const ALL: [Mutant; 36] = [
        Mutant::GrantFromReply,
        Mutant::RenewalFromReply,
        Mutant::NoDrift,
        Mutant::GrantFromNotice,
        Mutant::ReleaseWithoutToken,
        Mutant::HalfIsMost,
        Mutant::FenceNotWrittenBack,
        Mutant::TokenUsedAgain,
        Mutant::MissingCountsAsYes,
        Mutant::NoCleanUp,
        Mutant::NoPendingReleases,
        Mutant::HandOffsForgotten,
        Mutant::ExpiredFencesForgotten,
        Mutant::NewerLeaseDetached,
        Mutant::GrantForgotten,
        Mutant::ClaimsFreed,
        Mutant::ClaimsNotConfirmed,
        Mutant::RepairKeptAfterRelease,
        Mutant::RepairUndone,
        Mutant::RepairForgetsMode,
        Mutant::RepairWithoutFence,
        Mutant::RepairWithoutMajority,
        Mutant::RepairDoesNotWait,
        Mutant::RepairAfterBreak,
        Mutant::TicketLeftBehind,
        Mutant::TicketKeptAfterRelease,
        Mutant::TicketKeptAfterDetach,
        Mutant::LeaseKeptAtEnd,
        Mutant::LostProlongationForgotten,
        Mutant::LostProlongationFreedEarly,
        Mutant::DetachedTooSoon,
        Mutant::NewerLeaseAdopted,
        Mutant::ClaimTakenForTicket,
        Mutant::NewerLeaseKept,
        Mutant::FailedFastKept,
        Mutant::GrantAfterStopKept,
    ];
}

#[cfg(test)]
mod tests {
    use super::Mutant;

    #[test]
    fn the_list_has_all_mutants_but_one() {
        let source = include_str!("mutants.rs");
        let (_, begin) = source.split_once("pub enum Mutant {").unwrap();
        let (variants, _) = begin.split_once("\n}").unwrap();
        let declared = variants.lines().filter_map(|line| line.trim().strip_suffix(','));
        let missing: Vec<_> = declared
            .filter(|name| !name.contains(' '))
            .filter(|name| !Mutant::ALL.iter().any(|mutant| format!("{mutant:?}") == *name))
            .collect();
        assert_eq!(missing, ["DetachedFenceReplaced"]);
    }
}

#[cfg(feature = "mutants")]
mod active {
    use std::cell::{Cell, RefCell};

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
        static TOKENS: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    }

    /// Makes the tokens of this thread depend on `seed`, so that a simulation can be repeated.
    pub fn seed_tokens(seed: u64) {
        TOKENS.set(Some(fastrand::Rng::with_seed(seed)));
    }

    /// Returns bytes for a token if [`seed_tokens`] was called in this thread.
    pub fn seeded_bytes() -> Option<[u8; 16]> {
        TOKENS.with_borrow_mut(|rng| rng.as_mut().map(|rng| rng.u128(..).to_le_bytes()))
    }

    /// Makes this thread make the mistake `mutant` from now on, or none.
    pub fn set(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    /// Returns true if this thread makes that mistake.
    pub fn is(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use active::{is, seed_tokens, seeded_bytes, set};

/// Returns true if this thread makes that mistake, which is never the case in a build for use.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}
