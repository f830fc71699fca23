//! What a quota would have refused and delayed, from an access log, and the smallest quota that would
//! have refused at most a given share.
//!
//! ```sh
//! tollgate-plan "10 per minute, capacity 20" access.log
//! tollgate-plan --wait 30s --at-most 1% "10 per minute" access.log
//! zcat access.log.*.gz | tollgate-plan "1000 per hour"
//! tollgate-plan --generate 1000000 > access.log
//! ```
//!
//! The log may be larger than the memory: only its keys, one row for each hour and the requests that
//! wait are kept. With `--at-most`, its requests are written to a temporary file, 20 bytes each.
//!
//! The answers are those of a limiter in memory whose requests arrive at the times of the log: as
//! `limit(..).key(..).cost(..)` decides, or `reserve_within` with `--wait`. Refused clients do not
//! come back in it but as the log says, and a log without fractions of a second has all requests of a
//! second at its start.

mod generate;
pub(crate) mod line;
pub(crate) mod log;
mod options;
pub(crate) mod proposal;
pub(crate) mod replay;
mod report;
pub(crate) mod spool;
mod time;

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::process::ExitCode;

use self::options::{Command, Options, USAGE};
use self::proposal::Trials;
use self::replay::{Numbers, Replay};
use self::report::Report;
use self::spool::Spool;

fn main() -> ExitCode {
    match run(std::env::args().skip(1), io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has seen enough.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plan: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole program, with its words, its standard input and its standard output.
pub(crate) fn run(
    words: impl IntoIterator<Item = String>,
    input: impl BufRead,
    output: impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut output = BufWriter::new(output);
    match Command::read(words)? {
        Command::Help => write!(output, "{USAGE}")?,
        Command::Generate { lines, json } => generate::generate(&mut output, lines, json)?,
        Command::Plan(options) => match &options.file {
            None => plan(&options, input, &mut output)?,
            Some(path) => {
                let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
                plan(&options, BufReader::with_capacity(1 << 16, file), &mut output)?;
            }
        },
    }
    Ok(output.flush()?)
}

fn plan(
    options: &Options,
    log: impl BufRead,
    output: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let Options { quota, fields, max_wait, at_most, name, top, .. } = options;
    let mut replay = Replay::new(Numbers::new(quota, *max_wait)?, name);
    let mut spool = at_most.map(|_| Spool::new()).transpose()?;
    let read = log::read(log, fields, |entry| {
        let (key, _) = replay.play(&entry);
        match &mut spool {
            Some(spool) => spool.write((entry.at, entry.cost, key)),
            None => Ok(()),
        }
    })?;
    let proposal = match (&mut spool, at_most) {
        (Some(spool), Some(at_most)) => {
            let phases = replay.keys.iter().map(|row| row.phase).collect();
            let allowed = at_most.of_requests(replay.total.requests);
            let mut trials = Trials { spool, phases, max_wait: *max_wait };
            Some(trials.smallest(quota, allowed)?)
        }
        _ => None,
    };
    let (replay, proposal) = (&replay, proposal.as_ref());
    write!(output, "{}", Report { quota, read: &read, replay, proposal, top: *top })?;
    Ok(())
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
