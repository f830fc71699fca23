//! What goes wrong.

use std::time::Duration;

use tollgate_redis::RedisBuilder;

/// Something that goes wrong, and what it does to the store.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    pub lasts: Duration,
    pub start: Start,
    pub loss: Loss,
}

/// When it begins.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// Before any client has connected.
    First,
    UnderTraffic,
}

/// What the store forgets.
#[derive(Clone, Copy, Debug)]
pub enum Loss {
    None,
    /// The writes that a replica has not received in time.
    Some,
    All,
}

/// How the limiter reaches the store, and how it is asked in the end what it holds.
#[derive(Clone, Debug)]
pub struct Way {
    pub used: RedisBuilder,
    pub held: RedisBuilder,
}

impl Fault {
    /// A momentary fault, under traffic, that loses nothing.
    pub fn new(name: &'static str) -> Self {
        Self { name, lasts: Duration::ZERO, start: Start::UnderTraffic, loss: Loss::None }
    }

    pub fn lasts(self, lasts: Duration) -> Self {
        Self { lasts, ..self }
    }

    pub fn begins(self, start: Start) -> Self {
        Self { start, ..self }
    }

    pub fn loses(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }
}

impl Way {
    pub fn of(used: RedisBuilder, held: RedisBuilder) -> Self {
        Self { used, held }
    }

    /// With buckets that no other task has.
    pub fn with_prefix(self, prefix: String) -> Self {
        Self { used: self.used.prefix(&*prefix), held: self.held.prefix(prefix) }
    }
}
