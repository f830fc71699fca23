//! Calls that are made to the store and to the model, whose answers have to be the same.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write};
use std::time::Duration;

use super::model::RecordMap;
use super::subject::Subject;
use tollgate::algebra::{Bucket, Units};
use tollgate::backend::{
    Adjustment, Applied, BackendError, BucketId, BucketRecord, Charge, DebtorQuery, DebtorReport,
    OwnedBucketId, Reading, adjust_all, apply_all, reset_all,
};
use tollgate::clock::{Clock, Timestamp};

/// A series of calls. Each is made to the store, and then to the model at the time that the store
/// has reported. The whole answers have to be equal.
pub(super) struct Trial {
    subject: Subject,
    model: RecordMap,
    /// The buckets that were reset before their first use here. A store that outlives the test may
    /// have them from an earlier run.
    fresh: BTreeSet<OwnedBucketId>,
    seed: Option<u64>,
    calls: usize,
}

impl Trial {
    pub(super) fn new(subject: &Subject) -> Self {
        let (subject, model) = (subject.clone(), RecordMap::new());
        Self { subject, model, fresh: BTreeSet::new(), seed: None, calls: 0 }
    }

    /// A series of random calls, whose failures name the seed.
    pub(super) fn random(subject: &Subject, seed: u64) -> Self {
        Self { seed: Some(seed), ..Self::new(subject) }
    }

