//! Names that are near enough to be what was meant, and lists of names.

use crate::suggestion::{Quote, list, nearest, way_out};

#[test]
fn a_name_is_near_if_two_letters_or_a_third_of_it_differ_at_most() {
    let names = ["capacity", "cost", "key", "max_waiters", "a"];
    for (given, wanted) in [
        ("capcity", Some("capacity")),
        ("cpacity", Some("capacity")),
        ("cpacityy", Some("capacity")),
        ("cpcty", None),
        ("CAPACITY", Some("capacity")),
        ("ky", Some("key")),
        ("ke", Some("key")),
        ("kye", Some("key")),
        ("max_waiter", Some("max_waiters")),
        ("b", None),
        ("A", Some("a")),
        ("", None),
    ] {
        assert_eq!(nearest(given, names), wanted, "{given}");
    }
    // Long names take no time.
    let long = "x".repeat(1 << 20);
    assert_eq!(nearest(&long, names), None);
    assert_eq!(nearest("capacity", [&*long]), None);
}

#[test]
fn the_way_out_is_the_near_name_or_all_of_them() {
    assert_eq!(way_out("kez", &["key", "cost"], Quote::Code), "did you mean `key`?");
    assert_eq!(way_out("x", &["key", "cost"], Quote::Text), "there are \"key\" and \"cost\"");
    assert_eq!(list(&[], Quote::Text), "none");
    assert_eq!(list(&["a"], Quote::Code), "`a`");
    assert_eq!(list(&["a", "b", "c"], Quote::Code), "`a`, `b` and `c`");
    let many: Vec<_> = (0..42).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let shown = list(&many, Quote::Code);
    assert!(shown.ends_with(", `39` and 2 more"), "{shown}");
}
