//! Cost against the number of limits that are decided at once, all or nothing.
//!
//! By the store's own call, as the limiter has none for several limits yet; one limit is here as
//! well, to compare with. Nobody else decides several at once: their users ask one after another,
//! and what the first took is gone if the second refuses.

use std::hint::black_box;

use tollgate::algebra::Verdict;
use tollgate::backend::{Answer, Backend, BucketId, Charge, Memory};
use tollgate::{Key, Limit, Quota, SECOND};

use super::name;
use crate::keys::Name;
use crate::peers::{self, Allowance, name as who};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 11;
const DECISIONS: usize = 200_000;
const NAMES: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];

pub fn run(plan: &Plan) -> Vec<Figures> {
    let size = plan.size(DECISIONS);
    let mut figures = Vec::new();
    for count in [1, 2, 3, 4, 8] {
        let mut contest = Contest::new(name::LIMITS, "ns per transaction").at(count as u64);
        contest.enter(who::OURS, ours(count, size));
        contest.enter(who::GOVERNOR, governor(count, size));
        figures.extend(contest.run(plan.rounds(ROUNDS)));
    }
    figures
}

fn ours(count: usize, size: usize) -> impl FnMut() -> f64 {
    let quota = Quota::token_bucket(1_000_000_000, SECOND);
    let limits: Vec<_> = NAMES[..count].iter().map(|name| Limit::new(name, quota)).collect();
    let memory = Memory::new();
    move || {
        let once = |_: &String| {
            let key = Key::from("alice");
            let charges: Vec<_> = limits
                .iter()
                .map(|limit| {
                    let id = BucketId::new(limit.name(), &key);
                    let units = limit.bucket().units(1).expect("one fits");
                    Charge::take(id, limit.bucket(), units)
                })
                .collect();
            match memory.apply(&charges) {
                Answer::Ready(Ok(applied)) => applied.verdict() == Verdict::Admitted,
                _ => unreachable!("the memory store answers at once"),
            }
        };
        super::decide(&vec![String::new(); size], &mut { once }, true)
    }
}

/// One after another, by a limiter each.
fn governor(count: usize, size: usize) -> impl FnMut() -> f64 {
    let mut limiters: Vec<_> = (0..count).map(|_| peers::governor(Allowance::OPEN)).collect();
    move || {
        let key = String::numbered(7);
        let mut once = |_: &String| limiters.iter_mut().all(|limiter| limiter(black_box(&key)));
        super::decide(&vec![String::new(); size], &mut once, true)
    }
}
