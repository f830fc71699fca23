//! What many write themselves: the usual script, and a call for each decision.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::cmd;

use super::connection::loaded;
use super::{Allowance, Answer, Contestant, names};

const SCRIPT: &str = include_str!("gcra.lua");

#[derive(Clone)]
pub(super) struct Gcra {
    connection: MultiplexedConnection,
    script: Arc<str>,
    interval: Arc<str>,
    burst: Arc<str>,
    keys: Arc<[String]>,
}

impl Gcra {
    pub(super) async fn new(mut connection: MultiplexedConnection, allowance: Allowance) -> Self {
        let Allowance { name: limit, rate, period, burst } = allowance;
        let script = loaded(&mut connection, SCRIPT).await;
        let interval = period.as_micros() / u128::from(rate);
        let keys = names().iter().map(|name| format!("gcra:{limit}:{name}")).collect();
        Self {
            connection,
            script,
            interval: interval.to_string().into(),
            burst: (interval * u128::from(burst)).to_string().into(),
            keys,
        }
    }
}

impl Contestant for Gcra {
    async fn decide(&mut self, key: usize) -> Answer {
        let mut call = cmd("EVALSHA");
        call.arg(&*self.script).arg(1).arg(&self.keys[key]).arg(&*self.interval).arg(&*self.burst);
        let wait = call.query_async::<i64>(&mut self.connection).await;
        Answer::admitted_if(wait.map(|wait| wait <= 0))
    }
}
