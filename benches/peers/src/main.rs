//! Tollgate beside its peers: everything in one run, or what is asked for.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

use peers_bench::report::{self, Page};
use peers_bench::rounds::{Effort, Figures, Plan};
use peers_bench::{machine, plot, smoke, works};

const USAGE: &str = "\
usage: peers-bench [quick|smoke] [only NAME]..   measure, all or the works whose names contain NAME
       peers-bench plot                          draw the plots of the last run again
       peers-bench serve NAME                    be one of the servers that are measured
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["plot"] => finished(redraw(&tracked())),
        ["serve", name] => finished(works::server::serve(name)),
        words => match Plan::from_words(words.iter().copied()) {
            Some(plan) => finished(run(&plan)),
            None => usage(),
        },
    }
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

/// Where the figures and plots of a whole run are.
fn tracked() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// Where the figures and plots of this run go; those of a partial run replace nothing.
fn results(plan: &Plan) -> io::Result<PathBuf> {
    Ok(match plan.effort {
        Effort::Smoke => env::current_exe()?.with_file_name("peers-smoke"),
        _ if plan.is_partial() => tracked().join("partial"),
        _ => tracked(),
    })
}

fn run(plan: &Plan) -> io::Result<()> {
    eprintln!("on {}", machine::description());
    let mut figures = works::run(plan);
    figures.extend(counted(plan)?);

    let results = results(plan)?;
    fs::create_dir_all(&results)?;
    let lines: String = figures.iter().map(Figures::csv).collect();
    fs::write(results.join(FIGURES), format!("{}{lines}", Figures::CSV_HEAD))?;
    fs::write(results.join(MACHINE), machine::description() + "\n")?;
    // From what was written, so that it can be drawn again.
    let drawing = Drawing::of(&results)?;
    if plan.effort == Effort::Smoke {
        smoke::check(plan, &drawing.figures, &drawing.undrawn).map_err(io::Error::other)?;
        println!("every work has its figures and its plots, in {}", results.display());
    } else {
        print!("{}", drawing.page);
    }
    Ok(())
}

const FIGURES: &str = "figures.csv";
const MACHINE: &str = "machine.txt";

/// What the other program counts, in a process of its own: its allocator is not to be timed.
fn counted(plan: &Plan) -> io::Result<Vec<Figures>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--locked", "--quiet", "--bin", "counts", "--manifest-path"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    // As this program was built, so that nothing is built twice.
    command.args((!cfg!(debug_assertions)).then_some("--release"));
    command.args((!cfg!(feature = "limitador")).then_some("--no-default-features"));
    command.arg("--").args(plan.words());
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the program that counts has failed"));
    }
    let figures: Vec<_> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(Figures::from_csv).collect();
    plan.tell(&figures);
    Ok(figures)
}

/// The figures that a run has written.
fn read(results: &Path) -> io::Result<Vec<Figures>> {
    let text = fs::read_to_string(results.join(FIGURES))?;
    let mut figures: Vec<Figures> = Vec::new();
    for round in text.lines().filter_map(Figures::from_csv) {
        match figures.last_mut() {
            Some(last)
                if (&last.work, last.at, &last.peer) == (&round.work, round.at, &round.peer) =>
            {
                last.rounds.extend(round.rounds);
            }
            _ => figures.push(round),
        }
    }
    Ok(figures)
}

/// What the figures of a run come to.
struct Drawing {
    figures: Vec<Figures>,
    page: String,
    /// The plots for which there are no figures.
    undrawn: Vec<&'static str>,
}

impl Drawing {
    /// Writes the ratios and draws the plots as well.
    fn of(results: &Path) -> io::Result<Self> {
        let figures = read(results)?;
        let ratios = report::ratios(&figures);
        let machine = fs::read_to_string(results.join(MACHINE))?;
        let counts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../instructions/counts.csv");
        let counts = fs::read_to_string(counts)?;
        let page =
            Page { machine: machine.trim(), figures: &figures, ratios: &ratios, counts: &counts };
        let page = page.to_string();
        fs::write(results.join("ratios.csv"), report::csv(&ratios))?;
        let undrawn = plot::all(&figures, &ratios, results)?;
        Ok(Self { figures, page, undrawn })
    }
}

fn redraw(results: &Path) -> io::Result<()> {
    print!("{}", Drawing::of(results)?.page);
    Ok(())
}
