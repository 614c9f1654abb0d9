//! Processes that wait: a child does what the engine does for one lock, and a test controls it.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use leasehold::engine::clock;
use leasehold::lease::{Fence, Mode, Token, Ttl};
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{AcquireRequest, Notice, Place, Reply, Request, Source, Store};
use tokio::sync::mpsc;

use crate::child::{Process, read_line, report};
use crate::support::*;

pub const KEY: &str = "k";
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A process that asks for [`KEY`] on command.
pub struct Waiter(Process);

/// A lease, as the process reports it.
#[derive(Debug)]
pub struct Lease {
    pub fence: Fence,
    /// When the process had it, in µs of the engine's clock.
    pub at: u64,
    /// True if a notice said that the lease was granted.
    pub by_notice: bool,
}

impl Waiter {
    pub fn start(path: &Path) -> Self {
        Self(Process::start("wait", path))
    }

    /// Makes the process ask for a lease of `mode` that it does not get at once. Returns how many
    /// waiters are before it.
    pub fn queue(&mut self, mode: Mode) -> u32 {
        self.ask(mode, 60_000);
        let line = self.0.read_line();
        line.strip_prefix("queued ").unwrap_or_else(|| panic!("the process reported {line}")).parse().unwrap()
    }

    /// Makes the process ask for a lease of `mode` that is free.
    pub fn hold(&mut self, mode: Mode, ttl_ms: u32) -> Lease {
        self.ask(mode, ttl_ms);
        self.lease()
    }

    fn ask(&mut self, mode: Mode, ttl_ms: u32) {
        let most = if let Mode::Shared { most } = mode { most } else { 0 };
        self.0.send(&format!("ask {most} {ttl_ms}"));
    }

    /// Waits until the process has the lease.
    pub fn lease(&mut self) -> Lease {
        let line = self.0.read_line();
        let words: Vec<&str> = line.split(' ').collect();
        let ["acquired", fence, at, how] = words[..] else { panic!("the process reported {line}") };
        Lease { fence: Fence(fence.parse().unwrap()), at: at.parse().unwrap(), by_notice: how == "notice" }
    }

    /// Makes the process release its lease. Returns when it began to do so, in µs of the engine's
    /// clock.
    pub fn release(&mut self) -> u64 {
        self.0.send("release");
        let line = self.0.read_line();
        line.strip_prefix("released ")
            .unwrap_or_else(|| panic!("the process reported {line}"))
            .parse()
            .unwrap()
    }

    /// Makes the process detach its lease. Returns the token.
    pub fn detach(&mut self, ttl_ms: u32) -> Token {
        self.0.send(&format!("detach {ttl_ms}"));
        Token::parse(&self.0.read_line()).unwrap()
    }

    /// Makes the process adopt the lease of `token`.
    pub fn adopt(&mut self, token: Token) {
        self.0.send(&format!("adopt {token}"));
        assert_eq!(self.0.read_line(), "adopted");
    }

    #[cfg(target_os = "linux")]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Makes the process close its store and end.
    pub fn end(mut self) {
        self.0.send("end");
        self.0.end();
    }

    /// Stops the process, and waits until it has stopped: on a busy machine, the process runs on
    /// for a moment after the signal.
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

/// Returns a request for an exclusive lease of `key` or a place in its queue.
pub fn queue_request(key: &str, token: Token, number: u64) -> Request {
    let ttl = Ttl::from_millis(60_000).unwrap();
    let ask = AcquireRequest::new(key.into(), token, ttl, "test".into());
    Request::Acquire(AcquireRequest { place: Some(Place { number }), ..ask })
}

/// Returns the notices of a store.
pub fn listen(store: &Rc<SqliteStore>) -> mpsc::UnboundedReceiver<Notice> {
    let (sender, notices) = mpsc::unbounded_channel();
    store.listen(Rc::new(move |notice| {
        // The test may have ended.
        let _ = sender.send(notice);
    }));
    notices
}

/// Plays the part of the child: carries out the commands, line by line, and keeps its place
/// meanwhile.
pub async fn play(store: &Rc<SqliteStore>) {
    let mut notices = listen(store);
    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || while sender.send(read_line()).is_ok() {});
    let (mut asked, mut waiting, mut number) = (None, false, 0);
    loop {
        let (by_notice, repeats) = tokio::select! {
            line = lines.recv() => {
                let line = line.expect("the thread still reads");
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
                        report(&format!("released {at}"));
                        continue;
                    }
                    "detach" => {
                        let ttl = Ttl::from_millis(rest.parse().unwrap()).unwrap();
                        let token = token_of(&asked);
                        let Reply::Inspected(Some(info)) = ask(store, Request::Inspect { key: KEY.into() }).await else {
                            panic!("the lock is held")
                        };
                        let fence = info.leases[0].fence.expect("the lease has been taken up");
                        let reply = ask(store, Request::Detach { key: KEY.into(), token, ttl, fence, own_ttl: ttl }).await;
                        assert_eq!(reply, Reply::Renewed { block: None });
                        report(&token.to_string());
                        continue;
                    }
                    "adopt" => {
                        let (token, adopter) = (Token::parse(rest).unwrap(), Token::random());
                        let ttl = Ttl::from_millis(60_000).unwrap();
                        let holder = "adopter".into();
                        let request = Request::Adopt { key: KEY.into(), token, adopter, ttl, holder, outlives_process: false, source: Source::Ticket { fence: Fence(1), with_ttl: false } };
                        assert!(ask(store, request).await.is_adopted());
                        report("adopted");
                        continue;
                    }
                    _ => return,
                }
            }
            Some(notice) = notices.recv() => match notice {
                Notice::Granted { number: granted, .. } => (granted == number, true),
                Notice::Missed | Notice::Moved | Notice::Lost(_) => (false, true),
                Notice::Breaker(_) | Notice::Availability(_) => unreachable!("a file has no breaker"),
            },
            () = tokio::time::sleep(HEARTBEAT) => (false, true),
        };
        if repeats && !waiting {
            continue;
        }
        let Some(request) = &asked else { continue };
        match ask(store, Request::Acquire(request.clone())).await {
            Reply::Acquired { fence, .. } => {
                waiting = false;
                let how = if by_notice { "notice" } else { "asking" };
                report(&format!("acquired {} {} {how}", fence.0, clock::now().as_micros()));
            }
            Reply::Queued { ahead, notified: true, .. } => {
                if !std::mem::replace(&mut waiting, true) {
                    report(&format!("queued {ahead}"));
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn new_ask(rest: &str, number: u64) -> AcquireRequest {
    let (most, ttl) = rest.split_once(' ').unwrap();
    let mode = match most.parse().unwrap() {
        0 => Mode::Exclusive,
        most => Mode::Shared { most },
    };
    let ttl = Ttl::from_millis(ttl.parse().unwrap()).unwrap();
    let holder = format!("process {}", std::process::id());
    let ask = AcquireRequest::new(KEY.into(), Token::random(), ttl, holder.into());
    AcquireRequest { mode, place: Some(Place { number }), ..ask }
}

fn token_of(asked: &Option<AcquireRequest>) -> Token {
    asked.as_ref().expect("the process has asked for a lease").token
}
