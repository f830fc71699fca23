//! A flood of keys that are never seen again: ours up to its bound and beyond it, theirs without
//! one. What it takes in memory is counted in the other program.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::{decide, name};
use crate::keys::Name;
use crate::peers::{self, Allowance, name as peer};
use crate::rounds::{Figures, Plan};

const ROUNDS: usize = 5;
const KEYS: usize = 4_000_000;
/// As it is if nothing is said of it.
const BOUND: usize = 1_000_000;
const SLICES: usize = 16;

/// Ours, with a bound that the flood of this plan goes beyond.
pub fn ours(plan: &Plan) -> impl FnMut(&Ipv4Addr) -> bool + use<> {
    peers::ours_bounded(Allowance::DAILY, plan.size(BOUND))
}

/// The numbers of the keys that come in each slice of the flood.
pub fn slices(plan: &Plan) -> impl Iterator<Item = Range<u32>> + use<> {
    let size = plan.size(KEYS) / SLICES;
    (0..SLICES).map(move |slice| (slice * size) as u32..((slice + 1) * size) as u32)
}

pub fn run(plan: &Plan) -> Vec<Figures> {
    let mut figures = Vec::new();
    for slice in slices(plan) {
        for peer in [peer::OURS, peer::GOVERNOR] {
            figures.push(Figures {
                work: name::FLOOD.to_owned(),
                at: slice.end.into(),
                peer: peer.to_owned(),
                unit: "ns per decision".to_owned(),
                rounds: Vec::new(),
            });
        }
    }
    for _ in 0..plan.rounds(ROUNDS) {
        // By turns, and each with a store of its own in each round.
        flood(ours(plan), peer::OURS, plan, &mut figures);
        flood(peers::governor(Allowance::DAILY), peer::GOVERNOR, plan, &mut figures);
    }
    for peer in [peer::OURS, peer::GOVERNOR] {
        figures.push(at_bound(peer, plan, &figures));
    }
    figures
}

/// What a newcomer takes on average once ours is full. Governor's tables grow meanwhile.
fn at_bound(peer: &str, plan: &Plan, slices: &[Figures]) -> Figures {
    let full = plan.size(BOUND) as u64;
    let beyond: Vec<_> =
        slices.iter().filter(|slice| slice.peer == peer && slice.at > full).collect();
    let mean = |round: usize| {
        beyond.iter().map(|slice| slice.rounds[round]).sum::<f64>() / beyond.len() as f64
    };
    Figures {
        work: name::FLOOD_BOUND.to_owned(),
        at: 0,
        peer: peer.to_owned(),
        unit: "ns per decision".to_owned(),
        rounds: (0..plan.rounds(ROUNDS)).map(mean).collect(),
    }
}

fn flood(
    mut contender: impl FnMut(&Ipv4Addr) -> bool,
    peer: &str,
    plan: &Plan,
    figures: &mut [Figures],
) {
    let mine = figures.iter_mut().filter(|figures| figures.peer == peer);
    for (slice, figures) in slices(plan).zip(mine) {
        let keys: Vec<_> = slice.map(Ipv4Addr::numbered).collect();
        figures.rounds.push(decide(&keys, &mut contender, true));
    }
}
