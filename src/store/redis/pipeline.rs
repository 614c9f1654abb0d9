//! Turns a batch of requests into a pipeline of script calls.

use std::collections::HashSet;
use std::io::Write;

use redis::{Cmd, Pipeline, RedisWrite};

use super::cluster::slot_of;
use super::scripts::{FENCE_LIFE, LockScript, SCRIPTS};
use super::side_keys::{Side, side_key};
use crate::lease::{Key, Mode, Token, Ttl};
use crate::store::{AcquireRequest, Request, Source};

/// The most requests in one script call. The server runs nothing else meanwhile, and answers only
/// when the call is done. If this is larger, other clients wait for longer; if it is smaller, a
/// large batch takes more calls.
const MOST: usize = 64;
/// How many of the last groups a request may join. If this is larger, forming groups takes longer;
/// if it is smaller, a batch takes more calls.
const LOOK_BACK: usize = 16;
/// The ms by which a renewal prolongs the life of a fence key beyond the need, so that most
/// renewals need not prolong it. If this is larger, fence keys of unused locks stay longer; if it
/// is smaller, more renewals write to the fence key.
const SLACK: u64 = 300_000;

/// The argument that makes `renew.lua` detach leases, in place of the number of fences.
const DETACH: &str = "-1";

/// Says what a request needs. Requests of the same class may share a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class<'a> {
    Ping,
    Acquire(SharedArguments<'a>),
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

/// The arguments that acquires must have in common to share a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedArguments<'a> {
    ttl: Ttl,
    holder: &'a str,
    mode: Mode,
    fences: u32,
    /// True if the acquires queue. Each has its own number of its place.
    queue: bool,
    /// See [`AcquireRequest::repairs`].
    repairs: bool,
}

