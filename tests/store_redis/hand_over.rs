//! Tests hand-overs. A release alone in its batch hands the lock over without the rules if
//! possible, and must leave the same keys as the rules.

use std::rc::Rc;

use leasehold::lease::Token;
use leasehold::store::redis::RedisStore;
use leasehold::store::{GRANT_FENCES, GRANT_TTL, Notice, Reply, Store};

use crate::ask::{Notices, acquire, adopt, all, ask, granted, queue, queued, release, run, share};
use crate::server::Server;

/// A server and two stores that wait.
struct Setup {
    server: Server,
    stores: [Rc<RedisStore>; 2],
    notices: [Notices; 2],
}

/// Returns the keys of one lock at the server, without its name, its fences and exact times.
fn state(server: &Server, key: &str) -> Vec<String> {
    let side = |name: &str| format!("{{{key}}}:{name}");
    let fence = server.command(&["GET", &side("fence")]);
    let (mark, rest) = fence.split_once(' ').unwrap_or((&fence, ""));
    let mark: String = mark.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    // Sort the tokens: Redis orders them by milliseconds, and by token within one.
    let alive = server.command(&["ZRANGE", &side("alive"), "0", "-1"]);
    let mut alive: Vec<&str> = alive.lines().collect();
    alive.sort_unstable();
    let mut state = vec![
        server.command(&["GET", key]),
        format!("{mark} {rest}"),
        server.command(&["ZRANGE", &side("queue"), "0", "-1"]),
        alive.join("\n"),
        server.command(&["HGETALL", &side("waiters")]),
        server.command(&["TYPE", &side("holders")]),
    ];
    // For times, compare only how many seconds have passed.
    for (name, begun) in
        [("", GRANT_TTL.as_millis() as i64), ("fence", 3_660_000), ("queue", 5_000), ("alive", 5_000)]
    {
        let name = if name.is_empty() { key.to_owned() } else { side(name) };
        let left: i64 = server.command(&["PTTL", &name]).parse().unwrap();
        let about = if left < 0 { left } else { (begun - left) / 1_000 };
        state.push(format!("{about} s after {begun} ms"));
    }
    state
}

impl Setup {
    fn new() -> Self {
        let server = Server::start(&[]);
        let stores = [server.store(), server.store()];
        let notices = [Notices::of(&stores[0]), Notices::of(&stores[1])];
        Self { server, stores, notices }
    }

    /// Releases two locks that `prepare` has made alike for `token`, the second one by the rules.
    /// Returns true if the first one was handed over without the rules.
    async fn compare(&mut self, token: Token, locks: [&str; 2]) -> bool {
        let holder = self.stores[0].clone();
        self.server.command(&["CONFIG", "RESETSTAT"]);
        assert_eq!(ask(&holder, release(locks[0], token)).await, Reply::Released);
        // The rules first ask for the type of a lock.
        let without_rules = !self.server.command(&["INFO", "commandstats"]).contains("cmdstat_type:");
        let mut sent = [Vec::new(), Vec::new()];
        for (lock, sent) in locks.iter().zip(&mut sent) {
            if *lock == locks[1] {
                let batch = vec![release(lock, token), release("lock:free", token)];
                assert!(matches!(all(&holder, batch).await[0], Ok(Reply::Released)));
            }
            for (store, notices) in self.stores.iter().zip(&mut self.notices) {
                // Notices arrive before this answer.
                ask(store, release("lock:free", token)).await;
                for notice in notices.more() {
                    let Notice::Granted { number, fence } = notice else { panic!("{notice:?}") };
                    let shown = self.server.command(&["GET", &format!("{{{lock}}}:fence")]);
                    let last = u64::from(GRANT_FENCES) - 1;
                    let is_shown = |fence: leasehold::lease::Fence| {
                        shown.contains(&format!("{:016}-{last} ", fence.0 + last))
                    };
                    assert!(fence.is_none_or(is_shown), "{fence:?} in the notice, {shown} at the server");
                    sent.push((number, fence.is_some()));
                }
            }
        }
        assert_eq!(sent[0], sent[1], "both releases send the same notices");
        assert_eq!(state(&self.server, locks[0]), state(&self.server, locks[1]));
        without_rules
    }
}

