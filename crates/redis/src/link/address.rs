//! The address of a server, and the stream to it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use ::redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::tls::TlsSettings;

/// The address of a server.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Tcp {
        host: String,
        port: u16,
        /// The settings of TLS, if it is used.
        tls: Option<TlsSettings>,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

/// Where a stream leads: one of the addresses of a host, or a socket.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

/// A stream of bytes to a server and from it.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Transport for S {}

impl Address {
    /// The name or address of the host, empty for a socket.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            #[cfg(unix)]
            Self::Unix(_) => "",
        }
    }

    /// Another address with the same settings.
    pub(super) fn with_host(&self, host: &str, port: u16) -> Self {
        let tls = match self {
            Self::Tcp { tls, .. } => tls.clone(),
            #[cfg(unix)]
            Self::Unix(_) => None,
        };
        Self::Tcp { host: host.to_owned(), port, tls }
    }

    /// Where streams to it lead: a name may have several addresses.
    pub(super) async fn endpoints(&self) -> io::Result<Vec<Endpoint>> {
        match self {
            Self::Tcp { host, port, .. } => {
                Ok(resolve(host, *port).await?.into_iter().map(Endpoint::Tcp).collect())
            }
            #[cfg(unix)]
            Self::Unix(path) => Ok(vec![Endpoint::Unix(path.clone())]),
        }
    }

    /// Connects to one of its [endpoints](Self::endpoints), with TLS if it is set.
    pub(super) async fn connect(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Transport>> {
        let address = match endpoint {
            Endpoint::Tcp(address) => *address,
            #[cfg(unix)]
            Endpoint::Unix(path) => {
                return Ok(Box::new(tokio::net::UnixStream::connect(path).await?));
            }
        };
        let stream = connect(address).await?;
        match self {
            Self::Tcp { host, tls: Some(tls), .. } => Ok(Box::new(tls.greet(host, stream).await?)),
            _ => Ok(Box::new(stream)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Whether a text from a server can be the name or the address of a host. It is shown in errors.
pub(super) fn is_host(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
    (1..=LONGEST_HOST).contains(&text.len()) && text.bytes().all(fits)
}

/// The addresses of a host.
///
/// The system looks up a name in a blocking thread, which runs on after the timeout of the attempt.
/// A cluster may name hosts that take long to fail to resolve, and the rest of the process needs
/// the blocking threads as well. So few names are looked up at once.
async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_AT_ONCE);

    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let permit = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let host = host.to_owned();
    let looked_up = spawn_blocking(move || {
        // Held by the thread and not by the attempt. The thread goes on when the attempt has timed
        // out, and the bound is one of threads.
        let _permit = permit;
        (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
    });
    looked_up.await.map_err(io::Error::other)?
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // Calls are small and wait for their answers. The system would hold some back until an earlier
    // one is acknowledged.
    stream.set_nodelay(true)?;
    // Detects that an idle connection is dead before a call uses it.
    let keepalive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_AGAIN);
    #[cfg(unix)]
    let keepalive = keepalive.with_retries(KEEP_ALIVE_TRIES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

/// How many names a process looks up at the same time.
const LOOKUPS_AT_ONCE: usize = 8;

/// The length of the longest possible host name.
const LONGEST_HOST: usize = 253;

/// TCP probes an idle connection after 15 seconds, then every 5, and gives it up after half a
/// minute. The defaults of most systems keep probing for ten minutes and more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(5);
#[cfg(unix)]
const KEEP_ALIVE_TRIES: u32 = 3;
