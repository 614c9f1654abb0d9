//! Starts Redis servers, each for one test: on a free port of loopback and on a unix socket,
//! without files that outlive it. Dropping the value ends the server, by its process id.

// Each test crate that includes this file uses another part of it.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use leasehold::lease::Token;
use redis::{Connection, FromRedisValue, Value};
use rustix::process::{Pid, Signal, kill_process};

/// The line in the server's log once it answers.
const READY: &str = "Ready to accept connections";
/// The line in the server's log when it has begun to read its data, and answers `LOADING`.
const LOADING: &str = "Loading RDB produced";
/// How long a server may take until that line on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct RedisServer {
    folder: PathBuf,
    port: Cell<u16>,
    options: Vec<String>,
    running: RefCell<Option<Running>>,
}

struct Running {
    child: Child,
    /// This connection was made before a test sets any password, so it can send every command.
    admin: Connection,
}

/// Returns a port on which no process listens. A test process gets each port only once, and the
/// kernel chooses none of these ports itself. Otherwise, another server could get the port of one
/// that is down.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = fastrand::u16(5_000..11_000);
        if GIVEN.lock().unwrap().insert(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl RedisServer {
    /// Starts a server with `options` of its configuration ("name value", or several words for a
    /// value; `{port}` stands for its port).
    pub fn start(options: &[&str]) -> Rc<Self> {
        // The name is short: the path of a unix socket may have about 100 bytes.
        let folder = std::env::temp_dir().canonicalize().unwrap();
        let folder = folder.join(format!("lh-{}", &Token::random().to_string()[..13]));
        std::fs::create_dir(&folder).unwrap();
        let options = options.iter().map(|option| option.to_string()).collect();
        let server = Self { folder, port: Cell::new(0), options, running: RefCell::new(None) };
        // Another process may take the port before the server does. Then try another port.
        server.launch_or_panic(&[], READY, || server.port.set(free_port()));
        Rc::new(server)
    }

    /// Returns `redis://LOGIN127.0.0.1:PORT`; `login` has the form `user:password@`, or is empty.
    pub fn url_with(&self, login: &str) -> String {
        format!("redis://{login}127.0.0.1:{}", self.port.get())
    }

    pub fn url(&self) -> String {
        self.url_with("")
    }

    pub fn port(&self) -> u16 {
        self.port.get()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    /// Runs a command, independent of the passwords and rights that a test has set. Returns the
    /// reply.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut running = self.running.borrow_mut();
        let admin = &mut running.as_mut().expect("the server runs").admin;
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query(admin)
    }

    /// Runs a command, and ignores its reply.
    pub fn run(&self, words: &[&str]) {
        self.ask::<Value>(words);
    }

    /// Cuts the connections of all clients but this one.
    pub fn cut_connections(&self) -> u32 {
        ["normal", "pubsub"].iter().map(|kind| self.ask::<u32>(&["CLIENT", "KILL", "TYPE", kind])).sum()
    }

    /// Returns the number of keys that never expire.
    pub fn keys_without_expiry(&self) -> usize {
        let keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.iter().filter(|key| self.ask::<i64>(&["PTTL", key]) == -1).count()
    }

    /// Stops the server (SIGSTOP), so that it answers no client, until the guard is dropped.
    pub fn stall(self: &Rc<Self>) -> Stalled {
        self.signal(Signal::STOP);
        Stalled(self.clone())
    }

    /// Kills the server, as a crash would.
    pub fn kill(&self) {
        if let Some(mut running) = self.running.take() {
            running.child.kill().expect("our own process");
            running.child.wait().expect("our own process");
        }
    }

    /// Starts the server again at the same address, with its saved data (none, unless a test ran
    /// `SAVE`).
    pub fn restart(&self) {
        self.restart_with(&[], READY);
    }

    /// Starts the server again, and returns while it reads its data. It goes on reading until
    /// `key-load-delay` is set to 0.
    pub fn restart_loading(&self) {
        let slow = ["key-load-delay 20000", "loading-process-events-interval-bytes 1024"];
        self.restart_with(&slow, LOADING);
    }

    fn restart_with(&self, options: &[&str], until: &str) {
        self.kill();
        self.launch_or_panic(options, until, || {});
    }

    fn launch_or_panic(&self, options: &[&str], until: &str, prepare: impl Fn()) {
        let mut printed = String::new();
        for _ in 0..5 {
            prepare();
            match self.launch(options, until) {
                Ok(running) => {
                    self.running.replace(Some(running));
                    return;
                }
                Err(lines) => printed = lines,
            }
        }
        panic!("redis-server does not start: {printed}");
    }

    /// Starts the process and waits until it prints a line with `until`. As an error, returns what
    /// it printed instead.
    fn launch(&self, options: &[&str], until: &str) -> Result<Running, String> {
        let program = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(&program);
        command.args(["--bind", "127.0.0.1", "--port", &self.port.get().to_string(), "--save", ""]);
        command.arg("--unixsocket").arg(self.socket()).arg("--dir").arg(&self.folder);
        for option in self.options.iter().map(String::as_str).chain(options.iter().copied()) {
            let option = option.replace("{port}", &self.port.get().to_string());
            let mut words = option.split(' ');
            command.arg(format!("--{}", words.next().unwrap())).args(words);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap_or_else(|error| {
            panic!(
                "{} can't be started ({error}): these tests need a Redis server of 6.2 or later. Install it \
                 (apt-get install redis-server, brew install redis), or name one with REDIS_SERVER=/path/to/it",
                program.display()
            )
        });
        let lines = lines_of(&mut child);
        let mut printed = String::new();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(until) => break,
                Ok(line) => printed = format!("{printed}\n{line}"),
                Err(why) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let what = if why == RecvTimeoutError::Timeout { "(silence)" } else { "(end)" };
                    return Err(format!("{printed}\n{what}"));
                }
            }
        }
        let admin = redis::Client::open(format!("redis+unix://{}", self.socket().display())).unwrap();
        let admin = admin.get_connection_with_timeout(PATIENCE).unwrap();
        admin.set_read_timeout(Some(PATIENCE)).unwrap();
        Ok(Running { child, admin })
    }

    fn signal(&self, signal: Signal) {
        let running = self.running.borrow();
        let pid = Pid::from_child(&running.as_ref().expect("the server runs").child);
        kill_process(pid, signal).expect("our own process");
    }
}

/// Returns the lines that the server prints. A thread reads them to the end, so that the server
/// never waits for a reader.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A guard that lets the server continue when it is dropped.
pub struct Stalled(Rc<RedisServer>);

impl Drop for Stalled {
    fn drop(&mut self) {
        // A failing test may have ended the server.
        if self.0.running.borrow().is_some() {
            self.0.signal(Signal::CONT);
        }
    }
}
