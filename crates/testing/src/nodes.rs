//! Nodes that share a store, and whose limits get other numbers at different moments.

use std::collections::HashMap;

use tollgate::algebra::check_history;
use tollgate::{Limit, Quota, RateLimiter, SECOND, Timestamp};

use super::cases::times;
use super::dice::Dice;

const NODES: u64 = 4;
const TASKS: u64 = 4;

/// Pairs of numbers for one limit, the larger ones last.
const QUOTAS: [[Quota; 2]; 3] = [
    [Quota::token_bucket(20, SECOND).capacity(5), Quota::token_bucket(400, SECOND).capacity(50)],
    [Quota::token_bucket(50, SECOND).capacity(3), Quota::token_bucket(60, SECOND).capacity(3)],
    [
        Quota::fixed_window(2, SECOND.checked_div(10).unwrap()).capacity(4),
        Quota::fixed_window(9, SECOND.checked_div(10).unwrap()).capacity(12),
    ],
];

/// Lets four nodes take tokens from the same buckets, while each of them changes the numbers of the
/// limit to and fro by itself. No key gets more than the larger of the two quotas allows.
pub async fn switch_at_different_moments(nodes: [RateLimiter; 4]) {
    let calls = times(250, 80);
    for (nth, [small, large]) in QUOTAS.into_iter().enumerate() {
        let limit = Limit::try_new(format!("switched {nth}"), small).unwrap();
        let mut tasks = Vec::new();
        for (node, task) in (0..NODES).flat_map(|node| (0..TASKS).map(move |task| (node, task))) {
            let (limiter, limit) = (nodes[node as usize].clone(), limit.clone());
            let seed = (nth as u64) << 32 | node << 16 | task;
            tasks.push(tokio::spawn(async move {
                let (dice, mut ran) = (&mut Dice(seed), Vec::<(u64, Timestamp, u64)>::new());
                for _ in 0..calls {
                    if dice.below(25) == 0 {
                        limiter.replace(&limit, [small, large][dice.nth(&[0; 2])]).unwrap();
                    }
                    let (key, cost) = (dice.below(4), 1 + dice.below(3));
                    match limiter.limit(&limit).key(key).cost(cost).await {
                        Ok(permit) => ran.push((key, permit.at(), cost)),
                        Err(error) => assert!(error.is_refused(), "{error}"),
                    }
                }
                ran
            }));
        }
        let mut histories = HashMap::<u64, Vec<(Timestamp, u64)>>::new();
        for task in tasks {
            for (key, at, cost) in task.await.unwrap() {
                histories.entry(key).or_default().push((at, cost));
            }
        }
        let ran: usize = histories.values().map(Vec::len).sum();
        assert!(histories.len() == 4 && ran > 12, "each key was admitted: {ran}");
        for runs in histories.values() {
            assert_eq!(check_history(&large, runs).unwrap(), None, "{small} and {large}");
        }
    }
}
