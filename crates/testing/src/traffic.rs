//! Tasks that call a store on a server without a break, and the answers that they get.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as StdError;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::sleep;
use tollgate::backend::Backend;
use tollgate::{DAY, HOUR, Limit, OnFailure, Quota, RateLimited, RateLimiter, Timestamp};

/// The tokens that each key may take in a hundred years, counted from 1970: nothing is refilled
/// during a test.
const MOST: u64 = 1_000_000_000;

/// A limit that only counts.
pub static COUNTED: Limit = Limit::new(
    "counted",
    Quota::fixed_window(MOST, DAY.saturating_mul(36_525)).start(Timestamp::UNIX_EPOCH),
);

/// The deadline of decisions, unless a test says otherwise.
pub const DEADLINE: Duration = Duration::from_millis(50);

/// How late a call may be, beyond the lateness of a bare timer at the same time: other tasks need
/// the processor too.
pub const NOISE: Duration = Duration::from_secs(1);

/// The error for a server that has not answered for a second. On a busy machine, this can happen to
/// any server.
pub const SILENT: [&str; 2] = ["lost the connection to 127.0.0.1", "no connection to 127.0.0.1"];

/// Longer than any machine needs to notice that a server is back.
pub const RECOVERY: Duration = Duration::from_secs(20);

/// Tasks that only sleep, and tell how late the machine is.
const TIMERS: usize = 16;

/// Tasks that ask all the time.
#[derive(Debug)]
pub struct Traffic {
    tasks: Vec<JoinHandle<Vec<Call>>>,
    timers: Vec<JoinHandle<Duration>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limiter: RateLimiter,
    over: AtomicBool,
    /// How often each task was admitted, or dropped its call on purpose.
    went_well: Vec<AtomicU64>,
    /// How often each task got an error.
    failed: Vec<AtomicU64>,
    errors: Mutex<BTreeSet<String>>,
}

/// A call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    key: u64,
    /// When it was made.
    pub begun: Instant,
    /// When it was answered or dropped.
    pub ended: Instant,
    /// The answer.
    pub told: Told,
}

/// What a call was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    /// The tokens were there.
    Admitted,
    /// They were not.
    Refused,
    /// The time was up.
    Late,
    /// Some other error.
    Failed,
    /// No answer: the task had dropped the call.
    Gone,
}

/// The admitted tokens that a store has lost.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// None.
    Nothing,
    /// Some of the tokens that were taken before this.
    Something(Instant),
    /// All tokens that were taken before some moment between these two.
    Everything(Instant, Instant),
}

/// Whether a task drops its calls before they are answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Nature {
    Patient,
    Fickle,
}

/// The calls and errors of all tasks, at the end.
#[derive(Debug)]
pub struct Log {
    /// All calls, task by task.
    pub calls: Vec<Call>,
    /// The errors that there were, each with its causes.
    errors: BTreeSet<String>,
    /// How late a bare timer was.
    noise: Duration,
}

impl Traffic {
    /// So many tasks, two of which share a key.
    pub fn begin(store: impl Backend, tasks: u64) -> Self {
        Self::of(store, tasks, |_| Nature::Patient)
    }

    /// The same, but of the two tasks that share a key, one drops its calls at random moments.
    pub fn with_fickle(store: impl Backend, tasks: u64) -> Self {
        Self::of(store, tasks, |task| match task % 2 {
            0 => Nature::Patient,
            _ => Nature::Fickle,
        })
    }

    fn of(store: impl Backend, tasks: u64, nature: impl Fn(u64) -> Nature) -> Self {
        let counts = || (0..tasks).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared {
            limiter: RateLimiter::new(store),
            over: AtomicBool::new(false),
            went_well: counts(),
            failed: counts(),
            errors: Mutex::default(),
        });
        let ask = |task| tokio::spawn(ask(Arc::clone(&shared), task, nature(task)));
        let timers = (0..TIMERS).map(|_| tokio::spawn(noise(Arc::clone(&shared)))).collect();
        Self { tasks: (0..tasks).map(ask).collect(), timers, shared }
    }

    /// Waits until each task was admitted several times more, and says how long it took until each was once.
    pub async fn goes_on(&self) -> Duration {
        let first = until_more(&self.shared.went_well, 1, "a task is admitted").await;
        until_more(&self.shared.went_well, 5, "a task is admitted again and again").await;
        first
    }

    /// Waits until each task has got an error, and another one.
    pub async fn fails(&self) {
        until_more(&self.shared.failed, 2, "a task gets errors").await;
    }

    /// Waits until each task has got this many more answers, whatever they are.
    pub async fn is_answered(&self, times: u64) {
        let Shared { went_well, failed, .. } = &*self.shared;
        let all = |task: usize| count(&went_well[task]) + count(&failed[task]);
        let before: Vec<_> = (0..failed.len()).map(all).collect();
        let is_so = || (0..failed.len()).all(|task| all(task) >= before[task] + times);
        wait_until("a task is answered", async || is_so()).await;
    }

    /// Waits until a call fails with an error that contains this text.
    pub async fn is_told(&self, text: &str) {
        let is_told = || self.shared.errors.lock().unwrap().iter().any(|told| told.contains(text));
        wait_until(text, async || is_told()).await;
    }

    /// Lets all tasks finish.
    pub async fn end(self) -> Log {
        self.shared.over.store(true, Ordering::Release);
        let mut calls = Vec::new();
        for task in self.tasks {
            calls.extend(task.await.unwrap());
        }
        let mut noise = Duration::ZERO;
        for timer in self.timers {
            noise = noise.max(timer.await.unwrap());
        }
        let errors = std::mem::take(&mut *self.shared.errors.lock().unwrap());
        Log { calls, errors, noise }
    }
}

