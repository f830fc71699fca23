//! One bar for each peer: how long it takes.

use super::svg::{Svg, number, step};
use crate::peers::name as peer;
use crate::report::Ratio;
use crate::rounds::Figures;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 100.0;
const TOP: f64 = 44.0;
const ROW: f64 = 26.0;

/// The median of each as a bar, with its spread as a line.
pub(super) fn figures(title: &str, figures: &[&Figures]) -> Option<String> {
    let unit = &figures.first()?.unit;
    let mut medians: Vec<_> = figures.iter().map(|figures| figures.spread().median).collect();
    medians.sort_unstable_by(f64::total_cmp);
    // One that takes twenty times as long as most is cut off, and says so by its number.
    let usual = medians[medians.len() / 2] * 12.0;
    let most = figures.iter().map(|figures| figures.spread().most.min(usual)).fold(0.0, f64::max);
    let height = TOP + ROW * figures.len() as f64 + 34.0;
    let mut svg = Svg::new(WIDTH, height, title);
    let scale = |value: f64| LEFT + value.min(most) / most * (WIDTH - LEFT - RIGHT);
    grid(&mut svg, most, height, scale);
    for (row, figures) in figures.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let spread = figures.spread();
        svg.text(LEFT - 8.0, y + 17.0, "", "end", &figures.peer);
        svg.bar(LEFT, y + 5.0, scale(spread.median) - LEFT, ROW - 10.0, class(&figures.peer));
        let middle = y + ROW / 2.0;
        svg.line((scale(spread.least), middle), (scale(spread.most), middle), "spread");
        let end = scale(spread.most.max(spread.median)) + 6.0;
        svg.text(end, y + 17.0, "quiet", "start", &number(spread.median));
    }
    svg.text(WIDTH - 12.0, height - 8.0, "quiet", "end", unit);
    Some(svg.finish())
}

fn class(name: &str) -> &'static str {
    match name {
        name if name.starts_with(peer::OURS) => "s0",
        peer::BARE | peer::IDLE_LAYER => "floor",
        _ if name.starts_with("floor") => "floor",
        _ => "s1",
    }
}

fn grid(svg: &mut Svg, most: f64, height: f64, scale: impl Fn(f64) -> f64) {
    let step = step(most, 5.0);
    for nth in 0..=(most / step) as u32 {
        let value = f64::from(nth) * step;
        svg.line((scale(value), TOP), (scale(value), height - 30.0), "grid");
        svg.text(scale(value), height - 12.0, "quiet", "middle", &number(value));
    }
}

/// Each ratio divided by its bar, so that all bars lie on one line.
pub(super) fn ratios(title: &str, ratios: &[Ratio]) -> Option<String> {
    let ratios: Vec<_> = ratios.iter().filter(|ratio| ratio.limit > 0.0).collect();
    if ratios.is_empty() {
        return None;
    }
    let left = LEFT + 130.0;
    let width = WIDTH + 130.0;
    let height = TOP + ROW * ratios.len() as f64 + 34.0;
    let mut svg = Svg::new(width, height, title);
    // To the left of one the bar is reached; each line of the grid is twice the one before.
    let share = |value: f64, ratio: &Ratio| (value / ratio.limit).clamp(1.0 / 32.0, 32.0);
    let scale = |share: f64| left + (share.log2() + 5.0) / 10.0 * (width - left - RIGHT);
    for power in -5..=5 {
        let value = 2_f64.powi(power);
        let class = if power == 0 { "bar" } else { "grid" };
        svg.line((scale(value), TOP), (scale(value), height - 30.0), class);
        svg.text(scale(value), height - 12.0, "quiet", "middle", &number(value));
    }
    for (row, ratio) in ratios.into_iter().enumerate() {
        let y = TOP + ROW * row as f64;
        svg.text(left - 8.0, y + 17.0, "", "end", ratio.what);
        let [least, median, most] = [ratio.ratio.least, ratio.ratio.median, ratio.ratio.most]
            .map(|at| scale(share(at, ratio)));
        let start = scale(1.0).min(median);
        let class = if ratio.reached { "s4" } else { "bad" };
        svg.bar(start, y + 6.0, (median - scale(1.0)).abs(), ROW - 12.0, class);
        svg.line((least, y + ROW / 2.0), (most, y + ROW / 2.0), "spread");
        svg.text(
            width - RIGHT + 8.0,
            y + 17.0,
            "quiet",
            "start",
            &format!("{:.3}", ratio.ratio.median),
        );
    }
    Some(svg.finish())
}
