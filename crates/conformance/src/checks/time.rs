//! The clock of the store: that it runs, waits to the tick, and steps back.

use std::time::{Duration, Instant};

use super::super::quotas::{TICK, bucket};
use super::super::subject::Subject;
use super::super::trial::Trial;
use tollgate::algebra::Verdict;
use tollgate::backend::{Adjustment, BucketId, Charge, Key};
use tollgate::clock::Clock;
use tollgate::quota::{DAY, HOUR, MINUTE, Quota, SECOND};

/// For how long a clock may show the same time.
const STANDSTILL: Duration = Duration::from_secs(2);

/// The time of the answers does not stand still while calls are made.
pub(crate) async fn the_clock_runs(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let (key, bucket) = (Key::GLOBAL, bucket(Quota::token_bucket(10, MINUTE)));
    let id = BucketId::new("conformance-clock", &key);
    let (first, begun) = (trial.take(id, &bucket, 1).await, Instant::now());
    loop {
        let next = trial.look(id, &bucket).await;
        if next.now() > first.now() {
            return;
        }
        assert!(
            begun.elapsed() < STANDSTILL,
            "`Backend::apply` breaks the contract: calls of {STANDSTILL:?} were all decided at \
             {:?}\ncontract: each call reads the clock\nanswered: {next:?}",
            first.now()
        );
    }
}

/// With no other traffic, the same request is refused one tick before its wait is over, and
/// admitted then.
pub(crate) async fn a_retry_is_admitted_at_its_time_and_no_tick_earlier(subject: Subject) {
    let clock = subject.clock.clone().expect("the check is for a clock that is set");
    let mut trial = Trial::new(&subject);
    for (nth, quota) in [
        Quota::token_bucket(10, HOUR),
        Quota::token_bucket(7, SECOND).capacity(20),
        Quota::token_bucket(3, DAY).initial(0),
        Quota::token_bucket(7, HOUR).shards(3),
        Quota::fixed_window(10, HOUR),
        Quota::fixed_window(3, MINUTE).capacity(10),
        Quota::fixed_window(10, DAY).start(clock.now()),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let (id, other) = (BucketId::new("conformance-retry", &key), Key::from((nth, "other")));
        let other = BucketId::new("conformance-retry", &other);
        let all = bucket.capacity();
        let ways = [
            vec![Charge::take(id, &bucket, all)],
            vec![Charge::take(id, &bucket, 1)],
            vec![Charge::take(id, &bucket, all).second_shard(1)],
            vec![Charge::take(other, &bucket, 1), Charge::take(id, &bucket, all)],
            vec![Charge::take(id, &bucket, all / 2), Charge::take(id, &bucket, all / 2)],
        ];
        for ask in ways {
            for debt in [0, all / 3, all * 2] {
                let ids = [id, id.shard(1), other];
                trial.reset(&ids).await;
                let empty = ids.map(|id| Adjustment::refund(id, &bucket, -all - debt));
                trial.adjust(&empty).await;
                clock.advance(Duration::from_micros(123_457));
                let refused = trial.apply(&ask).await;
                if refused.verdict() != Verdict::Refused {
                    continue;
                }
                let wait = refused.wait();
                clock.advance(wait - TICK);
                let early = trial.apply(&ask).await;
                assert_eq!(early.verdict(), Verdict::Refused, "one tick before {wait:?}: {ask:?}");
                clock.advance(TICK);
                let late = trial.apply(&ask).await;
                assert_eq!(late.verdict(), Verdict::Admitted, "after {wait:?}: {ask:?}");
            }
        }
    }
}

/// While the clock is behind the time of a bucket, no time passes for that bucket.
pub(crate) async fn a_clock_that_goes_back_changes_nothing(subject: Subject) {
    let clock = subject.clock.clone().expect("the check is for a clock that is set");
    let start = clock.now();
    let mut trial = Trial::new(&subject);
    for (nth, quota) in [
        Quota::token_bucket(10, DAY),
        Quota::token_bucket(10, DAY).initial(3),
        Quota::fixed_window(10, DAY),
        Quota::fixed_window(10, DAY).start(start),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let id = BucketId::new("conformance-back", &key);
        let token = bucket.units(1).unwrap();
        for back in [TICK, SECOND, HOUR, DAY * 3] {
            trial.set_time(start + DAY * 10).await;
            trial.reset(&[id]).await;
            trial.take(id, &bucket, token * 3).await;
            trial.set_time(start + (DAY * 10 - back)).await;
            for units in [token * 2, token * 9, 0] {
                trial.take(id, &bucket, units).await;
            }
            trial.adjust(&[Adjustment::refund(id, &bucket, token)]).await;
            trial.adjust(&[Adjustment::block(id, &bucket, MINUTE)]).await;
            trial.look(id, &bucket).await;
            trial.set_time(start + DAY * 10).await;
            trial.take(id, &bucket, token).await;
            trial.set_time(start + (DAY * 10 + HOUR)).await;
            trial.take(id, &bucket, token).await;
        }
        // A full bucket was dropped, or not.
        trial.set_time(start + DAY * 20).await;
        trial.look(id, &bucket).await;
        trial.set_time(start + DAY * 5).await;
        trial.take(id, &bucket, token).await;
    }
}
