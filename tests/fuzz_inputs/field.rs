//! How inputs are written down, and what a header field can hold.

use http::HeaderValue;
use tollgate_testing::fuzz::field::Field;

#[test]
fn what_is_written_down_is_read_back() {
    for text in ["", "a", "\\sa\\n\\tb\\x80 \\\\ c\\s", "a\\r\\n", "(absent)", "\\(3*ab)"] {
        let field = Field::written(text);
        assert_eq!(Field::written(&format!("{field:?}")), field, "{text}");
    }
    assert_eq!(Field::written("\\(3*ab)\\n"), Field(vec![b"ababab".to_vec(), Vec::new()]));
}

/// What the parsers rely on: no NUL, no line break, and of the blanks of ASCII only two.
#[test]
fn a_field_has_no_control_character_but_the_tab() {
    for byte in 0..=u8::MAX {
        let is_in = HeaderValue::from_bytes(&[b'a', byte, b'a']).is_ok();
        assert_eq!(is_in, byte == b'\t' || (byte >= 0x20 && byte != 0x7f), "{byte:#x}");
    }
}
