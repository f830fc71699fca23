//! Keys from tokens, API keys, cookies and sessions: which client each stands for, and that no
//! error or log line shows the secret.

use std::collections::HashSet;

use http::Request;
use proptest::prelude::*;
use tollgate::key::{self, Extracted, Head, Key, KeyError, KeyExtractor, api_key, bearer, cookie};
use tollgate_testing::address::headers;

/// A request with these lines of a field.
fn request<L: AsRef<[u8]>>(field: &str, lines: &[L]) -> Request<()> {
    let mut request = Request::new(());
    *request.headers_mut() = headers(field, lines);
    request
}

fn extract<L: AsRef<[u8]>>(
    key: &impl KeyExtractor,
    field: &str,
    lines: &[L],
) -> Result<Extracted, KeyError> {
    key.extract(&Head::new(&request(field, lines)))
}

fn found(secret: &str) -> Result<Extracted, KeyError> {
    Ok(Extracted::Key(key::digest(secret)))
}

#[test]
fn a_digest_is_that_of_sha_256_and_fits_beside_an_address() {
    // FIPS 180-2, appendix B.1.
    assert_eq!(key::digest("abc").to_string(), "ba7816bf8f01cfea414140de5dae2223");
    assert_eq!(key::digest("abc"), key::digest(b"abc"));
    assert_eq!(key::digest("abc").as_bytes().len(), 18);
    let different: HashSet<_> = ["abc", "ABC", "abc ", "", "ab"].map(key::digest).into();
    assert_eq!(different.len(), 5);
}

// Bearer tokens.

#[test]
fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
    for value in ["Bearer mF_9.B5f-4.1JqM", "bearer mF_9.B5f-4.1JqM", "BEARER   mF_9.B5f-4.1JqM "] {
        assert_eq!(extract(&bearer(), "authorization", &[value]), found("mF_9.B5f-4.1JqM"));
    }
    assert_eq!(extract(&bearer(), "authorization", &["Bearer a+/~9=="]), found("a+/~9=="));
    // Tokens that differ in case only are two.
    assert_eq!(
        extract(&bearer(), "authorization", &["Bearer MF_9.b5f-4.1jQm"]),
        found("MF_9.b5f-4.1jQm")
    );
}

#[test]
fn another_scheme_is_no_bearer_token() {
    for lines in [&[][..], &["Basic YWxpY2U6"], &["Bearers abc"], &["Digest"], &["abc"], &["a=b"]] {
        let error = extract(&bearer(), "authorization", lines).unwrap_err();
        assert!(error.is_missing() && !error.is_misconfigured(), "{error}");
        assert_eq!(
            error.to_string(),
            "no key: the request has no bearer token (send `Authorization: Bearer ..`, or choose \
             by `missing_key` what happens without one)"
        );
    }
}

#[test]
fn the_error_of_a_bad_bearer_token_says_why_and_hides_the_value() {
    let long = format!("Bearer {}", "s3cret".repeat(2_000));
    for (lines, message, is_empty) in [
        (
            &["Bearer"][..],
            "the bearer token is empty (send a token, or no `authorization` header)",
            true,
        ),
        (
            &["Bearer  "],
            "the bearer token is empty (send a token, or no `authorization` header)",
            true,
        ),
        (&[""], "the `authorization` header is empty (send a value, or no header)", true),
        (
            &["Bearer s3cret, s3cret"],
            "the bearer token is malformed (it may have letters, digits and `-._~+/`, and `=` at \
             its end)",
            false,
        ),
        (
            &["Bearer s3=cret"],
            "the bearer token is malformed (it may have letters, digits and `-._~+/`, and `=` at \
             its end)",
            false,
        ),
        (
            &["Bearer ==="],
            "the bearer token is malformed (it may have letters, digits and `-._~+/`, and `=` at \
             its end)",
            false,
        ),
        (
            &["\u{a0}Bearer s3cret"],
            "the scheme in the `authorization` header is not ASCII (send `Authorization: Bearer ..`)",
            false,
        ),
        (
            &["Bearer\u{a0}s3cret"],
            "the scheme in the `authorization` header is not ASCII (send `Authorization: Bearer ..`)",
            false,
        ),
        (
            &["Bearer s3cret", "Bearer s3cret"],
            "the request has more than one `authorization` header (send it once)",
            false,
        ),
        (
            &[long.as_str()],
            "the `authorization` header is 12007 bytes long (at most 8192 are taken; `max_len` allows \
             more)",
            false,
        ),
    ] {
        let error = extract(&bearer(), "authorization", lines).unwrap_err();
        assert_eq!(error.to_string(), format!("no key: {message}"));
        assert!(!error.is_missing() && error.is_empty() == is_empty, "{error:?}");
    }
    assert!(extract(&bearer().max_len(12_007), "authorization", &[long]).is_ok());
}

