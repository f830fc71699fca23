//! What is measured.

mod latency;
mod memory;
mod throughput;

use std::time::Duration;

use crate::contestants::{self, Allowance};
use crate::figures::Figures;
use crate::server::Server;

/// The names that tables and figures use.
pub mod name {
    pub const ADMITTED: &str = "admitted";
    pub const REFUSED: &str = "refused";
    pub const LATENCY: &str = "latency";
    pub const MEMORY: &str = "memory";
}

pub const TASKS: [usize; 4] = [1, 64, 256, 1_024];
pub const MANY_KEYS: usize = 10_000;

/// How thoroughly.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub round: Duration,
    pub latency_rounds: usize,
    pub latency_round: Duration,
}

impl Plan {
    pub const FULL: Self = Self {
        rounds: 7,
        round: Duration::from_millis(400),
        latency_rounds: 5,
        latency_round: Duration::from_millis(1_500),
    };
    /// For development; too short to say much.
    pub const QUICK: Self = Self {
        rounds: 2,
        round: Duration::from_millis(100),
        latency_rounds: 2,
        latency_round: Duration::from_millis(200),
    };
}

pub async fn run(server: &Server, plan: Plan) -> Figures {
    let mut figures = Figures::default();
    let open = contestants::all(server, Allowance::OPEN).await;
    let spent = contestants::all(server, Allowance::SPENT).await;
    throughput::admitted(server, plan, &open, &mut figures).await;
    throughput::refused(server, plan, &spent, &mut figures).await;
    latency::at_half_load(plan, &open, &mut figures).await;
    // Last, as it forgets everything that is stored.
    memory::of_each(server, &open, &mut figures).await;
    figures
}
