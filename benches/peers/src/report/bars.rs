//! The ratios that are to be reached.

use crate::peers::name as peer;
use crate::works::name as work;

/// A ratio that is to be reached.
pub(super) struct Bar {
    pub(super) what: &'static str,
    pub(super) work: &'static str,
    /// Where on the work's scale, if it has one.
    pub(super) at: u64,
    pub(super) ours: &'static str,
    pub(super) theirs: &'static str,
    /// What is taken off both first: the request without a layer.
    pub(super) beyond: Option<&'static str>,
    pub(super) reach: Reach,
    /// The names of ours and of theirs in the counts of instructions, if they are there.
    pub(super) counted: (&'static str, &'static str),
}

#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// Ours divided by theirs is at most this.
    AtMost(f64),
    /// Ours is this, whatever theirs is.
    Exactly(f64),
}

const fn bar(what: &'static str, work: &'static str, theirs: &'static str, at_most: f64) -> Bar {
    let reach = Reach::AtMost(at_most);
    Bar { what, work, at: 0, ours: peer::OURS, theirs, beyond: None, reach, counted: ("", "") }
}

const fn layer(what: &'static str, work: &'static str, theirs: &'static str, at_most: f64) -> Bar {
    Bar { beyond: Some(peer::BARE), ..bar(what, work, theirs, at_most) }
}

impl Bar {
    const fn counted(self, ours: &'static str, theirs: &'static str) -> Self {
        Self { counted: (ours, theirs), ..self }
    }
}

pub(super) const BARS: &[Bar] = &[
    bar("one hot address, admitted", work::HOT, peer::GOVERNOR, 1.05)
        .counted("address", "address: governor"),
    bar("one hot string, admitted", work::HOT_STRING, peer::GOVERNOR, 1.20)
        .counted("string", "string: governor"),
    bar("one hot address, refused", work::HOT_REFUSED, peer::GOVERNOR, 1.50)
        .counted("address refused", "address refused: governor"),
    bar("1,000,000 addresses at random", work::MILLION, peer::GOVERNOR, 0.75),
    bar("1,000,000 strings of 24 bytes at random", work::MILLION_STRING, peer::GOVERNOR, 0.50),
    Bar {
        at: 10_000_000,
        ..bar("10,000,000 addresses at random", work::KEYS, peer::GOVERNOR, 0.95)
    },
    bar("two threads, 1,000,000 addresses", work::THREADS, peer::GOVERNOR, 0.75),
    bar("two threads, one hot address", work::THREADS_HOT, peer::GOVERNOR, 1.10),
    bar(
        "three limits in one step, theirs one after another",
        work::THREE_LIMITS,
        peer::GOVERNOR,
        1.50,
    )
    .counted("three limits", ""),
    bar("a newcomer at the bound, theirs without one", work::FLOOD_BOUND, peer::GOVERNOR, 2.50)
        .counted("newcomer at the bound", ""),
    bar("bytes a key, 1,000,000 strings", work::BYTES, peer::GOVERNOR, 0.49),
    // What the machine did with a loop that decides nothing, in the run that set it.
    bar(
        "longest pause while 1,000,000 keys are forgotten",
        work::PAUSE,
        peer::GOVERNOR_SWEEP,
        0.05,
    ),
    layer("the layer, no fields, one key", work::LAYER, peer::TOWER_GOVERNOR, 1.15)
        .counted("layer", "layer: tower_governor"),
    layer("the layer, no fields, 100,000 keys", work::LAYER_MANY, peer::TOWER_GOVERNOR, 0.90),
    layer("the layer, with fields", work::LAYER_FIELDS, peer::TOWER_GOVERNOR_HEADERS, 0.55)
        .counted("layer with fields", ""),
    layer("the layer, cold, no fields", work::LAYER_COLD, peer::TOWER_GOVERNOR, 1.15),
    layer(
        "the layer, cold, with fields",
        work::LAYER_FIELDS_COLD,
        peer::TOWER_GOVERNOR_HEADERS,
        0.85,
    ),
    bar("a refused request, whole", work::REFUSAL, peer::TOWER_GOVERNOR, 0.10)
        .counted("layer refused", "layer refused: tower_governor"),
    bar("the same, theirs with an empty body", work::REFUSAL, peer::THROTTLE_KIT, 1.20),
    Bar {
        ours: peer::OURS_NO_FIELDS,
        reach: Reach::Exactly(0.0),
        ..bar(
            "allocations the layer adds, no fields",
            work::ALLOCATIONS,
            peer::TOWER_GOVERNOR,
            f64::NAN,
        )
    },
    Bar {
        ours: peer::OURS_NO_FIELDS,
        ..bar("a server with the layer, no fields", work::SERVER, peer::BARE, 1.03)
    },
    bar("a server with the layer and its fields", work::SERVER, peer::TOWER_GOVERNOR_HEADERS, 0.95),
];
