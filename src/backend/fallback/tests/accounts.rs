//! Tokens go back to the store that was paid, and to no other.

use tollgate_testing::cases::{seeds, times};

use super::*;
use crate::backend::tests::Dice;
use crate::backend::{Adjustment, Applied, Reading};
use crate::quota::DAY;

static MANY: Limit = Limit::new("many", Quota::token_bucket(1_000, DAY.saturating_mul(365)));

#[tokio::test]
async fn a_permit_is_settled_in_the_store_that_was_paid() {
    let case = Case::new(1);
    let from_store = case.limiter.limit(&TEN).cost(4).await.unwrap().into_owned();
    case.fail();
    let from_local = case.limiter.limit(&TEN).cost(5).await.unwrap().into_owned();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (6, 1));
    // The store fails, so its tokens stay taken there. Here the work has ended.
    assert!(from_store.refund().await.unwrap_err().is_outage());
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (6, 5));
    // The store is back, and what was paid locally goes back locally.
    case.recover();
    assert_eq!(from_local.settle(2).await.unwrap().remaining(), 8);
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (6, 8));
}

/// Two fallbacks around each other cannot tell which store has paid.
#[tokio::test]
async fn nothing_comes_back_of_what_a_fallback_inside_of_another_has_granted() {
    let inner = Case::new(1);
    inner.fail();
    let outer = Fallback::new(Arc::clone(&inner.fallback), Memory::new());
    let limiter = RateLimiter::new(outer);
    let permit = limiter.limit(&TEN).cost(4).await.unwrap();
    inner.recover();
    permit.refund().await.unwrap();
    assert_eq!((inner.in_store(&TEN), inner.in_local(&TEN)), (10, 6));
}

/// Random calls while the store comes and goes, compared with two accounts: what was paid in a
/// store and has not come back is what it misses. No time passes, so nothing is gained.
///
/// Of what a local bucket has paid in part, a 2,047th may stay taken by rounding.
#[tokio::test]
async fn both_accounts_are_exact() {
    let token = i64::try_from(MANY.bucket().token()).unwrap();
    let full = 1_000 * token;
    let (mut settled_here, mut settled_there, mut settled_in_part) = (0, 0, 0);
    for seed in seeds(60) {
        let case = Case::new(1);
        let mut dice = Dice(seed);
        let mut permits = Vec::new();
        let (mut in_store, mut in_local, mut fails) = (full, full, false);
        for _ in 0..300 {
            match dice.below(8) {
                0 => {
                    fails = !fails;
                    if fails { case.fail() } else { case.recover() }
                }
                1..5 => {
                    let cost = dice.below(40);
                    let fits = if fails { in_local } else { in_store };
                    let answer = case.limiter.limit(&MANY).cost(cost).await;
                    let cost = i64::try_from(cost).unwrap() * token;
                    assert_eq!(answer.is_ok(), cost <= fits, "seed {seed}");
                    let Ok(permit) = answer else { continue };
                    if !fails {
                        in_store -= cost;
                    }
                    // What the store has taken empties a local bucket at most.
                    let paid_here = cost.min(in_local.max(0));
                    in_local -= paid_here;
                    permits.push((permit.into_owned(), cost, paid_here, fails));
                }
                _ if permits.is_empty() => {}
                _ => {
                    let nth = usize::try_from(dice.below(9)).unwrap() % permits.len();
                    let (permit, paid, paid_here, here) = permits.swap_remove(nth);
                    let actual = i64::try_from(dice.below(50)).unwrap();
                    let back = paid - actual * token;
                    let answer = permit.settle(u64::try_from(actual).unwrap()).await;
                    assert_eq!(answer.is_ok(), here || !fails);
                    if here {
                        settled_here += 1;
                        in_local = (in_local + back).min(full);
                    } else {
                        if !fails {
                            settled_there += 1;
                            in_store = (in_store + back).min(full);
                        }
                        // As if the actual cost had been charged at once.
                        let back_here = back.min((back - (paid - paid_here)).max(0));
                        settled_in_part += i32::from(back_here < back);
                        in_local = (in_local + back_here).min(full);
                    }
                }
            }
            assert_eq!(held_units(&case.store.inner, &MANY), in_store, "seed {seed}");
            let rounded = in_local - held_units(&case.local, &MANY);
            assert!((0..=40 * token / 2_047 + 1).contains(&rounded), "seed {seed}: {rounded}");
            in_local -= rounded;
        }
    }
    let least = times(500, 200);
    assert!(settled_here > least && settled_there > least, "{settled_here}, {settled_there}");
    assert!(settled_in_part > 5, "{settled_in_part}");
}

