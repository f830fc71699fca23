//! How many requests are refused because a limit is in shards.

use crate::parallel;
use crate::plot::{Axis, Line, Plot};
use crate::simulation::{Load, Outcome, simulate};

const CAPACITY: u64 = 1_000;
const SHARDS: [u32; 7] = [2, 4, 8, 10, 16, 32, 64];
const LOADS: [f64; 19] = [
    0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.3,
    1.4, 1.5,
];
/// Of the runs at a load of 1.0.
const SEEDS: u64 = 8;

const SHARDS_OF_FEW: [u32; 5] = [2, 4, 10, 32, 64];
const TOKENS_A_SHARD: [u64; 10] = [1, 2, 3, 5, 7, 10, 20, 30, 50, 100];
/// Above this, the bucket takes too long to forget how it began.
const LARGEST: u64 = 1_000;

/// At a load of 1.0, what a bucket holds wanders about, and forgets where it began in a fifth of the
/// square of its capacity: so many requests are let go by before any is counted.
fn load(load: f64, capacity: u64, seed: u64, counted: usize) -> Load {
    let ahead = usize::try_from(capacity * capacity).unwrap_or(usize::MAX);
    Load { load, capacity, seed, ahead, counted: counted.max(ahead) }
}

pub fn run() {
    let at_the_rate = at_the_rate();
    by_load(&at_the_rate);
    by_capacity();
}

/// The aim: at most 0.5 % with 10 shards of 100 tokens.
fn at_the_rate() -> Vec<Outcome> {
    println!("refused early at a load of 1.0, capacity {CAPACITY}, the mean of {SEEDS} runs");
    println!("  shards   tokens each   refused early (least to most)   more refused than without");
    let seeds: Vec<_> = (1..=SEEDS).collect();
    let runs =
        parallel::map(&seeds, |&seed| simulate(load(1.0, CAPACITY, seed, 2_000_000), &SHARDS));
    let mut alls = Vec::new();
    for (nth, &shards) in SHARDS.iter().enumerate() {
        let outcomes: Vec<_> = runs.iter().map(|run| run[nth]).collect();
        let all = outcomes.iter().copied().fold(Outcome::default(), Outcome::plus);
        let parts = outcomes.iter().map(|one| one.early_part());
        let (least, most) = (parts.clone().fold(1.0, f64::min), parts.fold(0.0, f64::max));
        println!(
            "  {shards:>6}   {:>11.1}   {:>8.3} %  ({:.3} to {:.3} %)   {:>21.4} %",
            CAPACITY as f64 / f64::from(shards),
            percent(all.early_part()),
            percent(least),
            percent(most),
            percent(all.lost_part()),
        );
        if shards == 10 {
            assert!(all.early_part() <= 0.005, "10 shards of 100 tokens refuse too much");
        }
        alls.push(all);
    }
    alls
}

fn by_load(at_the_rate: &[Outcome]) {
    println!("\nrefused early, in percent, by load and shards (capacity {CAPACITY})");
    println!("  load   no shards refuse{}", columns(9, &SHARDS));
    let runs = parallel::map(&LOADS, |&at| match at {
        1.0 => at_the_rate.to_vec(),
        _ => simulate(load(at, CAPACITY, 1, 1_000_000), &SHARDS),
    });
    for (at, run) in LOADS.iter().zip(&runs) {
        print!("  {at:>4.2}   {:>16.3}", percent(run[0].refused_whole_part()));
        run.iter().for_each(|one| print!("  {:>7.3}", percent(one.early_part())));
        println!();
    }
    println!("\nmore refused than without shards, in percent");
    println!("  load{}", columns(9, &SHARDS));
    for (at, run) in LOADS.iter().zip(&runs) {
        print!("  {at:>4.2}");
        run.iter().for_each(|one| print!("  {:>7.4}", percent(one.lost_part())));
        println!();
    }

    let line = |nth: usize, read: fn(Outcome) -> f64| {
        LOADS.iter().zip(&runs).map(|(&at, run)| (at, percent(read(run[nth])))).collect()
    };
    let mut lines =
        vec![Line::dashed("all refused, no shards", line(0, |one| one.refused_whole_part()))];
    for (nth, shards) in SHARDS.iter().enumerate() {
        lines.push(Line::new(format!("{shards} shards"), line(nth, Outcome::early_part)));
    }
    Plot {
        title: "Refused, although a limit without shards admits",
        below: "capacity 1,000 tokens; Poisson arrivals of one token each",
        x: Axis {
            name: "load, in parts of the rate",
            ticks: &[0.5, 0.75, 1.0, 1.25, 1.5],
            log: false,
        },
        y: Axis {
            name: "% of requests",
            ticks: &[0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0],
            log: false,
        },
        lines,
    }
    .write("load.svg");
}

fn by_capacity() {
    println!("\nat a load of 1.0, in percent: refused early / more refused than without shards");
    println!("  tokens a shard{}", columns(17, &SHARDS_OF_FEW));
    let all = |tokens| SHARDS_OF_FEW.map(|shards| (tokens, shards));
    let points: Vec<_> = TOKENS_A_SHARD.into_iter().flat_map(all).collect();
    let outcomes = parallel::map(&points, |&(tokens, shards)| {
        let capacity = tokens * u64::from(shards);
        let load = load(1.0, capacity, 1, 2_000_000);
        (capacity <= LARGEST).then(|| simulate(load, &[shards])[0])
    });
    for (tokens, row) in TOKENS_A_SHARD.iter().zip(outcomes.chunks(SHARDS_OF_FEW.len())) {
        print!("  {tokens:>14}");
        for one in row {
            match one {
                Some(one) => print!(
                    "  {:>6.3} / {:>6.3}",
                    percent(one.early_part()),
                    percent(one.lost_part())
                ),
                None => print!("  {:>15}", "-"),
            }
        }
        println!();
    }

    let line = |nth: usize| {
        let column = outcomes.iter().skip(nth).step_by(SHARDS_OF_FEW.len());
        let points = TOKENS_A_SHARD.iter().zip(column);
        // A difference below one in a hundred thousand is chance.
        let drawn =
            points.filter_map(|(&tokens, one)| Some((tokens as f64, percent((*one)?.lost_part()))));
        drawn.filter(|&(_, lost)| lost >= 0.001).collect()
    };
    let lines = SHARDS_OF_FEW.iter().enumerate();
    Plot {
        title: "More refused than without shards, at a load of 1.0",
        below: "Poisson arrivals of one token each",
        x: Axis {
            name: "tokens that a shard holds",
            ticks: &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0],
            log: true,
        },
        y: Axis { name: "% of requests", ticks: &[0.001, 0.01, 0.1, 1.0, 10.0, 100.0], log: true },
        lines: lines
            .map(|(nth, shards)| Line::new(format!("{shards} shards"), line(nth)))
            .collect(),
    }
    .write("capacity.svg");
}

fn columns(width: usize, shards: &[u32]) -> String {
    shards.iter().map(|shards| format!("{shards:>width$}")).collect()
}

fn percent(part: f64) -> f64 {
    part * 100.0
}