impl<'a> Class<'a> {
    fn of(request: &'a Request) -> (Self, Option<&'a Key>) {
        match request {
            // Other commands, outside of the batch, answer diagnoses and listings.
            Request::Ping | Request::List(_) | Request::Diagnose { .. } => (Class::Ping, None),
            Request::Acquire(AcquireRequest { key, ttl, holder, mode, fences, place, repairs, .. }) => {
                let (ttl, mode, fences, queue) = (*ttl, *mode, *fences, place.is_some());
                let terms = SharedArguments { ttl, holder, mode, fences, queue, repairs: *repairs };
                (Class::Acquire(terms), Some(key))
            }
            Request::Renew { key, ttl, fences, .. } => (Class::Renew(*ttl, *fences), Some(key)),
            // The server does not know about processes: a lease ends by its ttl in any case.
            Request::Detach { key, ttl, .. } => (Class::Detach(*ttl), Some(key)),
            // A release need not give fences back: each key has a counter of its own, and
            // reservations advance it much more slowly than the clock does.
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

/// Requests that share one command.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<'a> {
    pub class: Class<'a>,
    /// The hash slot of their keys. 0 outside of a cluster.
    slot: u16,
    /// Their places in the batch.
    pub members: Vec<usize>,
}

impl<'a> Group<'a> {
    /// Returns a group for each of the requests.
    pub fn apart(self) -> impl Iterator<Item = Group<'a>> {
        let Self { class, slot, members } = self;
        members.into_iter().map(move |member| Group { class, slot, members: vec![member] })
    }
}

/// Gathers the requests of a batch into groups.
///
/// Under load, acquires and releases alternate in a batch. To make few calls of such a batch, this
/// function changes the order of requests on different keys. Requests on one key keep their order:
/// the function divides the batch into *stretches*, and changes the order only within a stretch. In
/// a stretch, each key occurs in one class only. A stretch with several classes ends before the
/// next request on one of its keys.
///
/// If `in_cluster` is true, all keys of a group are in one slot, because a node of a cluster
/// accepts no other calls.
pub fn groups(batch: &[Request], in_cluster: bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut keys = HashSet::new();
    // The beginning of the stretch in the batch and in the groups, and whether the stretch has a
    // second class. Most batches have one class only. So the keys are collected only when a second
    // class occurs.
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

/// The command that makes a node of a cluster carry out the next command, although the node is
/// still importing the slot.
const ASKING: &str = "ASKING";

/// Returns the commands for `groups`. If `load` is true, the scripts come first. If `asking` is
/// true, an [`ASKING`] comes before each command. Waiters get notices over `channel`. With
/// `needs_replicas`, the notices have no fence, so that the waiter asks for the lease and replicas
/// get it.
pub fn pipeline(
    batch: &[Request],
    groups: &[Group<'_>],
    load: bool,
    asking: bool,
    channel: Option<&str>,
    needs_replicas: bool,
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
        pipeline.add_command(command(batch, group, channel, needs_replicas));
    }
    pipeline
}

fn command(batch: &[Request], group: &Group<'_>, channel: Option<&str>, needs_replicas: bool) -> Cmd {
    let life = |ttl: Ttl| u64::from(ttl.as_millis()) + FENCE_LIFE.as_millis() as u64;
    let mut command;
    match group.class {
        // Ask for all sections: the role and the loading state are in two of them, and Redis 6.2
        // accepts only one name.
        Class::Ping => return redis::cmd("INFO"),
        Class::Inspect => return call(batch, group, &SCRIPTS.inspect, Side::Fence, 0),
        Class::Release | Class::Break(_) => {
            let side = if group.members.len() == 1 { Side::Fence } else { Side::Queue };
            command = call(batch, group, &SCRIPTS.release, side, 1);
        }
        Class::Acquire(SharedArguments { ttl, holder, mode, fences, queue, repairs }) => {
            command = call(batch, group, &SCRIPTS.acquire, Side::Fence, 1 + usize::from(queue));
            let most = match mode {
                Mode::Exclusive => 0,
                Mode::Shared { most } => most.max(1),
            };
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(holder).arg(most).arg(fences.max(1));
            command.arg(channel.unwrap_or("-")).arg(u8::from(needs_replicas)).arg(u8::from(repairs));
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
            command = call(batch, group, &SCRIPTS.adopt, Side::Fence, 4);
            command.arg(0).arg(FENCE_LIFE.as_millis() as u64).arg("").arg("kept");
        }
    }
    let mut buffer = [0; Token::LENGTH];
    let members = || group.members.iter().map(|&member| &batch[member]);
    for request in members() {
        if let Request::Acquire(AcquireRequest { token, .. })
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
    // After the tokens of all locks, their other arguments follow.
    for request in members() {
        match request {
            Request::Acquire(AcquireRequest { place: Some(place), .. }) => drop(command.arg(place.number)),
            Request::Adopt { adopter, .. } | Request::Move { to: adopter, .. } => {
                command.write_arg(adopter.encode(&mut buffer).as_bytes())
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
            Request::Move { adopter, .. } => command.write_arg(adopter.encode(&mut buffer).as_bytes()),
            Request::Adopt { source: Source::Quorum(fence), .. } => drop(command.arg(fence.0)),
            Request::Adopt { .. } => drop(command.arg(0)),
            _ => {}
        }
    }
    for request in members() {
        if let Request::Move { most, .. } = request {
            let most = most.map_or(0, |most| most.as_micros().div_ceil(1_000).max(1));
            command.arg(most as u64);
        }
    }
    command
}

/// Returns the beginning of a call: all locks, then for each lock the side key that the script
/// needs. The caller adds `own` arguments for each lock.
fn call(batch: &[Request], group: &Group<'_>, script: &LockScript, side: Side, own: usize) -> Cmd {
    let count = group.members.len();
    // Allocate the memory for the whole command at once. This is a hint only: a command with more
    // arguments grows.
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
            // Writing to memory does not fail.
            let _ = words.write_all(piece.as_bytes());
        }
    }
    command
}

fn keys_of<'a>(batch: &'a [Request], group: &Group<'_>) -> impl Iterator<Item = &'a Key> {
    group.members.iter().filter_map(|&member| Class::of(&batch[member]).1)
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