/// Four nodes on a store that comes and goes, each asked more than it has: what all of them admit in
/// an outage is at most a capacity and the gain, however it is spread.
#[tokio::test]
async fn all_nodes_together_admit_no_more_than_the_limit() {
    static HUNDRED: Limit =
        Limit::new("hundred", Quota::token_bucket(100, SECOND.saturating_mul(10)));
    for seed in seeds(20) {
        let mut dice = Dice(seed);
        let nodes: Vec<_> = (0..4).map(|_| Case::new(4)).collect();
        nodes.iter().for_each(Case::fail);
        let (mut admitted, mut tenths) = (0_u64, 0_u64);
        for _ in 0..600 {
            if dice.one_in(3) {
                nodes.iter().for_each(|node| node.clock.advance(SECOND / 10));
                tenths += 1;
            }
            let cost = 1 + dice.below(5);
            let node = &nodes[usize::try_from(dice.below(4)).unwrap()];
            if node.limiter.limit(&HUNDRED).cost(cost).await.is_ok() {
                admitted += cost;
            }
            assert!(admitted <= 100 + tenths, "seed {seed}: {admitted} in {tenths} tenths");
        }
        assert!(admitted > 200, "{admitted}");
    }
}

/// Four nodes share a store that comes and goes. Each switch, in either direction, admits one capacity
/// more at most, as the documentation says.
#[tokio::test]
async fn each_switch_admits_at_most_one_capacity_more() {
    static HUNDRED: Limit =
        Limit::new("hundred", Quota::token_bucket(100, SECOND.saturating_mul(10)));
    let mut most = 0;
    for seed in seeds(40) {
        let (mut dice, case) = (Dice(seed), Case::new(4));
        let node = |_| {
            let local = Memory::new().clock(case.clock.clone());
            RateLimiter::new(Fallback::new(Arc::clone(&case.store), local).nodes(4))
        };
        let nodes: Vec<_> = (0..4).map(node).collect();
        let (mut admitted, mut tenths, mut switches, mut fails) = (0_u64, 0_u64, 0_u64, false);
        for _ in 0..800 {
            if dice.one_in(60) {
                fails = !fails;
                switches += 1;
                if fails { case.fail() } else { case.recover() }
            }
            if dice.one_in(4) {
                case.clock.advance(SECOND / 10);
                tenths += 1;
            }
            let cost = 1 + dice.below(8);
            // One node has more to do than the others.
            let nth = usize::try_from(dice.below(6)).unwrap().min(3);
            if nodes[nth].limit(&HUNDRED).cost(cost).await.is_ok() {
                admitted += cost;
            }
            let allowed = 100 * (1 + switches) + tenths;
            assert!(
                admitted <= allowed,
                "seed {seed}: {admitted} of {allowed}, {switches} switches"
            );
        }
        most = most.max(admitted.saturating_sub(100 + tenths));
    }
    assert!(most > 50, "the bound is put to the test: {most} more than without switches");
}

/// A wrapper that makes readings and adjustments of its own, as one does that renames buckets or
/// converts numbers.
#[derive(Debug)]
struct Rewriting<B>(B);

impl<B: Backend> Backend for Rewriting<B> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges).map(|applied| {
            let rewrite = |one: &Reading| {
                let reading = Reading::new(one.verdict(), one.state(), one.wait());
                reading.taking(one.units()).with_receipt(one.receipt())
            };
            Applied::many(applied.now(), applied.readings().iter().map(rewrite).collect())
        })
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let rewritten = adjustments.iter().map(|one| {
            Adjustment::new(one.id(), one.bucket(), one.change()).with_receipt(one.receipt())
        });
        self.0.adjust(&rewritten.collect::<Vec<_>>())
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}

/// Without the receipt, the store got back what the local store had paid.
#[tokio::test]
async fn what_a_wrapper_hands_on_goes_back_to_the_store_that_has_paid() {
    let case = Case::new(1);
    let limiter = RateLimiter::new(Rewriting(Arc::clone(&case.fallback)));
    let _five = limiter.limit(&TEN).cost(5).await.unwrap();
    case.fail();
    let local = limiter.limit(&TEN).cost(3).await.unwrap();
    case.recover();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (5, 2));
    local.refund().await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (5, 5));
    case.fail();
    let _all = limiter.limit(&TEN).cost(5).await.unwrap();
    case.recover();
    // The local store has nothing left to pay these four with.
    let paid = limiter.limit(&TEN).cost(4).await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (1, 0));
    paid.refund().await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (5, 0));
}
