//! Tries on one key everything that locking needs: a user may have rights to other keys only.

use std::sync::Arc;

use crate::lease::{Key, Mode, Token, Ttl};
use crate::store::{AcquireRequest, Answer, Place, Request, StoreErrorKind};

/// How long the lease of the trial lives if its release does not arrive, in ms. If this is larger,
/// other diagnoses find the lock busy for longer; if it is smaller, the lease may end before its
/// renewal, which then proves nothing.
const TTL: u32 = 1_000;

/// Returns requests that acquire, wait for, inspect, renew, repair and release the lock `key`. They
/// try an exclusive lease first, then a shared one. Together they run every command that the
/// scripts call. If another client tries the lock at the same time, these requests only wait and
/// give up.
pub fn requests(key: Key) -> Vec<Request> {
    let ttl = Ttl::from_millis(TTL).unwrap_or(Ttl::MIN);
    let [token, waiter, reader, repair] = std::array::from_fn(|_| Token::random());
    let ask = |token| AcquireRequest {
        place: Some(Place { number: fastrand::u64(1..) }),
        ..AcquireRequest::new(key.clone(), token, ttl, "leasehold doctor".into())
    };
    let release = |token| Request::Release { key: key.clone(), token, used: None };
    let renew = |token| Request::Renew { key: key.clone(), token, ttl, fences: 0 };
    vec![
        Request::Acquire(ask(token)),
        Request::Acquire(ask(waiter)),
        Request::Inspect { key: key.clone() },
        release(waiter),
        renew(token),
        release(token),
        Request::Acquire(AcquireRequest { mode: Mode::Shared { most: 2 }, ..ask(reader) }),
        Request::Acquire(AcquireRequest { place: None, repairs: true, ..ask(repair) }),
        release(repair),
        renew(reader),
        release(reader),
    ]
}

/// Returns the error that says that the user may not send one of the [`requests`], if there is one.
/// The diagnosis reports other errors by itself.
pub fn denial(answers: &[Answer]) -> Option<Arc<str>> {
    answers.iter().find_map(|answer| match answer {
        Err(error) if matches!(error.kind, StoreErrorKind::Denied | StoreErrorKind::Forbidden) => {
            Some(error.message.clone())
        }
        _ => None,
    })
}
