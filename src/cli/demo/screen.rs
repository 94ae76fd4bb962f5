//! Shows the demo: as a block that is redrawn in a terminal, or as plain lines. Owns the terminal's
//! state and restores it. Never computes a figure.

use std::io::{IsTerminal as _, Stdout, Write as _, stdout};

use crossterm::style::{Color, Print, ResetColor, SetForegroundColor};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, size};
use crossterm::{cursor, queue};

use super::measure::Figures;
use super::plot::{Ink, MARGIN, PlotLayout, PlotLine, plot};
use super::session::SOURCE;
use super::table;

/// How many rows the plot aims at, and the widest that it gets.
const ROWS: usize = 15;
const MAX_WIDTH: usize = 100;
/// How many lines surround the plot: headline, legend, blank lines, axis, marks and figures.
const OTHER_LINES: usize = 8;
/// A narrower terminal gets plain lines.
const MIN_WIDTH: usize = 60;
/// Without a terminal, one line is written every so many turns.
const TURNS_PER_LINE: usize = 10;

/// What is shown of the session on any output.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// How many turns the session has.
    pub turns: usize,
    /// The budget in tokens.
    pub ceiling: usize,
    /// About how many tokens the session has at its end.
    pub top: usize,
}

/// An output.
pub enum Screen {
    /// A terminal.
    Live(Live),
    /// Anything else.
    Plain(Stdout),
}

impl Screen {
    /// Chooses the output that standard output calls for.
    #[must_use]
    pub fn open(scene: &Scene) -> Self {
        let out = stdout();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !out.is_terminal() {
            return Self::Plain(out);
        }
        match size() {
            Ok((columns, rows)) if fits(columns, rows, scene) => Self::Live(Live {
                out,
                drawn: 0,
                width: columns,
            }),
            Ok(_) | Err(_) => Self::Plain(out),
        }
    }

    /// Whether somebody watches, so that a slow pace makes sense.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Shows the figures after a turn.
    ///
    /// # Errors
    /// If the output is gone.
    pub fn show(&mut self, scene: &Scene, figures: &Figures) -> std::io::Result<()> {
        match self {
            Self::Live(live) => live.draw(scene, figures),
            Self::Plain(out) => {
                let turn = figures.samples.len();
                if turn.is_multiple_of(TURNS_PER_LINE) || turn == scene.turns {
                    writeln!(out, "{}", table::progress(figures, scene.turns))?;
                }
                Ok(())
            }
        }
    }

    /// Writes the end.
    ///
    /// # Errors
    /// If the output is gone.
    pub fn close(self, text: &str) -> std::io::Result<()> {
        match self {
            Self::Live(mut live) => write!(live.out, "\n{text}"),
            Self::Plain(mut out) => write!(out, "\n{text}"),
        }
    }
}

fn layout(columns: usize, scene: &Scene) -> PlotLayout {
    let columns = columns.min(MAX_WIDTH).saturating_sub(MARGIN + 3);
    PlotLayout::new(columns, ROWS, scene.turns, scene.ceiling, scene.top)
}

fn fits(columns: u16, rows: u16, scene: &Scene) -> bool {
    let columns = usize::from(columns);
    let needed = layout(columns, scene).rows() + OTHER_LINES;
    columns >= MIN_WIDTH && usize::from(rows) > needed
}

/// A block in a terminal.
pub struct Live {
    out: Stdout,
    /// How many lines the block has at the moment.
    drawn: u16,
    /// The width of the terminal when they were drawn.
    width: u16,
}

impl Live {
    fn draw(&mut self, scene: &Scene, figures: &Figures) -> std::io::Result<()> {
        let width = size().map_or(self.width, |(columns, _)| columns);
        let lines = block(&layout(width.into(), scene), scene, figures);
        queue!(self.out, BeginSynchronizedUpdate, cursor::Hide)?;
        if width != self.width {
            // Lines that the terminal wrapped again can't be found any more.
            queue!(self.out, Clear(ClearType::All), cursor::MoveTo(0, 0))?;
        } else if self.drawn > 0 {
            queue!(self.out, cursor::MoveToPreviousLine(self.drawn))?;
        }
        queue!(self.out, Clear(ClearType::FromCursorDown))?;
        for line in &lines {
            for (ink, text) in line {
                queue!(self.out, SetForegroundColor(color(*ink)), Print(text))?;
            }
            queue!(self.out, ResetColor, Print("\r\n"))?;
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.drawn = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        self.width = width;
        self.out.flush()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The demo changes nothing else in the terminal. If the terminal is gone, nothing has to be
        // done.
        let _gone = queue!(self.out, ResetColor, EndSynchronizedUpdate, cursor::Show);
        let _gone = self.out.flush();
    }
}

fn color(ink: Ink) -> Color {
    match ink {
        Ink::Text => Color::Reset,
        Ink::Faint => Color::DarkGrey,
        Ink::Agent => Color::Yellow,
        Ink::Sent => Color::Cyan,
        Ink::Ceiling | Ink::Fault => Color::Red,
        Ink::Pass => Color::Green,
    }
}

/// The headline, the plot, the legend and the figures.
fn block(layout: &PlotLayout, scene: &Scene, figures: &Figures) -> Vec<PlotLine> {
    let text = |text: String| vec![(Ink::Text, text)];
    let turn = figures.samples.len();
    let mut lines = vec![
        text(format!("Plimsoll · {SOURCE}")),
        vec![(
            Ink::Faint,
            format!("through the proxy, live: turn {turn} of {}", scene.turns),
        )],
        text(String::new()),
    ];
    lines.extend(plot(layout, &figures.samples));
    let legend = [
        (Ink::Agent, "• what the agent sees   "),
        (Ink::Sent, "█ what is sent   "),
        (Ink::Ceiling, "▁ budget   "),
        (Ink::Pass, "▲ a pass"),
    ];
    let legend = legend.map(|(ink, text)| (ink, text.to_owned()));
    let indent = (Ink::Text, " ".repeat(MARGIN + 2));
    lines.push(std::iter::once(indent).chain(legend).collect());
    lines.push(text(String::new()));
    lines.push(text(format!("  {}", table::summary(figures))));
    lines
}
