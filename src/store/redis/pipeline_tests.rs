use super::*;

fn acquire(key: &str) -> Request {
    Request::Acquire(AcquireRequest::new(key.into(), Token::random(), Ttl::MIN, "h".into()))
}

fn release(key: &str) -> Request {
    Request::Release { key: key.into(), token: Token::random(), used: None }
}

fn shape(batch: &[Request]) -> Vec<Vec<usize>> {
    groups(batch, false).into_iter().map(|group| group.members).collect()
}

#[test]
fn requests_of_a_class_are_one_call_although_they_alternate() {
    let batch: Vec<_> =
        (0..40).flat_map(|n| [acquire(&format!("a{n}")), release(&format!("r{n}"))]).collect();
    let expected: Vec<Vec<usize>> = vec![(0..80).step_by(2).collect(), (1..80).step_by(2).collect()];
    assert_eq!(shape(&batch), expected);
}

#[test]
fn requests_on_one_key_keep_their_order() {
    let batch = [acquire("a"), release("b"), release("a"), acquire("c"), acquire("a")];
    assert_eq!(shape(&batch), [vec![0], vec![1], vec![2], vec![3], vec![4]]);
    let batch = [release("a"), release("a"), acquire("b"), acquire("a"), release("c"), release("b")];
    assert_eq!(shape(&batch), [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
}

/// The client sends requests on one key in the order of the batch, and each request once.
#[test]
fn every_batch_keeps_the_order_of_each_key_and_sends_each_request_once() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..500 {
        let batch: Vec<_> = (0..random.usize(1..300))
            .map(|_| {
                let keys = if random.bool() { 8 } else { 400 };
                let key = format!("k{}", random.usize(..keys));
                match random.u8(..4) {
                    0 => acquire(&key),
                    1 => release(&key),
                    2 => Request::Inspect { key: key.into() },
                    _ => Request::Ping,
                }
            })
            .collect();
        let sent: Vec<usize> = shape(&batch).concat();
        let mut places = vec![usize::MAX; batch.len()];
        for (place, &index) in sent.iter().enumerate() {
            assert_eq!(std::mem::replace(&mut places[index], place), usize::MAX, "sent twice");
        }
        for (index, request) in batch.iter().enumerate() {
            let key = Class::of(request).1;
            let next = (index + 1..batch.len()).find(|&n| key.is_some() && Class::of(&batch[n]).1 == key);
            assert!(
                next.is_none_or(|next| places[index] < places[next]),
                "{index} and {next:?} changed places"
            );
        }
        assert!(
            sent.len() == batch.len()
                && groups(&batch, false).iter().all(|group| group.members.len() <= MOST)
        );
    }
}

#[test]
fn a_long_run_is_several_calls() {
    let batch: Vec<_> = (0..150).map(|n| release(&format!("{n}"))).collect();
    assert_eq!(
        groups(&batch, false).iter().map(|group| group.members.len()).collect::<Vec<_>>(),
        [64, 64, 22]
    );
}

#[test]
fn keys_of_different_slots_are_different_calls_in_a_cluster() {
    let batch = [acquire("{a}1"), acquire("b"), release("{a}2"), acquire("{a}3"), release("b")];
    let members: Vec<_> = groups(&batch, true).into_iter().map(|group| group.members).collect();
    assert_eq!(members, [vec![0, 3], vec![1], vec![2], vec![4]]);
}
