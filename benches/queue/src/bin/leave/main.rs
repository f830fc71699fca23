//! What it costs to leave a queue, in the memory store and in one that other processes use as well,
//! whatever the requests cost and in whichever order they leave.

mod cpu_time;
mod store;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::{Key, Limit, Permit, Quota, RateLimiter, SECOND};

use crate::store::Shared;

/// Nothing is saved up, and no turn comes while the program runs.
static LIMIT: Limit = Limit::new("line", Quota::token_bucket(1, SECOND).capacity(0));
static OWN: Limit = Limit::new("own", Quota::token_bucket(1, SECOND).capacity(0));
static UNRELATED: Limit = Limit::new("unrelated", Quota::token_bucket(1, SECOND).capacity(0));

/// A case that takes longer is broken off.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many wait, and how often each case is run.
#[derive(Clone, Copy)]
struct Effort {
    requests: &'static [u64],
    /// Of so many runs, the least of each figure is shown: what other programs do is in none of them
    /// then.
    rounds: usize,
}

const FULL: Effort = Effort { requests: &[4_000, 40_000], rounds: 5 };
const QUICK: Effort = Effort { requests: &[4_000], rounds: 1 };

fn main() {
    let quick = std::env::args().nth(1).is_some_and(|argument| argument == "quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of one thread").block_on(async {
        for (store, limiter) in STORES {
            println!("\n{store}: all requests of one key leave");
            head();
            for &requests in effort.requests {
                for costs in [Costs::Equal, Costs::Falling, Costs::Rising, Costs::Random] {
                    for order in [Order::FirstFirst, Order::LastFirst, Order::Random] {
                        row(limiter, (requests, effort.rounds), Waiting::OneKey(costs), order)
                            .await;
                    }
                }
            }
            println!("\n{store}: all requests of one key leave, which was blocked meanwhile");
            head();
            for &requests in effort.requests {
                for order in [Order::FirstFirst, Order::LastFirst, Order::Random] {
                    row(limiter, (requests, effort.rounds), Waiting::Blocked, order).await;
                }
            }
            println!("\n{store}: requests of as many keys, which wait for a shared bucket too");
            head();
            for &requests in effort.requests {
                for order in [Order::FirstFirst, Order::LastFirst, Order::Random] {
                    row(limiter, (requests, effort.rounds), Waiting::ManyKeys, order).await;
                }
            }
        }
    });
}

type NewLimiter = fn() -> RateLimiter;

const STORES: [(&str, NewLimiter); 2] = [
    ("the memory store", RateLimiter::in_memory),
    ("a store of several processes", || RateLimiter::new(Shared::default())),
];

/// For what the requests wait.
#[derive(Clone, Copy)]
enum Waiting {
    OneKey(Costs),
    /// One key, which was blocked meanwhile.
    Blocked,
    ManyKeys,
}

#[derive(Clone, Copy, Debug)]
enum Costs {
    Equal,
    /// Each costs one less than the one before.
    Falling,
    Rising,
    Random,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    FirstFirst,
    LastFirst,
    Random,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Equal => "equal",
            Self::Falling => "falling",
            Self::Rising => "rising",
            Self::Random => "random",
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FirstFirst => "first first",
            Self::LastFirst => "last first",
            Self::Random => "any",
        })
    }
}

type Turn = Pin<Box<dyn Future<Output = Permit<'static>>>>;
type Line = Vec<Option<Turn>>;

/// All that came before the patience ended.
async fn enter(limiter: &RateLimiter, requests: u64, waiting: Waiting) -> Line {
    let (mut random, mut line, start) = (Random(42), Line::new(), Instant::now());
    while (line.len() as u64) < requests && start.elapsed() < PATIENCE {
        let number = line.len() as u64;
        let call = match waiting {
            Waiting::OneKey(costs) => limiter.limit(&LIMIT).cost(match costs {
                Costs::Equal => 1,
                Costs::Falling => requests - number,
                Costs::Rising => number + 1,
                Costs::Random => 1 + random.below(requests),
            }),
            Waiting::Blocked => limiter.limit(&LIMIT),
            Waiting::ManyKeys => limiter.limit(&OWN).key(Key::from(number)).and(&LIMIT),
        };
        let reservation = call.reserve().await.expect("the debt is allowed");
        line.push(Some(waits(Box::pin(reservation.ready()))));
    }
    if let Waiting::Blocked = waiting {
        let block = limiter.block(&LIMIT, Duration::from_secs(86_400));
        block.await.expect("the store is in this process");
    }
    line
}

