//! The names that a store keeps, in order.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::Key;
use crate::backend::charge::BucketId;
use crate::backend::owned::OwnedBucketId;

#[derive(Default)]
pub(super) struct Names(pub(super) Mutex<KnownNames>);

#[derive(Default)]
pub(super) struct KnownNames {
    /// In order, so that a list can go on behind any of them. A list finds the first name of a limit by
    /// the least key.
    pub(super) all: BTreeSet<Arc<OwnedBucketId>>,
    /// The name that was looked after last.
    last: Option<Arc<OwnedBucketId>>,
}

/// A page looks at so many names: for a fraction of a millisecond.
pub(super) const MAX_LOOKS: usize = 1_024;

impl KnownNames {
    /// Looks after the next name, and forgets it if its bucket is gone.
    pub(super) fn sweep(&mut self, is_stored: impl Fn(BucketId<'_>) -> bool) {
        let next = match &self.last {
            None => self.all.first(),
            Some(last) => self.all.range::<Arc<_>, _>((Excluded(last), Unbounded)).next(),
        };
        // Behind the last one, the next sweep begins anew.
        self.last = next.cloned();
        if let Some(name) = &self.last
            && !is_stored(name.as_id())
        {
            self.all.remove(name);
        }
    }

    /// The next names of a limit, behind one of them or from the first one on.
    pub(super) fn of_limit(
        &self,
        limit: &str,
        after: Option<&OwnedBucketId>,
    ) -> Vec<Arc<OwnedBucketId>> {
        let first = BucketId::new(limit, &Key::GLOBAL).into_owned();
        let names = match after {
            None => self.all.range::<OwnedBucketId, _>(&first..),
            Some(after) => self.all.range::<OwnedBucketId, _>((Excluded(after), Unbounded)),
        };
        let names = names.take_while(|name| name.as_id().limit() == limit);
        names.take(MAX_LOOKS).cloned().collect()
    }
}
