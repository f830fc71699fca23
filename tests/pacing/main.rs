//! The layer that spaces the requests of a client, against our own server and recorded answers.

#![cfg(all(feature = "memory", feature = "pacing", feature = "retry"))]

mod hostile;
mod kinds;
mod line;
mod quotas;
mod recorded;
mod server;
