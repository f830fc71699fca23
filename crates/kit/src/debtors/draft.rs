//! A page while a store fills it.

use tollgate::Key;
use tollgate::backend::{BucketRecord, Debtor, DebtorQuery, DebtorReport};
use tollgate::clock::Timestamp;

/// What the name of a bucket says, besides the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct NameParts {
    /// The key, or a digest of it.
    pub key: Result<Key, Box<str>>,
    pub shard: u32,
}

impl NameParts {
    fn judge(self, query: &DebtorQuery, record: &BucketRecord, now: Timestamp) -> Option<Debtor> {
        match self.key {
            Ok(key) => query.debtor(key, self.shard, record, now),
            Err(digest) => query.debtor_by_digest(&digest, self.shard, record, now),
        }
    }
}

/// What a page has so far.
#[derive(Debug)]
pub struct PageDraft {
    query: DebtorQuery,
    found: Vec<(NameParts, BucketRecord)>,
}

impl PageDraft {
    pub const fn new(query: DebtorQuery) -> Self {
        Self { query, found: Vec::new() }
    }

    pub const fn query(&self) -> &DebtorQuery {
        &self.query
    }

    pub const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub const fn is_full(&self) -> bool {
        self.found.len() >= self.query.get_max()
    }

    /// Adds a bucket, if it is on the list; returns whether it is.
    pub fn take(&mut self, parts: NameParts, record: BucketRecord, now: Timestamp) -> bool {
        let is_on_list = parts.clone().judge(&self.query, &record, now).is_some();
        if is_on_list {
            self.found.push((parts, record));
        }
        is_on_list
    }

    /// The page, with each bucket as it stands at this time.
    pub fn finish(self, at: Timestamp, next: Option<String>) -> DebtorReport {
        let Self { query, found } = self;
        let judge = |(parts, record): (NameParts, _)| parts.judge(&query, &record, at);
        DebtorReport::Page { at, debtors: found.into_iter().filter_map(judge).collect(), next }
    }
}
