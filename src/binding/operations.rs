//! Operations as JavaScript writes them, as commands to the engine. `lib/bridge.ts` writes them; the two have to agree.

use std::sync::Arc;
use std::time::Duration;

use super::bridge::Bridge;
use super::ending::PATIENCE;
use super::holder;
use crate::engine::clock;
use crate::engine::command::{AcquireCommand, AdoptCommand, ClientId, Command, OpId, Wait};
use crate::engine::known::KnownLease;
use crate::lease::{Fence, Key, Mode, Token, Ttl};
use crate::store::listing::Wanted;

/// How many numbers an operation has: its code, its slot, and up to five more.
pub const LENGTH: usize = 7;
/// Added to the code of an acquire whose lease is not renewed by the engine.
const NO_AUTO_RENEW: u32 = 16;
/// Added to the code of an acquire whose automatic renewals are reported.
const REPORT_RENEWALS: u32 = 32;
/// Added to the code of an acquire that says in which trace it is.
const TRACED: u32 = 64;
/// The bit added to the code of an acquire for a section.
const SECTION: u32 = 256;
/// The bit added to the code of an acquire whose lease lives until its ttl ends, even if this
/// process is gone.
const OUTLIVES_PROCESS: u32 = 128;
/// The bit added to the code of an adoption whose ttl comes from the ticket.
const TICKET_TTL: u32 = 512;
/// The bit added to the code of an acquire that ends while the store can't grant leases.
const FAIL_FAST: u32 = 1024;

const ACQUIRE: u32 = 0;
const RELEASE: u32 = 1;

fn code(operation: &[f64; LENGTH]) -> u32 {
    operation[0] as u32 & 0xf
}

/// Whether it is a release.
pub fn is_release(operation: &[f64; LENGTH]) -> bool {
    code(operation) == RELEASE
}

/// Whether it is one of those that may go on beside hand-offs of which the engine hears later.
pub fn is_acquire_or_release(operation: &[f64; LENGTH]) -> bool {
    matches!(code(operation), ACQUIRE | RELEASE)
}

/// Names the lock that a diagnosis acquires and releases. The client's prefix comes before it.
const TRIED: &str = "leasehold-doctor";

