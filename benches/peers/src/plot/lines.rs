//! A line each: how a cost grows.

use super::svg::{Svg, number, step};
use crate::rounds::Figures;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

#[derive(Clone, Copy)]
pub(super) struct Axes {
    pub(super) x: &'static str,
    pub(super) log_x: bool,
}

/// The medians of each contender along the scale; both axes begin at zero unless they are
/// logarithmic.
pub(super) fn lines(title: &str, axes: Axes, figures: &[&Figures]) -> Option<String> {
    let unit = &figures.first()?.unit;
    let most_x = figures.iter().map(|figures| figures.at).max()? as f64;
    let most_y = figures.iter().map(|figures| figures.spread().median).fold(0.0, f64::max);
    let at_x = |x: f64| {
        let share = if axes.log_x { x.log10() / most_x.log10() } else { x / most_x };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let at_y = |y: f64| HEIGHT - BOTTOM - y / most_y * (HEIGHT - BOTTOM - TOP);
    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    let step_y = step(most_y, 5.0);
    for nth in 0..=(most_y / step_y) as u32 {
        let y = f64::from(nth) * step_y;
        svg.line((LEFT, at_y(y)), (WIDTH - RIGHT, at_y(y)), "grid");
        svg.text(LEFT - 8.0, at_y(y) + 4.0, "quiet", "end", &number(y));
    }
    let ticks: Vec<f64> = if axes.log_x {
        (0..=most_x.log10().round() as i32).map(|power| 10_f64.powi(power)).collect()
    } else {
        let step_x = step(most_x, 5.0);
        (0..=(most_x / step_x) as u32).map(|nth| f64::from(nth) * step_x).collect()
    };
    for x in ticks {
        svg.text(at_x(x), HEIGHT - BOTTOM + 18.0, "quiet", "middle", &number(x));
    }
    svg.text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0, "quiet", "middle", axes.x);
    svg.text(LEFT - 8.0, TOP - 10.0, "quiet", "start", unit);
    series(&mut svg, figures, at_x, at_y);
    Some(svg.finish())
}

fn series(
    svg: &mut Svg,
    figures: &[&Figures],
    at_x: impl Fn(f64) -> f64,
    at_y: impl Fn(f64) -> f64,
) {
    let mut names: Vec<&str> = Vec::new();
    for figures in figures {
        if !names.contains(&figures.peer.as_str()) {
            names.push(&figures.peer);
        }
    }
    // Names stand at the ends of their lines, and step aside from each other.
    let mut ends = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        let mine = figures.iter().filter(|figures| figures.peer == *name);
        let points: Vec<_> =
            mine.map(|figures| (at_x(figures.at as f64), at_y(figures.spread().median))).collect();
        let class =
            if name.starts_with("floor") { "floor".into() } else { format!("s{}", nth % 5) };
        svg.path(&points, &class);
        ends.extend(points.last().map(|&(x, y)| (y, x, *name, class)));
    }
    ends.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = f64::MIN;
    for (y, x, name, class) in ends {
        let y = y.max(free);
        svg.line((x + 4.0, y), (x + 14.0, y), &class);
        svg.text(x + 18.0, y + 4.0, "", "start", name);
        free = y + 17.0;
    }
}
