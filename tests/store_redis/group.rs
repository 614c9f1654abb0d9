//! Starts masters with their replicas and sentinels, and fake sentinels.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::Access;
use leasehold::store::redis::RedisStore;

use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Server, program, receive, send, store_with};

/// The name of the master in all tests.
pub const NAME: &str = "the-master";

/// A sentinel. Dropping the value kills it.
pub struct Sentinel {
    child: Child,
    folder: PathBuf,
    port: u16,
    password: &'static str,
}

impl Sentinel {
    /// Starts a sentinel that watches `master` and needs `quorum` sentinels to agree.
    pub fn start(master: &Server, quorum: u32, password: &'static str) -> Self {
        let auth = if password.is_empty() { String::new() } else { format!("requirepass {password}") };
        let mut sentinel = Self::configured(master, quorum, &format!("port {{port}}\n{auth}"));
        sentinel.password = password;
        sentinel
    }

    /// Starts a sentinel with `lines` in its configuration, in which `{port}` stands for its port.
    pub fn configured(master: &Server, quorum: u32, lines: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-sentinel-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let text = format!(
                "{}\nbind 127.0.0.1\ndir {}\nsentinel monitor {NAME} {} {} {quorum}\n\
                 sentinel down-after-milliseconds {NAME} 500\nsentinel failover-timeout {NAME} 3000\n",
                lines.replace("{port}", &port.to_string()),
                folder.display(),
                master.host(),
                master.port()
            );
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, text).unwrap();
            let mut child =
                Command::new(program()).arg(&file).arg("--sentinel").stdout(Stdio::piped()).spawn().unwrap();
            let mut log = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            while log.read_line(&mut line).unwrap() > 0 {
                if line.contains("+monitor master") {
                    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                    return Self { child, folder, port, password: "" };
                }
                line.clear();
            }
            child.wait().unwrap();
        }
        panic!("the sentinel does not start");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn command(&self, words: &[&str]) -> String {
        let mut stream = TcpStream::connect(self.place()).unwrap();
        let mut replies = BufReader::new(stream.try_clone().unwrap());
        if !self.password.is_empty() {
            send(&mut stream, &["AUTH", self.password]);
            receive(&mut replies);
        }
        send(&mut stream, words);
        receive(&mut replies)
    }

    /// Returns a field of its information about the master.
    pub fn knows(&self, field: &str) -> String {
        let all = self.command(&["SENTINEL", "MASTER", NAME]);
        let mut lines = all.lines();
        lines.find(|line| *line == field).and_then(|_| lines.next()).unwrap_or_default().to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the connections that have subscribed, as `CLIENT LIST` describes them.
    pub fn subscribers(&self) -> Vec<String> {
        let clients = self.command(&["CLIENT", "LIST"]);
        clients.lines().filter(|client| !client.contains(" sub=0 ")).map(str::to_owned).collect()
    }

    /// Returns the host of the master.
    pub fn master_host(&self) -> String {
        let place = self.command(&["SENTINEL", "get-master-addr-by-name", NAME]);
        place.lines().next().expect("the sentinel knows the master").to_owned()
    }

    /// Returns the port of the master.
    pub fn master(&self) -> u16 {
        let port = self.command(&["SENTINEL", "get-master-addr-by-name", NAME]);
        port.lines().last().and_then(|port| port.parse().ok()).expect("the sentinel knows the master")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A master, two replicas, and three sentinels that know all of them.
pub struct Group {
    /// The servers, beginning with the master.
    pub servers: Vec<Server>,
    pub sentinels: Vec<Sentinel>,
}

impl Group {
    pub fn start() -> Self {
        let master = Server::start(&[]);
        let replicas = [Server::replica_of(&master), Server::replica_of(&master)];
        Self::of([master].into_iter().chain(replicas).collect())
    }

    /// Starts a group whose servers have different hosts and the same port.
    #[cfg(target_os = "linux")]
    pub fn start_on_one_port() -> Self {
        Self::of(Server::start_on_one_port(&["127.0.0.2", "127.0.0.3", "127.0.0.4"]))
    }

    fn of(servers: Vec<Server>) -> Self {
        let sentinels: Vec<_> = (0..3).map(|_| Sentinel::start(&servers[0], 2, "")).collect();
        // No event tells when the sentinels have found each other.
        until("the sentinels know each other", || {
            sentinels
                .iter()
                .all(|one| one.knows("num-other-sentinels") == "2" && one.knows("num-slaves") == "2")
        });
        Self { servers, sentinels }
    }

    pub fn url(&self) -> String {
        let places: Vec<_> = self.sentinels.iter().map(Sentinel::place).collect();
        format!("redis-sentinel://{}/{NAME}", places.join(","))
    }

    pub fn store(&self) -> Rc<RedisStore> {
        store_with(&self.url(), &Access::default())
    }

    /// Waits until `count` clients listen to each sentinel, on all channels about a failover.
    pub async fn heard_by(&self, count: usize) {
        let listeners = |one: &Sentinel| one.command(&["CLIENT", "LIST"]).matches(" sub=9 ").count();
        until_in_time("listeners", || self.sentinels.iter().all(|one| listeners(one) == count)).await;
    }

    /// Makes the first sentinel promote a replica, as an administrator does.
    pub fn fail_over(&self) {
        // The sentinel refuses if its information about the replicas is too old.
        until("a failover", || self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME]) == "OK");
    }

    /// Waits until all sentinels name another master than `old`. Returns that server.
    pub async fn promoted(&self, old: u16) -> &Server {
        until_in_time("another master", || self.sentinels.iter().all(|one| one.master() != old)).await;
        let port = self.sentinels[0].master();
        self.servers.iter().find(|server| server.port() == port).expect("the master is a server of the group")
    }
}

/// Polls `is_so` until it returns true, while other tasks run.
pub async fn until_in_time(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Polls `is_so` until it returns true, for conditions that no event reports.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "timed out waiting for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts a proxy to 127.0.0.1:`port` that delays each byte by `delay`, in both directions. Returns
/// where it listens. Its threads end with their connections, and with the test's process.
pub fn delaying_proxy(port: u16, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            carry(near.try_clone().unwrap(), far.try_clone().unwrap(), delay);
            carry(far, near, delay);
        }
    });
    place
}

/// Copies each byte from `from` to `to`, `delay` after it arrived.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, received) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in received {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Starts a fake sentinel that names `port` as the port of the master. Returns its address.
pub fn fake_sentinel(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let port = port.to_string();
    let answer = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut words = BufReader::new(stream.try_clone().unwrap());
                let _ = receive(&mut words);
                let _ = stream.write_all(answer.as_bytes());
                let _ = std::io::copy(&mut words, &mut std::io::sink());
            });
        }
    });
    place
}
