//! Tests adoptions by several heirs over the same nodes. Each heir has its own council, and its own
//! distances to the nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use super::*;
use crate::store::memory::LeaseTable;
use crate::store::{LockInfo, Source};

pub(super) const TTL: u32 = 20_000;
pub(super) const KEY: &str = "k";

pub(super) fn ttl() -> Ttl {
    Ttl::from_millis(TTL).unwrap()
}

/// A message on its way: a request of an heir to a node, or the answer.
enum Parcel {
    Request(usize, Call),
    Answer(usize, u64, Vec<Answer>),
}

/// Simulates heirs, nodes, and the network between them.
pub(super) struct Sites {
    pub(super) now: Instant,
    pub(super) councils: Vec<Council>,
    pub(super) nodes: Vec<LeaseTable>,
    /// The nodes that refuse connections.
    pub(super) down: Vec<usize>,
    /// The nodes that never answer.
    pub(super) silent: Vec<usize>,
    /// An heir that does nothing, and gets no answers, for now.
    pub(super) frozen: Option<usize>,
    /// Returns how long a message between an heir and a node takes, in µs.
    distance: Box<dyn Fn(usize, usize) -> u64>,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    parcels: FxHashMap<u64, Parcel>,
    serial: u64,
    answers: FxHashMap<(usize, u64), Vec<Answer>>,
}

impl Sites {
    pub(super) fn new(heirs: usize, nodes: usize, distance: impl Fn(usize, usize) -> u64 + 'static) -> Self {
        let names = || (0..nodes).map(|node| format!("n{node}").into()).collect();
        Self {
            now: Instant::from_micros(1_000_000_000),
            councils: (0..heirs).map(|heir| Council::new(names(), heir as u64 + 1)).collect(),
            nodes: (0..nodes).map(|_| LeaseTable::default()).collect(),
            down: Vec::new(),
            silent: Vec::new(),
            frozen: None,
            distance: Box::new(distance),
            queue: BinaryHeap::new(),
            parcels: FxHashMap::default(),
            serial: 0,
            answers: FxHashMap::default(),
        }
    }

    /// Creates sites where each heir is near to the node of its own number, and far from the
    /// others.
    pub(super) fn scattered(heirs: usize, nodes: usize) -> Self {
        Self::new(heirs, nodes, |heir, node| if heir == node { 500 } else { 20_000 })
    }

    /// Grants `token` a lease at every node.
    pub(super) fn grant(&mut self, token: Token, mode: Mode) {
        for node in &mut self.nodes {
            let ask = Ask { mode, ..Ask::new(KEY.into(), token, ttl(), "first".into()) };
            let granted = node.apply(Request::Acquire(ask), self.now, 1);
            assert!(matches!(granted, Ok(Reply::Acquired { .. })), "{granted:?}");
            let accept = Request::Accept { key: KEY.into(), token, fence: Fence(77), count: 1 };
            assert_eq!(node.apply(accept, self.now, 1).unwrap(), Reply::Accepted);
        }
    }

    fn put(&mut self, after: u64, parcel: Parcel) {
        self.serial += 1;
        self.queue.push(Reverse((self.now + Duration::from_micros(after), self.serial)));
        self.parcels.insert(self.serial, parcel);
    }

    pub(super) fn ask(&mut self, heir: usize, batch: u64, request: Request) {
        self.councils[heir].submit(self.now, batch, vec![request], Duration::from_secs(2));
        self.gather(heir);
    }

    pub(super) fn adopt(&mut self, who: usize, batch: u64, ticket: Token, heir: Token) {
        self.ask(who, batch, adopt(ticket, heir));
    }

    fn gather(&mut self, heir: usize) {
        let effects = self.councils[heir].take_effects();
        for call in effects.calls {
            let (node, count, timeout) = (call.node, call.requests.len(), call.timeout.as_micros() as u64);
            let refused = StoreError::not_done(StoreErrorKind::Unreachable, "down");
            let late = StoreError::maybe_done(StoreErrorKind::TimedOut, "late");
            if self.down.contains(&node) {
                self.put(100, Parcel::Answer(heir, call.id, vec![Err(refused); count]));
            } else if self.silent.contains(&node) {
                self.put(timeout, Parcel::Answer(heir, call.id, vec![Err(late); count]));
            } else {
                self.put((self.distance)(heir, node), Parcel::Request(heir, call));
            }
        }
        self.answers.extend(effects.answers.into_iter().map(|(batch, answers)| ((heir, batch), answers)));
    }

