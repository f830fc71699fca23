//! How connections are made, with TLS or without, and how their statements are cancelled.

use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Connect, Manager, ManagerConfig, RecyclingMethod};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{CancelToken, Client, Config, Error, NoTls, Socket};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;

use tollgate_kit::overdue::Overdue;
#[cfg(feature = "tls")]
use tollgate_kit::tls::client_config;

/// The certificates for TLS, in PEM.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    #[cfg(feature = "tls")]
    pub(super) root: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    #[cfg(feature = "tls")]
    const fn are_set(&self) -> bool {
        self.root.is_some() || self.client.is_some()
    }

    #[cfg(not(feature = "tls"))]
    const fn are_set(&self) -> bool {
        let Self {} = self;
        false
    }
}

/// Tells the server to end a statement whose answer nobody waits for.
#[derive(Clone, Default)]
pub(super) enum Canceller {
    #[default]
    Plain,
    #[cfg(feature = "tls")]
    Tls(MakeRustlsConnect),
}

impl Canceller {
    /// Ends the statement of this connection, in a task of its own. It is an attempt: the server says
    /// nothing, and one that cannot be reached ends its statements as it is set up to.
    pub(super) fn cancel(&self, token: CancelToken) {
        let Ok(runtime) = Handle::try_current() else { return };
        let canceller = self.clone();
        runtime.spawn(timeout(LONGEST, async move {
            match canceller {
                Self::Plain => token.cancel_query(NoTls).await,
                #[cfg(feature = "tls")]
                Self::Tls(tls) => token.cancel_query(tls).await,
            }
        }));
    }
}

/// How long it may take to reach the server.
const LONGEST: Duration = Duration::from_secs(5);

/// Makes connections by these settings, with tasks that are watched, and cancels their statements.
///
/// # Errors
///
/// A sentence about settings that do not fit.
pub(super) fn manager(
    mut config: Config,
    certificates: &Certificates,
    overdue: &Overdue,
) -> Result<(Manager, Canceller), &'static str> {
    // A closed connection is noticed without a question to the server.
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    if certificates.are_set() {
        // A server that offers none must not be trusted instead.
        match config.get_ssl_mode() {
            SslMode::Disable => return Err("`sslmode=disable` does without the certificates"),
            _ => config.ssl_mode(SslMode::Require),
        };
    }
    #[cfg(feature = "tls")]
    if config.get_ssl_mode() != SslMode::Disable {
        let own = certificates.client.as_ref().map(|(chain, key)| (&**chain, &**key));
        let tls = client_config(certificates.root.as_deref(), own)?;
        let tls = MakeRustlsConnect::new(tls);
        let connect = Watched { tls: tls.clone(), overdue: overdue.clone() };
        return Ok((Manager::from_connect(config, connect, recycling), Canceller::Tls(tls)));
    }
    if config.get_ssl_mode() == SslMode::Require && !cfg!(feature = "tls") {
        return Err("`sslmode=require` needs the feature `tls` of `tollgate-postgres`");
    }
    let connect = Watched { tls: NoTls, overdue: overdue.clone() };
    Ok((Manager::from_connect(config, connect, recycling), Canceller::Plain))
}

/// Makes connections.
struct Watched<T> {
    tls: T,
    overdue: Overdue,
}

impl<T> Connect for Watched<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + Sync,
    T::TlsConnect: Send + Sync,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(
        &self,
        config: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        let (config, tls) = (config.clone(), self.tls.clone());
        Box::pin(async move {
            let (client, connection) = config.connect(tls).await?;
            // What it ends with, its statements are told.
            let connection = async { drop(connection.await) };
            Ok((client, tokio::spawn(self.overdue.watch(connection))))
        })
    }
}
