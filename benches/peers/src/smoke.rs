//! Whether a run measured everything: the figures themselves may be anything.

use crate::report;
use crate::rounds::{Figures, Plan};
use crate::works::name as work;

/// Looks for figures of every work, for every bar, and for every plot.
///
/// # Errors
///
/// A line for each thing that is missing.
pub fn check(plan: &Plan, figures: &[Figures], undrawn: &[&str]) -> Result<(), String> {
    let mut missing = Vec::new();
    for work in work::ALL.into_iter().filter(|work| plan.wants(work)) {
        let mut of_work = figures.iter().filter(|each| each.work == work).peekable();
        if of_work.peek().is_none() {
            missing.push(format!("{work}: no figures"));
        }
        for each in of_work {
            let Figures { at, peer, rounds, .. } = each;
            if rounds.is_empty() || !rounds.iter().all(|round| round.is_finite()) {
                missing.push(format!("{work}/{at}, {peer}: {rounds:?}"));
            }
        }
    }
    if plan.only.is_empty() {
        missing.extend(report::without_figures(figures).map(|bar| format!("{bar}: no figures")));
        missing.extend(undrawn.iter().map(|plot| format!("{plot}: not drawn")));
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}
