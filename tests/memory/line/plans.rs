//! Plans that change while requests wait: no window of time holds more than the larger one allows,
//! but for what a cost exceeds the smaller capacity by.

use std::sync::{Arc, Mutex};

use tokio::runtime::Builder;
use tokio::time::advance;
use tollgate::algebra::check_history;
use tollgate::backend::Memory;
use tollgate::clock::{Clock, TokioClock};
use tollgate::{DAY, Limit, Quota, RateLimiter, SECOND, Timestamp};

use tollgate_testing::at_once;
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{ms, settled};

/// Work that ran: when it was granted, and its cost.
type Ran = Arc<Mutex<Vec<(Timestamp, u64)>>>;

/// Two plans of one kind, period and start, and the numbers that are the larger of both.
fn draw_plans(dice: &mut Dice, start: Timestamp) -> [Quota; 3] {
    let is_window = dice.below(3) == 0;
    let numbers = [(); 2].map(|()| (1 + dice.below(9), dice.below(13)));
    let [(rate, capacity), (other_rate, other_capacity)] = numbers;
    let larger = (rate.max(other_rate), capacity.max(other_capacity));
    [numbers[0], numbers[1], larger].map(|(rate, capacity)| {
        let quota = match is_window {
            false => Quota::token_bucket(rate, SECOND),
            true => Quota::fixed_window(rate, SECOND).start(start),
        };
        quota.capacity(capacity)
    })
}

/// A history of requests that wait, leave, and change their plan. Returns how many ran.
async fn history(seed: u64, has_large_costs: bool) -> usize {
    let dice = &mut Dice(seed);
    let clock = TokioClock::new();
    let limiter = RateLimiter::new(Memory::new().clock(clock));
    let [one, other, larger] = draw_plans(dice, clock.now());
    let plans = [one, other].map(|quota| Limit::new("plan", quota));
    let smaller = one.get_capacity().min(other.get_capacity());
    let most = if has_large_costs { 16 } else { smaller.max(1) };
    let larger = larger.capacity(larger.get_capacity() + most.saturating_sub(smaller));
    let ran = Ran::default();
    let (mut tasks, mut log) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let (plan, cost) = (&plans[dice.nth(&plans)], 1 + dice.below(most));
        log.push(format!("{:?}: {cost} by {}", clock.now(), plan.quota()));
        match dice.below(6) {
            0 if !tasks.is_empty() => {
                let task: tokio::task::JoinHandle<()> = tasks.swap_remove(dice.nth(&tasks));
                task.abort();
            }
            1..4 => {
                let Ok(reservation) = at_once(limiter.limit(plan).cost(cost).reserve()) else {
                    continue;
                };
                let ran = Arc::clone(&ran);
                tasks.push(tokio::spawn(async move {
                    let permit = reservation.ready().await;
                    ran.lock().unwrap().push((permit.at(), cost));
                }));
            }
            _ => {
                if let Ok(permit) = at_once(limiter.limit(plan).cost(cost.min(4))) {
                    ran.lock().unwrap().push((permit.at(), cost.min(4)));
                }
            }
        }
        settled().await;
        advance(ms([0, 0, 100, 500, 1_000, 3_000][dice.nth(&[0; 6])])).await;
        settled().await;
    }
    advance(DAY).await;
    settled().await;
    let ran = ran.lock().unwrap();
    let violation = check_history(&larger, &ran).unwrap();
    assert_eq!(violation, None, "seed {seed}: {one} and {other}\n{}\n{ran:?}", log.join("\n"));
    ran.len()
}

#[test]
fn plans_that_change_while_requests_wait_let_no_more_run_than_the_larger_one() {
    let mut ran = 0;
    let seeds = seeds(150);
    let histories = usize::try_from(seeds.end).unwrap();
    for seed in seeds {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        ran += runtime.unwrap().block_on(history(seed, seed % 2 == 0));
    }
    assert!(ran > histories * 8, "{ran} of {histories}");
}
