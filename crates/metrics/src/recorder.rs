//! Registers metrics with the recorder that the program has chosen.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{
    Counter, Gauge, Histogram, Key, Label, Level, Metadata, SharedString, with_recorder,
};

use super::metric::{COUNTERS, GAUGES, HISTOGRAMS, Metric};

/// A recorder of the program.
pub(crate) type OwnRecorder = Box<dyn metrics::Recorder + Send + Sync>;

/// The recorder of the program, or one for these metrics alone, and the labels of all metrics.
#[derive(Default)]
pub(crate) struct Registrar {
    /// `None` for that of the program.
    own: Option<OwnRecorder>,
    labels: Vec<Label>,
    /// Whether the metrics were described, or are now.
    described: AtomicBool,
}

impl Registrar {
    pub(crate) fn set_recorder(&mut self, recorder: OwnRecorder) {
        self.own = Some(recorder);
    }

    pub(crate) fn add_label(&mut self, key: SharedString, value: SharedString) {
        self.labels.push(Label::new(key, value));
    }

    pub(crate) fn counter(&self, metric: Metric, labels: &[(&'static str, &str)]) -> Counter {
        let key = self.key(metric, labels);
        self.with(|recorder| recorder.register_counter(&key, &METADATA))
    }

    pub(crate) fn gauge(&self, metric: Metric, labels: &[(&'static str, &str)]) -> Gauge {
        let key = self.key(metric, labels);
        self.with(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    pub(crate) fn histogram(&self, metric: Metric, labels: &[(&'static str, &str)]) -> Histogram {
        let key = self.key(metric, labels);
        self.with(|recorder| recorder.register_histogram(&key, &METADATA))
    }

    fn key(&self, metric: Metric, labels: &[(&'static str, &str)]) -> Key {
        let own = labels.iter().map(|&(key, value)| Label::new(key, value.to_owned()));
        Key::from_parts(metric.name, own.chain(self.labels.iter().cloned()).collect::<Vec<_>>())
    }

    fn with<T>(&self, register: impl FnOnce(&dyn metrics::Recorder) -> T) -> T {
        let describe_and_register = |recorder: &dyn metrics::Recorder| {
            if !self.described.swap(true, Ordering::Relaxed) {
                describe(recorder);
            }
            register(recorder)
        };
        match &self.own {
            Some(recorder) => describe_and_register(&**recorder),
            None => with_recorder(describe_and_register),
        }
    }
}

/// The handle in a cell, which is registered if there is none.
///
/// The recorder is code of others, which may log or decide meanwhile, and so come here again. So the
/// cell is not locked while it registers, and two threads may register the same metric.
pub(crate) fn registered<T>(cell: &OnceLock<T>, register: impl FnOnce() -> T) -> &T {
    match cell.get() {
        Some(known) => known,
        None => {
            let new = register();
            cell.get_or_init(|| new)
        }
    }
}

fn describe(recorder: &dyn metrics::Recorder) {
    for Metric { name, unit, description } in COUNTERS {
        recorder.describe_counter(name.into(), Some(unit), description.into());
    }
    for Metric { name, unit, description } in GAUGES {
        recorder.describe_gauge(name.into(), Some(unit), description.into());
    }
    for Metric { name, unit, description } in HISTOGRAMS {
        recorder.describe_histogram(name.into(), Some(unit), description.into());
    }
}

const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, None);
