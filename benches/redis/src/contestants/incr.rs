//! The floor: a counter goes up, and nothing is decided.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::cmd;

use super::{Answer, Contestant, names};

#[derive(Clone)]
pub(super) struct Incr {
    connection: MultiplexedConnection,
    keys: Arc<[String]>,
}

impl Incr {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        let keys = names().iter().map(|name| format!("incr:{name}")).collect();
        Self { connection, keys }
    }
}

impl Contestant for Incr {
    async fn decide(&mut self, key: usize) -> Answer {
        let mut command = cmd("INCR");
        command.arg(&self.keys[key]);
        let count = command.query_async::<i64>(&mut self.connection).await;
        Answer::admitted_if(count.map(|count| count > 0))
    }
}
