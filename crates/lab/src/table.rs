//! A report as a table for a terminal. Pure: figures to text. Owns no figure itself.

use comfy_table::{CellAlignment, Table, presets};
use plimsoll_core::policy::Policy;
use plimsoll_model::ReasoningBack;

use super::cuts::{Anchor, CutPoints, CutRow};
use super::outcome::{Outcome, Report, Share};
use super::trace::Tools;
use super::{Annotate, Options, Think};

/// How a figure is shown.
type Show = fn(&Outcome) -> String;

/// The columns: a head, and what stands under it.
const COLUMNS: [(&str, Show); 18] = [
    ("requests", |o| o.requests.to_string()),
    ("sent", |o| millions(o.sent as f64)),
    ("peak", |o| o.peak.to_string()),
    ("over", |o| o.over.to_string()),
    ("pruned", |o| share(o.prune_rate())),
    ("passes", |o| o.passes.to_string()),
    ("above floor", |o| o.shallow.to_string()),
    ("runs", |o| o.runs.to_string()),
    ("breaks", |o| o.breaks.to_string()),
    ("cached", |o| share(o.cached_share())),
    ("cost", |o| millions(o.cost)),
    ("K", |o| fine(o.visible.kept())),
    ("K+named", |o| fine(o.recoverable.kept())),
    ("L", |o| fine(o.lines.kept())),
    ("P", |o| fine(o.passages.kept())),
    ("no impact", no_impact),
    ("again", |o| o.refetches.to_string()),
    ("µs", |o| format!("{:.0}", o.micros())),
];

/// The table.
#[must_use]
pub fn table(report: &Report) -> String {
    let policies = report.policies();
    let mut rows = vec![vec![String::from("policy")]];
    if let Some(head) = rows.first_mut() {
        head.extend(COLUMNS.iter().map(|(name, _)| (*name).to_owned()));
    }
    for (name, outcome) in &policies {
        let mut row = vec![(*name).to_owned()];
        row.extend(COLUMNS.iter().map(|(_, show)| show(outcome)));
        rows.push(row);
    }
    aligned(&rows)
}

/// Columns as wide as their widest cell, the first flush left and the others flush right.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if at > 0 { 2 } else { 0 }, 0));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// What policies still show at the cut points, as a table.
#[must_use]
pub fn cut_points(cut: &CutPoints, judged: &[CutRow]) -> String {
    let first = judged.first().map_or("", |row| &row.name);
    let beside = format!("beside {first}");
    let head = [
        "policy",
        "tokens",
        "pruned",
        "no impact: strings",
        &beside,
        "strings and lines",
    ];
    let head = head.into_iter().chain(Anchor::WORDS.map(|(word, _)| word));
    let mut rows = vec![head.map(str::to_owned).collect::<Vec<String>>()];
    let points = cut.drawn.len().max(1) as f64;
    for row in judged {
        let (more, less) = row.beside_first;
        let mut cells = vec![
            row.name.clone(),
            format!("{:.0}", row.tokens as f64 / points),
            share(row.pruned / points),
            interval(row.strings),
            format!("+{more} -{less}"),
            interval(row.whole),
        ];
        let missed = |anchor: Anchor| row.missed.get(&anchor).copied().unwrap_or_default();
        cells.extend(Anchor::WORDS.map(|(_, anchor)| missed(anchor).to_string()));
        rows.push(cells);
    }
    format!(
        "{}\n{} conversations, each cut once before a request over the budget; the future of {} needs something.\n\
         tokens: of a view, on the mean; pruned: the mean share of the history that is left out. no impact: points at \
         which\nthe view shows all strings (that tell where something is), and all lines too, that calls of the recorded \
         future use\nand that no result and no user has said again by then, with Wilson's interval of 95 %. beside: points \
         at which\nonly this one misses no string, and only the first one. Behind them: at how many points an anchor of a \
         class is missed.\n",
        aligned(&rows),
        cut.drawn.len(),
        cut.needing(),
    )
}

/// A share with its interval.
fn interval(of: Share) -> String {
    let (low, high) = of.wilson();
    format!("{} ({} to {})", share(of.kept()), share(low), share(high))
}

