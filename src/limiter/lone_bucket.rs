//! One bucket alone, as in nearly all calls: its decision in memory, and its refusal.

use std::task::Poll;
use std::time::Duration;
use std::{mem, slice};

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::decide::{Asking, Decided};
use super::demand::{Demand, Demands, Mode};
use super::engine::RateLimiter;
use super::events::DecisionSource;
use super::permit::Permit;
use super::rate_limited::RateLimited;
use super::snapshot::{Level, wait_of};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Applied, FEW, MOST, Memory, Reading, UnknownBucket};
use crate::clock::Timestamp;

/// Decides a call on one bucket in memory, with up to `jitter` nanoseconds in its wait: the twin of
/// [`ask`](RateLimiter::ask) that most calls take. The store never fails.
// A function of its own, not inlined: its arguments are in registers, and it writes its answer to
// where the poll returns it. So little code is inlined where users write the call, and the answer
// is not copied.
#[inline(never)]
pub(super) fn decide<'l>(
    limiter: &'l RateLimiter,
    memory: &Memory,
    demand: &mut Demand<&'l Limit>,
    jitter: u64,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let units = match demand.units(Mode::Take) {
        Ok(units) => units,
        Err(error) => {
            return denied(limiter, demand, jitter, |demands, asking| {
                limiter.decide_too_large(demands, asking, error)
            });
        }
    };
    match memory.charge(&demand.charge_of(units, Mode::Take)) {
        Ok((at, reading)) => answer(limiter, demand, jitter, at, reading),
        Err(unknown) => decide_unknown(limiter, unknown, demand, jitter, units),
    }
}

/// Decides a call on two shards or on a few buckets in memory, if all are known and have the tokens.
/// Otherwise, nothing is taken, and the answer is pending.
#[inline(always)]
pub(super) fn decide_few<'l>(
    limiter: &'l RateLimiter,
    memory: &Memory,
    demands: &mut Demands<'l>,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    if limiter.state.observers.is_some() {
        return Poll::Pending;
    }
    match demands {
        Demands::One([demand]) => decide_pair(limiter, memory, demand),
        Demands::Several { first, demands } => match demands.len() {
            ..=FEW => decide_buckets::<FEW>(limiter, memory, first, demands),
            _ => decide_buckets::<MOST>(limiter, memory, first, demands),
        },
    }
}

#[inline(never)]
fn decide_pair<'l>(
    limiter: &'l RateLimiter,
    memory: &Memory,
    demand: &mut Demand<&'l Limit>,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    demand.draw_shards(&limiter.state.random);
    if let Ok(units) = demand.units(Mode::Take)
        && let Some(taken) = memory.charge_pair(&demand.charge_of(units, Mode::Take))
    {
        return Poll::Ready(Ok(Permit::of_shards(limiter, demand, &taken)));
    }
    // By the same ones.
    demand.is_drawn = true;
    Poll::Pending
}

#[inline(never)]
fn decide_buckets<'l, const N: usize>(
    limiter: &'l RateLimiter,
    memory: &Memory,
    first: &'l Limit,
    demands: &mut Vec<Demand<&'l Limit>>,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    match memory.charge_few::<N>(demands.iter().map(Demand::usual_charge)) {
        Some(taken) => Poll::Ready(Ok(Permit::of_few(limiter, first, mem::take(demands), &taken))),
        None => Poll::Pending,
    }
}

#[cold]
#[inline(never)]
fn decide_unknown<'l>(
    limiter: &'l RateLimiter,
    unknown: UnknownBucket<'_>,
    demand: &mut Demand<&'l Limit>,
    jitter: u64,
    units: Units,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let (now, reading, remarks) = unknown.charge(&demand.charge_of(units, Mode::Take));
    match reading.verdict() {
        Verdict::Admitted => answer(limiter, demand, jitter, now, reading),
        _ => denied(limiter, demand, jitter, |demands, asking| {
            let applied = Applied::one(now, reading).with_remarks(remarks);
            limiter.refused(demands, asking, CompleteAnswer::of_memory(applied))
        }),
    }
}

#[cold]
#[inline(never)]
fn denied<'l>(
    limiter: &'l RateLimiter,
    demand: &Demand<&'l Limit>,
    jitter: u64,
    decide: impl FnOnce(&[Demand<&'l Limit>], Asking) -> Decided,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let asking = Asking::take(DecisionSource::Handler, limiter.state.on_failure);
    let demands = slice::from_ref(demand);
    let decided = decide(demands, asking);
    let jitter = limiter.state.random.up_to(Duration::from_nanos(jitter));
    Poll::Ready(Err(decided.error(limiter, demands, demand.limit, jitter)))
}

#[inline(always)]
fn answer<'l>(
    limiter: &'l RateLimiter,
    demand: &mut Demand<&'l Limit>,
    jitter: u64,
    at: Timestamp,
    reading: Reading,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    if limiter.state.observers.is_some() {
        tell(limiter, demand.limit, demand.cost, reading);
    }
    match reading.verdict() {
        Verdict::Admitted => Poll::Ready(Ok(Permit::of_bucket(limiter, demand, &reading, at))),
        Verdict::Reserved | Verdict::Refused => {
            refused_one(limiter, demand, jitter, at, (reading.state(), reading.wait()))
        }
    }
}

#[cold]
#[inline(never)]
fn tell(limiter: &RateLimiter, limit: &Limit, cost: u64, reading: Reading) {
    if let Some(observers) = &limiter.state.observers {
        observers.tell_reading(DecisionSource::Handler, limit, cost, &reading);
    }
}

/// Not inlined: admitted requests should not pay for this code.
#[inline(never)]
fn refused_one<'l>(
    limiter: &RateLimiter,
    demand: &Demand<&Limit>,
    jitter: u64,
    at: Timestamp,
    (state, wait): (State, Duration),
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let verdict = Verdict::Refused;
    let wait = wait_of(demand.limit, verdict, wait);
    if wait.is_none() {
        limiter.state.uses.check_ends(demand.limit, state.value);
    }
    let level = Level { verdict, state, wait, cost: demand.cost, at };
    let late = |wait: Duration| {
        wait.saturating_add(limiter.state.random.up_to(Duration::from_nanos(jitter)))
    };
    let after = if jitter == 0 { wait } else { wait.map(late) };
    let refused = RateLimited::refused(demand.limit, level, after);
    Poll::Ready(Err(refused.with_speech(&limiter.state.speech)))
}
