//! Tollgate's script and what it is told, but a call for each decision: what batching is measured by.
//!
//! There is nothing around it that an engine needs, no lines and no deadline of its own.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};

use super::connection::loaded;
use super::{Allowance, Answer, Contestant, names};

/// The script, of the parts and in the order that `crates/redis/src/script/mod.rs` has.
const SCRIPT: &str = concat!(
    include_str!("../../../../crates/redis/src/script/clock.lua"),
    include_str!("../../../../crates/redis/src/script/bucket.lua"),
    include_str!("../../../../crates/redis/src/script/batch.lua"),
    include_str!("../../../../crates/redis/src/script/plain.lua"),
    include_str!("../../../../crates/redis/src/script/formula.lua"),
    include_str!("../../../../crates/redis/src/script/operations.lua"),
    include_str!("../../../../crates/redis/src/script/main.lua"),
);

#[derive(Clone)]
pub(super) struct SameScript {
    connection: MultiplexedConnection,
    script: Arc<str>,
    numbers: Numbers,
    keys: Arc<[String]>,
}

/// What the limit counts in: one unit comes in each microsecond.
#[derive(Clone, Copy)]
struct Numbers {
    token: f64,
    capacity: f64,
}

impl SameScript {
    pub(super) async fn new(mut connection: MultiplexedConnection, allowance: Allowance) -> Self {
        let Allowance { name: limit, rate, period, burst } = allowance;
        let script = loaded(&mut connection, SCRIPT).await;
        let token = period.as_micros() as f64 / f64::from(rate);
        let numbers = Numbers { token, capacity: token * f64::from(burst) };
        let keys = names().iter().map(|name| format!("tollgate1:{limit}:{name}")).collect();
        Self { connection, script, numbers, keys }
    }
}

impl Contestant for SameScript {
    async fn decide(&mut self, key: usize) -> Answer {
        let mut call = cmd("EVALSHA");
        call.arg(&*self.script).arg(1).arg(&self.keys[key]).arg(self.numbers.argument());
        let found = call.query_async::<Vec<Value>>(&mut self.connection).await;
        Answer::admitted_if(found.map(|found| self.numbers.admitted(&found)))
    }
}

impl Numbers {
    /// In the order that the head of the script tells: all is of the commonest kind, one limit, and one
    /// bucket with one charge, which takes a token.
    fn argument(self) -> Vec<u8> {
        let Self { token, capacity } = self;
        let limit = [1.0, token, capacity, 1.0, capacity];
        let take = [1.0, 1.0, 0.0, 1.0, token];
        let numbers = [2.0, 1.0].into_iter().chain(limit).chain(take);
        numbers.flat_map(f64::to_le_bytes).collect()
    }

    /// What came of it, by what was found: the time, and the bucket if it was there.
    fn admitted(self, found: &[Value]) -> bool {
        let [Value::Int(now), _, Value::BulkString(bucket), ..] = found else { return false };
        if bucket.is_empty() {
            return self.token <= self.capacity;
        }
        let number = |place: usize| {
            let bytes = bucket.get(place * 8..)?.first_chunk()?;
            Some(f64::from_le_bytes(*bytes))
        };
        let stored = number(0).zip(number(1));
        stored.is_some_and(|(value, ts)| value + (*now as f64 - ts).max(0.0) >= self.token)
    }
}
