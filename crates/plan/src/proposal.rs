//! The smallest quota of the same shape that refuses at most a given share of a log.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tollgate::Quota;
use tollgate::algebra::State;
use tollgate::quota::Kind;

use super::replay::Numbers;
use super::spool::Spool;

/// A quota, and how many requests it would have refused.
pub(crate) type Candidate = (Quota, u64);

#[derive(Debug)]
pub(crate) struct Proposal {
    /// `None` if no quota that can be counted refuses so few.
    pub(crate) enough: Option<Candidate>,
    /// The next smaller one, which refuses more, or cannot be counted; `None` if a rate of 1 is enough.
    pub(crate) too_small: Option<(Quota, Option<u64>)>,
}

/// The requests of a log, as often as they are needed.
#[derive(Debug)]
pub(crate) struct Trials<'a> {
    pub(crate) spool: &'a mut Spool,
    pub(crate) max_wait: Option<Duration>,
    /// Buckets in memory before full ones are dropped.
    pub(crate) max_keys: usize,
}

impl Trials<'_> {
    /// How many requests the quota refuses; `None` if its numbers cannot be counted.
    pub(crate) fn refused(&mut self, quota: &Quota) -> io::Result<Option<u64>> {
        let Ok(numbers) = Numbers::new(quota, self.max_wait) else { return Ok(None) };
        let mut states: HashMap<u64, Option<State>> = HashMap::new();
        let (mut refused, mut drop_above) = (0, self.max_keys);
        self.spool.read(|request| {
            let ruling = numbers.decide(states.entry(request.key).or_default(), request);
            refused += u64::from(ruling.is_refused());
            if states.len() > drop_above {
                states.retain(|_, state| {
                    state.is_some_and(|state| !numbers.is_full(state, request.at))
                });
                drop_above = self.max_keys.max(states.len().saturating_mul(2));
            }
        })?;
        Ok(Some(refused))
    }

    /// Finds the smallest rate, with the other numbers in proportion, at which at most `allowed`
    /// requests are refused.
    ///
    /// Doubles the rate until it is enough, then halves the distance. Where all costs are 1, a larger
    /// quota never refuses more; with mixed costs it may, in rare cases, so that there could be a
    /// smaller one than the one that is found. What the answer says of its two quotas was counted.
    pub(crate) fn smallest(&mut self, quota: &Quota, allowed: u64) -> io::Result<Proposal> {
        let mut too_small: Option<(Quota, Option<u64>)> = None;
        if quota.get_capacity() == 0 && self.max_wait.is_none() {
            // It refuses what cannot wait, at any rate.
            return Ok(Proposal { enough: None, too_small });
        }
        let mut rate = quota.rate();
        let mut enough = loop {
            let candidate = with_rate(quota, rate);
            match self.refused(&candidate)? {
                Some(refused) if refused <= allowed => break (candidate, refused),
                Some(refused) => too_small = Some((candidate, Some(refused))),
                None => return Ok(Proposal { enough: None, too_small }),
            }
            rate = rate.saturating_mul(2);
        };
        loop {
            let low = too_small.as_ref().map_or(0, |(quota, _)| quota.rate());
            let rate = low.midpoint(enough.0.rate());
            if rate == low {
                return Ok(Proposal { enough: Some(enough), too_small });
            }
            let candidate = with_rate(quota, rate);
            match self.refused(&candidate)? {
                Some(refused) if refused <= allowed => enough = (candidate, refused),
                refused => too_small = Some((candidate, refused)),
            }
        }
    }
}

/// The same quota at another rate, with its other numbers in proportion, rounded up.
pub(crate) fn with_rate(quota: &Quota, rate: u64) -> Quota {
    let scaled = |tokens: u64, round: fn(u128, u128) -> u128| {
        let product = u128::from(tokens) * u128::from(rate);
        u64::try_from(round(product, u128::from(quota.rate()))).unwrap_or(u64::MAX)
    };
    let up = |tokens| scaled(tokens, u128::div_ceil);
    let new = match quota.kind() {
        Kind::FixedWindow => Quota::try_fixed_window(rate, quota.period()),
        _ => Quota::try_token_bucket(rate, quota.period()),
    };
    let mut new = new.unwrap_or(*quota).shards(quota.get_shards());
    if quota.get_capacity() != quota.rate() {
        new = new.capacity(up(quota.get_capacity()));
    }
    if let Some(debt) = quota.get_max_reserved() {
        new = new.max_reserved(up(debt));
    }
    if quota.get_initial() != quota.get_capacity() {
        new = new.initial(scaled(quota.get_initial(), |product, rate| product / rate));
    }
    match quota.get_start() {
        Some(start) => new.start(start),
        None if quota.is_from_first_use() => new.from_first_use(),
        None => new,
    }
}
