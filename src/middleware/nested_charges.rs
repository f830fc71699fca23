//! Notices that two layers around each other charge one limit for the same request.

use std::sync::Arc;

use http::Request;

use super::ledger::RequestLedger;

/// The ledgers of the layers that a watched request has passed, in its extensions.
#[derive(Clone)]
struct PassedLedgers(Vec<Arc<RequestLedger>>);

/// Compares the charges of a watched request with those of the layers outside, and notes them for
/// the layers inside.
pub(super) fn note_charges<B>(ledger: &Arc<RequestLedger>, request: &mut Request<B>) {
    if !ledger.is_watched() {
        return;
    }
    let passed = request.extensions_mut().remove::<PassedLedgers>();
    let mut passed = passed.map(|PassedLedgers(passed)| passed).unwrap_or_default();
    passed.iter().for_each(|outer| ledger.compare_charges(outer));
    passed.push(Arc::clone(ledger));
    request.extensions_mut().insert(PassedLedgers(passed));
}
