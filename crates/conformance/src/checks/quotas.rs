//! The numbers of quotas: their edges, their windows, full buckets, and numbers that change.

use std::time::Duration;

use super::super::quotas::{TICK, bucket};
use super::super::subject::Subject;
use super::super::trial::Trial;
use tollgate::algebra::{Bucket, Terms};
use tollgate::backend::{Adjustment, BucketId, Charge, Key};
use tollgate::clock::Timestamp;
use tollgate::quota::{DAY, HOUR, MINUTE, Quota, SECOND};

/// The most units that can be counted.
const MOST: u64 = 1 << 53;

/// Zero cost, a capacity of zero, tokens that begin below the capacity, and the largest numbers.
pub(crate) async fn the_edges_of_the_formula_are_exact(subject: Subject) {
    let mut trial = Trial::new(&subject);
    for (nth, quota) in [
        Quota::token_bucket(1, TICK),
        Quota::token_bucket(MOST, TICK).max_reserved(0),
        Quota::token_bucket(1, TICK * 7).capacity(MOST / 7).max_reserved(0),
        Quota::token_bucket(1, Duration::from_micros(MOST)),
        Quota::token_bucket(1, Duration::from_micros(MOST)).max_reserved(0),
        // In steps of 0.1 ms, and of a second.
        Quota::token_bucket(4_999, DAY * 30),
        Quota::token_bucket(999_999_937, DAY),
        Quota::fixed_window(MOST, TICK * 3).max_reserved(0),
        Quota::fixed_window(1, Duration::from_micros(MOST)).capacity(MOST).max_reserved(0),
        Quota::fixed_window(MOST / 11, HOUR),
        Quota::token_bucket(7, HOUR).capacity(0),
        Quota::token_bucket(7, HOUR).capacity(0).max_reserved(3),
        Quota::fixed_window(7, HOUR).capacity(0),
        Quota::token_bucket(7, HOUR).initial(0),
        Quota::token_bucket(7, HOUR).initial(3).max_reserved(0),
        Quota::fixed_window(7, HOUR).initial(3),
        Quota::token_bucket(7, SECOND).shards(3),
        Quota::fixed_window(7, SECOND).shards(3).capacity(5),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        exercise(&mut trial, BucketId::new("conformance-edges", &key), &bucket).await;
    }
}

/// Charges of all sizes in all ways, and the adjustments that undo or deepen them.
async fn exercise(trial: &mut Trial, id: BucketId<'_>, bucket: &Bucket) {
    let (token, all) = (bucket.units(1).unwrap(), bucket.capacity());
    let deep = Terms::reserving(bucket.floor());
    for units in [0, 1, token - 1, token, all - 1, all, all + 1, 1 << 53, 0] {
        let units = units.clamp(0, 1 << 53);
        trial.apply(&[Charge::look(id, bucket, units)]).await;
        trial.take(id, bucket, units).await;
        trial.apply(&[Charge::take(id, bucket, units).terms(deep.within(SECOND))]).await;
        trial.pass(Duration::from_micros(3));
        trial.apply(&[Charge::take(id, bucket, units).terms(deep)]).await;
        trial.adjust(&[Adjustment::refund(id, bucket, all)]).await;
        trial.pass(MINUTE * 11);
    }
    trial.adjust(&[Adjustment::refund(id, bucket, i64::MIN)]).await;
    trial.take(id, bucket, 0).await;
    trial.adjust(&[Adjustment::refund(id, bucket, i64::MAX)]).await;
    trial.take(id, bucket, all).await;
}

/// Windows with and without a start, however far away that is: each gains at its own instants.
pub(crate) async fn windows_begin_at_their_start_or_phase(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let mut quotas: Vec<_> =
        [MINUTE, HOUR, DAY * 30].map(|period| Quota::fixed_window(4, period)).to_vec();
    for start in [-(1 << 62), -1, 0, 1, 123_456_789, 1 << 62] {
        quotas.push(Quota::fixed_window(4, HOUR).start(Timestamp::from_micros(start)));
    }
    for (nth, quota) in quotas.into_iter().enumerate() {
        let bucket = bucket(quota);
        for key in [Key::from(nth), Key::from((nth, "b")), Key::from((nth, 7_u64))] {
            for limit in ["conformance-window", "conformance-windows"] {
                let id = BucketId::new(limit, &key);
                trial.look(id, &bucket).await;
                trial.take(id, &bucket, 3).await;
                // In another list, and for another shard: all shards have one phase.
                trial.apply(&[1, 2].map(|nth| Charge::take(id.shard(nth), &bucket, 5))).await;
                trial.take(id, &bucket, 3).await;
                trial.pass(MINUTE * 17);
                trial.take(id, &bucket, 3).await;
            }
        }
    }
}

/// Buckets that have filled up, as time passed or by a refund, and are used again: by the same
/// numbers and by others. A store may have dropped them.
pub(crate) async fn a_full_bucket_equals_none(subject: Subject) {
    let mut trial = Trial::new(&subject);
    // The first gain all that they hold within a tick, so they are full although no clock is set.
    let quotas = [
        Quota::token_bucket(100, TICK),
        Quota::fixed_window(100, TICK),
        Quota::token_bucket(3, MINUTE),
        Quota::token_bucket(100, MINUTE),
        Quota::token_bucket(3, MINUTE).initial(1),
        Quota::token_bucket(100, MINUTE).initial(5),
        Quota::fixed_window(1_000, DAY),
        Quota::fixed_window(10, HOUR).start(Timestamp::from_micros(-77)),
    ];
    for (nth, old) in quotas.into_iter().map(bucket).enumerate() {
        for (other, new) in quotas.into_iter().map(bucket).enumerate() {
            let key = Key::from((nth, other));
            let id = BucketId::new("conformance-full", &key);
            for refills in [true, false] {
                trial.take(id, &old, old.capacity().min(old.units(2).unwrap())).await;
                if refills {
                    trial.pass(DAY * 2);
                } else {
                    trial.adjust(&[Adjustment::refund(id, &old, old.capacity())]).await;
                }
                trial.look(id, &new).await;
                // A refusal starts the refill of a bucket that begins below its capacity.
                trial.take(id, &new, new.capacity() + 1).await;
                trial.pass(SECOND * 20);
                trial.take(id, &new, 1).await;
                trial.look(id, &old).await;
                trial.pass(DAY * 2);
            }
        }
    }
}

