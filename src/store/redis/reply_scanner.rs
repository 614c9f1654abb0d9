//! Measures what a server sends before redis-rs parses it. Pure.
//!
//! redis-rs keeps a reply until it is whole, however large it becomes: a few bytes can announce an
//! array of two billion values. The scanner reads the same bytes first. It stores only its position
//! in the reply, and charges each reply with the memory that the parsed values take. The scanner
//! charges the length in a header at once, so redis-rs never allocates memory for a false length.
//!
//! The limits, and the largest replies of a real lock server:
//!
//! - [`MOST_DEPTH`] levels: the replies of `CLUSTER SLOTS` and `inspect` have 4, `HELLO` has 5;
//! - [`MOST_STRING`] bytes in a string: `INFO` has some 10 kB, keys and names have less;
//! - [`MOST_LINE`] bytes in a line or an error: errors have less than 1 kB;
//! - the room of a store, see [`budget`](super::budget). In a reply of `inspect`, a waiter
//!   takes 350 bytes and a lock 1 kB. A key of a `SCAN` page takes 100 bytes and its length. A
//!   range of `CLUSTER SLOTS` takes 600 bytes for each node.

/// The most levels of nested values.
pub const MOST_DEPTH: usize = 16;
/// The most bytes in a string.
pub const MOST_STRING: u64 = 4 << 20;
/// The most bytes in a line, or in an error. If this is larger, a server that answers each request
/// with a long error takes more of the engine's time; if it is smaller, the client may end
/// connections to servers with long errors.
pub const MOST_LINE: u32 = 4 << 10;

/// The bytes that a parsed value takes in its list.
const VALUE: u64 = 64;
/// The capacity of the smallest list, in values.
const LEAST_PLACES: u64 = 4;
/// The bytes that an allocation takes in addition to its content.
const ALLOCATION: u64 = 32;

/// How much more the connections of a store may receive, in bytes of memory for the parsed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteLimits {
    /// For replies.
    pub replies: u64,
    /// For messages that the server sends unasked.
    pub pushes: u64,
}

/// Says why the client ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The bytes are not the Redis protocol.
    Nonsense,
    /// Values are nested too deep.
    Depth,
    /// A line or an error is too long.
    Line,
    /// A string is too long.
    String,
    /// Replies take too much memory.
    Replies,
    /// Messages that the server sends unasked take too much memory.
    Pushes,
}

/// Scans the replies of one connection.
#[derive(Debug, Default)]
pub struct ReplyScanner {
    state: State,
    /// How many values are still missing in each open list, the outermost list first.
    open: [u32; MOST_DEPTH],
    depth: usize,
    is_push: bool,
    longest: u64,
}

/// Says what the next byte is part of.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The first byte of a value.
    #[default]
    Kind,
    /// A line.
    Line { length: u32, after_cr: bool },
    /// The number behind the first byte of a value.
    Number { kind: u8, number: u64, digits: u8, is_negative: bool },
    /// The end of the number's line. `number` is -1 for every negative number.
    NumberEnd { kind: u8, number: i64 },
    /// The remaining bytes of a string and of the end of its line.
    String { left: u64 },
}

impl ReplyScanner {
    /// Reads `bytes` up to the end of the first reply or message, and takes the memory that they
    /// need from `room`. Returns the number of bytes read, or `None` if no reply ends in them.
    ///
    /// # Errors
    /// Returns how many bytes are valid, and what is wrong with the next byte. Do not use the
    /// scanner after an error.
    pub fn next_end(
        &mut self,
        bytes: &[u8],
        room: &mut ByteLimits,
    ) -> Result<Option<usize>, (usize, Excess)> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let is_whole = match self.state {
                State::String { left } if left > 2 => {
                    let skipped = (left - 2).min((bytes.len() - at) as u64);
                    self.state = State::String { left: left - skipped };
                    at += skipped as usize;
                    continue;
                }
                State::Line { length, after_cr } => {
                    self.line(&bytes[at..], length, after_cr, room).map(|(read, end)| {
                        at += read;
                        end
                    })
                }
                _ => self.step(byte, room).inspect(|_| at += 1),
            };
            if is_whole.map_err(|excess| (at, excess))? && self.has_ended() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Reads `bytes`. See [`ReplyScanner::next_end`].
    pub fn read(&mut self, bytes: &[u8], room: &mut ByteLimits) -> Result<(), (usize, Excess)> {
        let mut at = 0;
        while at < bytes.len() {
            match self.next_end(&bytes[at..], room) {
                Ok(Some(read)) => at += read,
                Ok(None) => break,
                Err((read, excess)) => return Err((at + read, excess)),
            }
        }
        Ok(())
    }

