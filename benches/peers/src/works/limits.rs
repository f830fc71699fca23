//! Cost against the number of limits that are decided at once, all or nothing.
//!
//! No peer decides several at once: its users ask one limit after another, and what the first took is
//! gone if the second refuses.

use std::net::Ipv4Addr;

use super::{decide, name};
use crate::keys::Name;
use crate::peers::{self, Allowance, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 11;
const DECISIONS: usize = 200_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let size = plan.size(DECISIONS);
    let mut figures = Vec::new();
    let counts: &[usize] = if plan.wants(name::LIMITS) { &[1, 2, 3, 4, 8] } else { &[] };
    for &count in counts {
        let mut contest = Contest::new(name::LIMITS, "ns per transaction").at(count as u64);
        enter(&mut contest, size, peer::OURS, peers::ours_on_all(Allowance::OPEN, count));
        enter(&mut contest, size, peer::GOVERNOR, governor(count));
        figures.extend(contest.run(plan.rounds(ROUNDS)));
    }
    if plan.wants(name::THREE_LIMITS) {
        let mut contest = Contest::new(name::THREE_LIMITS, "ns per transaction");
        enter(&mut contest, size, peer::OURS, peers::ours_on_all(Allowance::OPEN, 3));
        enter(&mut contest, size, peer::OURS_ONE_LIMIT, peers::ours(Allowance::OPEN, 1));
        enter(&mut contest, size, peer::GOVERNOR, governor(3));
        figures.extend(contest.run(plan.rounds(ROUNDS)));
    }
    figures
}

/// One after another, by a limiter each.
fn governor(count: usize) -> impl FnMut(&Ipv4Addr) -> bool {
    let mut limiters: Vec<_> = (0..count).map(|_| peers::governor(Allowance::OPEN)).collect();
    move |key| limiters.iter_mut().all(|limiter| limiter(key))
}

/// Decisions on one address.
pub(super) fn enter<'a>(
    contest: &mut Contest<'a>,
    size: usize,
    name: &'static str,
    mut contender: impl FnMut(&Ipv4Addr) -> bool + 'a,
) {
    let keys = vec![Ipv4Addr::numbered(7); size];
    contest.enter(name, move || decide(&keys, &mut contender, true));
}
