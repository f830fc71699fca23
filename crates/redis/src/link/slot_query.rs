//! Asks the nodes of a cluster which of them has which slots.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::call::Fault;
use super::error::LinkError;
use super::node::Node;
use super::slot_map::SlotMap;
use tollgate::backend::BackendError;

/// Asks one node after the other until one knows the slots.
pub(super) async fn read_slots(candidates: Vec<Node>) -> Result<(SlotMap, Vec<Node>), LinkError> {
    let mut error = LinkError::new("there are no nodes to ask");
    for node in &candidates {
        // In a task of its own: the connection still expects the answer after the timeout, and
        // counts it when it is late.
        let asked = tokio::spawn(query_slots(node.clone()));
        error = match timeout(READ_TIMEOUT, asked).await {
            // A node that has left the cluster answers as well, with no slots: then the next one is
            // asked.
            Ok(Ok(Ok(Some(slots)))) if !slots.is_empty() => return Ok((slots, candidates)),
            Ok(Ok(Ok(Some(_)))) => LinkError::new(format!("{} reports no slots", node.name())),
            Ok(Ok(Ok(None))) => {
                LinkError::new(format!("{} reported slots that no cluster has", node.name()))
            }
            Ok(Ok(Err(error))) => {
                LinkError::with_backend_cause("cannot read the slots of the cluster", error)
            }
            Ok(Err(_)) | Err(_) => {
                LinkError::new(format!("{} did not report the slots", node.name()))
            }
        };
    }
    Err(error)
}

/// Asks a node for the slots; `None` if its answer cannot be read.
async fn query_slots(node: Node) -> Result<Option<SlotMap>, BackendError> {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let connection = node.connection(Instant::now() + READ_TIMEOUT).await?;
    match connection.run(&command, LONGEST_SLOTS).await {
        Ok(answer) => Ok(SlotMap::read(answer, node.host())),
        Err(Fault::Reply(reply)) => Err(node.reply(&reply).into()),
        Err(Fault::Unknown(error)) => Err(error),
    }
}

/// How long one node may take to answer before the next is asked.
const READ_TIMEOUT: Duration = Duration::from_millis(300);

/// The longest answer about the slots, in bytes: enough for 5,000 ranges with a master and a
/// replica each.
const LONGEST_SLOTS: usize = 1024 * 1024;
