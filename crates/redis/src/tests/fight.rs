//! Two deployments with different quotas for one limit take turns. Each converts what the other has
//! stored.

use std::time::Duration;

use tollgate_testing::cases::times;

use super::one::SingleBucket;
use super::{Dice, START, Server, on};
use tollgate::Quota;
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::{DAY, HOUR, MINUTE, SECOND};

/// A quota with numbers that the test knows: kind, rate, period and capacity.
#[derive(Clone, Copy, Debug)]
struct QuotaNumbers {
    is_window: bool,
    rate: u64,
    period: Duration,
    capacity: u64,
}

impl QuotaNumbers {
    fn random(dice: &mut Dice) -> Self {
        let (is_window, rate) = (dice.one_in(3), 1 + dice.below(40));
        let period = [SECOND, MINUTE, HOUR, DAY][usize::try_from(dice.below(4)).unwrap()];
        Self { is_window, rate, period, capacity: 1 + dice.below(60) }
    }

    fn quota(&self) -> Quota {
        let quota = match self.is_window {
            true => Quota::fixed_window(self.rate, self.period),
            false => Quota::token_bucket(self.rate, self.period),
        };
        quota.capacity(self.capacity)
    }

    /// The tokens that come within some time, rounded up, and one more step of a window.
    fn gained_within(&self, time: Duration) -> u64 {
        let tokens = (u128::from(self.rate) * time.as_micros()).div_ceil(self.period.as_micros());
        let step = if self.is_window { self.rate } else { 1 };
        u64::try_from(tokens).unwrap() + step
    }
}

/// In every window of time, at most as much is admitted as one of the two could have admitted
/// alone, in whatever order they charge.
#[tokio::test]
async fn two_deployments_with_different_quotas_mint_no_tokens() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let (mut admitted, fights) = (0, times(40, 10));
    for seed in 0..fights {
        let mut dice = Dice(seed);
        let numbers = [QuotaNumbers::random(&mut dice), QuotaNumbers::random(&mut dice)];
        clock.set(START);
        let prefix = format!("fight{seed}");
        let deployments = [
            SingleBucket::connect(on(&server, &clock).prefix(prefix.as_str()), &numbers[0].quota())
                .await,
            SingleBucket::connect(on(&server, &clock).prefix(prefix.as_str()), &numbers[1].quota())
                .await,
        ];
        let most_at_once = numbers.iter().map(|numbers| numbers.capacity).max().unwrap();
        let mut taken: Vec<(Timestamp, u64)> = Vec::new();
        for turn in 0..150 {
            let longest = if dice.one_in(10) { 3_600_000_000 } else { 1_000_000 };
            clock.advance(Duration::from_micros(dice.below(longest)));
            let which = if dice.one_in(4) { dice.below(2) } else { turn % 2 };
            let cost = 1 + dice.below(3);
            if deployments[usize::try_from(which).unwrap()].take(cost).await.0 {
                taken.push((clock.now(), cost));
                admitted += 1;
            }
        }
        for (first, &(from, _)) in taken.iter().enumerate() {
            let mut within = 0;
            for &(until, cost) in &taken[first..] {
                within += cost;
                let time = until.since(from);
                let gained =
                    numbers.iter().map(|numbers| numbers.gained_within(time)).max().unwrap();
                assert!(
                    within <= most_at_once + gained,
                    "seed {seed}: {within} in {time:?}, by {numbers:?}"
                );
            }
        }
        // Both processes write a bucket of the same length.
        let stored = server.command(&["STRLEN", &format!("{prefix}:one:alice")]);
        assert!([0, 48].contains(&stored.int()), "{stored:?}");
    }
    assert!(admitted > 25 * fights, "{admitted}");
}

/// One deployment counts what the other has admitted, so switching to and fro gives no client a
/// second capacity.
#[tokio::test]
async fn deployments_that_take_turns_admit_as_much_as_the_larger_quota() {
    let server = Server::start();
    for (small, large) in [
        (Quota::token_bucket(10, DAY), Quota::token_bucket(100, DAY)),
        (Quota::fixed_window(10, DAY), Quota::token_bucket(100, DAY)),
        (Quota::token_bucket(10, DAY), Quota::fixed_window(100, DAY)),
        (Quota::fixed_window(10, DAY), Quota::fixed_window(100, DAY)),
    ] {
        server.flush_all();
        // All at one instant, so that no tokens come in.
        let clock = ManualClock::new(START);
        let deployments = [
            SingleBucket::connect(on(&server, &clock), &small).await,
            SingleBucket::connect(on(&server, &clock), &large).await,
        ];
        let mut admitted = [0, 0];
        for turn in 0..400 {
            admitted[turn % 2] += u64::from(deployments[turn % 2].take(1).await.0);
        }
        assert_eq!(admitted.iter().sum::<u64>(), 100, "{small} and {large}");
        assert_eq!(admitted[0], 5, "as long as no more than 10 were used");
    }
}
