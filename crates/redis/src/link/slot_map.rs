//! Which master of a cluster has which slots.

use std::collections::HashSet;

use ::redis::Value;

use super::address::is_host;
use super::address_map::AddressMap;
use super::error::LinkError;
use tollgate_kit::key_name::slot;

/// The slots of all masters, in order, and their replicas.
#[derive(Debug, Default)]
pub(super) struct SlotMap {
    ranges: Vec<SlotRange>,
    replicas: Vec<(String, u16)>,
}

/// Consecutive slots of one master.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    first: u16,
    last: u16,
    pub(super) host: String,
    pub(super) port: u16,
}

impl SlotRange {
    fn is_of_same_master(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port
    }
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS`. A node that does not know its own host leaves it out.
    ///
    /// `None` if no cluster can have sent it: slots that do not exist, hosts without a name, or
    /// thousands of masters, to each of which this process would connect.
    pub(super) fn read(answer: Value, own_host: &str) -> Option<Self> {
        let Value::Array(parts) = answer else { return None };
        let mut slots = Self::default();
        let mut masters = HashSet::new();
        for part in &parts {
            // [first, last, master, replicas ..]
            let Value::Array(part) = part else { return None };
            let [first, last, master, replicas @ ..] = part.as_slice() else { return None };
            let (host, port) = place(master, own_host)?;
            let (first, last) = (number(first)?, number(last)?);
            if last < first || last > slot::LAST {
                return None;
            }
            // A master may have many ranges, and counts once.
            masters.insert((host.clone(), port));
            slots.ranges.push(SlotRange { first, last, host, port });
            slots.replicas.extend(replicas.iter().filter_map(|replica| place(replica, own_host)));
        }
        if masters.len() > MOST_MASTERS {
            return None;
        }
        slots.ranges.sort_unstable_by_key(|range| range.first);
        slots.replicas.sort_unstable();
        slots.replicas.dedup();
        slots.replicas.truncate(MOST_MASTERS);
        Some(slots)
    }

    /// The same slots, with the addresses at which the nodes are reached from here.
    pub(super) fn mapped(mut self, map: &AddressMap) -> Result<Self, LinkError> {
        let masters = self.ranges.iter_mut().map(|range| (&mut range.host, &mut range.port));
        let replicas = self.replicas.iter_mut().map(|(host, port)| (host, port));
        for (host, port) in masters.chain(replicas) {
            (*host, *port) = map.map(host, *port)?;
        }
        Ok(self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The master of a slot.
    pub(super) fn master(&self, slot: u16) -> Option<&SlotRange> {
        // The ranges are sorted by their first slots, so only the last one that begins before the
        // slot can have it.
        let after = self.ranges.partition_point(|range| range.first <= slot);
        self.ranges.get(after.checked_sub(1)?).filter(|range| slot <= range.last)
    }

    /// The first slot of the next master, by the order of their first slots; `None` behind the last.
    ///
    /// It is larger than `slot`, so that to go from master to master ends whatever a server answers,
    /// and while slots move.
    pub(super) fn next_master(&self, slot: u16) -> Option<u16> {
        let mut masters = Vec::<&SlotRange>::new();
        // The ranges are sorted, so the first one of a master has its first slot.
        for range in &self.ranges {
            if masters.iter().all(|other| !range.is_of_same_master(other)) {
                masters.push(range);
            }
        }
        masters.iter().map(|range| range.first).find(|first| *first > slot)
    }

    /// The replicas. They know the slots as well, in case the masters are gone.
    pub(super) fn replicas(&self) -> &[(String, u16)] {
        &self.replicas
    }

    /// All ranges; a master may have several.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &SlotRange> {
        self.ranges.iter()
    }
}

/// `[host, port, ..]`
fn place(node: &Value, own_host: &str) -> Option<(String, u16)> {
    let Value::Array(node) = node else { return None };
    let [host, port, ..] = node.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        Value::BulkString(_) | Value::Nil => own_host.to_owned(),
        _ => return None,
    };
    // The host of a socket is empty.
    (is_host(&host) || host == own_host).then_some(())?;
    Some((host, number(port)?))
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

/// Redis recommends at most so many nodes for a cluster.
const MOST_MASTERS: usize = 1_000;
