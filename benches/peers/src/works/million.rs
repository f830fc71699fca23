//! A million keys at random, one thread.

use std::net::Ipv4Addr;

use super::{decide, name};
use crate::keys::{self, Name, Pieces};
use crate::peers::{self, Allowance, floor, name as peer};
#[cfg(feature = "limitador")]
use crate::rounds::Effort;
use crate::rounds::{Contest, Figures, Plan};

pub(super) const KEYS: usize = 1_000_000;
const ROUNDS: usize = 11;
const DECISIONS: usize = 500_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let mut figures = Vec::new();
    let (all, picks) = Million::lists(plan);
    if plan.wants(name::MILLION) {
        let mut million: Million<'_, Ipv4Addr> = Million::new(name::MILLION, plan, &all, &picks);
        million.generic();
        let mut table = floor::Table::holding(all.len());
        million.enter(peer::TABLE, move |key| table.count(u32::from(*key)) > 0);
        figures.extend(million.contest.run(plan.rounds(ROUNDS)));
    }
    let (all, picks) = Million::lists(plan);
    if plan.wants(name::MILLION_STRING) {
        let mut million: Million<'_, String> =
            Million::new(name::MILLION_STRING, plan, &all, &picks);
        million.generic();
        million.enter(peer::THROTTLE_KIT, peers::throttle_kit(Allowance::DAILY));
        million.enter(peer::THROTTLECRAB, peers::throttlecrab(Allowance::DAILY));
        #[cfg(feature = "limitador")]
        if plan.effort != Effort::Quick {
            // Many times as slow, so less of it will do.
            million.size /= 10;
            million.enter(peer::LIMITADOR, peers::limitador(Allowance::DAILY, all.len()));
        }
        figures.extend(million.contest.run(plan.rounds(ROUNDS)));
    }
    figures
}

struct Million<'a, K> {
    contest: Contest<'a>,
    size: usize,
    all: &'a [K],
    picks: &'a [K],
}

impl<'a, K: Name> Million<'a, K> {
    /// Every key once, and a million of them at random.
    fn lists(plan: &Plan) -> (Vec<K>, Vec<K>) {
        let keys = plan.keys(KEYS);
        (keys::all(keys), keys::at_random(keys, keys))
    }

    fn new(work: &str, plan: &Plan, all: &'a [K], picks: &'a [K]) -> Self {
        let contest = Contest::new(work, "ns per decision");
        Self { contest, size: plan.size(DECISIONS), all, picks }
    }

    fn generic(&mut self) {
        self.enter(peer::OURS, peers::ours(Allowance::DAILY, self.all.len()));
        self.enter(peer::GOVERNOR, peers::governor(Allowance::DAILY));
        self.enter(peer::GOVERNOR_FOLDHASH, peers::governor_foldhash(Allowance::DAILY));
        self.enter(peer::AXUM_GCRA, peers::axum_gcra(Allowance::DAILY));
    }

    fn enter(&mut self, name: &'static str, mut contender: impl FnMut(&K) -> bool + 'a) {
        decide(self.all, &mut contender, true);
        let mut pieces = Pieces::of(self.picks, self.size);
        self.contest.enter(name, move || decide(pieces.piece(), &mut contender, true));
    }
}
