//! A swept surface in words: the table, what to take and why, the lines to paste, and the same as
//! JSON. Pure: figures to text. Owns the wording; never chooses.

use std::fmt::Write as _;

use plimsoll_core::commit::Floor;
use serde_json::{Value, json};

use super::json;
use super::outcome::Outcome;
use super::table::{aligned, fine, millions, share};
use super::tune::{Advice, Cell, OVER, SLACK, Surface};

/// How a figure of a setting is shown.
type Show = fn(&Cell, &Outcome) -> String;

const COLUMNS: [(&str, Show); 14] = [
    ("budget", |cell, _| cell.ceiling.to_string()),
    ("floor", |cell, _| word(cell.floor)),
    ("cost", |cell, _| millions(cell.outcome.cost)),
    ("× none", |cell, none| {
        format!("{:.3}", ratio(&cell.outcome, none))
    }),
    ("pruned", |cell, _| share(cell.outcome.prune_rate())),
    ("passes", |cell, _| cell.outcome.passes.to_string()),
    ("breaks", |cell, _| cell.outcome.breaks.to_string()),
    ("peak", |cell, _| cell.outcome.peak.to_string()),
    ("over", |cell, _| cell.outcome.over.to_string()),
    ("K", |cell, _| fine(cell.kept())),
    ("K+named", |cell, _| fine(cell.outcome.recoverable.kept())),
    ("L", |cell, _| fine(cell.outcome.lines.kept())),
    ("P", |cell, _| fine(cell.outcome.passages.kept())),
    ("again", |cell, _| cell.outcome.refetches.to_string()),
];

/// A floor as settings name it.
pub(super) fn word(floor: Floor) -> String {
    match floor {
        Floor::Auto => "auto".to_owned(),
        Floor::Ceiling => "budget".to_owned(),
        Floor::Fraction(fraction) => fraction.to_string(),
    }
}

/// What a setting costs to what sending everything does.
pub(super) fn ratio(outcome: &Outcome, none: &Outcome) -> f64 {
    outcome.cost / none.cost.max(f64::MIN_POSITIVE)
}

