//! The lists of debtors of a store with one mistake.

use std::fmt::Write as _;
use std::ops::Bound;

use tollgate::backend::{BucketRecord, Debtor, DebtorQuery, DebtorReport};
use tollgate::clock::Clock;

use super::{Mistake, Records, StoredRecord};

/// How many records a page looks at.
const LOOKS: usize = 7;

impl Records {
    /// Goes through all records from the cursor on, which is a name in digits.
    pub(super) fn list(&self, query: &DebtorQuery) -> DebtorReport {
        let after = query.get_after().map_or(Bound::Unbounded, |cursor| {
            let digits = cursor.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            Bound::Excluded(digits.map(byte).collect::<Vec<_>>())
        });
        let mut debtors = Vec::new();
        let mut rest = self.map.range((after, Bound::Unbounded));
        let mut last = None;
        for (name, stored) in rest.by_ref().take(LOOKS) {
            debtors.extend(self.debtor(query, stored));
            last = Some(name);
            if debtors.len() == query.get_max() {
                break;
            }
        }
        let next = rest.next().and(last).map(|name| {
            let mut digits = String::new();
            name.iter().for_each(|byte| write!(digits, "{byte:02x}").unwrap());
            digits
        });
        if self.mistake == Mistake::LosesOneAtEachPage && next.is_some() && debtors.len() > 1 {
            debtors.pop();
        }
        DebtorReport::Page { at: self.clock.now(), debtors, next }
    }

    fn debtor(&self, query: &DebtorQuery, (id, record): &StoredRecord) -> Option<Debtor> {
        let (id, now) = (id.as_id(), self.clock.now());
        let is_of_limit = match self.mistake {
            Mistake::ListsLimitsThatBeginAlike => id.limit().starts_with(query.limit()),
            _ => id.limit() == query.limit(),
        };
        let key = id.key();
        let listed =
            |record: &BucketRecord| query.debtor(key.clone(), id.shard_index(), record, now);
        let as_stored =
            || Debtor::new(key.clone(), id.shard_index(), query.bucket(), record.state(), now);
        match self.mistake {
            _ if !is_of_limit => None,
            Mistake::ListsWhatOwesNothing => Some(as_stored()),
            Mistake::ListsStatesAsStored => listed(record).map(|_| as_stored()),
            _ => listed(record),
        }
    }

    /// Counts all records of these numbers, as a store without names does.
    pub(super) fn count(&self, query: &DebtorQuery) -> DebtorReport {
        let (at, mut in_debt) = (self.clock.now(), 0);
        for (id, record) in self.map.values() {
            let key = id.as_id().key().clone();
            let is_due = query.debtor(key, id.as_id().shard_index(), record, at).is_some();
            in_debt += u64::from(is_due);
        }
        DebtorReport::Count { at, in_debt, blocked: 0, next: None }
    }
}
