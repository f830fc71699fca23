//! No secret that a client sends appears in a key, an error, the log or the store.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{HeaderValue, Request, Response};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::key::{self, Head, KeyExtractor, api_key, bearer, cookie};
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tollgate_testing::at_once;
use tower::{Layer, ServiceExt};

use tollgate_testing::log::log_of;

/// A store that records the keys that it is charged for or told to reset.
#[derive(Clone, Debug, Default)]
struct Seen {
    memory: Arc<Memory>,
    keys: Arc<Mutex<Vec<u8>>>,
    is_down: bool,
}

impl Backend for Seen {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        for charge in charges {
            self.keys.lock().unwrap().extend_from_slice(charge.id().key().as_bytes());
        }
        match self.is_down {
            true => Answer::Ready(Err(BackendError::unavailable("seen", "it is down"))),
            false => self.memory.apply(charges),
        }
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.memory.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}

/// However requests with secrets go, no secret is in a key, an error, the log, or at the store.
#[test]
fn a_secret_is_nowhere_but_in_the_request() {
    const SECRET: &str = "s3cret0123456789";
    let mut told = String::new();
    let store = Seen::default();
    let log = log_of(|| {
        for is_down in [false, true] {
            let limiter = RateLimiter::new(Seen { is_down, ..store.clone() });
            let limit = Limit::new("l", Quota::token_bucket(1, MINUTE));
            let layers = [
                limiter.layer(limit.clone()).key(bearer()),
                limiter.layer(limit.clone()).key(api_key("x-api-key")),
                limiter.layer(limit.clone()).key(cookie("id")),
                limiter.layer(limit.clone()).key((bearer(), api_key("x-api-key"), cookie("id"))),
                limiter.layer(limit).key(bearer().or(cookie("id")).unless(|_| false)),
            ];
            for layer in layers {
                let inner = tower::service_fn(async |_: Request<()>| {
                    Ok::<_, Infallible>(Response::new(()))
                });
                let service = layer.layer(inner);
                for (name, value) in [
                    ("authorization", format!("Bearer {SECRET}")),
                    ("authorization", format!("Bearer {SECRET}, {SECRET}")),
                    ("authorization", format!("Basic {SECRET}")),
                    ("x-api-key", SECRET.repeat(100)),
                    ("cookie", format!("id={SECRET}; id={SECRET}2")),
                ] {
                    let mut request = Request::builder()
                        .header("authorization", format!("Bearer {SECRET}"))
                        .header("x-api-key", SECRET)
                        .header("cookie", format!("id={SECRET}"))
                        .body(())
                        .unwrap();
                    request.headers_mut().insert(name, HeaderValue::from_str(&value).unwrap());
                    let response = at_once(service.clone().oneshot(request)).unwrap();
                    told += &format!("{:?} {service:?}", response.map(drop).into_parts().0);
                }
            }
        }
    });
    let broken = Request::builder().header("authorization", format!("Bearer {SECRET}\""));
    let error = bearer().extract(&Head::new(&broken.body(()).unwrap())).unwrap_err();
    told += &format!("{error} {error:?} {:?}", key::digest(SECRET));
    assert!(
        log.contains("refused") && log.contains("no key") && log.contains("could not decide"),
        "{log}"
    );
    assert!(told.contains(&key::digest(SECRET).to_string()), "{told}");
    let keys = store.keys.lock().unwrap();
    for part in [&SECRET[..8], &SECRET[8..]] {
        assert!(!log.contains(part) && !told.contains(part), "{log}\n{told}");
        assert!(!keys.windows(part.len()).any(|window| window == part.as_bytes()));
    }
    assert!(keys.len() > 100, "the store was asked");
}
