//! Certificates, made by the `openssl` command.

use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const CA: &str = "ca.pem";
const EC: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// Makes an authority, and a certificate that it has signed, in a directory.
#[track_caller]
pub(crate) fn make_certificates(directory: &Path) {
    let names = "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n";
    fs::write(directory.join("names"), names).unwrap();
    let of_authority =
        ["-subj", "/CN=Tollgate tests", "-days", "30", "-keyout", "ca.key", "-out", CA];
    openssl(directory, &[&["req", "-x509"], &EC[..], &of_authority]);
    let of_server = ["-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"];
    openssl(directory, &[&["req"], &EC[..], &of_server]);
    let signed = ["-CA", CA, "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"];
    let files = ["-days", "30", "-in", "server.csr", "-out", "server.pem"];
    openssl(directory, &[&["x509", "-req"], &signed, &files]);
}

#[track_caller]
fn openssl(directory: &Path, args: &[&[&str]]) {
    let mut command = Command::new("openssl");
    let output = command.args(args.concat()).current_dir(directory).output();
    let output = output.expect("openssl is missing (bash scripts/programs --install postgres)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
