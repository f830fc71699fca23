//! A store with one mistake at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use tollgate::algebra::{State, Terms, Verdict};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, BucketRecord, BucketStore,
    Change, Charge, DebtorQuery, DebtorReport, Key, OwnedBucketId, OwnedCharge, Reading,
    adjust_all, apply_all, reset_all,
};
use tollgate::clock::{Clock, ManualClock};
use tollgate::{SECOND, Timestamp};

mod lists;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    TakesNothing,
    AdmitsOneMore,
    StoresRefusals,
    StoresLooks,
    ChargesListsOneByOne,
    ChargesRepeatsOnce,
    MergesShards,
    PaysFromTheSecondShard,
    GivesShardsTheirOwnWindows,
    IgnoresTheLongestWait,
    RoundsWaitsDown,
    IgnoresResets,
    UndoesWhatWasTouched,
    RefundsBlocksAway,
    JoinsKeysAsText,
    IgnoresCase,
    CutsKeys,
    JoinsNamesByColons,
    CountsInSinglePrecision,
    DropsWhatBeginsBelowFull,
    KeepsWhatIsLeftOfOldNumbers,
    TakesSlowerNumbersAtOnce,
    AppliesAgainWhenDropped,
    AppliesPartsBetweenPolls,
    DecidesBeforeItIsPolled,
    LosesUpdates,
    AnswersWithAnOldTime,
    StandsStill,
    ForgetsTimesAhead,
    LeavesOutReadings,
    ListsLimitsThatBeginAlike,
    ListsWhatOwesNothing,
    LosesOneAtEachPage,
    ListsStatesAsStored,
    CountsBlocksAsDebt,
    Fails,
}

#[derive(Debug)]
pub(crate) struct Mutant {
    mistake: Mistake,
    records: Arc<Mutex<Records>>,
    overlaps: AtomicUsize,
    two: Barrier,
}

#[derive(Clone, Debug)]
struct Records {
    mistake: Mistake,
    clock: ManualClock,
    last: Timestamp,
    map: BTreeMap<Vec<u8>, StoredRecord>,
}

/// A record with the name of its bucket, which the mistakes with names do not keep.
type StoredRecord = (OwnedBucketId, BucketRecord);

impl Records {
    fn name(&self, id: BucketId<'_>) -> Vec<u8> {
        let (limit, key, shard) = (id.limit(), id.key(), id.shard_index());
        match self.mistake {
            Mistake::MergesShards => format!("{limit:?} {:?}", key.as_bytes()).into(),
            Mistake::JoinsKeysAsText => format!("{limit:?} {key} {shard}").into(),
            Mistake::IgnoresCase => {
                let text = String::from_utf8_lossy(key.as_bytes()).to_lowercase();
                format!("{limit:?} {text} {shard}").into()
            }
            Mistake::CutsKeys => {
                let bytes = key.as_bytes();
                format!("{limit:?} {:?} {shard}", &bytes[..bytes.len().min(255)]).into()
            }
            Mistake::JoinsNamesByColons => format!("{limit}:{key}:{shard}").into(),
            _ => {
                [limit.as_bytes(), &[0xff], key.as_bytes(), &[0xff], &shard.to_be_bytes()].concat()
            }
        }
    }
}

impl BucketStore for Records {
    fn now(&mut self) -> Timestamp {
        let now = self.clock.now();
        match self.mistake {
            Mistake::AnswersWithAnOldTime => std::mem::replace(&mut self.last, now),
            _ => now,
        }
    }

    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        let record = self.map.get(&self.name(id))?.1;
        let is_dropped = self.mistake == Mistake::DropsWhatBeginsBelowFull
            && record.full_at() <= self.clock.now();
        (!is_dropped).then_some(record)
    }

    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        let mut numbers = record.to_numbers();
        match self.mistake {
            #[allow(clippy::cast_precision_loss, reason = "the mistake")]
            Mistake::CountsInSinglePrecision => numbers[0] = numbers[0] as f32 as i64,
            Mistake::ForgetsTimesAhead => {
                numbers[1] = numbers[1].min(self.clock.now().as_micros());
            }
            _ => {}
        }
        let record = BucketRecord::from_numbers(numbers).unwrap_or(record);
        self.map.insert(self.name(id), (id.into_owned(), record));
    }

    fn forget(&mut self, id: BucketId<'_>) {
        self.map.remove(&self.name(id));
    }
}

impl Mutant {
    pub(crate) fn new(mistake: Mistake, clock: ManualClock) -> Self {
        let records = Records { mistake, last: clock.now(), clock, map: BTreeMap::new() };
        let records = Arc::new(Mutex::new(records));
        Self { mistake, records, overlaps: AtomicUsize::new(0), two: Barrier::new(2) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Records) -> T) -> T {
        with(&self.records, work)
    }

