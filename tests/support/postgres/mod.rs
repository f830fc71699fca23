//! A real PostgreSQL server for tests: one for each test binary, private, gone with it. Each test
//! has a schema of its own.
//!
//! The programs are those of the newest version in `/usr/lib/postgresql`, or in the directory that
//! the environment variable `TOLLGATE_POSTGRES_BIN` names. Nothing here knows the crate under test,
//! so that its unit tests can use this too.

#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests panic where they fail")]

mod account;
#[allow(clippy::duplicate_mod, reason = "each kind of server is a module by itself")]
#[path = "../certificates.rs"]
mod certificates;
mod pooler;
mod programs;
mod server;

pub(crate) use pooler::Pooler;
pub(crate) use server::Server;
