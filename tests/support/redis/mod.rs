//! Real Redis servers for tests: private, on free ports of 127.0.0.1, gone with the test.
//!
//! The program is `redis-server`, or what the environment variable `TOLLGATE_REDIS_SERVER` names.
//! Nothing here knows the crate under test, so that its unit tests can use this too.

#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests panic where they fail")]

#[allow(clippy::duplicate_mod, reason = "each kind of server is a module by itself")]
#[path = "../certificates.rs"]
mod certificates;
mod client;
mod cluster;
mod guard;
mod impostor;
mod process;
mod proxy;
mod sentinels;
mod server;
mod tls;

pub(crate) use client::{Client, Reply};
pub(crate) use cluster::Cluster;
pub(crate) use guard::Guard;
pub(crate) use impostor::{Impostor, Words, endlessly, greet, pass};
pub(crate) use process::{is_alive, until};
pub(crate) use proxy::{Mode, Proxy};
pub(crate) use sentinels::Sentinels;
pub(crate) use server::Server;
