use super::*;
use tokio::runtime::{Builder, LocalOptions};

use crate::lease::{Fence, Key, Token};
use crate::store::listing::{ListFilter, Listing};
use crate::store::memory::MemoryStore;
use crate::store::{LeaseInfo, LockInfo, NodeAnswer, Vote};

/// A store that panics at every request.
struct Broken;

impl Store for Broken {
    fn execute(self: Rc<Self>, _: Vec<Request>, _: Duration) -> LocalBoxFuture<'static, Vec<Answer>> {
        async { panic!("broken") }.boxed_local()
    }

    fn listen(&self, _: Listener) {}

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async {}.boxed_local()
    }
}

/// Creates a quorum of three nodes, of which `broken` panic.
fn quorum(broken: usize) -> Rc<QuorumStore> {
    let node = |node: usize| -> Rc<dyn Store> {
        if node < broken { Rc::new(Broken) } else { MemoryStore::named(&format!("memory:broken-{node}")) }
    };
    QuorumStore::new((0..3).map(|index| (format!("n{index}").into(), node(index))).collect())
}

/// A store that fails this many batches before it works.
struct Away(Cell<usize>);

impl Store for Away {
    fn execute(self: Rc<Self>, batch: Vec<Request>, _: Duration) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            let away = StoreError::not_done(StoreErrorKind::Unreachable, "away");
            if left > 0 { all_failed(batch.len(), &away) } else { vec![Ok(Reply::Released); batch.len()] }
        }
        .boxed_local()
    }

    fn listen(&self, _: Listener) {}

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        assert_eq!(self.0.get(), 0, "closed before it was told");
        async {}.boxed_local()
    }
}

async fn ping(quorum: Rc<QuorumStore>) -> Answer {
    let answers = quorum.execute(vec![Request::Ping], Duration::from_secs(1));
    let mut answers = tokio::time::timeout(Duration::from_secs(10), answers).await.expect("it is answered");
    answers.remove(0)
}

#[test]
fn a_node_that_panics_is_one_that_fails_and_nobody_waits_for_it() {
    let runtime =
        Builder::new_current_thread().enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        for broken in 0..=1 {
            let quorum = quorum(broken);
            assert_eq!(ping(quorum.clone()).await, Ok(Reply::Ready), "{broken} broken");
            // The answer of the last node is on its way.
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(quorum.coordinator.borrow().concerns(), 0, "{broken} broken");
        }
        let error = ping(quorum(2)).await.unwrap_err();
        let why =
            |vote: &Vote| matches!(&vote.said, NodeAnswer::Failed(_, why) if why.contains("n1 failed by a bug"));
        assert!(error.maybe_done && error.votes.iter().any(why), "{error:?}");
    });
}

#[test]
fn a_node_that_is_away_for_a_while_is_told_of_a_release_before_the_quorum_has_finished() {
    // Use real time, because the coordinator's clock does not stop with tokio's.
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        let nodes: [Rc<dyn Store>; 3] =
            [MemoryStore::named("memory:one"), MemoryStore::named("memory:two"), Rc::new(Away(Cell::new(3)))];
        let quorum = QuorumStore::new(nodes.into_iter().map(|node| (Arc::from("n"), node)).collect());
        let release = Request::Release { key: "k".into(), token: Token::random(), used: None };
        quorum.clone().execute(vec![release], Duration::from_secs(1)).await;
        quorum.clone().finish().expect("a node has not released the lease").await;
        assert!(quorum.clone().finish().is_none());
        quorum.close().await;
    });
}

/// A store that answers each request at once, with the same listing.
struct Lister(Listing);

impl Store for Lister {
    fn execute(self: Rc<Self>, batch: Vec<Request>, _: Duration) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move { vec![Ok(Reply::Listed(self.0.clone())); batch.len()] }.boxed_local()
    }

    fn listen(&self, _: Listener) {}

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async {}.boxed_local()
    }
}

/// Returns a listing of `locks` shared locks with `leases` leases each.
fn long_listing(locks: u32, leases: u32) -> Listing {
    let lease = |mark| LeaseInfo {
        mark: Some(mark),
        holder: None,
        fence: Some(Fence(mark.into())),
        remaining: None,
        servers: None,
    };
    let info = LockInfo { shared: true, leases: (0..leases).map(lease).collect(), waiters: Vec::new() };
    let keys = (0..locks).map(|lock| Key::from(format!("{lock:06}").as_str()));
    let mut listing = Listing::default();
    listing.locks = keys.map(|key| (key, info.clone())).collect();
    listing
}

#[test]
fn several_long_listings_at_once_let_other_tasks_have_the_thread() {
    const LOCKS: u32 = 100;
    const LISTS: usize = 4;
    let listing = long_listing(LOCKS, 200);
    let node = |_| -> (Arc<str>, Rc<dyn Store>) { ("n".into(), Rc::new(Lister(listing.clone()))) };
    let quorum = QuorumStore::new((0..3).map(node).collect());
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        let filter = ListFilter { prefix: "".into(), pattern: "*".into(), limit: LOCKS };
        let list = || quorum.clone().execute(vec![Request::List(filter.clone())], Duration::from_secs(60));
        let lists = spawn_local(join_all((0..LISTS).map(|_| list())));
        let mut turns = 0;
        while !lists.is_finished() {
            yield_now().await;
            turns += 1;
        }
        for answers in lists.await.unwrap() {
            assert!(
                matches!(&answers[..], [Ok(Reply::Listed(listing))] if listing.locks.len() == LOCKS as usize)
            );
        }
        assert!(turns >= 20, "other tasks had {turns} turns");
    });
}

/// A store that keeps the listener for its notices.
#[derive(Default)]
struct Talker(RefCell<Option<Listener>>);

impl Store for Talker {
    fn execute(self: Rc<Self>, batch: Vec<Request>, _: Duration) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move { vec![Ok(Reply::Ready); batch.len()] }.boxed_local()
    }

    fn listen(&self, listener: Listener) {
        *self.0.borrow_mut() = Some(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async {}.boxed_local()
    }
}

#[test]
fn many_notices_at_once_are_followed_once() {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        let talker = Rc::new(Talker::default());
        let nodes: [Rc<dyn Store>; 3] =
            [talker.clone(), Rc::new(Talker::default()), Rc::new(Talker::default())];
        let quorum = QuorumStore::new(nodes.into_iter().map(|node| (Arc::from("n"), node)).collect());
        let listener = talker.0.borrow().clone().expect("the quorum listens");
        listener(Notice::Granted { number: 7, fence: None });
        assert!(quorum.carrying_out.get(), "the quorum follows the notice later, with all others");
        listener(Notice::Granted { number: 8, fence: None });
        yield_now().await;
        assert!(!quorum.carrying_out.get());
    });
}
