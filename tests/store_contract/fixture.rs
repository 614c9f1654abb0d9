//! What the suite needs of a place in which leases live.

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use crate::client::Client;

/// One place in which leases live, fresh and the test's own.
pub trait Fixture {
    /// A client of the place, which hears its notices.
    fn open(&self) -> Client;

    /// Ends everything that is open (`clients` are all) and opens the place again, as after a
    /// restart of all that uses it.
    fn reopen(&self, clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        Box::pin(async move {
            for client in clients {
                client.store.close().await;
            }
            self.open()
        })
    }

    /// How many things the place remembers that do not vanish by themselves.
    fn traces(&self) -> LocalBoxFuture<'_, usize>;

    /// Makes the place answer nobody until the guard is dropped; `None` if nothing can make it so.
    fn stall(&self) -> Option<Box<dyn Any>>;

    /// Whether all see the requests on a lock in one order; what nodes of a quorum are asked at the same moment may come
    /// to each in another, so that nobody has most of them.
    fn has_one_order(&self) -> bool {
        true
    }

    /// Whether a notice of an exclusive lease tells its fence.
    fn tells_fences(&self) -> bool {
        true
    }

    /// Whether an acquire that is repeated at once has the fence of the first; a node of a quorum may not know that one yet.
    fn keeps_fences(&self) -> bool {
        true
    }

    /// Whether it has shared leases of which there may be only so many.
    fn counts_permits(&self) -> bool {
        true
    }

    /// Returns true if the store is a quorum: several stores, of which most must agree to a lease.
    fn is_quorum(&self) -> bool {
        false
    }

    /// The shortest ttl, in ms, with which a lease is granted before it has run out, even on a busy machine.
    fn shortest_ttl(&self) -> u32 {
        10
    }
}

/// One `#[test]` for each promise in a module named after the store; the argument makes the fixture.
#[macro_export]
macro_rules! contract {
    ($fixture:expr => $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                $crate::fixture::run(async {
                    $crate::contract::$promise(&$fixture).await;
                });
            }
        )*
    };
    ($fixture:expr) => {
        $crate::contract! { $fixture =>
            exclusion_while_a_lease_lives
            exclusion_ends_with_the_ttl_and_not_before
            exclusion_counts_from_the_last_renewal
            exclusion_among_many_contenders_on_two_handles
            keys_are_told_apart_byte_by_byte
            fences_grow_over_release_expiry_and_handles
            fences_grow_over_a_restart
            a_repeated_acquire_keeps_its_fence_and_gets_the_full_ttl
            a_repeated_release_or_renewal_is_harmless
            an_old_token_cannot_touch_the_next_lease
            a_renewal_never_creates_a_lease
            a_block_of_fences_is_below_every_later_grant
            a_renewal_reserves_fences_and_tells_how_many_wait
            fences_grow_past_the_used_ones_and_those_that_no_release_gave_back
            an_accepted_fence_is_the_leases_own
            an_accepted_fence_is_below_every_later_grant
            an_accepted_fence_is_below_that_of_whoever_is_next_in_the_queue
            a_smaller_accepted_fence_lowers_nothing
            a_fence_is_accepted_from_the_holder_alone
            a_shared_lease_accepts_a_fence_of_its_own
            many_fences_are_accepted_in_one_batch
            only_one_of_two_heirs_adopts_a_lease
            an_adopted_lease_is_the_heirs_alone
            a_detached_lease_keeps_its_ttl_when_its_token_acquires_again
            a_detached_lease_keeps_its_fence_when_a_late_block_is_accepted
            the_ttl_of_an_heir_takes_the_place_of_the_tickets
            a_lease_is_moved_as_it_is_and_whoever_claims_it_is_told_of
            an_heir_of_a_reader_keeps_its_own_lease
            a_detached_lease_outlives_its_process
            inspect_tells_the_holder
            inspect_tells_leases_and_waiters_with_their_ages
            inspect_tells_a_waiter_as_whoever_asked_last
            a_big_mixed_batch_is_answered_in_order
            repeated_keys_take_effect_in_order
            batches_under_way_together_are_all_answered
            nothing_happens_before_the_first_poll
            nothing_piles_up
            nothing_remains_of_those_who_waited
            waiters_are_served_in_the_order_of_their_arrival
            a_release_hands_the_lease_to_one_waiter_and_tells_it_once
            a_release_serves_waiters_of_its_own_lock_only
            a_notice_reaches_the_process_that_waits
            a_notice_names_the_last_acquire_of_its_waiter
            who_takes_up_a_lease_and_wants_a_block_of_fences_gets_one
            a_handed_lease_is_taken_up_by_repeating_the_acquire
            a_lease_that_was_handed_over_lives_for_its_own_ttl
            a_lease_not_taken_up_goes_to_the_next
            a_lease_that_ran_out_goes_to_the_first_in_the_queue
            a_newcomer_never_overtakes
            a_place_is_kept_by_repeating_the_acquire
            a_place_that_is_not_kept_up_is_lost
            a_waiter_that_gives_up_leaves_the_queue
            a_waiter_that_gives_up_what_it_was_handed_passes_it_on
            many_waiters_of_many_keys_in_one_batch
            shared_leases_up_to_the_most
            shared_and_exclusive_leases_keep_apart
            a_writer_is_not_starved_by_later_readers
            one_release_lets_in_all_readers_in_front
            a_writer_that_gives_up_lets_in_the_readers_behind
            a_broken_lease_is_its_holders_no_more
            a_broken_lock_goes_to_the_first_in_the_queue
            all_shared_leases_are_broken_together
            a_broken_lock_is_not_repaired
            a_reader_is_repaired_before_a_waiting_writer
            a_refused_repair_is_next
            a_refused_repair_is_next_for_a_while
            a_move_ends_the_place_of_a_repair
            a_listing_tells_what_is_held_below_a_prefix
            a_listing_is_limited_and_says_so
            it_ends_when_the_place_does_not_answer
            it_ends_on_close
        }
    };
}

/// Runs one test on a runtime like the engine's, and never for ever.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs");
    });
}
