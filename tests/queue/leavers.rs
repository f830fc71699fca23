//! Many waiters that leave the queue of a store that other processes use as well: how much work
//! each of them causes, and what happens to the others.
//!
//! Time is that of the runtime and stands still. The tests count steps, and measure no time.

use tokio::task::JoinHandle;
use tokio::time::advance;
use tollgate::{Key, Limit, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::at_once;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Held, Late, Turn, lines, poll, reserve, reserved, settled, tokens};
use tollgate_testing::shared::Shared;

/// One a second, and nothing saved up.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
static SHARED: Limit = Limit::new("shared", Quota::token_bucket(1, SECOND).capacity(0));

struct Waiting {
    promised: Timestamp,
    ready: Turn,
}

fn waits(limiter: &RateLimiter, cost: u64) -> Waiting {
    let own = reserve(limiter, &SPACED, cost);
    let (promised, mut ready) = (own.at(), Box::pin(own.ready()));
    assert!(poll(&mut ready).is_none());
    Waiting { promised, ready }
}

/// How many of these waiters run earlier than promised. None runs later.
async fn moved(line: Vec<Waiting>) -> usize {
    advance(SECOND * 10_000_000).await;
    let moved = line.into_iter().filter_map(|mut one| {
        let at = poll(&mut one.ready).expect("granted").at();
        assert!(at <= one.promised, "later than promised");
        (at < one.promised).then_some(())
    });
    moved.count()
}

/// Where each waiter costs less than the one before it, one that leaves moves all others, each of
/// them at the instant of the one before: in a former version, at once and with the queue locked.
#[tokio::test(start_paused = true)]
async fn one_that_leaves_moves_others_of_other_costs_at_their_instants() {
    for requests in [20, 300] {
        let limiter = Shared::new().limiter();
        let mut line: Vec<_> = (0..requests).map(|one| waits(&limiter, requests - one)).collect();
        // So that no slot can be undone.
        let kept = reserve(&limiter, &SPACED, 1).keep();
        let before = limiter.peek(&SPACED).longest_wait();
        drop(line.remove(0));
        assert_eq!(limiter.peek(&SPACED).longest_wait(), before, "none has moved yet");
        let all = line.len();
        assert_eq!(moved(line).await, all);
        drop(kept);
    }
}

/// All slots behind the first one are exchanged with each that leaves.
#[tokio::test(start_paused = true)]
async fn those_of_one_cost_move_forward_however_many_wait() {
    const REQUESTS: u32 = 5_000;
    let limiter = Shared::new().limiter();
    let mut line: Vec<_> = (0..REQUESTS).map(|_| waits(&limiter, 1)).collect();
    // The first half, from the front.
    drop(line.drain(..line.len() / 2));
    assert_eq!(limiter.peek(&SPACED).longest_wait(), REQUESTS / 2 * SECOND);
    assert_eq!(tokens(&limiter, &SPACED), -f64::from(REQUESTS / 2), "their slots are undone");
    let all = line.len();
    assert_eq!(moved(line).await, all);
    assert_eq!(lines(&limiter), 0);
}

/// In a former version, each undone slot made the limiter ask the store about the free slots of all
/// queues on the bucket, and each of those that was undone did the same.
#[tokio::test(start_paused = true)]
async fn one_that_leaves_asks_the_store_a_bounded_number_of_times() {
    const CLIENTS: u64 = 60;
    let store = Shared::new();
    let limiter = store.limiter();
    let waits = |client: u64| {
        let call = limiter.limit(&SPACED).key(Key::from(client)).and(&SHARED).reserve();
        let mut ready = Box::pin(at_once(call).unwrap().ready());
        assert!(poll(&mut ready).is_none());
        ready
    };
    let first: Vec<_> = (0..CLIENTS).map(waits).collect();
    let second: Vec<_> = (0..CLIENTS).map(waits).collect();
    let last = waits(CLIENTS);
    // The second request of each client now has the slot of the first, and its own slot is free.
    drop(first);
    let asked = store.take_adjusted();
    assert!(asked <= 2 * CLIENTS, "{asked} times for {CLIENTS}");
    assert_eq!(tokens(&limiter, &SHARED), -121.0);
    drop(last);
    let asked = store.take_adjusted();
    println!("asked {asked} times to undo {CLIENTS} slots");
    assert_eq!(tokens(&limiter, &SHARED), -60.0, "all are undone");
    assert!(asked <= CLIENTS + 2);
    second.into_iter().rev().for_each(drop);
    assert_eq!(tokens(&limiter, &SHARED), 0.0);
    assert_eq!(lines(&limiter), 0);
}

