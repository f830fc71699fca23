//! One bucket alone, as in nearly all calls: its decision in memory, and its refusal.

use std::slice;
use std::task::Poll;
use std::time::Duration;

use super::Limit;
use super::complete_answer::CompleteAnswer;
use super::decide::{Asking, Decided};
use super::demand::{Demand, Mode};
use super::engine::RateLimiter;
use super::events::{DecisionSource, Report};
use super::grant::Grant;
use super::permit::Permit;
use super::rate_limited::RateLimited;
use super::snapshot::{Level, wait_of};
use crate::algebra::{State, Units, Verdict};
use crate::backend::{Memory, Reading, UnknownBucket};
use crate::clock::Timestamp;

/// Decides a call on one bucket in memory: the twin of [`ask`](RateLimiter::ask) that most calls take.
/// The store never fails.
// A function of its own, not inlined: its arguments are in registers, and it writes its answer to
// where the poll returns it. So little code is inlined where users write the call, and the answer
// is not copied.
#[inline(never)]
pub(super) fn decide<'l>(
    limiter: &'l RateLimiter,
    memory: &Memory,
    demand: &mut Demand<&'l Limit>,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let units = match demand.units(Mode::Take) {
        Ok(units) => units,
        Err(error) => {
            return denied(limiter, demand, |demands, asking| {
                limiter.decide_too_large(demands, asking, error)
            });
        }
    };
    match memory.charge(&demand.charge_of(units, Mode::Take)) {
        Ok((at, reading)) => answer(limiter, demand, at, reading),
        Err(unknown) => decide_unknown(limiter, unknown, demand, units),
    }
}

#[cold]
#[inline(never)]
fn decide_unknown<'l>(
    limiter: &'l RateLimiter,
    unknown: UnknownBucket<'_>,
    demand: &mut Demand<&'l Limit>,
    units: Units,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let applied = unknown.charge(&demand.charge_of(units, Mode::Take));
    match applied.readings() {
        [reading] if reading.verdict() == Verdict::Admitted => {
            answer(limiter, demand, applied.now(), *reading)
        }
        _ => denied(limiter, demand, |demands, asking| {
            limiter.refused(demands, asking, CompleteAnswer::of_memory(applied))
        }),
    }
}

#[cold]
#[inline(never)]
fn denied<'l>(
    limiter: &'l RateLimiter,
    demand: &Demand<&'l Limit>,
    decide: impl FnOnce(&[Demand<&'l Limit>], Asking) -> Decided,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    let asking = Asking::take(DecisionSource::Handler, limiter.get_on_failure());
    let demands = slice::from_ref(demand);
    let decided = decide(demands, asking);
    Poll::Ready(Err(decided.error(limiter, demands, demand.limit, Duration::ZERO)))
}

#[inline(always)]
fn answer<'l>(
    limiter: &'l RateLimiter,
    demand: &mut Demand<&'l Limit>,
    at: Timestamp,
    reading: Reading,
) -> Poll<Result<Permit<'l>, RateLimited>> {
    if limiter.observers().is_some() {
        tell(limiter, demand.limit, demand.cost, reading);
    }
    Poll::Ready(match reading.verdict() {
        Verdict::Admitted => {
            Ok(Permit::from_grant(limiter, Grant::from_reading(demand, &reading, at)))
        }
        Verdict::Reserved | Verdict::Refused => {
            Err(refused_one(limiter, demand, at, reading.state(), reading.wait()))
        }
    })
}

#[cold]
#[inline(never)]
fn tell(limiter: &RateLimiter, limit: &Limit, cost: u64, reading: Reading) {
    if let Some(observers) = limiter.observers() {
        Report::of_reading(DecisionSource::Handler, limit, cost, &reading).tell(observers);
    }
}

/// Not inlined: admitted requests should not pay for this code.
#[inline(never)]
fn refused_one(
    limiter: &RateLimiter,
    demand: &Demand<&Limit>,
    at: Timestamp,
    state: State,
    wait: Duration,
) -> RateLimited {
    let verdict = Verdict::Refused;
    let wait = wait_of(demand.limit, verdict, wait);
    let level = Level { verdict, state, wait, cost: demand.cost, at };
    RateLimited::refused(demand.limit, level, wait).with_speech(limiter.speech())
}
