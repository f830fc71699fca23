//! What one would send to a Redis server to have requests decided, each as its own documentation
//! says.

mod connection;
mod gcra;
mod incr;
#[cfg(feature = "limitador")]
mod limitador;
mod ours;
mod same_script;

use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use self::connection::connected;
use crate::drive::Drive;
use crate::server::Server;

/// The names that tables and figures use.
pub mod name {
    pub const OURS: &str = "tollgate";
    pub const ONE_CALL_EACH: &str = "its script, a call each";
    pub const GCRA: &str = "GCRA script";
    pub const INCR: &str = "INCR";
    pub const LIMITADOR: &str = "limitador";

    /// In the order of the columns.
    pub const ALL: [&str; 5] = [OURS, ONE_CALL_EACH, GCRA, LIMITADOR, INCR];
}

/// One way to decide. Clones share their connection.
pub trait Contestant: Clone + Send + Sync + 'static {
    /// Takes one token from the bucket of the nth key.
    fn decide(&mut self, key: usize) -> impl Future<Output = Answer> + Send;
}

static FAILURE: Once = Once::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Admitted,
    Refused,
    /// An error, or no answer in time.
    Failed,
}

impl Answer {
    fn admitted_if<E: fmt::Display>(answer: Result<bool, E>) -> Self {
        match answer {
            Ok(true) => Self::Admitted,
            Ok(false) => Self::Refused,
            Err(error) => {
                // One tells why; all of them would be too many.
                FAILURE.call_once(|| eprintln!("a decision failed: {error}"));
                Self::Failed
            }
        }
    }
}

/// The same for all peers: `burst` at once, and `rate` in each `period`. The name sets its buckets apart from
/// others.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub name: &'static str,
    pub rate: u32,
    pub period: Duration,
    pub burst: u32,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Allowance {
    /// More than can be asked for. A token takes most of a minute to come back, so that every bucket
    /// stays stored, as that of a busy client does.
    pub const OPEN: Self = Self { name: "open", rate: 2_000, period: DAY, burst: 100_000_000 };
    /// One, and not another on the day of the benchmark.
    pub const SPENT: Self = Self { name: "spent", rate: 1, period: DAY, burst: 1 };
}

/// A contestant with its connection, ready to be driven.
pub struct Entrant {
    pub peer: &'static str,
    /// The command that the server counts its calls by.
    pub command: &'static str,
    pub drive: Box<dyn Drive>,
}

impl Entrant {
    fn new(peer: &'static str, command: &'static str, contestant: impl Contestant) -> Self {
        Self { peer, command, drive: Box::new(contestant) }
    }
}

/// All peers that can do the work, with buckets of this allowance.
pub async fn all(server: &Server, allowance: Allowance) -> Vec<Entrant> {
    let mut all = Vec::new();
    let ours = ours::Ours::new(server, allowance).await;
    all.push(Entrant::new(name::OURS, "evalsha", ours));
    let same_script = same_script::SameScript::new(connected(server).await, allowance).await;
    all.push(Entrant::new(name::ONE_CALL_EACH, "evalsha", same_script));
    let gcra = gcra::Gcra::new(connected(server).await, allowance).await;
    all.push(Entrant::new(name::GCRA, "evalsha", gcra));
    #[cfg(feature = "limitador")]
    {
        let limitador = limitador::Limitador::new(server, allowance).await;
        all.push(Entrant::new(name::LIMITADOR, "evalsha", limitador));
    }
    // A counter refuses no request.
    if allowance.name == Allowance::OPEN.name {
        let incr = incr::Incr::new(connected(server).await);
        all.push(Entrant::new(name::INCR, "incr", incr));
    }
    all
}

/// Texts of 17 bytes, made before anything is timed.
fn names() -> Arc<[String]> {
    (0..KEYS).map(|nth| format!("user-{nth:012}")).collect()
}

/// As many keys as any work uses.
pub const KEYS: usize = 100_000;
