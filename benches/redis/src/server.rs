//! A private server on a free port, which ends with the program.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};

use crate::machine;

pub struct Server {
    process: Child,
    url: String,
    /// For questions about the server itself.
    control: MultiplexedConnection,
}

/// What the server has spent so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub cpu_seconds: f64,
    /// Calls of the command that was asked about, since the figures were last reset.
    pub calls: f64,
    /// The microseconds that they took.
    pub micros: f64,
}

impl Server {
    /// Starts `redis-server` on the first core, and waits until it answers.
    pub async fn start() -> Self {
        // Another program may take the port before the server does.
        for _ in 0..5 {
            let port = free_port();
            let mut process = spawn(port);
            let url = format!("redis://127.0.0.1:{port}/");
            if let Some(control) = answering(&mut process, &url).await {
                return Self { process, url, control };
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("redis-server did not start (Debian: apt-get install redis-server)");
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Has the server count the calls of commands from 0.
    pub async fn reset_counts(&self) {
        self.ask::<()>(cmd("CONFIG").arg("RESETSTAT")).await;
    }

    pub async fn spent(&self, command: &str) -> Spent {
        let info = self.ask::<String>(cmd("INFO").arg("cpu").arg("commandstats")).await;
        let number = |name: &str| field(&info, name).and_then(|text| text.parse().ok());
        let cpu_seconds = number("used_cpu_user").zip(number("used_cpu_sys"));
        let (user, system): (f64, f64) = cpu_seconds.unwrap_or_default();
        let counted = field(&info, &format!("cmdstat_{command}")).unwrap_or_default();
        let counted = |name: &str| {
            let part = counted.split(',').find_map(|part| part.strip_prefix(name));
            part.and_then(|number| number.parse().ok()).unwrap_or(0.0)
        };
        Spent { cpu_seconds: user + system, calls: counted("calls="), micros: counted("usec=") }
    }

    pub async fn version(&self) -> String {
        let info = self.ask::<String>(cmd("INFO").arg("server")).await;
        field(&info, "redis_version").unwrap_or("of unknown version").to_owned()
    }

    pub async fn forget_everything(&self) {
        self.ask::<()>(&cmd("FLUSHALL")).await;
    }

    /// The bytes that the server has allocated.
    pub async fn bytes(&self) -> f64 {
        let info = self.ask::<String>(cmd("INFO").arg("memory")).await;
        field(&info, "used_memory").and_then(|bytes| bytes.parse().ok()).unwrap_or(f64::NAN)
    }

    /// The bytes of one key, whichever the server picks, with its value.
    pub async fn bytes_of_one(&self) -> f64 {
        let key = self.ask::<Vec<u8>>(&cmd("RANDOMKEY")).await;
        self.ask(cmd("MEMORY").arg("USAGE").arg(key)).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, question: &redis::Cmd) -> T {
        question.query_async(&mut self.control.clone()).await.expect("an answer of the server")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("the address of a listener").port()
}

fn spawn(port: u16) -> Child {
    let mut command = machine::on_core(machine::SERVER, "redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.arg("--port").arg(port.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("redis-server (Debian: apt-get install redis-server)")
}

async fn answering(process: &mut Child, url: &str) -> Option<MultiplexedConnection> {
    let client = Client::open(url).expect("an address of Redis");
    for _ in 0..200 {
        if process.try_wait().is_ok_and(|ended| ended.is_some()) {
            return None;
        }
        if let Ok(connection) = client.get_multiplexed_async_connection().await {
            return Some(connection);
        }
        sleep(Duration::from_millis(10));
    }
    None
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// A command that does not exist cannot be started; the command line says so earlier.
pub fn is_installed() -> bool {
    let mut version = Command::new("redis-server");
    version.arg("--version").stdout(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