/// The store is asked about one slot after another, and all other slots are free meanwhile. A
/// former version kept only 64 of them: what the others had taken stayed spent.
#[tokio::test(start_paused = true)]
async fn all_waiters_that_leave_at_once_give_back_what_they_took() {
    const REQUESTS: usize = 300;
    let (store, limiter, memory) = Late::new();
    let mut line = Vec::new();
    for number in 0..REQUESTS {
        // In any order of costs.
        let cost = 1 + u64::try_from(number * 7 % 11).unwrap();
        let mut ready = Box::pin(reserved(&limiter, &SPACED, cost).await.ready());
        assert!(poll(&mut ready).is_none());
        line.push(ready);
    }
    let held = store.close();
    drop(line);
    settled().await;
    store.open();
    held.let_go();
    while lines(&limiter) > 0 {
        settled().await;
    }
    assert_eq!(tokens(&memory, &SPACED), 0.0);
}

/// The store may refuse to undo a slot only because the limiter counts a refund that the store has
/// not carried out yet. In a former version, while some refund was always on its way, each of them
/// made the limiter ask about each slot once more.
#[tokio::test(start_paused = true)]
async fn returns_that_never_end_ask_about_each_slot_a_bounded_number_of_times() {
    const CLIENTS: u64 = 20;
    const RETURNS: u64 = 100;
    let (store, limiter, _) = Late::new();
    let mut planned = Vec::new();
    for _ in 0..RETURNS {
        planned.push(reserved(&limiter, &SHARED, 2).await.keep());
    }
    let mut line = Vec::new();
    for client in 0..2 * CLIENTS {
        let call = limiter.limit(&SPACED).key(Key::from(client / 2)).and(&SHARED).reserve();
        let mut ready = Box::pin(call.await.unwrap().ready());
        assert!(poll(&mut ready).is_none());
        line.push(ready);
    }
    // So that no slot can be undone.
    let kept = reserved(&limiter, &SHARED, 1).await.keep();
    let mut returned = None;
    for (nth, permit) in planned.into_iter().enumerate() {
        // Each settlement is on its way before the last one is answered.
        let held = store.close();
        let task = tokio::spawn(permit.settle(1));
        settled().await;
        store.open();
        if nth == 0 {
            line = line.into_iter().step_by(2).collect();
            settled().await;
            store.take_adjusted();
        }
        if let Some((held, task)) = returned.replace((held, task)) {
            let (held, task): (Held, JoinHandle<_>) = (held, task);
            held.let_go();
            task.await.unwrap().unwrap();
            settled().await;
        }
    }
    // Does not count the settlements themselves.
    let asked = store.take_adjusted().saturating_sub(RETURNS - 1);
    println!("asked {asked} times about {CLIENTS} slots");
    assert!(asked <= 8 * CLIENTS, "{asked} times for {CLIENTS} slots");
    drop((line, kept));
}

/// Newcomers that come before many waiters of their cost: no waiter runs later than promised,
/// whichever leave, and nearly all move forward.
#[tokio::test(start_paused = true)]
async fn newcomers_before_many_others_delay_no_waiter() {
    for seed in 0..5 {
        let (store, mut dice) = (Shared::new(), Dice(seed));
        let limiter = store.limiter();
        // A reservation of another process, so that what it gives back grants none of these
        // waiters.
        let planned = reserve(&store.limiter(), &SPACED, 1_000).keep();
        let mut line: Vec<_> = (0..200).map(|_| waits(&limiter, 2)).collect();
        at_once(planned.settle(100)).unwrap();
        for nth in 0..200 {
            let newcomer = waits(&limiter, 2);
            assert!(newcomer.promised < line[0].promised, "seed {seed}, {nth}");
            line.push(newcomer);
        }
        assert!(line.iter_mut().all(|one| poll(&mut one.ready).is_none()), "all of them wait");
        for _ in 0..150 {
            drop(line.swap_remove(dice.nth(&line)));
        }
        let all = line.len();
        let moved = moved(line).await;
        println!("seed {seed}: {moved} of {all} moved");
        assert!(moved * 10 > all * 9, "seed {seed}: {moved} of {all}");
        assert_eq!(lines(&limiter), 0);
    }
}
