//! The ratios, with the bars that are to be reached.

mod bars;
mod page;

use self::bars::{BARS, Bar, Reach};
pub use self::page::Page;
use crate::rounds::{Figures, Spread};

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
    /// The names of ours and of theirs in the counts of instructions, if they are there.
    pub counted: (&'static str, &'static str),
}

/// The bars whose works were done.
pub fn ratios(figures: &[Figures]) -> Vec<Ratio> {
    BARS.iter().filter_map(|bar| bar.ratio(figures)).collect()
}

/// The bars that no figures are about, on whatever scale.
pub fn without_figures(figures: &[Figures]) -> impl Iterator<Item = &'static str> {
    let is_there = |work, peer| figures.iter().any(|each| each.work == work && each.peer == peer);
    let missing =
        move |bar: &&Bar| !is_there(bar.work, bar.ours) || !is_there(bar.work, bar.theirs);
    BARS.iter().filter(missing).map(|bar| bar.what)
}

impl Bar {
    fn ratio(&self, figures: &[Figures]) -> Option<Ratio> {
        let here = |each: &&Figures| each.work == self.work && each.at == self.at;
        let find = |peer: &str| figures.iter().filter(here).find(|each| each.peer == peer);
        let (ours, theirs) = (find(self.ours)?, find(self.theirs)?);
        let beyond = self.beyond.and_then(find);
        let beyond = |nth| beyond.map_or(0.0, |beyond| beyond.rounds[nth]);
        let added = |figures: &Figures| -> Vec<f64> {
            figures.rounds.iter().enumerate().map(|(nth, round)| round - beyond(nth)).collect()
        };
        let (mine, other) = (added(ours), added(theirs));
        let (ratio, bar, limit, reached) = match self.reach {
            Reach::AtMost(limit) => {
                let ratio = Spread::of(&by_rounds(&mine, &other));
                (ratio, limit_text(limit), limit, ratio.median <= limit)
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
            counted: self.counted,
        })
    }
}

fn by_rounds(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

/// Two decimals, or three where they say more.
fn limit_text(limit: f64) -> String {
    let text = format!("{limit:.3}");
    text.strip_suffix('0').unwrap_or(&text).to_owned()
}

/// A ratio as people read it, beside this bar.
fn share(value: f64, bar: &str) -> String {
    let decimals = bar.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match value.abs() {
        size if size < 0.1 && value != 0.0 => format!("{value:.4}"),
        _ => format!("{value:.0$}", decimals.max(2)),
    }
}

/// The ratios, a line each.
pub fn csv(ratios: &[Ratio]) -> String {
    let mut text = "work,against,unit,ours,theirs,ratio,least,most,bar,reached\n".to_owned();
    for line in ratios {
        let Ratio { what, theirs_name, unit, ours, theirs, ratio, limit, reached, .. } = line;
        let Spread { least, median, most } = ratio;
        // The only commas that names have are in numbers and between words.
        let what = what.replace(',', "");
        text += &format!(
            "{what},{theirs_name},{unit},{ours:.3},{theirs:.3},{median:.4},{least:.4},{most:.4},\
             {limit},{reached}\n"
        );
    }
    text
}