// API keys, and session ids in a header.

#[test]
fn an_api_key_is_sent_once_and_taken_verbatim() {
    let key = api_key("X-Api-Key");
    assert_eq!(extract(&key, "x-api-key", &["s3cret"]), found("s3cret"));
    assert_eq!(extract(&key, "x-api-key", &["S3CRET"]), found("S3CRET"));
    assert!(extract::<&str>(&key, "x-api-key", &[]).unwrap_err().is_missing());
    assert!(extract(&key, "x-api-key", &[""]).unwrap_err().is_empty());
    for lines in [&["s3cret", "s3cret"][..], &[&"s".repeat(1_025)]] {
        let error = extract(&key, "x-api-key", lines).unwrap_err();
        assert!(!error.is_missing() && !error.is_empty(), "{error}");
        assert!(!error.to_string().contains("s3cret") && !error.to_string().contains("sss"));
    }
    let folded = key.clone().ignore_case();
    assert_eq!(extract(&folded, "x-api-key", &["S3CRET"]), found("s3cret"));
    assert!(extract(&key.max_len(1_025), "x-api-key", &["s".repeat(1_025)]).is_ok());
}

// Cookies.

#[test]
fn a_cookie_is_found_by_its_name_in_all_lines() {
    for lines in [
        &["id=abc"][..],
        &["a=b; id=abc; c=d"],
        &["a=b;id=abc;c=d"],
        &["a=b", "c=d; id=abc", "e=f"],
        &["; ;id = abc ;;"],
        &["xid=1; id2=2; ID=3; Id=4; id=abc"],
        &["id; =id; id=abc"],
        &["f=\"; id=abc"],
        // All of these spell the same value.
        &["id=\"abc\""],
        &["id=%61b%63"],
        &["id=\"%61bc\""],
        &["id=abc; id=abc"],
        &["id=abc", "id=\"abc\""],
    ] {
        assert_eq!(extract(&cookie("id"), "cookie", lines), found("abc"), "{lines:?}");
    }
    for (line, value) in [
        ("id=a=b==", "a=b=="),
        ("id=\"", "\""),
        ("id=100%", "100%"),
        ("id=%4", "%4"),
        ("id=%zz%41", "%zzA"),
        ("id=%%41", "%A"),
        ("id=%2541", "%41"),
        ("id=ABC", "ABC"),
        ("id=a b", "a b"),
    ] {
        assert_eq!(extract(&cookie("id"), "cookie", &[line]), found(value), "{line}");
    }
}

/// Names were compared as sent, but `tower-cookies`, and so `tower-sessions`, decodes them. A
/// client could send `id` to be counted and `%69d` to be used, and so had any number of buckets.
#[test]
fn a_cookie_is_found_by_its_decoded_name() {
    for lines in [&["%69d=abc"][..], &["a=b; %69%64=abc"], &["i%64=\"abc\"", "id=abc"]] {
        assert_eq!(extract(&cookie("id"), "cookie", lines), found("abc"), "{lines:?}");
    }
    for lines in [&["id=made-up; %69d=s3cret"][..], &["i%64=s3cret", "id=made-up"]] {
        let error = extract(&cookie("id"), "cookie", lines).unwrap_err();
        assert!(!error.is_missing() && error.to_string().contains("more than one"), "{error}");
    }
    // Decoded once, and nothing that is not encoded.
    for line in ["%2569d=abc", "%6d=abc", "%69=abc", "id%=abc", "%69d%20=abc", "%=abc", "%69dd=abc"]
    {
        assert!(extract(&cookie("id"), "cookie", &[line]).unwrap_err().is_missing(), "{line}");
    }
    // A percent sign is one of the characters that a name may have.
    assert_eq!(extract(&cookie("a%"), "cookie", &["a%=abc"]), found("abc"));
    assert_eq!(extract(&cookie("a%"), "cookie", &["%61%25=abc"]), found("abc"));
}

