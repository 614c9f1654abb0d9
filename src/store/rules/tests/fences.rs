//! Tests which fences leases get, and which they give back.

use super::*;

#[test]
fn a_block_of_fences_comes_after_all_that_were_reserved() {
    let ([holder, next], mut s) = (owners(), Setup::new());
    let wants =
        |fences| AcquireRequest { fences, ..AcquireRequest::new("k".into(), holder.0, ttl(TTL), "h".into()) };
    assert_eq!(s.ask(wants(10)), acquired(1, 0));
    assert_eq!(s.ask(wants(1)), acquired(1, 0));
    assert_eq!(s.ask(wants(10)), acquired(11, 0));
    s.lock(next);
    let block = s.context(|lock, context| lock.renew(holder.0, ttl(TTL), 5, context));
    assert_eq!(block, Reply::Renewed { block: Some((Fence(21), 1)) });
    s.release(holder);
    assert_eq!(s.lock(next), acquired(26, 0));
}

#[test]
fn a_release_gives_back_the_fences_that_were_not_used() {
    // 64 fences are reserved, from 1 on. Each pair is the last used fence, and the next one.
    for (used, next) in [(Some(1), 2), (Some(5), 6), (Some(64), 65), (None, 65)] {
        let ([a, b], mut s) = (owners(), Setup::new());
        assert_eq!(s.block(a, Mode::Exclusive, 64), 1);
        assert_eq!(s.give_back(a, used), Reply::Released);
        assert_eq!(s.block(b, Mode::Exclusive, 1), next, "{used:?} was used");
    }
}

#[test]
fn a_wrong_last_used_fence_makes_fences_neither_go_back_nor_run_ahead() {
    let ([a, b, c], mut s) = (owners(), Setup::new());
    s.block(a, Mode::Exclusive, 64);
    s.give_back(a, Some(1_000_000));
    assert_eq!(s.block(b, Mode::Exclusive, 64), 65, "more than the reserved fences");
    s.give_back(b, Some(3));
    assert_eq!(s.block(c, Mode::Exclusive, 1), 66, "less than the lease's own fence");
}

#[test]
fn a_repeated_or_late_release_gives_no_fences_back() {
    let ([a, b, c], mut s) = (owners(), Setup::new());
    s.block(a, Mode::Exclusive, 64);
    s.give_back(a, Some(10));
    assert_eq!(s.block(b, Mode::Exclusive, 64), 11);
    assert_eq!(s.give_back(a, Some(1)), Reply::NotHeld(Absence::Taken));
    s.after(ttl(TTL).as_duration());
    assert_eq!(s.give_back(b, Some(11)), Reply::NotHeld(Absence::Missing));
    assert_eq!(s.block(c, Mode::Exclusive, 1), 75, "the holder may still hand on a lease that ran out");
}

#[test]
fn if_a_lease_ends_without_its_holders_release_its_last_fence_counts() {
    type End = fn(&mut Setup, Owner);
    let ends: [(&str, End); 4] = [
        ("the lease runs out", |s, _| s.now = s.now + ttl(TTL).as_duration()),
        ("the lease is broken", |s, _| drop(s.context(|lock, context| lock.break_all(context)))),
        ("its adopter does not know which fences were used", |s, a| {
            let adopter = Token::random();
            s.context(|lock, context| lock.adopt(a.0, adopter, ttl(TTL), TICKET, &"h".into(), context));
            s.release(Owner(adopter, 9));
        }),
        ("the lease ran out, and another client only polled", |s, _| {
            s.after(ttl(TTL).as_duration()).context(|lock, context| lock.settle(context));
        }),
    ];
    for (how, end) in ends {
        let ([a, b], mut s) = (owners(), Setup::new());
        s.block(a, Mode::Exclusive, 10);
        let more = s.context(|lock, context| lock.renew(a.0, ttl(TTL), 20, context));
        assert_eq!(more, Reply::Renewed { block: Some((Fence(11), 0)) });
        end(&mut s, a);
        assert_eq!(s.block(b, Mode::Exclusive, 1), 31, "{how}");
    }
}

#[test]
fn the_next_waiter_gets_the_fences_that_the_holder_gave_back() {
    let ([a, b, c], mut s) = (owners(), Setup::new());
    s.block(a, Mode::Exclusive, 64);
    s.lock(b);
    s.lock(c);
    s.give_back(a, Some(7));
    s.give_back(b, Some(9));
    assert_eq!(s.fences, [Some(Fence(8)), Some(Fence(10))]);
}

#[test]
fn each_shared_lease_has_its_own_fences_and_gives_none_back() {
    let ([a, b, c, d], mut s) = (owners(), Setup::new());
    assert_eq!(s.block(a, READ, 3), 1);
    assert_eq!(s.block(b, READ, 1), 4, "above the fences of the other lease");
    s.give_back(b, Some(1));
    assert_eq!(s.block(c, READ, 1), 5);
    s.give_back(a, Some(1));
    s.give_back(c, Some(1));
    assert_eq!(s.block(d, READ, 1), 6);
}

#[test]
fn an_accepted_fence_is_above_the_floor_only_once_the_lease_has_ended() {
    let ([a, b], mut s) = (owners(), Setup::new());
    s.block(a, Mode::Exclusive, 1);
    s.context(|lock, context| lock.accept(a.0, Fence(100), 10, context));
    assert_eq!(s.floor, 0);
    s.release(a);
    assert_eq!(s.block(b, Mode::Exclusive, 1), 110);
    s.context(|lock, context| lock.accept(b.0, Fence(50), 1, context));
    s.release(b);
    assert_eq!(s.floor, 110, "a smaller fence does not lower the floor");
}

#[test]
fn a_detached_lease_keeps_its_own_fence_when_more_fences_are_reserved() {
    for mode in [Mode::Exclusive, READ] {
        let ([a, adopter, next], mut s) = (owners(), Setup::new());
        s.block(a, mode, 1);
        s.context(|lock, context| lock.detach(a.0, ttl(TTL), Fence(40), ttl(7_000), context));
        s.context(|lock, context| lock.accept(a.0, Fence(100), 64, context));
        assert_eq!((s.lock.held[0].fence, s.lock.held[0].last), (Some(Fence(40)), Fence(163)));
        assert_eq!(s.block(a, mode, 3), 164, "a late acquire");
        assert_eq!((s.lock.held[0].fence, s.lock.held[0].last), (Some(Fence(40)), Fence(166)));
        s.context(|lock, context| lock.accept(a.0, Fence(20), 1, context));
        let adopted = s.context(|lock, context| {
            lock.adopt(a.0, adopter.0, ttl(TTL), TICKET, &"adopter".into(), context)
        });
        let Reply::Adopted(lease) = adopted else { panic!("{adopted:?}") };
        assert_eq!((lease.first, lease.last), (Fence(40), Fence(166)));
        s.release(adopter);
        assert_eq!(s.block(next, mode, 1), 167, "no later lease gets a reserved fence");
    }
}
