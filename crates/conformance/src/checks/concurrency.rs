//! Calls at the same time, from several threads and from one.

use std::sync::{Arc, Barrier};
use std::thread;

use super::super::dice::Dice;
use super::super::quotas::bucket;
use super::super::subject::Subject;
use tollgate::algebra::{Bucket, Verdict, check_history};
use tollgate::backend::{Answer, Backend, BackendError, BucketId, Charge, Key, Reading};
use tollgate::clock::Timestamp;
use tollgate::quota::{Quota, SECOND};

const THREADS: usize = 8;

/// Runs `work` in several threads at the same time. They share the runtime of the check, where the
/// tasks of the store run.
async fn in_threads<T: Send + 'static>(
    subject: &Subject,
    work: impl AsyncFn(usize, &Subject) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    let together = Arc::new(Barrier::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|nth| {
            let (done, together, work) = (done.clone(), Arc::clone(&together), work.clone());
            let (subject, runtime) = (subject.clone(), tokio::runtime::Handle::current());
            thread::spawn(move || {
                together.wait();
                // The receiver is there until all threads have ended.
                let _ = done.send(runtime.block_on(work(nth, &subject)));
            })
        })
        .collect();
    drop(done);
    let mut all = Vec::new();
    while let Some(result) = results.recv().await {
        all.push(result);
    }
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
    all
}