impl Bridge {
    /// The command that an operation means; `None` if there is nothing left to command.
    pub(super) fn command<'a>(
        &mut self,
        operation: &[f64; LENGTH],
        keys: &mut impl Iterator<Item = &'a str>,
    ) -> Option<Command> {
        let [code, slot, a, b, c, d, e] = *operation;
        let (code, slot) = (code as u32, slot as u32);
        let op = OpId { env: self.env, slot };
        Some(match code & 0xf {
            ACQUIRE => {
                let (key, holder) = (keys.next()?, self.holder(code, a, keys));
                let asked = self.asked(op, code, [a, b, d], key, wait(c), mode(e))?;
                Command::Acquire(AcquireCommand { holder, ..asked })
            }
            RELEASE => {
                self.slots.wait(slot, false);
                let (state, _) = self.slots.lease(slot)?;
                // If it was lost first, its loss is the last word about it.
                return state.release(clock::now()).then_some(Command::Release { op });
            }
            2 => {
                self.slots.wait(slot, true);
                Command::Renew { op, ttl: ttl(a) }
            }
            3 => Command::Cancel { op },
            4 => {
                self.slots.open(slot, None);
                Command::Ping { op, client: a as ClientId }
            }
            5 => {
                self.slots.open(slot, None);
                let client = a as ClientId;
                Command::Inspect { op, client, key: self.key(client, keys.next()?) }
            }
            7 => {
                // Refused by the store like any other token that the lease does not have.
                let (key, from) =
                    (keys.next()?, keys.next().and_then(Token::parse).unwrap_or(Token::random()));
                let holder = self.holder(code, a, keys);
                let asked = self.asked(op, code, [a, b, c], key, Wait::Never, Mode::Exclusive)?;
                let asked = AcquireCommand { holder, ..asked };
                let with_ttl = code & TICKET_TTL != 0;
                Command::Adopt(AdoptCommand { asked, from, fence: Fence(d as u64), with_ttl })
            }
            8 => {
                self.slots.wait(slot, true);
                Command::Detach { op, ttl: ttl(a) }
            }
            9 => {
                self.slots.open(slot, None);
                let client = a as ClientId;
                Command::Diagnose { op, client, ttl: ttl(b)?, key: self.key(client, TRIED) }
            }
            10 => {
                self.slots.open(slot, None);
                let client = a as ClientId;
                Command::Break { op, client, key: self.key(client, keys.next()?) }
            }
            11 => {
                self.slots.open(slot, None);
                let client = a as ClientId;
                let prefix = self.clients.get(&client).map_or("", |client| client.prefix.as_str()).into();
                let wanted = Wanted { prefix, pattern: keys.next()?.into(), limit: b as u32 };
                Command::List { op, client, wanted }
            }
            12 => Command::DrainClient { client: a as ClientId },
            13 => Command::StopRenewing { op },
            _ => {
                self.slots.open(slot, None);
                let client = a as ClientId;
                self.clients.remove(&client);
                Command::CloseClient { client, op, patience: PATIENCE }
            }
        })
    }

    /// What an acquire or an adoption asks for: of a client, for a ttl, for at most so long.
    fn asked(
        &mut self,
        op: OpId,
        code: u32,
        [client, ms, max_hold]: [f64; 3],
        key: &str,
        wait: Wait,
        mode: Mode,
    ) -> Option<AcquireCommand> {
        let client = client as ClientId;
        let (state, token) = (Arc::new(KnownLease::default()), Token::random());
        self.slots.open(op.slot, Some((state.clone(), token)));
        Some(AcquireCommand {
            op,
            client,
            key: self.key(client, key),
            token,
            mode,
            ttl: ttl(ms)?,
            wait,
            max_hold: (max_hold > 0.0).then(|| span(max_hold)),
            auto_renew: code & NO_AUTO_RENEW == 0,
            report: code & REPORT_RENEWALS != 0,
            section: code & SECTION != 0,
            fail_fast: code & FAIL_FAST != 0,
            outlives_process: code & OUTLIVES_PROCESS != 0,
            holder: None,
            state,
        })
    }

    /// What the store shows of whoever asks, if that is more than the client's name: the next of `keys` is then its trace.
    fn holder<'a>(
        &mut self,
        code: u32,
        client: f64,
        keys: &mut impl Iterator<Item = &'a str>,
    ) -> Option<Arc<str>> {
        let trace = if code & TRACED == 0 { None } else { keys.next() }?;
        let name = &self.clients.get(&(client as ClientId))?.name;
        Some(holder::join(name, trace).into())
    }

    /// The whole key of a lock.
    fn key(&mut self, client: ClientId, key: &str) -> Key {
        let prefix = self.clients.get(&client).map_or("", |client| client.prefix.as_str());
        self.key.clear();
        self.key.push_str(prefix);
        self.key.push_str(key);
        Key::from(self.key.as_str())
    }
}

/// A ttl of `ms`, `None` for 0.
pub fn ttl(ms: f64) -> Option<Ttl> {
    Ttl::from_millis(ms as u32)
}

/// Returns the mode of a lease that at most `most` clients may share; it is exclusive for 0.
fn mode(most: f64) -> Mode {
    if most > 0.0 { Mode::Shared { most: most as u32 } } else { Mode::Exclusive }
}

/// How long an acquire waits: not at all for a negative number, for ever for `Infinity`.
pub fn wait(ms: f64) -> Wait {
    match ms {
        ms if ms < 0.0 => Wait::Never,
        ms if ms.is_finite() => Wait::For(span(ms)),
        _ => Wait::Forever,
    }
}

/// A span of `ms`, for ever if it is not finite.
pub fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or(Duration::MAX)
}
