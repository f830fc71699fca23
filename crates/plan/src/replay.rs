//! What a quota would have decided, by the formula of the limiter itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use tollgate::algebra::{Bucket, State, Terms, Verdict, charge};
use tollgate::backend::BucketId;
use tollgate::quota::QuotaError;
use tollgate::{Key, Quota, Timestamp};

use super::line::Entry;
use super::series::Series;
use super::spool::Request;

/// A quota as the formula takes it, and how long a request may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    bucket: Bucket,
    terms: Terms,
}

/// What a request would have been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ruling {
    pub(crate) verdict: Verdict,
    /// Until the work runs, or until another attempt may succeed.
    pub(crate) wait: Duration,
    /// No wait would help.
    pub(crate) too_large: bool,
}

impl Ruling {
    pub(crate) fn is_refused(&self) -> bool {
        self.verdict == Verdict::Refused
    }
}

impl Numbers {
    pub(crate) fn new(quota: &Quota, max_wait: Option<Duration>) -> Result<Self, QuotaError> {
        let bucket = Bucket::new(quota)?;
        let terms = match max_wait {
            None => Terms::AT_ONCE,
            Some(max_wait) => Terms::reserving(bucket.floor()).within(max_wait),
        };
        Ok(Self { bucket, terms })
    }

    /// Whether a bucket in this state equals no bucket.
    pub(crate) fn is_full(&self, state: State, at: Timestamp) -> bool {
        self.bucket.is_droppable_when_full() && self.bucket.full_at(state) <= at
    }

    /// Decides a request on its bucket, which is `None` until something was taken from it.
    pub(crate) fn decide(
        &self,
        state: &mut Option<State>,
        Request { at, cost, phase, .. }: Request,
    ) -> Ruling {
        let before = state.unwrap_or_else(|| self.bucket.absent(at, phase));
        let units = self.bucket.units(cost).unwrap_or(i64::MAX);
        let charged = charge(&self.bucket, before, units, self.terms, at);
        let verdict = charged.verdict();
        let too_large = verdict == Verdict::Refused && self.bucket.too_large(cost, self.terms);
        // A bucket that starts below its capacity gains from its first use on, refused or not. A cost
        // that is too large does not get to the bucket.
        if verdict != Verdict::Refused || !too_large && !self.bucket.is_droppable_when_full() {
            *state = Some(charged.state());
        }
        Ruling { verdict, wait: charged.wait(), too_large }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) delayed: u64,
    /// Of those that were delayed.
    pub(crate) longest_wait: Duration,
}

impl Tally {
    fn add(&mut self, ruling: &Ruling) {
        self.requests += 1;
        match ruling.verdict {
            Verdict::Refused => self.refused += 1,
            Verdict::Reserved => {
                self.delayed += 1;
                self.longest_wait = self.longest_wait.max(ruling.wait);
            }
            _ => {}
        }
    }

    pub(crate) fn is_hit(&self) -> bool {
        self.refused > 0 || self.delayed > 0
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.delayed += other.delayed;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}

/// A key, its bucket, and what it was told.
#[derive(Debug)]
pub(crate) struct KeyRow {
    pub(crate) name: Box<str>,
    pub(crate) tally: Tally,
    /// Where its windows begin, if the quota does not say.
    phase: Timestamp,
    state: Option<State>,
    is_used: bool,
}

/// Characters of a name that are kept, for the report alone.
const MAX_NAME: usize = 120;
/// Rows of keys before those that say nothing are dropped.
pub(crate) const MAX_KEYS: usize = 1 << 19;

/// The replay of a log. It keeps a row for each key that was refused or delayed, or whose bucket is not
/// full; of the others, so many as `max_keys`. A full bucket equals no bucket, so this changes no
/// decision. Over time, it keeps some hundred rows.
#[derive(Debug)]
pub(crate) struct Replay {
    numbers: Numbers,
    limit: String,
    /// By a hash of their names: of a hundred million keys, two have the same one in 3,700 logs.
    pub(crate) keys: HashMap<u64, KeyRow>,
    hasher: RandomState,
    pub(crate) max_keys: usize,
    /// When there are more rows, some are dropped.
    drop_above: usize,
    /// How many keys were added; one that was dropped and came back counts again.
    pub(crate) seen: u64,
    pub(crate) has_dropped: bool,
    pub(crate) series: Series,
    pub(crate) total: Tally,
    pub(crate) too_large: u64,
    pub(crate) span: Option<(Timestamp, Timestamp)>,
    /// Buckets that are not full, by when they may be.
    used: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// When those that wait run.
    waiting: BinaryHeap<Reverse<Timestamp>>,
    pub(crate) most_used: usize,
    pub(crate) most_waiting: usize,
}

impl Replay {
    /// `limit` is the name of the limit: it decides where the windows of a key begin.
    pub(crate) fn new(numbers: Numbers, limit: &str, max_keys: usize) -> Self {
        Self {
            numbers,
            limit: limit.to_owned(),
            keys: HashMap::new(),
            hasher: RandomState::new(),
            max_keys,
            drop_above: max_keys,
            seen: 0,
            has_dropped: false,
            series: Series::new(),
            total: Tally::default(),
            too_large: 0,
            span: None,
            used: BinaryHeap::new(),
            waiting: BinaryHeap::new(),
            most_used: 0,
            most_waiting: 0,
        }
    }

