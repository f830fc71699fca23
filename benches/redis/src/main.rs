//! Tollgate on a Redis server beside what else one would send there, all in one run.

mod contestants;
mod drive;
mod figures;
mod machine;
mod report;
mod server;
mod works;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use self::server::Server;
use self::works::Plan;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (plan, results) = match words.as_slice() {
        [] => (Plan::FULL, "results"),
        ["--quick"] => (Plan::QUICK, "results/partial"),
        _ => {
            eprintln!("usage: redis-bench [--quick]");
            return ExitCode::FAILURE;
        }
    };
    if !server::is_installed() {
        eprintln!("there is no redis-server (Debian: apt-get install redis-server)");
        return ExitCode::FAILURE;
    }
    machine::pin_client();
    match measure(plan, &Path::new(env!("CARGO_MANIFEST_DIR")).join(results)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(plan: Plan, results: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figures = runtime.block_on(async {
        let server = Server::start().await;
        println!("On {}; Redis {}.\n", machine::description(), server.version().await);
        works::run(&server, plan).await
    });
    report::print(&figures);
    fs::create_dir_all(results)?;
    fs::write(results.join("figures.csv"), figures.csv())
}
