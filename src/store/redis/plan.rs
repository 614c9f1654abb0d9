//! A batch of requests as a pipeline of script calls.

use std::io::Write;

use redis::{Cmd, Pipeline, RedisWrite};
use rustc_hash::FxHashSet;

use super::cluster::slot_of;
use super::scripts::{FENCE_LIFE, LockScript, SCRIPTS};
use super::side_keys::{Side, side_key};
use crate::lease::{Key, Mode, Token, Ttl};
use crate::store::{Ask, Request, Source};

/// The most requests in one script call: the server does nothing else meanwhile, and answers only when it is done.
const MOST: usize = 64;
/// How many groups back to look for one that a request fits into.
const LOOK_BACK: usize = 16;
/// By how many ms more a renewal prolongs the life of the fence key than it needs, so that few renewals have to.
const SLACK: u64 = 300_000;

/// Stands for the number of fences in a renewal that detaches leases.
const DETACH: &str = "-1";
/// Stands for the channel in a call of acquires that repair leases; they never wait.
const REPAIR: &str = "repair";

/// Requests of one class go into one script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class<'a> {
    Ping,
    Acquire(Terms<'a>),
    /// The ttl, and how many more fences are wanted.
    Renew(Ttl, u32),
    /// The ttl.
    Detach(Ttl),
    Release,
    /// The ttl, the new holder's name, and whether the note of the lease limits the ttl.
    Adopt(Ttl, &'a str, bool),
    /// Changes the token of a lease, but not its ttl or its holder's name.
    Move,
    Accept,
    /// True if the server is a node of a quorum: it refuses repairs of the locks for a while.
    Break(bool),
    Inspect,
}

/// What acquires have to share to be one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms<'a> {
    ttl: Ttl,
    holder: &'a str,
    mode: Mode,
    fences: u32,
    /// Whether they queue; the numbers of their places are their own.
    queue: bool,
    /// See [`Ask::repairs`].
    repairs: bool,
}

impl<'a> Class<'a> {
    fn of(request: &'a Request) -> (Self, Option<&'a Key>) {
        match request {
            // What is to be diagnosed or listed is asked beside the batch.
            Request::Ping | Request::List(_) | Request::Diagnose { .. } => (Class::Ping, None),
            Request::Acquire(Ask { key, ttl, holder, mode, fences, place, repairs, .. }) => {
                let (ttl, mode, fences, queue) = (*ttl, *mode, *fences, place.is_some());
                let terms = Terms { ttl, holder, mode, fences, queue, repairs: *repairs };
                (Class::Acquire(terms), Some(key))
            }
            Request::Renew { key, ttl, fences, .. } => (Class::Renew(*ttl, *fences), Some(key)),
            // A server knows of no processes: a lease ends by its ttl anyway.
            Request::Detach { key, ttl, .. } => (Class::Detach(*ttl), Some(key)),
            // Redis has a counter for each key. Reservations move it far slower than the clock, so
            // a release need not give fences back.
            Request::Release { key, .. } | Request::GiveBack { key, .. } => (Class::Release, Some(key)),
            Request::Adopt { key, ttl, holder, source, .. } => {
                let is_limited = matches!(source, Source::Ticket { with_ttl: true, .. });
                (Class::Adopt(*ttl, holder, is_limited), Some(key))
            }
            Request::Move { key, .. } => (Class::Move, Some(key)),
            Request::Accept { key, .. } => (Class::Accept, Some(key)),
            Request::Break { key, bars_repairs } => (Class::Break(*bars_repairs), Some(key)),
            Request::Inspect { key } => (Class::Inspect, Some(key)),
        }
    }
}

/// Requests that are one command.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<'a> {
    pub class: Class<'a>,
    /// The hash slot of their keys. 0 for all where there are no slots.
    slot: u16,
    /// Their places in the batch.
    pub members: Vec<usize>,
}

impl<'a> Group<'a> {
    /// A group for each of the requests.
    pub fn apart(self) -> impl Iterator<Item = Group<'a>> {
        let Self { class, slot, members } = self;
        members.into_iter().map(move |member| Group { class, slot, members: vec![member] })
    }
}

/// Gathers the requests of a batch into groups.
///
/// Requests on different keys may change places, so that a batch in which acquires and releases alternate, as they do
/// under load, is still a few calls. Requests on one key may not: a *stretch* of the batch in which they may has each
/// key in one class only, and ends where that would cease to be so.
///
/// A call to a node of a cluster (`in_cluster`) may only have keys of one slot.
pub fn groups(batch: &[Request], in_cluster: bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut keys = FxHashSet::default();
    // Where the stretch begins, in the batch and in the groups, and whether it has a second class, from where on its
    // keys are known. As long as it has one class only, which is common, it can do without knowing them.
    let (mut start, mut first_group, mut mixed) = (0, 0, false);
    for (index, request) in batch.iter().enumerate() {
        let (class, key) = Class::of(request);
        if !mixed && groups.len() > first_group && groups[first_group].class != class {
            mixed = true;
            keys.extend(batch[start..index].iter().filter_map(|request| Class::of(request).1));
        }
        if mixed && key.is_some_and(|key| !keys.insert(key)) {
            (start, first_group, mixed) = (index, groups.len(), false);
            keys.clear();
        }
        let look_back = first_group.max(groups.len().saturating_sub(LOOK_BACK));
        let slot = key.filter(|_| in_cluster).map_or(0, |key| slot_of(key));
        let fits =
            |group: &&mut Group<'_>| group.class == class && group.slot == slot && group.members.len() < MOST;
        match groups[look_back..].iter_mut().rev().find(fits) {
            Some(group) => group.members.push(index),
            None => groups.push(Group { class, slot, members: vec![index] }),
        }
    }
    groups
}

