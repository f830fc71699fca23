//! Tests of tollgate over several stores; see `tests`. The examples of guides that need other crates than
//! the root are tested here.

/// A type for each page, whose documentation it is.
#[cfg(doctest)]
macro_rules! pages {
    ($($page:ident: $file:literal,)*) => {$(
        #[doc = include_str!(concat!("../../../docs/", $file))]
        struct $page;
    )*};
}

#[cfg(doctest)]
pages! {
    Observing: "observing.md",
    Shards: "shards.md",
    Testing: "testing.md",
    WhenTheStoreFails: "when-the-store-fails.md",
    WriteYourOwnBackend: "write-your-own-backend.md",
}
