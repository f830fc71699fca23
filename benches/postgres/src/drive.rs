//! Tasks that ask as fast as they are answered, and what they reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::contestant::Contestant;

/// The rate, a second, at which each contestant, by as many tasks, gets through keys drawn at
/// random.
pub fn rate(
    runtime: &Runtime,
    contestants: &[Contestant],
    tasks: u64,
    keys: u64,
    time: Duration,
) -> f64 {
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let asking = |(seed, contestant): (u64, Contestant)| {
        let (count, is_over) = (count.clone(), is_over.clone());
        runtime.spawn(async move {
            let mut random = seed;
            while !is_over.load(Ordering::Relaxed) {
                contestant.once(draw(&mut random, keys)).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let each = (0..tasks).flat_map(|task| contestants.iter().map(move |of| (task, of.clone())));
    let running: Vec<_> = each.map(asking).collect();
    // Connections are made and statements prepared before it counts.
    std::thread::sleep(time / 4);
    let (before, begun) = (count.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(time);
    let done = count.load(Ordering::Relaxed) - before;
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for task in running {
            task.await.unwrap();
        }
    });
    rate
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn draw(random: &mut u64, keys: u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % keys
}

/// The median of figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The median of ratios, with the least and the most.
pub fn spread(ours: &[f64], theirs: &[f64]) -> String {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    let least = ratios.iter().copied().fold(f64::MAX, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({least:.2} to {most:.2})", median(ratios))
}
