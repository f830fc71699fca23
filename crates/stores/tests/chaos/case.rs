//! One case: healthy keys are asked for in quiet, and then beside what is sick.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tollgate::algebra::check_history;
use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter, SECOND, Timestamp};
use tollgate_testing::traffic::chain;

use super::place::{Place, Sick, Store};

/// What healthy keys are asked for: it gains nothing during a case.
static HEALTHY: Limit =
    Limit::new("healthy", Quota::token_bucket(1, DAY.saturating_mul(30)).capacity(CAPACITY));
const CAPACITY: u64 = 100_000;

/// What the sick key is asked for.
pub(crate) static SICK: Limit =
    Limit::new("sick", Quota::token_bucket(50, SECOND).capacity(20).max_reserved(0));

/// How many keys are healthy, and how many tasks ask for them.
const KEYS: usize = 96;
const TASKS: usize = 4;

/// How many tasks ask for what is sick.
const FLOOD: u32 = 64;

/// A flood that leaves the processor to others is a hundred times what its limit lets through: it has
/// one request each 0.2 ms.
const FLOOD_EACH: Duration = Duration::from_micros(200);

const FEW: u32 = 4;

const HEAD: [&str; 10] = [
    "store",
    "sick",
    "healthy: asked",
    "errors",
    "p99 in quiet",
    ELSEWHERE_TITLE,
    "beside it",
    "of the sick: admitted",
    "refused",
    "no decision",
];
const ELSEWHERE_TITLE: &str = "beside a flood elsewhere";

/// How long a case is quiet, how long the same flood is on another store of the same kind, how long
/// something is sick, and how far apart the requests of a flood are, if it pauses at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    quiet: Duration,
    elsewhere: Duration,
    sick: Duration,
    each: Option<Duration>,
}

impl Span {
    pub(crate) fn seconds(quiet: f64, elsewhere: f64, sick: f64) -> Self {
        let [quiet, elsewhere, sick] = [quiet, elsewhere, sick].map(Duration::from_secs_f64);
        Self { quiet, elsewhere, sick, each: None }
    }

    pub(crate) fn with_pauses(self) -> Self {
        Self { each: Some(FLOOD_EACH), ..self }
    }

    /// A row of the table, without the column of a flood elsewhere if there is none.
    fn row(self, cells: [String; 10]) -> String {
        let cells = cells.into_iter().zip(HEAD);
        let cells =
            cells.filter(|(_, title)| *title != ELSEWHERE_TITLE || !self.elsewhere.is_zero());
        format!("| {} |", cells.map(|(cell, _)| cell).collect::<Vec<_>>().join(" | "))
    }

    pub(crate) fn head(self) -> String {
        let titles = self.row(HEAD.map(str::to_owned));
        format!("{titles}\n{}", self.row(HEAD.map(|_| "---".to_owned())))
    }
}

/// What healthy keys are beside.
const QUIET: usize = 0;
const ELSEWHERE: usize = 1;
const SICK_HERE: usize = 2;
const OVER: usize = 3;

/// What has come of a case.
pub(crate) struct Case {
    healthy: Healthy,
    sick: Asked,
    broken: Vec<String>,
}

/// The answers about healthy keys.
#[derive(Default)]
struct Healthy {
    /// How long each answer took, in quiet, beside a flood elsewhere, and beside what is sick.
    took: [Vec<Duration>; OVER],
    /// How often each key was admitted, and how often there was an error.
    keys: BTreeMap<usize, [u64; 2]>,
    /// Whether it is an outage, and its text.
    errors: Vec<(bool, String)>,
}

/// The answers about what is sick.
#[derive(Default)]
struct Asked {
    ran: Vec<(Timestamp, u64)>,
    admitted: u64,
    refused: u64,
    undecided: u64,
}

