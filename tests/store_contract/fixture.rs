//! What the suite needs of a place in which leases live, and the short forms it speaks in.

use std::any::Any;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use leasehold::lease::{Fence, Instant, Key, Token, Ttl};
use leasehold::store::{Answer, LeaseInfo, Reply, Request, Store};

/// The time-out of every batch that is expected to succeed.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// One place in which leases live, fresh and the test's own.
pub trait Fixture {
    /// A handle to the place, as another client of it would have.
    fn open(&self) -> Rc<dyn Store>;

    /// Ends everything that is open (`stores` are all handles) and opens the place again, as after a
    /// restart of all that uses it.
    fn reopen(&self, stores: Vec<Rc<dyn Store>>) -> LocalBoxFuture<'_, Rc<dyn Store>> {
        Box::pin(async move {
            for store in stores {
                store.close().await;
            }
            self.open()
        })
    }

    /// How many things the place remembers that do not vanish by themselves.
    fn traces(&self) -> LocalBoxFuture<'_, usize>;

    /// Makes the place answer nobody until the guard is dropped; `None` if nothing can make it so.
    fn stall(&self) -> Option<Box<dyn Any>>;
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
            inspect_tells_the_holder
            a_big_mixed_batch_is_answered_in_order
            repeated_keys_take_effect_in_order
            batches_under_way_together_are_all_answered
            nothing_happens_before_the_first_poll
            nothing_piles_up
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

/// A key that no other test uses, so that a place may be shared.
pub fn fresh_key(name: &str) -> Key {
    format!("lock:{name}:{}", Token::random()).into()
}

pub fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub fn acquire(key: &Key, token: Token, ttl_ms: u32) -> Request {
    Request::Acquire { key: key.clone(), token, ttl: ttl(ttl_ms), holder: "contract".into() }
}

pub fn renew(key: &Key, token: Token, ttl_ms: u32) -> Request {
    Request::Renew { key: key.clone(), token, ttl: ttl(ttl_ms) }
}

pub fn release(key: &Key, token: Token) -> Request {
    Request::Release { key: key.clone(), token }
}

pub fn inspect(key: &Key) -> Request {
    Request::Inspect { key: key.clone() }
}

/// Asks for all of `batch` and expects an answer to each.
pub async fn answers(store: &Rc<dyn Store>, batch: Vec<Request>) -> Vec<Answer> {
    let count = batch.len();
    let answers = store.clone().execute(batch, TIMEOUT).await;
    assert_eq!(answers.len(), count, "one answer each");
    answers
}

/// Asks for all of `batch` and expects no error.
pub async fn replies(store: &Rc<dyn Store>, batch: Vec<Request>) -> Vec<Reply> {
    answers(store, batch).await.into_iter().map(|answer| answer.expect("the store answers")).collect()
}

pub async fn ask(store: &Rc<dyn Store>, request: Request) -> Reply {
    replies(store, vec![request]).await.pop().unwrap()
}

/// The fence of a granted lease.
pub fn fence(reply: Reply) -> Fence {
    match reply {
        Reply::Acquired { fence } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub async fn granted(store: &Rc<dyn Store>, key: &Key, token: Token, ttl_ms: u32) -> Fence {
    fence(ask(store, acquire(key, token, ttl_ms)).await)
}

/// Asks for the lease until it is granted. Returns its fence and the instant at which it was known.
pub async fn granted_in_the_end(store: &Rc<dyn Store>, key: &Key, token: Token) -> (Fence, Instant) {
    loop {
        match ask(store, acquire(key, token, 60_000)).await {
            Reply::Acquired { fence } => return (fence, leasehold::engine::clock::now()),
            Reply::Busy { remaining } => {
                // As soon as it may be free, looked at a little before so that a grant too early shows.
                let remaining = remaining.expect("a lease of ours always ends");
                tokio::time::sleep(remaining.saturating_sub(Duration::from_millis(3))).await;
            }
            other => panic!("expected a lease or busy, got {other:?}"),
        }
    }
}

pub async fn info(store: &Rc<dyn Store>, key: &Key) -> Option<LeaseInfo> {
    match ask(store, inspect(key)).await {
        Reply::Inspected(info) => info,
        other => panic!("expected what inspect tells, got {other:?}"),
    }
}

pub async fn remaining(store: &Rc<dyn Store>, key: &Key) -> Duration {
    info(store, key).await.expect("held").remaining.expect("a lease of ours always ends")
}
