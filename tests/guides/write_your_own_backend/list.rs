use std::collections::BTreeMap;
use std::ops::Bound;

use tollgate::backend::{BackendError, BucketRecord, DebtorQuery, DebtorReport};
use tollgate::{Key, Timestamp};

/// The limit, the text form of the key, and the shard.
type Name = (String, String, u32);

fn list(
    table: &BTreeMap<Name, [i64; 6]>,
    query: &DebtorQuery,
    now: Timestamp,
) -> Result<DebtorReport, BackendError> {
    let name = |key: &str, shard| (query.limit().to_owned(), key.to_owned(), shard);
    let first = match query.get_after() {
        None => Bound::Included(name("", 0)),
        Some(cursor) => {
            let unknown = || BackendError::unknown_cursor("table", cursor);
            let (shard, key) = cursor.split_once('.').ok_or_else(unknown)?;
            Bound::Excluded(name(key, shard.parse().map_err(|_| unknown())?))
        }
    };
    let (mut debtors, mut next) = (Vec::new(), None);
    let rows = table.range((first, Bound::Unbounded));
    let of_limit = rows.take_while(|((limit, ..), _)| limit == query.limit());
    for (looks, ((_, text, shard), row)) in of_limit.enumerate() {
        if looks == 1_000 || debtors.len() == query.get_max() {
            return Ok(DebtorReport::Page { at: now, debtors, next });
        }
        next = Some(format!("{shard}.{text}"));
        let (Ok(key), Some(record)) = (Key::from_text(text), BucketRecord::from_numbers(*row))
        else {
            continue;
        };
        debtors.extend(query.debtor(key, *shard, &record, now));
    }
    Ok(DebtorReport::Page { at: now, debtors, next: None })
}

mod tests {
    use super::*;
    use tollgate::algebra::Bucket;
    use tollgate::{HOUR, Quota};

    #[test]
    fn all_debtors_of_one_limit_are_on_some_page() {
        let bucket = Bucket::new(&Quota::token_bucket(5, HOUR)).unwrap();
        let mut table = BTreeMap::new();
        for nth in 0..3_000 {
            let state = tollgate::algebra::State { value: nth % 3 - 1, ts: Timestamp::UNIX_EPOCH };
            let row = BucketRecord::new(&bucket, state).to_numbers();
            table.insert(("login".to_owned(), format!("n={nth}"), 0), row);
            table.insert(("log".to_owned(), format!("n={nth}"), 0), row);
            table.insert(("login2".to_owned(), format!("n={nth}"), 0), row);
        }
        let (mut found, mut pages, mut cursor) = (0, 0, None);
        loop {
            let query = DebtorQuery::new("login", &bucket).max(100).after(cursor);
            let report = list(&table, &query, Timestamp::UNIX_EPOCH).unwrap();
            let DebtorReport::Page { debtors, next, .. } = report else { panic!("{report:?}") };
            (found, pages) = (found + debtors.len(), pages + 1);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert!(found == 1_000 && (10..=11).contains(&pages), "{found} on {pages} pages");
    }
}
