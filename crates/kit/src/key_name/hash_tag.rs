//! The part of a name that chooses its slot of a cluster.

/// Which slot of a Redis cluster a bucket goes to.
///
/// A cluster spreads its keys over 16,384 slots, each of which lives on one node. What is charged
/// together, all or nothing, has to be in one slot: on a cluster, a request that names several
/// buckets needs a tag that they share. Single servers, and those behind sentinels, need none.
///
/// The tag is part of the names of the buckets, so another tag means other buckets, which begin
/// full.
///
/// # Examples
///
/// A limit for each tenant and one for each of its users, with the keys `"acme"` and `("acme",
/// "alice")`, can be charged together with [`FirstPart`](Self::FirstPart). A limit for all requests
/// cannot be charged with them, as its key has no part.
///
/// ```
/// use tollgate_redis::HashTag;
///
/// // {acme}:per-tenant:acme   {acme}:per-user:acme|alice
/// let by_tenant = HashTag::FirstPart;
///
/// // {shop}:per-tenant:acme   {shop}:signups:*   {shop}:per-user:acme|alice
/// let one_node = HashTag::Fixed("shop".into());
///
/// assert_eq!(HashTag::default(), HashTag::Bucket);
/// # drop((by_tenant, one_node));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashTag {
    /// Each bucket by its whole name: buckets, and the shards of a limit, spread over the cluster.
    ///
    /// On a cluster, two buckets then rarely share a slot and so can rarely be charged together.
    #[default]
    Bucket,
    /// The first part of the key, such as a tenant: the buckets of all keys that begin alike share
    /// a slot, and can be charged together, whatever their limits and shards.
    ///
    /// A [fallback](tollgate::Key::fallback) begins like the key that it is made of. The
    /// [key that all requests share](tollgate::Key::GLOBAL) has no part: its buckets go by their
    /// whole names.
    FirstPart,
    /// One for the whole limiter: every bucket is on one node, and all can be charged together.
    ///
    /// It is 1 to 64 letters, digits and `-_.~@+/:`.
    Fixed(String),
}
