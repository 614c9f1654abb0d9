use std::collections::HashSet;

use super::node_releases::{MOST, MOST_AT_ONCE};
use super::*;
use crate::lease::Key;
use crate::store::{Reply, StoreError, StoreErrorKind};

const LIFE: Duration = Duration::from_secs(10);

fn done() -> Answer {
    Ok(Reply::Released)
}

fn failed() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))
}

fn refused() -> Answer {
    Err(StoreError::not_done(StoreErrorKind::Denied, "NOPERM"))
}

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn key() -> Key {
    "k".into()
}

fn release_of(token: Token) -> TokenChange {
    TokenChange::release(key(), token)
}

/// Returns the tokens whose releases are due at `ms`. Only one node may have any.
fn due(pending_releases: &mut PendingReleases, ms: u64) -> Vec<Token> {
    let mut due = pending_releases.due(at(ms));
    assert!(due.len() <= 1, "{due:?}");
    due.pop().map_or(Vec::new(), |(_, changes)| changes.into_iter().map(|change| change.token).collect())
}

#[test]
fn a_release_that_failed_is_sent_again_and_then_forgotten() {
    let (mut pending_releases, token) = (PendingReleases::new(3), Token::random());
    pending_releases.released(at(0), 0, release_of(token), &done());
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (0, None), "what is done is done");
    pending_releases.released(at(0), 2, release_of(token), &failed());
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (1, Some(at(50))));
    assert_eq!(pending_releases.due(at(49)), []);
    assert_eq!(pending_releases.due(at(50)), [(2, vec![release_of(token)])]);
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (1, None), "it is in flight, once");
    assert_eq!(pending_releases.due(at(10_000)), []);
    pending_releases.answered(at(60), 2, &[done()], 1.0);
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (0, None));
}

/// Carries out all pending releases when they are due. Returns the time of each release, in ms.
fn carried_out_at(pending_releases: &mut PendingReleases) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(next) = pending_releases.next_wake() {
        let due = pending_releases.due(next);
        times.extend(due.iter().flat_map(|(_, changes)| vec![next.as_micros() / 1000; changes.len()]));
        due.iter().for_each(|(node, changes)| {
            pending_releases.answered(next, *node, &vec![done(); changes.len()], 1.0)
        });
    }
    times
}

#[test]
fn what_is_in_doubt_is_released_again_and_again() {
    let (mut pending_releases, token) = (PendingReleases::new(3), Token::random());
    // The acquire may arrive after the first releases, whether or not the node carried them out.
    for answer in [done(), failed()] {
        pending_releases.set_in_doubt(at(0), 1, token, LIFE);
        pending_releases.released(at(0), 1, release_of(token), &answer);
        assert_eq!(carried_out_at(&mut pending_releases), [50, 1_050, 4_050]);
        assert_eq!(pending_releases.len(), 0);
    }
    pending_releases.set_in_doubt(at(0), 1, token, LIFE);
    pending_releases.add(at(0), 1, release_of(token), false);
    assert_eq!(
        carried_out_at(&mut pending_releases),
        [50, 1_050, 4_050],
        "known of elsewhere, and yet in doubt"
    );
    // Nothing is repeated at another node, or for another token.
    pending_releases.set_in_doubt(at(300), 1, token, LIFE);
    pending_releases.released(at(301), 0, release_of(token), &done());
    pending_releases.released(at(301), 1, release_of(Token::random()), &done());
    assert_eq!(pending_releases.len(), 0);
}

#[test]
fn a_full_list_of_tokens_in_doubt_takes_a_token_nearly_as_quickly_as_one_with_room() {
    let mut pending_releases = PendingReleases::new(1);
    let mut time_to_add = || {
        let tokens: Vec<Token> = (0..4_096).map(|_| Token::random()).collect();
        let started = std::time::Instant::now();
        tokens.iter().for_each(|token| pending_releases.set_in_doubt(at(0), 0, *token, LIFE));
        started.elapsed()
    };
    let (with_room, full) = (time_to_add(), time_to_add());
    assert!(full < 100 * with_room, "{full:?} and {with_room:?}");
}

