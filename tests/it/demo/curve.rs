//! The README's picture of what a session has saved so far against its length. Owns that
//! picture, including the side below zero where it loses. Never draws a point that was not
//! measured.

use std::fmt::Write as _;

use super::figures::{BUDGET, Figures, MODEL, Sample, begin, percent, text};

const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 936.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 340.0;

/// Maps lengths and shares to points.
struct CurveScale {
    longest: f64,
    low: f64,
    high: f64,
}

impl CurveScale {
    /// A scale that holds all points and the zero line, in whole tenths.
    fn of(points: &[(f64, f64)]) -> Self {
        let shares = || points.iter().map(|(_, share)| *share);
        let tenth = |share: f64| share * 10.0;
        Self {
            longest: points.iter().map(|(length, _)| *length).fold(1.0, f64::max),
            low: tenth(shares().fold(0.0, f64::min)).floor() / 10.0,
            high: tenth(shares().fold(0.1, f64::max)).ceil() / 10.0,
        }
    }

    fn x(&self, length: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * length / self.longest
    }

    fn y(&self, share: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (share - self.low) / (self.high - self.low)
    }
}

/// The whole picture.
pub fn picture(figures: &Figures) -> String {
    let length = |sample: &Sample| sample.agent as f64 / BUDGET as f64;
    let samples = figures.samples.iter();
    let points: Vec<(f64, f64)> = samples.map(|one| (length(one), one.saved)).collect();
    let scale = CurveScale::of(&points);
    let label = "What was saved so far, by the length of the session";
    let mut svg = begin(HEIGHT, label);
    let title = "what a session has saved so far, by its length";
    text(&mut svg, (24.0, 36.0), "title", "start", title);
    let about =
        format!("the demo's session at {MODEL}'s list price; below 0 it costs more than without");
    text(&mut svg, (24.0, 58.0), "faint", "start", &about);
    grid(&mut svg, &scale);
    area(&mut svg, &scale, &points);
    ends(&mut svg, &scale, &points);
    svg.push_str("</svg>\n");
    svg
}

/// Draws a line at each tenth, with the zero line darker, and the multiples of the budget below.
fn grid(svg: &mut String, scale: &CurveScale) {
    let mut share = scale.low;
    while share <= scale.high + 0.01 {
        let (y, nothing) = (scale.y(share), share.abs() < 0.01);
        let colour = if nothing { "#1f2933" } else { "#e2e8f0" };
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\"/>"
        );
        let name = format!("{:.0} %", (share * 100.0).round() + 0.0);
        text(svg, (LEFT - 8.0, y + 4.0), "faint small", "end", &name);
        share += 0.1;
    }
    // Lengths are marked in multiples of the budget, because savings depend on these and not on tokens.
    let mut length = 1.0;
    while length <= scale.longest {
        let x = scale.x(length);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" stroke=\"#e2e8f0\"/>"
        );
        let name = if length > 1.0 {
            format!("{length:.0} budgets")
        } else {
            "the budget".to_owned()
        };
        text(svg, (x, BOTTOM + 20.0), "faint small", "middle", &name);
        length += 1.0;
    }
}

/// Draws the line through the points, and the area between it and the zero line.
fn area(svg: &mut String, scale: &CurveScale, points: &[(f64, f64)]) {
    let mut line = String::new();
    for (at, (length, share)) in points.iter().enumerate() {
        let letter = if at == 0 { 'M' } else { 'L' };
        let _ = write!(
            line,
            "{letter}{:.1} {:.1}",
            scale.x(*length),
            scale.y(*share)
        );
    }
    let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) else {
        return;
    };
    // The area ends at zero and not at the bottom, because a session can cost more than without.
    let nothing = scale.y(0.0);
    let _ = writeln!(
        svg,
        "<path d=\"{line}L{:.1} {nothing:.1}L{:.1} {nothing:.1}Z\" fill=\"#a5e8f5\"/>\n\
         <path d=\"{line}\" fill=\"none\" stroke=\"#0e7490\" stroke-width=\"2.5\"/>",
        scale.x(*last),
        scale.x(*first)
    );
}

/// Labels where it is worst, where it begins to pay, and where it ends.
fn ends(svg: &mut String, scale: &CurveScale, points: &[(f64, f64)]) {
    if let Some((length, share)) = points.last() {
        let place = (scale.x(*length) - 6.0, scale.y(*share) - 10.0);
        text(svg, place, "value", "end", &percent(*share));
    }
    let worst = points.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    if let Some((length, share)) = worst.filter(|(_, share)| *share < 0.0) {
        let place = (scale.x(*length) + 8.0, scale.y(*share) + 4.0);
        let said = format!("{} at {length:.1} budgets", percent(*share));
        text(svg, place, "line small", "start", &said);
    }
    if let Some(length) = pays(points) {
        let place = (scale.x(length), scale.y(0.0) + 18.0);
        let said = format!("pays from {length:.1} budgets on");
        text(svg, place, "pass small", "middle", &said);
    }
}

/// The length from which on it never loses again. `None` if it ends at a loss, or never lost.
fn pays(points: &[(f64, f64)]) -> Option<f64> {
    let last = points.iter().rposition(|(_, share)| *share < 0.0)?;
    points.get(last + 1).map(|(length, _)| *length)
}
