//! The figures and the plots of the guide, from the simulation.
//!
//! `TOLLGATE_WRITE_PLOTS=1 cargo test -p tollgate-leasing --lib tests::plots` plays all fleets,
//! which takes some minutes, and writes `docs/figures.csv` and the plots. Afterwards write
//! the plots of the documentation: see `tests/layers/plots.rs` of the root.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use super::fleet::{Faults, Fleet, Pattern, play};

const NODES: [usize; 5] = [1, 2, 10, 50, 200];

const PATTERNS: [(&str, Pattern, bool); 5] = [
    ("even", Pattern::Even, false),
    ("zipf", Pattern::Zipf, false),
    ("jumps", Pattern::Jumps, false),
    ("hog", Pattern::Hog, false),
    ("zipf, all faults", Pattern::Zipf, true),
];

const COLORS: [&str; 5] = ["#1b6ca8", "#2a9d5c", "#c1440e", "#7b4fa3", "#777777"];

/// A line of the file of figures.
struct Row {
    demand: String,
    nodes: usize,
    used: f64,
    trips: f64,
    fairness: f64,
    excess: f64,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn simulate() -> String {
    let mut csv = "demand,nodes,used,trips,fairness,above_bound\n".to_owned();
    for (name, pattern, has_faults) in PATTERNS {
        for nodes in NODES.into_iter().filter(|nodes| *nodes > 1 || pattern != Pattern::Hog) {
            let faults = if has_faults { Faults::ALL } else { Faults::default() };
            let report = play(Fleet { faults, ..Fleet::new(nodes, pattern) });
            let (used, trips) = (report.share_used, report.trips);
            let (fairness, excess) = (report.fairness, report.excess);
            // The name has a comma, and a reader of such files may not know of quotes.
            let name = name.replace(',', ";");
            let _ = writeln!(csv, "{name},{nodes},{used:.3},{trips:.3},{fairness:.2},{excess:.0}");
        }
    }
    csv
}

fn rows(csv: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut cells = line.split(',');
        let demand = cells.next().unwrap().to_owned();
        let mut number = || cells.next().unwrap().parse::<f64>().unwrap();
        let nodes = number() as usize;
        let (used, trips, fairness, excess) = (number(), number(), number(), number());
        Row { demand, nodes, used, trips, fairness, excess }
    };
    csv.lines().skip(1).map(row).collect()
}

/// Draws lines over the number of nodes, on a logarithmic scale.
fn draw(
    title: &str,
    rows: &[Row],
    ticks: &[f64],
    value: impl Fn(&Row) -> f64,
    place: impl Fn(f64) -> f64,
) -> String {
    let x = |nodes: usize| 60.0 + 400.0 * (nodes as f64).ln() / 200_f64.ln();
    let y = |value: f64| 230.0 - 180.0 * place(value);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 620 280\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"620\" height=\"280\" fill=\"#fff\"/>\n",
    );
    let _ = writeln!(svg, "<text x=\"60\" y=\"24\" font-size=\"14\">{title}</text>");
    for &tick in ticks {
        let at = y(tick);
        let _ = writeln!(svg, "<path d=\"M60 {at:.1}H460\" stroke=\"#ddd\"/>");
        let _ =
            writeln!(svg, "<text x=\"52\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>", at + 4.0);
    }
    for nodes in NODES {
        let at = x(nodes);
        let _ =
            writeln!(svg, "<text x=\"{at:.1}\" y=\"250\" text-anchor=\"middle\">{nodes}</text>");
    }
    svg.push_str("<text x=\"260\" y=\"270\" text-anchor=\"middle\">nodes</text>\n");
    for ((name, ..), (nth, color)) in PATTERNS.iter().zip(COLORS.iter().enumerate()) {
        let name = name.replace(',', ";");
        let line = rows.iter().filter(|row| row.demand == name);
        let points: Vec<String> =
            line.map(|row| format!("{:.1},{:.1}", x(row.nodes), y(value(row)))).collect();
        let points = points.join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
        );
        let at = 60 + 20 * nth;
        let _ = writeln!(svg, "<text x=\"475\" y=\"{at}\" fill=\"{color}\">{name}</text>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn drawings(rows: &[Row]) -> [(&'static str, String); 2] {
    let used = draw(
        "Part of the quota that is used, at twice its demand",
        rows,
        &[0.8, 0.85, 0.9, 0.95, 1.0],
        |row| row.used.clamp(0.8, 1.02),
        |used| (used - 0.8) / 0.2,
    );
    let trips = draw(
        "Trips to the store in 1,000 decisions",
        rows,
        &[0.01, 0.1, 1.0],
        |row| row.trips.clamp(0.01, 3.0),
        |trips| (trips.log10() + 2.0) / 2.5,
    );
    [("used.svg", used), ("trips.svg", trips)]
}

#[test]
fn the_plots_show_the_figures_and_the_figures_are_good() {
    let directory = directory();
    let write = env::var_os("TOLLGATE_WRITE_PLOTS").is_some();
    if write {
        fs::write(directory.join("figures.csv"), simulate()).unwrap();
    }
    let rows = rows(&fs::read_to_string(directory.join("figures.csv")).unwrap());
    assert_eq!(rows.len(), NODES.len() * PATTERNS.len() - 1);
    for (file, drawing) in drawings(&rows) {
        if write {
            fs::write(directory.join(file), &drawing).unwrap();
        }
        let drawn = fs::read_to_string(directory.join(file)).unwrap();
        assert!(drawn == drawing, "docs/{file} shows other figures (write it: see above)");
    }
    for row in &rows {
        assert!(row.excess <= 0.0, "{} on {} nodes: above the bound", row.demand, row.nodes);
        let is_steady = ["even", "zipf", "hog"].contains(&&*row.demand);
        if is_steady {
            assert!(row.used >= 0.9 && row.fairness >= 0.8, "{} on {}", row.demand, row.nodes);
        }
    }
}