/// Quotes that were encoded stayed, so that a session had a second bucket where the server drops
/// quotes from what it has decoded.
#[test]
fn encoded_quotes_are_no_part_of_a_cookie_s_value() {
    for line in ["id=%22abc%22", "id=%22abc\"", "id=\"abc%22", "id=%22%61bc%22"] {
        assert_eq!(extract(&cookie("id"), "cookie", &[line]), found("abc"), "{line}");
    }
    assert!(extract(&cookie("id"), "cookie", &["id=%22%22"]).unwrap_err().is_empty());
    for (line, value) in [("id=%22", "\""), ("id=%22abc", "\"abc"), ("id=\"%2522", "\"%22")] {
        assert_eq!(extract(&cookie("id"), "cookie", &[line]), found(value), "{line}");
    }
}

#[test]
fn the_error_of_a_bad_cookie_says_why_and_hides_the_value() {
    for (lines, message, kind) in [
        (
            &[][..],
            "the request has no `id` cookie (send it, or choose by `missing_key` what happens \
             without it)",
            (true, false),
        ),
        (
            &["xid=s3cret; id"],
            "the request has no `id` cookie (send it, or choose by `missing_key` what happens \
             without it)",
            (true, false),
        ),
        (&["id="], "the `id` cookie is empty (send a value, or no cookie)", (false, true)),
        (&["id=\"\""], "the `id` cookie is empty (send a value, or no cookie)", (false, true)),
        (
            &["id=s3cret; id=forged"],
            "the request has more than one `id` cookie, and they differ (send it once)",
            (false, false),
        ),
        (
            &["id=forged", "a=b; id=s3cret"],
            "the request has more than one `id` cookie, and they differ (send it once)",
            (false, false),
        ),
        (
            &["id=", "id=s3cret"],
            "the request has more than one `id` cookie, and they differ (send it once)",
            (false, false),
        ),
    ] {
        let error = extract(&cookie("id"), "cookie", lines).unwrap_err();
        assert_eq!(error.to_string(), format!("no key: {message}"));
        assert_eq!((error.is_missing(), error.is_empty()), kind, "{error}");
    }
    for name in ["", "a b", "a=b", "a;b", "f\u{fc}r"] {
        let panics = std::panic::catch_unwind(|| cookie(name)).unwrap_err();
        let message = panics.downcast::<String>().unwrap();
        assert_eq!(
            *message,
            format!(
                "{name:?} is not the name of a cookie (use letters, digits, hyphens and \
                 underscores)"
            )
        );
    }
}

