//! The clip of one result: finds the largest choice that meets the limits. Counts a text at most
//! once, and then only what would be shown. Never reads a shape itself.

use plimsoll_model::ResultShape;

use super::lines::Span;
use super::pick::Budget;
use super::scan::{Choice, Scan};
use super::shape::detect;
use super::write::{render, total};

/// A text is counted in chunks of this size, until the limit is passed by a third.
const CHUNK: usize = 1 << 16;
/// So many budgets are tried to come near the limit.
const TRIALS: u32 = 6;
/// And so many more, each half of the one before, if none has met it.
const HALVINGS: u32 = 16;
/// A name and a size as long as those that are written later.
const NAME: &str = "terminal:1000";
const SIZE: &str = "100.0k";

/// Largest size of a result that is shown whole. 0 = no limit of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClipLimits {
    /// Tokens, by the count that is given.
    pub tokens: u32,
    /// Lines.
    pub lines: u32,
    /// Bytes.
    pub bytes: u32,
}

/// What a clip keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clip {
    /// The shape by which it was chosen, and by which it must be written.
    pub shape: ResultShape,
    /// Sorted, disjoint, non-empty byte spans between characters.
    pub spans: Vec<(u32, u32)>,
}

/// Clips a text that is over a limit. `None` if it is within the limits, or if a clip would not be
/// clearly smaller: three quarters of the text at most.
#[must_use]
pub fn clip(text: &str, limits: &ClipLimits, count: &dyn Fn(&str) -> u32) -> Option<Clip> {
    u32::try_from(text.len()).ok()?;
    let size = Size::of(text, limits, count);
    if !size.over {
        return None;
    }
    let (shape, scan) = detect(text);
    let fit = Fit {
        limits,
        count,
        size,
        lines: total(text),
    };
    if let Some(spans) = fit.spans(&scan) {
        return Some(Clip { shape, spans });
    }
    // Items that are too large for the limit are cut as plain text.
    if shape != ResultShape::Json {
        return None;
    }
    let scan = Scan::of(ResultShape::Plain, text);
    let shape = ResultShape::Plain;
    fit.spans(&scan).map(|spans| Clip { shape, spans })
}

/// The size of a text as far as it has been counted.
struct Size {
    over: bool,
    tokens: u64,
    /// The bytes that have these tokens.
    bytes: usize,
    len: usize,
}

impl Size {
    fn of(text: &str, limits: &ClipLimits, count: &dyn Fn(&str) -> u32) -> Self {
        let (mut tokens, mut bytes) = (0_u64, 0_usize);
        let enough = u64::from(limits.tokens).saturating_mul(4) / 3;
        while limits.tokens > 0 && bytes < text.len() && tokens <= enough {
            let end = text.ceil_char_boundary(bytes.saturating_add(CHUNK).min(text.len()));
            let chunk = text.get(bytes..end).unwrap_or_default();
            tokens = tokens.saturating_add(u64::from(count(chunk)));
            bytes = end;
        }
        let past = |limit: u32, size: usize| limit > 0 && size > limit as usize;
        let lines = limits.lines > 0 && past(limits.lines, total(text));
        let over_tokens = limits.tokens > 0 && tokens > u64::from(limits.tokens);
        Self {
            over: over_tokens || lines || past(limits.bytes, text.len()),
            tokens,
            bytes,
            len: text.len(),
        }
    }
}

/// The search for the largest choice that meets the limits.
struct Fit<'a> {
    limits: &'a ClipLimits,
    count: &'a dyn Fn(&str) -> u32,
    size: Size,
    lines: usize,
}

/// How much of the limits a written clip takes, in thousandths of the one it takes most of.
type Load = u64;

