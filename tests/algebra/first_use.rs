//! Windows that begin with the first use, against an oracle that lists when each window ends.

use std::time::Duration;

use tollgate::algebra::{Bucket, State, Terms, Verdict, block, charge, undo, untouched};
use tollgate::backend::{BucketId, BucketRecord, Key};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, Timestamp};
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;

const START: Timestamp = Timestamp::from_micros(1_700_000_123_456_789);

/// Counts windows one after the other.
struct Oracle {
    period: u64,
    rate: i64,
    capacity: i64,
    held: i64,
    /// The start of the window in which it counts.
    window: u64,
}

impl Oracle {
    fn charge(&mut self, now: u64, cost: i64, debt: i64) -> (Verdict, u64) {
        while self.held < self.capacity && self.window + self.period <= now {
            self.held = self.capacity.min(self.held + self.rate);
            self.window += self.period;
        }
        if self.held == self.capacity {
            self.window = self.window.max(now);
        }
        let left = self.held - cost;
        if left >= 0 {
            self.held = left;
            return (Verdict::Admitted, 0);
        }
        let (mut paid, mut due) = (left, self.window);
        while paid < 0 {
            (paid, due) = (paid + self.rate, due + self.period);
        }
        if -left <= debt {
            self.held = left;
            return (Verdict::Reserved, due - now);
        }
        (Verdict::Refused, due - now)
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros.cast_signed())
}

#[test]
fn charges_are_what_counting_windows_says_whether_a_full_bucket_is_kept_or_not() {
    let (mut waits, mut dropped) = (0, 0);
    for seed in 0..times(20_000, 300) {
        let mut dice = Dice(seed);
        let [rate, more, debt] = [1 + dice.below(5), dice.below(8), dice.below(9)];
        let period = [1, 7, 1_000_000, 3_600_000_000][dice.nth(&[0; 4])];
        let quota = Quota::fixed_window(rate, Duration::from_micros(period))
            .capacity(rate + more)
            .max_reserved(debt)
            .from_first_use();
        let bucket = Bucket::new(&quota).unwrap();
        let [rate, capacity, debt] = [rate, rate + more, debt].map(u64::cast_signed);
        let mut now = START.as_micros().unsigned_abs();
        let mut oracle = Oracle { period, rate, capacity, held: capacity, window: now };
        let mut stored: Option<State> = None;
        for _ in 0..60 {
            now += [0, 1, dice.below(period + 1), dice.below(4 * period)][dice.nth(&[0; 4])];
            if let Some(state) = stored
                && bucket.full_at(state) <= at(now)
                && dice.below(2) == 0
            {
                (stored, dropped) = (None, dropped + 1);
            }
            let cost = (1 + dice.below(capacity.unsigned_abs())).cast_signed();
            let units = bucket.units(cost.unsigned_abs()).unwrap();
            // Any phase: it makes no difference.
            let phase = at(dice.below(1 << 40));
            let decide = |stored: Option<State>, now: u64, floor: i64| {
                let state = stored.unwrap_or_else(|| bucket.absent(at(now), phase));
                charge(&bucket, state, units, Terms::reserving(floor), at(now))
            };
            let charged = decide(stored, now, bucket.floor());
            let wait = u64::try_from(charged.wait().as_micros()).unwrap();
            let what = || format!("seed {seed}: {quota} at {now}, cost {cost}, from {stored:?}");
            let expected = oracle.charge(now, cost, debt);
            assert_eq!((charged.verdict(), wait), expected, "{}", what());
            if charged.verdict() == Verdict::Refused {
                waits += 1;
                assert_eq!(decide(stored, now + wait - 1, 0).verdict(), Verdict::Refused);
                assert_eq!(decide(stored, now + wait, 0).verdict(), Verdict::Admitted);
                continue;
            }
            let after = charged.after();
            assert_eq!(bucket.refresh(after, at(now)), after, "{}", what());
            // A charge that is undone leaves what was there, at any time.
            if dice.below(4) == 0 {
                let later = at(now + dice.below(2 * period));
                assert!(untouched(&bucket, after, after, later), "{}", what());
                let undone = undo(&bucket, after, units, later);
                let before = bucket.refresh(charged.before(), later);
                assert!(undone.value >= before.value.min(bucket.capacity()), "{}", what());
            }
            stored = Some(after);
        }
    }
    assert!(waits > 2_000 && dropped > 500, "{waits} {dropped}");
}

