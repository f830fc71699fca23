//! A page for a browser: what was refused over time, and the keys that were hit hardest. It loads
//! nothing and runs no script.

use std::fmt::{self, Write};

use super::replay::Tally;
use super::report::{Report, hardest_hit, keys, percent, share, shown};
use super::series::Series;

// Counts become floats only here and in the progress, where what is rounded cannot be seen.

/// The picture, and the part of it that has the bars.
const SIZE: [f64; 2] = [960.0, 280.0];
const LEFT: f64 = 64.0;
const TOP: f64 = 12.0;
const FLOOR: f64 = 250.0;
const RIGHT: f64 = 948.0;
/// Times below the bars.
const TIMES: i64 = 4;
/// Pixels of the longest bar of a key.
const KEY_BAR: f64 = 320.0;

pub(crate) fn page(report: &Report<'_>) -> String {
    let mut page = String::new();
    // Writing to a text does not fail.
    let _ = write(&mut page, report);
    page
}

fn write(page: &mut String, report: &Report<'_>) -> fmt::Result {
    let Report { quota, replay, proposal, .. } = report;
    let total = replay.total;
    let title = format!("{quota}: refused {}", share(total.refused, total.requests));
    writeln!(page, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">")?;
    writeln!(page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(page, "<title>{}</title>\n<style>\n{STYLE}</style>", escaped(&title))?;
    write!(page, "<h1>{}</h1>\n<p>", escaped(&quota.to_string()))?;
    if let Some((first, last)) = replay.span {
        write!(page, "{first} to {last}, {}. ", keys(replay))?;
    }
    write!(page, "<strong>Refused {}</strong>", share(total.refused, total.requests))?;
    if total.delayed > 0 {
        write!(page, ", delayed {}", share(total.delayed, total.requests))?;
    }
    writeln!(page, ".</p>")?;
    if let Some((quota, refused)) = proposal.and_then(|proposal| proposal.enough.as_ref()) {
        let refused = share(*refused, total.requests);
        writeln!(
            page,
            "<p>Smallest: {}, which refuses {refused}.</p>",
            escaped(&quota.to_string())
        )?;
    }
    over_time(page, &replay.series, total.delayed > 0)?;
    by_key(page, report)
}

fn over_time(page: &mut String, series: &Series, is_delayed: bool) -> fmt::Result {
    writeln!(page, "<h2>Requests per {}</h2>\n<p class=\"legend\">", series.unit())?;
    for (class, name, is_there) in [
        ("run", "admitted", true),
        ("delayed", "delayed", is_delayed),
        ("refused", "refused", true),
    ] {
        if is_there {
            writeln!(page, "<span><i class=\"{class}\"></i>{name}</span>")?;
        }
    }
    writeln!(page, "</p>")?;
    let [width, height] = SIZE;
    writeln!(
        page,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Requests over time\">"
    )?;
    let most = series.rows.values().map(|tally| tally.requests).max().unwrap_or(0).max(1);
    let y = |requests: u64| FLOOR - (FLOOR - TOP) * requests as f64 / most as f64;
    for level in [0, most.div_ceil(2), most] {
        let at = y(level);
        writeln!(page, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>")?;
        let at = at + 4.0;
        writeln!(page, "<text x=\"{}\" y=\"{at:.1}\" class=\"end\">{level}</text>", LEFT - 8.0)?;
    }
    let first = series.rows.first_key_value().map_or(0, |(first, _)| *first);
    let span = series.span().max(1);
    let step = (RIGHT - LEFT) / span as f64;
    let x = |row: i64| LEFT + step * row.saturating_sub(first) as f64;
    // A gap between the bars while they are wide enough.
    let bar = if step > 3.0 { (step - 1.0).min(48.0) } else { step };
    for (row, tally) in &series.rows {
        let Tally { requests, refused, delayed, .. } = *tally;
        let run = requests.saturating_sub(refused).saturating_sub(delayed);
        let begin = series.begin(*row);
        write!(page, "<g><title>{begin}: {requests} requests, {refused} refused")?;
        if is_delayed {
            write!(page, ", {delayed} delayed")?;
        }
        write!(page, "</title>")?;
        let mut below = 0;
        for (class, part) in [("run", run), ("delayed", delayed), ("refused", refused)] {
            if part > 0 {
                let (top, bottom) = (y(below + part), y(below));
                write!(page, "<rect class=\"{class}\" x=\"{:.2}\" y=\"{top:.2}\" ", x(*row))?;
                write!(page, "width=\"{bar:.2}\" height=\"{:.2}\"/>", bottom - top)?;
                below += part;
            }
        }
        writeln!(page, "</g>")?;
    }
    // Few bars are wide, and the time of the second one would stand on that of the first.
    let times = if span > 4 * TIMES { TIMES } else { 1.min(span - 1) };
    for part in 0..=times {
        let row = first.saturating_add((span - 1) * part / times.max(1));
        let (class, at) = match part {
            0 => ("", LEFT),
            part if part == times => ("end", RIGHT),
            _ => ("middle", x(row)),
        };
        let (at, begin) = (format_args!("{at:.1}"), series.begin(row));
        writeln!(page, "<text x=\"{at}\" y=\"{}\" class=\"{class}\">{begin}</text>", FLOOR + 20.0)?;
    }
    writeln!(page, "</svg>\n<p class=\"note\">Times are in UTC.</p>")
}

fn by_key(page: &mut String, report: &Report<'_>) -> fmt::Result {
    let rows = hardest_hit(report.replay, report.top);
    if rows.is_empty() {
        return writeln!(page, "<p>No key would have been refused or delayed.</p>");
    }
    writeln!(page, "<h2>Keys with the most refusals</h2>\n<table>")?;
    write!(page, "<tr><th>key<th>requests<th>refused<th>share<th>delayed<th>")?;
    let most = rows.iter().map(|row| row.tally.requests).max().unwrap_or(1).max(1);
    for row in rows {
        let Tally { requests, refused, delayed, .. } = row.tally;
        let run = requests.saturating_sub(refused).saturating_sub(delayed);
        let name = escaped(&shown(&row.name, 100));
        write!(page, "\n<tr><td>{name}<td>{requests}<td>{refused}")?;
        write!(page, "<td>{}<td>{delayed}", percent(refused, requests))?;
        write!(page, "<td><svg viewBox=\"0 0 {KEY_BAR} 12\" width=\"{KEY_BAR}\" height=\"12\" ")?;
        write!(page, "preserveAspectRatio=\"none\" aria-hidden=\"true\">")?;
        let mut left = 0.0;
        for (class, part) in [("run", run), ("delayed", delayed), ("refused", refused)] {
            let width = KEY_BAR * part as f64 / most as f64;
            write!(
                page,
                "<rect class=\"{class}\" x=\"{left:.1}\" width=\"{width:.1}\" height=\"12\"/>"
            )?;
            left += width;
        }
        write!(page, "</svg>")?;
    }
    writeln!(page, "\n</table>")
}

/// A text of the log or of the user, without characters that begin something in HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

const STYLE: &str = "\
:root { color-scheme: light dark; --text: #1f2328; --soft: #59636e; --grid: #d1d9e0; --ground: #fff;
  --run: #4c8dd6; --delayed: #c99a1e; --refused: #cf3f36; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --soft: #9ba4ae; --grid: #3a424b;
  --ground: #14171b; --run: #5a9be6; --delayed: #dbb045; --refused: #f2665c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { max-width: 100%; vertical-align: middle; } text { font-size: 12px; fill: var(--soft); }
.end { text-anchor: end; } .middle { text-anchor: middle; } .grid { stroke: var(--grid); }
.run { fill: var(--run); background: var(--run); }
.delayed { fill: var(--delayed); background: var(--delayed); }
.refused { fill: var(--refused); background: var(--refused); }
.legend span { margin-right: 1.5em; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
.note { color: var(--soft); font-size: .85rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--grid); }
th { color: var(--soft); font-weight: normal; }
th:first-child, td:first-child, td:last-child { text-align: left; }
td:first-child { overflow-wrap: anywhere; }
";
