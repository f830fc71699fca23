//! The plots, drawn by hand: bars and lines are all there is.

mod bars;
mod lines;
mod svg;

use std::path::Path;
use std::{fs, io};

use crate::report::Ratio;
use crate::rounds::Figures;
use crate::works::name as work;

/// Draws what these figures have something to say about; returns the names of the other plots.
///
/// # Errors
///
/// If a plot cannot be written there.
pub fn all(figures: &[Figures], ratios: &[Ratio], results: &Path) -> io::Result<Vec<&'static str>> {
    let mut undrawn = Vec::new();
    let of = |work: &str| -> Vec<&Figures> {
        figures.iter().filter(|figures| figures.work == work).collect()
    };
    let mut save = |name, drawing: Option<String>| match drawing {
        Some(drawing) => fs::write(results.join(name).with_extension("svg"), drawing),
        None => {
            undrawn.push(name);
            Ok(())
        }
    };
    save("ratios", bars::ratios("Ours by theirs, as a share of the bar", ratios))?;
    for (work, title) in [
        (work::HOT, "One decision, one hot address, admitted"),
        (work::HOT_STRING, "One decision, one hot string, admitted"),
        (work::HOT_REFUSED, "One decision, one hot address, refused"),
        (work::MILLION, "One decision, 1,000,000 addresses at random"),
        (work::MILLION_STRING, "One decision, 1,000,000 strings of 24 bytes at random"),
        (work::THREADS, "Two threads, 1,000,000 addresses at random"),
        (work::THREADS_HOT, "Two threads, one hot address"),
        (work::PAUSE, "Longest pause while 1,000,000 idle keys are forgotten"),
        (work::LAYER, "A request through the layer, one key, admitted"),
        (work::LAYER_MANY, "A request through the layer, 100,000 keys, admitted"),
        (work::LAYER_FIELDS, "A request through the layer, with fields, admitted"),
        (work::REFUSAL, "A refused request, whole"),
        (work::BYTES, "Memory, 1,000,000 strings of 24 bytes"),
        (work::SERVER, "The processor's time of a server for a request, over loopback"),
        (work::THREE_LIMITS, "Three limits for one address"),
        (work::SHARDS, "A limit in two shards, one hot address"),
        (work::FLOOD_BOUND, "A newcomer in a flood of new keys, when ours is full"),
    ] {
        save(work, bars::figures(title, &of(work)))?;
    }
    let axes = lines::Axes { x: "keys", log_x: true };
    save(work::KEYS, lines::lines("Cost against the number of keys", axes, &of(work::KEYS)))?;
    let axes = lines::Axes { x: "limits in one transaction", log_x: false };
    let title = "Cost against the number of limits, all or nothing";
    save(work::LIMITS, lines::lines(title, axes, &of(work::LIMITS)))?;
    let axes = lines::Axes { x: "keys never seen before", log_x: false };
    let title = "A flood of new keys: cost of a decision";
    save(work::FLOOD, lines::lines(title, axes, &of(work::FLOOD)))?;
    let title = "A flood of new keys: memory";
    save(work::FLOOD_BYTES, lines::lines(title, axes, &of(work::FLOOD_BYTES)))?;
    Ok(undrawn)
}
