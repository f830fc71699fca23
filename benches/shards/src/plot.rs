//! Lines in a frame, as SVG.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

/// A plot, and what it says about itself.
pub struct Plot<'a> {
    pub title: &'a str,
    /// Under the title, in small letters.
    pub below: &'a str,
    pub x: Axis<'a>,
    pub y: Axis<'a>,
    pub lines: Vec<Line>,
}

/// From the first tick to the last.
pub struct Axis<'a> {
    pub name: &'a str,
    pub ticks: &'a [f64],
    pub log: bool,
}

pub struct Line {
    name: String,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

impl Line {
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), dashed: false, points }
    }

    pub fn dashed(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { dashed: true, ..Self::new(name, points) }
    }
}

impl Axis<'_> {
    /// Where a value is, from zero at the first tick to one at the last.
    fn part(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.ln() } else { value };
        let [first, last] = [self.ticks.first(), self.ticks.last()]
            .map(|tick| tick.map_or(0.0, |tick| scale(*tick)));
        (scale(value) - first) / (last - first)
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 552.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 360.0;
/// From dark to light.
const COLOURS: [&str; 7] =
    ["#440154", "#443983", "#31688e", "#21918c", "#35b779", "#7ac142", "#c2a800"];

impl Plot<'_> {
    /// Writes it into this package's `plots`.
    pub fn write(&self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plots").join(name);
        let mut svg = String::new();
        self.draw(&mut svg).expect("a string takes everything");
        fs::write(path, svg).expect("a plot that can be written");
    }

    fn draw(&self, svg: &mut String) -> fmt::Result {
        writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13" fill="#222">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>
<text x="{LEFT}" y="26" font-size="17">{}</text>
<text x="{LEFT}" y="46" fill="#666">{}</text>"##,
            self.title, self.below
        )?;
        self.draw_axes(svg)?;
        let mut colours = COLOURS.iter();
        for (nth, line) in self.lines.iter().enumerate() {
            let (colour, dashes) = if line.dashed {
                ("#888", r#" stroke-dasharray="5 4""#)
            } else {
                (*colours.next().unwrap_or(&"#222"), "")
            };
            let points: Vec<_> = line
                .points
                .iter()
                .map(|&point| self.place(point))
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let points = points.join(" ");
            // The names stand beside the lines, in the order in which those are given.
            let y = TOP + 14.0 + 22.0 * nth as f64;
            let (from, to, name) = (RIGHT + 12.0, RIGHT + 32.0, &line.name);
            writeln!(
                svg,
                r##"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>
<path d="M{from} {y}H{to}" stroke="{colour}" stroke-width="2"{dashes}/>
<text x="{}" y="{}" font-size="12">{name}</text>"##,
                to + 6.0,
                y + 4.0
            )?;
        }
        writeln!(svg, "</svg>")
    }

    fn draw_axes(&self, svg: &mut String) -> fmt::Result {
        let (middle, under) = ((LEFT + RIGHT) / 2.0, BOTTOM + 44.0);
        for &tick in self.x.ticks {
            let x = LEFT + self.x.part(tick) * (RIGHT - LEFT);
            writeln!(
                svg,
                r##"<path d="M{x:.1} {TOP}V{BOTTOM}" stroke="#e4e4e4"/>
<text x="{x:.1}" y="{}" text-anchor="middle">{tick}</text>"##,
                BOTTOM + 20.0
            )?;
        }
        for &tick in self.y.ticks {
            let y = BOTTOM - self.y.part(tick) * (BOTTOM - TOP);
            writeln!(
                svg,
                r##"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="#e4e4e4"/>
<text x="{}" y="{:.1}" text-anchor="end">{tick}</text>"##,
                LEFT - 8.0,
                y + 4.0
            )?;
        }
        writeln!(
            svg,
            r##"<text x="{middle}" y="{under}" text-anchor="middle">{}</text>
<text transform="translate(18 {}) rotate(-90)" text-anchor="middle">{}</text>"##,
            self.x.name,
            (TOP + BOTTOM) / 2.0,
            self.y.name
        )
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (LEFT + self.x.part(x) * (RIGHT - LEFT), BOTTOM - self.y.part(y) * (BOTTOM - TOP))
    }
}
