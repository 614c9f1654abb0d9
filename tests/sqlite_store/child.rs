//! Starts other processes: they run this test binary again, and its environment says what to do.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Notice, Reply, Request, Store};
use tokio::sync::Notify;

use crate::support::*;
use crate::waiter::queue_request;

const PART: &str = "LEASEHOLD_TEST_PART";
const PATH: &str = "LEASEHOLD_TEST_PATH";

/// A running child process. Dropping the value kills it.
pub struct Process {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Process {
    /// Starts a child that plays `part` on the lock file at `path`.
    pub fn start(part: &str, path: &Path) -> Self {
        Self::of(&mut Command::new(std::env::current_exe().unwrap()), part, path)
    }

    /// Starts the child as a user without rights if this process runs as root.
    #[cfg(unix)]
    pub fn start_without_rights(part: &str, folder: &Path, path: &Path) -> Self {
        use std::os::unix::process::CommandExt;
        // The other user may have no access to the build directory. Another process copies the
        // binary: if this process wrote the copy, a child that another test starts at that moment
        // would also have it open for writing, and the copy could not be executed.
        let copy = folder.join("test");
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap();
        assert!(copied.success());
        let mut command = Command::new(copy);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        Self::of(&mut command, part, path)
    }

    /// Starts the process so that its files can't grow: each write past the end of a file fails.
    #[cfg(unix)]
    pub fn start_without_room(part: &str, path: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]);
        Self::of(command.arg(std::env::current_exe().unwrap()), part, path)
    }

    fn of(command: &mut Command, part: &str, path: &Path) -> Self {
        let arguments = ["--exact", "child::play_part", "--ignored", "--nocapture"];
        let command = command.args(arguments).env(PART, part).env(PATH, path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let lines = lines.filter_map(|line| line.split_once("child: ").map(|(_, said)| said.to_owned()));
        Self { child, lines: Box::new(lines) }
    }

    /// Returns the next line that the child reports.
    pub fn read_line(&mut self) -> String {
        self.lines.next().expect("the child reports a line before it ends")
    }

    pub fn send(&mut self, line: &str) {
        writeln!(self.child.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the child has ended by itself, successfully.
    pub fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn report(said: &str) {
    println!("child: {said}");
}

pub fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().into()
}

#[test]
#[ignore = "the part of a child process"]
fn play_part() {
    let part = std::env::var(PART).expect("started by another test");
    let path = PathBuf::from(std::env::var_os(PATH).unwrap());
    let store = SqliteStore::open(path.clone());
    run(async {
        match &*part {
            "hold" => hold(&store).await,
            "wait" => crate::waiter::play(&store).await,
            "contend" => contend(&store, &path, false, None).await,
            "queue" => contend(&store, &path, true, None).await,
            "linger" => contend(&store, &path, false, Some(Duration::from_millis(20))).await,
            "ping" => match attempt(&store, Request::Ping).await {
                Ok(reply) => report(&format!("{reply:?}")),
                Err(error) => report(&format!("{:?} {error}", error.kind)),
            },
            other => match other.strip_prefix("measure ") {
                Some(at_once) => measure(&path, at_once.parse().unwrap()).await,
                None => panic!("no such part: {other}"),
            },
        }
        store.close().await;
    });
}

async fn measure(path: &Path, at_once: usize) {
    let (rate, rounds) = crate::measure::pairs(path, at_once).await;
    let (p50, p99) = (rounds[rounds.len() / 2], rounds[rounds.len() * 99 / 100]);
    report(&format!("{rate:.0} pairs/s, a round takes {p50:.0?} (p99 {p99:.0?})"));
}

/// Holds `k` and 99 other locks for ten minutes, or until the test sends a line.
async fn hold(store: &Rc<SqliteStore>) {
    for i in 1..100 {
        granted(store, &format!("k{i}"), Token::random(), 600_000).await;
    }
    let fence = granted(store, "k", Token::random(), 600_000).await;
    report(&fence.0.to_string());
    read_line();
}

/// Takes turns with the other processes that contend for `k`, for two seconds: in the queue, or by
/// trying until it is free. Each turn adds one to the number in a file that nothing else protects,
/// and writes into a log when it begins and ends. If `lasts` is given, each turn takes that long.
async fn contend(store: &Rc<SqliteStore>, path: &Path, queued: bool, lasts: Option<Duration>) {
    const CONTENDERS: u64 = 4;
    let wakeups: Rc<Vec<Notify>> = Rc::new((0..CONTENDERS).map(|_| Notify::new()).collect());
    let to_wake = wakeups.clone();
    store.listen(Rc::new(move |notice| match notice {
        Notice::Granted { number, .. } => to_wake[number as usize].notify_one(),
        Notice::Missed | Notice::Moved | Notice::Lost(_) => to_wake.iter().for_each(Notify::notify_one),
        Notice::Breaker(_) | Notice::Availability(_) => unreachable!("a file has no breaker"),
    }));
    let (counter, log) = (path.with_file_name("counter"), path.with_file_name("log"));
    let log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    let (counter, log) = (&counter, &log);
    let end = Instant::now() + Duration::from_secs(2);
    let (store, wakeups) = (&store, &wakeups);
    let contender = |number: u64| async move {
        let (mut turns, mut token) = (0, Token::random());
        while Instant::now() < end {
            let request =
                if queued { queue_request("k", token, number) } else { acquire("k", token, 60_000) };
            match ask(store, request).await {
                Reply::Acquired { fence, .. } => {
                    (&*log).write_all(format!("begin {}\n", fence.0).as_bytes()).unwrap();
                    let count: u64 =
                        std::fs::read_to_string(counter).unwrap_or_default().parse().unwrap_or(0);
                    match lasts {
                        Some(lasts) => tokio::time::sleep(lasts).await,
                        None => tokio::task::yield_now().await,
                    }
                    std::fs::write(counter, (count + 1).to_string()).unwrap();
                    (&*log).write_all(format!("end {}\n", fence.0).as_bytes()).unwrap();
                    turns += 1;
                    assert_eq!(ask(store, release("k", token)).await, Reply::Released);
                    token = Token::random();
                }
                Reply::Queued { .. } => {
                    let heartbeat = Duration::from_millis(500);
                    let _ = tokio::time::timeout(heartbeat, wakeups[number as usize].notified()).await;
                }
                Reply::Busy { .. } => {
                    tokio::time::sleep(Duration::from_micros(fastrand::u64(100..1500))).await
                }
                other => panic!("{other:?}"),
            }
        }
        // Leave the queue.
        ask(store, release("k", token)).await;
        turns
    };
    let turns: u64 = futures_util::future::join_all((0..CONTENDERS).map(contender)).await.iter().sum();
    report(&turns.to_string());
}
