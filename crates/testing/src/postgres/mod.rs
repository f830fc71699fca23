//! A real PostgreSQL server for tests: one for each test binary, private, gone with it. Each test
//! has a schema of its own.
//!
//! The programs are those of the newest version in `/usr/lib/postgresql`, or in the directory that
//! the environment variable `TOLLGATE_POSTGRES_BIN` names.

mod account;
mod pooler;
mod programs;
mod server;

pub use pooler::Pooler;
pub use server::Server;
