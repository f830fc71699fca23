//! Interleaved rounds: each peer once, then each peer again.

use std::fmt::Write as _;
use std::time::Duration;

/// How thoroughly a run measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Seconds in all, to see that everything still runs: the figures say nothing.
    Smoke,
    /// A minute in all, for development: fewer rounds of less work.
    Quick,
    #[default]
    Full,
}

/// What one run measures: the parts of it that are wanted, and how thoroughly.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub effort: Effort,
    /// Only works whose name contains one of these; all if empty.
    pub only: Vec<String>,
}

impl Plan {
    /// Reads `smoke`, `quick` and `only NAME`; nothing if there is another word.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut plan = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word {
                "smoke" => plan.effort = Effort::Smoke,
                "quick" => plan.effort = Effort::Quick,
                "only" => plan.only.push(words.next()?.to_owned()),
                _ => return None,
            }
        }
        Some(plan)
    }

    /// What [`from_words`](Self::from_words) reads.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let effort = match self.effort {
            Effort::Smoke => Some("smoke"),
            Effort::Quick => Some("quick"),
            Effort::Full => None,
        };
        effort.into_iter().chain(self.only.iter().flat_map(|name| ["only", name]))
    }

    pub fn wants(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| work.contains(part.as_str()))
    }

    pub fn is_partial(&self) -> bool {
        self.effort != Effort::Full || !self.only.is_empty()
    }

    /// Prints figures as they come, if they say something.
    pub fn tell(&self, figures: &[Figures]) {
        if self.effort != Effort::Smoke {
            figures.iter().for_each(|each| eprintln!("  {each}"));
        }
    }

    /// How many rounds, where `full` are enough for a steady median.
    pub fn rounds(&self, full: usize) -> usize {
        match self.effort {
            Effort::Smoke => 1,
            Effort::Quick => 3,
            Effort::Full => full,
        }
    }

    /// How much work a round is.
    pub fn size(&self, full: usize) -> usize {
        match self.effort {
            Effort::Smoke => full / 1_000,
            Effort::Quick => full / 10,
            Effort::Full => full,
        }
    }

    /// How many keys are known, which is what the work is about unless nothing is measured.
    pub fn keys(&self, full: usize) -> usize {
        if self.effort == Effort::Smoke { full / 1_000 } else { full }
    }

    /// How long to wait or to watch.
    pub fn time(&self, full: Duration) -> Duration {
        if self.effort == Effort::Smoke { full / 100 } else { full }
    }
}

/// One contender's way to do one round; returns a figure for each name of the work.
type Round<'a> = Box<dyn FnMut() -> Vec<f64> + 'a>;

/// A work, and the peers that do it.
pub struct Contest<'a> {
    works: Vec<String>,
    at: u64,
    unit: &'static str,
    contenders: Vec<(&'static str, Round<'a>)>,
}

impl<'a> Contest<'a> {
    pub fn new(work: impl Into<String>, unit: &'static str) -> Self {
        Self { works: vec![work.into()], at: 0, unit, contenders: Vec::new() }
    }

    /// Another figure of the same rounds, in the same unit.
    pub fn and(mut self, work: impl Into<String>) -> Self {
        self.works.push(work.into());
        self
    }

    /// Where on a scale this work lies, as the number of keys.
    pub fn at(mut self, at: u64) -> Self {
        self.at = at;
        self
    }

    pub fn enter(&mut self, name: &'static str, mut round: impl FnMut() -> f64 + 'a) {
        self.enter_all(name, move || vec![round()]);
    }

    /// For a work of several figures.
    pub fn enter_all(&mut self, name: &'static str, round: impl FnMut() -> Vec<f64> + 'a) {
        self.contenders.push((name, Box::new(round)));
    }

    /// Runs this many rounds of each peer by turns, after one that does not count.
    pub fn run(mut self, rounds: usize) -> Vec<Figures> {
        for (_, round) in &mut self.contenders {
            round();
        }
        let mut values = vec![Vec::new(); self.contenders.len()];
        for nth in 0..rounds {
            // The order changes from round to round, so each peer is first sometimes.
            for turn in 0..self.contenders.len() {
                let peer = (turn + nth) % self.contenders.len();
                values[peer].push((self.contenders[peer].1)());
            }
        }
        let mut figures = Vec::new();
        for (nth, work) in self.works.iter().enumerate() {
            for ((name, _), rounds) in self.contenders.iter().zip(&values) {
                figures.push(Figures {
                    work: work.clone(),
                    at: self.at,
                    peer: (*name).to_owned(),
                    unit: self.unit.to_owned(),
                    rounds: rounds.iter().map(|round| round[nth]).collect(),
                });
            }
        }
        figures
    }
}

/// The figures of one contender's rounds.
#[derive(Clone, Debug)]
pub struct Figures {
    pub work: String,
    pub at: u64,
    pub peer: String,
    pub unit: String,
    pub rounds: Vec<f64>,
}

impl Figures {
    pub const CSV_HEAD: &'static str = "work,at,peer,unit,round,value\n";

    pub fn spread(&self) -> Spread {
        Spread::of(&self.rounds)
    }

    /// A line for each round.
    pub fn csv(&self) -> String {
        let Self { work, at, peer, unit, rounds } = self;
        let mut lines = String::new();
        for (nth, value) in rounds.iter().enumerate() {
            let _ = writeln!(lines, "{work},{at},{peer},{unit},{nth},{value:.3}");
        }
        lines
    }

    /// Reads what [`csv`](Self::csv) wrote, one round a line.
    pub fn from_csv(line: &str) -> Option<Self> {
        let [work, at, peer, unit, _, value] =
            line.split(',').collect::<Vec<_>>().try_into().ok()?;
        Some(Self {
            work: work.to_owned(),
            at: at.parse().ok()?,
            peer: peer.to_owned(),
            unit: unit.to_owned(),
            rounds: vec![value.parse().ok()?],
        })
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { work, at, peer, unit, .. } = self;
        let Spread { least, median, most } = self.spread();
        let at = if *at == 0 { String::new() } else { format!("/{at}") };
        write!(
            f,
            "{:<28} {peer:<28} {median:>12.1} {unit} ({least:.1} to {most:.1})",
            work.clone() + &at
        )
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
