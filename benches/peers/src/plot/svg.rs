//! A drawing, written down element by element.

use std::fmt::Write as _;

/// Dark on light, or light on dark where the reader has it so.
const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}\
.title{font-size:15px;font-weight:600}\
.quiet{fill:#6e7781}\
.grid{stroke:#d0d7de;stroke-width:1}\
.s0{fill:#0969da;stroke:#0969da}.s1{fill:#8c959f;stroke:#8c959f}.s2{fill:#bf8700;stroke:#bf8700}\
.s3{fill:#8250df;stroke:#8250df}.s4{fill:#1a7f37;stroke:#1a7f37}\
.floor{fill:#d0d7de;stroke:#d0d7de}.bad{fill:#cf222e;stroke:#cf222e}\
.spread,.bar{stroke:#24292f;stroke-width:1.5}.line{fill:none;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#8d96a0}\
.grid{stroke:#30363d}.floor{fill:#30363d;stroke:#30363d}.spread,.bar{stroke:#e6edf3}}";

pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { width, height, body: String::new() };
        svg.text(12.0, 24.0, "title", "start", title);
        svg
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    pub(super) fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let _ = writeln!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" class="{class}"/>"#
        );
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        );
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        let _ = writeln!(
            self.body,
            r#"<polyline points="{points}" class="{class} line" style="fill:none"/>"#
        );
    }

    pub(super) fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\">\n<style>{STYLE}</style>\n{body}</svg>\n"
        )
    }
}

/// A number as people read it.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 1e6 => format!("{}M", short(value / 1e6)),
        size if size >= 1e4 => format!("{}k", short(value / 1e3)),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => short(value),
        _ => format!("{value:.3}"),
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The distance between lines of a grid of about `count` lines up to `most`.
pub(super) fn step(most: f64, count: f64) -> f64 {
    let rough = (most / count).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough)
}
