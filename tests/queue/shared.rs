//! The queue of a store that other processes charge as well: slots are instants, a slot that is
//! given up is undone or reassigned, and what work gives back goes to the first waiter.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tollgate::limiter::Permit;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::at_once;
use tollgate_testing::cases::{seeds, times};
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{
    Late, Turn, lines, ms, poll, reserve, reserved, settled, tokens, waiter,
};
use tollgate_testing::shared::{Counts, History, Shared};

/// One a second, and nothing saved up.
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));

/// One a second, and five saved up.
static FIVE: Limit = Limit::new("five", Quota::token_bucket(1, SECOND).capacity(5));

fn take(limiter: &RateLimiter, limit: &Limit, cost: u64) -> Permit<'static> {
    at_once(limiter.limit(limit).cost(cost)).unwrap().into_owned()
}

/// When this waiter ran. Nothing polls it before this call.
async fn ran_after(waiter: Turn, start: Instant) -> Duration {
    let _permit = waiter.await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn how_many_wait_and_for_how_long_can_be_read() {
    let limiter = Shared::new().limiter();
    let peek = limiter.peek(&SPACED);
    let stand = || (peek.waiting(), peek.longest_wait(), peek.left_early());
    assert_eq!(stand(), (0, Duration::ZERO, 0));
    let mut line: Vec<_> = (0..4).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    assert_eq!(stand(), (4, 4 * SECOND, 0));
    assert_eq!(limiter.peek(&SPACED).key("bob").waiting(), 0);
    drop(line.remove(1));
    assert_eq!(stand(), (3, 3 * SECOND, 1));
    advance(3 * SECOND).await;
    assert!(line.iter_mut().all(|one| poll(one).is_some()));
    assert_eq!(stand(), (0, Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refund_by_this_process_does_not_count_as_a_charge() {
    let limiter = Shared::new().limiter();
    let first = take(&limiter, &FIVE, 5);
    let gone = waiter(&limiter, &FIVE, 5);
    at_once(first.settle(2)).unwrap();
    assert_eq!(tokens(&limiter, &FIVE), -2.0, "three do not cover a cost of five");
    drop(gone);
    assert_eq!(tokens(&limiter, &FIVE), 3.0, "undone");

    // The same if the refund came before the reservation.
    let gone = waiter(&limiter, &FIVE, 5);
    drop(gone);
    assert_eq!(tokens(&limiter, &FIVE), 3.0);
    assert_eq!(lines(&limiter), 0);
}

/// In a former version, a settlement and an equal charge made a bucket look untouched. The
/// reservation before them was undone, and its tokens ran together with requests that counted on
/// them being spent.
#[tokio::test(start_paused = true)]
async fn a_charge_that_a_settlement_hides_is_noticed() {
    let store = Shared::new();
    let limiter = store.limiter();
    let first = take(&limiter, &FIVE, 5);
    let gone = waiter(&limiter, &FIVE, 5);
    at_once(first.settle(2)).unwrap();
    let kept = reserve(&limiter, &FIVE, 3).keep();
    assert_eq!(
        (kept.at().since(kept.snapshot().at()), tokens(&limiter, &FIVE)),
        (5 * SECOND, -5.0)
    );
    drop(gone);
    assert_eq!(tokens(&limiter, &FIVE), -5.0, "not undone");
    // Another process has to wait behind both.
    assert_eq!(reserve(&store.limiter(), &FIVE, 5).wait(), 10 * SECOND);
}

/// The same for a reservation that did not have to wait.
#[tokio::test(start_paused = true)]
async fn a_charge_that_a_settlement_hides_is_noticed_by_a_reservation_that_did_not_wait() {
    let limiter = Shared::new().limiter();
    let first = take(&limiter, &FIVE, 3);
    let gone = at_once(limiter.limit(&FIVE).cost(2).reserve()).unwrap();
    at_once(first.settle(0)).unwrap();
    let _ran = take(&limiter, &FIVE, 3);
    drop(gone);
    assert_eq!(tokens(&limiter, &FIVE), 0.0, "not undone");
    // If tokens only came back, the reservation is undone.
    advance(5 * SECOND).await;
    let first = take(&limiter, &FIVE, 3);
    let gone = at_once(limiter.limit(&FIVE).cost(2).reserve()).unwrap();
    at_once(first.settle(1)).unwrap();
    drop(gone);
    assert_eq!(tokens(&limiter, &FIVE), 4.0, "undone");
}

/// The store is asked to undo before it has answered the settlement.
#[tokio::test(start_paused = true)]
async fn a_settlement_on_its_way_prevents_no_undo() {
    for settlement_first in [true, false] {
        let (store, limiter, memory) = Late::new();
        let first = limiter.limit(&FIVE).cost(5).await.unwrap();
        sleep(ms(1)).await;
        let gone = reserved(&limiter, &FIVE, 5).await;
        sleep(ms(1)).await;
        let settlement = store.close();
        let settle = tokio::spawn(first.settle(2));
        settled().await;
        let undo = store.close();
        drop(gone);
        settled().await;
        store.open();
        let order = if settlement_first { [settlement, undo] } else { [undo, settlement] };
        for held in order {
            held.let_go();
            settled().await;
        }
        settle.await.unwrap().unwrap();
        assert_eq!(tokens(&memory, &FIVE).round(), 3.0, "{settlement_first}");
        assert_eq!(lines(&limiter), 0);
    }
}

/// A settlement without an answer may have been carried out.
#[tokio::test(start_paused = true)]
async fn a_settlement_without_an_answer_counts() {
    let (store, limiter, memory) = Late::new();
    let first = limiter.limit(&FIVE).cost(5).await.unwrap();
    sleep(ms(1)).await;
    let gone = reserved(&limiter, &FIVE, 5).await;
    let held = store.close();
    drop(first.settle(2));
    settled().await;
    // The task of the settlement fails.
    drop(held);
    settled().await;
    store.open();
    drop(gone);
    settled().await;
    assert_eq!(tokens(&memory, &FIVE).round(), -5.0, "the slot stays spent, to be safe");
    assert_eq!(lines(&limiter), 0);
}

/// A limiter that dated the settlement by the last answer about its bucket would be wrong: by an old
/// answer, the settlement does not count for the next reservation; without one, the settlement
/// counts until the process ends.
#[tokio::test(start_paused = true)]
async fn a_settlement_without_an_answer_counts_for_a_minute() {
    for is_known in [true, false] {
        let (store, limiter, memory) = Late::new();
        if is_known {
            drop(reserved(&limiter, &FIVE, 6).await);
            settled().await;
        }
        sleep(10 * MINUTE).await;
        let first = limiter.limit(&FIVE).cost(5).await.unwrap();
        let held = store.close();
        drop(first.settle(2));
        settled().await;
        drop(held);
        settled().await;
        store.open();
        sleep(5 * SECOND).await;
        // The settlement may be carried out now, and hide a charge of three.
        let ran = limiter.limit(&FIVE).cost(5).await.unwrap();
        drop(reserved(&limiter, &FIVE, 5).await);
        settled().await;
        assert_eq!(tokens(&memory, &FIVE).round(), -5.0, "not undone, known: {is_known}");
        drop(ran);
        sleep(2 * MINUTE).await;
        let _ran = limiter.limit(&FIVE).cost(5).await.unwrap();
        drop(reserved(&limiter, &FIVE, 5).await);
        settled().await;
        assert_eq!(tokens(&memory, &FIVE).round(), 0.0, "undone, known: {is_known}");
        assert_eq!(lines(&limiter), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_slot_goes_to_the_same_cost_and_at_its_instant_to_the_first_that_fits() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let gone = waiter(&limiter, &SPACED, 4);
    let line = [1, 6, 4, 3, 2].map(|cost| waiter(&limiter, &SPACED, cost));
    drop(gone);
    // The second four has the slot at 4 s, and its own at 15 s is free: those of three and two were
    // made later.
    assert_eq!(tokens(&limiter, &SPACED), -20.0);
    assert_eq!(limiter.peek(&SPACED).waiting(), 5);
    let mut tasks = line.map(|one| Some(tokio::spawn(ran_after(one, start))));
    // At 15 s, the first that fits is three. Its own slot at 18 s is free then, and fits two.
    for (nth, at) in [(2, 4), (0, 5), (1, 11), (3, 15), (4, 18)] {
        assert_eq!(tasks[nth].take().unwrap().await.unwrap(), at * SECOND, "{nth}");
    }
    assert!(tokens(&limiter, &SPACED) >= 0.0, "the slot at 20 s is undone");
}

#[tokio::test(start_paused = true)]
async fn of_equal_costs_the_first_moves_forward_first() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let gone = waiter(&limiter, &SPACED, 3);
    let all = [3, 1, 3, 3].map(|cost| waiter(&limiter, &SPACED, cost));
    drop(gone);
    for (waiter, at) in all.into_iter().zip([3, 7, 6, 10]) {
        let ran = tokio::spawn(ran_after(waiter, start));
        if at != 7 {
            assert_eq!(ran.await.unwrap(), at * SECOND);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_slot_that_cannot_be_undone_is_on_offer_until_its_instant() {
    let store = Shared::new();
    let limiter = store.limiter();
    let start = Instant::now();
    let [first, second] = [2, 2].map(|cost| waiter(&limiter, &SPACED, cost));
    // A reservation of another process, so that no slot before it can be undone.
    let other = reserve(&store.limiter(), &SPACED, 1).keep();
    let planned = reserve(&limiter, &SPACED, 1);
    drop((first, second));
    assert_eq!(tokens(&limiter, &SPACED), -6.0);
    sleep(2 * SECOND).await;
    // The slot at 2 s is over, the one at 4 s is large enough.
    let newcomer = waiter(&limiter, &SPACED, 1);
    assert_eq!(tokens(&limiter, &SPACED), -5.0);
    assert_eq!(ran_after(newcomer, start).await, 4 * SECOND);
    assert_eq!(tokens(&limiter, &SPACED), -2.0, "its own is undone");
    drop((other, planned));
}

#[tokio::test(start_paused = true)]
async fn tokens_that_come_back_grant_the_first_waiter() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let first = take(&limiter, &FIVE, 5);
    let [mut head, mut next, last] = [3, 1, 2].map(|cost| waiter(&limiter, &FIVE, cost));
    sleep(SECOND).await;
    // Four cover the head and the next.
    let snapshot = at_once(first.settle(1)).unwrap();
    let permit = poll(&mut head).expect("four cover three");
    assert_eq!(permit.at().since(permit.snapshot().at()), SECOND);
    assert!(poll(&mut next).is_some(), "the fourth covers it");
    assert_eq!(snapshot.tokens().to_string(), "-5", "nothing is left for the bucket");
    // The slot of the head is free, and fits it.
    assert_eq!(ran_after(last, start).await, 3 * SECOND);
    assert!(tokens(&limiter, &FIVE) >= 0.0, "nothing is owed");
}

#[tokio::test(start_paused = true)]
async fn tokens_that_do_not_cover_the_first_waiter_go_to_the_bucket() {
    let limiter = Shared::new().limiter();
    let first = take(&limiter, &FIVE, 5);
    let [mut head, mut next] = [4, 1].map(|cost| waiter(&limiter, &FIVE, cost));
    let snapshot = at_once(first.settle(2)).unwrap();
    assert_eq!(snapshot.tokens().to_string(), "-2");
    assert!(poll(&mut head).is_none() && poll(&mut next).is_none());
}

#[tokio::test(start_paused = true)]
async fn tokens_that_come_back_have_to_cover_a_waiter_in_all_its_buckets() {
    let limiter = Shared::new().limiter();
    let both = |a, b| limiter.limit(&FIVE).key("a").cost(a).and(&FIVE).key("b").cost(b);
    let held = |key| at_once(limiter.peek(&FIVE).key(key)).unwrap().tokens().to_string();
    let first = at_once(both(5, 5)).unwrap().into_owned();
    let second = at_once(both(0, 0).reserve()).unwrap();
    let mut head = Box::pin(at_once(both(3, 2).reserve()).unwrap().ready());
    assert!(poll(&mut head).is_none());
    // It is enough for one bucket, but not for the other.
    at_once(limiter.limit(&FIVE).key("c").cost(1)).unwrap();
    drop(first);
    assert!(poll(&mut head).is_none());
    drop(second);
    limiter.reset(&FIVE).key("a").await.unwrap();
    limiter.reset(&FIVE).key("b").await.unwrap();
    let third = at_once(both(5, 5)).unwrap().into_owned();
    assert_eq!((held("a"), held("b")), ("0".into(), "0".into()));
    at_once(third.settle(2)).unwrap();
    assert!(poll(&mut head).is_some());
    assert_eq!((held("a"), held("b")), ("0".into(), "1".into()));
}

#[tokio::test(start_paused = true)]
async fn a_granted_turn_that_is_not_used_is_passed_on() {
    let limiter = Shared::new().limiter();
    let first = take(&limiter, &FIVE, 5);
    let [head, mut next] = [3, 2].map(|cost| waiter(&limiter, &FIVE, cost));
    at_once(first.settle(2)).unwrap();
    drop(head);
    assert!(poll(&mut next).is_some(), "three cover two");
    assert_eq!(tokens(&limiter, &FIVE), 1.0, "one is left");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_delays_no_other() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let mut idle = [1, 1, 1].map(|cost| waiter(&limiter, &SPACED, cost));
    let next = waiter(&limiter, &SPACED, 1);
    assert_eq!(ran_after(next, start).await, 4 * SECOND);
    for one in &mut idle {
        assert!(poll(one).is_some(), "it may go at any time");
    }
}

/// Its timer was set to the instant that it was promised first.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_has_moved_forward_is_woken_to_set_its_timer() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let mut line: Vec<_> = (0..10).map(|_| waiter(&limiter, &SPACED, 1)).collect();
    let last = tokio::spawn(ran_after(line.pop().unwrap(), start));
    settled().await;
    line.drain(1..);
    assert_eq!(last.await.unwrap(), 2 * SECOND);
    assert!(poll(&mut line[0]).is_some());
}

/// Tokens that come back open slots before those of other waiters: here for more newcomers at one
/// position than there are labels between its neighbours.
#[tokio::test(start_paused = true)]
async fn newcomers_before_others_delay_no_waiter() {
    let limiter = Shared::new().limiter();
    let start = Instant::now();
    let planned = reserve(&limiter, &SPACED, 1_000).keep();
    let mut line = vec![reserve(&limiter, &SPACED, 2)];
    // Each newcomer has its instant before the first reservation, and after the earlier newcomers.
    at_once(planned.settle(500)).unwrap();
    for _ in 0..200 {
        line.push(reserve(&limiter, &SPACED, 2));
    }
    assert!(line[1..].iter().all(|newcomer| newcomer.wait() < line[0].wait()));
    let tasks: Vec<_> = line
        .into_iter()
        .map(|own| (own.wait(), tokio::spawn(ran_after(Box::pin(own.ready()), start))))
        .collect();
    for (promised, ran) in tasks {
        assert_eq!(ran.await.unwrap(), promised);
    }
}

/// The state of a random history.
struct Play {
    store: Shared,
    limiters: Vec<RateLimiter>,
    limit: Limit,
    dice: Dice,
    waiting: Vec<Waiting>,
    permits: Vec<(usize, u64, Permit<'static>)>,
    history: History,
    seed: u64,
}

struct Waiting {
    process: usize,
    cost: u64,
    made: Timestamp,
    promised: Timestamp,
    ready: Turn,
}

impl Play {
    /// What ran and what came back in `processes` processes that share a bucket.
    async fn run(seed: u64, quota: Quota, processes: usize, returns: bool) -> History {
        let store = Shared::new();
        let limiters = (0..processes).map(|_| store.limiter()).collect();
        let (waiting, permits, history) = Default::default();
        let (limit, dice) = (Limit::new("history", quota), Dice(seed));
        let mut play = Self { store, limiters, limit, dice, waiting, permits, history, seed };
        for _ in 0..60 {
            advance([ms(0), ms(0), ms(1), ms(2), ms(5), ms(30)][play.dice.nth(&[(); 6])]).await;
            if play.dice.below(4) > 0 {
                play.serve();
            }
            match play.dice.below(10) {
                0..5 => play.reserve(),
                5..7 if !play.waiting.is_empty() => {
                    let nth = play.dice.nth(&play.waiting);
                    let gone = play.waiting.swap_remove(nth);
                    play.history.left.push((gone.made, gone.promised));
                }
                7..9 if returns && !play.permits.is_empty() => play.settle(),
                _ => play.take(),
            }
        }
        let mut rounds = 0;
        while !play.waiting.is_empty() {
            advance(SECOND).await;
            play.serve();
            rounds += 1;
            assert!(rounds < 1_000, "seed {seed}");
        }
        assert_eq!(play.limiters.iter().map(lines).sum::<usize>(), 0, "seed {seed}");
        play.history
    }

    fn process(&mut self) -> usize {
        self.dice.nth(&self.limiters)
    }

    fn serve(&mut self) {
        let now = self.store.now();
        let (history, permits, seed) = (&mut self.history, &mut self.permits, self.seed);
        self.waiting.retain_mut(|waiting| {
            let Some(permit) = poll(&mut waiting.ready) else {
                assert!(now < waiting.promised, "late, seed {seed}");
                return true;
            };
            assert!(permit.at() <= waiting.promised.min(now), "late or early, seed {seed}");
            assert!(permit.at() >= waiting.made, "before it came, seed {seed}");
            history.ran.push((waiting.made, permit.at(), waiting.cost));
            permits.push((waiting.process, waiting.cost, permit));
            false
        });
    }

    fn reserve(&mut self) {
        let (process, cost) = (self.process(), 1 + self.dice.below(6));
        let call = self.limiters[process].limit(&self.limit).cost(cost);
        let own = at_once(call.reserve()).unwrap();
        let (promised, made) = (own.at(), own.snapshot().at());
        self.waiting.push(Waiting { process, cost, made, promised, ready: Box::pin(own.ready()) });
        self.serve();
    }

    fn take(&mut self) {
        let (process, cost) = (self.process(), 1 + self.dice.below(6));
        if let Ok(permit) = at_once(self.limiters[process].limit(&self.limit).cost(cost)) {
            self.history.ran.push((permit.at(), permit.at(), cost));
            let permit = permit.into_owned();
            self.permits.push((process, cost, permit));
        }
    }

    fn settle(&mut self) {
        let (_, cost, permit) = self.permits.swap_remove(self.dice.nth(&self.permits));
        let actual = self.dice.below(cost + 1);
        self.history.returned.push((self.store.now(), cost - actual));
        match actual {
            0 => drop(at_once(permit.refund()).unwrap()),
            _ => drop(at_once(permit.settle(actual)).unwrap()),
        }
        self.serve();
    }
}

async fn histories(quota: impl Fn(u64, Duration) -> Quota) {
    let (mut broken, seeds) = ([0; 2], seeds(64));
    for seed in seeds.clone() {
        let mut dice = Dice(seed ^ 0xabcd);
        let (rate, period) = (1 + dice.below(7), dice.time(ms(20)) + ms(1));
        let quota = quota(rate, period).capacity(dice.below(11));
        for processes in [1, 3] {
            let left = Play::run(seed, quota, processes, false).await;
            let excess = left.excess(&quota, Counts::Within, Duration::ZERO);
            assert_eq!(excess, 0, "seed {seed}, {quota}: {left:?}");
            let history = Play::run(seed, quota, processes, true).await;
            let counts = if processes == 1 { Counts::WhileWaiting } else { Counts::Before };
            let excess = history.excess(&quota, counts, Duration::ZERO);
            assert_eq!(excess, 0, "seed {seed}, {quota}, {processes}: {history:?}");
            let excess = history.excess(&quota, Counts::Within, Duration::ZERO);
            broken[processes / 2] += u64::from(excess > 0);
        }
    }
    println!("of {} histories, above the bound of each window: {broken:?}", seeds.end);
}

#[tokio::test(start_paused = true)]
async fn histories_of_token_buckets_are_within_the_bound() {
    histories(Quota::token_bucket).await;
}

#[tokio::test(start_paused = true)]
async fn histories_of_fixed_windows_are_within_the_bound() {
    histories(Quota::fixed_window).await;
}

/// Of 600 waiters with costs from 1 on, three in ten leave. Returns the tokens that ran, and the
/// tokens that came in during that time.
async fn share_used(seed: u64, costs: u64, all_at_once: bool) -> [u64; 2] {
    let mut dice = Dice(seed);
    let limit = Limit::new("use", Quota::token_bucket(1_000, SECOND).capacity(0));
    let (limiter, start) = (Shared::new().limiter(), Instant::now());
    let ran = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    let leave = |tasks: &mut Vec<JoinHandle<()>>, dice: &mut Dice| {
        tasks.retain(|task| !task.is_finished());
        if !tasks.is_empty() {
            tasks.swap_remove(dice.nth(tasks)).abort();
        }
    };
    for _ in 0..600 {
        if !all_at_once {
            sleep(ms(dice.below(6))).await;
        }
        let cost = 1 + dice.below(costs);
        let (own, ran) = (reserve(&limiter, &limit, cost), Arc::clone(&ran));
        let promised = own.wait();
        tasks.push(tokio::spawn(async move {
            let start = Instant::now();
            let _permit = own.ready().await;
            assert!(start.elapsed() <= promised + ms(1), "later than promised");
            ran.fetch_add(cost, Ordering::Relaxed);
        }));
        tokio::task::yield_now().await;
        if !all_at_once && dice.below(10) < 3 {
            leave(&mut tasks, &mut dice);
        }
    }
    for _ in 0..if all_at_once { 180 } else { 0 } {
        sleep(ms(dice.below(costs * 5 / 2))).await;
        leave(&mut tasks, &mut dice);
    }
    for task in tasks {
        drop(task.await);
    }
    [ran.load(Ordering::Relaxed), u64::try_from(start.elapsed().as_millis()).unwrap()]
}

#[tokio::test(start_paused = true)]
async fn nearly_all_that_was_granted_is_used() {
    // Of equal costs all, and less of mixed ones. In a queue that waiters leave while it moves, and
    // in one that still grows meanwhile.
    let moving = [(1, 99), (2, 97), (5, 95), (10, 94), (50, 85)].map(|case| (true, case));
    for (all_at_once, (costs, least)) in moving.into_iter().chain([(false, (10, 90))]) {
        let (mut used, mut granted) = (0, 0);
        for seed in 0..times(5, 1) {
            let [one_used, one_granted] = share_used(seed, costs, all_at_once).await;
            (used, granted) = (used + one_used, granted + one_granted);
        }
        println!("costs to {costs}, at once: {all_at_once}: {used} of {granted} were used");
        assert!(used * 100 >= granted * least, "{used} of {granted}");
    }
}

/// Two processes: what each takes from the other cannot be undone, and is refilled once.
#[tokio::test(start_paused = true)]
async fn nothing_is_owed_once_no_request_waits() {
    for seed in seeds(50) {
        let (store, mut dice) = (Shared::new(), Dice(seed));
        let limiters = [store.limiter(), store.limiter()];
        let (mut waiting, mut permits) = ([vec![], vec![]], vec![]);
        for _ in 0..40 {
            advance(ms(dice.below(400))).await;
            let (process, cost) = (dice.nth(&limiters), 1 + dice.below(5));
            match dice.below(4) {
                0 if !permits.is_empty() => {
                    let permit: Permit<'_> = permits.swap_remove(dice.nth(&permits));
                    at_once(permit.settle(0)).unwrap();
                }
                _ => {
                    let own = at_once(limiters[process].limit(&FIVE).cost(cost).reserve()).unwrap();
                    let mut ready = Box::pin(own.ready());
                    match poll(&mut ready) {
                        Some(permit) => permits.push(permit),
                        None => waiting[process].push((cost, ready)),
                    }
                }
            }
        }
        let [own, others] = waiting;
        let own_alone = others.is_empty();
        let taken: u64 = own.iter().chain(&others).map(|(cost, _)| cost).sum();
        drop((own, others));
        let left = tokens(&limiters[0], &FIVE);
        assert!(!own_alone || left >= 0.0, "seed {seed}: {left}");
        assert!(left >= -(taken as f64), "seed {seed}: {left}");
        advance(taken.try_into().map(|taken: u32| SECOND * taken).unwrap()).await;
        assert!(tokens(&limiters[0], &FIVE) >= 0.0, "seed {seed}");
    }
}

/// One a second, and one saved up.
static ONE: Limit = Limit::new("one", Quota::token_bucket(1, SECOND).capacity(1));

/// The example in the documentation of `limiter::queue`, in both kinds of stores.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_and_a_settlement_move_the_others_forward_as_documented() {
    for limiter in [Shared::new().limiter(), tollgate_testing::queue::paused()] {
        let start = Instant::now();
        let request = take(&limiter, &ONE, 1);
        let [a, b, c] = [(); 3].map(|()| waiter(&limiter, &ONE, 1));
        assert_eq!(tokens(&limiter, &ONE), -3.0);
        assert_eq!(limiter.peek(&ONE).longest_wait(), 3 * SECOND);

        advance(ms(500)).await;
        drop(b);
        assert_eq!(tokens(&limiter, &ONE), -1.5, "what `b` took is undone");
        assert_eq!(limiter.peek(&ONE).longest_wait(), ms(1_500), "`c` has the slot of `b`");

        assert_eq!(ran_after(a, start).await, ms(1_000));
        advance(ms(200)).await;
        at_once(request.refund()).unwrap();
        assert_eq!(ran_after(c, start).await, ms(1_200));
        assert_eq!(tokens(&limiter, &ONE), 0.2);
    }
}

/// The same where another process has charged the bucket since.
#[tokio::test(start_paused = true)]
async fn a_slot_that_cannot_be_undone_goes_to_a_newcomer_as_documented() {
    let store = Shared::new();
    let (limiter, other) = (store.limiter(), store.limiter());
    let _ran = take(&limiter, &ONE, 1);
    let [_a, b, _c] = [(); 3].map(|()| waiter(&limiter, &ONE, 1));
    let d = reserve(&other, &ONE, 1);
    assert_eq!(d.wait(), 4 * SECOND);

    advance(ms(500)).await;
    drop(b);
    assert_eq!(tokens(&limiter, &ONE), -3.5, "the slot at 3 s is free, and stays spent");
    let e = reserve(&limiter, &ONE, 1);
    assert_eq!(e.wait(), ms(4_500));
    let mut e = Box::pin(e.ready());
    assert!(poll(&mut e).is_none());
    assert_eq!(limiter.peek(&ONE).longest_wait(), ms(2_500), "`e` runs at 3 s");
    assert_eq!(tokens(&limiter, &ONE), -3.5, "the slot of `e` at 5 s is undone");
}

/// What it was granted counted as taken before the reset, so no other got in until it counted as lost.
#[tokio::test(start_paused = true)]
async fn what_a_waiter_is_granted_after_a_reset_comes_back() {
    static ONE: Limit = Limit::new("one", Quota::in_flight(1).lost_after(HOUR));
    for runs in [true, false] {
        let limiter = Shared::new().limiter();
        let before = take(&limiter, &ONE, 1).in_flight();
        let mut waits = waiter(&limiter, &ONE, 1);
        at_once(limiter.reset(&ONE)).unwrap();
        let after = take(&limiter, &ONE, 1).in_flight();
        drop(before);
        assert!(poll(&mut waits).is_none());
        drop(after);
        if runs {
            drop(poll(&mut waits).unwrap().in_flight());
        } else {
            // Its turn is forgiven as well.
            at_once(limiter.reset(&ONE)).unwrap();
            let next = take(&limiter, &ONE, 1).in_flight();
            drop(waits);
            assert_eq!(tokens(&limiter, &ONE), 0.0);
            drop(next);
        }
        assert_eq!(tokens(&limiter, &ONE), 1.0);
    }
}
