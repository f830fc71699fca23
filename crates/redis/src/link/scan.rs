//! Going through the names and values of a server, for lists.
//!
//! # Design
//!
//! A step is two trips: `SCAN`, and one for the values of the names that it has found. Both are
//! bounded, so that decisions on the same connection hardly wait for them. Nothing is sent again: the
//! next page begins with a step that has failed.
//!
//! In a cluster, each master is scanned by itself. It is named by a slot that it has, and the masters
//! come in the order of their first slots.

use ::redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::Instant;

use super::call::{Connection, Fault};
use super::error::LinkError;
use super::failure::code;
use super::{Link, Route};
use tollgate::backend::BackendError;
use tollgate::clock::Timestamp;
use tollgate_kit::key_name::slot;

/// What a step of a scan has found.
#[derive(Debug)]
pub(crate) struct ScanStep {
    /// The names that match, perhaps with repetitions.
    pub(crate) names: Vec<Vec<u8>>,
    /// Where the scan of this server goes on; 0 at its end.
    pub(crate) next: u64,
}

/// Values, read at a time of their server.
#[derive(Debug)]
pub(crate) struct ScanValues {
    pub(crate) now: Timestamp,
    /// The value of each name, in order; `None` if it is gone, or has not the length of a bucket.
    pub(crate) values: Vec<Option<[u8; 48]>>,
}

impl Link {
    /// Makes a step of a scan on the server with this slot.
    ///
    /// # Cancel safety
    ///
    /// The connection expects the answer all the same, and counts its bytes. So this has to run in a
    /// task that is not dropped before it has ended.
    pub(crate) async fn scan(
        &self,
        slot: u16,
        cursor: u64,
        pattern: &[u8],
        deadline: Instant,
    ) -> Result<ScanStep, BackendError> {
        let mut command = Cmd::new();
        command.arg("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(COUNT);
        let connection = self.scan_connection(slot, deadline).await?;
        let answer = connection.run(&command, LONGEST_NAMES).await;
        let answer = answer.map_err(|fault| self.scan_error(&connection, fault))?;
        read_step(answer).ok_or_else(|| unexpected(&connection))
    }

    /// Reads values on the server with this slot.
    ///
    /// # Cancel safety
    ///
    /// As [`scan`](Self::scan).
    pub(crate) async fn read_values(
        &self,
        slot: u16,
        names: &[&[u8]],
        deadline: Instant,
    ) -> Result<ScanValues, BackendError> {
        let mut commands = Pipeline::with_capacity(names.len().saturating_add(1));
        for name in names {
            // One byte more than a bucket has, as the script reads it: a foreign value may be long.
            commands.cmd("GETRANGE").arg(name).arg(0).arg(48);
        }
        // After the values: a bucket that was charged later than this time would seem to be blocked.
        commands.cmd("TIME");
        let connection = self.scan_connection(slot, deadline).await?;
        let count = names.len().saturating_add(1);
        let longest = count.saturating_mul(LONGEST_VALUE);
        let answers = connection.run_all(&commands, count, longest).await;
        let mut answers = answers.map_err(|fault| self.scan_error(&connection, fault))?;
        let now = answers.pop().and_then(read_time);
        let Some(now) = now.filter(|_| answers.len() == names.len()) else {
            return Err(unexpected(&connection));
        };
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            match answer {
                Value::BulkString(value) => values.push(<[u8; 48]>::try_from(value).ok()),
                Value::ServerError(error) => {
                    let error = RedisError::from(error);
                    match code(&error) {
                        // It is of another type, or has moved to another node meanwhile.
                        "WRONGTYPE" | "MOVED" | "ASK" | "TRYAGAIN" => values.push(None),
                        _ => return Err(connection.node().reply(&error).into()),
                    }
                }
                _ => return Err(unexpected(&connection)),
            }
        }
        Ok(ScanValues { now, values })
    }

    /// The first slot of the master that comes behind the one with this slot; `None` behind the last.
    pub(crate) fn next_master(&self, slot: u16) -> Option<u16> {
        match &self.0.route {
            Route::Single(_) => None,
            Route::Cluster(cluster) => cluster.next_master(slot),
        }
    }

    /// Whether there may be a server with this slot.
    pub(crate) fn may_have_slot(&self, slot: u16) -> bool {
        slot <= if self.is_cluster() { slot::LAST } else { 0 }
    }

    async fn scan_connection(
        &self,
        slot: u16,
        deadline: Instant,
    ) -> Result<Connection, BackendError> {
        match &self.0.route {
            Route::Single(node) => node.connection(deadline).await,
            Route::Cluster(cluster) => cluster.owner(slot, deadline).await,
        }
    }

    fn scan_error(&self, connection: &Connection, fault: Fault) -> BackendError {
        match fault {
            Fault::Reply(reply) => connection.node().reply(&reply).into(),
            Fault::Unknown(error) => {
                self.refresh_slots();
                error
            }
        }
    }
}

/// Ends a connection that answers something else, as `Link::call` does.
fn unexpected(connection: &Connection) -> BackendError {
    connection.give_up();
    LinkError::new(connection.node().unexpected_answer_text()).into()
}

/// `[cursor, [name, ..]]`
fn read_step(answer: Value) -> Option<ScanStep> {
    let Value::Array(answer) = answer else { return None };
    let [Value::BulkString(cursor), Value::Array(names)] = <[Value; 2]>::try_from(answer).ok()?
    else {
        return None;
    };
    let next = str::from_utf8(&cursor).ok()?.parse().ok()?;
    let name = |name| match name {
        Value::BulkString(name) => Some(name),
        _ => None,
    };
    let names = names.into_iter().map(name).collect::<Option<_>>()?;
    Some(ScanStep { names, next })
}

/// `[seconds, microseconds]`
fn read_time(answer: Value) -> Option<Timestamp> {
    let Value::Array(answer) = answer else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = answer.as_slice() else {
        return None;
    };
    let number = |digits: &[u8]| str::from_utf8(digits).ok()?.parse::<i64>().ok();
    let micros = number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?;
    Some(Timestamp::from_micros(micros))
}

/// How many places of its table a server looks at in a step, which takes it 60 µs; as long as it takes
/// to read the values of so many.
const COUNT: u32 = 64;

/// The longest list of names of a step. A place holds some five names when a server does not grow its
/// table, as while it takes a snapshot, and a name of ours has at most 360 bytes.
const LONGEST_NAMES: usize = 1024 * 1024;

/// What an answer has for each value: 49 bytes, or an error.
const LONGEST_VALUE: usize = 256;
