//! Decides which requests of a batch wait for the end of a failover, or for the sentinels. Pure.
//!
//! A request that begins or prolongs a lease waits. So does a request that tells the fence of a
//! lease: if the next master did not know the fence, a later lease could get a smaller one. A later
//! request in the batch for the same token on the same lock waits as well: the release that cleans
//! up after an acquire must not overtake the acquire. A release of another token on that lock does
//! not wait. Otherwise, the lock would stay taken for the whole failover.
//!
//! A move does not wait: it gives no client a lease, and its answer does not count during a
//! failover.

use std::collections::HashSet;

use crate::lease::{Key, Token};
use crate::store::{AcquireRequest, Request};

/// Returns true for a request that begins or prolongs a lease, or gives it a fence.
fn must_last(request: &Request) -> bool {
    request.lease().is_some() || matches!(request, Request::Accept { .. })
}

/// Returns the places of the requests that are sent at once, and of those that wait for the end of
/// a failover.
pub fn split(batch: &[Request]) -> (Vec<usize>, Vec<usize>) {
    let mut waiting: HashSet<(&Key, Token)> = HashSet::new();
    (0..batch.len()).partition(|&place| {
        let request = &batch[place];
        let known = request.key().zip(token_of(request));
        let waits = must_last(request)
            || known.is_some_and(|known| waiting.contains(&known))
            || matches!(request, Request::Break { key, .. } if waiting.iter().any(|(other, _)| *other == key));
        if waits {
            waiting.extend(known);
            waiting.extend(request.key().zip(request.lease().map(|(token, _)| token)));
        }
        !waits
    })
}

/// Divides a batch into two parts by lock. If the answer to a request for a lock may have to wait
/// for the sentinels, all requests for this lock are in part 1. All other requests are in part 0.
/// Returns the part of each request, or `None` if one part is empty.
pub fn parts(batch: &[Request]) -> Option<Vec<u32>> {
    let may_wait = |request: &&Request| must_last(request) || matches!(request, Request::Move { .. });
    let keys: HashSet<&Key> = batch.iter().filter(may_wait).filter_map(Request::key).collect();
    let part = |request: &Request| u32::from(request.key().is_some_and(|key| keys.contains(key)));
    let parts: Vec<u32> = batch.iter().map(part).collect();
    (parts.contains(&0) && parts.contains(&1)).then_some(parts)
}

/// Returns the token whose lease the request is about.
fn token_of(request: &Request) -> Option<Token> {
    match request {
        Request::Acquire(AcquireRequest { token, .. })
        | Request::Renew { token, .. }
        | Request::Release { token, .. }
        | Request::Adopt { token, .. }
        | Request::Move { token, .. }
        | Request::GiveBack { token, .. }
        | Request::Detach { token, .. }
        | Request::Accept { token, .. } => Some(*token),
        Request::Break { .. }
        | Request::Inspect { .. }
        | Request::List(_)
        | Request::Ping
        | Request::Diagnose { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Fence, Ttl};
    use crate::store::Source;

    #[test]
    fn a_request_for_the_token_of_a_waiting_request_waits_too() {
        let [one, other] = [Key::from("one"), Key::from("other")];
        let [token, holder] = [Token::random(), Token::random()];
        let acquire =
            |key: &Key| Request::Acquire(AcquireRequest::new(key.clone(), token, Ttl::MIN, "h".into()));
        let release = |key: &Key, token| Request::Release { key: key.clone(), token, used: None };
        let accept = Request::Accept { key: one.clone(), token, fence: Fence(1), count: 1 };
        let break_it = |key: &Key| Request::Break { key: key.clone(), bars_repairs: false };
        let batch = [
            release(&one, token),
            acquire(&one),
            release(&other, token),
            accept,
            release(&one, token),
            release(&one, holder),
            Request::Ping,
            break_it(&one),
            break_it(&other),
        ];
        assert_eq!(split(&batch), (vec![0, 2, 5, 6, 8], vec![1, 3, 4, 7]));
        assert_eq!(split(&batch[..1]), (vec![0], vec![]));
        // The lease was granted before the failover, and its fence waits for the end.
        assert_eq!(split(&[batch[8].clone(), batch[3].clone(), batch[4].clone()]), (vec![0], vec![1, 2]));
    }

    #[test]
    fn requests_for_a_lock_stay_together_and_do_not_hold_up_those_for_other_locks() {
        let [one, other] = [Key::from("one"), Key::from("other")];
        let token = Token::random();
        let acquire = Request::Acquire(AcquireRequest::new(one.clone(), token, Ttl::MIN, "h".into()));
        let release = |key: &Key| Request::Release { key: key.clone(), token, used: None };
        let batch = [release(&one), release(&other), acquire, release(&one), Request::Ping];
        assert_eq!(parts(&batch), Some(vec![1, 0, 1, 1, 0]));
        assert_eq!(parts(&batch[..2]), None);
        let accept = Request::Accept { key: one.clone(), token, fence: Fence(1), count: 1 };
        assert_eq!(parts(&[release(&other), accept]), Some(vec![0, 1]));
        assert_eq!(parts(&batch[2..4]), None);
        assert_eq!(parts(&[]), None);
    }

    #[test]
    fn an_adopter_is_not_released_before_it_adopts() {
        let [ticket, adopter] = [Token::random(), Token::random()];
        let (key, holder) = (Key::from("k"), "h".into());
        let adopt = Request::Adopt {
            key: key.clone(),
            token: ticket,
            adopter,
            ttl: Ttl::MIN,
            holder,
            outlives_process: false,
            source: Source::Ticket { fence: Fence(1), with_ttl: false },
        };
        let batch = [adopt, Request::GiveBack { key, token: adopter, ticket }];
        assert_eq!(split(&batch), (vec![], vec![0, 1]));
    }
}