async fn ask(shared: Arc<Shared>, task: u64, nature: Nature) -> Vec<Call> {
    let (nth, key) = (usize::try_from(task).unwrap(), task / 2);
    let mut calls = Vec::new();
    let mut round = task;
    while !shared.over.load(Ordering::Acquire) {
        round += 1;
        let begun = Instant::now();
        let decision = tokio::select! {
            biased;
            decision = shared.limiter.limit(&COUNTED).key(key) => Some(decision),
            () = patience(nature, round) => None,
        };
        let ended = Instant::now();
        let told = match &decision {
            Some(Ok(_)) => Told::Admitted,
            Some(Err(error)) if error.is_refused() => Told::Refused,
            Some(Err(error)) if error.is_timeout() => Told::Late,
            Some(Err(_)) => Told::Failed,
            None => Told::Gone,
        };
        calls.push(Call { key, begun, ended, told });
        match decision {
            Some(Err(error)) if !error.is_refused() => {
                shared.errors.lock().unwrap().insert(chain(&error));
                shared.failed[nth].fetch_add(1, Ordering::AcqRel)
            }
            _ => shared.went_well[nth].fetch_add(1, Ordering::AcqRel),
        };
        // No task asks without a pause: those that are answered at once would leave no time to the others.
        sleep(Duration::from_millis(1)).await;
    }
    calls
}

/// How late a bare timer is, at the most.
async fn noise(shared: Arc<Shared>) -> Duration {
    let mut most = Duration::ZERO;
    while !shared.over.load(Ordering::Acquire) {
        let begun = Instant::now();
        sleep(DEADLINE).await;
        most = most.max(begun.elapsed().saturating_sub(DEADLINE));
    }
    most
}

/// Ends at once, soon, or some milliseconds later; if ever.
async fn patience(nature: Nature, round: u64) {
    match (nature, round % 8) {
        (Nature::Patient, _) => pending().await,
        (Nature::Fickle, soon @ 0..6) => {
            for _ in 0..soon {
                yield_now().await;
            }
        }
        (Nature::Fickle, some) => sleep(Duration::from_millis(some - 5)).await,
    }
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

async fn until_more(counters: &[AtomicU64], more: u64, what: &str) -> Duration {
    let before: Vec<_> = counters.iter().map(count).collect();
    let grown = |(counter, before): (&AtomicU64, &u64)| count(counter) >= before + more;
    wait_until(what, async || counters.iter().zip(&before).all(grown)).await
}

/// Waits until something is so, and says how long that took.
pub async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < RECOVERY, "{what}: not after {RECOVERY:?}");
        sleep(Duration::from_millis(1)).await;
    }
    begun.elapsed()
}

/// How many tokens the store has taken from this key.
pub async fn taken(limiter: &RateLimiter, key: u64) -> u64 {
    let mut left = None;
    wait_until("the store tells what it holds", async || {
        left = limiter.peek(&COUNTED).key(key).await.ok().map(|snapshot| snapshot.remaining());
        left.is_some()
    })
    .await;
    MOST - left.unwrap()
}

/// An error and what has caused it, on a line.
pub fn chain(error: &RateLimited) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts.join(" < ")
}

impl Log {
    /// The number of calls with this answer.
    pub fn count(&self, told: Told) -> usize {
        self.calls.iter().filter(|call| call.told == told).count()
    }

    /// Asserts that no call took longer than the deadline, apart from stalls of the machine.
    #[track_caller]
    pub fn all_in_time(&self) -> &Self {
        let took = |call: &Call| call.ended - call.begun;
        let longest = self.calls.iter().map(took).max().unwrap();
        // The call that took longest may have met two of the longest stalls.
        let most = DEADLINE + NOISE + 2 * self.noise;
        assert!(longest < most, "a call waited for {longest:?}, a timer for {:?}", self.noise);
        self
    }

