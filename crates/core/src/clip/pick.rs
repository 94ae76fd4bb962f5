//! Picks lines by wishes, in order, while a budget lasts. It pays for the line that stands at each
//! gap too. Never knows why a line is wished for.

use std::collections::BTreeMap;

use super::cut;
use super::lines::{Lines, Span, narrow};

/// A picker gives up on its wishes after so many in a row that don't fit.
const MISFITS: u32 = 512;
/// A line is never cut to less than this.
const LEAST: usize = 40;

/// How much may stay.
#[derive(Clone, Copy)]
pub struct Budget {
    pub bytes: usize,
    pub lines: usize,
}

/// A run of lines that should stay whole or not at all: its first and its last line.
pub type Wish = (usize, usize);

/// What should stay, the most wished first.
pub struct Plan {
    pub wishes: Vec<Wish>,
    /// How the rest of the budget is shared between the head and the tail of the text.
    pub head: usize,
    pub tail: usize,
    /// A line with more bytes than this is cut.
    pub longest: usize,
    /// What a gap costs in bytes.
    pub gap: usize,
}

/// Picks lines of a text and gives their spans.
pub fn pick(lines: &Lines<'_>, plan: &Plan, budget: Budget) -> Vec<Span> {
    // One line may take all, else a half at most; few lines may be longer than many.
    let share = if lines.count() == 1 { 1 } else { 2 };
    let fair = budget.bytes / lines.count().max(1);
    let longest = plan.longest.max(fair).min(budget.bytes / share);
    let mut picker = Picker {
        lines,
        kept: BTreeMap::new(),
        bytes: budget.bytes,
        rows: budget.lines,
        longest: longest.max(LEAST),
        gap: plan.gap,
    };
    picker.grant(&plan.wishes);
    picker.fill(plan.head, plan.tail);
    picker.spans()
}

struct Picker<'a, 't> {
    lines: &'a Lines<'t>,
    /// The kept lines, each with the most bytes that it may have.
    kept: BTreeMap<usize, usize>,
    bytes: usize,
    rows: usize,
    longest: usize,
    gap: usize,
}

impl Picker<'_, '_> {
    fn grant(&mut self, wishes: &[Wish]) {
        let mut misfits = 0_u32;
        for wish in wishes {
            if self.take(*wish) {
                misfits = 0;
                continue;
            }
            misfits = misfits.saturating_add(1);
            if misfits > MISFITS {
                return;
            }
        }
    }

    /// Takes a run of lines if all of it fits.
    fn take(&mut self, (first, last): Wish) -> bool {
        let rows = last.saturating_sub(first).saturating_add(1);
        if last >= self.lines.count() || rows > self.rows.saturating_add(self.kept.len()) {
            return false;
        }
        let missing = || (first..=last).filter(|line| !self.kept.contains_key(line));
        let (mut cost, mut rows) = (0_usize, 0_usize);
        for line in missing() {
            cost = cost.saturating_add(self.cost(line));
            rows = rows.saturating_add(1);
            if cost > self.bytes || rows > self.rows {
                return false;
            }
        }
        if rows == 0 {
            return true;
        }
        // A run in the middle of a gap makes two of it.
        let split = !self.beside(first, last);
        let gap = if split { self.gap } else { 0 };
        if cost.saturating_add(gap) > self.bytes
            || rows.saturating_add(usize::from(split)) > self.rows
        {
            return false;
        }
        let missing: Vec<usize> = missing().collect();
        for line in missing {
            self.keep(line, self.longest);
        }
        true
    }

    /// Whether a run has a kept line or an end of the text inside it or beside it.
    fn beside(&self, first: usize, last: usize) -> bool {
        let (before, after) = (first.saturating_sub(1), last.saturating_add(1));
        first == 0
            || after >= self.lines.count()
            || self.kept.range(before..=after).next().is_some()
    }

    fn cost(&self, line: usize) -> usize {
        let len = self.lines.len(line);
        len.min(self.longest.saturating_add(self.gap))
    }

    /// Keeps a line, pays for it, and for what it does to the gaps around it.
    fn keep(&mut self, line: usize, most: usize) {
        let len = self.lines.len(line);
        let cost = len.min(most.saturating_add(self.gap));
        let left = line == 0 || self.kept.contains_key(&line.saturating_sub(1));
        let next = line.saturating_add(1);
        let right = next >= self.lines.count() || self.kept.contains_key(&next);
        self.bytes = self.bytes.saturating_sub(cost);
        self.rows = self.rows.saturating_sub(1);
        match (left, right) {
            (true, true) => {
                self.bytes = self.bytes.saturating_add(self.gap);
                self.rows = self.rows.saturating_add(1);
            }
            (false, false) => {
                self.bytes = self.bytes.saturating_sub(self.gap);
                self.rows = self.rows.saturating_sub(1);
            }
            (true, false) | (false, true) => {}
        }
        self.kept.insert(line, most);
    }