    /// Returns the length, in bytes, of the longest string so far. The buffer of the connection is
    /// at least as long.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Takes in the next byte, outside of lines. Returns true if a value ends with this byte.
    fn step(&mut self, byte: u8, room: &mut ByteLimits) -> Result<bool, Excess> {
        match self.state {
            State::Kind => {
                if self.depth == 0 {
                    self.is_push = byte == b'>';
                    self.charge(VALUE, room)?;
                }
                self.state = match byte {
                    b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {
                        State::Line { length: 0, after_cr: false }
                    }
                    b'$' | b'*' | b'>' | b'%' | b'~' | b'=' | b'!' | b'|' => {
                        State::Number { kind: byte, number: 0, digits: 0, is_negative: false }
                    }
                    _ => return Err(Excess::Nonsense),
                };
                Ok(false)
            }
            State::Number { kind, number, digits, is_negative } => {
                self.state = match byte {
                    b'0'..=b'9' if digits < 18 => {
                        let number = number * 10 + u64::from(byte - b'0');
                        State::Number { kind, number, digits: digits + 1, is_negative }
                    }
                    b'-' if digits == 0 && !is_negative => {
                        State::Number { kind, number, digits, is_negative: true }
                    }
                    b'\r' if digits > 0 => {
                        let is_below_zero = is_negative && number > 0;
                        State::NumberEnd { kind, number: if is_below_zero { -1 } else { number as i64 } }
                    }
                    _ => return Err(Excess::Nonsense),
                };
                Ok(false)
            }
            State::NumberEnd { kind, number } if byte == b'\n' => self.announced(kind, number, room),
            State::String { left } if byte == if left == 2 { b'\r' } else { b'\n' } => {
                self.state = State::String { left: left - 1 };
                Ok(left == 1)
            }
            _ => Err(Excess::Nonsense),
        }
    }

    /// Reads on in a line. Returns how many bytes it has read, and whether the line ends with them.
    fn line(
        &mut self,
        bytes: &[u8],
        length: u32,
        mut after_cr: bool,
        room: &mut ByteLimits,
    ) -> Result<(usize, bool), Excess> {
        for (index, &byte) in bytes.iter().enumerate() {
            let length = length + index as u32;
            if after_cr && byte == b'\n' {
                self.charge(index as u64 + ALLOCATION, room)?;
                return Ok((index + 1, true));
            }
            if length >= MOST_LINE {
                self.charge(index as u64, room)?;
                return Err(Excess::Line);
            }
            after_cr = byte == b'\r';
        }
        // The client keeps these bytes until the line ends, which may never happen.
        self.charge(bytes.len() as u64, room)?;
        self.state = State::Line { length: length + bytes.len() as u32, after_cr };
        Ok((bytes.len(), false))
    }

    /// Takes in the number in a value's header. Returns true if the value ends with it.
    fn announced(&mut self, kind: u8, number: i64, room: &mut ByteLimits) -> Result<bool, Excess> {
        let count = match (kind, u64::try_from(number)) {
            (b'$' | b'*' | b'~' | b'>', Err(_)) => return Ok(true),
            (_, Err(_)) => return Err(Excess::Nonsense),
            (_, Ok(count)) => count,
        };
        // redis-rs replaces invalid UTF-8, which makes a text up to three times as long.
        let (places, string) = match kind {
            b'$' => (0, Some(count)),
            b'=' | b'!' => (0, Some(count * 8)),
            // redis-rs first makes a list of the map's keys and values.
            b'%' => (count * 2, None),
            b'|' => (count * 2 + 1, None),
            _ => (count, None),
        };
        if let Some(taken) = string {
            if kind == b'!' && count > MOST_LINE.into() {
                return Err(Excess::Line);
            }
            if count > MOST_STRING {
                return Err(Excess::String);
            }
            self.charge(taken + ALLOCATION, room)?;
            self.longest = self.longest.max(count);
            self.state = State::String { left: count + 2 };
            return Ok(false);
        }
        if places == 0 {
            return Ok(true);
        }
        let lists = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        self.charge(places.max(LEAST_PLACES).saturating_mul(VALUE * lists), room)?;
        if self.depth == MOST_DEPTH {
            return Err(Excess::Depth);
        }
        // No room is large enough for more than 2^32 places.
        self.open[self.depth] = u32::try_from(places).unwrap_or(u32::MAX);
        self.depth += 1;
        self.state = State::Kind;
        Ok(false)
    }

    /// Notes the end of a value. Returns true if a whole reply or message ends with it.
    fn has_ended(&mut self) -> bool {
        self.state = State::Kind;
        while let Some(last) = self.depth.checked_sub(1) {
            self.open[last] -= 1;
            if self.open[last] > 0 {
                return false;
            }
            self.depth = last;
        }
        true
    }

    fn charge(&self, cost: u64, room: &mut ByteLimits) -> Result<(), Excess> {
        let (left, excess) = if self.is_push {
            (&mut room.pushes, Excess::Pushes)
        } else {
            (&mut room.replies, Excess::Replies)
        };
        *left = left.checked_sub(cost).ok_or(excess)?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "reply_scanner_tests.rs"]
mod tests;
