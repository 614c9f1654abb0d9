//! Deliberately wrong variants of the rules, to show that the simulation would find such mistakes
//! (`tests/simulation/mutants.rs`). They exist only with the feature `mutants`, which no build for use has.

/// A mistake that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A lease's deadline counts from when its answer came: the time that it took to ask is not taken off.
    GrantFromReply,
    /// The same at a renewal.
    RenewalFromReply,
    /// Clocks are trusted to run alike.
    NoDrift,
    /// A lease that was handed over counts from when its notice came.
    GrantFromNotice,
    /// Whoever releases ends the lease that is there, whoever holds it.
    ReleaseWithoutToken,
    /// Half of the nodes are taken for most of them.
    HalfIsMost,
    /// A quorum's fence is the largest that a node answered, and no node is told.
    FenceNotWrittenBack,
    /// A token is used again although its release may still be on its way.
    TokenUsedAgain,
    /// A node that knows nothing of a lease counts for its renewal.
    MissingCountsAsYes,
    /// What a token may have left at a store is not released.
    NoCleanUp,
    /// What a node of a quorum was not told is left to its ttl.
    NoDebts,
    /// A release leaves out the fences that were handed on within the process.
    HandOffsForgotten,
    /// A store reserves the fences of a lease that ran out again.
    ExpiredFencesForgotten,
    /// A detached lease gets the fences that its process reserved before as its own. The comparison
    /// with the scripts of Redis finds it.
    DetachedFenceReplaced,
    /// An heir that gives way or gives up releases its nodes, and does not give them back to the
    /// ticket.
    ClaimsFreed,
    /// An heir has the lease when it has claimed most nodes, although no node has confirmed the
    /// heir yet.
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
    /// After an adoption, the quorum does not move the ticket to the heir at nodes that did not
    /// confirm the adoption.
    TicketLeftBehind,
    /// The release of an adopted lease does not release the ticket.
    TicketKeptAfterRelease,
    /// A lease granted to an acquire that has failed fast is not released while the store is away.
    FailedFastKept,
    /// What is granted to a lock worker after it has given up asking is not released.
    GrantAfterStopKept,
}

impl Mutant {
    /// The mutants that the simulation has to find.
    pub const ALL: [Mutant; 26] = [
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
        Mutant::NoDebts,
        Mutant::HandOffsForgotten,
        Mutant::ExpiredFencesForgotten,
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
        Mutant::FailedFastKept,
        Mutant::GrantAfterStopKept,
    ];
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

    /// This thread makes that mistake from now on, or none.
    pub fn set(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    /// Whether this thread makes that mistake.
    pub fn is(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use active::{is, seed_tokens, seeded_bytes, set};

/// Whether that mistake is made: never.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}