    /// Asserts that the store has taken what the calls were told: the tokens of an admission once,
    /// those of an error at most once, and no others. If the store lost some of its memory, an
    /// admission before the loss is taken at most once; if it lost all, nothing of it is left.
    ///
    /// The store is asked with the deadline that it has here: [`RECOVERY`], which no server exceeds.
    pub async fn is_what(&self, store: impl Backend, lost: Lost) {
        let mut bounds = BTreeMap::<u64, (u64, u64)>::new();
        for call in &self.calls {
            let (least, most) = bounds.entry(call.key).or_default();
            let (is_kept, may_be_kept) = match lost {
                Lost::Nothing => (true, true),
                Lost::Something(end) => (call.begun > end, true),
                Lost::Everything(begin, end) => (call.begun > end, call.ended >= begin),
            };
            match call.told {
                Told::Admitted => {
                    *least += u64::from(is_kept);
                    *most += u64::from(may_be_kept);
                }
                // A command that was sent may still be executed later.
                Told::Late | Told::Failed | Told::Gone => *most += 1,
                Told::Refused => panic!("no call takes that much: {call:?}"),
            }
        }
        let held = RateLimiter::new(store);
        for (key, (least, most)) in bounds {
            let taken = taken(&held, key).await;
            assert!((least..=most).contains(&taken), "{key}: {least} <= {taken} <= {most}");
            assert!(taken > 0, "{key} was admitted in the end");
        }
    }

    /// Asserts that each error is that of the deadline, or names one of these causes.
    #[track_caller]
    pub fn errors_name(&self, causes: &[&str]) -> &Self {
        let late = "limit `counted` could not be decided < backend could not decide within";
        let failed = "limit `counted` could not be decided < backend could not decide: ";
        for error in &self.errors {
            let error =
                error.replace("redis backend", "backend").replace("postgres backend", "backend");
            let named = |cause: &&str| error.contains(*cause);
            let is_named = error.starts_with(failed) && causes.iter().any(named);
            assert!(error.starts_with(late) || is_named, "{error}");
        }
        self
    }
}

/// What became of a [flood], and of the requests of another client beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flood {
    /// How many requests there were.
    pub asked: u64,
    /// How many of them were admitted.
    pub admitted: u64,
    /// How many of them were refused.
    pub refused: u64,
    /// How many passed without being charged, of either client.
    pub uncharged: u64,
    /// How many requests the other client made.
    pub others: u64,
    /// How many of these failed.
    pub others_failed: u64,
}

impl Flood {
    /// Holds that no more than this part passed without being charged. A machine that stops for a
    /// moment, or that has other work, stops the store as well, so some may.
    ///
    /// # Panics
    ///
    /// If more did.
    pub fn passed_at_most(self, percent: u64) {
        let most = self.asked * percent / 100;
        assert!(self.asked >= FLOOD_TASKS && self.uncharged <= most, "{self:?}");
    }
}

/// What a flood asks for.
pub static FLOODED: Limit = Limit::new("flooded", Quota::token_bucket(5, HOUR).max_reserved(0));

/// Asks from so many tasks at once, for so long, that this process is late with all answers. A request
/// that the store does not decide is let through. `key` makes a key of the number of a request. Another
/// client asks every few milliseconds, each time for another key.
pub async fn flood(limiter: RateLimiter, lasts: Duration, key: fn(u64) -> u64) -> Flood {
    let limiter = limiter.on_failure(OnFailure::Admit);
    let (ends, number) = (Instant::now() + lasts, Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..FLOOD_TASKS {
        let (limiter, number) = (limiter.clone(), Arc::clone(&number));
        tasks.spawn(async move {
            let mut told = Flood::default();
            loop {
                // What a server does to read a request.
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(20) {}
                let key = key(number.fetch_add(1, Ordering::Relaxed));
                let answer = limiter.limit(&FLOODED).key(key).await;
                told.asked += 1;
                told.admitted += u64::from(answer.is_ok());
                told.refused += u64::from(answer.is_err_and(|error| error.is_refused()));
                // Each task asks at least once, also on a machine that is busy for longer.
                if Instant::now() >= ends {
                    return told;
                }
                yield_now().await;
            }
        });
    }
    let other = async {
        let mut told = Flood::default();
        while Instant::now() < ends {
            let answer = limiter.limit(&FLOODED).key(format!("other {}", told.others)).await;
            told.others += 1;
            told.others_failed += u64::from(answer.is_err());
            sleep(Duration::from_millis(5)).await;
        }
        told
    };
    let (other, flood) = tokio::join!(other, tasks.join_all());
    let told = flood.into_iter().fold(other, |sum, told| Flood {
        asked: sum.asked + told.asked,
        admitted: sum.admitted + told.admitted,
        refused: sum.refused + told.refused,
        ..sum
    });
    Flood { uncharged: limiter.passed_uncounted(), ..told }
}

const FLOOD_TASKS: u64 = 3_000;
