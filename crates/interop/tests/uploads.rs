//! Clients that others wrote send 8 MB to a layer that refuses them: each sees its answer.
//!
//! Most of them write their whole request before they read. Without reading on, they see a closed
//! connection, or their answer by luck: `--nocapture` shows how often, in a table.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_testing::web;

static NONE_LEFT: Limit = Limit::new("none-left", Quota::token_bucket(1, DAY));

const UPLOAD: usize = 8_000_000;

/// Uploads of each client; more of them for the table of the guide.
fn times() -> usize {
    std::env::var("TOLLGATE_UPLOADS").map_or(5, |times| times.parse().unwrap())
}

/// A server that refuses each request, and reads on or not.
async fn server(reads_on: bool) -> SocketAddr {
    let limiter = RateLimiter::in_memory();
    limiter.limit(&NONE_LEFT).await.unwrap();
    let layer = limiter.layer(&NONE_LEFT);
    let layer = if reads_on { layer } else { layer.read_on(0, Duration::ZERO, 0) };
    let echo = post(async |body: Bytes| body.len().to_string());
    web::serve(Router::new().route("/", echo).layer(DefaultBodyLimit::disable()).layer(layer)).await
}

/// The programs get the address, the file to send, and how often; each prints a line for each
/// upload: the status, or what has failed.
const PYTHON: &str = "
import http.client, socket, sys, urllib.request, urllib.error
url, file, times, client = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
data = open(file, 'rb').read()
host = url.split('/')[2]

def sockets():
    name, port = host.split(':')
    with socket.create_connection((name, int(port))) as connection:
        head = f'POST / HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\ncontent-length: {len(data)}\\r\\n\\r\\n'
        connection.sendall(head.encode() + data)
        return connection.recv(100).split()[1].decode()

def http_client():
    connection = http.client.HTTPConnection(host)
    connection.request('POST', '/', data)
    return connection.getresponse().status

def urllib_request():
    try:
        return urllib.request.urlopen(urllib.request.Request(url, data)).status
    except urllib.error.HTTPError as error:
        return error.code

def urllib3():
    import urllib3
    return urllib3.PoolManager(retries=False).request('POST', url, body=data).status

def requests():
    import requests
    return requests.post(url, data).status_code

def httpx():
    import httpx
    return httpx.post(url, content=data).status_code

def aiohttp():
    import aiohttp, asyncio
    async def send():
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=data) as response:
                return response.status
    return asyncio.run(send())

for _ in range(times):
    try:
        print(globals()[client](), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
";

const NODE: &str = "
import fs from 'node:fs';
import http from 'node:http';
const [url, file, times, client] = process.argv.slice(1);
const data = fs.readFileSync(file);
const clients = {
  fetch: async () => (await fetch(url, { method: 'POST', body: data })).status,
  http: () => new Promise((resolve, reject) => {
    const request = http.request(url, { method: 'POST', agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on('error', reject);
    request.end(data);
  }),
  got: async () => {
    const { got } = await import('got');
    return (await got.post(url, { body: data, throwHttpErrors: false, retry: { limit: 0 } })).statusCode;
  },
  axios: async () => {
    const { default: axios } = await import('axios');
    return (await axios.post(url, data, { validateStatus: null })).status;
  },
};
for (let nth = 0; nth < Number(times); nth += 1) {
  try {
    console.log(await clients[client]());
  } catch (error) {
    console.log((error.cause ?? error).code ?? error.name);
  }
}
";

const SHELL: &str = r#"
url=$1 file=$2 times=$3 client=$4
for _ in $(seq "$times"); do
    case "$client" in
        curl) curl --silent --output /dev/null --write-out '%{http_code}\n' --data-binary "@$file" "$url" ;;
        curl-at-once) curl --silent --output /dev/null --write-out '%{http_code}\n' --header Expect: --data-binary "@$file" "$url" ;;
        wget) wget --tries=1 --server-response --output-document=/dev/null --post-file="$file" "$url" 2>&1 |
            sed -n 's/^ *HTTP[^ ]* \([0-9]*\).*/\1/p' | grep . || echo none ;;
    esac
done
"#;

/// The clients, as their users know them.
const CLIENTS: [(&str, &str, &str); 15] = [
    ("a blocking socket", "python", "sockets"),
    ("Python `http.client`", "python", "http_client"),
    ("Python `urllib.request`", "python", "urllib_request"),
    ("`urllib3`", "python", "urllib3"),
    ("`requests`", "python", "requests"),
    ("`httpx`", "python", "httpx"),
    ("`aiohttp`", "python", "aiohttp"),
    ("Node `fetch`", "node", "fetch"),
    ("Node `http`", "node", "http"),
    ("`got`", "node", "got"),
    ("`axios`", "node", "axios"),
    ("`reqwest`", "rust", ""),
    ("`curl`", "sh", "curl"),
    ("`curl` without `Expect`", "sh", "curl-at-once"),
    ("`wget`", "sh", "wget"),
];

/// Where `scripts/programs` puts them.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("programs")
}

async fn by_reqwest(to: SocketAddr) -> Vec<String> {
    let mut said = Vec::new();
    for _ in 0..times() {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let sent = client.post(format!("http://{to}/")).body(vec![b'x'; UPLOAD]).send().await;
        said.push(
            sent.map_or_else(|error| error.to_string(), |sent| sent.status().as_u16().to_string()),
        );
    }
    said
}

/// What the client has seen, a line for each upload.
async fn seen(
    (name, language, client): (&str, &str, &str),
    to: SocketAddr,
    file: &Path,
) -> Vec<String> {
    let (program, first) = match language {
        "rust" => return by_reqwest(to).await,
        "python" => (installed().join("venv/bin/python"), vec!["-c", PYTHON]),
        "node" => ("node".into(), vec!["--input-type=module", "-e", NODE]),
        _ => ("sh".into(), vec!["-c", SHELL, "sh"]),
    };
    let mut command = Command::new(program);
    // Scripts find what they import next to where they run.
    command.args(first).arg(format!("http://{to}/")).arg(file).arg(times().to_string()).arg(client);
    command.current_dir(installed()).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.unwrap_or_else(|error| {
        panic!("{name} cannot be started: {error} (bash scripts/programs --install clients)")
    });
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<_> = said.lines().map(str::to_owned).collect();
    assert_eq!(said.len(), times(), "{name}: {said:?}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_other_languages_see_the_answer_to_an_upload_that_is_refused() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("upload");
    std::fs::write(&file, vec![b'x'; UPLOAD]).unwrap();
    let (off, on) = (server(false).await, server(true).await);
    println!("| client | without reading on | with it | of |\n|---|---|---|---|");
    let mut blind = Vec::new();
    for client in CLIENTS {
        let refused = |said: &[String]| said.iter().filter(|one| *one == "429").count();
        let (before, after) = (seen(client, off, &file).await, seen(client, on, &file).await);
        println!("| {} | {} | {} | {} |", client.0, refused(&before), refused(&after), times());
        if refused(&after) < times() {
            blind.push((client.0, after));
        }
    }
    assert!(blind.is_empty(), "{blind:?}");
}
