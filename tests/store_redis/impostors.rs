//! What answers is no Redis, or none that can be used.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::StoreErrorKind::{Denied, TimedOut, Unreachable, Unsupported};
use leasehold::store::{Request, Store};

use crate::impostor;
use crate::support::*;

#[test]
fn a_web_server_is_no_redis() {
    run(async {
        let url = impostor::start(|mut connection| {
            let _ = connection.read(&mut [0; 1024]);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>");
        });
        let said = assert_unusable(&url, Unsupported, TIMEOUT).await;
        assert!(said.contains("is not a Redis server"), "{said}");
    });
}

#[test]
fn a_server_that_greets_first_is_no_redis() {
    run(async {
        let url = impostor::start(|mut connection| {
            let _ = connection.write_all(b"220 mail.example.org ESMTP\r\n");
            let _ = connection.read_to_end(&mut Vec::new());
        });
        assert_unusable(&url, Unsupported, TIMEOUT).await;
    });
}

#[test]
fn a_server_that_answers_everything_with_the_same_is_no_redis() {
    run(async {
        for reply in [":1\r\n", "$-1\r\n", "*0\r\n", "+OK\r\n", "+PONG\r\n", "$4\r\nPONG\r\n"] {
            let url = impostor::replying(move |_| Some(reply.into()));
            for login in ["", "user:secret@"] {
                let url = url.replace("redis://", &format!("redis://{login}"));
                assert_unusable(&url, Unsupported, TIMEOUT).await;
            }
        }
    });
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    run(async {
        let url = impostor::start(|mut connection| {
            let _ = connection.read_to_end(&mut Vec::new());
        });
        let start = Instant::now();
        assert_unusable(&url, TimedOut, Duration::from_millis(100)).await;
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        // However long the batch may take, an attempt to connect is given up sooner.
        let start = Instant::now();
        let store = open(&url);
        assert_error(&attempt(&store, Request::Ping).await, TimedOut, false);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    });
}

#[test]
fn a_server_that_closes_at_once_is_out_of_reach() {
    run(async {
        let url = impostor::start(drop);
        assert_unusable(&url, Unreachable, TIMEOUT).await;
        let url = impostor::replying(|_| None);
        assert_unusable(&url, Unreachable, TIMEOUT).await;
    });
}

#[test]
fn a_server_that_refuses_strangers_says_so() {
    run(async {
        let url = impostor::start(|mut connection| {
            let _ = connection.read(&mut [0; 1024]);
            let _ = connection.write_all(b"-DENIED Redis is running in protected mode because\r\n");
        });
        let said = assert_unusable(&url, Denied, TIMEOUT).await;
        assert!(said.contains("protected mode"), "{said}");
    });
}

/// A Redis as far as it is needed to tell its `info`.
fn telling(info: &'static str) -> String {
    impostor::replying(move |command| {
        Some(match command.split(' ').next()? {
            "PING" => "+PONG\r\n".into(),
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "-ERR unknown command\r\n".into(),
        })
    })
}

#[test]
fn an_old_redis_is_told_which_one_is_needed() {
    run(async {
        for (info, version) in [
            ("# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n", "6.0.16"),
            ("# Server\r\nredis_version:2.8.9\r\n", "2.8.9"),
        ] {
            let said = assert_unusable(&telling(info), Unsupported, TIMEOUT).await;
            assert!(said.contains(version) && said.contains("6.2"), "{said}");
        }
    });
}

#[test]
fn a_sentinel_and_a_node_of_a_cluster_are_told_apart_from_a_redis() {
    run(async {
        for mode in ["sentinel", "cluster"] {
            let info: &str = match mode {
                "sentinel" => "redis_version:7.0.15\r\nredis_mode:sentinel\r\n",
                _ => "redis_version:7.0.15\r\nredis_mode:cluster\r\n",
            };
            let said = assert_unusable(&telling(info), Unsupported, TIMEOUT).await;
            assert!(said.to_lowercase().contains(mode), "{said}");
        }
    });
}

/// Whatever a server says of a login, the password is not passed on.
#[test]
fn a_server_that_repeats_the_password_does_not_make_us_repeat_it() {
    run(async {
        for reply in
            ["-ERR unknown command, with args beginning with: ", "-WRONGPASS ", "-", "+", "", "-NOPERM "]
        {
            let url = impostor::replying(move |command| Some(format!("{reply}{command}\r\n")));
            let url = url.replace("redis://", "redis://:secret@");
            let store = open(&url);
            let answers = store.execute(vec![Request::Ping], TIMEOUT).await;
            let said = answers[0].as_ref().expect_err("refused").to_string();
            assert!(!said.contains("secret"), "{said}");
            let store = open(&url);
            let batch = vec![acquire("lock:k", Token::random(), LONG)];
            let said = store.execute(batch, TIMEOUT).await[0].as_ref().expect_err("refused").to_string();
            assert!(!said.contains("secret"), "{said}");
        }
    });
}
