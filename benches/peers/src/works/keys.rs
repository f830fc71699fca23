//! Cost against the number of keys, from one to ten million.

use std::net::Ipv4Addr;

use super::{decide, name};
use crate::keys::{self, Pieces};
use crate::peers::{self, Allowance, floor, name as peer};
use crate::rounds::{Contest, Effort, Figures, Plan};

const ROUNDS: usize = 5;
const DECISIONS: usize = 200_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let most = match plan.effort {
        Effort::Smoke => 3,
        Effort::Quick => 5,
        Effort::Full => 7,
    };
    (0..=most).flat_map(|exponent| with(10_usize.pow(exponent), plan)).collect()
}

fn with(count: usize, plan: &Plan) -> Vec<Figures> {
    let all: Vec<Ipv4Addr> = keys::all(count);
    let picks = keys::at_random(count, 1_000_000);
    // One key comes millions of times, so there is no end to what it may ask.
    let allowance = if count < 10_000 { Allowance::OPEN } else { Allowance::DAILY };
    let mut contest = Contest::new(name::KEYS, "ns per decision").at(count as u64);
    let mut table = floor::Table::holding(count);
    let count_one = move |key: &Ipv4Addr| table.count(u32::from(*key)) > 0;
    let size = plan.size(DECISIONS);
    enter(&mut contest, size, peer::OURS, peers::ours(allowance, count), &all, &picks);
    enter(&mut contest, size, peer::GOVERNOR, peers::governor(allowance), &all, &picks);
    let foldhash = peers::governor_foldhash(allowance);
    enter(&mut contest, size, peer::GOVERNOR_FOLDHASH, foldhash, &all, &picks);
    enter(&mut contest, size, peer::AXUM_GCRA, peers::axum_gcra(allowance), &all, &picks);
    enter(&mut contest, size, peer::TABLE, count_one, &all, &picks);
    contest.run(plan.rounds(ROUNDS))
}

fn enter<'a>(
    contest: &mut Contest<'a>,
    size: usize,
    name: &'static str,
    mut contender: impl FnMut(&Ipv4Addr) -> bool + 'a,
    all: &[Ipv4Addr],
    picks: &'a [Ipv4Addr],
) {
    decide(all, &mut contender, true);
    let mut pieces = Pieces::of(picks, size);
    contest.enter(name, move || decide(pieces.piece(), &mut contender, true));
}
