//! A flood of keys that are never seen again: ours up to its bound and beyond it, theirs without
//! one. What it takes in memory is counted in the other program.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::{decide, name};
use crate::keys::Name;
use crate::peers::{self, Allowance, name as who};
use crate::rounds::{Figures, Plan};

const ROUNDS: usize = 5;
/// Four times our bound, if nothing is said of it.
const KEYS: usize = 4_000_000;
const SLICES: usize = 16;

/// The numbers of the keys that come in each slice of the flood.
pub fn slices(plan: &Plan) -> impl Iterator<Item = Range<u32>> + use<> {
    let size = plan.size(KEYS) / SLICES;
    (0..SLICES).map(move |slice| (slice * size) as u32..((slice + 1) * size) as u32)
}

pub fn run(plan: &Plan) -> Vec<Figures> {
    let mut figures = Vec::new();
    for slice in slices(plan) {
        for who in [who::OURS, who::GOVERNOR] {
            figures.push(Figures {
                work: name::FLOOD.to_owned(),
                at: slice.end.into(),
                who: who.to_owned(),
                unit: "ns per decision".to_owned(),
                rounds: Vec::new(),
            });
        }
    }
    for _ in 0..plan.rounds(ROUNDS) {
        // By turns, and each with a store of its own in each round.
        flood(peers::ours_default(Allowance::DAILY), who::OURS, plan, &mut figures);
        flood(peers::governor(Allowance::DAILY), who::GOVERNOR, plan, &mut figures);
    }
    figures.iter().for_each(|each| eprintln!("  {each}"));
    figures
}

fn flood(
    mut contender: impl FnMut(&Ipv4Addr) -> bool,
    who: &str,
    plan: &Plan,
    figures: &mut [Figures],
) {
    let mine = figures.iter_mut().filter(|figures| figures.who == who);
    for (slice, figures) in slices(plan).zip(mine) {
        let keys: Vec<_> = slice.map(Ipv4Addr::numbered).collect();
        figures.rounds.push(decide(&keys, &mut contender, true));
    }
}