    /// The charge that is made in place of this one.
    fn changed<'a>(&self, charge: &Charge<'a>) -> Charge<'a> {
        let charge = *charge;
        let (id, bucket, units) = (charge.id(), charge.bucket(), charge.units());
        let second = charge.get_second_shard();
        let with = |new: Charge<'a>| {
            let new = new.terms(charge.get_terms());
            second.map_or(new, |shard| new.second_shard(shard))
        };
        match self.mistake {
            Mistake::TakesNothing => with(Charge::look(id, bucket, units)),
            Mistake::StoresLooks => with(Charge::take(id, bucket, units)),
            Mistake::AdmitsOneMore if charge.takes() => {
                with(Charge::take(id, bucket, (units - 1).max(0)))
            }
            Mistake::IgnoresTheLongestWait if charge.get_terms() != Terms::AT_ONCE => {
                charge.terms(Terms::reserving(charge.get_terms().floor()))
            }
            Mistake::PaysFromTheSecondShard if charge.takes() => second.map_or(charge, |shard| {
                let own = id.shard_index();
                Charge::take(id.shard(shard), bucket, units)
                    .terms(charge.get_terms())
                    .second_shard(own)
            }),
            _ => charge,
        }
    }
}

fn with<T>(records: &Mutex<Records>, work: impl FnOnce(&mut Records) -> T) -> T {
    work(&mut records.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Applies again when it is dropped before it has ended.
struct Again(Option<(Arc<Mutex<Records>>, Vec<OwnedCharge>)>);

impl Again {
    fn end(&mut self) {
        self.0 = None;
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        if let Some((records, charges)) = self.0.take() {
            let charges: Vec<_> = charges.iter().map(OwnedCharge::as_charge).collect();
            with(&records, |records| apply_all(records, &charges));
        }
    }
}

impl Backend for Mutant {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let changed: Vec<_> = charges.iter().map(|charge| self.changed(charge)).collect();
        let charges = changed.as_slice();
        let owned = || charges.iter().map(|charge| charge.into_owned()).collect::<Vec<_>>();
        let records = Arc::clone(&self.records);
        match self.mistake {
            Mistake::StoresRefusals => self.with(|records| {
                let applied = apply_all(records, charges);
                if applied.verdict() == Verdict::Refused {
                    let deep = charges.iter().map(|one| one.terms(Terms::reserving(-(1 << 50))));
                    apply_all(records, &deep.collect::<Vec<_>>());
                }
                Answer::Ready(Ok(applied))
            }),
            Mistake::ChargesListsOneByOne => self.with(|records| {
                let answers = charges.iter().map(|one| apply_all(records, &[*one]));
                let answers: Vec<_> = answers.collect();
                let readings = answers.iter().flat_map(|one| one.readings().to_vec()).collect();
                Answer::Ready(Ok(Applied::many(records.clock.now(), readings)))
            }),
            Mistake::ChargesRepeatsOnce => self.with(|records| {
                let mut once: Vec<Charge<'_>> = Vec::new();
                for one in charges {
                    let is_new = once.iter().all(|other| other.id() != one.id());
                    once.push(if is_new {
                        *one
                    } else {
                        let look = Charge::look(one.id(), one.bucket(), 0);
                        one.get_second_shard().map_or(look, |shard| look.second_shard(shard))
                    });
                }
                Answer::Ready(Ok(apply_all(records, &once)))
            }),
            Mistake::GivesShardsTheirOwnWindows => self.with(|records| {
                let keys: Vec<_> = charges
                    .iter()
                    .map(|one| one.id().key().clone().and(one.id().shard_index()))
                    .collect();
                // The bucket is stored under its own name, and its phase is that of another one.
                let mut named: Vec<Charge<'_>> = Vec::new();
                for (one, key) in charges.iter().zip(&keys) {
                    let id = BucketId::new(one.id().limit(), key).shard(one.id().shard_index());
                    let new = match one.takes() {
                        true => Charge::take(id, one.bucket(), one.units()),
                        false => Charge::look(id, one.bucket(), one.units()),
                    };
                    let new = new.terms(one.get_terms());
                    named.push(one.get_second_shard().map_or(new, |shard| new.second_shard(shard)));
                }
                Answer::Ready(Ok(apply_all(records, &named)))
            }),
            Mistake::RoundsWaitsDown => self.with(|records| {
                let applied = apply_all(records, charges);
                let readings = applied.readings().iter().map(|one| {
                    let wait = SECOND * u32::try_from(one.wait().as_secs()).unwrap_or(u32::MAX);
                    Reading::new(one.verdict(), one.state(), wait).taking(one.units())
                });
                Answer::Ready(Ok(Applied::many(applied.now(), readings.collect())))
            }),
            Mistake::KeepsWhatIsLeftOfOldNumbers => self.with(|records| {
                for one in charges {
                    if let Some(record) = records.read(one.id()) {
                        let State { value, ts } = record.state();
                        let value = value.min(one.bucket().capacity());
                        let kept = BucketRecord::new(one.bucket(), State { value, ts });
                        records.write(one.id(), kept);
                    }
                }
                Answer::Ready(Ok(apply_all(records, charges)))
            }),
            Mistake::TakesSlowerNumbersAtOnce => self.with(|records| {
                let applied = apply_all(records, charges);
                for one in charges.iter().filter(|one| one.takes()) {
                    if let Some(record) = records.read(one.id())
                        && applied.kept(0).is_some()
                    {
                        // What the reading says, counted in the numbers of the charge.
                        let state = applied.readings()[0].state();
                        if record.full_at() > applied.now() {
                            records.write(one.id(), BucketRecord::new(one.bucket(), state));
                        }
                    }
                }
                Answer::Ready(Ok(applied))
            }),
            Mistake::AppliesAgainWhenDropped => {
                let mut again = Again(Some((Arc::clone(&records), owned())));
                let applied = self.with(|records| apply_all(records, charges));
                Answer::pending(async move {
                    tokio::task::yield_now().await;
                    again.end();
                    Ok(applied)
                })
            }
            Mistake::AppliesPartsBetweenPolls => {
                let owned = owned();
                Answer::pending(async move {
                    let all: Vec<_> = owned.iter().map(OwnedCharge::as_charge).collect();
                    // What the whole list would answer.
                    let applied = with(&records, |records| apply_all(&mut records.clone(), &all));
                    if applied.verdict() == Verdict::Refused {
                        return Ok(with(&records, |records| apply_all(records, &all)));
                    }
                    for one in &owned {
                        with(&records, |records| apply_all(records, &[one.as_charge()]));
                        tokio::task::yield_now().await;
                    }
                    Ok(applied)
                })
            }
            Mistake::DecidesBeforeItIsPolled => {
                let mut copy = self.with(|records| records.clone());
                let applied = apply_all(&mut copy, charges);
                Answer::pending(async move {
                    with(&records, |records| *records = copy);
                    Ok(applied)
                })
            }
            Mistake::LosesUpdates => {
                let mut copy = self.with(|records| records.clone());
                // The first two calls of the check on callers have read before either writes.
                let is_called_at_once = charges
                    .iter()
                    .any(|one| one.takes() && one.id().limit() == "conformance-callers");
                let overlaps =
                    is_called_at_once && self.overlaps.fetch_add(1, Ordering::SeqCst) < 2;
                if overlaps {
                    self.two.wait();
                    let applied = apply_all(&mut copy, charges);
                    self.with(|records| *records = copy);
                    self.two.wait();
                    return Answer::Ready(Ok(applied));
                }
                if is_called_at_once {
                    while self.overlaps.load(Ordering::SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                }
                Answer::Ready(Ok(self.with(|records| apply_all(records, charges))))
            }
            Mistake::PaysFromTheSecondShard => self.with(|records| {
                let applied = apply_all(records, charges);
                // In the order that was asked for.
                let mut readings = applied.readings().to_vec();
                let mut place = 0;
                for one in charges {
                    if one.get_second_shard().is_some() {
                        if one.takes() {
                            readings.swap(place, place + 1);
                        }
                        place += 1;
                    }
                    place += 1;
                }
                Answer::Ready(Ok(Applied::many(applied.now(), readings)))
            }),
            Mistake::LeavesOutReadings => self.with(|records| {
                let applied = apply_all(records, charges);
                let readings = applied.readings().iter().take(1).copied().collect();
                Answer::Ready(Ok(Applied::many(applied.now(), readings)))
            }),
            Mistake::Fails => Answer::Ready(Err(BackendError::unavailable("mutant", "no disk"))),
            _ => Answer::Ready(Ok(self.with(|records| apply_all(records, charges)))),
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let changed: Vec<_> = adjustments
            .iter()
            .map(|one| match (self.mistake, one.change()) {
                (Mistake::UndoesWhatWasTouched, Change::Undo { units, .. }) => {
                    Adjustment::refund(one.id(), one.bucket(), units)
                }
                (Mistake::RefundsBlocksAway, Change::Refund { units }) if units > 0 => {
                    self.with(|records| {
                        if let Some(record) = records.read(one.id()) {
                            let State { value, ts } = record.state();
                            let ts = ts.min(records.clock.now());
                            let early = BucketRecord::new(one.bucket(), State { value, ts });
                            records.write(one.id(), early);
                        }
                    });
                    *one
                }
                _ => *one,
            })
            .collect();
        Answer::Ready(Ok(self.with(|records| adjust_all(records, &changed))))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if self.mistake != Mistake::IgnoresResets {
            self.with(|records| match self.mistake {
                Mistake::GivesShardsTheirOwnWindows => {
                    let keys: Vec<Key> =
                        ids.iter().map(|id| id.key().clone().and(id.shard_index())).collect();
                    let ids = ids.iter().zip(&keys);
                    let ids =
                        ids.map(|(id, key)| BucketId::new(id.limit(), key).shard(id.shard_index()));
                    reset_all(records, &ids.collect::<Vec<_>>());
                }
                _ => reset_all(records, ids),
            });
        }
        Answer::Ready(Ok(()))
    }

    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        Answer::Ready(Ok(self.with(|records| match self.mistake {
            Mistake::CountsBlocksAsDebt => records.count(query),
            _ => records.list(query),
        })))
    }
}
