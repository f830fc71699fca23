//! The table of ratios, with the bars that are to be reached.

use std::fmt;

use crate::peers::name as who;
use crate::rounds::{Figures, Spread};
use crate::works::name as work;

/// A ratio that is to be reached.
struct Bar {
    what: &'static str,
    work: &'static str,
    ours: &'static str,
    theirs: &'static str,
    /// What is taken off both first: the request without a layer.
    beyond: Option<&'static str>,
    reach: Reach,
}

#[derive(Clone, Copy)]
enum Reach {
    /// Ours divided by theirs is at most this.
    AtMost(f64),
    /// Ours divided by theirs is at least this.
    AtLeast(f64),
    /// Ours is this, whatever theirs is.
    Exactly(f64),
}

const fn bar(what: &'static str, work: &'static str, theirs: &'static str, at_most: f64) -> Bar {
    Bar { what, work, ours: who::OURS, theirs, beyond: None, reach: Reach::AtMost(at_most) }
}

const fn layer(what: &'static str, work: &'static str, theirs: &'static str, at_most: f64) -> Bar {
    let bare = Some(who::BARE);
    Bar { what, work, ours: who::OURS, theirs, beyond: bare, reach: Reach::AtMost(at_most) }
}

const BARS: &[Bar] = &[
    bar("one hot address, admitted", work::HOT, who::GOVERNOR, 0.80),
    bar("one hot string, admitted", work::HOT_STRING, who::GOVERNOR, 0.80),
    bar("one hot address, refused", work::HOT_REFUSED, who::GOVERNOR, 0.80),
    bar("one hot string, refused", work::HOT_STRING_REFUSED, who::GOVERNOR, 0.80),
    bar("1,000,000 addresses at random", work::MILLION, who::GOVERNOR, 0.35),
    bar("1,000,000 strings of 24 bytes at random", work::MILLION_STRING, who::GOVERNOR, 0.35),
    bar("two threads, 1,000,000 addresses", work::THREADS, who::GOVERNOR, 0.40),
    bar("two threads, one hot address", work::THREADS_HOT, who::GOVERNOR, 0.80),
    bar("bytes a key, 1,000,000 strings", work::BYTES, who::GOVERNOR, 0.60),
    bar("longest pause while 1,000,000 keys are forgotten", work::PAUSE, who::GOVERNOR_SWEEP, 0.01),
    layer("the layer, no fields, one key", work::LAYER, who::TOWER_GOVERNOR, 0.90),
    layer("the layer, no fields, 100,000 keys", work::LAYER_MANY, who::TOWER_GOVERNOR, 0.50),
    layer("the layer, with fields", work::LAYER_FIELDS, who::TOWER_GOVERNOR_HEADERS, 0.60),
    bar("a refused request, whole", work::REFUSAL, who::TOWER_GOVERNOR, 0.10),
    bar("the same, theirs with an empty body", work::REFUSAL, who::THROTTLE_KIT, 1.50),
    Bar {
        what: "allocations the layer adds, no fields",
        work: work::ALLOCATIONS,
        ours: who::OURS_NO_FIELDS,
        theirs: who::TOWER_GOVERNOR,
        beyond: None,
        reach: Reach::Exactly(0.0),
    },
    Bar {
        what: "requests per second of a server",
        work: work::SERVER,
        ours: who::OURS,
        theirs: who::BARE,
        beyond: None,
        reach: Reach::AtLeast(0.97),
    },
];

/// One line of the table.
#[derive(Debug)]
pub struct Ratio {
    pub what: &'static str,
    pub theirs_name: &'static str,
    pub ours: f64,
    pub theirs: f64,
    pub unit: String,
    /// Ours by theirs, round by round; ours alone where it is not compared.
    pub ratio: Spread,
    /// What is to be reached, in words.
    pub bar: String,
    /// The number of it.
    pub limit: f64,
    pub reached: bool,
}

/// The bars whose works were done.
pub fn ratios(figures: &[Figures]) -> Vec<Ratio> {
    BARS.iter().filter_map(|bar| bar.ratio(figures)).collect()
}

impl Bar {
    fn ratio(&self, figures: &[Figures]) -> Option<Ratio> {
        let find =
            |who: &str| figures.iter().find(|each| each.work == self.work && each.who == who);
        let (ours, theirs) = (find(self.ours)?, find(self.theirs)?);
        let beyond = self.beyond.and_then(find);
        let beyond = |nth| beyond.map_or(0.0, |beyond| beyond.rounds[nth]);
        let added = |figures: &Figures| -> Vec<f64> {
            figures.rounds.iter().enumerate().map(|(nth, round)| round - beyond(nth)).collect()
        };
        let (mine, other) = (added(ours), added(theirs));
        let by_rounds: Vec<_> =
            mine.iter().zip(&other).map(|(ours, theirs)| ours / theirs).collect();
        let (ratio, bar, limit, reached) = match self.reach {
            Reach::AtMost(limit) => {
                let ratio = Spread::of(&by_rounds);
                (ratio, format!("{limit:.2}"), limit, ratio.median <= limit)
            }
            Reach::AtLeast(limit) => {
                let ratio = Spread::of(&by_rounds);
                (ratio, format!("at least {limit:.2}"), limit, ratio.median >= limit)
            }
            Reach::Exactly(limit) => {
                let ratio = Spread::of(&mine);
                (ratio, format!("{limit:.0} of ours"), limit, ratio.most <= limit)
            }
        };
        Some(Ratio {
            what: self.what,
            theirs_name: self.theirs,
            ours: Spread::of(&mine).median,
            theirs: Spread::of(&other).median,
            unit: ours.unit.clone(),
            ratio,
            bar,
            limit,
            reached,
        })
    }
}

/// The table, as the README shows it.
pub struct Table<'a>(pub &'a [Ratio]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| work | against | ours | theirs | ratio (spread) | bar | reached |")?;
        writeln!(f, "|---|---|--:|--:|---|--:|---|")?;
        for line in self.0 {
            let Ratio { what, theirs_name, unit, bar, ratio, .. } = line;
            let [ours, theirs] = [line.ours, line.theirs].map(figure);
            let [least, median, most] = [ratio.least, ratio.median, ratio.most].map(share);
            let reached = if line.reached { "yes" } else { "**no**" };
            writeln!(
                f,
                "| {what} | {theirs_name} | {ours} {unit} | {theirs} | {median} ({least} to {most}) \
                 | {bar} | {reached} |"
            )?;
        }
        Ok(())
    }
}

fn figure(value: f64) -> String {
    if value.abs() >= 1_000.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn share(value: f64) -> String {
    if value.abs() < 0.1 && value != 0.0 { format!("{value:.4}") } else { format!("{value:.2}") }
}

/// The ratios, a line each.
pub fn csv(ratios: &[Ratio]) -> String {
    let mut text = "work,against,unit,ours,theirs,ratio,least,most,bar,reached\n".to_owned();
    for line in ratios {
        let Ratio { what, theirs_name, unit, ours, theirs, ratio, limit, reached, .. } = line;
        let Spread { least, median, most } = ratio;
        // The only commas that names have are in numbers.
        let what = what.replace(',', "");
        text += &format!(
            "{what},{theirs_name},{unit},{ours:.3},{theirs:.3},{median:.4},{least:.4},{most:.4},\
             {limit},{reached}\n"
        );
    }
    text
}
