//! Drives a contestant: tasks that ask without a pause, or arrivals by a schedule.

mod arrivals;
mod flood;
mod random;

use std::pin::Pin;
use std::time::Duration;

pub use self::arrivals::Latencies;
pub use self::flood::Flood;
use crate::contestants::{Answer, Contestant};

type Driving<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How many tasks ask at once, and about how many keys.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub tasks: usize,
    /// Chosen at random, each as often as any other.
    pub keys: usize,
    pub expected: Answer,
}

/// A contestant, whichever it is: the loops are compiled for each of them.
pub trait Drive {
    /// Has tasks ask one decision after another, for so long.
    fn flood(&self, load: Load, time: Duration) -> Driving<'_, Flood>;

    /// Has requests come at random, so many a second, whether or not the last ones are answered.
    fn arrivals(&self, rate: f64, keys: usize, time: Duration) -> Driving<'_, Latencies>;

    /// Asks once for each of the first keys, by as many tasks.
    fn each_once(&self, keys: usize, tasks: usize) -> Driving<'_, ()>;
}

impl<C: Contestant> Drive for C {
    fn flood(&self, load: Load, time: Duration) -> Driving<'_, Flood> {
        Box::pin(flood::flood(self, load, time))
    }

    fn arrivals(&self, rate: f64, keys: usize, time: Duration) -> Driving<'_, Latencies> {
        Box::pin(arrivals::arrivals(self, rate, keys, time))
    }

    fn each_once(&self, keys: usize, tasks: usize) -> Driving<'_, ()> {
        Box::pin(flood::each_once(self, keys, tasks))
    }
}
