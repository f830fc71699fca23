//! The layer that spaces the requests of a client, against our own server and recorded answers.

#![cfg(all(feature = "memory", feature = "pacing"))]

mod hostile;
mod line;
mod recorded;
mod server;