#[test]
fn a_megabyte_of_cookies_is_not_read() {
    let error = extract(&cookie("id"), "cookie", &["x".repeat(1 << 20) + "; id=abc"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no key: the cookies are 1048584 bytes long (at most 65536 are read)"
    );
    assert!(!error.is_missing());
    let many = vec!["x".repeat(1_000); 1_000];
    assert!(extract(&cookie("id"), "cookie", &many).is_err());
    let id = cookie("id");
    // The cookies are read in one pass, and nothing is copied.
    for filler in [";", "=", "id=abc;", "id", "%", "\"", "a=b; "] {
        let line = filler.repeat(65_000 / filler.len()) + ";id=abc";
        let request = request("cookie", &[line]);
        let head = Head::new(&request);
        let work = || assert_eq!(id.extract(&head), found("abc"), "{filler}");
        assert_eq!(allocation_counter::measure(work).count_total, 0, "{filler}");
    }
}

// Claims and headers that differ in case only.

#[test]
fn names_that_differ_in_case_or_encoding_are_two_by_default() {
    let names = ["Alice", "ALICE", "alice", "%61lice", "alic%65"];
    let count = |key: &dyn KeyExtractor| {
        let keys = names.map(|name| key.extract(&Head::new(&request("x-user", &[name]))).unwrap());
        keys.iter().enumerate().filter(|(n, key)| !keys[..*n].contains(key)).count()
    };
    assert_eq!(count(&key::header("x-user")), 5);
    assert_eq!(count(&key::header("x-user").ignore_case()), 3);
    // A header value with letters beyond ASCII is refused, in either case.
    let error = extract(&key::header("x-user").ignore_case(), "x-user", &["\u{c4}"]).unwrap_err();
    assert!(!error.is_missing());
}

#[test]
fn a_claim_is_read_from_verified_claims() {
    #[derive(Clone)]
    struct Claims(Option<&'static str>);

    let tenant = key::extension(|claims: &Claims| claims.0);
    let of = |claims: Option<Claims>| {
        let mut request = Request::new(());
        request.extensions_mut().extend(
            claims
                .map(|claims| {
                    let mut extensions = http::Extensions::new();
                    extensions.insert(claims);
                    extensions
                })
                .unwrap_or_default(),
        );
        tenant.extract(&Head::new(&request))
    };
    assert_eq!(of(Some(Claims(Some("acme")))), Ok(Extracted::Key(Key::from("acme"))));
    assert!(of(Some(Claims(None))).unwrap_err().is_missing());
    let claims = std::any::type_name::<Claims>();
    let (empty, none) = (of(Some(Claims(Some("")))).unwrap_err(), of(None).unwrap_err());
    assert!(empty.is_empty() && none.is_missing());
    assert_eq!(
        empty.to_string(),
        format!(
            "no key: the key from the extension of type `{claims}` is empty (have the layer that \
             inserts it always set one, or the closure return `None`)"
        )
    );
    assert_eq!(
        none.to_string(),
        format!(
            "no key: the request has no extension of type `{claims}` (add the layer that inserts it \
             outside of this one; in axum, by a `.layer(..)` after this one's)"
        )
    );
}

#[test]
fn a_secret_is_hashed_without_an_allocation() {
    let request = Request::builder()
        .header("authorization", format!("Bearer {}", "s3cret".repeat(500)))
        .header("x-api-key", "s3cret")
        .header("cookie", "theme=dark; id=%22s3cret%22")
        .body(())
        .unwrap();
    let head = Head::new(&request);
    let both = (cookie("id"), bearer());
    let (id, key) = (cookie("id"), api_key("x-api-key"));
    for key in [&bearer() as &dyn KeyExtractor, &id, &key] {
        let work = || assert!(key.extract(&head).is_ok());
        assert_eq!(allocation_counter::measure(work).count_total, 0);
    }
    // A digest and an address are a short key together.
    let with_address = key::digest("s3cret").and(std::net::Ipv4Addr::LOCALHOST);
    assert!(with_address.as_bytes().len() <= 36);
    assert!(both.extract(&head).is_ok());
}

proptest! {
    /// Any spelling of a cookie's value is one key, and no other value has it.
    #[test]
    fn a_cookie_is_one_key_in_any_spelling(
        value in "[!#-+\\--:<-Z\\]-~]{1,20}",
        encoded in proptest::collection::vec(any::<bool>(), 20),
        name in proptest::sample::select(vec!["id", "%69d", "i%64", "%69%64"]),
        quoted in any::<bool>(),
        other in "[!#$&-+\\--:<-Z\\]-~]{1,20}",
    ) {
        let spell = |(byte, encoded): (u8, &bool)| match *encoded || byte == b'%' {
            true => format!("%{byte:02x}"),
            false => char::from(byte).to_string(),
        };
        let spelled: String = value.bytes().zip(&encoded).map(spell).collect();
        let quote = if quoted { "\"" } else { "" };
        let line = format!("{name}={quote}{spelled}{quote}");
        prop_assert_eq!(extract(&cookie("id"), "cookie", &[line]), found(&value));
        prop_assume!(other != value);
        prop_assert_ne!(extract(&cookie("id"), "cookie", &[format!("id={other}")]), found(&value));
    }

    /// Whatever is in the header fields, nothing panics.
    #[test]
    fn no_header_field_makes_an_extractor_panic(
        value in proptest::collection::vec(prop_oneof![
            Just(b'"'), Just(b'%'), Just(b';'), Just(b'='), Just(b' '), 0x20_u8..=0x7e, 0x80_u8..
        ], 0..40),
        prefix in proptest::sample::select(vec!["", "Bearer ", "id=", "a=b; id=", "id=%"]),
    ) {
        let line = [prefix.as_bytes(), &value].concat();
        for (field, key) in [
            ("authorization", &bearer() as &dyn KeyExtractor),
            ("cookie", &cookie("id")),
            ("x-api-key", &api_key("x-api-key")),
        ] {
            let request = request(field, &[&line, &line][..1 + usize::from(value.len() > 30)]);
            match key.extract(&Head::new(&request)) {
                Ok(Extracted::Key(key)) => prop_assert_eq!(key.as_bytes().len(), 18),
                Ok(other) => prop_assert!(false, "{:?}", other),
                Err(error) => prop_assert!(!error.is_misconfigured()),
            }
        }
    }
}