async fn is_admitted(store: &dyn Backend, charges: &[Charge<'_>]) -> bool {
    let applied = store.apply(charges).wait().await.expect("an answer to charges");
    applied.verdict() == Verdict::Admitted
}

/// What a bucket holds.
async fn held(store: &dyn Backend, id: BucketId<'_>, bucket: &Bucket) -> i64 {
    let applied = store.apply(&[Charge::look(id, bucket, 0)]).wait().await.expect("a look");
    applied.readings()[0].state().value
}

/// All answers, awaited from first to last or backwards.
async fn await_all<T>(answers: Vec<Answer<T>>, backwards: bool) -> Vec<Result<T, BackendError>> {
    let mut answers: Vec<_> = answers.into_iter().map(Some).collect();
    let count = answers.len();
    let mut results: Vec<_> = (0..count).map(|_| None).collect();
    let order: Vec<_> = if backwards { (0..count).rev().collect() } else { (0..count).collect() };
    for nth in order {
        let answer = answers[nth].take().expect("each answer is awaited once");
        results[nth] = Some(answer.wait().await);
    }
    results.into_iter().flatten().collect()
}

/// Many calls of one task on one bucket, whose answers are awaited from first to last, from last to
/// first, and with some that are never polled before the others have ended.
pub(crate) async fn answers_can_be_awaited_in_any_order(subject: Subject) {
    let bucket = subject.lasting_bucket().await;
    let store = &subject.store;
    for (nth, backwards) in [false, true].into_iter().enumerate() {
        let (key, unused) = (Key::from(nth), Key::from((nth, "unpolled")));
        let [id, other] = [&key, &unused].map(|key| BucketId::new("conformance-order", key));
        store.reset(&[id, other]).wait().await.expect("a reset");
        let both = [Charge::take(other, &bucket, 1), Charge::take(id, &bucket, 1)];
        let unpolled = store.apply(&both);
        let answers = (0..40).map(|_| store.apply(&[Charge::take(id, &bucket, 50)])).collect();
        let answers = await_all(answers, backwards).await;
        let admitted =
            answers.iter().filter(|one| one.as_ref().unwrap().verdict() == Verdict::Admitted);
        let admitted = i64::try_from(admitted.count()).unwrap();
        let first = unpolled.wait().await.expect("an answer that is awaited late");
        let paid: i64 = first.readings().iter().map(Reading::units).sum();
        let left = held(&**store, id, &bucket).await;
        assert_eq!(
            admitted * 50 + paid / 2 + left,
            1_000,
            "`Backend::apply` breaks the contract: answers are awaited in another order\nasked: 40 \
             times 50 units, and once 1 unit, of 1,000\ncontract: what is taken and what is left are \
             1,000 units\nanswered: {admitted} times 50 and {} are taken, {left} are left",
            paid / 2
        );
        assert!((19..=20).contains(&admitted), "{admitted} charges of 50 fit into 1,000 units");
    }
}

/// All threads take from one bucket, and from one pair of shards, until it is empty and beyond.
pub(crate) async fn callers_at_once_admit_exactly_the_capacity(subject: Subject) {
    let bucket = subject.lasting_bucket().await;
    for shards in [1, 2] {
        let key = Key::from(shards);
        let id = BucketId::new("conformance-callers", &key);
        subject.store.reset(&[id, id.shard(1)]).wait().await.expect("a reset");
        let work = {
            let key = key.clone();
            async move |_: usize, subject: &Subject| {
                let id = BucketId::new("conformance-callers", &key);
                let charge = Charge::take(id, &bucket, 5).second_shard(u32::from(shards == 2));
                let mut admitted = 0;
                for _ in 0..60 {
                    admitted += u32::from(is_admitted(&*subject.store, &[charge]).await);
                }
                admitted
            }
        };
        let admitted: u32 = in_threads(&subject, work).await.into_iter().sum();
        let wanted = 200 * shards;
        assert_eq!(
            admitted, wanted,
            "`Backend::apply` breaks the contract: {THREADS} callers at once ask {shards} shards of \
             1,000 units for 5 units 480 times\ncontract: {wanted} are admitted\n\
             answered: {admitted} are admitted"
        );
        for shard in 0..shards {
            let left = held(&*subject.store, id.shard(shard), &bucket).await;
            assert_eq!(left, 0, "shard {shard} holds {left} units, and all were taken");
        }
    }
}

/// All threads charge two buckets at once, in either order: none waits for another for ever, and no
/// bucket pays without the other.
pub(crate) async fn lists_in_opposite_orders_are_all_or_nothing(subject: Subject) {
    const BUCKETS: usize = 4;
    let bucket = subject.lasting_bucket().await;
    let keys: [Key; BUCKETS] = [0_u64, 1, 2, 3].map(Key::from);
    let all: Vec<_> = keys.iter().map(|key| BucketId::new("conformance-opposite", key)).collect();
    subject.store.reset(&all).wait().await.expect("a reset");
    let work = {
        let keys = keys.clone();
        async move |thread: usize, subject: &Subject| {
            let mut taken = 0;
            for round in 0..80_usize {
                // The first bucket is in each second list, so it is used up before the others.
                let b = if round.is_multiple_of(2) { 0 } else { (round + thread) % BUCKETS };
                let a = (round / 2 + thread) % BUCKETS;
                let (a, b) = if thread.is_multiple_of(2) { (a, b) } else { (b, a) };
                let charges = [a, b].map(|nth| {
                    Charge::take(BucketId::new("conformance-opposite", &keys[nth]), &bucket, 7)
                });
                taken += 14 * i64::from(is_admitted(&*subject.store, &charges).await);
            }
            taken
        }
    };
    let taken: i64 = in_threads(&subject, work).await.into_iter().sum();
    let mut left = 0;
    for id in all {
        left += held(&*subject.store, id, &bucket).await;
    }
    assert_eq!(
        taken + left,
        4_000,
        "`Backend::apply` breaks the contract: lists on pairs of 4 buckets of 1,000 units, from \
         {THREADS} callers at once\ncontract: what was admitted and what is left are 4,000 units\n\
         answered: {taken} were admitted, {left} are left"
    );
}

/// All threads take different costs in several rounds, and time passes from round to round. What was
/// admitted in any rounds that follow each other is within the bound of the quota.
///
/// Within a round, calls may be decided in another order than that of their times, so windows are
/// no shorter than a round. If the suite sets the clock, a round is one instant.
pub(crate) async fn a_concurrent_history_is_within_the_bound(subject: Subject) {
    let mut dice = Dice(7);
    for (nth, quota) in [
        Quota::token_bucket(2_000, SECOND).capacity(40),
        Quota::fixed_window(20, SECOND / 100).capacity(40),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let id = BucketId::new("conformance-history", &key);
        subject.store.reset(&[id]).wait().await.expect("a reset");
        let (mut ran, mut rounds) = (Vec::new(), Vec::new());
        for seed in 0..12_u64 {
            let work = {
                let key = key.clone();
                async move |thread: usize, subject: &Subject| {
                    let id = BucketId::new("conformance-history", &key);
                    let mut dice = Dice(seed * 100 + thread as u64);
                    let mut ran = Vec::new();
                    for _ in 0..10 {
                        let cost = dice.below(7);
                        let charge = Charge::take(id, &bucket, bucket.units(cost).unwrap());
                        let answer = subject.store.apply(&[charge]).wait().await;
                        let applied = answer.expect("an answer to a charge");
                        if applied.verdict() == Verdict::Admitted {
                            ran.push((applied.now(), cost));
                        }
                    }
                    ran
                }
            };
            let from = subject.now().await;
            let round: Vec<_> = in_threads(&subject, work).await.into_iter().flatten().collect();
            let cost: u64 = round.iter().map(|(_, cost)| cost).sum();
            rounds.push(Round { from, to: subject.now().await, cost });
            ran.extend(round);
            if let Some(clock) = &subject.clock {
                clock.advance(SECOND / 10_000 * u32::try_from(dice.below(60)).unwrap());
            }
        }
        let mut violation = first_violation(&bucket, &rounds);
        if subject.clock.is_some() {
            let exact = check_history(&quota, &ran).expect("the quota can be counted");
            violation = violation.or(exact);
        }
        if let Some(violation) = violation {
            panic!(
                "`Backend::apply` breaks the contract under {THREADS} callers at once\nasked: 0 to 6 \
                 tokens of `{quota}`\ncontract: no more than the bound of `check_history`\n\
                 answered: {violation}"
            );
        }
        assert!(!ran.is_empty(), "a full bucket admits nothing");
    }
}

/// What was admitted between two times of the store.
struct Round {
    from: Timestamp,
    to: Timestamp,
    cost: u64,
}

/// The first rounds in which more was admitted than the capacity and the gain of their time.
fn first_violation(bucket: &Bucket, rounds: &[Round]) -> Option<String> {
    for (nth, first) in rounds.iter().enumerate() {
        let mut units = 0;
        for last in &rounds[nth..] {
            units += i128::from(last.cost) * i128::from(bucket.token());
            let time = last.to.since(first.from);
            let steps = time.as_micros() / u128::from(bucket.step()) + 1;
            let gain = i128::try_from(steps).unwrap() * i128::from(bucket.gain());
            let bound = i128::from(bucket.capacity()) + gain;
            if units > bound {
                return Some(format!("{units} units in {time:?}, where {bound} are the bound"));
            }
        }
    }
    None
}
