//! The conversions of values into keys.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::key::{Key, tag};

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::from_content(tag::TEXT, text.as_bytes())
    }
}

/// Texts are copied, not kept: a key that fits inline is cheaper to compare than one on the heap.
macro_rules! texts {
    ($($type:ty),*) => {$(
        impl From<$type> for Key {
            #[inline]
            fn from(text: $type) -> Self {
                Self::from(&*text)
            }
        }

        impl From<&$type> for Key {
            #[inline]
            fn from(text: &$type) -> Self {
                Self::from(&**text)
            }
        }
    )*};
}

texts!(String, Arc<str>, Cow<'_, str>);

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::from_content(tag::BYTES, bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    fn from(bytes: [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<u64> for Key {
    #[inline]
    fn from(number: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        Self::from_array([tag::NUMBER, a, b, c, d, e, f, g, h])
    }
}

/// A number is the same key whatever its type.
macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl From<$type> for Key {
            #[inline]
            fn from(number: $type) -> Self {
                Self::from(u64::from(number))
            }
        }
    )*};
}

unsigned!(u8, u16, u32);

impl From<usize> for Key {
    #[inline]
    fn from(number: usize) -> Self {
        // No platform has more than 64 bits, so this is lossless.
        Self::from(u64::try_from(number).unwrap_or(u64::MAX))
    }
}

/// Numbers below zero have a tag of their own; others are the same key as unsigned ones.
impl From<i64> for Key {
    fn from(number: i64) -> Self {
        match u64::try_from(number) {
            Ok(number) => Self::from(number),
            Err(_) => {
                let below_zero = number.unsigned_abs().to_be_bytes();
                Self::concat(&[&[tag::BELOW_ZERO], &below_zero])
            }
        }
    }
}

impl From<i32> for Key {
    fn from(number: i32) -> Self {
        Self::from(i64::from(number))
    }
}

/// The exact address; [`ClientIp`](crate::key::ClientIp) groups IPv6 addresses by network.
impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::from(address),
            IpAddr::V6(address) => Self::from(address),
        }
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self::from_array([tag::V4, a, b, c, d])
    }
}

impl From<Ipv6Addr> for Key {
    fn from(address: Ipv6Addr) -> Self {
        Self::network(address, 128)
    }
}

// A blanket `impl<T: Copy + Into<Key>> From<&T>` would overlap with the one for `&String`: the
// standard library might make `String` implement `Copy`, as far as the compiler knows.
macro_rules! references {
    ($($type:ty),*) => {$(
        impl From<&$type> for Key {
            #[inline]
            fn from(value: &$type) -> Self {
                Self::from(*value)
            }
        }
    )*};
}

references!(&str, &[u8], u8, u16, u32, u64, usize, i32, i64, IpAddr, Ipv4Addr, Ipv6Addr);

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl<A: Into<Key>, B: Into<Key>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        a.into().and(b)
    }
}

impl<A: Into<Key>, B: Into<Key>, C: Into<Key>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().and(b).and(c)
    }
}

// The parts are cloned, as `&A: Into<Key>` would be a bound that refers to itself: with it, the
// compiler gives up (E0275) on `Key::from(&*text)` and its like, before it knows the type.
impl<A: Clone + Into<Key>, B: Clone + Into<Key>> From<&(A, B)> for Key {
    fn from(parts: &(A, B)) -> Self {
        Self::from(parts.clone())
    }
}

