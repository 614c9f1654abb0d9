//! Tests addresses without a server, and servers that are not a usable Redis.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use leasehold::store::{Request, StoreError, StoreErrorKind};

use crate::ask::{run, within};
use crate::server::store;

/// Starts a listener that handles each connection with `serve`. Its thread ends with the test's
/// process.
fn impostor(serve: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://user:hunter2-secret@{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    url
}

/// Starts a server that sends `text` to each client, and reads until the client disconnects.
fn server_that_sends(text: &str) -> String {
    let text = text.to_owned();
    impostor(move |mut stream| {
        let _ = stream.write_all(text.as_bytes());
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    })
}

/// Returns the replies of a server that accepts every command of a handshake, with `info` as the
/// reply to `INFO`.
fn handshake(info: &str) -> String {
    let (before, after) = ("+OK\r\n".repeat(3), "+OK\r\n".repeat(6));
    format!("{before}{info}\r\n{after}*0\r\n")
}

fn ping(url: &str, timeout_ms: u64) -> StoreError {
    let began = Instant::now();
    let error = run(within(&store(url), timeout_ms, Request::Ping)).expect_err("the server is no Redis");
    assert!(began.elapsed() < Duration::from_millis(timeout_ms + 500), "{:?}", began.elapsed());
    assert!(!error.maybe_done && !error.message.contains("hunter2"), "{error}");
    error
}

#[test]
fn a_closed_port_a_missing_socket_and_an_unknown_name_are_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for url in [
        &format!("redis://127.0.0.1:{free}"),
        &format!("redis://localhost:{free}"),
        "redis+unix:///nowhere/redis.sock",
        "redis://no-such-host.invalid",
    ] {
        let error = ping(url, 10_000);
        assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
        assert!(error.message.starts_with(url), "{error}");
    }
}

#[test]
fn a_server_of_another_protocol_is_unsupported() {
    for text in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{15}\u{3}\u{3}\0\u{2}\u{2}\n",
        "\r\n\r\n\r\n",
        "*x\r\n",
        "%x\r\n",
        // It speaks the protocol, but has no version.
        &handshake("$5\r\nhello"),
        &handshake(":5"),
    ] {
        let error = ping(&server_that_sends(text), 10_000);
        assert_eq!(error.kind, StoreErrorKind::Unsupported, "{text:?}: {error}");
        assert!(error.message.contains("not a Redis server"), "{text:?}: {error}");
    }
}

#[test]
fn a_redis_that_is_too_old_is_unsupported() {
    let error = ping(&server_that_sends(&handshake("$20\r\nredis_version:6.0.16")), 10_000);
    assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
    assert!(error.message.contains("6.0.16") && error.message.contains("6.2"), "{error}");
}

#[test]
fn an_error_that_repeats_the_password_is_shown_without_it() {
    let error = ping(
        &server_that_sends(&handshake("$0\r\n").replacen(
            "+OK",
            "-ERR unknown command `AUTH`, with args beginning with: `user`, `hunter2-secret`, ",
            1,
        )),
        10_000,
    );
    assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");

    // Errors that are shown in another way do not show the password either.
    for word in ["WRONGPASS", "NOPERM", "DENIED", "ERR max number of clients reached", "FANCY"] {
        let url = impostor(move |mut stream| {
            let mut received = [0; 4096];
            let count = stream.read(&mut received).unwrap();
            // The client shows no text of more than 1 kB, so repeat less.
            let received = String::from_utf8_lossy(&received[..count.min(512)]).replace("\r\n", " ");
            let _ = stream.write_all(format!("-{word} {received}\r\n").as_bytes());
        });
        let error = ping(&url.replace("://", "://:hunter2-secret@"), 10_000);
        let unreachable = word.contains("clients");
        let kind = if unreachable { StoreErrorKind::Unreachable } else { StoreErrorKind::Denied };
        assert_eq!((error.kind, error.maybe_done), (kind, false), "{error}");
        assert!(!error.message.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_server_that_hangs_up_at_once_is_unreachable() {
    let error = ping(&impostor(drop), 10_000);
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
}

#[test]
fn a_server_that_hangs_up_in_the_middle_of_a_reply_is_no_redis() {
    let url = impostor(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"+O");
    });
    let error = ping(&url, 10_000);
    assert!(matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::Unsupported), "{error}");
}

#[test]
fn a_silent_server_is_timed_out() {
    let error = ping(&server_that_sends(""), 200);
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
    // Half a reply counts as none.
    assert_eq!(ping(&server_that_sends("$1000000000\r\nx"), 200).kind, StoreErrorKind::TimedOut);
}
