//! The fields that a thread has made last. Most responses of a limit say the same few numbers, and
//! to share a text costs less than to write it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

/// Stands for a text that fields begin with, of all that the process has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Serial(u64);

impl Serial {
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// All that the value of a field depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MemberKey {
    pub(super) serial: Serial,
    pub(super) remaining: u64,
    pub(super) seconds: u64,
}

struct Kept {
    key: MemberKey,
    /// `None` after the first request for it: the value of a field that does not come again is not
    /// shared, which would take one more allocation.
    value: Option<HeaderValue>,
}

/// A power of two. They take some 4 KB of each thread, and the texts.
const KEPT: usize = 64;

thread_local! {
    static MEMBERS: RefCell<[Kept; KEPT]> = const { RefCell::new([const { Kept::NOTHING }; KEPT]) };
}

impl Kept {
    const NOTHING: Self =
        Self { key: MemberKey { serial: Serial(0), remaining: 0, seconds: 0 }, value: None };
}

/// The value for this key, as it was made before or as `make` makes it.
#[inline]
pub(super) fn member(
    key: MemberKey,
    make: impl Fn() -> Option<HeaderValue>,
) -> Option<HeaderValue> {
    let look = |members: &RefCell<[Kept; KEPT]>| {
        let mut members = members.try_borrow_mut().ok()?;
        let place = usize::try_from((key.remaining ^ key.serial.0) & MASK).unwrap_or(0);
        let kept = members.get_mut(place)?;
        if kept.key != key {
            *kept = Kept { key, value: None };
            return None;
        }
        if kept.value.is_none() {
            kept.value = make();
        }
        kept.value.clone()
    };
    // A thread that ends keeps nothing any more.
    MEMBERS.try_with(look).ok().flatten().or_else(make)
}

const MASK: u64 = 63;

const _: () = assert!(KEPT == 64, "the mask is one less than the number of places");

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_key_has_its_own_value_and_the_third_request_makes_none() {
        let made = Cell::new(0);
        let serials = [Serial::next(), Serial::next()];
        for (nth, remaining) in (0..300).flat_map(|remaining| [(0, remaining), (1, remaining)]) {
            let key = MemberKey { serial: serials[nth], remaining, seconds: remaining / 7 };
            let text = format!("{nth} {remaining}");
            let value = || {
                made.set(made.get() + 1);
                HeaderValue::try_from(text.clone()).ok()
            };
            for _ in 0..4 {
                assert_eq!(member(key, value).unwrap(), text);
            }
            assert_eq!(made.replace(0), 2, "one for the first request, and one for all others");
            let other = MemberKey { seconds: 1_000, ..key };
            assert_eq!(member(other, || HeaderValue::try_from("other").ok()).unwrap(), "other");
        }
    }
}
