//! Users that may do less than everything.

use leasehold::lease::Token;
use leasehold::store::StoreErrorKind::Denied;
use leasehold::store::{Reply, Request};

use crate::redis_server::RedisServer;
use crate::support::*;

/// A server with a user `worker` of these rights, and the user's URL.
fn server_with(rights: &[&str]) -> (std::rc::Rc<RedisServer>, String) {
    let server = RedisServer::start(&[]);
    let user = ["ACL", "SETUSER", "worker", "on", ">secret", "&*"];
    server.tell(&[&user[..], rights].concat());
    let url = server.url_with("worker:secret@");
    (server, url)
}

#[test]
fn what_the_documentation_asks_for_is_enough() {
    run(async {
        let commands = "+ping +evalsha +script|load +select +set +get +mget +del +pttl +pexpire +time +info";
        let mut rights = vec!["~lock:*", "~{lock:*"];
        rights.extend(commands.split(' '));
        // Redis 6.2 needs the whole of SCRIPT; both take CLIENT's and INFO's refusal.
        let (_server, url) = server_with(&rights);
        assert_usable(&open(&url)).await;
        rights.pop();
        let (_server, url) = server_with(&rights);
        assert_usable(&open(&url)).await;
    });
}

#[test]
fn a_user_that_may_run_no_scripts_is_denied() {
    run(async {
        for right in ["-evalsha", "-script", "-@scripting"] {
            let (_server, url) = server_with(&["~*", "+@all", right]);
            let said = assert_unusable(&url, Denied, TIMEOUT).await;
            assert!(said.contains("rights"), "{right}: {said}");
        }
    });
}

#[test]
fn a_user_of_other_keys_is_denied_ours() {
    run(async {
        let (_server, url) = server_with(&["~other:*", "+@all"]);
        let store = open(&url);
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        for answer in answers(&store, one_of_each("lock:k").to_vec()).await {
            let error = assert_error(&answer, Denied, false);
            assert!(error.message.contains("rights"), "{error}");
        }
    });
}

/// Clients with different prefixes may share a store, and a batch.
#[test]
fn a_key_that_is_denied_fails_its_own_requests_and_no_others() {
    run(async {
        let (server, url) = server_with(&["~good:*", "~{good:*", "+@all"]);
        let store = open(&url);
        let token = Token::random();
        let keys = ["good:1", "bad:1", "good:2", "bad:2"];
        let each = |make: &dyn Fn(&str) -> Request| keys.map(make).to_vec();
        let batch = [
            each(&|key| acquire(key, token, LONG)),
            each(&|key| renew(key, token, LONG)),
            each(&inspect),
            each(&|key| release(key, token)),
        ]
        .concat();
        let answers = answers(&store, batch).await;
        for (i, answer) in answers.iter().enumerate() {
            match (i % 2 == 1, i / 4, answer) {
                (true, ..) => drop(assert_error(answer, Denied, false).clone()),
                (_, 0, Ok(Reply::Acquired { .. })) => {}
                (_, 1, Ok(Reply::Renewed)) => {}
                (_, 2, Ok(Reply::Inspected(Some(_)))) => {}
                (_, 3, Ok(Reply::Released)) => {}
                _ => panic!("{i}: {answer:?}"),
            }
        }
        assert_eq!(server.connections(), 1, "rights are no reason for another connection");
    });
}

/// Not even a lock that stays until its ttl: nothing is changed before all is known to be allowed.
#[test]
fn a_script_that_is_denied_a_command_leaves_nothing() {
    run(async {
        for right in ["-set", "-get", "-time", "-pttl", "-mget", "-del", "-pexpire"] {
            let (server, url) = server_with(&["~*", "+@all", right]);
            let store = open(&url);
            let held = Token::random();
            let found = attempt(&store, acquire("lock:k", held, LONG)).await;
            if let Err(error) = &found {
                assert_eq!((error.kind, error.maybe_done), (Denied, false), "{right}: {error}");
                assert_eq!(server.ask::<usize>(&["DBSIZE"]), 0, "{right}: {error}");
                continue;
            }
            for request in [
                acquire("lock:k", Token::random(), LONG),
                acquire("lock:k", held, LONG),
                renew("lock:k", held, LONG),
                inspect("lock:k"),
                release("lock:k", held),
            ] {
                let answer = attempt(&store, request).await;
                if answer.is_err() {
                    assert_error(&answer, Denied, false);
                }
            }
        }
    });
}
