//! Reads the operations that `lib/native/operations.ts` writes, as commands to the engine.

use std::sync::Arc;
use std::time::Duration;

use super::ending::PATIENCE;
use super::env_state::EnvState;
use super::holder;
use super::protocol::{Flag, Most, NO_MAX_HOLD, OPERATION_LENGTH, OWN_TTL, Operation};
use crate::engine::clock;
use crate::engine::command::{AcquireCommand, AdoptCommand, Command, Wait};
use crate::engine::ids::{ClientId, OpId};
use crate::engine::known_lease::KnownLease;
use crate::lease::{Fence, Mode, Token, Ttl};
use crate::store::listing::ListFilter;

/// Returns the operation that the numbers name; `None` if this version does not know it.
pub fn kind(operation: &[f64; OPERATION_LENGTH]) -> Option<Operation> {
    Operation::of_code(operation[0] as u32)
}

/// Returns true for acquires and releases: they may run while the engine has not yet heard of a
/// local hand-off.
pub fn is_acquire_or_release(operation: &[f64; OPERATION_LENGTH]) -> bool {
    matches!(kind(operation), Some(Operation::Acquire | Operation::Release))
}

/// Names the lock that a diagnosis acquires and releases. The client's prefix comes before it.
const TRIED: &str = "leasehold-doctor";

/// Returns the command for an operation, or `None` if the operation needs no command any more.
/// Takes the operation's texts out of `texts`.
pub fn command<'a>(
    open: &mut EnvState,
    kind: Operation,
    operation: &[f64; OPERATION_LENGTH],
    texts: &mut impl Iterator<Item = &'a str>,
) -> Option<Command> {
    let [code, slot, a, b, c, d, e] = *operation;
    let (code, slot) = (code as u32, slot as u32);
    let op = OpId { env: open.env, slot };
    // Only some operations name a client.
    let client = a as ClientId;
    Some(match kind {
        Operation::Acquire => {
            let (key, holder) = (texts.next()?, holder(open, code, client, texts));
            let asked = acquire_command(open, op, code, (client, b, d), key, wait(c), mode(e))?;
            Command::Acquire(AcquireCommand { holder, ..asked })
        }
        Operation::Release => {
            open.slots.wait(slot, false);
            let (state, token) = open.slots.lease(slot)?;
            // If the lease was lost first, its loss is the last record of the slot.
            if state.release(clock::now()) {
                Command::Release { op }
            } else {
                Command::ReleaseLost { op, token: *token }
            }
        }
        Operation::Renew => {
            open.slots.wait(slot, true);
            Command::Renew { op, ttl: ttl(a) }
        }
        Operation::Cancel => Command::Cancel { op },
        Operation::Ping => {
            open.slots.open(slot, None);
            Command::Ping { op, client }
        }
        Operation::Inspect => {
            open.slots.open(slot, None);
            Command::Inspect { op, client, key: open.key(client, texts.next()?) }
        }
        Operation::CloseClient => {
            open.slots.open(slot, None);
            open.clients.remove(&client);
            Command::CloseClient { client, op, patience: PATIENCE }
        }
        Operation::Adopt => {
            // The store refuses the random token like any other token that the lease does not have.
            let (key, from) = (texts.next()?, texts.next().and_then(Token::parse).unwrap_or(Token::random()));
            let holder = holder(open, code, client, texts);
            let asked = acquire_command(open, op, code, (client, b, c), key, Wait::Never, Mode::Exclusive)?;
            let asked = AcquireCommand { holder, ..asked };
            let with_ttl = Flag::TicketTtl.is_in(code);
            Command::Adopt(AdoptCommand { acquire: asked, from, fence: Fence(d as u64), with_ttl })
        }
        Operation::Detach => {
            open.slots.wait(slot, true);
            Command::Detach { op, ttl: ttl(a), remembers: b == 1.0 }
        }
        Operation::Diagnose => {
            open.slots.open(slot, None);
            Command::Diagnose { op, client, ttl: ttl(b)?, key: open.key(client, TRIED) }
        }
        Operation::Break => {
            open.slots.open(slot, None);
            Command::Break { op, client, key: open.key(client, texts.next()?) }
        }
        Operation::List => {
            open.slots.open(slot, None);
            let prefix = open.prefix(client).into();
            let filter = ListFilter { prefix, pattern: texts.next()?.into(), limit: b as u32 };
            Command::List { op, client, filter }
        }
        Operation::DrainClient => Command::DrainClient { client },
        Operation::StopRenewing => Command::StopRenewing { op },
        Operation::ReleaseLost => Command::ReleaseLost { op, token: Token::parse(texts.next()?)? },
    })
}

/// Returns the command of an acquire or an adoption, without the holder. The numbers in the
/// parentheses are the client, the ttl and `maxHold`.
fn acquire_command(
    open: &mut EnvState,
    op: OpId,
    code: u32,
    (client, ms, max_hold): (ClientId, f64, f64),
    key: &str,
    wait: Wait,
    mode: Mode,
) -> Option<AcquireCommand> {
    let (state, token) = (Arc::new(KnownLease::default()), Token::random());
    open.slots.open(op.slot, Some((state.clone(), token)));
    Some(AcquireCommand {
        op,
        client,
        key: open.key(client, key),
        token,
        mode,
        ttl: ttl(ms)?,
        wait,
        max_hold: (max_hold > f64::from(NO_MAX_HOLD)).then(|| span(max_hold)),
        auto_renew: !Flag::NoRenewal.is_in(code),
        report: Flag::ReportRenewals.is_in(code),
        section: Flag::Section.is_in(code),
        fail_fast: Flag::FailFast.is_in(code),
        outlives_process: Flag::OutlivesProcess.is_in(code),
        holder: None,
        state,
    })
}

/// Returns the holder's name with its trace, if the operation has a trace: the next of `texts`.
/// Otherwise returns `None`, and the store shows the client's name.
fn holder<'a>(
    open: &EnvState,
    code: u32,
    client: ClientId,
    texts: &mut impl Iterator<Item = &'a str>,
) -> Option<Arc<str>> {
    let trace = if Flag::Traced.is_in(code) { texts.next() } else { None }?;
    let name = &open.clients.get(&client)?.name;
    Some(holder::join(name, trace).into())
}

/// Returns a ttl of `ms`, or `None` for [`OWN_TTL`].
fn ttl(ms: f64) -> Option<Ttl> {
    const { assert!(OWN_TTL == 0, "0 ms is no ttl") };
    Ttl::from_millis(ms as u32)
}

/// Returns the mode of a lease that at most `most` clients may share; see [`Most`].
fn mode(most: f64) -> Mode {
    if most > f64::from(Most::Exclusive.number()) {
        Mode::Shared { most: most as u32 }
    } else {
        Mode::Exclusive
    }
}

/// Returns how long an acquire waits. A negative number ([`NO_WAIT`](super::protocol::NO_WAIT))
/// means that it does not wait, and `Infinity` that it waits for ever.
fn wait(ms: f64) -> Wait {
    match ms {
        ms if ms < 0.0 => Wait::Never,
        ms if ms.is_finite() => Wait::For(span(ms)),
        _ => Wait::Forever,
    }
}

/// Returns a span of `ms`. The span is endless if `ms` is not finite.
pub fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1e3).unwrap_or(Duration::MAX)
}
