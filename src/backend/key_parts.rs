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

texts!(String, Arc<str>, Box<str>, Cow<'_, str>);

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::from_content(tag::BYTES, bytes)
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
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

macro_rules! signed {
    ($($type:ty),*) => {$(
        impl From<$type> for Key {
            fn from(number: $type) -> Self {
                Self::from(i64::from(number))
            }
        }
    )*};
}

signed!(i8, i16, i32);

impl From<isize> for Key {
    fn from(number: isize) -> Self {
        // No platform has more than 64 bits, so this is lossless.
        Self::from(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A number that fits into 64 bits is the same key as a `u64`.
impl From<u128> for Key {
    fn from(number: u128) -> Self {
        match u64::try_from(number) {
            Ok(number) => Self::from(number),
            Err(_) => Self::concat(&[&[tag::WIDE], &number.to_be_bytes()]),
        }
    }
}

/// It equals no number and no text.
impl From<bool> for Key {
    fn from(value: bool) -> Self {
        Self::from_array([if value { tag::TRUE } else { tag::FALSE }])
    }
}

/// The key of its 16 bytes: it equals that of `uuid.into_bytes()`, and not that of its text.
#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    fn from(id: uuid::Uuid) -> Self {
        Self::from(id.into_bytes())
    }
}

#[cfg(feature = "uuid")]
impl From<&uuid::Uuid> for Key {
    fn from(id: &uuid::Uuid) -> Self {
        Self::from(*id)
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

references!(&str, &[u8], bool, IpAddr, Ipv4Addr, Ipv6Addr);
references!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, isize);

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

    use proptest::prelude::*;

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
            let boxed: Box<str> = text.into();
            let (borrowed, cow) = (Cow::Borrowed(text), Cow::<str>::Owned(text.into()));
            let by_reference = [key(&text), key(&owned), key(&shared), key(&boxed), key(&wanted)];
            let by_cow = [key(&borrowed), key(&cow)];
            assert!(by_cow.iter().all(|found| *found == wanted), "{by_cow:?}");
            assert!(by_reference.iter().all(|found| *found == wanted), "{by_reference:?}");
            let by_value =
                [key(text), key(owned), key(shared), key(boxed), key(borrowed), key(cow)];
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

    /// The keys of a number by all types that can hold it.
    fn keys_of(number: i128) -> Vec<Key> {
        let unsigned = [
            u8::try_from(number).map(Key::from),
            u16::try_from(number).map(Key::from),
            u32::try_from(number).map(Key::from),
            u64::try_from(number).map(Key::from),
            u128::try_from(number).map(Key::from),
            usize::try_from(number).map(Key::from),
        ];
        let signed = [
            i8::try_from(number).map(Key::from),
            i16::try_from(number).map(Key::from),
            i32::try_from(number).map(Key::from),
            i64::try_from(number).map(Key::from),
            isize::try_from(number).map(Key::from),
        ];
        unsigned.into_iter().chain(signed).flatten().collect()
    }

    /// Numbers around the ends of all types, and any.
    fn numbers() -> impl Strategy<Value = i128> {
        let around = |end: i128| (-2..=2_i128).prop_map(move |off| end + off);
        let ends = [0, 0xff, 0xffff, 0xffff_ffff, i64::MAX.into(), u64::MAX.into()];
        let near = prop::sample::select(ends.to_vec()).prop_flat_map(around);
        prop_oneof![
            near,
            any::<u64>().prop_map(i128::from),
            any::<i64>().prop_map(i128::from),
            (0..=i128::MAX),
        ]
    }

    proptest! {
        #[test]
        fn two_numbers_are_one_key_only_if_they_are_equal(
            (one, other) in (numbers(), numbers()),
        ) {
            let (of_one, of_other) = (keys_of(one), keys_of(other));
            prop_assert!(!of_one.is_empty());
            for key in &of_one {
                prop_assert_eq!(key, &of_one[0]);
                prop_assert_eq!(key.to_string(), one.to_string());
                for different in &of_other {
                    prop_assert_eq!(key == different, one == other);
                }
                // A part never runs into the next one.
                let (twice, thrice) = (key.clone().and(key), key.clone().and(key).and(key));
                prop_assert!(*key != twice && twice != thrice);
            }
        }
    }

    /// Keys are names in Redis, so a bucket would be lost if they changed.
    #[test]
    fn numbers_are_encoded_as_before() {
        assert_eq!(key(7).as_bytes(), b"n\0\0\0\0\0\0\0\x07");
        assert_eq!(key(-7).as_bytes(), b"m\0\0\0\0\0\0\0\x07");
        assert_eq!(key(u128::from(u64::MAX)).as_bytes(), b"n\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(key(1_u128 << 64).as_bytes(), b"w\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0");
        assert_eq!([key(true).as_bytes(), key(&false).as_bytes()], [b"t", b"f"]);
    }

    #[test]
    fn a_bool_is_a_key_of_its_own() {
        let others = [key(1), key(0), key("true"), key("t"), key(""), key([b't']), Key::GLOBAL];
        assert_ne!(key(true), key(false));
        assert!(!others.contains(&key(true)) && !others.contains(&key(false)));
        assert_eq!(key((true, "alice")).to_string(), "true|alice");
    }

    #[test]
    #[cfg(feature = "uuid")]
    fn a_uuid_is_the_key_of_its_bytes() {
        let id = uuid::Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
        assert_eq!([key(id), key(&id)], [key(id.into_bytes()), key(id.as_bytes())]);
        assert_ne!(key(id), key(id.to_string()));
        assert_ne!(key(id), key(id.as_u128()));
        assert_eq!(key((id, 7)), key(id).and(7));
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