fn waits(mut ready: Turn) -> Turn {
    let asked = ready.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(asked.is_pending(), "no turn has come");
    ready
}

fn head() {
    println!(
        "  waiting   costs     leave             came       left   all of them    median   longest   \
         another's longest"
    );
}

/// What a run has shown.
struct Figures {
    came: usize,
    left: usize,
    all: Duration,
    median: Duration,
    longest: Duration,
    others_longest: Duration,
}

async fn row(
    limiter: NewLimiter,
    (requests, rounds): (u64, usize),
    waiting: Waiting,
    order: Order,
) {
    let mut runs = Vec::new();
    for _ in 0..rounds {
        let limiter = limiter();
        let line = enter(&limiter, requests, waiting).await;
        let run = leave(&limiter, order, line);
        let is_over = run.left as u64 == requests;
        runs.push(run);
        if !is_over {
            break;
        }
    }
    let least = |of: fn(&Figures) -> Duration| runs.iter().map(of).min().unwrap_or_default();
    let shown = [
        least(|run| run.all),
        least(|run| run.median),
        least(|run| run.longest),
        least(|run| run.others_longest),
    ];
    let [all, median, longest, others_longest] = shown.map(|time| format!("{time:.1?}"));
    let (came, left) = runs.last().map_or((0, 0), |run| (run.came, run.left));
    let costs = match waiting {
        Waiting::OneKey(costs) => costs,
        Waiting::Blocked | Waiting::ManyKeys => Costs::Equal,
    };
    println!(
        "  {requests:>7}   {costs:<9} {order:<11} {came:>10} {left:>10} {all:>13} {median:>9} \
         {longest:>9} {others_longest:>19}"
    );
}

fn leave(limiter: &RateLimiter, order: Order, mut line: Line) -> Figures {
    let mut random = Random(7);
    let mut leaving: Vec<_> = (0..line.len()).collect();
    match order {
        Order::FirstFirst => {}
        Order::LastFirst => leaving.reverse(),
        Order::Random => random.shuffle(&mut leaving),
    }
    let (over, delay) = (AtomicBool::new(false), AtomicU64::new(0));
    let came = line.len();
    let mut times = Vec::with_capacity(came);
    let all = thread::scope(|scope| {
        scope.spawn(|| unrelated(limiter, &over, &delay));
        // It asks by now.
        while delay.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let start = Instant::now();
        for nth in leaving {
            let since = cpu_time::of_this_thread();
            line[nth] = None;
            times.push(cpu_time::of_this_thread().saturating_sub(since));
            if start.elapsed() > PATIENCE {
                break;
            }
        }
        let all = start.elapsed();
        over.store(true, Ordering::Relaxed);
        all
    });
    // Those that are left would leave now, in their order.
    line.into_iter().for_each(std::mem::forget);
    times.sort_unstable();
    Figures {
        came,
        left: times.len(),
        all,
        median: times[times.len() / 2],
        longest: times[times.len() - 1],
        others_longest: Duration::from_nanos(delay.into_inner()),
    }
}

/// Asks for another key all the time, and notes how long that takes at most.
fn unrelated(limiter: &RateLimiter, over: &AtomicBool, delay: &AtomicU64) {
    let runtime = Builder::new_current_thread().build().expect("a runtime of one thread");
    let _in_runtime = runtime.enter();
    while !over.load(Ordering::Relaxed) {
        let since = Instant::now();
        let reservation = runtime.block_on(limiter.limit(&UNRELATED).reserve());
        drop(reservation.expect("the debt is allowed"));
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        delay.fetch_max(nanos, Ordering::Relaxed);
    }
}

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            all.swap(last, other);
        }
    }
}
