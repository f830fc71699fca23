//! A fleet of nodes on one store in virtual time: the real nodes, a simulated network.
//!
//! A trip takes 0.25 to 1 ms each way. Clocks of nodes start anywhere and run up to 200 millionths
//! too fast or too slow. Requests of a node come evenly. A meter checks each use of all nodes
//! together.

mod demand;
mod network;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::node::{LeaseDecision, LeaseNode};
use crate::terms::LeaseTerms;
use tollgate::algebra::{Bucket, Units};
use tollgate::backend::Key;
use tollgate::clock::Timestamp;
use tollgate::{Quota, SECOND};
use tollgate_conformance::dice::Dice;

use self::network::Message;
use super::store::VirtualStore;

/// How requests come to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// The same to each.
    Even,
    /// The second gets half of what the first gets, the third a third.
    Zipf,
    /// As that, with other ranks and some idle nodes every half second.
    Jumps,
    /// One asks for 1.5 quotas, all others for half a quota together.
    Hog,
    /// Nearly nothing, nothing, six quotas, nearly one, a quarter of a second each.
    Pulse,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Each node crashes every 20 s and is away for 0.2 s.
    pub(super) crashes: bool,
    /// A tenth of the nodes is cut off, others each half second.
    pub(super) partitions: bool,
    /// One message of a hundred is lost.
    pub(super) losses: bool,
    /// One message of a hundred is late, by up to 0.8 s.
    pub(super) delays: bool,
}

