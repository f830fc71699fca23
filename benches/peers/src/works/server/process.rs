//! A server in a process of its own: this program, started with `serve NAME`.
//!
//! It writes its port on a line. For each line that it reads, it writes the time of the processor
//! that it has taken so far, in user mode and in the system. When its input ends, so does it.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Sub;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;
use std::{env, fmt};

use axum::Router;
use axum::routing::get;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tollgate::fields::Dialect;
use tower::layer::util::Identity;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::peers::layers::ours_layer;
use crate::peers::{Allowance, name as peer};

/// Serves "hello" behind this contender's layer until the input ends.
///
/// # Errors
///
/// If there is no contender of this name, or the system does not let it listen, read or write.
pub fn serve(name: &str) -> io::Result<()> {
    let router = router(name).ok_or_else(|| failed(format!("there is no server `{name}`")))?;
    // One thread that serves, as the client needs a core as well.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    println!("{}", listener.local_addr()?.port());
    // With its state: axum then applies the layers once, and not at each request.
    let router = router.with_state(()).into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async { axum::serve(listener, router).await });
    for line in io::stdin().lines() {
        line?;
        println!("{}", Used::by_this_process()?);
    }
    runtime.shutdown_background();
    Ok(())
}

fn router(name: &str) -> Option<Router> {
    let hello = Router::new().route("/", get(async || "hello"));
    let ours = |dialect| ours_layer(Allowance::OPEN, dialect, 1);
    Some(match name {
        peer::BARE => hello,
        // What axum itself takes for a layer, whatever it does.
        peer::IDLE_LAYER => hello.layer(Identity::new()),
        peer::OURS => hello.layer(ours(Dialect::default())),
        peer::OURS_NO_FIELDS => hello.layer(ours(Dialect::None)),
        peer::TOWER_GOVERNOR => {
            let config = GovernorConfigBuilder::default()
                .period(Allowance::OPEN.interval())
                .burst_size(Allowance::OPEN.burst)
                .finish();
            hello.layer(GovernorLayer::new(config.expect("numbers above zero")))
        }
        peer::TOWER_GOVERNOR_HEADERS => {
            let config = GovernorConfigBuilder::default()
                .period(Allowance::OPEN.interval())
                .burst_size(Allowance::OPEN.burst)
                .use_headers()
                .finish();
            hello.layer(GovernorLayer::new(config.expect("numbers above zero")))
        }
        _ => return None,
    })
}

/// A server as the process that started it has it. It ends when this is dropped.
pub(super) struct Server {
    process: Child,
    /// Gone once the server is to end.
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(["serve", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let asks = process.stdin.take();
        let answers = process.stdout.take().ok_or_else(|| failed("a server without output"))?;
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let mut server = Self { process, asks, answers: BufReader::new(answers), address };
        let port = server.answer()?;
        server.address.set_port(port);
        Ok(server)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The time of the processor that it has taken so far.
    pub(super) fn used(&mut self) -> io::Result<Used> {
        let asks = self.asks.as_mut().ok_or_else(|| failed("the server has ended"))?;
        asks.write_all(b"\n")?;
        self.answer()
    }

    fn answer<T: FromStr>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().map_err(|_| failed(format!("the server says `{}`", line.trim())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.asks = None;
        if let Err(error) = self.process.wait() {
            eprintln!("  a server does not end: {error}");
        }
    }
}

/// Time of the processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) user: Duration,
    system: Duration,
}

impl Used {
    fn by_this_process() -> io::Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let time = |time: TimeVal| {
            let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
            Duration::from_micros(micros.unsigned_abs())
        };
        Ok(Self { user: time(usage.user_time()), system: time(usage.system_time()) })
    }

    pub(super) fn total(self) -> Duration {
        self.user + self.system
    }
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }
}

/// In microseconds, as the system counts it.
impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.user.as_micros(), self.system.as_micros())
    }
}

impl FromStr for Used {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (user, system) = text.split_once(' ').unwrap_or((text, ""));
        let micros = |text: &str| text.parse().map(Duration::from_micros);
        Ok(Self { user: micros(user)?, system: micros(system)? })
    }
}

fn failed(message: impl Into<String>) -> io::Error {
    io::Error::other(message.into())
}
