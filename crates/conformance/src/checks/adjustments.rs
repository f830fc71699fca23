//! Adjustments and resets.

use super::super::quotas::bucket;
use super::super::subject::Subject;
use super::super::trial::Trial;
use tollgate::algebra::State;
use tollgate::backend::{Adjustment, BucketId, Charge, Key};
use tollgate::clock::Timestamp;
use tollgate::quota::{DAY, HOUR, MINUTE, Quota, SECOND};

/// Refunds, settlements, penalties and blocks, of all sizes, on buckets that are stored and not.
pub(crate) async fn adjustments_do_what_they_say(subject: Subject) {
    let mut trial = Trial::new(&subject);
    for (nth, quota) in [
        Quota::token_bucket(10, HOUR),
        Quota::fixed_window(10, HOUR),
        Quota::token_bucket(10, HOUR).initial(3),
        Quota::token_bucket(10, HOUR).capacity(0),
        Quota::token_bucket(1, MINUTE).capacity(1 << 20),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let id = BucketId::new("conformance-adjust", &key);
        let token = bucket.units(1).unwrap();
        let refund = |units| Adjustment::refund(id, &bucket, units);
        // The bucket is not stored: nothing fits, and nothing is stored.
        trial.adjust(&[refund(token)]).await;
        trial.adjust(&[Adjustment::block(id, &bucket, std::time::Duration::ZERO)]).await;
        let taken = trial.take(id, &bucket, token * 2).await;
        let since = taken.readings()[0].state();
        for units in [token, -token * 7, 0, 1, token * 4, i64::MAX, -token, i64::MIN, token] {
            trial.adjust(&[refund(units)]).await;
            trial.adjust(&[Adjustment::refund_since(id, &bucket, units, since)]).await;
            trial.pass(SECOND);
        }
        trial.reset(&[id]).await;
        trial.take(id, &bucket, token).await;
        for time in [SECOND, HOUR, SECOND, std::time::Duration::from_nanos(1), DAY * 400] {
            trial.adjust(&[Adjustment::block(id, &bucket, time)]).await;
            trial.take(id, &bucket, 0).await;
            // Blocked or not, tokens come and go.
            trial.adjust(&[refund(token)]).await;
            trial.pass(time / 2);
        }
        // Several at once, on one bucket and on others.
        let other = id.shard(1);
        trial
            .adjust(&[
                refund(-token),
                Adjustment::refund(other, &bucket, -token),
                refund(-token),
                Adjustment::block(other, &bucket, MINUTE),
            ])
            .await;
        trial.apply(&[Charge::look(id, &bucket, 1), Charge::look(other, &bucket, 1)]).await;
    }
}

/// An undo takes a charge back as if it had never been made, unless another one came after it.
/// Several adjustments with an undo that is not allowed change nothing.
pub(crate) async fn an_undo_needs_an_untouched_bucket(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let now = subject.now().await;
    for (nth, quota) in [
        Quota::token_bucket(10, HOUR),
        Quota::fixed_window(10, DAY).start(now),
        Quota::token_bucket(10, HOUR).initial(3),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let ids = ["conformance-undo", "conformance-undone"].map(|name| BucketId::new(name, &key));
        let token = bucket.units(1).unwrap();
        let take = ids.map(|id| Charge::take(id, &bucket, token));
        let first = trial.apply(&take).await;
        let left = [0, 1].map(|nth| first.readings()[nth].state());
        let undo = |nth: usize, left| Adjustment::undo(ids[nth], &bucket, token, left);
        trial.pass(SECOND);
        let second = trial.apply(&take[1..]).await.readings()[0].state();
        // The second bucket was charged since, so nothing is undone in the first either.
        trial.adjust(&[undo(0, left[0]), undo(1, left[1])]).await;
        trial.adjust(&[Adjustment::refund(ids[0], &bucket, -token), undo(1, left[1])]).await;
        trial.adjust(&[undo(1, second)]).await;
        trial.adjust(&[undo(0, left[0])]).await;
        trial.adjust(&[undo(0, left[0])]).await;
        let elsewhere = State { value: -5, ts: Timestamp::UNIX_EPOCH };
        trial.adjust(&[undo(0, elsewhere)]).await;
        trial.apply(&ids.map(|id| Charge::look(id, &bucket, 0))).await;
    }
}

/// A reset bucket is as if it had never been used, and no other bucket is touched.
pub(crate) async fn a_reset_makes_the_next_use_the_first(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let now = subject.now().await;
    let (alice, bob) = (Key::from("alice"), Key::from("bob"));
    for (limit, quota) in [
        ("conformance-reset-tokens", Quota::token_bucket(10, HOUR)),
        ("conformance-reset-window", Quota::fixed_window(10, DAY).start(now)),
        ("conformance-reset-slow", Quota::token_bucket(10, HOUR).initial(3)),
    ] {
        let bucket = bucket(quota);
        let ids = [
            BucketId::new(limit, &alice),
            BucketId::new(limit, &alice).shard(1),
            BucketId::new(limit, &bob),
            BucketId::new(limit, &Key::GLOBAL),
        ];
        let use_all = ids.map(|id| Adjustment::refund(id, &bucket, -bucket.capacity()));
        let look = ids.map(|id| Charge::look(id, &bucket, 1));
        for reset in [&ids[..1], &ids[1..2], &ids[2..], &[ids[3], ids[0], ids[3]], &ids] {
            trial.adjust(&use_all).await;
            trial.reset(reset).await;
            trial.apply(&look).await;
            // The first use starts the refill of a bucket that begins below its capacity.
            trial.take(ids[0], &bucket, bucket.capacity()).await;
            trial.pass(HOUR / 10);
            trial.apply(&look).await;
        }
        // A block ends as well, and what was never used may be reset.
        trial.adjust(&[Adjustment::block(ids[0], &bucket, DAY)]).await;
        trial.reset(&[ids[0]]).await;
        trial.reset(&[ids[0]]).await;
        trial.look(ids[0], &bucket).await;
    }
}