#[test]
fn a_release_that_is_added_twice_is_sent_once_and_repeated_if_either_was_in_doubt() {
    let (mut pending_releases, token) = (PendingReleases::new(1), Token::random());
    pending_releases.add(at(0), 0, release_of(token), false);
    pending_releases.add(at(0), 0, release_of(token), false);
    assert_eq!(pending_releases.len(), 1);
    pending_releases.add(at(0), 0, release_of(token), true);
    assert_eq!(carried_out_at(&mut pending_releases), [0, 1_000, 4_000]);
    // A release that is on its way is repeated, too.
    pending_releases.add(at(5_000), 0, release_of(token), false);
    assert_eq!(due(&mut pending_releases, 5_000), [token]);
    pending_releases.add(at(5_000), 0, release_of(token), true);
    pending_releases.answered(at(5_001), 0, &[done()], 1.0);
    assert_eq!(carried_out_at(&mut pending_releases), [6_001, 9_001]);
}

#[test]
fn a_node_that_stays_away_is_asked_more_and_more_seldom_until_the_ttl_has_to_do_it() {
    let (mut pending_releases, token) = (PendingReleases::new(1), Token::random());
    pending_releases.add(at(0), 0, release_of(token), false);
    let (mut pauses, mut last) = (Vec::new(), 0);
    while let Some(next) = pending_releases.next_wake() {
        let now = next.as_micros() / 1000;
        pauses.push(now - last);
        last = now;
        if pending_releases.due(next).is_empty() {
            break;
        }
        pending_releases.answered(next, 0, &[failed()], 1.0);
    }
    // The first release is sent at once, because the lease is known to be there.
    assert_eq!(pauses[..6], [0, 100, 200, 400, 500, 500]);
    assert!(pauses[4..].iter().all(|pause| *pause == 500), "{pauses:?}");
    assert_eq!(pending_releases.len(), 0, "after {last} ms");
    assert!((600_000..600_600).contains(&last), "{last}");
    // The jitter shortens a pause by up to half.
    let mut pending_releases = PendingReleases::new(1);
    pending_releases.add(at(0), 0, release_of(token), false);
    due(&mut pending_releases, 50);
    pending_releases.answered(at(50), 0, &[failed()], 0.0);
    assert_eq!(pending_releases.next_wake(), Some(at(100)));
}

#[test]
fn pending_releases_are_sent_in_portions_and_in_order() {
    let mut pending_releases = PendingReleases::new(1);
    let tokens: Vec<Token> = (0..MOST_AT_ONCE + 5).map(|_| Token::random()).collect();
    tokens.iter().for_each(|token| pending_releases.add(at(0), 0, release_of(*token), false));
    assert_eq!(due(&mut pending_releases, 50), tokens[..MOST_AT_ONCE]);
    // The first release failed, so it goes behind the others.
    let mut answers = vec![done(); MOST_AT_ONCE];
    answers[0] = failed();
    pending_releases.answered(at(60), 0, &answers, 1.0);
    let mut rest = tokens[MOST_AT_ONCE..].to_vec();
    rest.push(tokens[0]);
    assert_eq!(pending_releases.len(), rest.len());
    assert_eq!(due(&mut pending_releases, 160), rest);
}

#[test]
fn a_refused_release_does_not_delay_other_releases_at_the_node() {
    let (mut pending_releases, [denied, other]) =
        (PendingReleases::new(1), [Token::random(), Token::random()]);
    let ends = Some(at(10_000));
    pending_releases.released(at(0), 0, TokenChange { ends, ..release_of(denied) }, &refused());
    assert_eq!(due(&mut pending_releases, 50), [denied]);
    pending_releases.answered(at(60), 0, &[refused()], 1.0);
    pending_releases.add(at(61), 0, release_of(other), false);
    assert_eq!(due(&mut pending_releases, 61), [other]);
    pending_releases.answered(at(62), 0, &[done()], 1.0);
    assert_eq!(pending_releases.next_wake(), Some(at(560)));
    assert_eq!(due(&mut pending_releases, 560), [denied]);
}

#[test]
fn a_refused_release_is_repeated_until_a_lease_that_was_created_before_has_ended() {
    for life in [None, Some(Duration::from_secs(10))] {
        let (mut pending_releases, token) = (PendingReleases::new(1), Token::random());
        let release = TokenChange { life, ..release_of(token) };
        pending_releases.add(at(0), 0, release, true);
        // A frozen node carries out the acquire before it refuses the release.
        let answer_at = |pending_releases: &mut PendingReleases, answer| {
            let next = pending_releases.next_wake()?;
            pending_releases.due(next);
            pending_releases.answered(next, 0, &[answer], 1.0);
            Some(next)
        };
        for _ in 0..20 {
            answer_at(&mut pending_releases, failed());
        }
        let mut last = None;
        while let Some(now) = answer_at(&mut pending_releases, refused()) {
            let first = *last.get_or_insert(now);
            assert!(now < first + Duration::from_secs(12));
            // A further release of the token does not shorten that time.
            let again = release_of(token);
            if life.is_some() && now < first + Duration::from_secs(1) {
                pending_releases.add(now, 0, again, false);
            }
            // Without the life of the lease, the last one is sent after 4 s.
            if now >= first + Duration::from_secs(9) {
                assert!(life.is_some(), "{}", now.since(first).as_millis());
                last = None;
                break;
            }
        }
        assert_eq!(last.is_none(), life.is_some(), "it was repeated for the ttl");
    }
}

