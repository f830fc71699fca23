//! What is printed: the totals, the keys, the hours, and the proposal.

use std::fmt;
use std::time::Duration;

use tollgate::Quota;

use super::format::Format;
use super::log::{Counts, Fault};
use super::proposal::Proposal;
use super::replay::{KeyRow, Replay, Tally};
use super::series::Series;

/// More rows over time than this are put together.
const MAX_ROWS: i64 = 72;
/// Characters of the longest bar.
const BAR: u64 = 40;
/// By docs/performance.md: a key in memory, and a request that waits.
const BYTES: [u64; 2] = [50, 514];

#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) quota: &'a Quota,
    pub(crate) format: Option<Format>,
    pub(crate) counts: &'a Counts,
    pub(crate) early: Option<&'a Fault>,
    pub(crate) replay: &'a Replay,
    pub(crate) proposal: Option<&'a Proposal>,
    pub(crate) top: usize,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, format, counts, early, replay, proposal, top } = self;
        let total = replay.total;
        writeln!(f, "quota      {quota}")?;
        if quota.get_shards() > 1 {
            writeln!(f, "           as one bucket: which shards a request looks at is random")?;
        }
        if let Some(format) = format {
            writeln!(f, "format     {}", format.title())?;
        }
        let [lines, requests] = [(counts.lines, "line"), (total.requests, "request")].map(count);
        writeln!(f, "read       {lines}, {requests} of {}", keys(replay))?;
        if let Some((first, last)) = replay.span {
            writeln!(f, "           from {first} to {last}")?;
        }
        for (fault, what) in [(counts.broken.as_ref(), "not read"), (*early, "out of order")] {
            if let Some(Fault { lines, first, reason }) = fault {
                let reason = shown(reason, 100);
                writeln!(
                    f,
                    "           {what}: {}, the first is line {first}: {reason}",
                    count((*lines, "line"))
                )?;
            }
        }
        writeln!(f, "refused    {}", share(total.refused, total.requests))?;
        if replay.too_large > 0 {
            writeln!(f, "           {} cost more than the quota ever grants", replay.too_large)?;
        }
        let longest = humantime::format_duration(total.longest_wait);
        if total.delayed > 0 {
            let delayed = share(total.delayed, total.requests);
            writeln!(f, "delayed    {delayed}, by {longest} at most")?;
        }
        let [used, waiting] = [replay.most_used, replay.most_waiting].map(|most| most as u64);
        let bytes = used.saturating_mul(BYTES[0]).saturating_add(waiting.saturating_mul(BYTES[1]));
        let (used, waiting) = (count((used, "bucket")), count((waiting, "request")));
        writeln!(f, "memory     about {} ({used} not full, {waiting} waiting)", size(bytes))?;
        by_key(f, replay, *top)?;
        by_time(f, &replay.series)?;
        match proposal {
            Some(proposal) => proposed(f, proposal, total.requests),
            None => Ok(()),
        }
    }
}

fn by_key(f: &mut fmt::Formatter<'_>, replay: &Replay, top: usize) -> fmt::Result {
    let (hit, all) = (replay.keys.values().filter(|row| row.tally.is_hit()).count(), keys(replay));
    writeln!(f, "\nby key     {hit} of {all} would have been refused or delayed")?;
    let rows = hardest_hit(replay, top).into_iter().map(|row| (shown(&row.name, 38), row.tally));
    table(f, "key", &rows.collect::<Vec<_>>())
}

/// How many keys there are. One that was dropped and came again is counted twice.
pub(crate) fn keys(replay: &Replay) -> String {
    let at_most = if replay.has_dropped { "at most " } else { "" };
    format!("{at_most}{}", count((replay.seen, "key")))
}

/// The keys with the most refusals, then with the most delays.
pub(crate) fn hardest_hit(replay: &Replay, top: usize) -> Vec<&KeyRow> {
    let mut rows: Vec<_> = replay.keys.values().filter(|row| row.tally.is_hit()).collect();
    rows.sort_by(|a, b| rank(&b.tally).cmp(&rank(&a.tally)).then_with(|| a.name.cmp(&b.name)));
    rows.truncate(top);
    rows
}

