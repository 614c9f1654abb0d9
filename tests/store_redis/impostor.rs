//! TCP servers that are no Redis, or stand between us and one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// A server on a free port of loopback that does `serve` with every connection, each on a thread of its own. Goes
/// with the test process.
pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(connection));
        }
    });
    url
}

/// A server that reads what comes and answers each command (its words, parted by spaces) with `reply`'s bytes,
/// or ends the connection at `None`.
pub fn replying(reply: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> String {
    start(move |mut connection| {
        let mut reader = std::io::BufReader::new(connection.try_clone().unwrap());
        while let Some(command) = command(&mut reader) {
            match reply(&command) {
                Some(bytes) if connection.write_all(bytes.as_bytes()).is_ok() => {}
                _ => break,
            }
        }
        let _ = connection.shutdown(Shutdown::Both);
    })
}

/// The next command that a client of Redis sends.
fn command(reader: &mut impl std::io::BufRead) -> Option<String> {
    let mut number = |mark: char| -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.strip_prefix(mark)?.trim().parse().ok()
    };
    let count = number('*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length: usize = line.strip_prefix('$')?.trim().parse().ok()?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(&word[..length]).into_owned());
    }
    Some(words.join(" "))
}

/// Stands before the Redis at `port` and passes everything on until `mark` is sent: that is passed on, too, but of the
/// reply only the first `bytes`; then both connections end. From the second connection on, everything is passed on.
pub fn cutting_once(port: u16, mark: &'static str, bytes: usize) -> String {
    let is_first = AtomicBool::new(true);
    start(move |client| {
        let cuts = is_first.swap(false, SeqCst);
        let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let marked = Arc::new(AtomicBool::new(false));
        let seen = marked.clone();
        thread::spawn(move || {
            pass(from_client, to_server, |chunk| {
                if cuts && chunk.windows(mark.len()).any(|part| part == mark.as_bytes()) {
                    seen.store(true, SeqCst);
                }
                (chunk.len(), true)
            });
        });
        pass(server, client, |chunk| if marked.load(SeqCst) { (bytes, false) } else { (chunk.len(), true) });
    })
}

/// Copies from `from` to `to`. `look` says how much of a chunk, and whether to go on; in the end both end.
fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8]) -> (usize, bool)) {
    let mut buffer = [0; 16384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let (count, goes_on) = look(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() || !goes_on {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
