//! The list of debtors: a scan of the servers, in bounded steps.
//!
//! # Design
//!
//! A page makes up to [`MAX_STEPS`] steps of a scan, and ends earlier when it is full, when half of
//! the deadline has passed, or at the end of a server on which it has found something: each server
//! has a clock of its own. A store makes one page at a time, however many are asked for.
//!
//! `SCAN` may return more names than fit on a page, so a step may be cut. The next page makes the
//! same step again, and the cursor has the hashes of the names that were listed of it. No order of
//! names would do: the step may reach further than before, as a server ends it by the number of
//! names that it has found.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::carrier::RedisCarrier;
use super::link::Link;
use super::script::stored_record;
use tollgate::backend::{Answer, BackendError, DebtorQuery, DebtorReport};
use tollgate::clock::Timestamp;
use tollgate_kit::batch::{Batcher, Carrier as _};
use tollgate_kit::debtors::{NameParts, PageDraft};
use tollgate_kit::key_name::KeyNames;
use tollgate_kit::pages::{PageTime, PageTurns};

/// How many steps a page makes. With the 64 places that a server looks at in each, a page looks at
/// some 1,500 names.
const MAX_STEPS: usize = 24;

/// Makes a page.
pub(super) fn page(
    turns: &PageTurns,
    batcher: &Batcher<RedisCarrier>,
    names: &Arc<KeyNames>,
    query: &DebtorQuery,
) -> Answer<DebtorReport> {
    let place = match query.get_after().map(|cursor| read_cursor(cursor, batcher)).transpose() {
        Ok(place) => place.unwrap_or_default(),
        Err(error) => return Answer::Ready(Err(error)),
    };
    let time = PageTime::new(batcher);
    let (batcher, names) = (batcher.clone(), Arc::clone(names));
    let draft = PageDraft::new(query.clone());
    let scan = DebtorScan { batcher, names, time, draft, at: None, hashes: HashSet::new() };
    turns.answer(&scan.batcher.clone(), time, scan.run(place))
}

/// Where a scan goes on.
#[derive(Debug, Default)]
struct ScanPlace {
    /// A slot of the server.
    slot: u16,
    /// The cursor of that server.
    scan: u64,
    /// The hashes of the names that were listed of this step, if it was cut.
    listed: Vec<u64>,
}

impl fmt::Display for ScanPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.scan)?;
        self.listed.iter().try_for_each(|hash| write!(f, ".{hash}"))
    }
}

fn read_cursor(cursor: &str, batcher: &Batcher<RedisCarrier>) -> Result<ScanPlace, BackendError> {
    let unknown = || BackendError::unknown_cursor(RedisCarrier::STORE, cursor);
    let numbers = cursor.split('.').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>();
    let Ok([slot, scan, listed @ ..]) = numbers.as_deref() else { return Err(unknown()) };
    let slot = u16::try_from(*slot).ok().filter(|slot| batcher.carrier().link.may_have_slot(*slot));
    Ok(ScanPlace { slot: slot.ok_or_else(unknown)?, scan: *scan, listed: listed.to_vec() })
}

/// What makes one page.
struct DebtorScan {
    batcher: Batcher<RedisCarrier>,
    names: Arc<KeyNames>,
    time: PageTime,
    draft: PageDraft,
    /// The time of the last values that were read.
    at: Option<Timestamp>,
    /// The hashes of the names on the page: a server whose table shrinks returns some names twice.
    hashes: HashSet<u64>,
}

/// A name of the limit.
struct ScannedName {
    hash: u64,
    name: Vec<u8>,
    parts: NameParts,
}

impl DebtorScan {
    fn link(&self) -> &Link {
        &self.batcher.carrier().link
    }

    async fn run(mut self, first: ScanPlace) -> Result<DebtorReport, BackendError> {
        let pattern = self.names.pattern(self.draft.query().limit());
        let (first, mut place, mut steps) = (first.slot, Some(first), 0_usize);
        while let Some(here) = &place {
            let is_late = steps > 0 && self.time.is_over();
            if steps >= MAX_STEPS || is_late || self.draft.is_full() {
                break;
            }
            PageTime::pause().await;
            let next = match self.step(here, &pattern).await {
                Ok(next) => next,
                // The next page begins with the step that has failed.
                Err(_) if steps > 0 => break,
                Err(error) => return Err(error),
            };
            steps = steps.saturating_add(1);
            // Another server has another clock.
            let is_elsewhere = next.as_ref().is_some_and(|next| next.slot != here.slot);
            place = next;
            if is_elsewhere && !self.draft.is_empty() {
                break;
            }
        }
        let at = match self.at {
            Some(at) => at,
            None => self.now(first).await?,
        };
        Ok(self.draft.finish(at, place.map(|place| place.to_string())))
    }

    /// Makes a step, and returns where the scan goes on.
    async fn step(
        &mut self,
        here: &ScanPlace,
        pattern: &[u8],
    ) -> Result<Option<ScanPlace>, BackendError> {
        let deadline = self.time.deadline;
        let step = self.link().scan(here.slot, here.scan, pattern, deadline).await?;
        let mut names: Vec<_> =
            step.names.into_iter().filter_map(|name| self.scanned(name)).collect();
        let mut listed: HashSet<u64> = here.listed.iter().copied().collect();
        names.retain(|name| !listed.contains(&name.hash));
        if !names.is_empty() {
            let read: Vec<&[u8]> = names.iter().map(|name| &*name.name).collect();
            let read = self.link().read_values(here.slot, &read, deadline).await?;
            let now = self.seen(read.now);
            self.at = Some(now);
            let mut rest = names.into_iter().zip(read.values).peekable();
            while let Some((ScannedName { hash, parts, .. }, value)) = rest.next() {
                // What is no bucket is not in debt: calls on it fail, and say so.
                if let Some(record) = value.as_ref().and_then(stored_record)
                    && self.hashes.insert(hash)
                    && self.draft.take(parts, record, now)
                {
                    listed.insert(hash);
                }
                if self.draft.is_full() && rest.peek().is_some() {
                    let listed = listed.into_iter().collect();
                    return Ok(Some(ScanPlace { slot: here.slot, scan: here.scan, listed }));
                }
            }
        }
        if step.next != 0 {
            return Ok(Some(ScanPlace { slot: here.slot, scan: step.next, listed: Vec::new() }));
        }
        let next = self.link().next_master(here.slot);
        Ok(next.map(|slot| ScanPlace { slot, ..ScanPlace::default() }))
    }

    fn scanned(&self, name: Vec<u8>) -> Option<ScannedName> {
        let parts = self.names.read(self.draft.query().limit(), &name)?;
        let mut hasher = SipHasher13::new();
        hasher.write(&name);
        Some(ScannedName { hash: hasher.finish(), name, parts })
    }

    /// The time of a server.
    async fn now(&self, slot: u16) -> Result<Timestamp, BackendError> {
        let read = self.link().read_values(slot, &[], self.time.deadline).await?;
        Ok(self.seen(read.now))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have a clock")]
    const fn seen(&self, now: Timestamp) -> Timestamp {
        now
    }

    /// The time that the script sees.
    #[cfg(test)]
    fn seen(&self, _: Timestamp) -> Timestamp {
        self.batcher.carrier().clock.now()
    }
}
