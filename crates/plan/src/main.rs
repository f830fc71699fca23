//! What a quota would have refused and delayed, from an access log, and the smallest quota that would
//! have refused at most a given share. See the README, or `tollgate-plan --help`.
//!
//! # Design
//!
//! A log may be larger than the memory. What is kept has bounds that do not depend on its length: rows of
//! keys (see `Replay`) and of times, the requests that wait, and those of some seconds, which are sorted.
//! With `--at-most`, its requests are written to a temporary file, 32 bytes each.
//!
//! The answers are those of a limiter in memory whose requests arrive at the times of the log: as
//! `limit(..).key(..).cost(..)` decides, or `reserve_within` with `--wait`.

pub(crate) mod format;
mod generate;
pub(crate) mod line;
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod order;
mod page;
mod progress;
pub(crate) mod proposal;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod series;
pub(crate) mod spool;
mod time;

use std::cell::Cell;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use tollgate::Quota;

use self::line::{Entry, Fields, Lines};
use self::log::Counted;
use self::options::Options;
use self::order::Order;
use self::progress::Progress;
use self::proposal::Trials;
use self::replay::{MAX_KEYS, Numbers, Replay};
use self::report::Report;
use self::spool::Spool;

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(Answer::Replayed) => ExitCode::SUCCESS,
        Ok(Answer::RefusesTooMany) => ExitCode::from(1),
        // The reader of the output has seen enough.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollgate-plan: {error}");
            ExitCode::from(2)
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Replayed,
    /// `--check` was asked for, and more are refused than are allowed.
    RefusesTooMany,
}

fn run(options: Options) -> Result<Answer, Box<dyn Error>> {
    let mut output = BufWriter::new(io::stdout().lock());
    let answer = match (&options.quota, options.generate) {
        (Some(quota), _) => plan(quota, &options, &mut output)?,
        (None, lines) => {
            generate::generate(&mut output, lines.unwrap_or(0), options.format)?;
            Answer::Replayed
        }
    };
    output.flush()?;
    Ok(answer)
}

fn plan(
    quota: &Quota,
    options: &Options,
    output: &mut impl Write,
) -> Result<Answer, Box<dyn Error>> {
    let Options { wait, at_most, name, top, .. } = options;
    let bytes = Rc::new(Cell::new(0));
    let (log, size) = open(options.log.as_deref())?;
    let mut progress = Progress::new(&bytes, size);
    let log = log::unpacked(Counted::new(log, &bytes))?;

    let mut replay = Replay::new(Numbers::new(quota, *wait)?, name, MAX_KEYS);
    let mut spool = at_most.map(|_| Spool::new()).transpose()?;
    let mut order = Order::default();
    let mut play = |entry: &Entry<'_>| {
        let (request, _) = replay.play(entry);
        match &mut spool {
            Some(spool) => spool.write(request),
            None => Ok(()),
        }
    };
    let fields =
        Fields { key: options.key.clone(), time: options.time.clone(), cost: options.cost.clone() };
    let mut lines = Lines::new(fields, options.format);
    let counts = log::read(log, &mut lines, |entry, line| {
        progress.request();
        order.push(entry, line);
        while let Some(entry) = order.pop(false) {
            play(&entry)?;
        }
        Ok(())
    })?;
    while let Some(entry) = order.pop(true) {
        play(&entry)?;
    }
    if replay.total.requests == 0 {
        return Err(nothing(&counts));
    }

    let allowed = at_most.map(|share| share.of_requests(replay.total.requests));
    let proposal = match (&mut spool, allowed) {
        (Some(spool), Some(allowed)) => {
            progress.show("trying other rates");
            let mut trials = Trials { spool, max_wait: *wait, max_keys: MAX_KEYS };
            Some(trials.smallest(quota, allowed)?)
        }
        _ => None,
    };
    drop(progress);
    let (early, proposal) = (order.early.as_ref(), proposal.as_ref());
    let report = Report {
        quota,
        format: lines.format(),
        counts: &counts,
        early,
        replay: &replay,
        proposal,
        top: *top,
    };
    if let Some(path) = &options.plot {
        let written = std::fs::write(path, page::page(&report));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    write!(output, "{report}")?;
    match options.check && replay.total.refused > allowed.unwrap_or(0) {
        true => Ok(Answer::RefusesTooMany),
        false => Ok(Answer::Replayed),
    }
}

/// The log and how many bytes it has, if that is known.
fn open(path: Option<&Path>) -> Result<(Box<dyn Read>, Option<u64>), String> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok((Box::new(io::stdin().lock()), None));
    };
    let fault = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(fault)?;
    let size = file.metadata().map_err(fault)?.len();
    Ok((Box::new(file), Some(size)))
}

/// Why there is nothing to replay.
fn nothing(counts: &log::Counts) -> Box<dyn Error> {
    match &counts.broken {
        None => "the log has no requests".into(),
        Some(log::Fault { first, reason, .. }) => {
            let lines = report::count((counts.lines, "line"));
            let reason = report::shown(reason, 400);
            format!("none of {lines} is a request; line {first}: {reason}").into()
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
