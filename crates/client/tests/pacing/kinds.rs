//! 1,000 requests to each kind of server that was recorded: how many are refused, and which share
//! of the allowed rate is used.
//!
//! Time is tokio's, paused, and the server's clock is in step with it, half a second ahead of whole
//! seconds.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use retry_policies::policies::ExponentialBackoff;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::{DAY, HOUR, MINUTE, SECOND};
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tower::{Layer, ServiceExt, service_fn};

/// How a server counts.
#[derive(Clone, Copy, Debug)]
enum Counts {
    /// By windows that begin at whole periods.
    Windows,
    /// By a bucket that holds as many as come in a period.
    Bucket,
    /// By the requests of the last period.
    Log,
}

/// How a limit stands when the server answers.
#[derive(Clone, Copy, Debug)]
struct Stand {
    quota: u32,
    remaining: u32,
    /// Until there is one more, or until the window ends.
    reset: Duration,
    /// Since the epoch.
    now: Duration,
    is_refused: bool,
}

impl Stand {
    fn reset_seconds(&self) -> u64 {
        self.reset.as_secs_f64().ceil() as u64
    }

    fn reset_epoch(&self) -> u64 {
        (self.now + self.reset).as_secs_f64().ceil() as u64
    }

    /// `2023-11-14T22:13:20Z`
    fn reset_instant(&self) -> String {
        humantime::format_rfc3339_seconds(epoch(self.reset_epoch())).to_string()
    }
}