/// What makes a node of a cluster carry out the next command although it is still being given the slot.
const ASKING: &str = "ASKING";

/// The commands for `groups`, behind the scripts themselves if `load`, each behind an [`ASKING`] if `asking`. Those who
/// wait are sent notices over `channel`.
pub fn pipeline(
    batch: &[Request],
    groups: &[Group<'_>],
    load: bool,
    asking: bool,
    channel: Option<&str>,
) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(groups.len());
    if load {
        for command in SCRIPTS.load() {
            pipeline.add_command(command);
        }
    }
    for group in groups {
        if asking {
            pipeline.add_command(redis::cmd(ASKING));
        }
        pipeline.add_command(command(batch, group, channel));
    }
    pipeline
}

fn command(batch: &[Request], group: &Group<'_>, channel: Option<&str>) -> Cmd {
    let life = |ttl: Ttl| u64::from(ttl.as_millis()) + FENCE_LIFE.as_millis() as u64;
    let mut command;
    match group.class {
        // All of it: the server's role and whether it is loading are in two sections, and 6.2 takes one name.
        Class::Ping => return redis::cmd("INFO"),
        Class::Inspect => return call(batch, group, &SCRIPTS.inspect, Side::Fence, 0),
        Class::Release | Class::Break(_) => {
            let side = if group.members.len() == 1 { Side::Fence } else { Side::Queue };
            command = call(batch, group, &SCRIPTS.release, side, 1);
        }
        Class::Acquire(Terms { ttl, holder, mode, fences, queue, repairs }) => {
            command = call(batch, group, &SCRIPTS.acquire, Side::Fence, 1 + usize::from(queue));
            let most = match mode {
                Mode::Exclusive => 0,
                Mode::Shared { most } => most.max(1),
            };
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(holder).arg(most).arg(fences.max(1));
            command.arg(if repairs { REPAIR } else { channel.unwrap_or("-") });
        }
        Class::Renew(ttl, fences) => {
            command = call(batch, group, &SCRIPTS.renew, Side::Fence, 1);
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(life(ttl) + SLACK).arg(fences);
        }
        Class::Detach(ttl) => {
            command = call(batch, group, &SCRIPTS.renew, Side::Fence, 3);
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(life(ttl) + SLACK).arg(DETACH);
        }
        Class::Accept => {
            command = call(batch, group, &SCRIPTS.accept, Side::Fence, 3);
            command.arg(FENCE_LIFE.as_millis() as u64);
        }
        Class::Adopt(ttl, holder, is_limited) => {
            command = call(batch, group, &SCRIPTS.adopt, Side::Fence, 3);
            let ends = if is_limited { "noted" } else { "given" };
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(holder).arg(ends);
        }
        Class::Move => {
            command = call(batch, group, &SCRIPTS.adopt, Side::Fence, 3);
            command.arg(0).arg(FENCE_LIFE.as_millis() as u64).arg("").arg("kept");
        }
    }
    let mut buffer = [0; Token::LENGTH];
    let members = || group.members.iter().map(|&member| &batch[member]);
    for request in members() {
        if let Request::Acquire(Ask { token, .. })
        | Request::Renew { token, .. }
        | Request::Detach { token, .. }
        | Request::Release { token, .. }
        | Request::Adopt { token, .. }
        | Request::Move { token, .. }
        | Request::GiveBack { token, .. }
        | Request::Accept { token, .. } = request
        {
            command.write_arg(token.encode(&mut buffer).as_bytes());
        } else if let Request::Break { bars_repairs, .. } = request {
            command.write_arg(if *bars_repairs { b"*" } else { b"" });
        }
    }
    // What a lock has of its own besides comes behind the tokens of all.
    for request in members() {
        match request {
            Request::Acquire(Ask { place: Some(place), .. }) => drop(command.arg(place.number)),
            Request::Adopt { heir, .. } | Request::Move { to: heir, .. } => {
                command.write_arg(heir.encode(&mut buffer).as_bytes())
            }
            Request::Accept { fence, count, .. } => {
                let last = fence.last_of(*count);
                command.arg(format!("{:016}", last.0)).arg(last.0 - fence.0);
            }
            Request::Detach { fence, own_ttl, .. } => {
                command.arg(fence.0).arg(own_ttl.as_millis());
            }
            _ => {}
        }
    }
    for request in members() {
        match request {
            Request::Move { heir, .. } => command.write_arg(heir.encode(&mut buffer).as_bytes()),
            Request::Adopt { source: Source::Quorum(fence), .. } => drop(command.arg(fence.0)),
            Request::Adopt { .. } => drop(command.arg(0)),
            _ => {}
        }
    }
    command
}

/// The begin of a call: all locks, then beside each the key that the script wants. `own` words of each follow later.
fn call(batch: &[Request], group: &Group<'_>, script: &LockScript, side: Side, own: usize) -> Cmd {
    let count = group.members.len();
    // Room for all at once.
    let keys: usize = keys_of(batch, group).map(|key| key.len()).sum();
    let size = 256 + 2 * keys + count * (40 + own * Token::LENGTH);
    let mut command = Cmd::with_capacity(9 + count * (2 + own), size);
    command.arg("EVALSHA").arg(&script.hash).arg(count * 2);
    for key in keys_of(batch, group) {
        command.write_arg(key.as_bytes());
    }
    for key in keys_of(batch, group) {
        let mut words = command.writer_for_next_arg();
        for piece in side_key(key, side) {
            // Writing into memory does not fail.
            let _ = words.write_all(piece.as_bytes());
        }
    }
    command
}

fn keys_of<'a>(batch: &'a [Request], group: &Group<'_>) -> impl Iterator<Item = &'a Key> {
    group.members.iter().filter_map(|&member| Class::of(&batch[member]).1)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
