//! Fields about limits that the inner service has sent, such as those of the upstream of a gateway.

use http::{HeaderMap, HeaderName};

/// What becomes of fields about limits that are in a response already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ForeignFields {
    /// The limits of this layer come first in lists, and those of others follow, each name once. What
    /// is not a list of the same draft is dropped, as no parser reads both. In a field with room for
    /// one limit, and of two limits of one name, that of this layer stands, except in a refusal of the
    /// inner service.
    #[default]
    Keep,
    /// Fields that this layer sends replace those of the same names.
    Replace,
    /// All fields about limits are removed, of whatever dialect.
    Remove,
}

/// Removes all fields about limits.
#[cold]
pub(super) fn remove_all(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| is_about_limits(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn is_about_limits(name: &str) -> bool {
    let name = name.strip_prefix("x-").unwrap_or(name);
    let prefixes = ["ratelimit-", "rate-limit-"];
    name == "ratelimit" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}
