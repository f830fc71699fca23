//! Real Redis servers for tests: private, on free ports of 127.0.0.1, gone with the test.
//!
//! The programs are `redis-server` and `redis-cli` on the path: `scripts/servers` puts other versions
//! there.

mod client;
mod cluster;
mod guard;
mod impostor;
mod process;
mod proxy;
mod sentinels;
mod server;
mod tls;

pub use client::{Client, Reply};
pub use cluster::Cluster;
pub use guard::Guard;
pub use impostor::{Impostor, Words, endlessly, greet, pass};
pub use process::{free_port, is_alive, until};
pub use proxy::{Mode, Proxy};
pub use sentinels::Sentinels;
pub use server::Server;
