use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn key() -> Key {
    "k".into()
}

/// Whose releases are due at `ms`, at the only node that owes any.
fn due(debts: &mut Debts, ms: u64) -> Vec<Token> {
    let mut due = debts.due(at(ms));
    assert!(due.len() <= 1, "{due:?}");
    due.pop().map_or(Vec::new(), |(_, paid)| paid.into_iter().map(|owed| owed.token).collect())
}

#[test]
fn a_release_that_failed_is_paid_a_little_later_and_then_forgotten() {
    let (mut debts, token) = (Debts::new(3), Token::random());
    debts.released(at(0), 0, &key(), token, false);
    assert_eq!((debts.len(), debts.next_wake()), (0, None), "what is done is done");
    debts.released(at(0), 2, &key(), token, true);
    assert_eq!((debts.len(), debts.next_wake()), (1, Some(at(50))));
    assert_eq!(debts.due(at(49)), []);
    assert_eq!(debts.due(at(50)), [(2, vec![released(&key(), token)])]);
    assert_eq!((debts.len(), debts.next_wake()), (1, None), "it is being paid, once");
    assert_eq!(debts.due(at(10_000)), []);
    debts.paid(at(60), 2, &[false], 1.0);
    assert_eq!((debts.len(), debts.next_wake()), (0, None));
}

/// Pays all that is due until nothing is owed. Returns when each release was, in ms.
fn paid_at(debts: &mut Debts) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(next) = debts.next_wake() {
        let due = debts.due(next);
        times.extend(due.iter().flat_map(|(_, paid)| vec![next.as_micros() / 1000; paid.len()]));
        due.iter().for_each(|(node, paid)| debts.paid(next, *node, &vec![false; paid.len()], 1.0));
    }
    times
}

#[test]
fn what_is_in_doubt_is_released_again_and_again() {
    let (mut debts, token) = (Debts::new(3), Token::random());
    // The acquire may come after the first releases, whether they were done or not.
    for failed in [false, true] {
        debts.doubt(at(0), 1, token);
        debts.released(at(0), 1, &key(), token, failed);
        assert_eq!(paid_at(&mut debts), [50, 1_050, 4_050]);
        assert_eq!(debts.len(), 0);
    }
    debts.doubt(at(0), 1, token);
    debts.owe(at(0), 1, &key(), token, false);
    assert_eq!(paid_at(&mut debts), [50, 1_050, 4_050], "known of elsewhere, and yet in doubt");
    // Another node, and another token, are not meant.
    debts.doubt(at(300), 1, token);
    debts.released(at(301), 0, &key(), token, false);
    debts.released(at(301), 1, &key(), Token::random(), false);
    assert_eq!(debts.len(), 0);
}

#[test]
fn what_is_owed_twice_is_paid_once_and_as_the_more_doubtful_of_the_two() {
    let (mut debts, token) = (Debts::new(1), Token::random());
    debts.owe(at(0), 0, &key(), token, false);
    debts.owe(at(0), 0, &key(), token, false);
    assert_eq!(debts.len(), 1);
    debts.owe(at(0), 0, &key(), token, true);
    assert_eq!(paid_at(&mut debts), [0, 1_000, 4_000]);
    // Also while it is being paid.
    debts.owe(at(5_000), 0, &key(), token, false);
    assert_eq!(due(&mut debts, 5_000), [token]);
    debts.owe(at(5_000), 0, &key(), token, true);
    debts.paid(at(5_001), 0, &[false], 1.0);
    assert_eq!(paid_at(&mut debts), [6_001, 9_001]);
}

#[test]
fn a_node_that_stays_away_is_asked_more_and_more_seldom_until_the_ttl_has_to_do_it() {
    let (mut debts, token) = (Debts::new(1), Token::random());
    debts.owe(at(0), 0, &key(), token, false);
    let (mut pauses, mut last) = (Vec::new(), 0);
    while let Some(next) = debts.next_wake() {
        let now = next.as_micros() / 1000;
        pauses.push(now - last);
        last = now;
        if debts.due(next).is_empty() {
            break;
        }
        debts.paid(next, 0, &[true], 1.0);
    }
    // At once, for it is known to be there.
    assert_eq!(pauses[..6], [0, 100, 200, 400, 500, 500]);
    assert!(pauses[4..].iter().all(|pause| *pause == 500), "{pauses:?}");
    assert_eq!(debts.len(), 0, "after {last} ms");
    assert!((600_000..600_600).contains(&last), "{last}");
    // By chance up to half of a pause sooner.
    let mut debts = Debts::new(1);
    debts.owe(at(0), 0, &key(), token, false);
    due(&mut debts, 50);
    debts.paid(at(50), 0, &[true], 0.0);
    assert_eq!(debts.next_wake(), Some(at(100)));
}

#[test]
fn debts_are_paid_in_portions_and_in_order() {
    let mut debts = Debts::new(1);
    let tokens: Vec<Token> = (0..MOST_AT_ONCE + 5).map(|_| Token::random()).collect();
    tokens.iter().for_each(|token| debts.owe(at(0), 0, &key(), *token, false));
    assert_eq!(due(&mut debts, 50), tokens[..MOST_AT_ONCE]);
    // The first of them failed: it comes behind the others.
    let mut failed = vec![false; MOST_AT_ONCE];
    failed[0] = true;
    debts.paid(at(60), 0, &failed, 1.0);
    let mut rest = tokens[MOST_AT_ONCE..].to_vec();
    rest.push(tokens[0]);
    assert_eq!(debts.len(), rest.len());
    assert_eq!(due(&mut debts, 160), rest);
}

