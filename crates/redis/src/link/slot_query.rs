//! Asks the nodes of a cluster which of them has which slots.

use std::time::Duration;

use tokio::time::Instant;

use super::call::Fault;
use super::error::LinkError;
use super::node::{FOREVER, Node};
use super::slot_map::SlotMap;
use tollgate::backend::BackendError;
use tollgate_kit::late::patiently;

/// Asks one node after the other until one knows the slots.
pub(super) async fn read_slots(candidates: Vec<Node>) -> Result<(SlotMap, Vec<Node>), LinkError> {
    let mut error = LinkError::new("there are no nodes to ask");
    for node in &candidates {
        error = match patiently(READ_TIMEOUT, query_slots(node)).await {
            // A node that has left the cluster answers as well, with no slots: then the next one is
            // asked.
            Some(Ok(Some(slots))) if !slots.is_empty() => return Ok((slots, candidates)),
            Some(Ok(Some(_))) => LinkError::new(format!("{} reports no slots", node.name())),
            Some(Ok(None)) => {
                LinkError::new(format!("{} reported slots that no cluster has", node.name()))
            }
            Some(Err(error)) => {
                LinkError::with_backend_cause("cannot read the slots of the cluster", error)
            }
            None => LinkError::new(format!("{} did not report the slots", node.name())),
        };
    }
    Err(error)
}

/// Asks a node for the slots; `None` if its answer cannot be read.
async fn query_slots(node: &Node) -> Result<Option<SlotMap>, BackendError> {
    let connection = node.connection(Instant::now() + FOREVER).await?;
    // In a task of its own: the connection still expects the answer after the timeout, and counts it
    // when it is late.
    let answer = tokio::spawn(async move {
        let mut command = ::redis::cmd("CLUSTER");
        command.arg("SLOTS");
        connection.run(&command, LONGEST_SLOTS).await
    });
    match answer.await {
        Ok(Ok(answer)) => Ok(SlotMap::read(answer, node.host())),
        Ok(Err(Fault::Reply(reply))) => Err(node.reply(&reply).into()),
        Ok(Err(Fault::Unknown(error))) => Err(error),
        Err(_) => Err(LinkError::new("the tokio runtime has ended").into()),
    }
}

/// How long one node may take to answer before the next is asked.
const READ_TIMEOUT: Duration = Duration::from_millis(300);

/// The longest answer about the slots, in bytes: enough for 5,000 ranges with a master and a
/// replica each.
const LONGEST_SLOTS: usize = 1024 * 1024;