    /// Decides a request. Its time must not be before that of the last one.
    pub(crate) fn play(&mut self, entry: &Entry<'_>) -> (Request, Ruling) {
        let Entry { at, cost, key: name } = entry;
        let (at, cost) = (*at, *cost);
        let id = self.hasher.hash_one(&**name);
        let row = self.keys.entry(id).or_insert_with(|| {
            self.seen += 1;
            let phase = BucketId::new(&self.limit, &key(name)).phase(&self.numbers.bucket);
            let tally = Tally::default();
            let name: String = name.chars().take(MAX_NAME).collect();
            KeyRow { name: name.into(), tally, phase, state: None, is_used: false }
        });
        let request = Request { at, cost, key: id, phase: row.phase };
        let ruling = self.numbers.decide(&mut row.state, request);

        row.tally.add(&ruling);
        self.total.add(&ruling);
        self.series.at(at).add(&ruling);
        self.too_large += u64::from(ruling.too_large);
        self.span = Some((self.span.map_or(at, |(first, _)| first), at));

        if let Some(state) = row.state.filter(|_| !row.is_used) {
            row.is_used = true;
            self.used.push(Reverse((self.numbers.bucket.full_at(state), id)));
        }
        if ruling.verdict == Verdict::Reserved {
            self.waiting.push(Reverse(at + ruling.wait));
        }
        self.forget(at);
        self.most_used = self.most_used.max(self.used.len());
        self.most_waiting = self.most_waiting.max(self.waiting.len());
        (request, ruling)
    }

    /// Forgets what a store forgets: buckets that are full again, and requests that have run.
    fn forget(&mut self, now: Timestamp) {
        while self.waiting.peek().is_some_and(|Reverse(at)| *at <= now) {
            self.waiting.pop();
        }
        let bucket = &self.numbers.bucket;
        while let Some(Reverse((at, id))) = self.used.peek().copied()
            && at <= now
            && bucket.is_droppable_when_full()
        {
            self.used.pop();
            let Some(row) = self.keys.get_mut(&id) else { continue };
            // The bucket was used again since it was noted.
            match row.state.map(|state| bucket.full_at(state)).filter(|full_at| *full_at > now) {
                Some(full_at) => self.used.push(Reverse((full_at, id))),
                None => row.is_used = false,
            }
        }
        if self.keys.len() > self.drop_above {
            self.keys.retain(|_, row| row.is_used || row.tally.is_hit());
            self.has_dropped = true;
            // So a row is looked at twice on average, however many remain.
            self.drop_above = self.max_keys.max(self.keys.len().saturating_mul(2));
        }
    }
}

/// The key as an extractor makes it: addresses are not texts.
pub(crate) fn key(name: &str) -> Key {
    if let Some(network) = name.strip_suffix("/64").and_then(|network| network.parse().ok()) {
        return Key::network(network, 64);
    }
    match name.parse::<IpAddr>() {
        Ok(address) => Key::from(address),
        Err(_) if name == "all" => Key::GLOBAL,
        Err(_) => Key::from(name),
    }
}
