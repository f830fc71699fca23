//! The queue of a layer: its longest wait alone, or a table.

use super::field_names::{FieldName, LimitField, QueueField};
use super::reader::{Given, Reader, Setting};
use super::tree::{ConfigNode, NodeValue};
use http::StatusCode;
use std::time::Duration;
use tollgate::middleware::Queue;

/// A queue, and its longest wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueSetting {
    pub(super) queue: Queue,
    pub(super) max_wait: Duration,
}

pub(super) fn read(reader: &mut Reader<'_>, node: &ConfigNode) -> Option<Given<QueueSetting>> {
    let at = node.at;
    let NodeValue::Table(fields) = &node.value else {
        let given = reader.time(LimitField::Queue, node)?;
        let max_wait = given.value.and_then(|wait| above_zero(reader, "queue", at, wait));
        let setting = |max_wait| QueueSetting { queue: Queue::new(max_wait), max_wait };
        return Some(Given { at, value: max_wait.map(setting) });
    };
    let (mut max_wait, mut max_waiters, mut per_key) = (None, None, None);
    let (mut on_full, mut stay) = (None, None);
    let mut reader = reader.inner("queue.");
    reader.fields(fields, |reader, field: QueueField, given| {
        let node = &given.node;
        match field {
            QueueField::MaxWait => max_wait = reader.time(field, node),
            QueueField::MaxWaiters => max_waiters = reader.whole(field, node, 1..=u64::MAX),
            QueueField::MaxWaitersPerKey => per_key = reader.whole(field, node, 1..=u64::MAX),
            QueueField::OnFull => on_full = reader.read(field, node, read_on_full),
            QueueField::Stay => stay = reader.flag(field, node),
        }
    });
    if max_wait.is_none() {
        let name = QueueField::MaxWait.name();
        reader.mistake(at, format!("`queue` has no `{name}` (write a time, such as \"30s\")"));
    }
    let wait = |given: Given<_>| above_zero(&mut reader, "queue.max_wait", given.at, given.value?);
    let max_wait = max_wait.and_then(wait);
    let count = |given: Option<Given<u64>>| {
        given.good().map(|count| usize::try_from(count).unwrap_or(usize::MAX))
    };
    let (max_waiters, per_key, on_full) = (count(max_waiters), count(per_key), on_full.good());
    let setting = |max_wait| {
        let mut queue = Queue::new(max_wait);
        queue = max_waiters.map_or(queue, |requests| queue.max_waiters(requests));
        queue = per_key.map_or(queue, |requests| queue.max_waiters_per_key(requests));
        queue = on_full.map_or(queue, |on_full| queue.on_full(on_full));
        queue = match stay.good() {
            None => queue,
            Some(true) => queue.stay(),
            Some(false) => queue.refuse_early(),
        };
        QueueSetting { queue, max_wait }
    };
    Some(Given { at, value: max_wait.map(setting) })
}

fn above_zero(
    reader: &mut Reader<'_>,
    name: &str,
    at: Option<usize>,
    wait: Duration,
) -> Option<Duration> {
    if wait.is_zero() {
        let way_out = "write a longer time, or leave `queue` out";
        reader.mistake(at, format!("`{name}` of 0 lets no request wait ({way_out})"));
        return None;
    }
    Some(wait)
}

fn read_on_full(node: &ConfigNode) -> Result<StatusCode, String> {
    match &node.value {
        NodeValue::Number(number) if number.whole == Some(503) => {
            Ok(StatusCode::SERVICE_UNAVAILABLE)
        }
        NodeValue::Number(number) if number.whole == Some(429) => Ok(StatusCode::TOO_MANY_REQUESTS),
        _ => Err("write the status: 503 or 429".to_owned()),
    }
}
