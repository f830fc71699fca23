//! The parameters of a query.

use std::borrow::Cow;

use super::error::AdminError;
use tollgate::backend::{Debtor, DebtorQuery};
use tollgate::kit::excerpt;
use tollgate::limiter::DebtorsCall;

/// The largest page.
const MAX: usize = 1_000;

/// What a list is asked for.
#[derive(Debug)]
pub(super) struct ListQuery {
    /// One of the two words for the state of a bucket.
    pub(super) kind: Option<&'static str>,
    pub(super) max: usize,
    pub(super) after: Option<String>,
}

impl ListQuery {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, AdminError> {
        let mut parsed = Self { kind: None, max: DebtorQuery::MAX, after: None };
        for parameter in parameters(query) {
            let (name, value) = parameter?;
            match &*name {
                "state" => parsed.kind = Some(kind(&value)?),
                "max" => {
                    let max = value.parse().ok().filter(|max| (1..=MAX).contains(max));
                    parsed.max = max.ok_or_else(|| {
                        AdminError::bad_request(format!(
                            "max `{}` is not a whole number from 1 to {MAX}",
                            excerpt(&value)
                        ))
                    })?;
                }
                "after" => parsed.after = Some(value.into_owned()),
                _ => return Err(unknown(&name, "`state`, `max` and `after`")),
            }
        }
        Ok(parsed)
    }

    /// The query of the page behind this one.
    pub(super) fn following(&self, next: &str) -> String {
        let state = self.kind.map_or(String::new(), |kind| format!("&state={kind}"));
        format!("?after={}&max={}{state}", super::path::encode(next), self.max)
    }

    /// The call for the state that is asked for.
    pub(super) fn only<'l>(&self, call: DebtorsCall<'l>) -> DebtorsCall<'l> {
        match self.kind {
            None => call,
            Some(BLOCKED) => call.only_blocked(),
            Some(_) => call.only_in_debt(),
        }
    }
}

pub(super) const BLOCKED: &str = "blocked";
pub(super) const IN_DEBT: &str = "debt";

/// The word for the state of a bucket.
pub(super) fn state_of<S>(debtor: &Debtor<S>) -> &'static str {
    if debtor.is_blocked() { BLOCKED } else { IN_DEBT }
}

fn kind(name: &str) -> Result<&'static str, AdminError> {
    [BLOCKED, IN_DEBT].into_iter().find(|kind| *kind == name).ok_or_else(|| {
        AdminError::bad_request(format!(
            "state `{}` is unknown (use `blocked` or `debt`, or leave it out for both)",
            excerpt(name)
        ))
    })
}

/// The cost that a look is about; 1 if none is given.
pub(super) fn cost(query: Option<&str>) -> Result<u64, AdminError> {
    let mut cost = 1;
    for parameter in parameters(query) {
        let (name, value) = parameter?;
        match &*name {
            "cost" => {
                let wrong = || {
                    let (given, most) = (excerpt(&value), u64::MAX);
                    AdminError::bad_request(format!(
                        "cost `{given}` is not a whole number from 0 to {most}"
                    ))
                };
                cost = value.parse().map_err(|_| wrong())?;
            }
            _ => return Err(unknown(&name, "`cost`")),
        }
    }
    Ok(cost)
}

/// A query where there is none.
pub(super) fn none(query: Option<&str>) -> Result<(), AdminError> {
    match form_urlencoded::parse(query.unwrap_or_default().as_bytes()).next() {
        None => Ok(()),
        Some((name, _)) => Err(unknown(&name, "none")),
    }
}

/// The parameters, each of which may be there once. The caller knows a few names and stops at any other.
fn parameters(
    query: Option<&str>,
) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), AdminError>> {
    let mut seen = Vec::new();
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).map(move |(name, value)| {
        if seen.contains(&name) {
            let name = excerpt(&name);
            return Err(AdminError::bad_request(format!("`{name}` is there twice (give it once)")));
        }
        seen.push(name.clone());
        Ok((name, value))
    })
}

fn unknown(name: &str, there: &str) -> AdminError {
    let name = excerpt(name);
    AdminError::bad_request(format!("`{name}` is not a parameter of this path (there are {there})"))
}
