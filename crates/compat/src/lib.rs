//! Tests of tollgate with other crates; see `tests`. The examples of guides that need them are tested
//! here.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/graphql-and-rpc.md")]
struct GraphqlAndRpc;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/keys-and-proxies.md")]
struct KeysAndProxies;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes.md")]
struct Recipes;