/// What happens to a lock before its release.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    One,
    Two,
    ABlockOfFences,
    ReaderBehind,
    ReaderFirst,
    LostPlaceBehind,
    LostPlaceFirst,
    NoChannel,
    ListenerGone,
    Adopted,
    AheadOfTheClock,
    NoFence,
    NoWaiter,
}

#[test]
fn a_hand_over_leaves_the_keys_that_the_rules_leave() {
    use Case::*;
    run(async {
        for (case, expected) in [
            (One, true),
            (Two, true),
            (ABlockOfFences, true),
            (ReaderBehind, true),
            (ReaderFirst, false),
            (LostPlaceBehind, false),
            (LostPlaceFirst, false),
            (NoChannel, false),
            (ListenerGone, false),
            (Adopted, true),
            (AheadOfTheClock, false),
            (NoFence, false),
            (NoWaiter, true),
        ] {
            let mut setup = Setup::new();
            let (mut token, adopter) = (Token::random(), Token::random());
            let waiters = [Token::random(), Token::random()];
            let locks = ["lock:a", "lock:b"];
            for lock in locks {
                prepare(&setup, case, lock, token, waiters).await;
                if case == Adopted {
                    assert!(ask(&setup.stores[0], adopt(lock, token, adopter)).await.is_adopted());
                }
            }
            if case == Adopted {
                token = adopter;
            }
            if case == ListenerGone {
                setup.stores[1].clone().close().await;
                while setup.server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count() > 1 {}
                setup.stores[1] = setup.stores[0].clone();
            }
            assert_eq!(setup.compare(token, locks).await, expected, "{case:?}");
        }
    });
}

async fn prepare(setup: &Setup, case: Case, lock: &str, token: Token, waiters: [Token; 2]) {
    let Setup { server, stores, .. } = setup;
    let side = |name: &str| format!("{{{lock}}}:{name}");
    granted(&stores[0], lock, token).await;
    if case == Case::ABlockOfFences {
        let leasehold::store::Request::Acquire(ask_for) = acquire(lock, token, 60_000) else {
            unreachable!()
        };
        let block = leasehold::store::AcquireRequest { fences: 64, ..ask_for };
        ask(&stores[0], leasehold::store::Request::Acquire(block)).await;
    }
    let first =
        if case == Case::ReaderFirst { share(lock, waiters[0], 9, 1) } else { queue(lock, waiters[0], 1) };
    let second =
        if case == Case::ReaderBehind { share(lock, waiters[1], 9, 2) } else { queue(lock, waiters[1], 2) };
    if case != Case::NoWaiter {
        assert_eq!(queued(ask(&stores[1], first).await), (0, true));
    }
    if !matches!(case, Case::NoWaiter | Case::One) {
        assert_eq!(queued(ask(&stores[0], second).await), (1, true));
    }
    let lost = |waiter: Token| server.command(&["ZADD", &side("alive"), "1", &waiter.to_string()]);
    match case {
        Case::LostPlaceBehind => drop(lost(waiters[1])),
        Case::LostPlaceFirst => drop(lost(waiters[0])),
        Case::NoChannel => {
            server.command(&["HSET", &side("waiters"), &waiters[0].to_string(), "0 1 1000 - a test"]);
        }
        Case::AheadOfTheClock => {
            let text = format!("q9000000000000000 {token} a test");
            server.command(&["SET", &side("fence"), &text, "KEEPTTL"]);
        }
        Case::NoFence => drop(server.command(&["DEL", &side("fence")])),
        _ => {}
    }
}