fn by_time(f: &mut fmt::Formatter<'_>, series: &Series) -> fmt::Result {
    let series = series.within(MAX_ROWS);
    writeln!(f, "\nby {}", series.unit())?;
    let rows = series.rows.iter().map(|(row, tally)| (series.begin(*row), *tally));
    table(f, "from (UTC)", &rows.collect::<Vec<_>>())
}

fn table(f: &mut fmt::Formatter<'_>, first: &str, rows: &[(String, Tally)]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(16);
    let is_delayed = rows.iter().any(|(_, tally)| tally.delayed > 0);
    let most = rows.iter().map(|(_, tally)| tally.requests).max().unwrap_or(1);
    write!(f, "  {first:width$} {:>10} {:>10} {:>7}", "requests", "refused", "share")?;
    if is_delayed {
        write!(f, " {:>10} {:>10}", "delayed", "longest")?;
    }
    writeln!(f, "  = run{} # refused", if is_delayed { " ~ delayed" } else { "" })?;
    for (name, tally) in rows {
        let Tally { requests, refused, delayed, longest_wait } = *tally;
        let percent = percent(refused, requests);
        write!(f, "  {name:width$} {requests:>10} {refused:>10} {percent:>7}")?;
        if is_delayed {
            let longest =
                Duration::from_millis(u64::try_from(longest_wait.as_millis()).unwrap_or(0));
            write!(f, " {delayed:>10} {:>10}", format!("{:.1} s", longest.as_secs_f64()))?;
        }
        writeln!(f, "  {}", bar(*tally, most))?;
    }
    Ok(())
}

/// A bar as long as the requests, in which what is refused or delayed has at least one character.
fn bar(Tally { requests, refused, delayed, .. }: Tally, most: u64) -> String {
    let length = |part: u64| {
        let length = u128::from(part) * u128::from(BAR) / u128::from(most.max(1));
        usize::try_from(length).unwrap_or(0).max(usize::from(part > 0))
    };
    let (refused, delayed) = (length(refused), length(delayed));
    let run = length(requests).saturating_sub(refused + delayed);
    format!("{}{}{}", "=".repeat(run), "~".repeat(delayed), "#".repeat(refused))
}

fn proposed(f: &mut fmt::Formatter<'_>, proposal: &Proposal, requests: u64) -> fmt::Result {
    writeln!(f)?;
    match &proposal.enough {
        Some((quota, refused)) => {
            writeln!(f, "smallest   {quota}: refuses {}", share(*refused, requests))?;
        }
        None => writeln!(f, "smallest   none: no rate, with the rest in proportion, is enough")?,
    }
    match &proposal.too_small {
        Some((quota, Some(refused))) => {
            writeln!(f, "too small  {quota}: refuses {}", share(*refused, requests))
        }
        Some((quota, None)) => writeln!(f, "too small  {quota}: has numbers that do not fit"),
        None => Ok(()),
    }
}

fn rank(tally: &Tally) -> (u64, u64, u64) {
    (tally.refused, tally.delayed, tally.requests)
}

pub(crate) fn share(part: u64, all: u64) -> String {
    format!("{part} of {all} requests ({})", percent(part, all))
}

/// For people: to a hundredth of a percent, rounded down, but not to nothing.
pub(crate) fn percent(part: u64, all: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(all.max(1));
    match (part, hundredths) {
        (1.., 0) => "<0.01%".to_owned(),
        _ => format!("{}.{:02}%", hundredths / 100, hundredths % 100),
    }
}

pub(crate) fn count((number, name): (u64, &str)) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// A text of the log, without characters that a terminal would obey.
pub(crate) fn shown(text: &str, max: usize) -> String {
    let mut escaped = String::new();
    for character in text.chars().take(max) {
        match character {
            '\'' | '"' | '\\' => escaped.push(character),
            other => escaped.extend(other.escape_debug()),
        }
    }
    match text.chars().nth(max) {
        Some(_) => format!("{escaped}.."),
        None => escaped,
    }
}
