//! The names of all fields that a configuration has.
//!
//! Each table of the file has an enum of its fields, and is read by a `match` over it. The tests
//! give each field a value that is wrong, so that none can be declared and not read, and compare
//! the names with the reference in `docs/configuration.md` and with the schema.

/// The fields of one table.
pub(super) trait FieldName: Copy + Eq + 'static {
    const ALL: &'static [Self];

    fn name(self) -> &'static str;
}

macro_rules! field_names {
    ($($(#[$attribute:meta])* $visible:vis enum $table:ident {
        $($field:ident = $name:literal,)*
    })*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $table {
            $($field,)*
        }

        impl FieldName for $table {
            const ALL: &'static [Self] = &[$(Self::$field,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$field => $name,)*
                }
            }
        }
    )*};
}

field_names! {
    /// The fields of the file as a whole.
    pub(super) enum FileField {
        Limits = "limits",
        ClientAddress = "client_address",
        Dialects = "dialects",
        OnRefusal = "on_refusal",
        OnFailure = "on_failure",
        Enabled = "enabled",
    }

    /// The fields of `client_address`.
    pub(super) enum AddressOption {
        From = "from",
        TrustedProxies = "trusted_proxies",
        TrustedHops = "trusted_hops",
        Ipv6Prefix = "ipv6_prefix",
    }

    /// The fields of one limit, in the order of the reference.
    pub(super) enum LimitField {
        Quota = "quota",
        Kind = "kind",
        Rate = "rate",
        Per = "per",
        Capacity = "capacity",
        MaxReserved = "max_reserved",
        Initial = "initial",
        Start = "start",
        Shards = "shards",
        Name = "name",
        OnFailure = "on_failure",
        Key = "key",
        MissingKey = "missing_key",
        Cost = "cost",
        Methods = "methods",
        ExemptPaths = "exempt_paths",
        ExemptNetworks = "exempt_networks",
        Sample = "sample",
        Enforce = "enforce",
        Shadow = "shadow",
        RefundIf = "refund_if",
        RefundUnless = "refund_unless",
        ResetIf = "reset_if",
        BlockAfter = "block_after",
        Enabled = "enabled",
        Queue = "queue",
        Jitter = "jitter",
        Dialects = "dialects",
        RetryAfter = "retry_after",
        PartitionKey = "partition_key",
        OnRefusal = "on_refusal",
        Settle = "settle",
        RefundDropped = "refund_dropped",
        Expose = "expose",
    }

    /// The fields of the `queue` of a limit.
    pub(super) enum QueueField {
        MaxWait = "max_wait",
        MaxWaiters = "max_waiters",
        MaxWaitersPerKey = "max_waiters_per_key",
        OnFull = "on_full",
        Stay = "stay",
    }

    /// The fields of the `block_after` of a limit.
    pub(super) enum BlockField {
        Refusals = "refusals",
        Within = "within",
        Time = "time",
        Longest = "longest",
    }
}

/// What a field of a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// The numbers, which may change while the program runs.
    Numbers,
    /// The limit, in layers and in handlers.
    Limit,
    /// The rule that a layer makes of the limit.
    Rule,
    /// The layer as a whole.
    Layer,
}

impl LimitField {
    pub(super) const fn concern(self) -> Concern {
        match self {
            Self::Quota
            | Self::Kind
            | Self::Rate
            | Self::Per
            | Self::Capacity
            | Self::MaxReserved
            | Self::Initial
            | Self::Start
            | Self::Shards => Concern::Numbers,
            Self::Name | Self::OnFailure => Concern::Limit,
            Self::Key
            | Self::MissingKey
            | Self::Cost
            | Self::Methods
            | Self::ExemptPaths
            | Self::ExemptNetworks
            | Self::Sample
            | Self::Enforce
            | Self::Shadow
            | Self::RefundIf
            | Self::RefundUnless
            | Self::ResetIf
            | Self::BlockAfter
            | Self::Enabled => Concern::Rule,
            Self::Queue
            | Self::Jitter
            | Self::Dialects
            | Self::RetryAfter
            | Self::PartitionKey
            | Self::OnRefusal
            | Self::Settle
            | Self::RefundDropped
            | Self::Expose => Concern::Layer,
        }
    }
}