    /// Makes charges, and compares the answer.
    pub(super) async fn apply(&mut self, charges: &[Charge<'_>]) -> Applied {
        let ids: Vec<_> = charges.iter().flat_map(Charge::ids).collect();
        self.freshen(&ids).await;
        let held = self.held(&ids);
        let answer = self.subject.store.apply(charges).wait().await;
        self.judge("apply", &charges, &held, answer, |model| apply_all(model, charges))
    }

    /// Makes adjustments, and compares the answer.
    pub(super) async fn adjust(&mut self, adjustments: &[Adjustment<'_>]) -> Applied {
        let ids: Vec<_> = adjustments.iter().map(Adjustment::id).collect();
        self.freshen(&ids).await;
        let held = self.held(&ids);
        let answer = self.subject.store.adjust(adjustments).wait().await;
        self.judge("adjust", &adjustments, &held, answer, |model| adjust_all(model, adjustments))
    }

    /// Resets buckets.
    pub(super) async fn reset(&mut self, ids: &[BucketId<'_>]) {
        self.calls += 1;
        let answer = self.subject.store.reset(ids).wait().await;
        if let Err(error) = answer {
            self.fail(
                "reset",
                "the call has failed",
                &[
                    ("asked", show(&ids)),
                    ("contract", "the buckets are forgotten".to_owned()),
                    ("answered", show(&error)),
                ],
            );
        }
        reset_all(&mut self.model, ids);
        self.fresh.extend(ids.iter().map(|id| id.into_owned()));
    }

    /// Takes units from one bucket.
    pub(super) async fn take(
        &mut self,
        id: BucketId<'_>,
        bucket: &Bucket,
        units: Units,
    ) -> Applied {
        self.apply(&[Charge::take(id, bucket, units)]).await
    }

    /// Looks at one bucket.
    pub(super) async fn look(&mut self, id: BucketId<'_>, bucket: &Bucket) -> Applied {
        self.apply(&[Charge::look(id, bucket, 0)]).await
    }

    /// Lets time pass, if the suite can set the clock of the store. Otherwise it passes by itself.
    pub(super) fn pass(&self, by: Duration) {
        if let Some(clock) = &self.subject.clock {
            clock.advance(by);
        }
    }

    /// Sets the clock of the store, if the suite can. If it goes back, the buckets that are full
    /// by now are reset first: the store may have dropped them, and they may not have been full
    /// at the earlier time.
    pub(super) async fn set_time(&mut self, time: Timestamp) {
        let Some(clock) = self.subject.clock.clone() else { return };
        if time < clock.now() {
            let full = self.model.remove_droppable(clock.now());
            if !full.is_empty() {
                self.reset(&full.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>()).await;
            }
        }
        clock.set(time);
    }

    /// Asks for a list of debtors.
    pub(super) async fn debtors(&self, query: &DebtorQuery) -> DebtorReport {
        match self.subject.store.debtors(query).wait().await {
            Ok(report) => report,
            Err(error) => self.fail_list(query, "an answer", &error),
        }
    }

    /// Checks that a list was made at the time of the clock.
    pub(super) fn check_time(&self, query: &DebtorQuery, at: Timestamp) {
        if let Some(time) = self.subject.clock.as_ref().map(Clock::now).filter(|time| *time != at) {
            self.fail_list(query, &show(&time), &at);
        }
    }

    /// Fails, as a list is not what is due.
    pub(super) fn fail_list(&self, query: &DebtorQuery, due: &str, found: &dyn Debug) -> ! {
        self.fail(
            "debtors",
            "the list is wrong",
            &[("asked", show(query)), ("contract", due.to_owned()), ("answered", show(&found))],
        )
    }

    /// What the model holds of a bucket.
    pub(super) fn record(&self, id: BucketId<'_>) -> Option<BucketRecord> {
        self.model.get(id)
    }

    /// The time of the clock that is set, or else of the last answer.
    pub(super) fn time(&self) -> Timestamp {
        self.subject.clock.as_ref().map_or(self.model.now, Clock::now)
    }

    async fn freshen(&mut self, ids: &[BucketId<'_>]) {
        let new: Vec<_> =
            ids.iter().filter(|id| !self.fresh.contains(&id.into_owned())).copied().collect();
        if !new.is_empty() {
            self.reset(&new).await;
        }
    }

    /// What the model holds of these buckets.
    fn held(&self, ids: &[BucketId<'_>]) -> Vec<Option<BucketRecord>> {
        ids.iter().map(|&id| self.model.get(id)).collect()
    }

    fn judge(
        &mut self,
        call: &str,
        asked: &impl Debug,
        held: &[Option<BucketRecord>],
        answer: Result<Applied, BackendError>,
        model: impl FnOnce(&mut RecordMap) -> Applied,
    ) -> Applied {
        self.calls += 1;
        let found = match answer {
            Ok(found) => found,
            Err(error) => self.fail(
                call,
                "the call has failed",
                &[
                    ("asked", show(asked)),
                    ("contract", "an answer".to_owned()),
                    ("answered", show(&error)),
                ],
            ),
        };
        let clock = self.subject.clock.as_ref().map(Clock::now);
        if let Some(time) = clock.filter(|time| *time != found.now()) {
            self.fail(
                call,
                "the call was not decided at the time of the clock",
                &[
                    ("asked", show(asked)),
                    ("contract", show(&time)),
                    ("answered", show(&found.now())),
                ],
            );
        }
        self.model.now = found.now();
        let wanted = model(&mut self.model);
        if let Some(difference) = difference(&wanted, &found) {
            self.fail(
                call,
                &difference,
                &[
                    ("asked", show(asked)),
                    ("held", show(&held)),
                    ("contract", show(&wanted)),
                    ("answered", show(&found)),
                ],
            );
        }
        found
    }

    fn fail(&self, call: &str, what: &str, details: &[(&str, String)]) -> ! {
        let mut message = format!("`Backend::{call}` breaks the contract: {what}\n");
        for (name, text) in details {
            // Writing to a string does not fail.
            let _ = writeln!(message, "{name:>10}: {text}");
        }
        let seed = self.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
        panic!("{message}     where: call {} of this trial{seed}", self.calls)
    }
}

/// The first way in which an answer is not what the contract wants.
fn difference(wanted: &Applied, found: &Applied) -> Option<String> {
    let (want, have) = (wanted.readings(), found.readings());
    if want.len() != have.len() {
        return Some(format!("{} readings where {} are due", have.len(), want.len()));
    }
    let parts = |one: &Reading| (one.verdict(), one.state(), one.units(), one.wait());
    let mut pairs = want.iter().zip(have).enumerate();
    let (nth, (want, have)) = pairs.find(|(_, (want, have))| parts(want) != parts(have))?;
    let shown = |one: &Reading| {
        let (verdict, state, units, wait) = parts(one);
        [
            ("verdict", show(&verdict)),
            ("state", show(&state)),
            ("units", show(&units)),
            ("wait", show(&wait)),
        ]
    };
    let mut parts = shown(want).into_iter().zip(shown(have));
    let ((name, want), (_, have)) = parts.find(|(want, have)| want != have)?;
    Some(format!("reading {nth} has the {name} {have}, where {want} is due"))
}

/// A value as text, cut where it is long: keys may have 64 KiB.
fn show(value: &impl Debug) -> String {
    const LONGEST: usize = 3_000;
    let text = format!("{value:?}");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} … ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
