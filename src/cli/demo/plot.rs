//! The plot in text: bars for what was sent, dots for what the agent sees, the budget's line, and a mark
//! under each pass. Owns the cells of the plot. Never touches a terminal.

use super::measure::Sample;

/// What a piece of text stands for. The screen chooses its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Plain text.
    Text,
    /// Axes and other less important things.
    Faint,
    /// The tokens that the agent sees.
    Agent,
    /// The tokens that were sent.
    Sent,
    /// The budget's line.
    Ceiling,
    /// A pass.
    Pass,
    /// Something that went wrong.
    Fault,
}

/// A piece of text in one ink.
pub type InkedText = (Ink, String);
/// A line on the screen.
pub type PlotLine = Vec<InkedText>;

/// Bars grow by eighths of a row.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The width of the labels on the left, in columns.
pub const MARGIN: usize = 7;

/// The layout of the plot. It is fixed for a run, so that the picture grows and never jumps.
#[derive(Clone, Copy, Debug)]
pub struct PlotLayout {
    /// The width of the plot itself, in columns.
    pub columns: usize,
    /// How many turns the session has.
    pub turns: usize,
    /// The budget in tokens.
    pub ceiling: usize,
    /// How many rows lie below it, which is exactly on a border between two rows.
    below: usize,
    /// How many rows there are.
    rows: usize,
}

impl PlotLayout {
    /// A layout in which `top` tokens fit into about `rows` rows.
    #[must_use]
    pub fn new(columns: usize, rows: usize, turns: usize, ceiling: usize, top: usize) -> Self {
        let (ceiling, top) = (ceiling.max(1), top.max(1));
        let below = (rows * ceiling / top).clamp(1, rows.max(1));
        let needed = (top * below).div_ceil(ceiling);
        Self {
            columns: columns.max(1),
            turns: turns.max(1),
            ceiling,
            below,
            rows: needed.max(below + 1),
        }
    }

    /// How many rows the plot itself has.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many eighths of a row these tokens take. Anything above zero takes at least one.
    fn eighths(&self, tokens: usize) -> usize {
        (tokens * self.below * 8).div_ceil(self.ceiling)
    }

    /// The turns that a column stands for.
    fn turns_of(&self, column: usize) -> std::ops::Range<usize> {
        let first = column * self.turns / self.columns;
        let end = (column + 1) * self.turns / self.columns;
        first..end.max(first + 1)
    }
}

/// The figures of one column.
#[derive(Clone, Copy, Default)]
struct Column {
    agent: usize,
    sent: usize,
    passed: bool,
}

/// The plot of the samples so far with axes and marks, from top to bottom.
#[must_use]
pub fn plot(layout: &PlotLayout, samples: &[Sample]) -> Vec<PlotLine> {
    let columns: Vec<Option<Column>> = (0..layout.columns)
        .map(|at| column(layout, samples, at))
        .collect();
    let mut lines: Vec<PlotLine> = (0..layout.rows)
        .rev()
        .map(|row| line(layout, &columns, row))
        .collect();
    let axis = format!("{:>MARGIN$} ┴{}", 0, "─".repeat(layout.columns));
    lines.push(vec![(Ink::Faint, axis)]);
    let marks = columns.iter().map(|column| match column {
        Some(Column { passed: true, .. }) => '▲',
        Some(_) | None => ' ',
    });
    let marks = format!("{:MARGIN$}  {}", "", marks.collect::<String>());
    lines.push(vec![(Ink::Pass, marks)]);
    lines
}

fn column(layout: &PlotLayout, samples: &[Sample], at: usize) -> Option<Column> {
    let mut column = None;
    for sample in layout.turns_of(at).filter_map(|turn| samples.get(turn)) {
        let so_far: &mut Column = column.get_or_insert_default();
        so_far.agent = so_far.agent.max(sample.agent);
        so_far.sent = so_far.sent.max(sample.sent);
        so_far.passed |= sample.passed;
    }
    column
}

fn line(layout: &PlotLayout, columns: &[Option<Column>], row: usize) -> PlotLine {
    let mut line = vec![label(layout, row)];
    for column in columns {
        let (ink, cell) = cell(layout, column.unwrap_or_default(), row);
        match line.last_mut() {
            Some((last, text)) if *last == ink => text.push(cell),
            _ => line.push((ink, cell.to_string())),
        }
    }
    line
}

