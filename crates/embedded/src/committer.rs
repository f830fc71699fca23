//! The thread that writes what decisions have changed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use super::NAME;
use super::file::{BucketChanges, BucketFile};
use super::inbox::Inbox;
use super::sweep::Sweep;
use tollgate::backend::BackendError;
use tollgate::clock::Timestamp;

/// What one commit writes.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) changes: Arc<BucketChanges>,
    /// The time of the last of the decisions.
    pub(super) now: Timestamp,
}

/// Writes one commit after the other, and reports each, until no more come.
pub(super) fn run_committer(
    file: &BucketFile,
    mut sweep: Sweep,
    commits: &mpsc::Receiver<Commit>,
    inbox: &Inbox,
) {
    for Commit { changes, now } in commits {
        let work = AssertUnwindSafe(|| file.commit(&changes, now, &mut sweep));
        // The database may panic if another program has changed the file. What it has written is
        // not used afterwards, unless the file can be opened again.
        let written = catch_unwind(work).unwrap_or_else(|_| {
            Err(BackendError::internal(NAME, "the database panicked while it committed"))
        });
        if written.is_err() {
            file.close();
        }
        drop(changes);
        inbox.report(written);
    }
}