impl Case {
    pub(crate) async fn play(store: Store, sick: Sick, span: Span) -> Self {
        let mut place = Place::set_up(store, sick).await;
        place.prepare(sick).await;
        // What the flood takes from this process and this machine, and not from the store.
        let has_twin = sick.is_flood() && !span.elsewhere.is_zero();
        let twin = if has_twin { Some(Place::set_up(store, sick).await) } else { None };
        let phase = Arc::new(AtomicUsize::new(QUIET));
        let keys: Vec<usize> =
            (0..KEYS).filter(|nth| place.is_healthy(sick, &format!("h{nth}"))).collect();
        let mut healthy = JoinSet::new();
        for keys in keys.chunks(keys.len().div_ceil(TASKS)) {
            let (limiter, keys, phase) = (place.limiter.clone(), keys.to_vec(), Arc::clone(&phase));
            healthy.spawn(ask_for_healthy(limiter, keys, phase));
        }
        sleep(span.quiet).await;
        if let Some(twin) = twin {
            phase.store(ELSEWHERE, Ordering::SeqCst);
            let (mut asking, _) = ask_all_for_sick(&twin.limiter, sick, span.each);
            sleep(span.elsewhere).await;
            asking.shutdown().await;
        }
        let begun = Instant::now();
        place.fall_sick(sick).await;
        phase.store(SICK_HERE, Ordering::SeqCst);
        let (mut asking, asked) = ask_all_for_sick(&place.limiter, sick, span.each);
        sleep(span.sick / 2).await;
        place.get_worse(sick);
        sleep(span.sick / 2).await;
        phase.store(OVER, Ordering::SeqCst);
        let mut seen = Healthy::default();
        while let Some(part) = healthy.join_next().await {
            seen.add(part.unwrap());
        }
        let lasted = begun.elapsed();
        asking.shutdown().await;
        place.recover(sick).await;
        let asked = asked.take();
        let mut broken = Vec::from_iter(asked.beyond_the_policy(sick, lasted));
        broken.extend(seen.lost_or_minted(&place.limiter).await);
        // A store that is full is sick for all that has to be stored, and says so: clients fill it, so it
        // is no outage.
        let wrong = seen.errors.iter().filter(|(is_outage, _)| *is_outage || sick != Sick::Full);
        broken.extend(wrong.map(|(_, error)| format!("a healthy key got {error}")));
        Self { healthy: seen, sick: asked, broken }
    }

    pub(crate) fn row(&self, store: Store, sick: Sick, span: Span) -> String {
        let (seen, asked) = (&self.healthy, &self.sick);
        let [quiet, elsewhere, beside] = seen.took.each_ref().map(|took| p99(took));
        let times = |time: Duration| match time.is_zero() {
            true => "-".to_owned(),
            false => {
                format!("{} ({:.1} x)", millis(time), time.as_secs_f64() / quiet.as_secs_f64())
            }
        };
        span.row([
            store.name(),
            sick.name().to_owned(),
            seen.took.iter().map(Vec::len).sum::<usize>().to_string(),
            seen.errors.len().to_string(),
            millis(quiet),
            times(elsewhere),
            times(beside),
            asked.admitted.to_string(),
            asked.refused.to_string(),
            asked.undecided.to_string(),
        ])
    }

    /// What must not have happened.
    pub(crate) fn broken(self) -> Vec<String> {
        let mut broken = self.broken;
        broken.dedup();
        broken.truncate(5);
        broken
    }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn p99(took: &[Duration]) -> Duration {
    let mut took = took.to_vec();
    took.sort_unstable();
    took.get(took.len() * 99 / 100).copied().unwrap_or_default()
}

async fn ask_for_healthy(
    limiter: RateLimiter,
    keys: Vec<usize>,
    phase: Arc<AtomicUsize>,
) -> Healthy {
    let mut seen = Healthy::default();
    for &key in keys.iter().cycle() {
        let (phase, begun) = (phase.load(Ordering::SeqCst), Instant::now());
        if phase == OVER {
            break;
        }
        let answer = limiter.limit(&HEALTHY).key(format!("h{key}")).await.map(drop);
        seen.took[phase].push(begun.elapsed());
        let told = seen.keys.entry(key).or_default();
        match answer {
            Ok(()) => told[0] += 1,
            Err(error) => {
                told[1] += 1;
                seen.errors.push((error.is_outage(), chain(&error)));
            }
        }
        sleep(Duration::from_millis(4)).await;
    }
    seen
}

impl Healthy {
    fn add(&mut self, part: Self) {
        for (all, some) in self.took.iter_mut().zip(part.took) {
            all.extend(some);
        }
        self.keys.extend(part.keys);
        self.errors.extend(part.errors);
    }

