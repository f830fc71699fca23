//! What a server needs to speak TLS.

use std::path::Path;

use crate::certificates::CA;

/// What tells a server to speak TLS only, with these certificates.
pub(super) fn args(port: u16, directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let (port, ca, key, certificate) =
        (port.to_string(), file(CA), file("server.key"), file("server.pem"));
    let args = [
        ["--port", "0"],
        ["--tls-port", &port],
        ["--tls-ca-cert-file", &ca],
        ["--tls-key-file", &key],
        ["--tls-cert-file", &certificate],
        ["--tls-auth-clients", "no"],
    ];
    args.as_flattened().iter().map(|&arg| arg.to_owned()).collect()
}
