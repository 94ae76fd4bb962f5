//! What a run of the demo measured, as it writes that with `--figures`, and what the README's two
//! pictures have in common: their styles and how they write numbers. Never draws a picture.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

pub const SOURCE: &str = "a coding session recorded in github.com/entireio/cli";
pub const MODEL: &str = "gpt-5";
/// The pictures are of the demo at this budget, in tokens.
pub const BUDGET: usize = 40_000;
pub const WIDTH: f64 = 960.0;

/// There are few styles, and the colours keep their contrast for people who can't tell red from
/// green.
const STYLE: &str = "text{font:14px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2933}\
.title{font-size:20px;font-weight:600}.faint{fill:#64748b}.small{font-size:12px}\
.value{font-size:20px;font-weight:600}.agent{fill:#b45309}.sent{fill:#0e7490}.line{fill:#b91c1c}.pass{fill:#15803d}";

/// One turn.
#[derive(Deserialize)]
pub struct Sample {
    /// How many tokens the agent's own history has.
    pub agent: usize,
    /// How many tokens the largest request of the turn had.
    pub sent: usize,
    /// Whether there was a pass.
    pub passed: bool,
    /// The share that was saved so far.
    pub saved: f64,
}

/// What one way of sending the session cost.
#[derive(Deserialize)]
pub struct Totals {
    /// How many tokens the largest request had.
    pub largest: usize,
    pub input: usize,
    /// How many of those the provider's cache held.
    cached: usize,
    pub usd: f64,
}

impl Totals {
    pub fn cached_share(&self) -> f64 {
        self.cached as f64 / self.input.max(1) as f64
    }
}

/// All that was measured.
#[derive(Deserialize)]
pub struct Figures {
    pub samples: Vec<Sample>,
    pub sent: Totals,
    pub whole: Totals,
}

impl Figures {
    pub fn read(file: &Path) -> Self {
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }
}

/// The beginning of a picture of this height.
pub fn begin(height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{label}\">\n\
         <style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\" stroke=\"#e2e8f0\"/>\n"
    )
}

/// Puts a text at a place.
pub fn text(svg: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

/// A number of tokens in a few characters: `39.9k`, `163k`.
pub fn short(tokens: usize) -> String {
    match tokens {
        0 => "0".to_owned(),
        1..100_000 if !tokens.is_multiple_of(1_000) => {
            format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100)
        }
        _ => format!("{}k", tokens / 1_000),
    }
}

pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
