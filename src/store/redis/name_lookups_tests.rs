use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::*;

fn run<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

fn local(port: u16) -> Vec<SocketAddr> {
    vec![([127, 0, 0, 1], port).into()]
}

#[test]
fn an_ip_address_needs_no_lookup_and_each_caller_gets_its_port() {
    let asked: Resolve = |host| if host == "a" { Ok(local(0)) } else { panic!("{host} was looked up") };
    let lookups = NameLookups::with("own", asked, own_thread::start);
    run(async {
        assert_eq!(lookups.addresses("127.0.0.1", 1).await.unwrap(), local(1));
        let six = lookups.addresses("::1", 2).await.unwrap();
        assert_eq!(six, [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 2))]);
        let both = join_all([lookups.addresses("a", 3), lookups.addresses("a", 4)]).await;
        assert_eq!(both.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [local(3), local(4)]);
        assert!(lookups.0.running().is_empty());
    });
}

#[test]
fn an_error_keeps_its_kind_and_text() {
    let fails: Resolve = |host| Err(io::Error::new(ErrorKind::NotFound, format!("no {host}")));
    let lookups = NameLookups::with("own", fails, own_thread::start);
    let error = run(lookups.addresses("a", 1)).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotFound, "no a".to_owned()));
}

#[test]
fn names_that_hang_use_few_threads_however_often_they_are_asked_for() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST_RUNNING: AtomicUsize = AtomicUsize::new(0);
    static THAWED: AtomicBool = AtomicBool::new(false);
    let hangs: Resolve = |_| {
        MOST_RUNNING.fetch_max(RUNNING.fetch_add(1, SeqCst) + 1, SeqCst);
        while !THAWED.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        RUNNING.fetch_sub(1, SeqCst);
        Ok(local(0))
    };
    let lookups = NameLookups::with("own", hangs, own_thread::start);
    let patience = Duration::from_millis(20);
    run(async {
        // One name that hangs leaves room for others.
        for _ in 0..2 * MOST {
            timeout(Duration::from_millis(1), lookups.addresses("one", 1)).await.unwrap_err();
        }
        assert_eq!(lookups.0.permits.available_permits(), MOST - 1);
        for round in 0..3 {
            let names: Vec<_> = (0..100).map(|i| format!("{round}-{i}")).collect();
            let asked = names.iter().map(|name| timeout(patience, lookups.addresses(name, 1)));
            assert!(join_all(asked).await.iter().all(Result::is_err));
        }
        assert_eq!(lookups.0.running().len(), MOST);
        // The host in the URL is still looked up, once at a time.
        for _ in 0..2 {
            timeout(patience, lookups.addresses("own", 1)).await.unwrap_err();
        }
        assert_eq!(lookups.0.running().len(), MOST + 1);
        // Another store has its own lookups.
        let other = NameLookups::with("own", |_| Ok(local(0)), own_thread::start);
        assert_eq!(other.addresses("b", 7).await.unwrap(), local(7));
        THAWED.store(true, SeqCst);
        assert_eq!(lookups.addresses("after", 8).await.unwrap(), local(8));
    });
    assert_eq!(MOST_RUNNING.load(SeqCst), MOST + 1);
    while !lookups.0.running().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn without_room_for_a_thread_the_last_addresses_count() {
    static HAS_ROOM: AtomicBool = AtomicBool::new(false);
    let start: Start = |work| match HAS_ROOM.load(SeqCst) {
        true => own_thread::start(work),
        false => Err(ErrorKind::WouldBlock.into()),
    };
    let lookups = NameLookups::with("own", |_| Ok(local(0)), start);
    run(async {
        for host in ["own", "other"] {
            HAS_ROOM.store(false, SeqCst);
            let error = lookups.addresses(host, 1).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ResourceBusy);
            assert!(error.to_string().starts_with("no thread could be started"), "{error}");
            HAS_ROOM.store(true, SeqCst);
            assert_eq!(lookups.addresses(host, 2).await.unwrap(), local(2));
            HAS_ROOM.store(false, SeqCst);
            let both = join_all([lookups.addresses(host, 3), lookups.addresses(host, 4)]).await;
            assert_eq!(both.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [local(3), local(4)]);
        }
    });
    assert!(lookups.0.running().is_empty());
    assert_eq!(lookups.0.permits.available_permits(), MOST);
}

#[test]
fn the_addresses_of_few_hosts_are_kept() {
    let lookups = NameLookups::with(
        "own",
        |_| Ok(local(0)),
        |work| {
            work();
            Ok(())
        },
    );
    run(async {
        for host in 0..MOST_KEPT + 10 {
            lookups.addresses(&format!("host-{host}"), 1).await.unwrap();
        }
        lookups.addresses("own", 1).await.unwrap();
    });
    let last = lookups.0.last();
    assert!(last.len() == MOST_KEPT + 1 && last.contains_key("own"));
}

#[test]
fn stores_of_one_server_share_their_lookups_also_after_the_first_one_was_closed() {
    let first = NameLookups::of("one.example", 1);
    assert!(first.share_a_limit(&NameLookups::of("one.example", 1)));
    assert!(!first.share_a_limit(&NameLookups::of("other.example", 1)));
    // The server on another port of the host may be hostile.
    assert!(!first.share_a_limit(&NameLookups::of("one.example", 2)));
    let permit = first.0.permits.clone().try_acquire_owned().unwrap();
    let running = RunningLookup { inner: first.0.clone(), name: "hangs".into(), _permit: Some(permit) };
    drop(first);
    assert_eq!(NameLookups::of("one.example", 1).0.permits.available_permits(), MOST - 1);
    drop(running);
    assert_eq!(NameLookups::of("one.example", 1).0.permits.available_permits(), MOST);
}
