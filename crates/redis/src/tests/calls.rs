//! The calls of a limiter in a history, and all that can be seen of their answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tollgate::backend::Key;
use tollgate::limiter::{Permit, Reservation};
use tollgate::{Limit, RateLimited, RateLimiter};
use tollgate_testing::queue::Turn;

pub(super) fn keys() -> [Key; 2] {
    [Key::GLOBAL, Key::from("alice")]
}

/// A call on limits, which are given by their indices.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Take(Vec<CallTarget>, Option<Duration>),
    Peek(CallTarget),
    Reset(CallTarget),
    Penalize(CallTarget),
    Block(CallTarget, Duration),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallTarget {
    pub(super) limit: usize,
    pub(super) key: usize,
    pub(super) cost: Option<u64>,
}

/// What a test does next with a permit or a reservation.
#[derive(Clone, Copy, Debug)]
pub(super) enum FollowUp {
    Drop,
    Keep,
    StandInLine,
    Settle(u64),
    Refund,
}

/// What a test holds after an answer.
pub(super) enum Holding {
    Nothing,
    Permit(Permit<'static>),
    Reservation(Reservation),
    InLine(Turn),
}

impl Holding {
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Reservation(reservation) => !reservation.wait().is_zero(),
            Self::InLine(_) => true,
            Self::Permit(_) | Self::Nothing => false,
        }
    }
}

/// Makes a call, and returns all that can be seen of its answer.
pub(super) async fn run_step(
    limiter: &RateLimiter,
    limits: &[Limit],
    step: &Step,
) -> (String, Holding) {
    let key = |ask: &CallTarget| keys()[ask.key].clone();
    let limit = |ask: &CallTarget| &limits[ask.limit];
    let seen = match step {
        Step::Take(asks, wait) => {
            let [first, rest @ ..] = asks.as_slice() else { panic!("nothing is asked") };
            let mut call = limiter.limit(limit(first)).key(key(first));
            if let Some(cost) = first.cost {
                call = call.cost(cost);
            }
            for ask in rest {
                call = call.and(limit(ask)).key(key(ask));
                if let Some(cost) = ask.cost {
                    call = call.cost(cost);
                }
            }
            return match *wait {
                Some(Duration::MAX) => see_reservation(call.reserve().await),
                Some(wait) => see_reservation(call.reserve_within(wait).await),
                None => see_permit(call.await.map(Permit::into_owned)),
            };
        }
        Step::Peek(one) => {
            let call = limiter.peek(limit(one)).key(key(one));
            let snapshot = match one.cost {
                Some(cost) => call.cost(cost).await,
                None => call.await,
            };
            format!("{snapshot:?}")
        }
        Step::Reset(one) => format!("{:?}", limiter.reset(limit(one)).key(key(one)).await),
        Step::Penalize(one) => {
            let call = limiter.penalize(limit(one), one.cost.unwrap_or(3)).key(key(one));
            format!("{:?}", call.await)
        }
        Step::Block(one, time) => {
            format!("{:?}", limiter.block(limit(one), *time).key(key(one)).await)
        }
    };
    (seen, Holding::Nothing)
}

fn see_permit(answer: Result<Permit<'static>, RateLimited>) -> (String, Holding) {
    match answer {
        Ok(permit) => {
            let seen = format!("{permit:?} {} {:?}", permit.remaining(), permit.snapshot());
            (seen, Holding::Permit(permit))
        }
        Err(error) => see_error(&error),
    }
}

fn see_reservation(answer: Result<Reservation, RateLimited>) -> (String, Holding) {
    match answer {
        Ok(reservation) => {
            let snapshots: Vec<_> = reservation.snapshots().collect();
            let seen = format!("{:?} {:?} {snapshots:?}", reservation.at(), reservation.wait());
            (seen, Holding::Reservation(reservation))
        }
        Err(error) => see_error(&error),
    }
}

fn see_error(error: &RateLimited) -> (String, Holding) {
    let (retry_after, snapshots) = (error.retry_after(), error.snapshots());
    (format!("{error} {error:?} {retry_after:?} {snapshots:?}"), Holding::Nothing)
}

/// Does the next thing with what the test holds.
pub(super) async fn follow_up(held: Holding, next: FollowUp) -> (String, Holding) {
    match (held, next) {
        (Holding::Permit(permit), FollowUp::Settle(actual)) => {
            (format!("{:?}", permit.settle(actual).await), Holding::Nothing)
        }
        (Holding::Permit(permit), FollowUp::Refund) => {
            (format!("{:?}", permit.refund().await), Holding::Nothing)
        }
        (
            Holding::Reservation(reservation),
            FollowUp::Keep | FollowUp::Settle(_) | FollowUp::Refund,
        ) => {
            let permit = reservation.keep();
            (format!("{permit:?}"), Holding::Permit(permit))
        }
        (Holding::Reservation(reservation), FollowUp::StandInLine) => {
            let mut ready = Box::pin(reservation.ready());
            let turn = poll_fn(|cx| Poll::Ready(ready.as_mut().poll(cx))).await;
            match turn {
                Poll::Ready(permit) => (format!("{permit:?}"), Holding::Permit(permit)),
                Poll::Pending => ("in line".to_owned(), Holding::InLine(ready)),
            }
        }
        (Holding::InLine(ready), FollowUp::Drop) => {
            drop(ready);
            ("left the line".to_owned(), Holding::Nothing)
        }
        (held, FollowUp::Drop) => {
            drop(held);
            ("dropped".to_owned(), Holding::Nothing)
        }
        (held, _) => (String::new(), held),
    }
}

/// The states of all buckets, which are read at the same time.
pub(super) async fn look(limiter: &RateLimiter, limits: &[Limit]) -> String {
    let buckets = limits.iter().flat_map(|limit| keys().map(|key| (limit, key)));
    let call = |(limit, key): (_, Key)| limiter.peek(limit).key(key);
    let mut calls: Vec<_> = buckets.map(|bucket| (call(bucket), None)).collect();
    poll_fn(|cx| {
        for (call, answer) in &mut calls {
            if answer.is_none()
                && let Poll::Ready(snapshot) = Pin::new(call).poll(cx)
            {
                *answer = Some(snapshot.unwrap().state());
            }
        }
        let is_over = calls.iter().all(|(_, answer)| answer.is_some());
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let answers = calls.iter().flat_map(|(_, answer)| answer);
    format!("{:?}", answers.collect::<Vec<_>>())
}

/// Waits until everything that was given up is undone, handed on or spent. Such tasks ask the store
/// again after each answer, so wait until nothing changes any more.
pub(super) async fn settled(limiter: &RateLimiter, limits: &[Limit]) -> String {
    let (mut before, mut same) = (String::new(), 0);
    while same < 2 {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        let now = look(limiter, limits).await;
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    before
}
