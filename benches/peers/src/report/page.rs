//! The figures of one run, as the README shows them.

use std::fmt;

use super::{Ratio, by_rounds, share};
use crate::peers::name as peer;
use crate::rounds::{Figures, Spread};
use crate::works::name as work;

/// Everything, in Markdown, to be pasted.
pub struct Page<'a> {
    pub machine: &'a str,
    pub figures: &'a [Figures],
    pub ratios: &'a [Ratio],
    /// `benches/instructions/counts.csv`, or nothing.
    pub counts: &'a str,
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "On {}:\n", self.machine)?;
        self.ratios(f)?;
        self.servers(f)?;
        self.dialects(f)?;
        let title = "A decision at random on so many known addresses, in ns:";
        self.scale(f, title, "keys", work::KEYS)?;
        let title = "Several limits for one address, in ns; governor asks one after another:";
        self.scale(f, title, "limits", work::LIMITS)
    }
}

impl Page<'_> {
    fn ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| work | against | ours | theirs | ratio (spread) | bar | reached | instructions |"
        )?;
        writeln!(f, "|---|---|--:|--:|---|--:|---|--:|")?;
        for line in self.ratios {
            let Ratio { what, theirs_name, unit, bar, ratio, .. } = line;
            let [ours, theirs] = [line.ours, line.theirs].map(figure);
            let [least, median, most] =
                [ratio.least, ratio.median, ratio.most].map(|ratio| share(ratio, bar));
            let reached = if line.reached { "yes" } else { "**no**" };
            let instructions = self.instructions(line);
            writeln!(
                f,
                "| {what} | {theirs_name} | {ours} {unit} | {theirs} | {median} ({least} to {most}) \
                 | {bar} | {reached} | {instructions} |"
            )?;
        }
        Ok(())
    }

    /// Ours and theirs, as far as they are counted.
    fn instructions(&self, line: &Ratio) -> String {
        let count = |name: &str| {
            let mut lines = self.counts.lines().filter_map(|line| line.rsplit_once(';'));
            lines.find(|(work, _)| work.trim_matches('"') == name).map(|(_, count)| count)
        };
        match (count(line.counted.0), count(line.counted.1)) {
            (Some(ours), Some(theirs)) => format!("{ours}; {theirs}"),
            (Some(ours), None) => ours.to_owned(),
            (None, _) => String::new(),
        }
    }

    fn servers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bare) = self.find(work::SERVER, 0, peer::BARE) else { return Ok(()) };
        writeln!(f, "\nWhat a server takes of the processor for a request, in ns:\n")?;
        writeln!(f, "| server | median; least | by the bare server's | in user mode, mean |")?;
        writeln!(f, "|---|--:|--:|--:|")?;
        for each in self.of(work::SERVER) {
            let all = each.spread();
            let ratio = Spread::of(&by_rounds(&each.rounds, &bare.rounds)).median;
            // The system counts it in ticks, so that a round alone says little.
            let user = self.find(work::SERVER_USER, 0, &each.peer);
            let user = user.map_or(f64::NAN, |user| {
                user.rounds.iter().sum::<f64>() / user.rounds.len() as f64
            });
            writeln!(
                f,
                "| {} | {:.0}; {:.0} | {ratio:.3} | {user:.0} |",
                each.peer, all.median, all.least
            )?;
        }
        Ok(())
    }

    fn dialects(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bare) = self.find(work::LAYER_FIELDS, 0, peer::BARE) else { return Ok(()) };
        writeln!(f, "\nWhat a layer with fields adds to a request, in ns:\n")?;
        writeln!(f, "| layer | adds |\n|---|--:|")?;
        for each in self.of(work::LAYER_FIELDS).filter(|each| each.peer != peer::BARE) {
            let rounds = each.rounds.iter().zip(&bare.rounds);
            let added: Vec<_> = rounds.map(|(with, without)| with - without).collect();
            writeln!(f, "| {} | {:.0} |", each.peer, Spread::of(&added).median)?;
        }
        Ok(())
    }

    /// Ours and governor's, by the number of something.
    fn scale(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        scale: &str,
        work: &str,
    ) -> fmt::Result {
        let ours: Vec<_> = self.of(work).filter(|each| each.peer == peer::OURS).collect();
        if ours.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{title}\n")?;
        writeln!(f, "| {scale} | tollgate | governor |\n|--:|--:|--:|")?;
        for each in ours {
            let theirs = self.find(work, each.at, peer::GOVERNOR);
            let theirs = theirs.map_or(f64::NAN, |theirs| theirs.spread().median);
            writeln!(f, "| {} | {:.0} | {theirs:.0} |", thousands(each.at), each.spread().median)?;
        }
        Ok(())
    }

    fn of(&self, work: &str) -> impl Iterator<Item = &Figures> {
        self.figures.iter().filter(move |each| each.work == work)
    }

    fn find(&self, work: &str, at: u64, peer: &str) -> Option<&Figures> {
        self.of(work).find(|each| each.at == at && each.peer == peer)
    }
}

fn figure(value: f64) -> String {
    if value.abs() >= 1_000.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// A number with its digits in threes.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