    /// The keys whose buckets do not hold what their answers say. An error may have been charged.
    async fn lost_or_minted(&self, limiter: &RateLimiter) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, &[admitted, errors]) in &self.keys {
            let left = limiter.peek(&HEALTHY).key(format!("h{key}")).await.unwrap().remaining();
            let used = CAPACITY - left;
            if !(admitted..=admitted + errors).contains(&used) {
                wrong.push(format!("h{key} was admitted {admitted} times, and {used} are charged"));
            }
        }
        wrong
    }
}

/// The answers that all tasks have had so far.
#[derive(Default)]
struct AskedBy {
    ran: std::sync::Mutex<Vec<(Timestamp, u64)>>,
    admitted: AtomicU64,
    refused: AtomicU64,
    undecided: AtomicU64,
}

impl AskedBy {
    fn take(&self) -> Asked {
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        Asked {
            ran: self.ran.lock().unwrap().clone(),
            admitted: count(&self.admitted),
            refused: count(&self.refused),
            undecided: count(&self.undecided),
        }
    }

    fn note(&self, answer: Result<Timestamp, RateLimited>, is_one_key: bool) {
        let count = match answer {
            Ok(at) => {
                if is_one_key {
                    self.ran.lock().unwrap().push((at, 1));
                }
                &self.admitted
            }
            Err(error) if error.is_refused() => &self.refused,
            Err(_) => &self.undecided,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

fn ask_all_for_sick(
    limiter: &RateLimiter,
    sick: Sick,
    each: Option<Duration>,
) -> (JoinSet<()>, Arc<AskedBy>) {
    let (mut asking, asked) = (JoinSet::new(), Arc::new(AskedBy::default()));
    let tasks = if sick.is_flood() || sick == Sick::Full { FLOOD } else { FEW };
    let begun = Instant::now();
    for nth in 0..tasks {
        let turns = each.filter(|_| sick.is_flood()).map(|each| {
            let mut turns = interval_at(begun + each * nth, each * FLOOD);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            turns
        });
        asking.spawn(ask_for_sick(limiter.clone(), sick, nth, turns, Arc::clone(&asked)));
    }
    (asking, asked)
}

async fn ask_for_sick(
    limiter: RateLimiter,
    sick: Sick,
    task: u32,
    mut turns: Option<Interval>,
    asked: Arc<AskedBy>,
) {
    let is_one_key = !matches!(sick, Sick::FloodOfNewKeys | Sick::Full);
    for nth in 0_u64.. {
        if let Some(turns) = &mut turns {
            turns.tick().await;
        }
        let key = match is_one_key {
            true => "sick".to_owned(),
            false => format!("new {task} {nth}"),
        };
        let answer = limiter.limit(&SICK).key(key).await.map(|permit| permit.at());
        asked.note(answer, is_one_key);
        match sick.is_flood() || sick == Sick::Full {
            true => yield_now().await,
            false => sleep(Duration::from_millis(2)).await,
        }
    }
}

impl Asked {
    /// What was admitted beyond the bound of the limit.
    fn beyond_the_policy(&self, sick: Sick, lasted: Duration) -> Option<String> {
        match sick {
            // An hour fills the bucket once more. The times of the answers jump as the clock does.
            Sick::Clock => {
                let most = 2 * 20 + lasted.as_micros() * 50 / 1_000_000 + 1;
                (u128::from(self.admitted) > most).then(|| format!("{} of {most}", self.admitted))
            }
            Sick::ForeignValue => (self.admitted > 0).then(|| "foreign numbers decide".to_owned()),
            Sick::LockedRow => (self.admitted > 0).then(|| "a locked row decides".to_owned()),
            _ => check_history(SICK.quota(), &self.ran).unwrap(),
        }
    }
}
