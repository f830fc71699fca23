//! A store that fails.

use tollgate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};

/// A store that cannot be reached, and says so at once or later.
#[derive(Debug)]
pub struct Broken {
    /// Whether it says so later.
    pub later: bool,
}

impl Broken {
    fn fail<T: Send + 'static>(&self) -> Answer<T> {
        let cause = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = BackendError::unavailable("broken", cause);
        match self.later {
            false => Answer::Ready(Err(error)),
            true => Answer::pending(async { Err(error) }),
        }
    }
}

impl Backend for Broken {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        self.fail()
    }
    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        self.fail()
    }
    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        self.fail()
    }
}
