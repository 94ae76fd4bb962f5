//! The README's picture of a run, turn by turn. Owns that picture. Never draws a point that was not
//! measured.

use std::fmt::Write as _;

use super::figures::{BUDGET, Figures, SOURCE, Sample, begin, percent, short, text};

const HEIGHT: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 936.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 376.0;

/// Maps turns and tokens to points.
struct PictureScale {
    turns: f64,
    top: f64,
}

impl PictureScale {
    /// The left edge of a turn. Its right edge is the left edge of the next.
    fn x(&self, turn: usize) -> f64 {
        LEFT + (RIGHT - LEFT) * turn as f64 / self.turns
    }

    fn y(&self, tokens: usize) -> f64 {
        BOTTOM - (BOTTOM - TOP) * tokens as f64 / self.top
    }
}

/// The whole picture.
pub fn picture(figures: &Figures) -> String {
    let samples = &figures.samples;
    let highest = samples.iter().map(|sample| sample.agent.max(sample.sent));
    let highest = highest.max().unwrap_or(0).max(BUDGET);
    let scale = PictureScale {
        turns: samples.len().max(1) as f64,
        top: highest as f64 * 1.04,
    };
    let label = "Tokens that an agent sees against tokens sent, turn by turn";
    let mut svg = begin(HEIGHT, label);
    headline(&mut svg, samples.len());
    grid(&mut svg, &scale, highest);
    curves(&mut svg, &scale, samples);
    ceiling(&mut svg, &scale);
    passes(&mut svg, &scale, samples);
    names(&mut svg, &scale, samples);
    tiles(&mut svg, figures);
    svg.push_str("</svg>\n");
    svg
}

fn headline(svg: &mut String, turns: usize) {
    let title = "plimsoll demo: tokens in the context, turn by turn";
    text(svg, (24.0, 36.0), "title", "start", title);
    let about = format!("{SOURCE}, {turns} turns, sizes measured at the provider");
    text(svg, (24.0, 58.0), "faint", "start", &about);
}

/// Draws a line at each multiple of a round number of tokens.
fn grid(svg: &mut String, scale: &PictureScale, highest: usize) {
    let step = BUDGET * (highest / BUDGET / 6 + 1);
    for tokens in (0..=highest).step_by(step) {
        let y = scale.y(tokens);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e2e8f0\"/>"
        );
        let place = (LEFT - 8.0, y + 4.0);
        text(svg, place, "faint small", "end", &short(tokens));
    }
}

fn curves(svg: &mut String, scale: &PictureScale, samples: &[Sample]) {
    let mut area = format!("M{LEFT:.1} {BOTTOM:.1}");
    let mut agent = String::new();
    for (turn, sample) in samples.iter().enumerate() {
        let (left, right) = (scale.x(turn), scale.x(turn + 1));
        let (sent, seen) = (scale.y(sample.sent), scale.y(sample.agent));
        let _ = write!(area, "L{left:.1} {sent:.1}L{right:.1} {sent:.1}");
        let move_or_line = if turn == 0 { 'M' } else { 'L' };
        let _ = write!(
            agent,
            "{move_or_line}{left:.1} {seen:.1}L{right:.1} {seen:.1}"
        );
    }
    let end = scale.x(samples.len());
    let _ = write!(
        svg,
        "<path d=\"{area}L{end:.1} {BOTTOM:.1}Z\" fill=\"#a5e8f5\" stroke=\"#0e7490\"/>\n\
         <path d=\"{agent}\" fill=\"none\" stroke=\"#b45309\" stroke-width=\"2.5\"/>\n"
    );
}

fn ceiling(svg: &mut String, scale: &PictureScale) {
    let y = scale.y(BUDGET);
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#b91c1c\" \
         stroke-width=\"2\" stroke-dasharray=\"7 4\"/>"
    );
    let name = format!("budget {}", short(BUDGET));
    text(svg, (RIGHT, y - 8.0), "line", "end", &name);
}

fn passes(svg: &mut String, scale: &PictureScale, samples: &[Sample]) {
    for (turn, _) in samples
        .iter()
        .enumerate()
        .filter(|(_, sample)| sample.passed)
    {
        let (x, tip) = (scale.x(turn), BOTTOM + 4.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {tip:.1}l5 9h-10z\" fill=\"#15803d\"/>"
        );
    }
}

/// Names the curves where they are, so that no legend is needed.
fn names(svg: &mut String, scale: &PictureScale, samples: &[Sample]) {
    // At three fifths of the width, the label has room to the left of the curve.
    let Some((turn, sample)) = samples.iter().enumerate().nth(samples.len() * 3 / 5) else {
        return;
    };
    let place = (scale.x(turn) - 12.0, scale.y(sample.agent) - 10.0);
    text(
        svg,
        place,
        "agent",
        "end",
        "what the agent sees: its whole history",
    );
    let middle = ((LEFT + RIGHT) / 2.0, BOTTOM - 14.0);
    text(svg, middle, "sent", "middle", "what the model is sent");
    if samples.iter().any(|sample| sample.passed) {
        let before = (LEFT - 8.0, BOTTOM + 14.0);
        text(svg, before, "pass small", "end", "passes");
    }
}

fn tiles(svg: &mut String, figures: &Figures) {
    let (whole, sent) = (&figures.whole, &figures.sent);
    let tiles = [
        (
            "largest request",
            format!("{} → {}", short(whole.largest), short(sent.largest)),
        ),
        (
            "input tokens in all",
            format!("{} → {}", millions(whole.input), millions(sent.input)),
        ),
        (
            "of these cached",
            format!(
                "{} → {}",
                percent(whole.cached_share()),
                percent(sent.cached_share())
            ),
        ),
        (
            "cost, marks included",
            format!("${:.2} → ${:.2}", whole.usd, sent.usd),
        ),
    ];
    for (place, (name, value)) in tiles.iter().enumerate() {
        let x = LEFT + place as f64 * (RIGHT - LEFT) / tiles.len() as f64;
        text(svg, (x, 426.0), "faint small", "start", name);
        text(svg, (x, 452.0), "value", "start", value);
    }
}

fn millions(tokens: usize) -> String {
    format!("{:.1}M", tokens as f64 / 1e6)
}
