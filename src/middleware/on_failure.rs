//! What happens to requests while the store does not answer.

/// What happens to requests while the store does not answer.
///
/// [`Admit`](Self::Admit) is for outages. A request is answered with 503 whatever is chosen here if a
/// client could bring the failure about by itself, and then pass as often as it likes:
///
/// * The store can never decide it: its buckets are in several slots of a cluster, what the store
///   holds under the name is no bucket, or the numbers are too large. The log tells that once.
/// * Its decision was late because too many calls of this process waited to be sent, while the
///   store was answering. A client does that by a flood of its own.
/// * The store has no room for it. A client fills it by keys that it makes up.
///
/// A mistake in the set-up, such as a wrong password, is answered with 503 as well: no limit would
/// count until an operator notices. [`BackendError::is_outage`](crate::backend::BackendError::is_outage)
/// says what is an outage, with a table of what Redis answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// They are answered with 503: nothing gets through uncounted.
    #[default]
    #[doc(alias = "fail_closed")]
    Refuse,
    /// They pass without being charged, while there is an outage.
    #[doc(alias = "fail_open")]
    Admit,
}
