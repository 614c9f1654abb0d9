//! Decides which requests of a batch wait for the end of a failover. Pure.

use rustc_hash::FxHashSet;

use crate::lease::Key;
use crate::store::Request;

/// Returns the places of the requests that are sent at once, and of those that wait for the end of
/// a failover. A request that begins or prolongs a lease waits. So does each later request on the
/// same lock: requests on one lock take effect in the order of the batch.
pub fn split(batch: &[Request]) -> (Vec<usize>, Vec<usize>) {
    let mut waiting: FxHashSet<&Key> = FxHashSet::default();
    (0..batch.len()).partition(|&place| {
        let (request, key) = (&batch[place], batch[place].key());
        let waits = request.lease().is_some() || key.is_some_and(|key| waiting.contains(key));
        if waits {
            waiting.extend(key);
        }
        !waits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Fence, Token, Ttl};
    use crate::store::Ask;

    #[test]
    fn what_follows_a_waiting_request_on_its_lock_waits_too() {
        let [one, other] = [Key::from("one"), Key::from("other")];
        let token = Token::random();
        let acquire = |key: &Key| Request::Acquire(Ask::new(key.clone(), token, Ttl::MIN, "h".into()));
        let release = |key: &Key| Request::Release { key: key.clone(), token, used: None };
        let accept = Request::Accept { key: one.clone(), token, fence: Fence(1), count: 1 };
        let batch = [release(&one), acquire(&one), release(&other), accept, release(&one), Request::Ping];
        assert_eq!(split(&batch), (vec![0, 2, 5], vec![1, 3, 4]));
        assert_eq!(split(&batch[..1]), (vec![0], vec![]));
    }
}
