//! Times that no right clock has written.
//!
//! # Design
//!
//! A store goes by one clock, that of its server. If that was years ahead once, or that of the
//! server before it, the buckets of then have times in years to come, and no time passes for them
//! until then. So a time that lies further ahead than [`MOST_AHEAD`] is read as now. The bucket
//! keeps its value, and is stored so at once, whatever the request is and becomes: a bucket that is
//! refused would otherwise be read as of a later now each time, and never gain.
//!
//! * **Values below zero stay.** They are [blocks](super::block), which have times in the future on
//!   purpose, and debts, which cannot be told from blocks.
//! * **Nothing is minted.** A bucket gains from then on what the clock brings, from the next window
//!   on if it has windows. Where they begin with the first use, a window begins now.
//! * **Only where one clock decides.** Two hosts that go by clocks of their own, and that differ by
//!   more, would each read the time of the other as now, and a bucket would gain the difference
//!   with each turn. There, such a bucket waits for the clock.

use super::bucket::Bucket;
use super::state::State;
use crate::clock::Timestamp;
use crate::quota::MAX_UNITS;

/// How far ahead a time may lie, in microseconds: an hour.
///
/// It is more than the clocks of two servers differ that take over from each other, also if one of
/// them is set to the wrong time zone's summer time. With less, each failover to a server that is
/// ahead, and back, could bring what the difference brings, again and again. With more, buckets
/// stand still for longer after a clock was wrong. `clock.lua` and `clock.sql` have the same
/// number.
pub const MOST_AHEAD: u64 = 3_600_000_000;

impl Bucket {
    /// Whether a state in these numbers has a time after `latest`, and is no block and no debt.
    #[inline]
    pub(crate) fn is_ahead(&self, State { value, ts }: State, latest: Timestamp) -> bool {
        // With a capacity of all units that can be counted, a block leaves the least value, which
        // is 0.
        ts > latest && value >= 0 && value > self.capacity().saturating_sub_unsigned(MAX_UNITS)
    }

    /// The time that a bucket in these numbers gets in place of one that lies too far ahead, if it
    /// is asked for by the numbers of `asked`: that of an absent one. Windows keep their phase by
    /// that.
    pub(crate) fn time_of_now(&self, asked: &Self, now: Timestamp, phase: Timestamp) -> Timestamp {
        if self.step() == asked.step() { asked.absent(now, phase).ts } else { now }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algebra::block;
    use crate::quota::Quota;

    /// Small buckets of all kinds, whose windows begin at 3, or with the first use.
    fn small_buckets() -> Vec<Bucket> {
        let micros = Duration::from_micros;
        let bucket = Quota::token_bucket(2, micros(3)).capacity(5);
        let window = Quota::fixed_window(3, micros(7)).start(Timestamp::from_micros(3));
        let saving = window.capacity(8);
        let late = Quota::fixed_window(3, micros(7)).from_first_use();
        [bucket, window, saving, late].iter().map(|quota| Bucket::new(quota).unwrap()).collect()
    }

    /// What it gains is what an oracle counts that knows no time of a state: the steps that begin.
    #[test]
    fn a_bucket_keeps_its_value_and_gains_with_each_step_that_begins_from_now_on() {
        let far = MOST_AHEAD.cast_signed();
        for bucket in &small_buckets() {
            for (now, value) in
                (100..120).flat_map(|now| (0..bucket.capacity()).map(move |v| (now, v)))
            {
                let [now, phase] = [now, 3].map(Timestamp::from_micros);
                for ahead in far + 1..far + 9 {
                    let state =
                        State { value, ts: Timestamp::from_micros(now.as_micros() + ahead) };
                    assert!(bucket.is_ahead(state, now.plus_micros(MOST_AHEAD)));
                    let caught_up = State { value, ts: bucket.time_of_now(bucket, now, phase) };
                    let mut gained = value;
                    for later in 0..30 {
                        let at = now.plus_micros(later);
                        let begins = match bucket.is_from_first_use() {
                            true => later % bucket.step() == 0,
                            false => bucket.gains_at(at, || phase),
                        };
                        if later > 0 && begins {
                            gained = (gained + bucket.gain().cast_signed()).min(bucket.capacity());
                        }
                        assert_eq!(bucket.refresh(caught_up, at).value, gained, "{bucket:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_debts_and_times_up_to_the_bound_are_as_they_are() {
        let now = Timestamp::from_micros(1_000);
        let latest = now.plus_micros(MOST_AHEAD);
        for bucket in &small_buckets() {
            let full = State { value: bucket.capacity(), ts: now };
            let blocked = block(bucket, full, latest.plus_micros(1_000_000), now);
            assert!(blocked.ts > latest && !bucket.is_ahead(blocked, latest));
            for value in [0, bucket.capacity()] {
                assert!(!bucket.is_ahead(State { value, ts: latest }, latest));
                assert!(bucket.is_ahead(State { value, ts: latest.plus_micros(1) }, latest));
            }
        }
        // All units that can be counted: a block leaves no value below zero.
        let most = Quota::token_bucket(1, Duration::from_micros(1)).capacity(MAX_UNITS);
        let most = Bucket::new(&most.max_reserved(0)).unwrap();
        let blocked = block(&most, State { value: 0, ts: now }, latest.plus_micros(1_000_000), now);
        assert_eq!(blocked.value, 0);
        assert!(blocked.ts > latest && !most.is_ahead(blocked, latest));
    }
}
