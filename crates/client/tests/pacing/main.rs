//! The layer that spaces the requests of a client, against our own server and recorded answers.

mod examples;
mod hostile;
mod kinds;
mod line;
mod quotas;
mod recorded;
mod server;
