//! A quota with a name, as the wrappers of stores see a limit.

use crate::quota::Quota;

/// A quota with a name: a [`Limit`](crate::Limit), for wrappers that treat some limits differently.
///
/// # Examples
///
/// ```
/// use tollgate::backend::NamedQuota;
/// use tollgate::{HOUR, Limit, Quota};
///
/// fn describe(limit: &impl NamedQuota) -> String {
///     format!("{}: {}", limit.limit_name(), limit.limit_quota())
/// }
///
/// let exports = Limit::new("exports", Quota::token_bucket(10, HOUR));
/// assert_eq!(describe(&exports), "exports: 10 per hour");
/// ```
pub trait NamedQuota {
    /// The name of the limit.
    fn limit_name(&self) -> &str;

    /// The numbers of the limit.
    fn limit_quota(&self) -> &Quota;
}