impl Faults {
    pub(super) const ALL: Self =
        Self { crashes: true, partitions: true, losses: true, delays: true };
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet {
    pub(super) nodes: usize,
    pub(super) pattern: Pattern,
    pub(super) faults: Faults,
    pub(super) is_window: bool,
    /// Tokens a second, which is also the capacity.
    pub(super) rate: u64,
    /// Demand in hundredths of the quota.
    pub(super) load: u64,
    /// Costs are from 1 to this.
    pub(super) largest_cost: u64,
    pub(super) millis: i64,
    pub(super) seed: u64,
}

impl Fleet {
    pub(super) const fn new(nodes: usize, pattern: Pattern) -> Self {
        let faults = Faults { crashes: false, partitions: false, losses: false, delays: false };
        let (rate, load, largest_cost) = (1_000_000, 200, 1);
        let (is_window, millis, seed) = (false, 4_000, 1);
        Self { nodes, pattern, faults, is_window, rate, load, largest_cost, millis, seed }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetReport {
    /// Tokens used after the warm-up, as a part of those gained.
    pub(super) share_used: f64,
    /// The most tokens above the bound in any window; below zero if there was room.
    pub(super) excess: f64,
    /// Calls of the store in 1,000 decisions.
    pub(super) trips: f64,
    /// What the node with the smallest part of its fair share got of that.
    pub(super) fairness: f64,
    pub(super) decisions: u64,
}

struct Host {
    node: LeaseNode,
    /// How often it was started.
    life: u32,
    down_until: i64,
    offset: i64,
    millionths: i64,
    /// In thousandths of a request a microsecond, and what is left of one.
    demand: f64,
    begun: f64,
    waiting: Vec<(Units, i64)>,
    got: f64,
    fair: f64,
    ticked: i64,
}

impl Host {
    fn clock(&self, at: i64) -> Timestamp {
        Timestamp::from_micros(self.offset + at + at * self.millionths / 1_000_000)
    }
}

struct Simulation {
    fleet: Fleet,
    terms: LeaseTerms,
    key: Key,
    store: VirtualStore,
    hosts: Vec<Host>,
    dice: Dice,
    messages: BinaryHeap<Reverse<(i64, u64, usize)>>,
    letters: Vec<Option<Message>>,
    sent: u64,
    trips: u64,
    decisions: u64,
    uses: Vec<(i64, usize, Units)>,
    meter: i64,
    metered: Timestamp,
    worst: i64,
    used: f64,
    cut_off: Vec<bool>,
    level: f64,
}

const EPOCH: i64 = 1_000_000_000_000_000;
const SLOT: i64 = 250;
const DEADLINE: i64 = 50_000;

/// Plays a fleet.
pub(super) fn play(fleet: Fleet) -> FleetReport {
    let quota = match fleet.is_window {
        true => Quota::fixed_window(fleet.rate, SECOND).start(Timestamp::from_micros(EPOCH)),
        false => Quota::token_bucket(fleet.rate, SECOND),
    };
    let bucket = Bucket::new(&quota).unwrap();
    let terms = LeaseTerms::new(&bucket).unwrap();
    let mut dice = Dice(fleet.seed);
    let start = Timestamp::from_micros(EPOCH);
    let hosts = (0..fleet.nodes).map(|nth| {
        let (offset, millionths) = (dice.below(1_000_000_000) as i64, dice.below(401) as i64 - 200);
        let now = Timestamp::from_micros(offset);
        let node = LeaseNode::new(&terms, now, fleet.seed * 1_000 + nth as u64);
        let (demand, begun, got, fair) = (0.0, 0.0, 0.0, 0.0);
        let (life, down_until, waiting, ticked) = (0, 0, Vec::new(), 0);
        Host {
            node,
            life,
            down_until,
            offset,
            millionths,
            demand,
            begun,
            waiting,
            got,
            fair,
            ticked,
        }
    });
    let hosts = hosts.collect();
    Simulation {
        fleet,
        terms,
        key: Key::GLOBAL,
        store: VirtualStore::new(start),
        hosts,
        dice,
        messages: BinaryHeap::new(),
        letters: Vec::new(),
        sent: 0,
        trips: 0,
        decisions: 0,
        uses: Vec::new(),
        meter: 0,
        metered: start,
        worst: i64::MIN,
        used: 0.0,
        cut_off: vec![false; fleet.nodes],
        level: 0.0,
    }
    .run()
}

impl Simulation {
    fn run(mut self) -> FleetReport {
        let end = self.fleet.millis * 1_000;
        let warm = if self.fleet.is_window { 1_000_000 } else { 1_500_000 };
        self.set_demand(0);
        let mut at = 0;
        while at < end {
            self.disturb(at);
            while let Some(Reverse((due, _, letter))) = self.messages.peek().copied()
                && due <= at
            {
                self.messages.pop();
                if let Some(message) = self.letters[letter].take() {
                    self.deliver(message, due);
                }
            }
            for host in 0..self.hosts.len() {
                self.serve(host, at);
                if at >= warm {
                    let host = &mut self.hosts[host];
                    host.fair += host.demand.min(self.level) * SLOT as f64;
                }
            }
            self.count_uses(warm);
            at += SLOT;
        }
        let gained = self.fleet.rate as f64 * (end - warm) as f64 / 1e6;
        let token = self.terms.token() as f64;
        let capacity = self.terms.limit().capacity();
        let ratios = self.hosts.iter().filter(|host| host.fair > 50.0);
        let fairness = ratios.map(|host| host.got / host.fair).fold(f64::INFINITY, f64::min);
        FleetReport {
            share_used: self.used / gained,
            excess: (self.worst - capacity) as f64 / token,
            trips: 1_000.0 * self.trips as f64 / self.decisions as f64,
            fairness,
            decisions: self.decisions,
        }
    }

    /// The requests of one slot of a node.
    fn serve(&mut self, nth: usize, at: i64) {
        let host = &mut self.hosts[nth];
        if host.down_until > at {
            return;
        }
        if at - host.ticked >= 10_000 {
            host.ticked = at;
            let now = host.clock(at);
            if host.node.has_lots(now) {
                host.node.tick(&self.terms, now);
                if let Some(back) = host.node.give_back(&self.terms, now) {
                    self.send(at, Message::Return(back), nth);
                }
            }
        }
        let host = &mut self.hosts[nth];
        let mean = (self.fleet.largest_cost as f64 + 1.0) / 2.0;
        host.begun += host.demand * SLOT as f64 / mean;
        let count = host.begun as i64;
        host.begun -= count as f64;
        for request in 0..count {
            let cost = 1 + self.dice.below(self.fleet.largest_cost);
            let cost = cost as Units * self.terms.token();
            self.decisions += 1;
            self.request(nth, cost, at + request * SLOT / count, None);
        }
    }

    /// As the driver does: decides, and sends what follows.
    fn request(&mut self, nth: usize, cost: Units, at: i64, since: Option<i64>) {
        let (terms, host) = (self.terms, &mut self.hosts[nth]);
        let now = host.clock(at);
        let (decision, is_slot_over) = match since {
            None => host.node.decide(&terms, cost, now),
            Some(_) => (host.node.decide_again(&terms, cost, now), false),
        };
        match decision {
            LeaseDecision::Paid { .. } => self.uses.push((at, nth, cost)),
            LeaseDecision::Refused { wait } => assert!(wait > 0, "a refusal has a wait"),
            LeaseDecision::Failing => {}
            LeaseDecision::Single => {
                let (node, life, back) = (nth, host.life, self.delay());
                let message =
                    Message::Single { node, life, units: cost, sent: now, back, is_lost: false };
                self.send(at, message, nth);
            }
            LeaseDecision::Wait => host.waiting.push((cost, since.unwrap_or(at))),
        }
        if is_slot_over || !matches!(decision, LeaseDecision::Paid { .. }) {
            let is_short = matches!(decision, LeaseDecision::Wait | LeaseDecision::Refused { .. });
            let host = &mut self.hosts[nth];
            let (question, life) = (host.node.ask(&terms, is_short, now), host.life);
            let give_back = if is_slot_over { host.node.give_back(&terms, now) } else { None };
            if let Some(question) = question {
                let back = self.delay();
                self.post(at + DEADLINE, Message::Deadline { node: nth, life, question });
                let message = Message::Question { node: nth, life, question, back, is_lost: false };
                self.send(at, message, nth);
            }
            if let Some(back) = give_back {
                self.send(at, Message::Return(back), nth);
            }
        }
    }

    /// Adds what was let run in this slot to the meter of all nodes.
    fn count_uses(&mut self, warm: i64) {
        self.uses.sort_unstable();
        let bucket = *self.terms.limit();
        for (at, host, units) in self.uses.drain(..) {
            let now = Timestamp::from_micros(EPOCH + at);
            let steps = now.micros_since(self.metered) / bucket.step();
            self.metered = self.metered.plus_micros(steps * bucket.step());
            self.meter = (self.meter - (steps * bucket.gain()) as i64).max(0) + units;
            self.worst = self.worst.max(self.meter);
            if at >= warm {
                let tokens = units as f64 / self.terms.token() as f64;
                self.used += tokens;
                self.hosts[host].got += tokens;
            }
        }
    }
}
