//! The checks, by what they are about.

mod adjustments;
mod cancelling;
mod charges;
mod concurrency;
mod debtors;
mod names;
mod quotas;
mod random;
mod time;

pub(super) use self::adjustments::*;
pub(super) use self::cancelling::*;
pub(super) use self::charges::*;
pub(super) use self::concurrency::*;
pub(super) use self::debtors::*;
pub(super) use self::names::*;
pub(super) use self::quotas::*;
pub(super) use self::random::*;
pub(super) use self::time::*;
