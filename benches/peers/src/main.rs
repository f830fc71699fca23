//! Tollgate beside its peers: everything in one run, or what is asked for.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

use peers_bench::report::{self, Table};
use peers_bench::rounds::{Figures, Plan};
use peers_bench::{machine, plot, works};

const USAGE: &str = "\
usage: peers-bench [quick] [only NAME]..     measure, all or the works whose names contain NAME
       peers-bench plot                      draw the plots of the last run again
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["plot"] => finished(redraw(&results(false))),
        words => match plan(words) {
            Some(plan) => finished(measure(&plan)),
            None => usage(),
        },
    }
}

fn plan(words: &[&str]) -> Option<Plan> {
    let mut plan = Plan::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "quick" => plan.quick = true,
            "only" => plan.only.push((*words.next()?).to_owned()),
            _ => return None,
        }
    }
    Some(plan)
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::FAILURE
}

fn finished(outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Where figures and plots go; those of a partial run replace nothing.
fn results(partial: bool) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    if partial { all.join("partial") } else { all }
}

fn measure(plan: &Plan) -> io::Result<()> {
    eprintln!("on {}", machine::description());
    let mut figures = works::run(plan);
    figures.extend(counted(plan)?);
    let ratios = report::ratios(&figures);
    println!("{}", Table(&ratios));

    let results = results(plan.is_partial());
    fs::create_dir_all(&results)?;
    let lines: String = figures.iter().map(Figures::csv).collect();
    fs::write(results.join("figures.csv"), format!("{}{lines}", Figures::CSV_HEAD))?;
    fs::write(results.join("ratios.csv"), report::csv(&ratios))?;
    plot::all(&figures, &ratios, &results)
}

/// What the other program counts, in a process of its own: its allocator is not to be timed.
fn counted(plan: &Plan) -> io::Result<Vec<Figures>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--bin", "counts", "--manifest-path"]);
    command.arg(manifest).arg("--");
    command.args(plan.quick.then_some("quick"));
    command.args(plan.only.iter().flat_map(|name| ["only", name]));
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the program that counts has failed"));
    }
    let figures: Vec<_> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(Figures::from_csv).collect();
    figures.iter().for_each(|each| eprintln!("  {each}"));
    Ok(figures)
}

fn redraw(results: &Path) -> io::Result<()> {
    let text = fs::read_to_string(results.join("figures.csv"))?;
    let mut figures: Vec<Figures> = Vec::new();
    for round in text.lines().filter_map(Figures::from_csv) {
        match figures.last_mut() {
            Some(last)
                if (&last.work, last.at, &last.who) == (&round.work, round.at, &round.who) =>
            {
                last.rounds.extend(round.rounds);
            }
            _ => figures.push(round),
        }
    }
    let ratios = report::ratios(&figures);
    println!("{}", Table(&ratios));
    plot::all(&figures, &ratios, results)
}
