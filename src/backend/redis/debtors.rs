//! The list of debtors: a scan of the servers, in bounded steps.
//!
//! # Design
//!
//! A page makes up to [`MAX_STEPS`] steps of a scan, and ends earlier when it is full, when half of
//! the deadline has passed, or at the end of a server on which it has found something: each server
//! has a clock of its own. A store makes one page at a time, however many are asked for.
//!
//! `SCAN` may return more names than fit on a page, so a step may be cut. The names of a step are
//! taken in the order of their hashes, and the cursor has the hash of the last one: the next page
//! makes the same step again, and begins behind that. So a name that is added or removed meanwhile
//! shifts no other.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::carrier::RedisCarrier;
use super::link::Link;
use super::script::stored_record;
use crate::backend::remote::batch::{Batcher, Carrier as _};
use crate::backend::remote::key_name::{KeyNames, NameParts};
use crate::backend::{
    Answer, BackendError, BucketRecord, DebtorBucket, DebtorCursor, DebtorPage, DebtorQuery,
    DebtorReport,
};
use crate::clock::Timestamp;

/// How many steps a page makes. With the 128 places that a server looks at in each, a page looks at
/// some 1,500 names.
const MAX_STEPS: usize = 12;

/// Makes the lists of a store, one page at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct DebtorLists(Arc<Mutex<()>>);

impl DebtorLists {
    /// Makes a page.
    pub(super) fn page(
        &self,
        batcher: &Batcher<RedisCarrier>,
        names: &Arc<KeyNames>,
        query: &DebtorQuery,
    ) -> Answer<DebtorReport> {
        let place = match query.get_after().map(|cursor| read_cursor(cursor, batcher)) {
            None => Ok(ScanPlace::default()),
            Some(place) => place,
        };
        let place = match place {
            Ok(place) => place,
            Err(error) => return Answer::Ready(Err(error)),
        };
        let (deadline, within) = (batcher.deadline(), batcher.within());
        // Time is left to answer with what was found.
        let end = deadline.checked_sub(within / 2).unwrap_or(deadline);
        let scan = DebtorScan {
            batcher: batcher.clone(),
            names: Arc::clone(names),
            query: query.clone(),
            deadline,
            end,
        };
        let turns = Arc::clone(&self.0);
        // A task of its own, which goes on when the caller leaves: see `Link::scan`.
        let page = batcher.spawn(async move {
            let _turn = turns.lock().await;
            scan.run(place).await
        });
        // In a task too: a caller outside of tokio has no timer.
        let page = batcher.spawn(async move {
            let late = |_| Err(BackendError::timeout(RedisCarrier::STORE, within));
            timeout_at(deadline, page).await.unwrap_or_else(late)
        });
        Answer::pending(async move { page.await.map(DebtorReport::Page) })
    }
}

/// Where a scan goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScanPlace {
    /// A slot of the server.
    slot: u16,
    /// The cursor of that server.
    scan: u64,
    /// The hash of the last name of this step that was taken, if it was cut.
    taken: Option<u64>,
}

impl fmt::Display for ScanPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.scan)?;
        self.taken.map_or(Ok(()), |hash| write!(f, ".{hash}"))
    }
}

fn read_cursor(
    cursor: &DebtorCursor,
    batcher: &Batcher<RedisCarrier>,
) -> Result<ScanPlace, BackendError> {
    let unknown = || BackendError::unknown_cursor(RedisCarrier::STORE, cursor);
    let mut numbers = cursor.as_str().split('.');
    let mut number = || numbers.next().map(str::parse::<u64>);
    let (slot, scan, taken) = (number(), number(), number());
    let (Some(Ok(slot)), Some(Ok(scan)), Ok(taken), None) =
        (slot, scan, taken.transpose(), numbers.next())
    else {
        return Err(unknown());
    };
    let slot = u16::try_from(slot).ok().filter(|slot| batcher.carrier().link.may_have_slot(*slot));
    Ok(ScanPlace { slot: slot.ok_or_else(unknown)?, scan, taken })
}

/// What makes one page.
struct DebtorScan {
    batcher: Batcher<RedisCarrier>,
    names: Arc<KeyNames>,
    query: DebtorQuery,
    deadline: Instant,
    /// When no step begins any more.
    end: Instant,
}

/// A name of the limit.
struct ScannedName {
    hash: u64,
    name: Vec<u8>,
    parts: NameParts,
}

