//! What happens to requests while the store does not answer.

/// What happens to requests while the store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// They are answered with 503: nothing gets through uncounted.
    #[default]
    #[doc(alias = "fail_closed")]
    Refuse,
    /// They pass without being charged.
    #[doc(alias = "fail_open")]
    Admit,
}
