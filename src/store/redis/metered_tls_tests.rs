//! Tests of how long TLS keeps the engine's thread.

use std::convert::identity;
use std::pin::pin;
use std::task::Waker;

use futures_util::future::{join, poll_immediate};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Builder;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server;

use super::super::read_turn::MOST_TIME_IN_A_ROW;
use super::*;
use crate::store::{Tls, TlsTexts};

/// The bytes that may be on the way in each direction.
const ON_THE_WAY: usize = 1 << 20;
/// How many session tickets a server sends. If tickets cross the ends of records, as here, rustls
/// accepts at most 64 kB of them.
const TICKETS: usize = 500;

/// Returns the configurations of a server that sends `tickets` session tickets, and of a client
/// that trusts the server.
fn configs(tickets: usize) -> (TlsAcceptor, Tls) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["redis.example".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.send_tls13_tickets = tickets;
    if tickets > 0 {
        // About six tickets fit into a record.
        config.max_fragment_size = Some(512);
    }
    let tls = Tls::parse(&TlsTexts { ca: vec![cert.pem()], ..TlsTexts::default() }).unwrap();
    (TlsAcceptor::from(Arc::new(config)), tls)
}

/// Connects a client to a server that sends `tickets` session tickets. `socket` makes the client's
/// socket.
async fn connected<S: AsyncRead + AsyncWrite + Unpin>(
    tickets: usize,
    budget: &Arc<Budget>,
    socket: impl FnOnce(DuplexStream) -> S,
) -> (MeteredTls<S>, server::TlsStream<DuplexStream>) {
    let (acceptor, tls) = configs(tickets);
    let (ours, theirs) = duplex(ON_THE_WAY);
    let ours = socket(ours);
    let name = ServerName::try_from("redis.example").unwrap();
    let config = tls.config().await.unwrap();
    let (client, server) =
        join(MeteredTls::shake_hands(config, name, ours, budget), acceptor.accept(theirs)).await;
    (client.unwrap(), server.unwrap())
}

/// Uses up the turn of a store.
async fn use_up_turn(budget: &Arc<Budget>) {
    let mut reader = Reader::of(budget);
    let began = Instant::now();
    tokio::time::sleep(MOST_TIME_IN_A_ROW).await;
    reader.charge(1 << 20, began);
    assert!(!budget.turn().is_free());
}

fn run(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn one_read_takes_few_of_the_tickets_that_a_server_sends() {
    run(async {
        let (mut client, mut server) = connected(TICKETS, &Budget::new(), identity).await;
        server.write_all(b"the end").await.unwrap();
        server.flush().await.unwrap();
        let (mut reads, mut most, mut before) = (0, 0, client.stream.get_ref().1.tls13_tickets_received());
        let mut bytes = [0; 100];
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut client).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf);
            let tickets = client.stream.get_ref().1.tls13_tickets_received();
            (reads, most, before) = (reads + 1, most.max(tickets - before), tickets);
            if read.is_ready() {
                assert_eq!(buf.filled(), b"the end");
                break;
            }
            assert!(reads < TICKETS);
        }
        assert_eq!(before as usize, TICKETS);
        assert!(most < 100, "{most} tickets in one of {reads} reads");
    });
}

#[test]
fn a_read_without_a_byte_for_the_client_is_charged() {
    run(async {
        let budget = Budget::new();
        let (mut client, _server) = connected(TICKETS, &budget, identity).await;
        let mut bytes = [0; 100];
        while budget.turn().is_free() {
            let mut buf = ReadBuf::new(&mut bytes);
            let read = Pin::new(&mut client).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf);
            assert!(read.is_pending());
            let tickets = client.stream.get_ref().1.tls13_tickets_received();
            assert!((tickets as usize) < TICKETS, "the turn is free after all tickets");
        }
    });
}

#[test]
fn a_read_that_made_no_progress_is_repeated() {
    run(async {
        let (mut client, mut server) = connected(TICKETS, &Budget::new(), identity).await;
        let said = vec![b'x'; 100_000];
        let mut heard = vec![0; said.len()];
        let (written, read) = join(server.write_all(&said), client.read_exact(&mut heard)).await;
        written.unwrap();
        read.unwrap();
        assert!(heard == said);
    });
}

#[test]
fn a_handshake_takes_part_in_the_turn_of_its_store() {
    run(async {
        let budget = Budget::new();
        use_up_turn(&budget).await;
        let (acceptor, tls) = configs(2);
        let config = tls.config().await.unwrap();
        let (ours, mut theirs) = duplex(ON_THE_WAY);
        let name = ServerName::try_from("redis.example").unwrap();
        let mut handshake = pin!(MeteredTls::shake_hands(config, name, ours, &budget));
        assert!(poll_immediate(&mut handshake).await.is_none());
        let first = poll_immediate(pin!(theirs.read_u8())).await;
        assert!(first.is_none(), "the client began although the turn is over");
        let (client, server) = join(handshake, acceptor.accept(theirs)).await;
        server.unwrap();
        client.unwrap();
    });
}

/// A socket that, if `is_slow`, keeps the thread busy for longer than a turn at each read.
struct Slow {
    socket: DuplexStream,
    is_slow: bool,
}

impl AsyncRead for Slow {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let began = Instant::now();
        while self.is_slow && began.elapsed() < 2 * MOST_TIME_IN_A_ROW {}
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Slow {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[test]
fn the_time_of_a_handshake_counts() {
    run(async {
        let budget = Budget::new();
        let slow = |socket| Slow { socket, is_slow: true };
        let (_client, _server) = connected(2, &budget, slow).await;
        assert!(!budget.turn().is_free());
    });
}

#[test]
fn the_last_bytes_of_a_record_may_take_the_time_for_all_of_them() {
    run(async {
        let budget = Budget::new();
        let (mut client, mut server) = connected(0, &budget, |socket| Slow { socket, is_slow: false }).await;
        // The handshake may have used up the turn.
        Reader::of(&budget).turn().await;
        // A record is 22 bytes longer than the data in it.
        server.write_all(&[b'x'; 2 * MOST_READ - 20]).await.unwrap();
        let mut bytes = [0; 100];
        let mut reads = |is_slow| {
            client.stream.get_mut().0.socket.is_slow = is_slow;
            let mut buf = ReadBuf::new(&mut bytes);
            Pin::new(&mut client).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf)
        };
        for _ in 0..2 {
            assert!(reads(false).is_pending());
            Reader::of(&budget).turn().await;
        }
        assert!(reads(true).is_ready());
        assert!(!budget.turn().is_free());
    });
}
