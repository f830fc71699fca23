//! Refunds, penalties, blocks and resets of a leased bucket.

use std::time::Duration;

use tokio::time::sleep;

use crate::Leasing;
use crate::terms::LeaseTerms;
use tollgate::algebra::{State, Units, Verdict};
use tollgate::backend::{Adjustment, Applied, Backend, BucketId, Change, Charge, Key};
use tollgate::clock::Timestamp;
use tollgate::{HOUR, SECOND};

use super::driver::{COLD, HOT, WINDOW, is_admitted, node, take, warm_up};
use super::lists::standing_node;
use super::stores::{Manner, Moody};

const TRIP: Duration = Duration::from_millis(1);

async fn adjust(node: &Leasing<Moody>, change: Change) -> Applied {
    let (key, bucket) = (Key::from("all"), HOT.bucket());
    let one = Adjustment::new(BucketId::new("hot", &key), &bucket, change);
    node.adjust(&[one]).wait().await.unwrap()
}

fn held(applied: &Applied) -> State {
    applied.readings()[0].state()
}

async fn refund(node: &Leasing<Moody>, units: Units, paid: &Applied) -> Applied {
    let bucket = HOT.bucket();
    let key = Key::from("all");
    let refund = Adjustment::refund(BucketId::new("hot", &key), &bucket, units);
    node.adjust(&[refund.with_receipt(paid.readings()[0].receipt())]).wait().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_lot_has_paid_goes_back_to_it() {
    let store = Moody::new(Manner::After(TRIP));
    let node = node(&store);
    warm_up(&node).await;
    let paid = take(&node, 5).await.unwrap();
    let calls = store.calls();
    let token = HOT.bucket().units(1).unwrap();
    let back = refund(&node, 3 * token, &paid).await;
    assert_eq!(held(&back).value, held(&paid).value + 3 * token);
    assert_eq!(store.calls(), calls, "no trip");
    // Once the lot is void, the refill has replaced its tokens.
    sleep(SECOND).await;
    let calls = store.calls();
    refund(&node, 2 * token, &paid).await;
    assert_eq!(store.calls(), calls, "lost, not sent");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_was_paid_goes_back_to_it_less_its_gain() {
    let store = Moody::new(Manner::After(TRIP));
    let node = node(&store);
    let token = HOT.bucket().units(1).unwrap();
    let paid = take(&node, 40_000).await.unwrap();
    let before = held(&paid).value;
    sleep(Duration::from_millis(100)).await;
    // 10,000 were gained in 0.1 s, so some 20,000 of 30,000 are credited.
    let back = refund(&node, 30_000 * token, &paid).await;
    let credited = (held(&back).value - before) / token;
    assert!((29_900..=30_200).contains(&credited), "{credited} with the gain");
}

#[tokio::test(start_paused = true)]
async fn a_penalty_takes_the_lots_first_and_the_rest_from_the_store() {
    let store = Moody::new(Manner::After(TRIP));
    let node = node(&store);
    warm_up(&node).await;
    let token = HOT.bucket().units(1).unwrap();
    let lots = held(&take(&node, 1).await.unwrap()).value;
    let calls = store.calls();
    let applied = adjust(&node, Change::Refund { units: -token }).await;
    assert_eq!((held(&applied).value, store.calls()), (lots - token, calls));
    let much = 200_000 * token;
    let applied = adjust(&node, Change::Refund { units: -much }).await;
    assert!(held(&applied).value < -much / 2, "{applied:?}");
    assert!(!is_admitted(&node, 1).await, "the bucket is in debt, and the lots are gone");
}

/// The clock of the node shows that its lots are void, and nothing has looked at them since.
#[tokio::test(start_paused = true)]
async fn the_store_pays_a_penalty_if_the_lots_are_void() {
    for limit in [&HOT, &WINDOW] {
        let (store, clock, node) = standing_node(limit, Manner::AtOnce).await;
        let (key, bucket) = (Key::from("all"), limit.bucket());
        assert!(node.held(&key) > 0);
        clock.advance(SECOND);
        let (id, token) = (BucketId::new("hot", &key), bucket.units(1).unwrap());
        let look = Charge::look(id, LeaseTerms::new(&bucket).unwrap().store(), 0).into_owned();
        let value =
            || async { held(&store.apply(&[look.as_charge()]).wait().await.unwrap()).value };
        let before = value().await;
        for (nth, units) in (1..).zip([7 * token, 100 * token]) {
            let since = State { value: 0, ts: Timestamp::UNIX_EPOCH };
            for change in
                [Change::Refund { units: -units }, Change::RefundSince { units: -units, since }]
            {
                let penalty = Adjustment::new(id, &bucket, change);
                node.adjust(&[penalty]).wait().await.unwrap();
            }
            let paid = [14, 214][nth - 1] * token;
            assert_eq!(before - value().await, paid, "{}", limit.0);
        }
    }
}

/// Of a list with a change that the store refuses, none is made.
#[tokio::test(start_paused = true)]
async fn a_list_that_the_store_refuses_changes_no_lot() {
    let (_, _, node) = standing_node(&HOT, Manner::After(TRIP)).await;
    let (key, hot, cold) = (Key::from("all"), HOT.bucket(), COLD.bucket());
    let paid = take(&node, 9).await.unwrap();
    let token = hot.units(1).unwrap();
    let before = node.held(&key);
    let id = BucketId::new("hot", &key);
    let mut left = Vec::new();
    for _ in 0..2 {
        left.push(held(&node.apply(&[COLD.take(&key, &cold, 1)]).wait().await.unwrap()));
    }
    let left = left[0];
    let undo = Adjustment::undo(BucketId::new("cold", &key), &cold, cold.units(1).unwrap(), left);
    let back = Adjustment::refund(id, &hot, 5 * token).with_receipt(paid.readings()[0].receipt());
    for other in [back, Adjustment::refund(id, &hot, -5 * token)] {
        let applied = node.adjust(&[undo, other]).wait().await.unwrap();
        assert_eq!(applied.verdict(), Verdict::Refused);
        assert_eq!(node.held(&key), before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_drops_the_lots_and_a_reset_lifts_it() {
    let store = Moody::new(Manner::After(TRIP));
    let node = node(&store);
    warm_up(&node).await;
    adjust(&node, Change::Block { time: HOUR }).await;
    for _ in 0..20 {
        let applied = take(&node, 1).await;
        assert!(applied.is_ok_and(|applied| applied.verdict() == Verdict::Refused));
    }
    let key = Key::from("all");
    node.reset(&[BucketId::new("hot", &key)]).wait().await.unwrap();
    assert!(is_admitted(&node, 1).await);
}

/// The answer to a question that was decided before the block must not bring tokens after it.
#[tokio::test(start_paused = true)]
async fn a_question_under_way_brings_nothing_after_a_block() {
    let store = Moody::new(Manner::After(10 * TRIP));
    let node = node(&store);
    warm_up(&node).await;
    // Used up, so that a question is on its way.
    while store.calls() < 200 && is_admitted(&node, 40).await {}
    adjust(&node, Change::Block { time: HOUR }).await;
    for _ in 0..50 {
        assert!(!is_admitted(&node, 1).await);
        sleep(TRIP).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_of_what_a_lot_has_paid_is_refused() {
    let store = Moody::new(Manner::AtOnce);
    let node = node(&store);
    warm_up(&node).await;
    let paid = held(&take(&node, 1).await.unwrap());
    let token = HOT.bucket().units(1).unwrap();
    let applied = adjust(&node, Change::Undo { units: token, left: paid }).await;
    assert_eq!(applied.verdict(), Verdict::Refused);
}