impl<A, B, C> From<&(A, B, C)> for Key
where
    A: Clone + Into<Key>,
    B: Clone + Into<Key>,
    C: Clone + Into<Key>,
{
    fn from(parts: &(A, B, C)) -> Self {
        Self::from(parts.clone())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::needless_borrows_for_generic_args, reason = "references are the subject")]

    use super::*;

    /// The parameter of `key(..)` on calls: types have to be inferred from the argument alone.
    fn key(key: impl Into<Key>) -> Key {
        key.into()
    }

    #[test]
    #[cfg(feature = "memory")]
    fn calls_take_the_references_that_an_iterator_yields() {
        use crate::limiter::{Limit, RateLimiter};
        use crate::quota::{MINUTE, Quota};

        const ANY: Limit = Limit::new("any", Quota::token_bucket(1, MINUTE));
        let limiter = RateLimiter::in_memory();
        for user in &["alice".to_owned(), "bob".to_owned()] {
            drop(limiter.limit(&ANY).key(user));
        }
        for user in &["alice", "bob"] {
            drop(limiter.limit(&ANY).key(user));
        }
        for (user, address) in
            &[(7_u64, IpAddr::V4(Ipv4Addr::LOCALHOST)), (8, Ipv6Addr::LOCALHOST.into())]
        {
            drop(limiter.limit(&ANY).key((user, address)));
        }
    }

    #[test]
    fn a_text_gives_the_same_key_whatever_type_holds_it() {
        for text in ["", "alice", "a text that is longer than what a key holds in place"] {
            let wanted = Key::from(text);
            let (owned, shared): (String, Arc<str>) = (text.into(), text.into());
            let (borrowed, cow) = (Cow::Borrowed(text), Cow::<str>::Owned(text.into()));
            let by_reference =
                [key(&text), key(&owned), key(&shared), key(&borrowed), key(&cow), key(&wanted)];
            assert!(by_reference.iter().all(|found| *found == wanted), "{by_reference:?}");
            let by_value = [key(text), key(owned), key(shared), key(borrowed), key(cow)];
            assert!(by_value.iter().all(|found| *found == wanted), "{by_value:?}");
        }
    }

    #[test]
    fn a_number_gives_the_same_key_whatever_its_type() {
        let wanted = key(7_u64);
        let by_value =
            [key(7_u8), key(7_u16), key(7_u32), key(7_usize), key(7_i32), key(7_i64), key(7)];
        assert!(by_value.iter().all(|found| *found == wanted), "{by_value:?}");
        let by_reference =
            [key(&7_u8), key(&7_u16), key(&7_u32), key(&7_u64), key(&7_usize), key(&7_i32)];
        assert!(by_reference.iter().all(|found| *found == wanted), "{by_reference:?}");
        assert_eq!(key(&-7_i64), key(-7));
        assert_ne!(key(-7), wanted);
        assert_eq!(key(usize::MAX), key(u64::try_from(usize::MAX).unwrap()));
        assert_ne!(key("7"), wanted);
    }

    #[test]
    fn an_address_gives_the_same_key_by_value_and_by_reference() {
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        for (wanted, address) in [(key(v4), IpAddr::V4(v4)), (key(v6), IpAddr::V6(v6))] {
            assert_eq!([key(address), key(&address)], [wanted.clone(), wanted]);
        }
        assert_eq!([key(&v4), key(&v6)], [key(v4), key(v6)]);
    }

    #[test]
    fn bytes_give_the_same_key_in_arrays_and_in_slices() {
        let id = [7_u8; 16];
        let keys = [key(id), key(&id), key(&id[..]), key(&&id[..])];
        assert!(keys.iter().all(|found| *found == keys[0]), "{keys:?}");
        assert_ne!(key(*b"alice"), key("alice"));
    }

    #[test]
    fn a_tuple_gives_the_key_of_its_parts_by_value_and_by_reference() {
        let (tenant, user) = (String::from("acme"), 7_u64);
        let wanted = key("acme").and(7);
        assert_eq!([key((&tenant, user)), key((&tenant, &user))], [wanted.clone(), wanted.clone()]);
        let pair = (tenant, user);
        assert_eq!([key(&pair), key(&pair.0).and(pair.1)], [wanted.clone(), wanted.clone()]);
        assert_eq!(key(pair), wanted);

        let triple = ("acme", Ipv4Addr::LOCALHOST, String::from("alice"));
        let wanted = key("acme").and(Ipv4Addr::LOCALHOST).and("alice");
        assert_eq!([key(&triple), key(triple)], [wanted.clone(), wanted.clone()]);
        // Parts do not run together.
        assert_ne!(key(("ab", "c")), key(("a", "bc")));
        assert_eq!(key(("a", ("b", "c"))), key(("a", "b", "c")));
    }
}
