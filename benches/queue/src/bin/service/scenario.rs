//! The scenarios: which requests come, when, and which clients leave.

use std::time::Duration;

use tollgate::{Limit, Quota, SECOND};

use crate::history::{History, Number};

/// Requests that come to one service.
pub struct Scenario {
    pub title: &'static str,
    /// The tokens that the bucket gains in a second.
    pub rate: u64,
    /// The tokens that it saves up, all of which it holds at the start.
    pub capacity: u64,
    pub requests: Vec<Job>,
    /// Which of the requests comes after the others.
    pub newcomer: Option<Number>,
    pub leaving: Vec<Departure>,
    pub settled: Settled,
    /// From the start of the work of a request until it is settled.
    pub work: Duration,
}

/// One request and its work.
#[derive(Clone, Copy)]
pub struct Job {
    /// After the start of the scenario.
    pub comes: Duration,
    /// The tokens that are taken for it beforehand.
    pub cost: u64,
    /// The tokens that it turns out to cost, if it is settled.
    pub actual: u64,
}

/// Clients that leave while their requests wait.
pub struct Departure {
    /// After the start of the scenario.
    pub at: Duration,
    /// The place in the queue of the one that leaves, modulo the length of the queue; all of them
    /// leave if it is `None`.
    pub place: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Settled {
    /// It costs what was taken beforehand.
    Never,
    /// The response says what it cost.
    ByResponse,
    /// A meter says what it cost when the body of the response is dropped.
    ByMeter,
}

/// The estimate for a call of a language model, and what it really costs.
const ESTIMATE: u64 = 1_000;
const ACTUAL: u64 = 200;
const CAPACITY: u64 = 10_000;
/// The chunks of a stream; each is paid when it is sent.
pub const CHUNKS: u32 = 4;
pub const CHUNK_EVERY: Duration = Duration::from_millis(8);

impl Scenario {
    /// Calls that come at once, and one that comes a second later.
    pub fn calls(title: &'static str, calls: usize, settled: Settled) -> Self {
        let job = |comes| Job { comes, cost: ESTIMATE, actual: ACTUAL };
        let mut requests = vec![job(Duration::ZERO); calls];
        requests.push(job(SECOND));
        Self {
            title,
            rate: 10_000,
            capacity: CAPACITY,
            requests,
            newcomer: Some(calls),
            leaving: Vec::new(),
            settled,
            work: Duration::from_millis(20),
        }
    }

    /// The same calls, where the bodies of the responses are streams.
    pub fn streams(title: &'static str, calls: usize) -> Self {
        let work = CHUNK_EVERY * CHUNKS;
        Self { work, ..Self::calls(title, calls, Settled::ByMeter) }
    }

    /// The same calls, of which three in ten leave while they wait, one `every` so often.
    pub fn leavers(title: &'static str, calls: usize, every: Duration) -> Self {
        let leaving = departures(calls * 3 / 10, every * 4, every);
        Self { leaving, ..Self::calls(title, calls, Settled::ByResponse) }
    }

    /// 40 calls, of which all that wait leave, and one that comes after that.
    pub fn abandoned(title: &'static str, rate: u64) -> Self {
        let mut scenario = Self::calls(title, 40, Settled::ByResponse);
        scenario.rate = rate;
        // They leave between the first and the second time that work ends in the ideal queue, far
        // from both.
        scenario.work = Duration::from_millis(50);
        scenario.leaving = vec![Departure { at: Duration::from_millis(75), place: None }];
        if let Some(newcomer) = scenario.requests.last_mut() {
            newcomer.comes = Duration::from_millis(200);
        }
        scenario
    }

    /// 200 requests that cost 1 to 10, of which three in ten leave within the first two seconds.
    pub fn mixed(title: &'static str, settled: Settled) -> Self {
        let job = |number: u64| {
            let cost = 1 + number * 7 % 10;
            Job { comes: Duration::ZERO, cost, actual: cost.div_ceil(2) }
        };
        Self {
            title,
            rate: 100,
            capacity: 100,
            requests: (0..200).map(job).collect(),
            newcomer: None,
            leaving: departures(60, Duration::from_millis(100), Duration::from_millis(30)),
            settled,
            work: Duration::from_millis(20),
        }
    }

    pub fn limit(&self) -> Limit {
        let quota = Quota::token_bucket(self.rate, SECOND).capacity(self.capacity);
        Limit::new("llm-tokens", quota.max_reserved(1_000_000))
    }

    /// What a request takes in the end.
    pub fn used(&self, number: Number) -> u64 {
        let job = self.requests[number];
        if self.settled == Settled::Never { job.cost } else { job.actual }
    }

    /// The part of the granted tokens that is used by work that ran: granted are those that the
    /// bucket held at first, and those that it gained from the first run to the last.
    pub fn share_used(&self, history: &History) -> f64 {
        let runs = || history.runs.iter();
        let used: u64 = runs().map(|run| self.used(run.0)).sum();
        let first = runs().map(|run| run.1).min().unwrap_or_default();
        let gained = (history.last_run(None) - first).as_secs_f64() * self.rate as f64;
        used as f64 / (self.capacity as f64 + gained)
    }
}

impl Departure {
    /// Those of the waiters that leave.
    pub fn leavers(&self, mut waiting: Vec<Number>) -> Vec<Number> {
        match self.place {
            Some(_) if waiting.is_empty() => waiting,
            Some(place) => vec![waiting.swap_remove(place % waiting.len())],
            None => waiting,
        }
    }
}

/// One departure after `first`, and then `every` so often, from places spread over the queue.
fn departures(leavers: usize, first: Duration, every: Duration) -> Vec<Departure> {
    let instants = (0..).map(|earlier| first + every * earlier);
    let departure = |(leaver, at)| Departure { at, place: Some(leaver * 7_919) };
    (0..leavers).zip(instants).map(departure).collect()
}