impl Fit<'_> {
    fn spans(&self, scan: &Scan<'_>) -> Option<Vec<Span>> {
        let choice = scan.choice();
        let (mut low, mut high) = (0_usize, self.size.len);
        let mut bytes = self.first();
        let mut best: Option<(Load, Vec<Span>)> = None;
        for trial in 0..TRIALS.saturating_add(HALVINGS) {
            if trial >= TRIALS && best.is_some() {
                break;
            }
            let Some((load, spans)) = self.trial(scan, &choice, bytes) else {
                // The shape needs more room than this.
                low = bytes;
                bytes = middle(low, high);
                if trial >= TRIALS || bytes <= low {
                    break;
                }
                continue;
            };
            let guess = scaled(bytes, load);
            if load <= 1000 {
                low = bytes;
                if best.as_ref().is_none_or(|best| best.0 < load) {
                    best = Some((load, spans));
                }
                if load >= 900 {
                    break;
                }
            } else {
                high = bytes;
            }
            let inside = guess > low && guess < high;
            bytes = if trial >= TRIALS {
                high / 2
            } else if inside {
                guess
            } else {
                middle(low, high)
            };
            if bytes == low || bytes == high {
                break;
            }
        }
        best.map(|best| best.1)
            .or_else(|| self.least(scan, &choice))
            .filter(|spans| self.pays(scan, spans))
    }

    /// The bytes that the limits are likely to allow.
    fn first(&self) -> usize {
        let mut bytes = self.size.len;
        if self.limits.tokens > 0 && self.size.tokens > 0 {
            let all = self.size.bytes as u64;
            let share = all.saturating_mul(u64::from(self.limits.tokens)) / self.size.tokens;
            bytes = bytes.min(usize::try_from(share).unwrap_or(usize::MAX));
        }
        if self.limits.bytes > 0 {
            bytes = bytes.min(self.limits.bytes as usize);
        }
        // The head line takes some of it.
        bytes.saturating_sub(NAME.len().saturating_add(60).min(bytes / 2))
    }

    fn trial(&self, scan: &Scan<'_>, choice: &Choice, bytes: usize) -> Option<(Load, Vec<Span>)> {
        let rows = match self.limits.lines {
            0 => usize::MAX,
            // The head line and the first gap are lines too.
            limit => (limit as usize).saturating_sub(2),
        };
        let budget = Budget { bytes, lines: rows };
        let spans = scan.spans(choice, budget)?;
        let shown = render(NAME, SIZE, scan, &spans);
        Some((self.load(&shown), spans))
    }

    fn load(&self, shown: &str) -> Load {
        let part = |size: usize, limit: u32| match limit {
            0 => 0,
            limit => (size as u64).saturating_mul(1000) / u64::from(limit),
        };
        let tokens = match self.limits.tokens {
            0 => 0,
            _ => (self.count)(shown) as usize,
        };
        let lines = if self.limits.lines == 0 {
            0
        } else {
            total(shown)
        };
        part(tokens, self.limits.tokens)
            .max(part(lines, self.limits.lines))
            .max(part(shown.len(), self.limits.bytes))
    }

    /// Nothing but the head line and one gap, if the shape allows it.
    fn least(&self, scan: &Scan<'_>, choice: &Choice) -> Option<Vec<Span>> {
        match choice {
            Choice::Lines(_) => Some(self.trial(scan, choice, 0)?.1),
            Choice::Items => None,
        }
    }

    /// Whether a clip is clearly smaller than its text.
    fn pays(&self, scan: &Scan<'_>, spans: &[Span]) -> bool {
        let shown = render(NAME, SIZE, scan, spans);
        let smaller = |shown: u64, all: u64| shown.saturating_mul(4) < all.saturating_mul(3);
        let bytes = smaller(shown.len() as u64, self.size.len as u64);
        let whole = self.size.bytes == self.size.len && self.limits.tokens > 0;
        let by_lines = || {
            let (shown, all) = (total(&shown), self.lines);
            self.limits.lines > 0 && smaller(shown as u64, all as u64)
        };
        let tokens = !whole || smaller(u64::from((self.count)(&shown)), self.size.tokens);
        tokens && (bytes || by_lines())
    }
}

/// A budget that would have just met the limit.
fn scaled(bytes: usize, load: Load) -> usize {
    let wanted = (bytes as u64).saturating_mul(970) / load.max(1);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

fn middle(low: usize, high: usize) -> usize {
    low.saturating_add(high.saturating_sub(low) / 2)
}