    /// Lets `ms` milliseconds pass.
    pub(super) fn live(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        loop {
            let parcel = self.queue.peek().map(|Reverse((at, _))| *at);
            let frozen = self.frozen;
            let awake = (0..self.councils.len()).filter(|who| frozen != Some(*who));
            let wake = awake.clone().filter_map(|who| self.councils[who].next_wake()).min();
            let Some(next) = [parcel, wake].into_iter().flatten().min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            for heir in awake {
                self.councils[heir].tick(self.now);
                self.gather(heir);
            }
            if parcel.is_some_and(|at| at <= self.now) {
                let Reverse((_, serial)) = self.queue.pop().unwrap();
                match self.parcels.remove(&serial).unwrap() {
                    Parcel::Request(heir, Call { id, node, requests, .. }) => {
                        let now = self.now;
                        let answers: Vec<Answer> =
                            requests.into_iter().map(|r| self.nodes[node].apply(r, now, 1)).collect();
                        self.put((self.distance)(heir, node), Parcel::Answer(heir, id, answers));
                    }
                    late @ Parcel::Answer(..) if matches!(late, Parcel::Answer(who, ..) if self.frozen == Some(who)) =>
                    {
                        self.put(1_000, late);
                    }
                    Parcel::Answer(heir, id, answers) => {
                        self.councils[heir].answered(self.now, id, answers);
                        self.gather(heir);
                    }
                }
            }
        }
        self.now = end;
    }

    pub(super) fn settled(&mut self, heir: usize, batch: u64) -> Answer {
        let mut answers = self.answers.remove(&(heir, batch)).expect("the batch is settled");
        answers.remove(0)
    }

    /// Returns true if the first batch of `heir` adopted the lease.
    pub(super) fn has_adopted(&self, heir: usize) -> bool {
        self.answers.get(&(heir, 1)).is_some_and(|answers| answers[0].as_ref().is_ok_and(Reply::is_adopted))
    }

    /// Returns the heir that adopted the lease. Fails unless all other heirs got the answer
    /// `Taken`.
    pub(super) fn winner(&mut self, heirs: usize) -> usize {
        let replies: Vec<Answer> = (0..heirs).map(|heir| self.settled(heir, 1)).collect();
        let adopted: Vec<usize> =
            (0..heirs).filter(|heir| replies[*heir].as_ref().is_ok_and(Reply::is_adopted)).collect();
        assert_eq!(adopted.len(), 1, "{replies:?}");
        let told = replies.iter().filter(|reply| **reply == Ok(Reply::NotHeld(Absence::Taken))).count();
        assert_eq!(told, heirs - 1, "{replies:?}");
        adopted[0]
    }

    /// Lets the heirs adopt, and try again as long as they get an error.
    pub(super) fn adopt_until_told(
        &mut self,
        heirs: Range<usize>,
        ticket: Token,
        tokens: &[Token],
    ) -> Vec<Reply> {
        let mut told = BTreeMap::new();
        for batch in 1..=4 {
            let open: Vec<usize> = heirs.clone().filter(|heir| !told.contains_key(heir)).collect();
            open.iter().for_each(|heir| self.adopt(*heir, batch, ticket, tokens[*heir]));
            self.live(2_000);
            for heir in open {
                match self.settled(heir, batch) {
                    Ok(reply) => drop(told.insert(heir, reply)),
                    Err(error) => {
                        assert!(matches!(error.kind, StoreErrorKind::Quorum | StoreErrorKind::TimedOut))
                    }
                }
            }
        }
        assert_eq!(told.len(), heirs.len(), "{told:?}");
        told.into_values().collect()
    }

