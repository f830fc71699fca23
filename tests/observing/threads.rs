//! Sums under threads: what is told adds up to what callers got.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::algebra::check_history;
use tollgate::limiter::{Decision, Outcome};
use tollgate::{DAY, Limit, Observer, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::at_once;

/// Refills while the threads run, so that both outcomes are frequent.
const QUOTA: Quota = Quota::token_bucket(20_000, SECOND).capacity(50);
static BUSY: Limit = Limit::new("busy", QUOTA);
static DAILY: Limit = Limit::new("daily", Quota::token_bucket(1_000_000_000, DAY));

const THREADS: u64 = 8;
const CALLS: u64 = 1_000;

#[derive(Debug, Default)]
struct Sums {
    /// Of the busy limit: admitted, refused, not taken; and the tokens.
    busy: [AtomicU64; 3],
    busy_tokens: AtomicU64,
    daily: [AtomicU64; 3],
    main: AtomicU64,
}

impl Observer for Sums {
    fn on_decision(&self, decision: &Decision<'_>) {
        let is_busy = decision.limit().name() == BUSY.name();
        let nth = match decision.outcome() {
            Outcome::Admitted => 0,
            Outcome::Refused => 1,
            Outcome::NotTaken => 2,
            other => panic!("{other:?}"),
        };
        let counts = if is_busy { &self.busy } else { &self.daily };
        counts[nth].fetch_add(1, Ordering::Relaxed);
        if is_busy {
            self.busy_tokens.fetch_add(decision.taken(), Ordering::Relaxed);
        }
        self.main.fetch_add(u64::from(decision.is_main()), Ordering::Relaxed);
    }
}

/// The callers count what they got, and the history checker agrees that the limit held: the sums
/// that were told are the same to the last call.
#[test]
fn what_is_told_adds_up_to_what_threads_got() {
    let sums = Arc::new(Sums::default());
    let limiter = RateLimiter::in_memory().observe(Arc::clone(&sums));
    let runs = Mutex::new(Vec::<(Timestamp, u64)>::new());
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, runs, refused) = (&limiter, &runs, &refused);
            scope.spawn(move || {
                let mut own = Vec::new();
                for call in 0..CALLS {
                    let cost = 1 + (call + thread) % 3;
                    match at_once(limiter.limit(&DAILY).and(&BUSY).cost(cost)) {
                        Ok(permit) => own.push((permit.at(), cost)),
                        Err(error) => {
                            assert!(error.is_refused());
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                runs.lock().unwrap().extend(own);
            });
        }
    });
    let mut runs = runs.into_inner().unwrap();
    runs.sort();
    assert_eq!(check_history(&QUOTA, &runs).unwrap(), None);
    let (admitted, refused) = (runs.len() as u64, refused.into_inner());
    let tokens: u64 = runs.iter().map(|&(_, cost)| cost).sum();
    let read = |counts: &[AtomicU64; 3]| [0, 1, 2].map(|nth| counts[nth].load(Ordering::Relaxed));
    assert_eq!(read(&sums.busy), [admitted, refused, 0]);
    assert_eq!(read(&sums.daily), [admitted, 0, refused]);
    assert_eq!(sums.busy_tokens.load(Ordering::Relaxed), tokens);
    assert_eq!(sums.main.load(Ordering::Relaxed), THREADS * CALLS);
    assert_eq!(admitted + refused, THREADS * CALLS);
    assert!(admitted > 0 && refused > 0, "{admitted} {refused}");
}
