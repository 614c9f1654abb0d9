//! Tests TLS: connections succeed with the right certificates, and other errors say what is wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::rc::Rc;

use leasehold::lease::Token;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Notice, Reply, Request, Store, StoreError, StoreErrorKind, TlsTexts};

use crate::ask::{Notices, ask, fence, granted, info, queue, queued, release, run, within};
use crate::certificates::{Authority, Files, Pair, access};
use crate::group::{NAME, Sentinel};
use crate::server::{Server, store, store_with};

/// A server that only accepts TLS.
struct Secure {
    server: Server,
    files: Files,
    auth: &'static str,
}

impl Secure {
    fn start(own: &Pair, clients: &Authority, auth: &'static str) -> Self {
        let files = Files::of(own, clients);
        let settings = settings(&files, auth);
        Self { server: Server::start(&words(&settings)), files, auth }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.server.port())
    }

    fn store(&self, texts: &TlsTexts) -> Rc<RedisStore> {
        store_with(&self.url(), &access(texts))
    }

    fn restart(&mut self) {
        let settings = settings(&self.files, self.auth);
        self.server.restart(&words(&settings), "Ready to accept connections");
    }
}

fn settings(files: &Files, auth: &str) -> Vec<String> {
    let mut all = vec!["--port".into(), "0".into(), "--tls-port".into(), "{port}".into()];
    all.extend(files.settings(auth).into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
    all
}

fn words(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

fn ping(store: &Rc<RedisStore>) -> Result<Reply, StoreError> {
    run(within(store, 10_000, Request::Ping))
}

#[track_caller]
fn refused(store: &Rc<RedisStore>, kind: StoreErrorKind, part: &str) {
    let error = ping(store).expect_err("the connection must fail");
    assert_eq!((error.kind, error.maybe_done), (kind, false), "{error}");
    assert!(error.message.contains(part), "{error}");
    assert!(error.message.starts_with("rediss://127.0.0.1:"), "{error}");
}

#[test]
fn leases_notices_and_new_connections_work_over_tls() {
    run(async {
        let authority = Authority::new();
        let mut secure = Secure::start(&authority.server(), &authority, "no");
        let (a, b) = (secure.store(&authority.trusted()), secure.store(&authority.trusted()));
        let mut notices = Notices::of(&b);
        let (one, two) = (Token::random(), Token::random());
        let first = granted(&a, "lock:a", one).await;
        assert_eq!(queued(ask(&b, queue("lock:a", two, 7)).await), (0, true));
        assert_eq!(ask(&a, release("lock:a", one)).await, Reply::Released);
        let (number, notified_fence) = notices.granted().await;
        assert_eq!(number, 7);
        assert!(notified_fence.unwrap() > first);
        // The server is lost in between, and comes back.
        secure.restart();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let again = fence(ask(&b, queue("lock:a", two, 8)).await);
        assert!(again > notified_fence.unwrap());
        assert_eq!(notices.next().await, Notice::Missed);
        assert_eq!(info(&a, "lock:a").await.unwrap().fence, Some(again));
    });
}

#[test]
fn a_big_batch_works_over_tls() {
    run(async {
        let authority = Authority::new();
        let secure = Secure::start(&authority.server(), &authority, "no");
        let store = secure.store(&authority.trusted());
        let token = Token::random();
        // The batch takes several TLS records in each direction.
        let batch: Vec<_> =
            (0..2_000).map(|n| crate::ask::acquire(&format!("lock:{n:0200}"), token, 60_000)).collect();
        let answers = crate::ask::all(&store, batch).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Reply::Acquired { .. }))));
        store.close().await;
        // The server may notice the end of the connection after this command.
        let ours = || secure.server.command(&["CLIENT", "LIST"]).contains("name=leasehold");
        crate::group::until("the connection is gone", || !ours());
    });
}

#[test]
fn an_authority_that_the_user_did_not_name_is_not_trusted() {
    let (authority, other) = (Authority::new(), Authority::new());
    let secure = Secure::start(&authority.server(), &authority, "no");
    refused(&secure.store(&other.trusted()), StoreErrorKind::Untrusted, "none of the authorities in tls.ca");
    let both = TlsTexts { ca: vec![other.pem.clone(), authority.pem.clone()], ..TlsTexts::default() };
    assert_eq!(ping(&secure.store(&both)).unwrap(), Reply::Ready);
    // The system's authorities have certainly not signed the test's certificate.
    let error = ping(&store(&secure.url())).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Untrusted, "{error}");
    assert!(error.message.contains("unknown issuer") || error.message.contains("ca-certificates"), "{error}");
}

#[test]
fn a_certificate_that_is_not_valid_now_is_not_trusted() {
    let authority = Authority::new();
    for (years, part) in [((2000, 2001), "expired"), ((2090, 2100), "not valid yet")] {
        let own = authority.sign(&["127.0.0.1"], years);
        let secure = Secure::start(&own, &authority, "no");
        refused(&secure.store(&authority.trusted()), StoreErrorKind::Untrusted, part);
    }
}