/// Any two of these read each other's records without a loss, as they count in the same numbers.
#[test]
fn windows_that_are_under_way_go_on_when_they_begin_with_the_first_use_from_now_on() {
    let (key, of_key) = (Key::from("alice"), Quota::fixed_window(5, HOUR));
    let [of_key, first_use] =
        [of_key, of_key.from_first_use()].map(|one| Bucket::new(&one).unwrap());
    let begun = of_key.absent(START, BucketId::new("login", &key).phase(&of_key));
    let used = State { value: 2, ..begun };
    let record = BucketRecord::new(&of_key, used);
    assert_eq!(BucketRecord::new(&first_use, used), record);
    let wait = charge(&first_use, used, 3, Terms::AT_ONCE, START).wait();
    assert_eq!(START + wait, begun.ts + HOUR);
}

#[cfg(feature = "memory")]
#[tokio::test]
async fn five_an_hour_are_five_in_the_hour_that_begins_with_the_first() {
    use std::sync::Arc;
    use tollgate::backend::Memory;
    use tollgate::clock::ManualClock;

    let clock = ManualClock::new(START);
    let limiter = RateLimiter::new(Arc::new(Memory::new().clock(clock.clone())));
    let login = Limit::new("login", Quota::fixed_window(5, HOUR).from_first_use());
    for user in 0..200 {
        let ask = || limiter.limit(&login).key(user);
        clock.advance(MINUTE * 7);
        let begun = tollgate::clock::Clock::now(&clock);
        for _ in 0..5 {
            let permit = ask().await.unwrap();
            assert_eq!(permit.snapshot().window_end(), Some(begun + HOUR));
            clock.advance(MINUTE);
        }
        assert_eq!(ask().await.unwrap_err().retry_after(), Some(HOUR - MINUTE * 5));
        clock.advance(HOUR);
        // The hour is over, and nobody has begun another.
        let next = tollgate::clock::Clock::now(&clock);
        assert_eq!(ask().await.unwrap().snapshot().window_end(), Some(next + HOUR));
    }
}

/// Neither longer than the window that it begins, nor open before its end.
#[test]
fn a_block_begins_a_window_if_none_is_under_way() {
    let bucket = Bucket::new(&Quota::fixed_window(5, HOUR).from_first_use()).unwrap();
    let full = State { value: 5, ts: START };
    for (minutes, closed) in [(10, HOUR), (60, HOUR), (61, 2 * HOUR), (600, 10 * HOUR)] {
        let now = START + 7 * HOUR;
        let blocked = block(&bucket, full, now + minutes * MINUTE, now);
        let ask = |at| charge(&bucket, blocked, 1, Terms::AT_ONCE, at).verdict();
        let opens = now + closed;
        let before = Timestamp::from_micros(opens.as_micros() - 1);
        assert_eq!([ask(before), ask(opens)], [Verdict::Refused, Verdict::Admitted], "{minutes}");
    }
}

/// A cost that an idle bucket can never grant in time is an error, and no refusal for ever.
#[test]
fn a_wait_is_as_long_as_the_window_that_the_request_would_begin() {
    let nothing_saved = Quota::fixed_window(5, HOUR).capacity(0).from_first_use();
    let bucket = Bucket::new(&nothing_saved).unwrap();
    for (max_wait, too_large) in [(HOUR / 2, true), (HOUR, false)] {
        let terms = Terms::reserving(bucket.floor()).within(max_wait);
        assert_eq!(bucket.too_large(1, terms), too_large);
        let charged = charge(&bucket, bucket.absent(START, START), 1, terms, START);
        assert_eq!(charged.verdict() == Verdict::Refused, too_large);
    }
}

#[test]
fn the_text_form_is_a_start() {
    let quota = Quota::fixed_window(5, HOUR).capacity(8).from_first_use().shards(2);
    let text = "fixed window: 5 per hour, capacity 8, start first use, shards 2";
    assert_eq!((quota.to_string().as_str(), text.parse()), (text, Ok(quota)));
    assert_ne!(quota, Quota::fixed_window(5, HOUR).capacity(8).shards(2));
    assert!(quota.is_from_first_use() && quota.get_start().is_none());
    let told = Quota::token_bucket(5, HOUR).from_first_use().validated().unwrap_err().to_string();
    assert!(told.starts_with("a token bucket has no start (drop"), "{told}");
}