/// The label at the lower border of a row. Only multiples of the budget have one.
fn label(layout: &PlotLayout, row: usize) -> InkedText {
    let on_border = row.is_multiple_of(layout.below) && row > 0;
    let text = match (on_border, row / layout.below) {
        (false, _) => format!("{:MARGIN$} │", ""),
        (true, times) => format!("{:>MARGIN$} ┤", short(layout.ceiling * times)),
    };
    let ink = if on_border && row == layout.below {
        Ink::Ceiling
    } else {
        Ink::Faint
    };
    (ink, text)
}

fn cell(layout: &PlotLayout, column: Column, row: usize) -> (Ink, char) {
    let bottom = row * 8;
    let filled = layout.eighths(column.sent).saturating_sub(bottom).min(8);
    if filled > 0 {
        // A bar above the line has broken the promise and must be visible.
        let ink = if row >= layout.below {
            Ink::Fault
        } else {
            Ink::Sent
        };
        return (ink, EIGHTHS.get(filled).copied().unwrap_or('█'));
    }
    let agent = layout.eighths(column.agent);
    if agent > bottom && agent <= bottom + 8 {
        return (Ink::Agent, '•');
    }
    if row == layout.below {
        return (Ink::Ceiling, '▁');
    }
    (Ink::Text, ' ')
}

/// A number of tokens in a few characters: `950`, `39.9k`, `163k`.
#[must_use]
pub fn short(tokens: usize) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..100_000 if tokens.is_multiple_of(1_000) => format!("{}k", tokens / 1_000),
        1_000..100_000 => format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100),
        _ => format!("{}k", tokens / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use plimsoll_model::grouped;

    fn text(lines: &[PlotLine]) -> Vec<String> {
        lines
            .iter()
            .map(|line| line.iter().map(|(_, text)| text.as_str()).collect())
            .collect()
    }

    fn sample(agent: usize, sent: usize, passed: bool) -> Sample {
        Sample {
            agent,
            sent,
            passed,
            saved: 0.0,
        }
    }

    #[test]
    fn bars_stay_under_the_line_and_dots_above_them() {
        let layout = PlotLayout::new(5, 6, 5, 40, 120);
        let samples = [
            sample(20, 20, false),
            sample(40, 40, false),
            sample(80, 20, true),
            sample(120, 30, false),
        ];
        // Six rows, two to a budget: a label stands over its border, a dot fills the row under it.
        let expect = [
            "        │   • ",
            "     80 ┤     ",
            "        │  •  ",
            "     40 ┤▁▁▁▁▁",
            "        │ █ ▄ ",
            "        │████ ",
            "      0 ┴─────",
            "           ▲  ",
        ];
        let lines = plot(&layout, &samples);
        assert_eq!(text(&lines), expect);
    }

    #[test]
    fn a_bar_over_the_line_is_a_fault() {
        let layout = PlotLayout::new(1, 6, 1, 40, 120);
        let of = |sent| plot(&layout, &[sample(41, sent, false)]);
        let faults = |lines: &[PlotLine]| lines.iter().flatten().any(|(ink, _)| *ink == Ink::Fault);
        assert!(!faults(&of(40)));
        assert!(faults(&of(41)));
    }

    #[test]
    fn numbers_are_short_or_grouped() {
        let shorts = [950, 1_000, 39_950, 40_000, 163_630].map(short);
        assert_eq!(shorts, ["950", "1k", "39.9k", "40k", "163k"]);
        let numbers = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
    }

    proptest! {
        /// Whatever is plotted, every line is as wide as the layout says.
        #[test]
        fn lines_are_of_one_width(
            columns in 1_usize..120, rows in 1_usize..20, turns in 1_usize..300,
            ceiling in 1_usize..100_000, top in 1_usize..500_000,
            sizes in prop::collection::vec((0_usize..600_000, 0_usize..200_000, any::<bool>()), 0..300),
        ) {
            let layout = PlotLayout::new(columns, rows, turns, ceiling, top);
            let samples: Vec<Sample> = sizes.into_iter().map(|(a, s, p)| sample(a, s, p)).collect();
            let lines = text(&plot(&layout, &samples));
            for line in &lines {
                prop_assert_eq!(line.chars().count(), MARGIN + 2 + columns, "{:?}", line);
            }
        }
    }
}