/// Under what circumstances the figures of a report came about. Where they are sums over ceilings, these are told.
#[must_use]
pub fn circumstances(report: &Report, options: &Options, sums: bool) -> String {
    let ceilings: Vec<String> = options.ceilings.iter().map(ToString::to_string).collect();
    let ceilings = match sums {
        true => format!(", budget {}", ceilings.join(" + ")),
        false => String::new(),
    };
    let count = report.sessions.len();
    let annotate = match options.annotate {
        Annotate::None => "nobody marks episodes",
        Annotate::Inferred => "cwl and cwl-paper: episodes inferred from the tools, at no cost",
        Annotate::Obedient => {
            "cwl and cwl-paper: episodes marked by a model that does as it is asked; schema, \
             guidance, exchanges, their output and extra hops are charged"
        }
        Annotate::Scripted => {
            "cwl and cwl-paper: episodes marked by a scripted model; schema, guidance, exchanges, \
             their output and extra hops are charged"
        }
    };
    let derived = report.sessions.iter();
    let derived = derived.filter(|one| one.tools == Tools::Derived).count();
    format!(
        "{count} {}{}{ceilings}; {annotate}. Prices: {}.\n{}{}{}",
        if count == 1 { "session" } else { "sessions" },
        if report.short == 0 {
            String::new()
        } else {
            format!(" ({} shorter ones left out)", report.short)
        },
        options.pricing.name,
        match derived {
            0 => String::new(),
            all if all == count =>
                "Tools were not recorded; they are made up from the calls.\n".to_owned(),
            some => format!(
                "Tools were not recorded in {some} of them; they are made up from the calls.\n"
            ),
        },
        thinking(report, options),
        ended(report, options),
    )
}

/// What the columns of the table mean.
#[must_use]
pub fn figures(options: &Options) -> String {
    let summary = options
        .policies
        .iter()
        .any(|ladder| ladder.has(Policy::Compaction));
    let summary = match summary {
        true => {
            "compaction: a summary of 2,000 tokens, or a tenth of the budget, is charged as written by a model and \
             sent;\nwhat it tells is not known and counts as nothing.\n"
        }
        false => "",
    };
    format!(
        "sent and cost in millions (cost: of plain input tokens). K: distinctive strings that calls \
         needed and\nthat were still visible; K+named: visible, or named in the view by item or \
         episode; L: whole lines; P: passages of four words that answers repeated,\nthe rare ones \
         weighing more.\nno impact: passes after which nothing was missed that they took, \
         with its 95 % interval.\n\
         above floor: passes that stopped above it; runs: those that were the third of their kind \
         within ten turns,\nall three with the budget met.\n{summary}"
    )
}

/// How much every answer was made to think, and what of the cost that is.
fn thinking(report: &Report, options: &Options) -> String {
    let Some(Think { tokens, spread }) = options.think else {
        return String::new();
    };
    let policies = report.policies();
    let cost = policies
        .first()
        .map_or(0.0, |(_, outcome)| outcome.thinking);
    let size = match (tokens, spread) {
        (0, 0) => return "Thoughts are as they were recorded.\n".to_owned(),
        (tokens, 0) => format!("{tokens} tokens"),
        (tokens, spread) => format!(
            "{} to {} tokens",
            tokens.saturating_sub(spread),
            tokens + spread
        ),
    };
    format!(
        "Every answer thinks {size}, made up of words of its session, in place of what was recorded; nothing is \
         looked for in them.\nAs output they are {} of each cost.\n",
        millions(cost)
    )
}

/// How much of what was thought passes ended, where thoughts are bound to what stands before them.
fn ended(report: &Report, options: &Options) -> String {
    if options.pricing.family.reasoning_back != ReasoningBack::Bound {
        return String::new();
    }
    let policies = report.policies();
    let each = policies.iter().map(|(name, outcome)| {
        let Share { part, whole } = outcome.thoughts;
        format!(
            "{name} {} of {}",
            millions(part as f64),
            millions(whole as f64)
        )
    });
    let each: Vec<String> = each.collect();
    format!(
        "Tokens of thoughts, in millions, that passes ended of what was thought: {}.\n",
        each.join("; ")
    )
}

pub(super) fn millions(count: f64) -> String {
    format!("{:.2}", count / 1e6)
}

pub(super) fn share(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

pub(super) fn fine(share: f64) -> String {
    format!("{share:.4}")
}

fn no_impact(outcome: &Outcome) -> String {
    if outcome.passes == 0 {
        return "-".to_owned();
    }
    let rate = outcome.no_impact();
    let (low, high) = rate.wilson();
    format!("{:.2} [{low:.2},{high:.2}]", rate.kept())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_is_flush_left_and_the_others_right() {
        let row = |cells: [&str; 3]| cells.map(ToOwned::to_owned).to_vec();
        let rows = [row(["policy", "µs", ""]), row(["cwl", "1", "0.5"])];
        assert_eq!(aligned(&rows), "policy  µs\ncwl      1  0.5\n");
    }
}