#[test]
fn no_more_is_owed_to_a_node_than_it_can_ever_be_paid() {
    let mut debts = Debts::new(2);
    let first = Token::random();
    debts.owe(at(0), 0, &key(), first, false);
    for _ in 0..2 * MOST {
        debts.owe(at(0), 0, &key(), Token::random(), false);
    }
    assert_eq!(debts.len(), MOST);
    assert!(!due(&mut debts, 50).contains(&first), "the oldest goes");
}

/// Pays what is due at `ms`, as [`due`]. Returns it; the node says `said` to each debt.
fn pay(debts: &mut Debts, ms: u64, said: impl Fn() -> Said) -> Vec<Owed> {
    let mut due = debts.due(at(ms));
    assert!(due.len() <= 1, "{due:?}");
    let Some((node, paid)) = due.pop() else { return Vec::new() };
    debts.said(at(ms), node, &paid.iter().map(|_| said()).collect::<Vec<_>>());
    debts.paid(at(ms), node, &vec![false; paid.len()], 1.0);
    paid
}

#[test]
fn a_move_that_finds_the_claim_of_another_heir_is_repeated_from_that_claim() {
    let (mut debts, [ticket, heir, claim]) =
        (Debts::new(1), [Token::random(), Token::random(), Token::random()]);
    debts.owe_move(at(0), 0, Owed::moved(key(), ticket, heir), false);
    let asked = pay(&mut debts, 0, || Said::Claimed(claim));
    assert_eq!(asked, [Owed::moved(key(), ticket, heir)]);
    assert_eq!(pay(&mut debts, 0, || Said::Moved), [Owed::moved(key(), claim, heir)]);
    assert_eq!((debts.len(), debts.next_wake()), (0, None));
}

#[test]
fn a_token_that_ends_is_released_wherever_a_move_still_brings_it() {
    let (mut debts, [ticket, heir]) = (Debts::new(1), [Token::random(), Token::random()]);
    debts.owe_move(at(0), 0, Owed::moved(key(), ticket, heir), false);
    debts.redirect(at(0), heir, None);
    let last = Owed { release: true, ..Owed::moved(key(), ticket, heir) };
    assert_eq!(pay(&mut debts, 0, || Said::Moved), [last]);
    assert_eq!(pay(&mut debts, 0, || Said::Other), [released(&key(), heir)]);
    assert_eq!((debts.len(), debts.next_wake()), (0, None));
    // The move is on its way when the token ends, so it may arrive after the release.
    debts.owe_move(at(0), 0, Owed::moved(key(), ticket, heir), false);
    assert_eq!(debts.due(at(0)).len(), 1);
    debts.redirect(at(0), heir, None);
    debts.said(at(9), 0, &[Said::Moved]);
    debts.paid(at(9), 0, &[false], 1.0);
    assert_eq!(paid_at(&mut debts), [50, 1_050, 4_050]);
}

#[test]
fn a_lease_that_goes_back_to_its_ticket_is_not_moved_away_again() {
    let (mut debts, [ticket, heir, next]) =
        (Debts::new(1), [Token::random(), Token::random(), Token::random()]);
    let (there, back) = (Owed::moved(key(), ticket, heir), Owed::moved(key(), heir, ticket));
    // The move was not sent.
    debts.owe_move(at(0), 0, there.clone(), false);
    debts.redirect(at(0), heir, Some(ticket));
    assert_eq!((pay(&mut debts, 0, || Said::Moved), debts.len()), (Vec::new(), 0));
    // It was sent, and may arrive later.
    debts.owe_move(at(0), 0, there.clone(), false);
    assert_eq!(debts.due(at(0)).len(), 1);
    debts.redirect(at(0), heir, Some(ticket));
    debts.said(at(9), 0, &[Said::Moved]);
    debts.paid(at(9), 0, &[false], 1.0);
    for ms in [50, 1_050, 4_050] {
        assert_eq!(pay(&mut debts, ms, || Said::Moved), vec![back.clone()]);
    }
    assert_eq!(debts.len(), 0);
    // The next heir of this process adopts while the first move is on its way.
    debts.owe_move(at(5_000), 0, there, false);
    assert_eq!(debts.due(at(5_000)).len(), 1);
    debts.redirect(at(5_000), heir, Some(ticket));
    debts.owe_move(at(5_000), 0, Owed::moved(key(), ticket, next), false);
    debts.paid(at(5_001), 0, &[false], 1.0);
    debts.redirect(at(5_001), ticket, Some(next));
    let onward = [Owed::moved(key(), ticket, next), Owed::moved(key(), heir, next)];
    let paid = pay(&mut debts, 5_100, || Said::Moved);
    assert!(paid.len() == 2 && onward.iter().all(|owed| paid.contains(owed)), "{paid:?}");
}
