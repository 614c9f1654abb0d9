//! Starts Redis servers, each for one test, and has a plain client to inspect them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use leasehold::lease::Token;
use leasehold::store::Access;
use leasehold::store::redis::{RedisAddress, RedisStore};
use rustix::process::{Pid, Signal, kill_process};

/// The host of servers unless a test sets another.
const LOOPBACK: &str = "127.0.0.1";
/// The line in the server's log when it takes requests.
const READY: &str = "Ready to accept connections";
/// The line in a replica's log when it has its master's data.
const SYNCHRONIZED: &str = "sync: Finished with success";

/// A server. Dropping the value kills it.
pub struct Server {
    child: Child,
    folder: PathBuf,
    host: String,
    port: u16,
}

impl Server {
    /// Starts a server without data, and waits until it takes requests.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_until(settings, READY)
    }

    /// Starts a replica of `master`, and waits until it has all data of the master.
    pub fn replica_of(master: &Self) -> Self {
        Self::start_until(&["--replicaof", &master.host, &master.port.to_string()], SYNCHRONIZED)
    }

    /// Starts a master at the first of the `hosts`, and a replica at each of the others, all on one
    /// port.
    pub fn start_on_one_port(hosts: &[&str]) -> Vec<Self> {
        // Another process may take the port at one of the hosts.
        (0..10).find_map(|_| Self::try_on_one_port(hosts)).expect("a port that is free at all hosts")
    }

    fn try_on_one_port(hosts: &[&str]) -> Option<Vec<Self>> {
        let port = free_port();
        let master = Self::try_start(hosts[0], port, &[], READY)?;
        let replica = |host: &&str| {
            let settings = ["--replicaof", hosts[0], &port.to_string(), "--replica-announce-ip", host];
            Self::try_start(host, port, &settings, SYNCHRONIZED)
        };
        let replicas: Option<Vec<_>> = hosts[1..].iter().map(replica).collect();
        Some([master].into_iter().chain(replicas?).collect())
    }

    /// Starts a server, and waits until its log contains `until`.
    fn start_until(settings: &[&str], until: &str) -> Self {
        // Another process may take the port before the server does. Then try another port.
        for _ in 0..10 {
            if let Some(server) = Self::try_start(LOOPBACK, free_port(), settings, until) {
                return server;
            }
        }
        panic!("redis-server does not start with {settings:?}");
    }

    fn try_start(host: &str, port: u16, settings: &[&str], until: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("leasehold-redis-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        match launch(&folder, host, port, settings, until) {
            Some(child) => Some(Self { child, folder, host: host.to_owned(), port }),
            None => {
                std::fs::remove_dir_all(&folder).unwrap();
                None
            }
        }
    }

    /// Starts a server that lets its clients use the setting `forbidden`, unless it is older than
    /// 7.
    pub fn start_allowing(forbidden: &str) -> Self {
        let settings = [forbidden, "local"];
        Self::start(&settings[if is_old() { 2 } else { 0 }..])
    }

    /// Kills the server and starts it again at the same address, without unsaved data. Waits until
    /// its log contains `until`.
    pub fn restart(&mut self, settings: &[&str], until: &str) {
        self.kill();
        let child = launch(&self.folder, &self.host, self.port, settings, until);
        self.child = child.expect("the port is still free");
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://{}:{}", self.host, self.port)
    }

    pub fn socket_url(&self) -> String {
        format!("redis+unix://{}/redis.sock", self.folder.display())
    }

    /// Returns a store that connects over TCP.
    pub fn store(&self) -> Rc<RedisStore> {
        store(&self.url())
    }

    /// Runs one command over its own connection. In the result, errors begin with a minus, and
    /// lists have a line for each item.
    pub fn command(&self, words: &[&str]) -> String {
        self.commands(&[words]).pop().unwrap()
    }

    /// Runs commands over one connection.
    pub fn commands(&self, commands: &[&[&str]]) -> Vec<String> {
        let mut stream = UnixStream::connect(self.folder.join("redis.sock")).unwrap();
        for words in commands {
            send(&mut stream, words);
        }
        let mut replies = BufReader::new(stream);
        commands.iter().map(|_| receive(&mut replies)).collect()
    }

    /// Returns the keys that never expire.
    pub fn immortal(&self) -> Vec<String> {
        let keys = self.command(&["KEYS", "*"]);
        keys.lines().filter(|key| self.command(&["PTTL", key]) == "-1").map(str::to_owned).collect()
    }

    /// Returns the number after `name:` in INFO, or after `name=` in one of its lists.
    pub fn info(&self, section: &str, name: &str) -> u64 {
        let text = self.command(&["INFO", section]);
        let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no {name} in {text}"));
        let digits: String = rest.chars().skip(1).take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("no number behind {name} in {text}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn store(url: &str) -> Rc<RedisStore> {
    store_with(url, &Access::default())
}

pub fn store_with(url: &str, access: &Access) -> Rc<RedisStore> {
    RedisStore::new(RedisAddress::parse(url, access).unwrap())
}

/// Returns true if the server is older than 7.
pub fn is_old() -> bool {
    let version = Command::new(program()).arg("--version").output().map(|output| output.stdout);
    version.is_ok_and(|text| String::from_utf8_lossy(&text).contains("v=6."))
}

pub fn program() -> PathBuf {
    std::env::var_os("REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// Starts a server, and returns it once its log contains `until`. Returns `None` if the server
/// ended before. `{port}` in a setting stands for the server's port.
fn launch(folder: &Path, host: &str, port: u16, settings: &[&str], until: &str) -> Option<Child> {
    let mut child = Command::new(program())
        .args(["--bind", host, "--port", &port.to_string(), "--unixsocket"])
        .arg(folder.join("redis.sock"))
        .arg("--dir")
        .arg(folder)
        // By default, a master waits five seconds for more replicas before it sends its data.
        .args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"])
        .args(settings.iter().map(|word| word.replace("{port}", &port.to_string())))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "these tests need {} ({error}); install it (apt-get install redis-server, brew install redis), \
                 or name one with REDIS_SERVER=/path/to/it",
                program().display()
            )
        });
    let mut log = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        if line.contains(until) {
            // Read the rest of the log, or the server would wait for a reader.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Some(child);
        }
        line.clear();
    }
    let _ = child.wait();
    None
}

fn free_port() -> u16 {
    TcpListener::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap().port()
}

pub fn send(stream: &mut impl Write, words: &[&str]) {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream.write_all(text.as_bytes()).unwrap();
}

pub fn receive(replies: &mut impl BufRead) -> String {
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    let line = line.trim_end();
    let (kind, rest) = line.split_at(1);
    match kind {
        "-" => line.to_owned(),
        "$" => match rest.parse::<usize>() {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                replies.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes[..length].to_vec()).unwrap()
            }
            Err(_) => "(nil)".to_owned(),
        },
        "*" => (0..rest.parse::<i64>().unwrap()).map(|_| receive(replies)).collect::<Vec<_>>().join("\n"),
        _ => rest.to_owned(),
    }
}
