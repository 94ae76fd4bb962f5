//! The words and numbers of the demo: the line under the picture, the plain lines, and the table at
//! the end. Owns the wording. Never computes a figure.

use std::fmt::Write as _;

use plimsoll_model::grouped;

use super::agent::MODEL;
use super::measure::{Figures, SessionTotals};
use super::plot::short;

/// How many faults are listed one by one.
const FAULTS_LISTED: usize = 10;

/// The current figures in one line.
#[must_use]
pub fn summary(figures: &Figures) -> String {
    let last = figures.samples.last().copied().unwrap_or_default();
    format!(
        "agent {:>6} · sent {:>6} · passes {:>2} · cached {:>5} · saved {} ({})",
        short(last.agent),
        short(last.sent),
        figures.breaks,
        percent(figures.sent.cached_share()),
        money(figures.saved()),
        percent(figures.saved_share()),
    )
}

/// How far the session is, for an output that is not a terminal.
#[must_use]
pub fn progress(figures: &Figures, turns: usize) -> String {
    let turn = figures.samples.len();
    format!("turn {turn:>3}/{turns} · {}", summary(figures))
}

/// What the table needs besides the figures.
#[derive(Clone, Copy, Debug)]
pub struct TableFacts {
    /// The budget in tokens.
    pub ceiling: usize,
    /// How many episodes the model marked.
    pub episodes: usize,
    /// How many passes the proxy counted, if its metrics could be read.
    pub passes: Option<usize>,
    /// What was saved in dollars according to the proxy's ledger: evicted, rewritten and annotated.
    pub parts: Option<[f64; 3]>,
    /// How often calls used a string of what had left their view, where it still showed that elsewhere and where it did not.
    pub needed: Option<[usize; 2]>,
}

/// The table at the end, and the verdict.
#[must_use]
pub fn table(figures: &Figures, facts: &TableFacts) -> String {
    let (whole, sent) = (&figures.whole, &figures.sent);
    let mut text = String::new();
    let mut row = |name: &str, of: &dyn Fn(&SessionTotals) -> String, note: &str| {
        let (left, right) = (of(whole), of(sent));
        let line = format!("  {name:<22}{left:>16}{right:>16}  {note}");
        text.push_str(line.trim_end());
        text.push('\n');
    };
    let header = |account: &SessionTotals| {
        let name = if std::ptr::eq(account, whole) {
            "sent whole"
        } else {
            "with plimsoll"
        };
        name.to_owned()
    };
    let ceiling = format!("budget {}", grouped(facts.ceiling));
    let hidden = sent.requests.saturating_sub(whole.requests);
    let hidden = format!("{hidden} of them hidden hops");
    let net = format!(
        "saved {} ({}) net",
        money(figures.saved()),
        percent(figures.saved_share())
    );
    row("", &header, "");
    row("largest request", &|a| grouped(a.largest), &ceiling);
    row("requests", &|a| grouped(a.requests), &hidden);
    row("input tokens", &|a| grouped(a.input), "");
    row("  of these cached", &|a| percent(a.cached_share()), "");
    row("output tokens", &|a| grouped(a.output), "marks included");
    row("cost", &|a| money(a.usd), &net);
    text.push('\n');
    if let Some([evicted, rewritten, annotated]) = facts.parts.map(|parts| parts.map(money)) {
        let _ = writeln!(
            text,
            "  Saved by eviction {evicted}, less {rewritten} for rewritten caches and {annotated} for the \
             hidden tools,\n  by the proxy's own ledger."
        );
    }
    let _ = writeln!(text, "  {}", work(figures, facts));
    let _ = writeln!(
        text,
        "  Sizes are the provider's. Money: {MODEL}'s list price, and for both columns a cache that \
         holds\n  every exact prefix; rewrites after passes, hidden hops and marks are paid for."
    );
    if let Some([held, missed]) = facts.needed.filter(|[held, missed]| held + missed > 0) {
        let _ = writeln!(
            text,
            "  Of {} uses of names, paths and numbers that had stood in evicted work, {} found them elsewhere in\n  the \
             request.",
            grouped(held.saturating_add(missed)),
            grouped(held)
        );
    }
    text.push('\n');
    let _ = writeln!(text, "  {}", verdict(figures, facts));
    text.push_str(NEXT);
    text
}

