//! The memory store as a backend.

use super::{Memory, debtors, several};
use crate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport,
};

impl Backend for Memory {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let charge = match charges {
            [charge] if charge.get_second_shard().is_none() && !charge.reserves() => charge,
            _ => return Answer::Ready(Ok(self.charge_several(charges))),
        };
        Answer::Ready(Ok(self.charge_one(charge)))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let now = || self.now();
        let applied = several::adjust_all(&self.shards, &self.hasher, adjustments, now);
        self.keep_names(adjustments.iter().map(Adjustment::id));
        Answer::Ready(Ok(applied))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        several::forget_all(&self.shards, &self.hasher, ids, || self.now());
        Answer::Ready(Ok(()))
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn lines(&self) -> Option<&Memory> {
        Some(self)
    }

    /// Answers a [`Count`](DebtorReport::Count), unless it [keeps keys](Self::keep_keys).
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        if let Some(names) = &self.names {
            return Answer::Ready(self.list_debtors(names, query));
        }
        Answer::Ready(debtors::count_debtors(&self.shards, query, || self.now()))
    }
}
