//! Describes what the suite needs of a store.

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use crate::client::Client;

/// One new store, which only this test uses.
pub trait Fixture {
    /// Returns a client of the store, which receives its notices.
    fn open(&self) -> Client;

    /// Closes all `clients`, which are all that is open, and opens the store again, as after a
    /// restart of all processes.
    fn reopen(&self, clients: Vec<Client>) -> LocalBoxFuture<'_, Client> {
        Box::pin(async move {
            for client in clients {
                client.store.close().await;
            }
            self.open()
        })
    }

    /// Returns how many entries the store keeps that do not disappear by themselves.
    fn traces(&self) -> LocalBoxFuture<'_, usize>;

    /// Makes the store answer no request until the guard is dropped. Returns `None` if that is not
    /// possible.
    fn stall(&self) -> Option<Box<dyn Any>>;

    /// Returns true if all clients see the requests on a lock in one order. Requests that are sent
    /// to the nodes of a quorum at the same time may reach each node in another order, so that no
    /// client has a majority.
    fn has_one_order(&self) -> bool {
        true
    }

    /// Returns true if the notice of an exclusive lease has its fence.
    fn notices_have_fences(&self) -> bool {
        true
    }

    /// Returns true if an acquire that is repeated at once gets the fence of the first one. A node
    /// of a quorum may not know that fence yet.
    fn keeps_fences(&self) -> bool {
        true
    }

    /// Returns true if the store can limit the number of shared leases.
    fn counts_permits(&self) -> bool {
        true
    }

    /// Returns true if the store is a quorum: several stores, of which a majority must agree to a
    /// lease.
    fn is_quorum(&self) -> bool {
        false
    }

    /// Returns the shortest ttl, in ms, of a lease that is still valid when its grant arrives, even
    /// on a busy machine.
    fn shortest_ttl(&self) -> u32 {
        10
    }
}

/// Defines a `#[test]` for each promise, in a module named after the store. The argument makes the
/// fixture.
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
            exclusion_while_a_lease_is_valid
            exclusion_ends_with_the_ttl_and_not_before
            exclusion_counts_from_the_last_renewal
            exclusion_among_many_contenders_of_two_clients
            keys_are_compared_byte_by_byte
            fences_grow_over_releases_expiries_and_clients
            fences_grow_over_a_restart
            a_repeated_acquire_keeps_its_fence_and_gets_the_full_ttl
            a_repeated_release_or_renewal_is_harmless
            an_old_token_cannot_touch_the_next_lease
            a_renewal_never_creates_a_lease
            a_block_of_fences_is_below_every_later_grant
            a_renewal_reserves_fences_and_returns_the_number_of_waiters
            fences_grow_beyond_used_fences_and_blocks_of_broken_leases
            an_accepted_fence_is_that_of_the_lease
            an_accepted_fence_is_below_every_later_grant
            an_accepted_fence_is_below_that_of_the_next_waiter
            a_smaller_accepted_fence_does_not_lower_later_fences
            a_fence_is_accepted_for_the_holder_only
            a_shared_lease_accepts_a_fence_of_its_own
            many_fences_are_accepted_in_one_batch
            only_one_of_two_adopters_adopts_a_lease
            an_adopted_lease_belongs_to_its_adopter_only
            a_late_detachment_does_not_detach_a_newer_lease
            a_late_acquire_does_not_prevent_a_detachment
            a_detached_lease_keeps_its_ttl_when_its_token_acquires_again
            a_detached_lease_keeps_its_fence_when_a_late_block_is_accepted
            the_ttl_of_an_adopter_replaces_that_of_the_ticket
            a_move_changes_only_the_token_and_a_reply_names_the_claim
            a_move_from_a_claim_finds_no_claim_to_the_next_ticket
            an_adopter_of_a_reader_keeps_its_own_lease
            a_detached_lease_outlives_its_process
            an_inspection_shows_the_holder
            an_inspection_shows_leases_and_waiters_with_their_ages
            an_inspection_shows_a_waiter_under_its_last_name
            a_big_mixed_batch_is_answered_in_order
            repeated_keys_take_effect_in_order
            batches_under_way_together_are_all_answered
            nothing_happens_before_the_first_poll
            leases_leave_no_data
            waiters_leave_no_data
            waiters_are_served_in_the_order_of_their_arrival
            a_release_hands_the_lease_to_one_waiter_with_one_notice
            a_release_serves_waiters_of_its_own_lock_only
            a_notice_reaches_the_process_that_waits
            a_notice_names_the_last_acquire_of_its_waiter
            a_waiter_that_takes_up_a_lease_gets_its_block_of_fences
            a_waiter_takes_up_its_lease_by_repeating_the_acquire
            a_lease_that_was_handed_over_has_its_own_ttl
            a_lease_not_taken_up_goes_to_the_next
            an_expired_lease_goes_to_the_first_in_the_queue
            a_newcomer_never_overtakes
            a_place_is_kept_by_repeating_the_acquire
            a_place_without_polls_is_lost
            a_waiter_that_gives_up_leaves_the_queue
            a_waiter_that_gives_up_its_grant_passes_it_on
            many_waiters_of_many_keys_in_one_batch
            shared_leases_are_granted_up_to_the_limit
            shared_and_exclusive_leases_exclude_each_other
            a_writer_is_not_starved_by_later_readers
            one_release_hands_leases_to_all_readers_in_front
            a_writer_that_gives_up_makes_way_for_the_readers_behind_it
            a_broken_lease_does_not_belong_to_its_holder_any_more
            a_broken_lock_goes_to_the_first_in_the_queue
            all_shared_leases_are_broken_together
            a_broken_lock_is_not_repaired
            a_reader_is_repaired_before_a_waiting_writer
            a_refused_repair_is_next
            a_refused_repair_is_next_for_a_while
            a_move_ends_the_place_of_a_repair
            a_listing_has_the_held_locks_with_a_prefix
            a_listing_is_limited_and_says_so
            requests_end_when_the_server_does_not_answer
            close_ends
        }
    };
}

/// Runs one test on a runtime like the engine's. Fails if the test hangs.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs");
    });
}
