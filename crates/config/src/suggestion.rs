//! What a mistyped name was meant to be, and lists of names for messages.

/// The name that this one is nearest to, if it is near enough to be a typing mistake: two letters
/// at most, and no more than a third of them.
pub(super) fn nearest<'n>(
    given: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    // Longer names are no typing mistake, and the distance takes the product of the lengths.
    const LONGEST: usize = 64;
    if given.len() > LONGEST {
        return None;
    }
    let given = given.to_lowercase();
    let length = given.chars().count();
    let distance = |name: &str| strsim::osa_distance(&given, &name.to_lowercase());
    let near = |name: &&str| name.len() <= LONGEST;
    let (distance, name) = names
        .into_iter()
        .filter(near)
        .map(|name| (distance(name), name))
        .min_by_key(|(at, _)| *at)?;
    let allowed = length.max(name.chars().count()).checked_div(3).unwrap_or(0).min(2);
    (distance <= allowed).then_some(name)
}

/// ``did you mean `a`?`` or ``there are `a`, `b` and `c` ``: the near name, or else all.
pub(super) fn way_out(given: &str, names: &[&str], quote: Quote) -> String {
    match nearest(given, names.iter().copied()) {
        Some(name) => format!("did you mean {}?", quote.around(name)),
        None => format!("there are {}", list(names, quote)),
    }
}

/// How names stand in a message: what a file has as text stands in double quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    Code,
    Text,
}

impl Quote {
    fn around(self, name: &str) -> String {
        match self {
            Self::Code => format!("`{name}`"),
            Self::Text => format!("\"{name}\""),
        }
    }
}

/// `a`, `a and b`, `a, b and c`; of many, the first ones.
pub(super) fn list(names: &[&str], quote: Quote) -> String {
    const SHOWN: usize = 40;
    let omitted = names.len().saturating_sub(SHOWN);
    let mut shown: Vec<_> = names.iter().take(SHOWN).map(|name| quote.around(name)).collect();
    if omitted > 0 {
        shown.push(format!("{omitted} more"));
    }
    match shown.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