/// The table of all settings, and what to take.
#[must_use]
pub fn text(surface: &Surface, prices: &str) -> String {
    let advice = surface.advice();
    let front = surface.front();
    let mut head: Vec<String> = vec![String::new()];
    head.extend(COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    let mut rows = vec![head];
    for (at, cell) in surface.cells.iter().enumerate() {
        let chosen = advice.is_some_and(|advice| advice.knee == at);
        let sign = match (chosen, front.contains(&at)) {
            (true, _) => "→",
            (false, true) => "*",
            (false, false) => "",
        };
        let mut row = vec![sign.to_owned()];
        row.extend(
            COLUMNS
                .iter()
                .map(|(_, show)| show(cell, &surface.untouched)),
        );
        rows.push(row);
    }
    let mut text = aligned(&rows);
    let _ = write!(
        text,
        "\n{} session{}{}; sent whole: {}. Prices: {prices}. cost in millions of plain input \
         tokens.\nK: distinctive strings that calls needed and that were still visible; K+named: \
         visible, or named in the view;\nL: whole lines. *: no other setting is both cheaper and \
         keeps more of K.\n",
        surface.sessions,
        if surface.sessions == 1 { "" } else { "s" },
        if surface.short == 0 {
            String::new()
        } else {
            format!(" ({} shorter ones left out)", surface.short)
        },
        millions(surface.untouched.cost),
    );
    let choice = choice(surface);
    if !choice.is_empty() {
        let _ = write!(text, "\n{choice}");
    }
    text
}

/// What to take, why, and the lines to paste; nothing where no setting was tried.
#[must_use]
pub fn choice(surface: &Surface) -> String {
    let Some(advice) = surface.advice() else {
        return String::new();
    };
    if surface.is_idle() {
        return "No request of these sessions came near any of these budgets, so that nothing was \
                evicted and nothing\ncan be chosen by them: stay with the defaults, or name lower \
                --budgets.\n"
            .to_owned();
    }
    match surface.cells.get(advice.knee) {
        Some(knee) => format!("{}\n\n{}", why(surface, &advice), lines(knee)),
        None => String::new(),
    }
}

/// The reason in words.
#[must_use]
pub fn why(surface: &Surface, advice: &Advice) -> String {
    let cell = |at: usize| surface.cells.get(at);
    let (Some(knee), Some(safe)) = (cell(advice.knee), cell(advice.safe)) else {
        return String::new();
    };
    let none = &surface.untouched;
    let mut text = format!(
        "Take {}: of {} it is the cheapest whose K is within {SLACK} of the best ({} at {}).\n\
         It costs {:.2} × sending everything, with {} passes, and shows {} of what calls needed \
         ({} with what the\nview names), and {} of the lines.",
        name(knee),
        compared(surface, advice),
        fine(safe.kept()),
        name(safe),
        ratio(&knee.outcome, none),
        knee.outcome.passes,
        fine(knee.kept()),
        fine(knee.outcome.recoverable.kept()),
        fine(knee.outcome.lines.kept()),
    );
    for (at, what) in [
        (advice.bend, "Where money begins to buy less"),
        (advice.thrifty, "The cheapest"),
    ] {
        let other = cell(at).filter(|other| other.outcome.cost < knee.outcome.cost);
        if let Some(other) = other {
            let _ = write!(text, "\n{what}, {}", instead(knee, other));
        }
    }
    if advice.safe != advice.knee {
        let more = safe.outcome.cost / knee.outcome.cost - 1.0;
        let _ = write!(
            text,
            "\nThe one that keeps most would cost {} more for {:.4} of K and {:.4} of L.",
            share(more),
            safe.kept() - knee.kept(),
            safe.outcome.lines.kept() - knee.outcome.lines.kept(),
        );
    }
    if knee.outcome.cost >= none.cost {
        text.push_str(
            "\nSending everything is cheaper still: on these sessions a budget is worth its price \
             only where the\nmodel's window asks for one.",
        );
    }
    if advice.holding == 0 {
        text.push_str(
            "\nNo setting held its budget: what may not be evicted is too large for all of them.",
        );
    }
    text
}

/// What another, cheaper setting would save and lose.
fn instead(knee: &Cell, other: &Cell) -> String {
    format!(
        "{}, would save another {}, and lose {:.4} of K and {:.4} of L.",
        name(other),
        share(1.0 - other.outcome.cost / knee.outcome.cost),
        knee.kept() - other.kept(),
        knee.outcome.lines.kept() - other.outcome.lines.kept(),
    )
}

fn compared(surface: &Surface, advice: &Advice) -> String {
    let all = surface.cells.len();
    if advice.holding == 0 || advice.holding == all {
        return format!("{all} settings");
    }
    format!(
        "the {} of {all} settings that leave at most {} of their requests over budget",
        advice.holding,
        share(OVER),
    )
}

fn name(cell: &Cell) -> String {
    format!(
        "a budget of {} with floor {}",
        cell.ceiling,
        word(cell.floor)
    )
}

/// A setting as it stands in a configuration file.
#[must_use]
pub fn lines(cell: &Cell) -> String {
    let floor = match cell.floor {
        Floor::Auto | Floor::Ceiling => format!("\"{}\"", word(cell.floor)),
        Floor::Fraction(_) => word(cell.floor),
    };
    format!("[budget]\ntokens = {}\nfloor = {floor}\n", cell.ceiling)
}

/// The surface: `{"settings": […], "untouched", "recommended", "bend", "thrifty", "safe",
/// "why", …}`; each
/// setting with its ceiling, its floor and the figures that a policy has.
#[must_use]
pub fn json(surface: &Surface, prices: &str) -> Value {
    let cell = |cell: &Cell| {
        let mut value = json::policy("cwl", &cell.outcome);
        if let Some(fields) = value.as_object_mut() {
            fields.insert("budget".to_owned(), json!(cell.ceiling));
            fields.insert("floor".to_owned(), json::floor(cell.floor));
        }
        value
    };
    let settings: Vec<Value> = surface.cells.iter().map(cell).collect();
    let advice = surface.advice().filter(|_| !surface.is_idle());
    let one = |at: Option<usize>| {
        let found = at.and_then(|at| surface.cells.get(at));
        found.map(|cell| json!({"budget": cell.ceiling, "floor": json::floor(cell.floor)}))
    };
    json!({
        "settings": settings,
        "untouched": json::policy("none", &surface.untouched),
        "recommended": one(advice.map(|advice| advice.knee)),
        "thrifty": one(advice.map(|advice| advice.thrifty)),
        "bend": one(advice.map(|advice| advice.bend)),
        "safe": one(advice.map(|advice| advice.safe)),
        "why": advice.map(|advice| why(surface, &advice)),
        "prices": prices,
        "sessions": surface.sessions,
        "sessions_left_out": surface.short,
    })
}

#[cfg(test)]
mod tests;