/// What a page has so far.
#[derive(Default)]
struct PageDraft {
    found: Vec<(NameParts, BucketRecord)>,
    /// The hashes of their names: a server whose table shrinks returns some names twice.
    hashes: HashSet<u64>,
    /// The time of the last values that were read.
    at: Option<Timestamp>,
}

impl DebtorScan {
    fn link(&self) -> &Link {
        &self.batcher.carrier().link
    }

    async fn run(self, first: ScanPlace) -> Result<DebtorPage<DebtorBucket>, BackendError> {
        let pattern = self.names.pattern(self.query.limit());
        let (mut draft, mut place, mut steps) = (PageDraft::default(), Some(first), 0_usize);
        while let Some(here) = place {
            let is_late = steps > 0 && Instant::now() >= self.end;
            if steps >= MAX_STEPS || is_late || draft.found.len() >= self.query.get_max() {
                break;
            }
            place = match self.step(here, &pattern, &mut draft).await {
                Ok(next) => next,
                // The next page begins with the step that has failed.
                Err(_) if steps > 0 => break,
                Err(error) => return Err(error),
            };
            steps = steps.saturating_add(1);
            // Another server has another clock.
            if !draft.found.is_empty() && place.is_some_and(|next| next.slot != here.slot) {
                break;
            }
        }
        let at = match draft.at {
            Some(at) => at,
            None => self.now(first.slot).await?,
        };
        // Judged at the time of the page.
        let debtors = draft.found.into_iter();
        let debtors = debtors
            .filter_map(|(parts, record)| self.query.debtor(parts.key, parts.shard, &record, at))
            .collect();
        let next = place.map(|place| DebtorCursor::from(place.to_string()));
        Ok(DebtorPage::new(at, debtors, next))
    }

    /// Makes a step, and returns where the scan goes on.
    async fn step(
        &self,
        here: ScanPlace,
        pattern: &[u8],
        draft: &mut PageDraft,
    ) -> Result<Option<ScanPlace>, BackendError> {
        let step = self.link().scan(here.slot, here.scan, pattern, self.deadline).await?;
        let mut names: Vec<_> =
            step.names.into_iter().filter_map(|name| self.scanned(name)).collect();
        names.retain(|name| here.taken.is_none_or(|taken| name.hash > taken));
        names.sort_unstable_by_key(|name| name.hash);
        names.dedup_by(|one, other| one.name == other.name);
        if !names.is_empty() {
            let read: Vec<&[u8]> = names.iter().map(|name| &*name.name).collect();
            let read = self.link().read_values(here.slot, &read, self.deadline).await?;
            let now = self.time(read.now);
            draft.at = Some(now);
            let mut rest = names.into_iter().zip(read.values).peekable();
            while let Some((name, value)) = rest.next() {
                let hash = name.hash;
                draft.take(&self.query, name, value, now);
                if draft.found.len() >= self.query.get_max() && rest.peek().is_some() {
                    return Ok(Some(ScanPlace { taken: Some(hash), ..here }));
                }
            }
        }
        if step.next != 0 {
            return Ok(Some(ScanPlace { scan: step.next, taken: None, ..here }));
        }
        let next = self.link().next_master(here.slot);
        Ok(next.map(|slot| ScanPlace { slot, ..ScanPlace::default() }))
    }

    fn scanned(&self, name: Vec<u8>) -> Option<ScannedName> {
        let parts = self.names.read(self.query.limit(), &name)?;
        let mut hasher = SipHasher13::new();
        hasher.write(&name);
        Some(ScannedName { hash: hasher.finish(), name, parts })
    }

    /// The time of a server.
    async fn now(&self, slot: u16) -> Result<Timestamp, BackendError> {
        let read = self.link().read_values(slot, &[], self.deadline).await?;
        Ok(self.time(read.now))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have a clock")]
    const fn time(&self, now: Timestamp) -> Timestamp {
        now
    }

    /// The time that the script sees.
    #[cfg(test)]
    fn time(&self, _: Timestamp) -> Timestamp {
        self.batcher.carrier().clock.now()
    }
}

impl PageDraft {
    /// Adds a bucket, if it is on the list.
    fn take(
        &mut self,
        query: &DebtorQuery,
        name: ScannedName,
        value: Option<[u8; 48]>,
        now: Timestamp,
    ) {
        // What is no bucket is not in debt: calls on it fail, and say so.
        let Some(record) = value.as_ref().and_then(stored_record) else { return };
        let ScannedName { hash, parts, .. } = name;
        let is_due = query.debtor(parts.key.clone(), parts.shard, &record, now).is_some();
        if is_due && self.hashes.insert(hash) {
            self.found.push((parts, record));
        }
    }
}