#[test]
fn a_node_that_returns_gets_thousands_of_pending_releases() {
    let mut pending_releases = PendingReleases::new(1);
    let tokens: Vec<Token> = (0..5_000).map(|_| Token::random()).collect();
    for token in &tokens {
        pending_releases.add(at(0), 0, release_of(*token), false);
    }
    let mut now = at(0);
    for _ in 0..200 {
        let changes = pending_releases.due(now).pop().expect("something is pending").1;
        pending_releases.answered(now, 0, &vec![failed(); changes.len()], 1.0);
        now = pending_releases.next_wake().expect("it failed");
    }
    let mut released = HashSet::new();
    while let Some((_, changes)) = pending_releases.due(now).pop() {
        released.extend(changes.iter().map(|change| change.token));
        pending_releases.answered(now, 0, &vec![done(); changes.len()], 1.0);
        now = pending_releases.next_wake().unwrap_or(now);
    }
    assert_eq!((released.len(), pending_releases.len()), (tokens.len(), 0));
    assert!(tokens.iter().all(|token| released.contains(token)));
}

#[test]
fn releases_that_always_fail_do_not_keep_others_from_being_sent() {
    let (mut pending_releases, last) = (PendingReleases::new(1), Token::random());
    for _ in 0..2 * MOST_AT_ONCE {
        pending_releases.add(at(0), 0, release_of(Token::random()), false);
    }
    pending_releases.add(at(0), 0, release_of(last), false);
    let rounds = (0..10).take_while(|_| {
        let next = pending_releases.next_wake().expect("it is pending");
        let changes = pending_releases.due(next).pop().expect("it is due").1;
        pending_releases.answered(next, 0, &vec![failed(); changes.len()], 1.0);
        changes.iter().all(|change| change.token != last)
    });
    assert_eq!(rounds.count(), 2);
}

#[test]
fn the_pending_releases_of_a_node_are_bounded() {
    let mut pending_releases = PendingReleases::new(2);
    let [first, soon, late] = [Token::random(), Token::random(), Token::random()];
    for (token, ends) in [(first, None), (late, Some(at(60_000))), (soon, Some(at(9_000)))] {
        let change = TokenChange { ends, ..release_of(token) };
        pending_releases.add(at(0), 0, change, false);
    }
    for count in 4..=MOST + 1 {
        pending_releases.add(at(1), 0, release_of(Token::random()), false);
        assert_eq!(pending_releases.len(), count.min(MOST));
    }
    // The one that ends first was dropped. Others stay, though they are older.
    assert_eq!(due(&mut pending_releases, 50)[..2], [first, late]);
    pending_releases.answered(at(50), 0, &vec![done(); MOST_AT_ONCE], 1.0);
    assert!(!due(&mut pending_releases, 50).contains(&soon));
}

/// Carries out the pending releases that are due at `ms`, and returns them. The node answers `said`
/// to each pending release.
fn carry_out_due(
    pending_releases: &mut PendingReleases,
    ms: u64,
    said: impl Fn() -> MoveResult,
) -> Vec<TokenChange> {
    let mut due = pending_releases.due(at(ms));
    assert!(due.len() <= 1, "{due:?}");
    let Some((node, changes)) = due.pop() else { return Vec::new() };
    pending_releases.said(at(ms), node, &changes.iter().map(|_| said()).collect::<Vec<_>>());
    pending_releases.answered(at(ms), node, &vec![done(); changes.len()], 1.0);
    changes
}

#[test]
fn a_move_that_finds_the_claim_of_another_adopter_is_repeated_from_that_claim() {
    let (mut pending_releases, [ticket, adopter]) =
        (PendingReleases::new(1), [Token::random(), Token::random()]);
    let claim = Token::claim(ticket, Token::random());
    pending_releases.add_move(at(0), 0, TokenChange::moved(key(), ticket, adopter), false);
    let asked = carry_out_due(&mut pending_releases, 0, || MoveResult::Claimed(claim));
    assert_eq!(asked, [TokenChange::moved(key(), ticket, adopter)]);
    assert_eq!(
        carry_out_due(&mut pending_releases, 0, || MoveResult::Moved),
        [TokenChange::moved(key(), claim, adopter)]
    );
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (0, None));
}

