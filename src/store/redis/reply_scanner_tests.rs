use super::*;

const ROOM: ByteLimits = ByteLimits { replies: 1 << 20, pushes: 1 << 20 };

/// Returns where the replies and messages in `bytes` end, and why reading stopped, if it did.
fn ends(bytes: &[u8], room: ByteLimits, step: usize) -> (Vec<usize>, Option<Excess>) {
    let (mut scanner, mut room) = (ReplyScanner::default(), room);
    let (mut ends, mut start) = (Vec::new(), 0);
    for part in bytes.chunks(step.max(1)) {
        let mut at = 0;
        while at < part.len() {
            match scanner.next_end(&part[at..], &mut room) {
                Ok(Some(read)) => {
                    at += read;
                    ends.push(start + at);
                }
                Ok(None) => break,
                Err((_, excess)) => return (ends, Some(excess)),
            }
        }
        start += part.len();
    }
    (ends, None)
}

fn stop(bytes: &[u8]) -> Option<Excess> {
    ends(bytes, ROOM, usize::MAX).1
}

#[test]
fn an_announced_length_is_charged_at_once() {
    for (bytes, excess) in [
        (&b"$99999999999\r\n"[..], Excess::String),
        (b"=4194305\r\n", Excess::String),
        (b"$5000000\r\n", Excess::String),
        (b"*2000000000\r\n", Excess::Replies),
        (b"*999999999999999999\r\n", Excess::Replies),
        // 64 times such a number is a small one in 64 bits.
        (b"*288230376151711745\r\n", Excess::Replies),
        (b"%288230376151711744\r\n", Excess::Replies),
        (b"%1000000\r\n", Excess::Replies),
        (b"|1000000\r\n", Excess::Replies),
        (b"~100000\r\n", Excess::Replies),
        (b"*1\r\n*100000\r\n", Excess::Replies),
        (b"*2\r\n*9000\r\n*9000\r\n*9000\r\n", Excess::Replies),
        (b">2000000000\r\n", Excess::Pushes),
        (b">2\r\n$99999999999\r\n", Excess::String),
        (b">2\r\n*2000000000\r\n", Excess::Pushes),
        (b"*9999999999999999999\r\n", Excess::Nonsense),
        (b"%-1\r\n", Excess::Nonsense),
        (b"=-1\r\n", Excess::Nonsense),
        (b"* 1\r\n", Excess::Nonsense),
        (b"$\r\n", Excess::Nonsense),
        (b"$3\r\nabcd\r\n", Excess::Nonsense),
        (b"*1\n", Excess::Nonsense),
        (b"HTTP/1.1 400 Bad Request\r\n", Excess::Nonsense),
        (b"*?\r\n", Excess::Nonsense),
    ] {
        assert_eq!(stop(bytes), Some(excess), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn depth_and_lines_are_bounded() {
    assert_eq!(stop(&b"*1\r\n".repeat(MOST_DEPTH)), None);
    assert_eq!(stop(&b"*1\r\n".repeat(MOST_DEPTH + 1)), Some(Excess::Depth));
    let line = [b"+".to_vec(), vec![b'a'; MOST_LINE as usize]].concat();
    assert_eq!(ends(&line, ROOM, 1000), (vec![], None));
    assert_eq!(ends(&[&line[..], b"a"].concat(), ROOM, 1000), (vec![], Some(Excess::Line)));
    assert_eq!(ends(&[b"-".to_vec(), vec![b'\r'; 70_000]].concat(), ROOM, 7), (vec![], Some(Excess::Line)));
}

#[test]
fn an_error_is_at_most_4_kb_long() {
    let text = "x".repeat(4 << 10);
    assert_eq!(stop(format!("-{}\r\n", &text[1..]).as_bytes()), None);
    assert_eq!(stop(format!("-{text}\r\n").as_bytes()), Some(Excess::Line));
    assert_eq!(stop(format!("!4096\r\n{text}\r\n").as_bytes()), None);
    assert_eq!(stop(b"!4097\r\n"), Some(Excess::Line));
    assert_eq!(stop(b"=4097\r\n"), None, "a text");
}

#[test]
fn a_line_is_charged_before_its_end() {
    let (mut scanner, mut room) = (ReplyScanner::default(), ROOM);
    for (part, charged) in [(&b"-ERR"[..], 64 + 3), (b" no", 64 + 6), (b"\r", 64 + 7), (b"\n", 64 + 7 + 32)] {
        scanner.read(part, &mut room).unwrap();
        assert_eq!(ROOM.replies - room.replies, charged, "{}", String::from_utf8_lossy(part));
    }
}

#[test]
fn many_small_replies_are_charged_like_a_large_one() {
    for (reply, excess) in [
        (&b"_\r\n"[..], Excess::Replies),
        (b"*0\r\n", Excess::Replies),
        (b"$-1\r\n", Excess::Replies),
        (b">0\r\n", Excess::Pushes),
        (b">2\r\n+message\r\n+a\r\n", Excess::Pushes),
    ] {
        let many = reply.repeat(1 << 15);
        assert_eq!(stop(&many), Some(excess), "{}", String::from_utf8_lossy(reply));
        assert!(ends(&many, ROOM, usize::MAX).0.len() >= 1 << 10);
    }
}

#[test]
fn replies_and_messages_have_rooms_of_their_own() {
    let mut room = ByteLimits { replies: 2_000, pushes: 1_000 };
    let mut scanner = ReplyScanner::default();
    scanner.read(b":1\r\n>2\r\n+message\r\n$1\r\na\r\n*2\r\n:1\r\n:2\r\n", &mut room).unwrap();
    let ByteLimits { replies, pushes } = room;
    // A value, and its line; a value, a list, and two values of its.
    assert_eq!(2_000 - replies, (64 + 33 + 1) + 64 + 256 + 2 * (33 + 1));
    assert_eq!(1_000 - pushes, 64 + 256 + (32 + 8) + (32 + 1));
}

/// Measures the scanner. Run with:
/// cargo test --release --lib reply_scanner -- --ignored --nocapture
#[test]
#[ignore = "it measures"]
fn a_reply_costs_some_ns() {
    let acquired = b"*1\r\n:1732374000000000\r\n";
    let queued = b"*1\r\n*3\r\n:-10002\r\n:17\r\n$8\r\n0123abcd\r\n";
    for (what, reply) in [("acquired", &acquired[..]), ("queued", queued)] {
        let bytes = reply.repeat(1000);
        let start = std::time::Instant::now();
        for _ in 0..1000 {
            let mut room = ByteLimits { replies: u64::MAX, pushes: u64::MAX };
            ReplyScanner::default().read(std::hint::black_box(&bytes), &mut room).unwrap();
        }
        println!("{what}: {:.1} ns", start.elapsed().as_nanos() as f64 / 1e6);
    }
}