#[test]
fn a_certificate_for_another_name_is_not_trusted_unless_the_user_gives_that_name() {
    let authority = Authority::new();
    let secure = Secure::start(&authority.sign(&["redis.example"], (2020, 2100)), &authority, "no");
    let named = |name: &str| TlsTexts { servername: Some(name.into()), ..authority.trusted() };
    let part = "another name: for redis.example, not for 127.0.0.1";
    refused(&secure.store(&authority.trusted()), StoreErrorKind::Untrusted, part);
    refused(&secure.store(&named("other.example")), StoreErrorKind::Untrusted, "not for other.example");
    assert_eq!(ping(&secure.store(&named("redis.example"))).unwrap(), Reply::Ready);
    let nameless = Secure::start(&authority.sign(&[], (2020, 2100)), &authority, "no");
    refused(&nameless.store(&authority.trusted()), StoreErrorKind::Untrusted, "subjectAltName");
}

#[test]
fn the_certificate_of_an_authority_is_not_accepted_for_a_server() {
    let own = Authority::of_itself("127.0.0.1");
    let secure = Secure::start(&own, &Authority::new(), "no");
    let texts = TlsTexts { ca: vec![own.cert], ..TlsTexts::default() };
    refused(&secure.store(&texts), StoreErrorKind::Untrusted, "that of an authority itself");
}

#[test]
fn the_client_sends_its_certificate_when_the_server_requires_one() {
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let (authority, other) = (Authority::new(), Authority::new());
        let files = Files::of(&authority.server(), &authority);
        let mut all = settings(&files, "yes");
        all.extend(["--tls-protocols".into(), protocols.into()]);
        let secure = Secure { server: Server::start(&words(&all)), files, auth: "yes" };
        let of = |signed: &Authority, years| {
            secure.store(&authority.trusted_by(&signed.sign(&["a client"], years)))
        };
        assert_eq!(ping(&of(&authority, (2020, 2100))).unwrap(), Reply::Ready);
        let denied = StoreErrorKind::Denied;
        refused(&secure.store(&authority.trusted()), denied, "wants a client certificate");
        refused(&of(&other, (2020, 2100)), denied, "our client certificate (tls.cert) was refused");
        refused(&of(&authority, (2000, 2001)), denied, "our client certificate (tls.cert) has expired");
    }
}

#[test]
fn the_errors_for_a_server_and_a_client_without_tls_differ() {
    let authority = Authority::new();
    let plain = Server::start(&[]);
    let url = plain.url().replace("redis://", "rediss://");
    refused(&store_with(&url, &access(&authority.trusted())), StoreErrorKind::Unsupported, "speaks no TLS");
    let secure = Secure::start(&authority.server(), &authority, "yes");
    let error = ping(&store(&secure.server.url())).unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unsupported, false), "{error}");
    assert!(error.message.contains("write rediss:// instead of redis://"), "{error}");
}

#[test]
fn sentinels_and_their_master_are_reached_over_tls() {
    let authority = Authority::new();
    let secure = Secure::start(&authority.server(), &authority, "no");
    let mut lines = "port 0\ntls-port {port}\ntls-replication yes\n".to_owned();
    for (name, value) in secure.files.settings("no") {
        lines += &format!("{name} {value}\n");
    }
    let sentinel = Sentinel::configured(&secure.server, 1, &lines);
    let url = |scheme: &str| format!("{scheme}://{}/{NAME}", sentinel.place());
    let trusting = access(&authority.trusted());
    assert_eq!(ping(&store_with(&url("rediss-sentinel"), &trusting)).unwrap(), Reply::Ready);
    let error = ping(&store_with(&url("rediss-sentinel"), &access(&Authority::new().trusted()))).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Untrusted, "{error}");
    let error = ping(&store(&url("redis-sentinel"))).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
    assert!(error.message.contains("rediss-sentinel://"), "{error}");
}

/// Starts a server that handles each connection with `serve`.
fn impostor(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rediss://127.0.0.1:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || listener.incoming().flatten().for_each(&serve));
    url
}

#[test]
fn a_server_of_neither_protocol_is_reported_in_time() {
    let hangs_up = impostor(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
    });
    refused(&store(&hangs_up), StoreErrorKind::Unreachable, "hung up instead of beginning TLS");
    let web = impostor(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    refused(&store(&web), StoreErrorKind::Unsupported, "speaks no TLS");
    let silent = impostor(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    let began = std::time::Instant::now();
    let error = run(within(&store(&silent), 1_000, Request::Ping)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
    assert!(began.elapsed().as_millis() < 1_500, "{:?}", began.elapsed());
}
