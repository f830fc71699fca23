//! Two threads at once: on a million keys, and on one.

use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use super::million::KEYS;
use super::{name, nanos_each};
use crate::keys::{self, Name};
use crate::peers::{self, Allowance, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 11;
const DECISIONS: usize = 1_000_000;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let size = plan.size(DECISIONS);
    let mut figures = Vec::new();
    if plan.wants(name::THREADS) {
        let keys = plan.keys(KEYS);
        let all: Vec<Ipv4Addr> = keys::all(keys);
        let picks = keys::at_random(keys, size);
        figures.extend(contest(name::THREADS, Allowance::DAILY, &all, &picks, plan));
    }
    if plan.wants(name::THREADS_HOT) {
        let one = vec![Ipv4Addr::numbered(7); size];
        figures.extend(contest(name::THREADS_HOT, Allowance::OPEN, &one[..1], &one, plan));
    }
    figures
}

fn contest(
    work: &str,
    allowance: Allowance,
    all: &[Ipv4Addr],
    picks: &[Ipv4Addr],
    plan: &Plan,
) -> Vec<Figures> {
    let mut contest = Contest::new(work, "ns per decision of both");
    enter(&mut contest, peer::OURS, peers::ours(allowance, all.len()), all, picks);
    enter(&mut contest, peer::GOVERNOR, peers::governor(allowance), all, picks);
    enter(&mut contest, peer::GOVERNOR_FOLDHASH, peers::governor_foldhash(allowance), all, picks);
    enter(&mut contest, peer::AXUM_GCRA, peers::axum_gcra(allowance), all, picks);
    if all.len() == 1 {
        enter(&mut contest, peer::GOVERNOR_DIRECT, peers::governor_direct(allowance), all, picks);
        enter(&mut contest, peer::LEAKY_BUCKET, peers::leaky_bucket(allowance), all, picks);
        enter(&mut contest, peer::RATELIMIT, peers::ratelimit(allowance), all, picks);
    }
    contest.run(plan.rounds(ROUNDS))
}

fn enter<'a>(
    contest: &mut Contest<'a>,
    name: &'static str,
    mut contender: impl FnMut(&Ipv4Addr) -> bool + Clone + Send + 'a,
    all: &[Ipv4Addr],
    picks: &'a [Ipv4Addr],
) {
    super::decide(all, &mut contender, true);
    contest.enter(name, move || both(&contender, picks));
}

/// Halves the picks between two threads, and divides the time from the first start to the last end
/// by all of them.
fn both(contender: &(impl FnMut(&Ipv4Addr) -> bool + Clone + Send), picks: &[Ipv4Addr]) -> f64 {
    let together = Barrier::new(2);
    let (one, other) = picks.split_at(picks.len() / 2);
    let times = thread::scope(|scope| {
        let threads = [one, other].map(|half| {
            let (mut contender, together) = (contender.clone(), &together);
            scope.spawn(move || {
                together.wait();
                let start = Instant::now();
                let admitted = half.iter().filter(|key| contender(key)).count();
                let end = Instant::now();
                assert_eq!(admitted, half.len(), "what is measured would be something else");
                (start, end)
            })
        });
        threads.map(|thread| thread.join().expect("no thread panics"))
    });
    let [(start, end), (other_start, other_end)] = times;
    nanos_each(end.max(other_end) - start.min(other_start), picks.len())
}