/// A plan becomes slower: until a request is admitted by it, the bucket gains by the faster one. So
/// it is a refusal, a look, an adjustment or a list with a refusal that changes nothing, and a
/// charge or a reservation that does.
pub(crate) async fn slower_numbers_wait_until_they_admit(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let pro = bucket(Quota::token_bucket(10_000, DAY));
    let free = bucket(Quota::token_bucket(100, DAY).max_reserved(50));
    let key = Key::from("alice");
    let id = BucketId::new("conformance-slower", &key);
    let [one, fifty] = [1, 50].map(|tokens| free.units(tokens).unwrap());
    let deep = Terms::reserving(free.floor());
    let short = Charge::take(id.shard(9), &free, free.capacity() + 1);
    for way in 0..10 {
        trial.reset(&[id, id.shard(1), id.shard(9)]).await;
        trial.take(id, &pro, pro.units(5_000).unwrap()).await;
        trial.take(id.shard(1), &pro, pro.units(9_000).unwrap()).await;
        // 4,901 tokens have to come back, at 10,000 a day.
        let refused = trial.take(id, &free, one).await;
        assert!(refused.wait() < DAY / 2, "the wait {:?} is by the faster numbers", refused.wait());
        let ask = match way {
            0 => Charge::look(id, &free, one),
            1 => Charge::take(id, &free, fifty).terms(deep),
            2 => Charge::take(id, &free, 0),
            3 | 4 => Charge::take(id, &free, fifty).second_shard(1),
            _ => Charge::take(id, &free, one),
        };
        match way {
            0..=2 => drop(trial.apply(&[ask]).await),
            3 => drop(trial.apply(&[ask.terms(deep)]).await),
            4 => drop(trial.apply(&[ask, ask, Charge::look(id, &pro, 0)]).await),
            5 => drop(trial.apply(&[ask, short]).await),
            6 => drop(trial.adjust(&[Adjustment::refund(id, &free, -fifty)]).await),
            7 => drop(trial.adjust(&[Adjustment::refund(id, &free, fifty)]).await),
            8 => drop(trial.adjust(&[Adjustment::block(id, &free, HOUR)]).await),
            _ => {
                let left = trial.look(id, &free).await.readings()[0].state();
                trial.adjust(&[Adjustment::undo(id, &free, one, left)]).await;
            }
        }
        trial.pass(HOUR * 11 + MINUTE * 45);
        for charge in [ask, ask.terms(deep), ask] {
            trial.apply(&[charge]).await;
            trial.pass(MINUTE);
        }
        trial.take(id, &free, one).await;
        trial.pass(HOUR);
        trial.apply(&[ask.terms(deep), short]).await;
        trial.apply(&[ask.terms(deep)]).await;
        trial.take(id, &free, one).await;
        trial.take(id, &pro, one).await;
    }
}

/// The numbers of a limit change between calls: upgrades, downgrades, other kinds, other starts.
/// A charge stores the bucket for the new numbers, and so does a refusal if they are not slower. A
/// look does not.
pub(crate) async fn changed_numbers_keep_what_was_used(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let now = subject.now().await;
    let quotas = [
        Quota::fixed_window(100, DAY).start(now),
        Quota::fixed_window(100, DAY).start(now + MINUTE),
        Quota::token_bucket(10, MINUTE),
        Quota::token_bucket(1_000, MINUTE).initial(3),
        Quota::token_bucket(10, MINUTE).capacity(0),
        Quota::token_bucket(2, DAY * 30).max_reserved(5),
        Quota::fixed_window(10_000_000_000, DAY),
        Quota::token_bucket(10, MINUTE).shards(3),
    ]
    .map(bucket);
    for (nth, old) in quotas.iter().enumerate() {
        for (other, new) in quotas.iter().enumerate() {
            let (key, beside) = (Key::from((nth, other)), Key::from((nth, other, "beside")));
            let id = BucketId::new("conformance-changed", &key);
            let deep = Terms::reserving(-new.units(50).unwrap());
            let used = old.units(3).unwrap();
            for way in 0..6 {
                trial.reset(&[id]).await;
                trial.adjust(&[Adjustment::refund(id, old, -used)]).await;
                trial.pass(SECOND);
                match way {
                    0 => drop(trial.look(id, new).await),
                    1 => drop(trial.take(id, new, 1).await),
                    2 => drop(trial.take(id, new, new.capacity() + 1).await),
                    3 => {
                        let beside = BucketId::new("conformance-changed", &beside);
                        let short = Charge::take(beside, new, new.capacity() + 1);
                        drop(trial.apply(&[Charge::take(id, new, 1), short]).await);
                    }
                    4 => {
                        let deep = Charge::take(id, new, new.capacity() + 1).terms(deep);
                        drop(trial.apply(&[deep]).await);
                    }
                    _ => drop(trial.adjust(&[Adjustment::refund(id, new, 1)]).await),
                }
                trial.pass(MINUTE);
                trial.look(id, new).await;
                trial.take(id, old, 1).await;
            }
        }
    }
}
