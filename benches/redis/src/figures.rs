//! The figures of a run, round by round.

use std::fmt::Write as _;

/// What figures are of.
pub mod unit {
    pub const RATE: &str = "decisions per second";
    pub const SERVER_CPU: &str = "server us per decision";
    pub const COMMAND_TIME: &str = "command us per decision";
    pub const CLIENT_CPU: &str = "client us per decision";
    pub const PER_CALL: &str = "decisions per call";
    pub const P50: &str = "p50 us";
    pub const P99: &str = "p99 us";
    pub const BYTES: &str = "bytes per key";
    pub const BYTES_OF_ONE: &str = "bytes of one key";
}

/// What a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub work: &'static str,
    pub tasks: usize,
    pub keys: usize,
    pub peer: &'static str,
}

#[derive(Debug)]
struct Series {
    place: Place,
    unit: &'static str,
    rounds: Vec<f64>,
}

#[derive(Debug, Default)]
pub struct Figures {
    all: Vec<Series>,
    unexpected: Vec<(Place, u64)>,
}

impl Figures {
    /// Notes the next round's figure.
    pub fn add(&mut self, place: Place, unit: &'static str, value: f64) {
        match self.all.iter_mut().find(|each| each.place == place && each.unit == unit) {
            Some(series) => series.rounds.push(value),
            None => self.all.push(Series { place, unit, rounds: vec![value] }),
        }
    }

    /// Notes decisions that were not as they had to be; there should be none.
    pub fn unexpected(&mut self, place: Place, decisions: u64) {
        if decisions > 0 {
            self.unexpected.push((place, decisions));
        }
    }

    pub fn all_unexpected(&self) -> &[(Place, u64)] {
        &self.unexpected
    }

    /// All peers that did this work, once for each load.
    pub fn places(&self, work: &str) -> Vec<Place> {
        let mut places: Vec<_> = self.all.iter().map(|each| each.place).collect();
        places.retain(|place| place.work == work);
        places.dedup();
        places
    }

    pub fn spread(&self, place: Place, unit: &str) -> Option<Spread> {
        Some(Spread::of(self.rounds(place, unit)?))
    }

    /// The ratios of the rounds, each of which both did one after the other.
    pub fn ratio(&self, ours: Place, theirs: Place, unit: &str) -> Option<Spread> {
        let pairs = self.rounds(ours, unit)?.iter().zip(self.rounds(theirs, unit)?);
        Some(Spread::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>()))
    }

    fn rounds(&self, place: Place, unit: &str) -> Option<&[f64]> {
        let series = self.all.iter().find(|each| each.place == place && each.unit == unit)?;
        Some(&series.rounds)
    }

    /// A line for each round.
    pub fn csv(&self) -> String {
        let mut lines = "work,tasks,keys,peer,unit,round,value\n".to_owned();
        for Series { place: Place { work, tasks, keys, peer }, unit, rounds } in &self.all {
            // The only comma that names have.
            let peer = peer.replace(',', "");
            for (nth, value) in rounds.iter().enumerate() {
                let _ = writeln!(lines, "{work},{tasks},{keys},{peer},{unit},{nth},{value:.3}");
            }
        }
        lines
    }
}

/// The middle of several rounds, and how far they lie apart.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub least: f64,
    pub median: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        // Of an even number, the mean of the two in the middle.
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self { least: at(0), median, most: at(last) }
    }
}
