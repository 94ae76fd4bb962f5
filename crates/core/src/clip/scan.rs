//! A text that has been read by its shape once, for the choice and the writing of every trial.
//! Never knows a limit.

use plimsoll_model::ResultShape;

use super::json::Items;
use super::lines::{Lines, Span, narrow};
use super::log::{self, Told};
use super::pick::{Budget, Plan, Wish, pick};
use super::search::Search;
use super::severity::is_exit;

/// In a text that is no log, only so many lines at either end may tell how a command ended.
const ENDS: usize = 5;
/// What a gap costs in bytes where it has no name.
const GAP: usize = 28;

/// A text with its lines and what its shape says about them.
pub struct Scan<'a> {
    pub lines: Lines<'a>,
    pub kind: Kind<'a>,
}

/// What the shape says.
pub enum Kind<'a> {
    Search(Search<'a>),
    /// The lines that say something; not read if the text is only written.
    Log(Option<Told>),
    Json(Items),
    Lines,
}

/// How spans are chosen.
pub enum Choice {
    Lines(Plan),
    Items,
}

impl<'a> Scan<'a> {
    /// Reads a text as one of `shape`, whatever it is.
    pub fn of(shape: ResultShape, text: &'a str) -> Self {
        let lines = Lines::new(text);
        let kind = match shape {
            ResultShape::Search => Kind::Search(Search::of(&lines)),
            ResultShape::Log => Kind::Log(None),
            ResultShape::Json => Items::of(text).map_or(Kind::Lines, Kind::Json),
            ResultShape::Plain => Kind::Lines,
        };
        Self { lines, kind }
    }

    /// What should stay.
    pub fn choice(&self) -> Choice {
        let exits = self.exits();
        let plan = match &self.kind {
            Kind::Json(_) => return Choice::Items,
            Kind::Search(search) => search.plan(exits),
            Kind::Log(Some(told)) => log::plan(&self.lines, told),
            Kind::Log(None) => log::plan(&self.lines, &Told::of(&self.lines)),
            Kind::Lines => Plan {
                wishes: exits,
                head: 2,
                tail: 1,
                longest: usize::MAX,
                gap: GAP,
            },
        };
        Choice::Lines(plan)
    }

    /// The spans that stay within a budget. `None` if the shape can't meet it.
    pub fn spans(&self, choice: &Choice, budget: Budget) -> Option<Vec<Span>> {
        match (choice, &self.kind) {
            (Choice::Lines(plan), _) => Some(pick(&self.lines, plan, budget)),
            (Choice::Items, Kind::Json(items)) => items.pick(self.lines.text(), budget, GAP),
            (Choice::Items, _) => None,
        }
    }

    /// The lines at either end that tell how a command ended.
    fn exits(&self) -> Vec<Wish> {
        let count = self.lines.count();
        let tail = count.saturating_sub(ENDS).max(ENDS.min(count));
        (0..ENDS.min(count))
            .chain(tail..count)
            .filter(|line| is_exit(self.lines.get(*line)))
            .map(|line| (line, line))
            .collect()
    }
}

/// Spans as they may be used on a text: in order, apart, in the text, and between characters.
pub fn sound<'s>(text: &'s str, spans: &'s [Span]) -> impl Iterator<Item = Span> + 's {
    let mut past = 0_usize;
    spans.iter().filter_map(move |(start, end)| {
        let start = text.floor_char_boundary((*start as usize).min(text.len()));
        let end = text.floor_char_boundary((*end as usize).min(text.len()));
        let start = start.max(past);
        (start < end).then(|| {
            past = end;
            (narrow(start), narrow(end))
        })
    })
}
