//! A random source behind a random limit: the instants are those of the bucket alone.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use proptest::prelude::*;
use tokio::time::{Instant, sleep};
use tollgate::{Limit, Quota};
use tollgate_testing::queue::paused;

/// The bucket in units of which one token is `period`, and one microsecond gains `rate`.
struct Model {
    rate: i128,
    period: i128,
    capacity: i128,
    value: i128,
    at: i128,
}

impl Model {
    /// When an item that comes at `now` may pass, in microseconds.
    fn charge(&mut self, now: i128, cost: i128) -> i128 {
        let gained = self.value + (now - self.at) * self.rate;
        self.value = gained.min(self.capacity * self.period) - cost * self.period;
        self.at = now;
        // Rounded up.
        now + (-self.value).max(0).div_ceil_by(self.rate)
    }
}

trait DivCeil {
    fn div_ceil_by(self, by: Self) -> Self;
}

impl DivCeil for i128 {
    fn div_ceil_by(self, by: Self) -> Self {
        (self + by - 1) / by
    }
}

/// Timers of tokio fire at whole milliseconds.
fn whole_millis(micros: i128) -> i128 {
    micros.div_ceil_by(1_000) * 1_000
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn items_come_when_the_bucket_alone_says(
        rate in 1_u64..=2_000,
        period in 1_000_u64..=2_000_000,
        capacity in 0_u64..=20,
        // How many milliseconds an item takes to come once it is asked for, and what it costs.
        items in prop::collection::vec((0_u64..=300, 0_u64..=30), 1..40),
    ) {
        let quota = Quota::token_bucket(rate.min(period), Duration::from_micros(period));
        let limit = Limit::new("random", quota.capacity(capacity));
        let rate = i128::from(rate.min(period));
        let (period, capacity) = (i128::from(period), i128::from(capacity));
        let mut model = Model { rate, period, capacity, value: capacity * period, at: 0 };
        let mut now = 0;
        let expected: Vec<_> = items.iter().map(|&(takes, cost)| {
            now += i128::from(takes) * 1_000;
            if cost > 0 {
                now = whole_millis(model.charge(now, cost.into()));
            }
            (cost, now)
        }).collect();

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let seen = runtime.block_on(async {
            let source = stream::iter(items).then(async |(takes, cost)| {
                sleep(Duration::from_millis(takes)).await;
                cost
            });
            let source = Box::pin(source);
            let mut stream = paused().throttle(&limit).stream(source).cost_with(|cost| *cost);
            let start = Instant::now();
            let mut seen = Vec::new();
            while let Some(item) = stream.next().await {
                seen.push((item.unwrap(), i128::try_from(start.elapsed().as_micros()).unwrap()));
            }
            seen
        });
        prop_assert_eq!(seen, expected);
    }
}