/// What a reader does next.
const NEXT: &str = "\n  Next: `plimsoll run -- claude` starts an agent behind the proxy; `plimsoll replay` says what it would \
    have\n  saved on the sessions that your agents have kept.\n";

/// What the proxy did to save that.
fn work(figures: &Figures, facts: &TableFacts) -> String {
    let passes = facts
        .passes
        .map_or_else(String::new, |passes| format!("{passes} passes, "));
    let overhead = figures.overhead();
    let overhead = overhead.map_or_else(String::new, |ms| {
        format!(", {ms:.1} ms of the proxy's own time in the median turn")
    });
    let (breaks, episodes) = (figures.breaks, facts.episodes);
    format!("{episodes} episodes marked, {passes}{breaks} rewrites of the cached prefix{overhead}.")
}

/// The last line, which says whether the promise was kept.
fn verdict(figures: &Figures, facts: &TableFacts) -> String {
    let ceiling = grouped(facts.ceiling);
    match (figures.faults.as_slice(), figures.reported) {
        ([], 0) => format!("✓ No request passed the budget of {ceiling}."),
        ([], reported) => format!(
            "! {reported} of {} turns could not be held under the budget of {ceiling}, and said so.",
            figures.samples.len()
        ),
        (faults, _) => {
            let mut text = format!("✗ {} things went wrong:", faults.len());
            for fault in faults.iter().take(FAULTS_LISTED) {
                let _ = write!(text, "\n    {fault}");
            }
            if let Some(more @ 1..) = faults.len().checked_sub(FAULTS_LISTED) {
                let _ = write!(text, "\n    and {more} more");
            }
            text
        }
    }
}

/// A share in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Dollars, with a sign.
#[must_use]
pub fn money(usd: f64) -> String {
    let sign = if usd < 0.0 { "-" } else { "" };
    format!("{sign}${:.2}", usd.abs())
}

#[cfg(test)]
mod tests {
    use super::super::measure::Sample;
    use super::*;

    fn figures() -> Figures {
        let account = |requests, usd| SessionTotals {
            requests,
            largest: 1_000 * requests,
            input: 100_000,
            cached: 95_000,
            output: 10,
            usd,
        };
        Figures {
            sent: account(12, 0.5),
            whole: account(10, 2.0),
            overheads: vec![3.0, 1.0, 2.0],
            ..Figures::default()
        }
    }

    const FACTS: TableFacts = TableFacts {
        ceiling: 40_000,
        episodes: 3,
        passes: Some(2),
        parts: Some([2.0, 0.3, 0.2]),
        needed: Some([1_190, 10]),
    };

    #[test]
    fn the_table_says_what_was_measured() {
        let text = table(&figures(), &FACTS);
        for words in [
            "largest request                 10,000          12,000  budget 40,000",
            "2 of them hidden hops",
            "95.0 %",
            "saved $1.50 (75.0 %) net",
            "2.0 ms",
            "eviction $2.00, less $0.30 for rewritten caches and $0.20 for the hidden tools",
            "Of 1,200 uses of names, paths and numbers that had stood in evicted work, 1,190 found them",
            "✓ No request passed the budget of 40,000.\n",
            "Next: `plimsoll run -- claude`",
        ] {
            assert!(text.contains(words), "{words:?} not in\n{text}");
        }
    }

    #[test]
    fn faults_and_reports_are_not_hidden() {
        let mut figures = figures();
        figures.reported = 3;
        figures.samples = vec![Sample::default(); 12];
        let text = table(&figures, &FACTS);
        assert!(
            text.contains(
                "! 3 of 12 turns could not be held under the budget of 40,000, and said so."
            ),
            "{text}"
        );
        assert!(!text.contains('✓'), "{text}");
        figures
            .faults
            .push("turn 7: 41000 tokens passed".to_owned());
        let text = table(&figures, &FACTS);
        assert!(
            text.contains("✗ 1 things") && text.contains("turn 7: 41000"),
            "{text}"
        );
    }

    #[test]
    fn a_loss_is_shown_as_a_loss() {
        let mut figures = figures();
        figures.sent.usd = 2.25;
        assert!(table(&figures, &FACTS).contains("saved -$0.25 (-12.5 %) net"));
    }
}