    pub(super) fn held_by(&mut self, node: usize) -> Option<LockInfo> {
        let now = self.now;
        match self.nodes[node].apply(Request::Inspect { key: KEY.into() }, now, 1) {
            Ok(Reply::Inspected(info)) => info,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn adopt(ticket: Token, heir: Token) -> Request {
    adopt_with_fence(ticket, heir, Fence(77))
}

pub(super) fn adopt_with_fence(ticket: Token, heir: Token, fence: Fence) -> Request {
    let (key, holder) = (KEY.into(), "heir".into());
    Request::Adopt {
        key,
        token: ticket,
        heir,
        ttl: ttl(),
        holder,
        outlives_process: false,
        source: Source::Ticket { fence, with_ttl: false },
    }
}

pub(super) fn give_back(token: Token, ticket: Token) -> Request {
    Request::GiveBack { key: KEY.into(), token, ticket }
}

pub(super) fn tokens(count: usize) -> Vec<Token> {
    (0..count).map(|_| Token::random()).collect()
}

#[test]
fn three_heirs_that_are_each_near_to_another_node_adopt_exactly_once() {
    for _ in 0..200 {
        let (mut sites, ticket, heirs) = (Sites::scattered(3, 3), Token::random(), tokens(3));
        sites.grant(ticket, Mode::Exclusive);
        (0..3).for_each(|who| sites.adopt(who, 1, ticket, heirs[who]));
        sites.live(2_000);
        let winner = sites.winner(3);
        let release = Request::Release { key: KEY.into(), token: heirs[winner], used: None };
        sites.ask(winner, 2, release);
        sites.live(10_000);
        assert_eq!(sites.settled(winner, 2), Ok(Reply::Released));
        assert!(sites.councils.iter().all(|council| council.concerns() == 0));
    }
}

#[test]
fn heirs_of_a_shared_lease_adopt_exactly_once() {
    let mode = Mode::Shared { most: u32::MAX };
    for _ in 0..100 {
        let (mut sites, ticket, heirs) = (Sites::scattered(3, 3), Token::random(), tokens(3));
        sites.grant(Token::random(), mode);
        sites.grant(ticket, mode);
        (0..3).for_each(|who| sites.adopt(who, 1, ticket, heirs[who]));
        sites.live(2_000);
        sites.winner(3);
        sites.live(10_000);
        assert!((0..3).filter(|node| sites.held_by(*node).unwrap().leases.len() == 2).count() >= 2);
    }
}

#[test]
fn two_heirs_adopt_exactly_once_while_a_node_is_down_or_silent() {
    for silent in [false, true] {
        for _ in 0..100 {
            let (mut sites, ticket, heirs) = (Sites::scattered(2, 3), Token::random(), tokens(2));
            sites.grant(ticket, Mode::Exclusive);
            if silent { &mut sites.silent } else { &mut sites.down }.push(2);
            (0..2).for_each(|who| sites.adopt(who, 1, ticket, heirs[who]));
            sites.live(2_000);
            sites.winner(2);
        }
    }
}

#[test]
fn five_heirs_adopt_exactly_once_over_five_nodes_of_which_two_are_gone() {
    for _ in 0..50 {
        let mut sites = Sites::new(5, 5, |heir, node| [300, 4_000, 30_000][(heir + node) % 3]);
        let (ticket, heirs) = (Token::random(), tokens(5));
        sites.grant(ticket, Mode::Exclusive);
        (sites.down, sites.silent) = (vec![1], vec![3]);
        (0..5).for_each(|who| sites.adopt(who, 1, ticket, heirs[who]));
        sites.live(2_000);
        sites.winner(5);
    }
}

#[test]
fn an_heir_alone_takes_two_round_trips_and_keeps_the_fence() {
    let (mut sites, ticket, heir) = (Sites::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    sites.adopt(0, 1, ticket, heir);
    sites.live(4);
    assert!(sites.settled(0, 1).unwrap().is_adopted());
    for node in 0..3 {
        let lease = &sites.held_by(node).unwrap().leases[0];
        assert_eq!((lease.holder.as_deref(), lease.fence), (Some("heir"), Some(Fence(77))));
    }
    assert_eq!((sites.councils[0].concerns(), sites.councils[0].next_wake()), (0, None));
}

#[test]
fn an_heir_gives_the_fence_to_a_node_that_lacks_it() {
    let (mut sites, ticket, heir) = (Sites::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    // This node got the lease back for the ticket, and has not accepted its fence.
    let (ask, now) = (Ask::new(KEY.into(), ticket, ttl(), "first".into()), sites.now);
    sites.nodes[2] = LeaseTable::default();
    assert_eq!(
        sites.nodes[2].apply(Request::Acquire(ask), now, 1),
        Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })
    );
    sites.ask(0, 1, adopt_with_fence(ticket, heir, Fence(77)));
    sites.live(10);
    assert!(sites.settled(0, 1).unwrap().is_adopted());
    sites.ask(0, 2, Request::Renew { key: KEY.into(), token: heir, ttl: ttl(), fences: 0 });
    sites.live(10);
    assert_eq!(sites.settled(0, 2), Ok(Reply::Renewed { block: None }));
    assert_eq!(sites.held_by(2).unwrap().leases[0].fence, Some(Fence(77)));
    assert_eq!((sites.councils[0].concerns(), sites.councils[0].next_wake()), (0, None));
}

#[test]
fn what_is_left_of_a_dead_claimant_does_not_stop_the_others() {
    // The dead heir has the smallest mark, so the other two give way to it again and again.
    let dead = Token::parse("00000000-1234-4321-8123-123456789012").unwrap();
    for _ in 0..20 {
        let (mut sites, ticket, heirs) = (Sites::scattered(2, 3), Token::random(), tokens(2));
        sites.grant(ticket, Mode::Exclusive);
        kill_between_rounds(&mut sites, ticket, dead, &[2], &[]);
        (0..2).for_each(|who| sites.adopt(who, 1, ticket, heirs[who]));
        sites.live(2_000);
        sites.winner(2);
    }
}

/// Creates an heir that was killed between its two rounds: it has claimed `claimed` of the nodes
/// and confirmed `confirmed` of them.
pub(super) fn kill_between_rounds(
    sites: &mut Sites,
    ticket: Token,
    dead: Token,
    claimed: &[usize],
    confirmed: &[usize],
) {
    let (now, to) = (sites.now, Token::claim(ticket, dead));
    for node in claimed {
        let claim = Request::Move { key: KEY.into(), token: ticket, to, heir: dead };
        assert!(sites.nodes[*node].apply(claim, now, 1).unwrap().is_adopted());
    }
    for node in confirmed {
        assert!(sites.nodes[*node].apply(adopt(to, dead), now, 1).unwrap().is_adopted());
    }
}

#[test]
fn an_heir_that_was_killed_between_its_rounds_does_not_block_the_ticket() {
    let smallest = Token::parse("00000000-1234-4321-8123-123456789012").unwrap();
    let largest = Token::parse("ffffffff-1234-4321-8123-123456789012").unwrap();
    for dead in [smallest, largest] {
        for (claimed, confirmed) in [(&[0, 1, 2][..], &[][..]), (&[0, 1], &[]), (&[0, 1, 2], &[1])] {
            for heirs in 1..=3 {
                let (mut sites, ticket) = (Sites::scattered(heirs, 3), Token::random());
                sites.grant(ticket, Mode::Exclusive);
                kill_between_rounds(&mut sites, ticket, dead, claimed, confirmed);
                let answers = sites.adopt_until_told(0..heirs, ticket, &tokens(heirs));
                let adopted = answers.iter().filter(|answer| answer.is_adopted()).count();
                assert_eq!(adopted, 1, "{answers:?}");
            }
        }
    }
}

#[test]
fn a_claim_that_was_taken_over_can_not_be_confirmed_any_more() {
    // The first heir is frozen between its rounds, and goes on when the second one has adopted.
    let (mut sites, ticket, heirs) = (Sites::scattered(2, 3), Token::random(), tokens(2));
    sites.grant(ticket, Mode::Exclusive);
    sites.adopt(0, 1, ticket, heirs[0]);
    let claim = sites.parcels.values().find_map(|parcel| match parcel {
        Parcel::Request(_, Call { requests, .. }) => match requests[0] {
            Request::Move { to, .. } => Some(to),
            _ => None,
        },
        Parcel::Answer(..) => None,
    });
    sites.frozen = Some(0);
    assert!(sites.adopt_until_told(1..2, ticket, &heirs)[0].is_adopted());
    let now = sites.now;
    let late = sites.nodes[0].apply(adopt(claim.unwrap(), heirs[0]), now, 1);
    assert_eq!(late, Ok(Reply::NotHeld(Absence::Taken)));
    sites.frozen = None;
    sites.live(2_000);
    assert!(!sites.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
}

#[test]
fn an_heir_that_gives_up_leaves_the_ticket_to_others() {
    for after in [0, 1, 30, 50, 70, 90, 200] {
        let (mut sites, ticket, heirs) = (Sites::scattered(2, 3), Token::random(), tokens(2));
        sites.grant(ticket, Mode::Exclusive);
        sites.adopt(0, 1, ticket, heirs[0]);
        sites.live(after);
        sites.ask(0, 2, give_back(heirs[0], ticket));
        sites.live(500);
        assert!(sites.settled(0, 2).is_ok());
        sites.live(6_000);
        let info = sites.held_by(1).expect("the ticket still holds the lock");
        assert!(info.leases[0].remaining <= Some(ttl().as_duration()));
        sites.adopt(1, 1, ticket, heirs[1]);
        sites.live(2_000);
        assert!(sites.settled(1, 1).unwrap().is_adopted(), "given up after {after} ms");
        assert_eq!(sites.councils[0].concerns(), 0);
    }
}

#[test]
fn who_loses_gives_its_nodes_back_to_the_ticket() {
    // Another heir has got nodes 1 and 2, and is giving its nodes back. It has done so at node 0.
    let (mut sites, ticket) = (Sites::new(1, 4, |_, _| 1_000), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    let now = sites.now;
    for node in [1, 2] {
        assert!(sites.nodes[node].apply(adopt(ticket, Token::random()), now, 1).unwrap().is_adopted());
    }
    sites.adopt(0, 1, ticket, Token::random());
    sites.live(1_000);
    assert_eq!(sites.settled(0, 1), Ok(Reply::NotHeld(Absence::Taken)));
    for node in [0, 3] {
        let renew = Request::Renew { key: KEY.into(), token: ticket, ttl: ttl(), fences: 0 };
        let (now, renewed) = (sites.now, Ok(Reply::Renewed { block: None }));
        assert_eq!(sites.nodes[node].apply(renew, now, 1), renewed, "node {node} may go to a stranger");
    }
}

#[test]
fn who_loses_does_not_prolong_the_ticket() {
    let (mut sites, ticket) = (Sites::scattered(1, 3), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    sites.down = vec![0, 2];
    sites.live(15_000);
    sites.adopt(0, 1, ticket, Token::random());
    sites.live(2_000);
    assert_eq!(sites.settled(0, 1).unwrap_err().kind, StoreErrorKind::Quorum);
    let left = sites.held_by(1).unwrap().leases[0].remaining.unwrap();
    assert_eq!(left, Duration::from_millis(u64::from(TTL) - 17_000));
}

#[test]
fn the_same_heir_may_try_again_when_its_second_round_got_no_answer() {
    for after in [21, 41, 42, 61] {
        let (mut sites, ticket, heir) = (Sites::scattered(1, 3), Token::random(), Token::random());
        sites.grant(ticket, Mode::Exclusive);
        sites.adopt(0, 1, ticket, heir);
        sites.live(after);
        // The requests of the heir arrive, but the answers that are on their way are lost.
        let lost: Vec<u64> =
            sites.parcels.iter().filter(|(_, p)| matches!(p, Parcel::Answer(..))).map(|p| *p.0).collect();
        for serial in lost {
            let Some(Parcel::Answer(who, id, answers)) = sites.parcels.remove(&serial) else {
                unreachable!()
            };
            let late = StoreError::maybe_done(StoreErrorKind::TimedOut, "late");
            sites.parcels.insert(serial, Parcel::Answer(who, id, vec![Err(late); answers.len()]));
        }
        sites.live(2_500);
        let first = sites.settled(0, 1);
        sites.adopt(0, 2, ticket, heir);
        sites.live(2_500);
        assert!(sites.settled(0, 2).unwrap().is_adopted(), "after {after} ms, and {first:?}");
    }
}

#[test]
fn a_ticket_that_most_nodes_do_not_know_is_told_at_once() {
    let (mut sites, ticket) = (Sites::new(1, 3, |_, _| 1_000), Token::random());
    sites.adopt(0, 1, ticket, Token::random());
    sites.live(3);
    assert_eq!(sites.settled(0, 1), Ok(Reply::NotHeld(Absence::Missing)));
    sites.grant(Token::random(), Mode::Exclusive);
    sites.adopt(0, 2, ticket, Token::random());
    sites.live(3);
    assert_eq!(sites.settled(0, 2), Ok(Reply::NotHeld(Absence::Taken)));
    sites.live(5_000);
    assert_eq!((sites.councils[0].concerns(), sites.councils[0].next_wake()), (0, None));
}

#[test]
fn who_meets_other_heirs_for_all_of_its_time_is_told_that_its_time_is_over() {
    let (mut sites, ticket) = (Sites::scattered(1, 3), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    kill_between_rounds(&mut sites, ticket, Token::random(), &[1, 2], &[]);
    sites.adopt(0, 1, ticket, Token::random());
    sites.live(3_000);
    let error = sites.settled(0, 1).unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, true));
    assert!(error.message.contains("adopt the ticket again"), "{}", error.message);
}
