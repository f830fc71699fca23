//! A model of the queue by brute force, in whole units: first in, first out, on real buckets.
//!
//! It shares no code with the crate. A bucket counts `free`: what it holds before its waiters are
//! charged. Each step adds the gain, and refunds add what comes back. The head of the queue is
//! granted once `free` covers its cost. Without waiters, `free` is at most the capacity; when the
//! head leaves, it is at most the capacity or the cost of the next head, whichever is larger.

use tollgate::algebra::Bucket;

/// The number of a request; `None` for tokens that no request waits for.
pub(crate) type WaiterId = Option<usize>;

#[derive(Debug)]
pub(crate) struct ModelBucket {
    step: i64,
    gain: i64,
    capacity: i64,
    pub(crate) token: i64,
    free: i64,
    start: i64,
    ts: i64,
    /// The instant up to which time has passed.
    now: i64,
    line: Vec<(WaiterId, i64)>,
    /// What was granted, and when.
    grants: Vec<(i64, i64)>,
    /// What came back, and when.
    backs: Vec<(i64, i64)>,
}

impl ModelBucket {
    /// A full bucket. One of its windows starts at `start`.
    pub(crate) fn new(bucket: &Bucket, start: i64) -> Self {
        let [step, gain, token] =
            [bucket.step(), bucket.gain(), bucket.token()].map(|number| number as i64);
        let (capacity, free) = (bucket.capacity(), bucket.capacity());
        let (line, grants, backs) = Default::default();
        Self {
            step,
            gain,
            capacity,
            token,
            free,
            start,
            ts: start,
            now: start,
            line,
            grants,
            backs,
        }
    }

    /// What a request finds: `free` less the costs of all waiters.
    pub(crate) fn value(&self) -> i64 {
        self.free - self.waiting()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }

    fn waiting(&self) -> i64 {
        self.line.iter().map(|(_, units)| units).sum()
    }

    fn after_gaining(&self, units: i64) -> i64 {
        self.ts + self.step * ((units + self.gain - 1) / self.gain)
    }

    fn refresh(&mut self, now: i64) {
        let steps = (now - self.ts) / self.step;
        self.free += steps * self.gain;
        self.ts += steps * self.step;
        if self.line.is_empty() {
            self.free = self.free.min(self.capacity);
        }
    }

    /// Advances to `now`, and grants each waiter at its instant. Returns the granted waiters, and
    /// when each was granted.
    pub(crate) fn pass_until(&mut self, now: i64) -> Vec<(WaiterId, i64)> {
        let mut granted = Vec::new();
        while let Some((_, units)) = self.line.first() {
            let at = self.after_gaining((units - self.free).max(0)).max(self.now);
            if at > now {
                break;
            }
            self.refresh(at);
            granted.extend(self.grant_heads(at));
        }
        self.now = now;
        self.refresh(now);
        granted
    }

    fn grant_heads(&mut self, now: i64) -> Vec<(WaiterId, i64)> {
        let mut granted = Vec::new();
        while let Some(&(waiter, units)) = self.line.first() {
            if self.free < units {
                break;
            }
            self.line.remove(0);
            self.free -= units;
            self.grants.push((now, units));
            granted.push((waiter, now));
        }
        if self.line.is_empty() {
            self.free = self.free.min(self.capacity);
        }
        granted
    }

    /// The instant at which a request that comes now would be granted.
    pub(crate) fn promised(&self, now: i64, units: i64) -> i64 {
        let short = self.waiting() + units - self.free;
        if short > 0 { self.after_gaining(short).max(now) } else { now }
    }

    pub(crate) fn enter(&mut self, waiter: WaiterId, units: i64) {
        if waiter.is_none() && self.line.is_empty() {
            // Without waiters, this is debt of the bucket itself, and nothing is saved up for it.
            self.free -= units;
        } else {
            self.line.push((waiter, units));
        }
    }

    /// A request that does not wait takes what is there.
    pub(crate) fn take(&mut self, now: i64, units: i64) {
        self.free -= units;
        self.grants.push((now, units));
    }

    pub(crate) fn give_back(&mut self, now: i64, units: i64) {
        self.backs.push((now, units));
        self.free += units;
    }

    /// Forgives what was granted, and what is queued without a request that waits. The waiters go
    /// on from a full bucket, or from what was saved up for the head.
    pub(crate) fn reset(&mut self, waits: impl Fn(usize) -> bool) {
        self.line.retain(|(waiter, _)| waiter.is_some_and(&waits));
        // Of what was saved up for a forgotten entry, at most the cost of the next head stays.
        let next = self.line.first().map_or(0, |(_, units)| *units);
        self.free = self.free.clamp(self.capacity, self.capacity.max(next));
        // What runs from here on has a bound of its own.
        self.grants.clear();
        self.backs.clear();
    }

    pub(crate) fn leave(&mut self, id: usize) {
        let was_head = self.line.first().is_some_and(|(first, _)| *first == Some(id));
        self.line.retain(|(waiter, _)| *waiter != Some(id));
        if was_head {
            let next = self.line.first().map_or(0, |(_, units)| *units);
            self.free = self.free.min(self.capacity.max(next));
        }
    }

    /// By how much the grants of some window of time exceed its bound, at worst. The bound is the
    /// capacity or the largest cost, what was gained and what came back in that window, and one
    /// step of gain.
    pub(crate) fn excess(&self) -> i64 {
        let mut worst = 0;
        for (nth, (first, _)) in self.grants.iter().enumerate() {
            if nth > 0 && self.grants[nth - 1].0 == *first {
                continue;
            }
            let (mut granted, mut largest) = (0, self.capacity);
            for (nth, (last, units)) in self.grants.iter().enumerate().skip(nth) {
                granted += units;
                largest = largest.max(*units);
                if self.grants.get(nth + 1).is_some_and(|(next, _)| next == last) {
                    continue;
                }
                let back = self.backs.iter().filter(|(at, _)| (first..=last).contains(&at));
                let back: i64 = back.map(|(_, units)| units).sum();
                let step = |at: i64| (at - self.start).div_euclid(self.step);
                let gained = (step(*last) - step(*first) + 1) * self.gain;
                worst = worst.max(granted - largest - gained - back);
            }
        }
        worst
    }
}