    /// Spends what is left on the head and the tail of the text, by their shares.
    fn fill(&mut self, head: usize, tail: usize) {
        let (mut low, mut high) = (0_usize, self.lines.count());
        let (mut spent_low, mut spent_high) = (0_usize, 0_usize);
        let (mut open_low, mut open_high) = (head > 0, tail > 0);
        while low < high && (open_low || open_high) {
            let front = spent_low.saturating_mul(tail) <= spent_high.saturating_mul(head);
            let front = (front && open_low) || !open_high;
            let line = if front { low } else { high.saturating_sub(1) };
            let before = self.bytes;
            let fits = self.fits(line);
            let spent = before.saturating_sub(self.bytes);
            if front {
                open_low = fits;
                low = low.saturating_add(1);
                spent_low = spent_low.saturating_add(spent);
            } else {
                open_high = fits;
                high = high.saturating_sub(1);
                spent_high = spent_high.saturating_add(spent);
            }
        }
    }

    /// Takes one line. A long one that does not fit is cut to what is left.
    fn fits(&mut self, line: usize) -> bool {
        if self.take((line, line)) {
            return true;
        }
        let room = self.bytes.saturating_sub(self.gap.saturating_mul(2));
        if self.lines.len(line) > self.longest && room > LEAST && self.rows > 2 {
            self.keep(line, room);
        }
        false
    }

    /// The spans of the kept lines. A gap of one line that is no longer than the line that would
    /// stand for it is kept as well.
    fn spans(&self) -> Vec<Span> {
        let mut out: Vec<Span> = Vec::new();
        let mut next = 0;
        for (line, most) in &self.kept {
            let alone = line.saturating_sub(next) == 1 && self.lines.len(next) <= self.gap;
            let from = if alone { next } else { *line };
            next = line.saturating_add(1);
            let whole = self.lines.len(*line) <= most.saturating_add(self.gap);
            let cut = if whole {
                None
            } else {
                cut::pieces(self.lines, *line, *most)
            };
            let start = narrow(self.lines.start(from));
            match cut {
                Some((front, back)) => {
                    join(&mut out, (start, front.1));
                    out.push(back);
                }
                None => join(&mut out, (start, narrow(self.lines.start(next)))),
            }
        }
        out
    }
}

/// Adds a span, as one with the last if they touch.
fn join(out: &mut Vec<Span>, span: Span) {
    match out.last_mut() {
        Some(last) if last.1 == span.0 => last.1 = span.1,
        Some(_) | None => out.push(span),
    }
}

/// The order in which both ends of a list come before its middle.
pub fn ends_first<T: Copy>(list: &[T]) -> impl Iterator<Item = T> + '_ {
    let half = list.len().div_ceil(2);
    let front = list.iter().take(half).copied().map(Some);
    let back = list.iter().skip(half).rev().copied().map(Some);
    front
        .zip(back.chain(std::iter::repeat(None)))
        .flat_map(|(first, last)| [first, last])
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(wishes: &[Wish]) -> Plan {
        Plan {
            wishes: wishes.to_vec(),
            head: 2,
            tail: 1,
            longest: 1000,
            gap: 10,
        }
    }

    #[test]
    fn wishes_come_before_head_and_tail() {
        let text = "0123456\n".repeat(100);
        let lines = Lines::new(&text);
        let budget = Budget {
            bytes: 66,
            lines: 99,
        };
        let spans = pick(&lines, &plan(&[(50, 50)]), budget);
        assert_eq!(spans, [(0, 32), (400, 408), (784, 800)]);
    }

    #[test]
    fn both_ends_come_first() {
        let order: Vec<u8> = ends_first(&[1, 2, 3, 4, 5]).collect();
        assert_eq!(order, [1, 5, 2, 4, 3]);
    }

    #[test]
    fn lines_are_a_budget_of_their_own() {
        let text = "a\n".repeat(1000);
        let budget = Budget {
            bytes: 900,
            lines: 9,
        };
        let spans = pick(&Lines::new(&text), &plan(&[]), budget);
        let kept: u32 = spans.iter().map(|span| span.1 - span.0).sum();
        assert_eq!(kept, 18);
    }
}
