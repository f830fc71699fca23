//! Extractors behind pointers: the rule cannot tell them from the extractor itself.

use std::sync::Arc;

use http::Request;
use tollgate::key::{Extracted, Head, Key, KeyError, KeyExtractor, SetupWarning, global, header};

/// An extractor whose every answer can be told from the default.
struct Marked;

impl KeyExtractor for Marked {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match head.uri().path() {
            "/exempt" => Ok(Extracted::Exempt),
            "/missing" => Err(KeyError::missing("no key in this path")),
            path => Ok(Extracted::Key(Key::from(path))),
        }
    }

    fn is_global(&self) -> bool {
        true
    }

    fn setup_warning(&self, head: &Head<'_>) -> Option<SetupWarning> {
        (head.uri().path() == "/warn").then(|| SetupWarning::new("told so"))
    }
}

/// All that a rule asks an extractor.
fn answers(extractor: impl KeyExtractor) -> Vec<String> {
    let ask = |path: &&str| {
        let request = Request::get(*path).body(()).unwrap();
        let head = Head::new(&request);
        let (key, warning) = (extractor.extract(&head), extractor.setup_warning(&head));
        format!("{key:?} {warning:?} {}", extractor.is_global())
    };
    ["/alice", "/exempt", "/missing", "/warn"].iter().map(ask).collect()
}

#[test]
fn a_pointer_answers_as_the_extractor_that_it_points_to() {
    let wanted = answers(Marked);
    assert!(wanted[0].ends_with("None true") && wanted[3].contains("told so"), "{wanted:?}");
    let boxed: Box<dyn KeyExtractor> = Box::new(Marked);
    let shared: Arc<dyn KeyExtractor> = Arc::new(Marked);
    let nested: Box<dyn KeyExtractor> = Box::new(Arc::clone(&shared));
    assert_eq!(answers(boxed), wanted);
    assert_eq!(answers(Arc::clone(&shared)), wanted);
    assert_eq!(answers(shared), wanted);
    assert_eq!(answers(nested), wanted);
    assert_eq!(answers(Box::new(Marked)), wanted);
}

#[test]
fn pointers_combine_like_other_extractors() {
    let request = Request::get("/").header("x-user", "ann").body(()).unwrap();
    let head = Head::new(&request);
    let key = |extractor: &dyn KeyExtractor| extractor.extract(&head).unwrap();
    let user = || -> Box<dyn KeyExtractor> { Box::new(header("x-user")) };
    let tenant: Arc<dyn KeyExtractor> = Arc::new(header("x-tenant"));
    assert_eq!(key(&(user(), global())), Extracted::from("ann"));
    assert_eq!(key(&tenant.or(user())), Extracted::Key(Key::from("ann").fallback()));
    assert_eq!(key(&user().unless(|_| true)), Extracted::Exempt);
}
