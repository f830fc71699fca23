//! One hot key, one thread, admitted and refused.

use std::net::Ipv4Addr;

use super::{decide, name};
use crate::keys::Name;
use crate::peers::{self, Allowance, floor, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 15;
const DECISIONS: usize = 1_000_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let mut figures = Vec::new();
    for (addresses, strings, allowance, admitted) in [
        (name::HOT, name::HOT_STRING, Allowance::OPEN, true),
        (name::HOT_REFUSED, name::HOT_STRING_REFUSED, Allowance::SPENT, false),
    ] {
        if plan.wants(addresses) {
            let mut keys: Hot<'_, Ipv4Addr> = Hot::new(addresses, plan, admitted);
            keys.generic(allowance);
            figures.extend(keys.contest.run(plan.rounds(ROUNDS)));
        }
        if plan.wants(strings) {
            let mut keys: Hot<'_, String> = Hot::new(strings, plan, admitted);
            keys.generic(allowance);
            keys.enter(peer::THROTTLE_KIT, peers::throttle_kit(allowance));
            keys.enter(peer::THROTTLECRAB, peers::throttlecrab(allowance));
            #[cfg(feature = "limitador")]
            {
                // A hundred times as slow, so less of it will do.
                keys.size /= 20;
                keys.enter(peer::LIMITADOR, peers::limitador(allowance, 1));
            }
            figures.extend(keys.contest.run(plan.rounds(ROUNDS)));
        }
    }
    figures
}

struct Hot<'a, K> {
    contest: Contest<'a>,
    size: usize,
    admitted: bool,
    key: K,
}

impl<K: Name> Hot<'_, K> {
    fn new(work: &str, plan: &Plan, admitted: bool) -> Self {
        let contest = Contest::new(work, "ns per decision");
        Self { contest, size: plan.size(DECISIONS), admitted, key: K::numbered(7) }
    }

    fn generic(&mut self, allowance: Allowance) {
        self.enter(peer::OURS, peers::ours(allowance, 1));
        self.enter(peer::GOVERNOR, peers::governor(allowance));
        self.enter(peer::GOVERNOR_FOLDHASH, peers::governor_foldhash(allowance));
        self.enter(peer::GOVERNOR_DIRECT, peers::governor_direct(allowance));
        self.enter(peer::AXUM_GCRA, peers::axum_gcra(allowance));
        self.enter(peer::LEAKY_BUCKET, peers::leaky_bucket(allowance));
        self.enter(peer::RATELIMIT, peers::ratelimit(allowance));
        if self.admitted {
            self.enter(peer::CLOCK, floor::clock());
            self.enter(peer::HASH, floor::hash());
            self.enter(peer::SWAP, floor::swap());
        }
    }

    fn enter(&mut self, name: &'static str, mut contender: impl FnMut(&K) -> bool + 'static) {
        let keys = vec![self.key.clone(); 1_000];
        let (size, admitted) = (self.size, self.admitted);
        // What is saved up is spent before the first round.
        (0..4).for_each(|_| _ = contender(&self.key));
        self.contest.enter(name, move || {
            let turns = (size / keys.len()).max(1);
            (0..turns).map(|_| decide(&keys, &mut contender, admitted)).sum::<f64>() / turns as f64
        });
    }
}