fn epoch(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// One kind of server: the numbers, what it sends, how many of 1,000 requests it may refuse, and
/// the share of the allowed rate that has to be used.
struct Kind {
    name: &'static str,
    counts: Counts,
    quota: u32,
    period: Duration,
    status: u16,
    fields: fn(&Stand) -> Vec<(&'static str, String)>,
    refused: u32,
    share: f64,
}

const KINDS: [Kind; 13] = [
    Kind {
        name: "draft 6, with policies and no reset",
        counts: Counts::Windows,
        quota: 100,
        period: MINUTE,
        status: 429,
        fields: |stand| {
            vec![
                ("ratelimit-limit", format!("{0}, {0};w=60", stand.quota)),
                ("ratelimit-remaining", stand.remaining.to_string()),
            ]
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "Docker Hub",
        counts: Counts::Log,
        quota: 100,
        period: Duration::from_secs(21_600),
        status: 429,
        fields: |stand| {
            vec![
                ("ratelimit-limit", format!("{};w=21600", stand.quota)),
                ("ratelimit-remaining", format!("{};w=21600", stand.remaining)),
            ]
        },
        refused: 0,
        share: 0.75,
    },
    Kind {
        name: "Reddit",
        counts: Counts::Windows,
        quota: 100,
        period: MINUTE.saturating_mul(10),
        status: 429,
        fields: |stand| {
            vec![
                ("x-ratelimit-remaining", format!("{}.0", stand.remaining)),
                ("x-ratelimit-reset", stand.reset.as_secs().to_string()),
            ]
        },
        // It rounds the reset down, which the first refusal shows.
        refused: 1,
        share: 0.9,
    },
    Kind {
        name: "Mastodon",
        counts: Counts::Windows,
        quota: 300,
        period: MINUTE.saturating_mul(5),
        status: 429,
        fields: |stand| {
            vec![
                ("x-ratelimit-limit", stand.quota.to_string()),
                ("x-ratelimit-remaining", stand.remaining.to_string()),
                ("x-ratelimit-reset", stand.reset_instant()),
            ]
        },
        refused: 0,
        share: 0.8,
    },
    Kind {
        name: "Anthropic",
        counts: Counts::Bucket,
        quota: 50,
        period: MINUTE,
        status: 429,
        fields: |stand| {
            let mut fields = vec![
                ("anthropic-ratelimit-requests-limit", stand.quota.to_string()),
                ("anthropic-ratelimit-requests-remaining", stand.remaining.to_string()),
                ("anthropic-ratelimit-requests-reset", stand.reset_instant()),
            ];
            if stand.is_refused {
                fields.push(("retry-after", stand.reset_seconds().to_string()));
            }
            fields
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "OpenAI",
        counts: Counts::Bucket,
        quota: 60,
        period: MINUTE,
        status: 429,
        fields: |stand| {
            vec![
                ("x-ratelimit-limit-requests", stand.quota.to_string()),
                ("x-ratelimit-remaining-requests", stand.remaining.to_string()),
                ("x-ratelimit-reset-requests", format!("{}ms", stand.reset.as_millis() + 1)),
            ]
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "GitHub",
        counts: Counts::Windows,
        quota: 60,
        period: HOUR,
        status: 403,
        fields: |stand| {
            vec![
                ("x-ratelimit-limit", stand.quota.to_string()),
                ("x-ratelimit-remaining", stand.remaining.to_string()),
                ("x-ratelimit-reset", stand.reset_epoch().to_string()),
                ("x-ratelimit-resource", "core".to_owned()),
            ]
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "Shopify",
        counts: Counts::Bucket,
        quota: 40,
        period: Duration::from_secs(20),
        status: 429,
        fields: |stand| {
            let used = stand.quota - stand.remaining;
            let mut fields =
                vec![("x-shopify-shop-api-call-limit", format!("{used}/{}", stand.quota))];
            if stand.is_refused {
                fields.push(("retry-after", "2.0".to_owned()));
            }
            fields
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "Discord",
        counts: Counts::Windows,
        quota: 5,
        period: Duration::from_secs(5),
        status: 429,
        fields: |stand| {
            vec![
                ("x-ratelimit-limit", stand.quota.to_string()),
                ("x-ratelimit-remaining", stand.remaining.to_string()),
                ("x-ratelimit-reset-after", format!("{:.3}", stand.reset.as_secs_f64())),
                ("x-ratelimit-bucket", "abcd1234".to_owned()),
            ]
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "Twitter",
        counts: Counts::Windows,
        quota: 75,
        period: MINUTE.saturating_mul(15),
        status: 429,
        fields: |stand| {
            vec![
                ("x-rate-limit-limit", stand.quota.to_string()),
                ("x-rate-limit-remaining", stand.remaining.to_string()),
                ("x-rate-limit-reset", stand.reset_epoch().to_string()),
            ]
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "Trakt",
        counts: Counts::Windows,
        quota: 250,
        period: MINUTE.saturating_mul(5),
        status: 429,
        fields: |stand| {
            let (remaining, until) = (stand.remaining, stand.reset_instant());
            let rest = format!("\"limit\":250,\"remaining\":{remaining},\"until\":\"{until}\"}}");
            vec![("x-ratelimit", format!("{{\"name\":\"GET\",\"period\":300,{rest}"))]
        },
        refused: 0,
        share: 0.9,
    },
    Kind {
        name: "Slack",
        counts: Counts::Windows,
        quota: 50,
        period: MINUTE,
        status: 429,
        fields: |stand| match stand.is_refused {
            true => vec![("retry-after", stand.reset_seconds().to_string())],
            false => vec![],
        },
        // It shows nothing until it refuses.
        refused: 150,
        share: 0.9,
    },
    Kind {
        name: "Stripe",
        counts: Counts::Bucket,
        quota: 25,
        period: SECOND,
        status: 429,
        fields: |stand| match stand.is_refused {
            true => vec![("stripe-rate-limited-reason", "global-rate".to_owned())],
            false => vec![],
        },
        // It shows nothing, and names no wait.
        refused: 250,
        share: 0.9,
    },
];

/// The time of the server at first, since the epoch.
const BEGIN: Duration = Duration::from_millis(1_700_000_000_500);

/// The state of a server.
#[derive(Debug)]
struct Server {
    start: Instant,
    /// The requests that count, by their times since the epoch.
    log: VecDeque<Duration>,
    /// Of a bucket, in tokens.
    level: f64,
    since: Duration,
    refused: u32,
}

impl Server {
    fn now(&self) -> Duration {
        BEGIN + self.start.elapsed()
    }

    /// Counts a request.
    fn count(&mut self, kind: &Kind) -> Stand {
        let (now, quota, period) = (self.now(), f64::from(kind.quota), kind.period);
        let window = |at: Duration| at.as_nanos() / period.as_nanos();
        let rate = quota / period.as_secs_f64();
        match kind.counts {
            Counts::Windows => self.log.retain(|at| window(*at) == window(now)),
            Counts::Log => self.log.retain(|at| *at + period > now),
            Counts::Bucket => {
                let gained = (now - self.since).as_secs_f64() * rate;
                (self.level, self.since) = ((self.level + gained).min(quota), now);
            }
        }
        let left = match kind.counts {
            Counts::Bucket => self.level,
            _ => quota - self.log.len() as f64,
        };
        let is_refused = left < 1.0;
        if is_refused {
            self.refused += 1;
        } else {
            self.log.push_back(now);
            self.level -= 1.0;
        }
        let left = if is_refused { left } else { left - 1.0 };
        let reset = match kind.counts {
            Counts::Windows => {
                let rest = now.as_nanos() % period.as_nanos();
                period - Duration::from_nanos(rest as u64)
            }
            Counts::Log => *self.log.front().unwrap() + period - now,
            Counts::Bucket => Duration::from_secs_f64((1.0 - left.fract()) / rate),
        };
        Stand { quota: kind.quota, remaining: left as u32, reset, now, is_refused }
    }
}

/// What came of 1,000 requests.
#[derive(Debug)]
struct Outcome {
    refused: u32,
    share: f64,
}

async fn run(kind: &'static Kind, pacing: PacingLayer) -> Outcome {
    let server = Arc::new(Mutex::new(Server {
        start: Instant::now(),
        log: VecDeque::new(),
        level: f64::from(kind.quota),
        since: Duration::ZERO,
        refused: 0,
    }));
    let dice = Arc::new(Mutex::new(Dice(7)));
    let counting = Arc::clone(&server);
    let network = service_fn(move |_: Request<()>| {
        let (server, dice) = (Arc::clone(&counting), Arc::clone(&dice));
        async move {
            let way = || Duration::from_millis(dice.lock().unwrap().below(50));
            let (there, back) = (way(), way());
            sleep(there).await;
            let stand = server.lock().unwrap().count(kind);
            let mut response = Response::builder();
            if stand.is_refused {
                response = response.status(kind.status);
            }
            let date = httpdate::fmt_http_date(epoch(stand.now.as_secs()));
            response = response.header("date", date);
            for (name, value) in (kind.fields)(&stand) {
                response = response.header(name, value);
            }
            sleep(back).await;
            Ok::<_, Infallible>(response.body(()).unwrap())
        }
    });
    let start = Instant::now();
    let backoff = ExponentialBackoff::builder().build_with_max_retries(100);
    let retry = RetryLayer::new().max_wait(DAY).tries(100).backoff(backoff);
    let client = retry.layer(pacing.layer(network));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..125 {
                let response = client.clone().oneshot(Request::new(())).await.unwrap();
                assert_eq!(response.status(), 200);
            }
        });
    }
    tasks.join_all().await;
    let (begin, end) = (BEGIN.as_secs_f64(), (BEGIN + start.elapsed()).as_secs_f64());
    let period = kind.period.as_secs_f64();
    let periods = match kind.counts {
        Counts::Windows => (end / period).floor() - (begin / period).floor(),
        _ => (end - begin) / period,
    };
    let allowed = f64::from(kind.quota) * (1.0 + periods);
    let refused = server.lock().unwrap().refused;
    Outcome { refused, share: 1_000.0 / allowed }
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_server_that_shows_its_limit_refuses_none_of_1000_requests() {
    // In CI each kind is asked in both ways, and otherwise each second one in the same way.
    let played = usize::try_from(times(2, 1)).unwrap();
    let mut faults = Vec::new();
    for (nth, kind) in KINDS.iter().enumerate() {
        let pacing = PacingLayer::new().max_wait(DAY);
        let known = pacing.clone().quota(kind.quota, kind.period);
        // A client that knows the quota is never refused.
        let ways = [(pacing, kind.refused), (known, 0)];
        for (pacing, refused) in ways.into_iter().cycle().skip(nth % 2).take(played) {
            let outcome = run(kind, pacing).await;
            println!("{}: {outcome:?}", kind.name);
            if outcome.refused > refused || outcome.share < kind.share {
                faults.push(format!("{}: {outcome:?}", kind.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
