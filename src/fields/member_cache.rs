//! The fields that a thread has made last. Most responses of a limit say the same few numbers, and
//! to share a text costs less than to write it.

use std::cell::RefCell;

use http::HeaderValue;

/// All that the value of a field depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MemberKey {
    /// Where the text is that the field begins with. Such texts stay where they are.
    policy: usize,
    remaining: u64,
    seconds: u64,
}

impl MemberKey {
    #[inline]
    pub(super) fn new<P>(policy: &'static P, remaining: u64, seconds: u64) -> Self {
        Self { policy: (&raw const *policy).addr(), remaining, seconds }
    }
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
        Self { key: MemberKey { policy: 0, remaining: 0, seconds: 0 }, value: None };
}

/// The value for this key, as it was made before or as `make` makes it.
#[inline]
pub(super) fn member(
    key: MemberKey,
    make: impl Fn() -> Option<HeaderValue>,
) -> Option<HeaderValue> {
    let look = |members: &RefCell<[Kept; KEPT]>| {
        let mut members = members.try_borrow_mut().ok()?;
        let number = usize::try_from(key.remaining & 0xffff).unwrap_or(0);
        // Texts are at least 64 bytes apart.
        let kept = members.get_mut((number ^ (key.policy / 64)) % KEPT)?;
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_key_has_its_own_value_and_the_third_request_makes_none() {
        let made = Cell::new(0);
        static POLICIES: [[u8; 64]; 2] = [[0; 64]; 2];
        for (nth, remaining) in (0..300).flat_map(|remaining| [(0, remaining), (1, remaining)]) {
            let key = MemberKey::new(&POLICIES[nth], remaining, remaining / 7);
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
