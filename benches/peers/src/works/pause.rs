//! The longest pause of any decision while a million idle keys are forgotten.
//!
//! Tollgate drops keys in passing: a decision on a new key looks at a few slots. Governor drops them
//! all at once when `retain_recent` is called: that call is the pause, and decisions meanwhile wait
//! for its lock. A decision during which the system took the thread off its core does not count,
//! for either, as it says something about the system and not about the limiter.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::name;
use crate::keys::Name;
use crate::machine::preemptions;
use crate::peers::{self, Allowance, name as peer};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 7;
const IDLE: usize = 1_000_000;
/// Long enough for all to be full again, and for ours to trust that they are.
const LONG: Duration = Duration::from_millis(1_200);
/// About as long as the newcomers take.
const WATCH: Duration = Duration::from_millis(500);

pub fn run(plan: &Plan) -> Vec<Figures> {
    let idle = plan.size(IDLE) as u32;
    let mut contest = Contest::new(name::PAUSE, "µs at most");
    let (long, watch) = (plan.time(LONG), plan.time(WATCH));
    contest.enter(peer::OURS, move || ours(idle, long));
    contest.enter(peer::GOVERNOR_SWEEP, move || governor(idle, long).0);
    contest.enter(peer::GOVERNOR_BESIDE, move || governor(idle, long).1);
    contest.enter(peer::STILL, move || still(watch));
    contest.run(plan.rounds(ROUNDS))
}

fn ours(idle: u32, long: Duration) -> f64 {
    let mut contender = peers::ours(Allowance::BRIEF, 2 * idle as usize);
    for number in 0..idle {
        assert!(contender(&Ipv4Addr::numbered(number)));
    }
    thread::sleep(long);
    // As many more: each looks at some slots, so all of the idle ones are found.
    let newcomers: Vec<_> = (idle..2 * idle).map(Ipv4Addr::numbered).collect();
    let mut longest = Longest::new();
    for key in &newcomers {
        assert!(contender(key));
        longest.lap();
    }
    longest.micros()
}

/// The longest lap of a loop that decides nothing, for about as long: what interrupts a thread and
/// is no change of threads (the host of a virtual machine above all) counts here as well.
fn still(watch: Duration) -> f64 {
    let start = Instant::now();
    let mut longest = Longest::new();
    while start.elapsed() < watch {
        longest.lap();
    }
    longest.micros()
}

/// The sweep, and the longest decision beside it.
fn governor(idle: u32, long: Duration) -> (f64, f64) {
    let limiter = peers::governor_store(Allowance::BRIEF);
    for number in 0..idle {
        assert!(limiter.check_key(&Ipv4Addr::numbered(number)).is_ok());
    }
    thread::sleep(long);
    let (ready, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let few: [Ipv4Addr; 100] = std::array::from_fn(|n| Ipv4Addr::numbered(idle + n as u32));
            let mut longest = Longest::new();
            for key in few.iter().cycle() {
                std::hint::black_box(limiter.check_key(key).is_ok());
                longest.lap();
                ready.store(true, Ordering::Release);
                if done.load(Ordering::Acquire) {
                    break;
                }
            }
            longest.micros()
        });
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let start = Instant::now();
        limiter.retain_recent();
        let sweep = start.elapsed().as_secs_f64() * 1e6;
        done.store(true, Ordering::Release);
        (sweep, beside.join().expect("no thread panics"))
    })
}

/// The longest time between two laps, in which no other program had the core.
struct Longest {
    last: Instant,
    longest: Duration,
    preemptions: u64,
}

impl Longest {
    fn new() -> Self {
        Self { last: Instant::now(), longest: Duration::ZERO, preemptions: preemptions() }
    }

    fn lap(&mut self) {
        let now = Instant::now();
        let lap = now - self.last;
        self.last = now;
        // What is shorter than a change of threads needs no question.
        if lap > Duration::from_micros(2) {
            let preemptions = preemptions();
            if preemptions == self.preemptions {
                self.longest = self.longest.max(lap);
            }
            self.preemptions = preemptions;
            self.last = Instant::now();
        }
    }

    fn micros(&self) -> f64 {
        self.longest.as_secs_f64() * 1e6
    }
}
