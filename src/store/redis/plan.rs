//! A batch of requests as a pipeline of script calls.

use std::io::Write;

use redis::{Cmd, Pipeline, RedisWrite};
use rustc_hash::FxHashSet;

use super::scripts::{FENCE_LIFE, LockScript, SCRIPTS, fence_key};
use crate::lease::{Key, Token, Ttl};
use crate::store::{Ask, Request};

/// The most requests in one script call: the server does nothing else meanwhile, and answers only when it is done.
const MOST: usize = 64;
/// How many groups back to look for one that a request fits into.
const LOOK_BACK: usize = 16;
/// By how many ms more a renewal prolongs the life of the fence key than it needs, so that few renewals have to.
const SLACK: u64 = 300_000;

/// Requests of one class go into one script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class<'a> {
    Ping,
    Acquire(Ttl, &'a str),
    Renew(Ttl),
    Release,
    Inspect,
}

impl<'a> Class<'a> {
    fn of(request: &'a Request) -> (Self, Option<&'a Key>) {
        match request {
            Request::Ping => (Class::Ping, None),
            Request::Acquire(ask) => (Class::Acquire(ask.ttl, &ask.holder), Some(&ask.key)),
            Request::Renew { key, ttl, .. } | Request::Detach { key, ttl, .. } => {
                (Class::Renew(*ttl), Some(key))
            }
            Request::Release { key, .. } | Request::Adopt { key, .. } => (Class::Release, Some(key)),
            Request::Inspect { key } => (Class::Inspect, Some(key)),
        }
    }
}

/// Requests that are one command.
#[derive(Debug, PartialEq, Eq)]
pub struct Group<'a> {
    pub class: Class<'a>,
    /// Their places in the batch.
    pub members: Vec<usize>,
}

impl<'a> Group<'a> {
    /// A group for each of the requests.
    pub fn apart(self) -> impl Iterator<Item = Group<'a>> {
        self.members.into_iter().map(move |member| Group { class: self.class, members: vec![member] })
    }
}

/// Gathers the requests of a batch into groups.
///
/// Requests on different keys may change places, so that a batch in which acquires and releases alternate, as they do
/// under load, is still a few calls. Requests on one key may not: a *stretch* of the batch in which they may has each
/// key in one class only, and ends where that would cease to be so.
pub fn groups(batch: &[Request]) -> Vec<Group<'_>> {
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
        let fits = |group: &&mut Group<'_>| group.class == class && group.members.len() < MOST;
        match groups[look_back..].iter_mut().rev().find(fits) {
            Some(group) => group.members.push(index),
            None => groups.push(Group { class, members: vec![index] }),
        }
    }
    groups
}

/// The commands for `groups`, behind the scripts themselves if `load`.
pub fn pipeline(batch: &[Request], groups: &[Group<'_>], load: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(groups.len());
    if load {
        for command in SCRIPTS.load() {
            pipeline.add_command(command);
        }
    }
    for group in groups {
        pipeline.add_command(command(batch, group));
    }
    pipeline
}

fn command(batch: &[Request], group: &Group<'_>) -> Cmd {
    let count = group.members.len();
    let call = |script: &LockScript, keys: usize, words: usize| {
        // Room for all at once: the words of a request are its keys and its token.
        let size: usize =
            group.members.iter().map(|&m| Class::of(&batch[m]).1.map_or(0, |key| key.len())).sum();
        let mut command =
            Cmd::with_capacity(6 + count * words, 128 + size * 2 * keys + count * (Token::LENGTH + 8));
        command.arg("EVALSHA").arg(&script.hash).arg(count * keys);
        for key in keys_of(batch, group) {
            command.write_arg(key.as_bytes());
        }
        if keys == 2 {
            for key in keys_of(batch, group) {
                let mut fence = command.writer_for_next_arg();
                for piece in fence_key(key) {
                    // Writing into memory does not fail.
                    let _ = fence.write_all(piece.as_bytes());
                }
            }
        }
        command
    };
    let life = |ttl: Ttl| u64::from(ttl.as_millis()) + FENCE_LIFE.as_millis() as u64;
    let mut command = match group.class {
        // All of it: the server's role and whether it is loading are in two sections, and 6.2 takes one name.
        Class::Ping => return redis::cmd("INFO"),
        Class::Inspect => return call(&SCRIPTS.inspect, 2, 2),
        Class::Release => call(&SCRIPTS.release, 1, 2),
        Class::Acquire(ttl, holder) => {
            let mut command = call(&SCRIPTS.acquire, 2, 3);
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(holder);
            command
        }
        Class::Renew(ttl) => {
            let mut command = call(&SCRIPTS.renew, 2, 3);
            command.arg(ttl.as_millis()).arg(life(ttl)).arg(life(ttl) + SLACK);
            command
        }
    };
    let mut buffer = [0; Token::LENGTH];
    for &member in &group.members {
        if let Request::Acquire(Ask { token, .. })
        | Request::Renew { token, .. }
        | Request::Detach { token, .. }
        | Request::Release { token, .. } = &batch[member]
        {
            command.write_arg(token.encode(&mut buffer).as_bytes());
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
