//! Times of rounds, and what is in the middle of them.

use std::fmt;
use std::time::Duration;

/// One number for each round.
#[derive(Clone, Default)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    pub fn add(&mut self, number: f64) {
        self.0.push(number);
        self.0.sort_unstable_by(f64::total_cmp);
    }

    /// Below which so many parts of a hundred are.
    fn at(&self, part: usize) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * part / 100).copied().unwrap_or(f64::NAN)
    }

    pub fn median(&self) -> f64 {
        self.at(50)
    }

    /// What a tenth of the rounds was quicker than: on a machine with other work to do, those that
    /// were left alone.
    pub fn quickest(&self) -> f64 {
        self.at(10)
    }

    /// Each divided by the one of the same round.
    pub fn of_pairs(pairs: &[(f64, f64)]) -> Self {
        let mut rounds = Self::default();
        pairs.iter().for_each(|(above, below)| rounds.add(above / below));
        rounds
    }
}

/// The median, and between which two the middle half of the rounds is.
impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(0);
        let [low, middle, high] = [25, 50, 75].map(|part| self.at(part));
        let spread = format!("({low:.digits$} to {high:.digits$})");
        write!(f, "{middle:>7.digits$} {spread:<16}")
    }
}

/// The nanoseconds that each of so many took.
pub fn each(took: Duration, times: u32) -> f64 {
    took.as_nanos() as f64 / f64::from(times)
}