#[test]
fn a_move_from_a_claim_does_not_follow_the_claim_of_the_next_adopter() {
    let (mut pending_releases, [ticket, adopter, unused]) =
        (PendingReleases::new(1), [(); 3].map(|()| Token::random()));
    let (earlier, next) = (Token::claim(ticket, adopter), Token::claim(adopter, Token::random()));
    let change = TokenChange::moved(key(), earlier, unused);
    pending_releases.add_move(at(0), 0, change.clone(), false);
    // A node with the rules of an earlier version answers in this way.
    assert_eq!(carry_out_due(&mut pending_releases, 0, || MoveResult::Claimed(next)), [change]);
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (0, None));
}

#[test]
fn a_token_that_ends_is_released_wherever_a_move_still_brings_it() {
    let (mut pending_releases, [ticket, adopter]) =
        (PendingReleases::new(1), [Token::random(), Token::random()]);
    pending_releases.add_move(at(0), 0, TokenChange::moved(key(), ticket, adopter), false);
    pending_releases.redirect(at(0), adopter, None);
    let last = TokenChange { release: true, ..TokenChange::moved(key(), ticket, adopter) };
    assert_eq!(carry_out_due(&mut pending_releases, 0, || MoveResult::Moved), [last]);
    assert_eq!(carry_out_due(&mut pending_releases, 0, || MoveResult::Other), [release_of(adopter)]);
    assert_eq!((pending_releases.len(), pending_releases.next_wake()), (0, None));
    // The move is on its way when the token ends, so it may arrive after the release.
    pending_releases.add_move(at(0), 0, TokenChange::moved(key(), ticket, adopter), false);
    assert_eq!(pending_releases.due(at(0)).len(), 1);
    pending_releases.redirect(at(0), adopter, None);
    pending_releases.said(at(9), 0, &[MoveResult::Moved]);
    pending_releases.answered(at(9), 0, &[done()], 1.0);
    assert_eq!(carried_out_at(&mut pending_releases), [50, 1_050, 4_050]);
}

#[test]
fn a_lease_that_goes_back_to_its_ticket_is_not_moved_away_again() {
    let (mut pending_releases, [ticket, adopter, next]) =
        (PendingReleases::new(1), [Token::random(), Token::random(), Token::random()]);
    let (there, back) =
        (TokenChange::moved(key(), ticket, adopter), TokenChange::moved(key(), adopter, ticket));
    // The move was not sent.
    pending_releases.add_move(at(0), 0, there.clone(), false);
    pending_releases.redirect(at(0), adopter, Some(ticket));
    assert_eq!(
        (carry_out_due(&mut pending_releases, 0, || MoveResult::Moved), pending_releases.len()),
        (Vec::new(), 0)
    );
    // The move was sent, and may arrive later.
    pending_releases.add_move(at(0), 0, there.clone(), false);
    assert_eq!(pending_releases.due(at(0)).len(), 1);
    pending_releases.redirect(at(0), adopter, Some(ticket));
    pending_releases.said(at(9), 0, &[MoveResult::Moved]);
    pending_releases.answered(at(9), 0, &[done()], 1.0);
    for ms in [50, 1_050, 4_050] {
        assert_eq!(carry_out_due(&mut pending_releases, ms, || MoveResult::Moved), vec![back.clone()]);
    }
    assert_eq!(pending_releases.len(), 0);
    // The next adopter of this process adopts while the first move is on its way.
    pending_releases.add_move(at(5_000), 0, there, false);
    assert_eq!(pending_releases.due(at(5_000)).len(), 1);
    pending_releases.redirect(at(5_000), adopter, Some(ticket));
    pending_releases.add_move(at(5_000), 0, TokenChange::moved(key(), ticket, next), false);
    pending_releases.answered(at(5_001), 0, &[done()], 1.0);
    pending_releases.redirect(at(5_001), ticket, Some(next));
    let onward = [TokenChange::moved(key(), ticket, next), TokenChange::moved(key(), adopter, next)];
    let changes = carry_out_due(&mut pending_releases, 5_100, || MoveResult::Moved);
    assert!(changes.len() == 2 && onward.iter().all(|change| changes.contains(change)), "{changes:?}");
}
