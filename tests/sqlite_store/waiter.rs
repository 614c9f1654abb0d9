//! Processes that wait: a child which does what the engine does for one lock, and how a test speaks with it.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use leasehold::engine::clock;
use leasehold::lease::{Fence, Mode, Token, Ttl};
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Ask, Notice, Place, Reply, Request, Source, Store};
use tokio::sync::mpsc;

use crate::child::{Process, hear, say};
use crate::support::*;

pub const KEY: &str = "k";
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A process that asks for [`KEY`] when it is told to.
pub struct Waiter(Process);

/// A lease as the process tells of it.
#[derive(Debug)]
pub struct Lease {
    pub fence: Fence,
    /// When the process had it, in µs of the engine's clock.
    pub at: u64,
    /// Whether a notice said that it was there.
    pub by_notice: bool,
}

impl Waiter {
    pub fn start(path: &Path) -> Self {
        Self(Process::start("wait", path))
    }

    /// Lets it ask for a lease of `mode`, which it is not granted at once. Returns how many stand before it.
    pub fn queue(&mut self, mode: Mode) -> u32 {
        self.ask(mode, 60_000);
        let said = self.0.hear();
        said.strip_prefix("queued ").unwrap_or_else(|| panic!("it said {said}")).parse().unwrap()
    }

    /// Lets it ask for a lease of `mode` that is to be had.
    pub fn hold(&mut self, mode: Mode, ttl_ms: u32) -> Lease {
        self.ask(mode, ttl_ms);
        self.lease()
    }

    fn ask(&mut self, mode: Mode, ttl_ms: u32) {
        let most = if let Mode::Shared { most } = mode { most } else { 0 };
        self.0.tell(&format!("ask {most} {ttl_ms}"));
    }

    /// Waits until it has the lease.
    pub fn lease(&mut self) -> Lease {
        let said = self.0.hear();
        let words: Vec<&str> = said.split(' ').collect();
        let ["acquired", fence, at, how] = words[..] else { panic!("it said {said}") };
        Lease { fence: Fence(fence.parse().unwrap()), at: at.parse().unwrap(), by_notice: how == "notice" }
    }

    /// Lets it end what it has. Returns when it began to, in µs of the engine's clock.
    pub fn release(&mut self) -> u64 {
        self.0.tell("release");
        let said = self.0.hear();
        said.strip_prefix("released ").unwrap_or_else(|| panic!("it said {said}")).parse().unwrap()
    }

    /// Lets it detach its lease. Returns the token.
    pub fn detach(&mut self, ttl_ms: u32) -> Token {
        self.0.tell(&format!("detach {ttl_ms}"));
        Token::parse(&self.0.hear()).unwrap()
    }

    /// Lets it take over the lease of `token`.
    pub fn adopt(&mut self, token: Token) {
        self.0.tell(&format!("adopt {token}"));
        assert_eq!(self.0.hear(), "adopted");
    }

    #[cfg(target_os = "linux")]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Lets it close its store and end.
    pub fn end(mut self) {
        self.0.tell("end");
        self.0.end();
    }

    /// Stops the process, and waits until it has stopped: on a busy machine, the process runs on for a
    /// moment after the signal.
    #[cfg(unix)]
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
        let stopped = rustix::process::waitpid(Some(self.pid()), rustix::process::WaitOptions::UNTRACED);
        assert!(stopped.unwrap().expect("waitpid waits for a change").1.stopped());
    }

    #[cfg(unix)]
    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    #[cfg(unix)]
    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_raw(self.0.id().cast_signed()).unwrap()
    }
}

/// For an exclusive lease of `key` or a place in its queue.
pub fn wants(key: &str, token: Token, number: u64) -> Request {
    let ttl = Ttl::from_millis(60_000).unwrap();
    let ask = Ask::new(key.into(), token, ttl, "test".into());
    Request::Acquire(Ask { place: Some(Place { number }), ..ask })
}

/// A store's notices.
pub fn listen(store: &Rc<SqliteStore>) -> mpsc::UnboundedReceiver<Notice> {
    let (sender, notices) = mpsc::unbounded_channel();
    store.listen(Rc::new(move |notice| {
        // The test may have heard enough.
        let _ = sender.send(notice);
    }));
    notices
}

/// The part of the child: does what it is told, line by line, and meanwhile keeps its place.
pub async fn play(store: &Rc<SqliteStore>) {
    let mut notices = listen(store);
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || while sender.send(hear()).is_ok() {});
    let (mut asked, mut waiting, mut number) = (None, false, 0);
    loop {
        let (by_notice, again) = tokio::select! {
            line = lines.recv() => {
                let line = line.expect("the thread reads on");
                let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
                match what {
                    "ask" => {
                        number += 1;
                        asked = Some(new_ask(rest, number));
                        (false, false)
                    }
                    "release" => {
                        let at = clock::now().as_micros();
                        assert_eq!(ask(store, release(KEY, token_of(&asked))).await, Reply::Released);
                        asked = None;
                        say(&format!("released {at}"));
                        continue;
                    }
                    "detach" => {
                        let ttl = Ttl::from_millis(rest.parse().unwrap()).unwrap();
                        let token = token_of(&asked);
                        let reply = ask(store, Request::Detach { key: KEY.into(), token, ttl, fence: Fence(1), own_ttl: ttl }).await;
                        assert_eq!(reply, Reply::Renewed { block: None });
                        say(&token.to_string());
                        continue;
                    }
                    "adopt" => {
                        let (token, heir) = (Token::parse(rest).unwrap(), Token::random());
                        let ttl = Ttl::from_millis(60_000).unwrap();
                        let holder = "heir".into();
                        let request = Request::Adopt { key: KEY.into(), token, heir, ttl, holder, outlives_process: false, source: Source::Ticket { fence: Fence(1), with_ttl: false } };
                        assert!(ask(store, request).await.is_adopted());
                        say("adopted");
                        continue;
                    }
                    _ => return,
                }
            }
            Some(notice) = notices.recv() => match notice {
                Notice::Granted { number: granted, .. } => (granted == number, true),
                Notice::Missed | Notice::Moved | Notice::Lost(_) => (false, true),
                Notice::Breaker(_) | Notice::Availability(_) => unreachable!("a file has none"),
            },
            () = tokio::time::sleep(HEARTBEAT) => (false, true),
        };
        if again && !waiting {
            continue;
        }
        let Some(request) = &asked else { continue };
        match ask(store, Request::Acquire(request.clone())).await {
            Reply::Acquired { fence, .. } => {
                waiting = false;
                let how = if by_notice { "notice" } else { "asking" };
                say(&format!("acquired {} {} {how}", fence.0, clock::now().as_micros()));
            }
            Reply::Queued { ahead, told: true, .. } => {
                if !std::mem::replace(&mut waiting, true) {
                    say(&format!("queued {ahead}"));
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn new_ask(rest: &str, number: u64) -> Ask {
    let (most, ttl) = rest.split_once(' ').unwrap();
    let mode = match most.parse().unwrap() {
        0 => Mode::Exclusive,
        most => Mode::Shared { most },
    };
    let ttl = Ttl::from_millis(ttl.parse().unwrap()).unwrap();
    let holder = format!("process {}", std::process::id());
    let ask = Ask::new(KEY.into(), Token::random(), ttl, holder.into());
    Ask { mode, place: Some(Place { number }), ..ask }
}

fn token_of(asked: &Option<Ask>) -> Token {
    asked.as_ref().expect("it has asked").token
}
