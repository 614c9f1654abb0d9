//! Tests what a store does when replies get out of step with their requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::lease::{Fence, Token};
use leasehold::store::{Answer, Reply, Request, Store, StoreErrorKind};

use crate::ask::{RENEWED, acquire, all, ask, granted, info, queue, renew, run};
use crate::server::{Server, store};

/// A proxy for a server. When a test calls [`Proxy::add`], the proxy inserts a reply before the
/// server's next replies.
struct Proxy {
    url: String,
    /// The number of the reply to insert next, counted from 1; 0 for none.
    next: Arc<AtomicUsize>,
    /// How many connections the proxy has accepted.
    connections: Arc<AtomicUsize>,
}

/// Replies that a server never gives to an acquire. The first two fit a renewal.
const IMPOSSIBLE: [&str; 6] = [
    ":1",
    ":0",
    // A fence of the year 2000.
    ":946684800000000",
    // 2^53, which is larger than JavaScript's largest safe integer.
    ":9007199254740992",
    // A fence with a negative number of waiters.
    "*2\r\n:1800000000000000\r\n:-1",
    "+OK",
];

impl Proxy {
    fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let proxy = Self { url, next: Arc::default(), connections: Arc::default() };
        let (port, next, connections) = (server.port(), proxy.next.clone(), proxy.connections.clone());
        // These threads end with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                connections.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || forward(from, to, &AtomicUsize::default()));
                let next = next.clone();
                std::thread::spawn(move || forward(server, client, &next));
            }
        });
        proxy
    }

    /// Inserts `IMPOSSIBLE[number]` before the server's next replies.
    fn add(&self, number: usize) {
        self.next.store(number + 1, Ordering::Relaxed);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, next: &AtomicUsize) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(number) = next.swap(0, Ordering::Relaxed).checked_sub(1) {
            let reply = format!("*1\r\n{}\r\n", IMPOSSIBLE[number]);
            if to.write_all(reply.as_bytes()).is_err() {
                break;
            }
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[track_caller]
fn assert_out_of_step(answer: &Answer) {
    let error = answer.as_ref().expect_err("the reply does not fit this request");
    assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
    assert!(error.maybe_done && error.message.contains("out of step"), "{error}");
}

#[test]
fn an_impossible_reply_to_an_acquire_grants_no_lease_and_ends_the_connection() {
    run(async {
        let server = Server::start(&[]);
        let proxy = Proxy::before(&server);
        let store = store(&proxy.url);
        ask(&store, Request::Ping).await;
        for (number, reply) in IMPOSSIBLE.into_iter().enumerate() {
            let (key, token) = (format!("lock:{number}"), Token::random());
            granted(&store, "before", Token::random()).await;
            server.command(&["DEL", "before"]);
            let before = proxy.connections.load(Ordering::Relaxed);
            proxy.add(number);
            assert_out_of_step(&all(&store, vec![acquire(&key, token, 60_000)]).await[0]);
            let fence = granted(&store, &key, token).await;
            assert!(fence > Fence(Fence::EARLIEST_WALL_US), "{fence:?}");
            assert_eq!(proxy.connections.load(Ordering::Relaxed), before + 1, "{reply}");
        }
    });
}

#[test]
fn no_reply_to_a_batch_counts_if_one_of_them_does_not_fit() {
    run(async {
        let server = Server::start(&[]);
        let proxy = Proxy::before(&server);
        let store = store(&proxy.url);
        let (held, token) = (Token::random(), Token::random());
        granted(&store, "held", held).await;
        proxy.add(0);
        // The inserted reply fits the renewal. Each later request would get the reply to the one
        // before.
        let batch =
            vec![renew("held", held, 60_000), queue("held", token, 1), acquire("free", token, 60_000)];
        for answer in all(&store, batch).await {
            assert_out_of_step(&answer);
        }
        assert_eq!(ask(&store, renew("held", held, 60_000)).await, RENEWED);
        assert!(matches!(ask(&store, acquire("free", token, 60_000)).await, Reply::Acquired { .. }));
    });
}

#[test]
fn a_batch_in_flight_gets_no_answer_if_a_reply_to_an_earlier_batch_does_not_fit() {
    run(async {
        let server = Server::start(&[]);
        let proxy = Proxy::before(&server);
        let store = store(&proxy.url);
        ask(&store, Request::Ping).await;
        // While the server is paused, both batches are in flight.
        server.command(&["CLIENT", "PAUSE", "200", "ALL"]);
        proxy.add(0);
        let ask_for = |key: &str| {
            let batch = vec![acquire(key, Token::random(), 60_000)];
            store.clone().execute(batch, Duration::from_secs(10))
        };
        let (first, second) = futures_util::join!(ask_for("a"), ask_for("b"));
        assert_out_of_step(&first[0]);
        // The second acquire gets the reply to the first one, which by itself looks like a grant.
        assert_out_of_step(&second[0]);
        assert!(info(&store, "a").await.is_some());
    });
}
