//! A private server on a free port, without files.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, FromRedisValue, RedisResult};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener as Listener, TcpStream};
use tokio::time::{Instant, sleep};
pub(super) use tollgate_testing::redis::free_port;

/// A server. It ends when this value is dropped.
pub(super) struct Server {
    pub(super) port: u16,
    options: Vec<String>,
    process: Option<Child>,
    /// Before version 7, a replica writes what its master sends.
    directory: Directory,
}

/// A directory, removed when this value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tollgate-link-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Server {
    /// Starts a server with these options.
    pub(super) fn start(options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server =
            Self { port: free_port(), options, process: None, directory: Directory::new() };
        server.restart();
        server
    }

    /// Starts a node of a cluster, which has no slots yet. As a master, it sends its replicas data at
    /// once, and each second after that: a replica without any is not named among the slots.
    pub(super) fn start_node() -> Self {
        let options = "--cluster-enabled yes --cluster-require-full-coverage no \
                       --repl-diskless-sync-delay 0 --repl-ping-replica-period 1";
        Self::start(&options.split_whitespace().collect::<Vec<_>>())
    }

    /// Starts a sentinel, which watches `master` by the name of `shop`.
    pub(super) async fn start_sentinel(master: &Self) -> Self {
        master.up().await;
        Self::start_sentinel_at("127.0.0.1", master.port, 0).await
    }

    /// Starts a sentinel that has this address of `shop` since the failover with this number.
    pub(super) async fn start_sentinel_at(host: &str, watched: u16, epoch: u64) -> Self {
        let dir = Directory::new();
        let file = dir.0.join("sentinel.conf");
        let settings = format!(
            "sentinel monitor shop {host} {watched} 1\nsentinel config-epoch shop {epoch}\n"
        );
        std::fs::write(&file, settings).expect("a file");
        let port = free_port();
        let process = Command::new("redis-sentinel")
            .arg(&file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .stdout(Stdio::null())
            .spawn();
        let process = Some(process.expect("redis-sentinel is installed"));
        let sentinel = Self { port, options: Vec::new(), process, directory: dir };
        sentinel.up().await;
        sentinel
    }

    /// Starts it again, with no data.
    pub(super) fn restart(&mut self) {
        let _ = std::fs::remove_file(self.directory.0.join("dump.rdb"));
        let process = Command::new("redis-server")
            .current_dir(&self.directory.0)
            .args(["--port", &self.port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1"])
            .args(&self.options)
            .stdout(Stdio::null())
            .spawn();
        self.process = Some(process.expect("redis-server is installed"));
    }

    /// Kills it, without closing its connections in order.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the server runs");
            process.wait().expect("the server runs");
        }
    }

    /// Sends it a signal, as `kill -STOP` does.
    pub(super) fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("the server runs").id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().expect("kill").success());
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends it a command on a connection apart from the link.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let client = ::redis::Client::open(self.url())?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut client = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (name, rest) = command.split_first().expect("a command");
        ::redis::cmd(name).arg(rest).query_async(&mut client).await
    }

    /// Waits until it answers.
    pub(super) async fn up(&self) {
        until("the server answers", async || {
            !self.ask::<String>(&["PING"]).await.is_err_and(|error| error.code().is_none())
        })
        .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Repeats a check until it holds, with a generous bound.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let bound = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < bound, "in vain: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A virtual address: a port that leads each new connection, after a delay, to the server that is set
/// just then.
pub(super) struct VirtualAddress {
    pub(super) port: u16,
    server: Arc<AtomicU16>,
}

impl VirtualAddress {
    pub(super) async fn of(server: &Server, delay: Duration) -> Self {
        let listener = Listener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let server = Arc::new(AtomicU16::new(server.port));
        let leads_to = Arc::clone(&server);
        // It ends with the runtime of the test.
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let leads_to = Arc::clone(&leads_to);
                tokio::spawn(async move {
                    sleep(delay).await;
                    let server = ("127.0.0.1", leads_to.load(Ordering::SeqCst));
                    let mut server = TcpStream::connect(server).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { port, server }
    }

    pub(super) fn lead_to(&self, server: &Server) {
        self.server.store(server.port, Ordering::SeqCst);
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}
