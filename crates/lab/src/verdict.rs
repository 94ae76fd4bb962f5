//! What a replay of what is served comes to, in words: what it would have cost, and how much of what was needed later was in
//! view; then a row for each budget. Pure: figures to text. Owns the wording; never measures anything.

use super::outcome::{Outcome, Report, SessionOutcome};
use super::table::aligned;
use super::{Options, Share};

/// A session pays from so many budgets on. README says the same.
const PAYS: f64 = 1.4;

/// What the columns mean.
pub const FIGURES: &str = "cost: of all input and of what a model writes for Plimsoll, under these prices, beside that of the whole history.\n\
    in view: of distinctive strings (paths, names, numbers) in each call's arguments that had been said before, the share \
    that the\nrequest behind that call still showed. passes: how often something was evicted. requests above: those that \
    stayed above the\nbudget, because what may never be evicted is larger.\n";

/// The verdict at one budget, and a row for each. The report has two policies: nothing evicted, and what is served.
#[must_use]
pub fn verdict(report: &Report, options: &Options, budget: u32) -> String {
    let at = options.ceilings.iter().position(|one| *one == budget);
    let at = at.unwrap_or_default();
    let mut text = sentences(report, budget, at);
    text.push_str("\n\n");
    let head = [
        "budget",
        "cost",
        "change",
        "in view",
        "worst session",
        "passes",
        "requests above",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (at, budget) in options.ceilings.iter().enumerate() {
        let sums = Sums::of(report, at);
        rows.push(vec![
            short(*budget),
            sums.served_cost(),
            sums.change(),
            percent(sums.served.visible.kept()),
            worst(report, at).map_or_else(|| "–".to_owned(), percent),
            sums.served.passes.to_string(),
            sums.served.over.to_string(),
        ]);
    }
    text.push_str(&aligned(&rows));
    text
}

fn sentences(report: &Report, budget: u32, at: usize) -> String {
    let sums = Sums::of(report, at);
    let count = report.sessions.len();
    let peaks = report
        .sessions
        .iter()
        .filter_map(|one| Some(plays(one, at)?.0.peak));
    let reaching = peaks.filter(|peak| *peak > u64::from(budget)).count();
    let sessions = match count {
        1 => "1 session".to_owned(),
        _ => format!("{count} sessions"),
    };
    let budget = short(budget);
    if reaching == 0 {
        let largest = sums.none.peak;
        let named = match count {
            1 => format!("{sessions}, whose largest request has {}", grouped(largest)),
            _ => format!("{sessions}, the largest request has {}", grouped(largest)),
        };
        return format!(
            "{named} tokens: nothing reaches a budget of {budget}. Plimsoll would cost {}.{}",
            sums.change_in_words(),
            lower(largest)
        );
    }
    let reach = match (count, reaching) {
        (1, _) => "which passes".to_owned(),
        (all, some) if all == some => "all pass".to_owned(),
        (_, 1) => "of which 1 passes".to_owned(),
        (_, some) => format!("of which {some} pass"),
    };
    let worst = match worst(report, at) {
        Some(share) if count > 1 && share < 1.0 => {
            format!("; in the worst session {}", percent(share))
        }
        _ => String::new(),
    };
    format!(
        "{sessions}, {reach} {budget}. {}: {}. {} of what calls needed later was in view{worst}.",
        sums.costs(),
        sums.change_in_words(),
        percent(sums.served.visible.kept()),
    )
}

/// A lower budget that the largest request would have made worth while; none where that is too small.
fn lower(largest: u64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a request has far fewer than 2^52 tokens"
    )]
    let thousands = (largest as f64 / PAYS / 1000.0) as u64;
    match thousands {
        0..5 => String::new(),
        thousands => format!(" Try --ceiling {thousands}k."),
    }
}

/// One session at one budget: nothing evicted, and what is served.
fn plays(session: &SessionOutcome, at: usize) -> Option<(&Outcome, &Outcome)> {
    let run = |policy: usize| Some(&session.policies.get(policy)?.runs.get(at)?.outcome);
    Some((run(0)?, run(1)?))
}

/// The least share of what was needed that a session had in view, among those that needed any.
fn worst(report: &Report, at: usize) -> Option<f64> {
    let shares = report.sessions.iter().filter_map(|session| {
        let Share { part, whole } = plays(session, at)?.1.visible;
        (whole > 0).then(|| Share { part, whole }.kept())
    });
    shares.min_by(f64::total_cmp)
}

/// All sessions at one budget.
struct Sums {
    none: Outcome,
    served: Outcome,
}

impl Sums {
    fn of(report: &Report, at: usize) -> Self {
        let (mut none, mut served) = (Outcome::default(), Outcome::default());
        for (one, other) in report.sessions.iter().filter_map(|one| plays(one, at)) {
            none.add(one);
            served.add(other);
        }
        Self { none, served }
    }

    /// What both cost, in dollars where all prices are known.
    fn costs(&self) -> String {
        match (self.none.dollars(), self.served.dollars()) {
            (Some(none), Some(served)) => format!("{} → {}", dollars(none), dollars(served)),
            _ => format!(
                "{} → {} million plain input tokens",
                units(&self.none),
                units(&self.served)
            ),
        }
    }

    fn served_cost(&self) -> String {
        match self.served.dollars() {
            Some(served) => dollars(served),
            None => format!("{}M", units(&self.served)),
        }
    }

    /// How much less it costs, in hundredths: of what is told, which weighs models by their prices.
    fn less(&self) -> f64 {
        let (none, served) = match (self.none.dollars(), self.served.dollars()) {
            (Some(none), Some(served)) => (none, served),
            _ => (self.none.cost, self.served.cost),
        };
        (1.0 - served / none.max(f64::MIN_POSITIVE)) * 100.0
    }

    /// As a cell of a table: `-49 %`.
    fn change(&self) -> String {
        match hundredths(-self.less()) {
            (_, amount) if amount == "0" => "±0 %".to_owned(),
            (true, amount) => format!("-{amount} %"),
            (false, amount) => format!("+{amount} %"),
        }
    }

    fn change_in_words(&self) -> String {
        match hundredths(self.less()) {
            (_, amount) if amount == "0" => "as much".to_owned(),
            (true, amount) => format!("{amount} % more"),
            (false, amount) => format!("{amount} % less"),
        }
    }
}

/// Whether a change is below zero, and how large it is: whole hundredths, and tenths of small ones.
fn hundredths(change: f64) -> (bool, String) {
    let size = change.abs();
    let amount = match size {
        small if small < 0.05 => "0".to_owned(),
        small if small < 9.95 => format!("{small:.1}"),
        large => format!("{large:.0}"),
    };
    (change < 0.0, amount)
}

fn units(outcome: &Outcome) -> String {
    format!("{:.2}", outcome.cost / 1e6)
}

fn dollars(amount: f64) -> String {
    format!("${amount:.2}")
}

/// A share that is only called all where it is all.
fn percent(share: f64) -> String {
    match share * 100.0 {
        all if all >= 100.0 => "100 %".to_owned(),
        nearly if nearly > 99.0 => format!("{:.1} %", (nearly * 10.0).floor() / 10.0),
        some => format!("{some:.0} %"),
    }
}

/// A budget as people write it: `80k`.
fn short(budget: u32) -> String {
    match budget % 1000 {
        0 => format!("{}k", budget / 1000),
        _ => grouped(u64::from(budget)),
    }
}

fn grouped(count: u64) -> String {
    plimsoll_model::grouped(usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::{Played, PolicyRun};
    use super::*;

    /// A session by its largest request, its cost whole and as served, and what was needed and in view; at one budget.
    fn session(
        peak: u64,
        costs: (f64, f64),
        view: (u64, u64),
        unit: Option<f64>,
    ) -> SessionOutcome {
        let outcome = |cost: f64, part: u64, passes: u64| {
            let mut one = Outcome {
                peak,
                cost,
                passes,
                visible: Share {
                    part,
                    whole: view.1,
                },
                ..Outcome::default()
            };
            one.price(unit);
            one
        };
        let played = |policy: &str, outcome: Outcome| Played {
            policy: policy.to_owned(),
            runs: vec![PolicyRun {
                ceiling: 40_000,
                outcome,
                ..PolicyRun::default()
            }],
        };
        SessionOutcome {
            policies: vec![
                played("none", outcome(costs.0, view.1, 0)),
                played("repeat+keep+cwl", outcome(costs.1, view.0, 2)),
            ],
            ..SessionOutcome::default()
        }
    }

    fn told(sessions: Vec<SessionOutcome>) -> String {
        let options = Options {
            ceilings: vec![40_000],
            ..Options::default()
        };
        let report = Report { sessions, short: 0 };
        verdict(&report, &options, 40_000)
    }

    fn first(sessions: Vec<SessionOutcome>) -> String {
        told(sessions).lines().next().unwrap().to_owned()
    }

    #[test]
    fn what_it_saves_and_what_was_in_view_is_said_first() {
        let unit = Some(5e-6);
        let one = || session(90_000, (4e6, 2e6), (93, 100), unit);
        let other = || session(60_000, (1e6, 0.5e6), (100, 100), unit);
        assert_eq!(
            first(vec![one(), other()]),
            "2 sessions, all pass 40k. $25.00 → $12.50: 50 % less. 96 % of what calls needed later was in view; \
             in the worst session 93 %."
        );
        // A dear model's session weighs more.
        let dear = session(60_000, (1e6, 1e6), (100, 100), Some(15e-6));
        assert!(first(vec![one(), dear]).contains("$35.00 → $25.00: 29 % less."));
        let short = session(30_000, (1e6, 1.002e6), (0, 0), unit);
        assert!(
            first(vec![one(), short]).starts_with("2 sessions, of which 1 passes 40k. $25.00 → ")
        );
        assert_eq!(
            first(vec![one()]),
            "1 session, which passes 40k. $20.00 → $10.00: 50 % less. 93 % of what calls needed later was in view."
        );
        let dearer = session(41_000, (1e6, 1.25e6), (999, 1_000), unit);
        assert!(
            first(vec![dearer]).ends_with(
                "$5.00 → $6.25: 25 % more. 99.9 % of what calls needed later was in view."
            )
        );
    }

    #[test]
    fn where_nothing_reaches_the_budget_it_says_what_that_costs_and_what_to_try() {
        let short =
            |peak: u64, cost: f64| first(vec![session(peak, (1e6, cost), (0, 0), Some(5e-6))]);
        assert_eq!(
            short(34_001, 1.001e6),
            "1 session, whose largest request has 34,001 tokens: nothing reaches a budget of 40k. Plimsoll would cost \
             0.1 % more. Try --ceiling 24k."
        );
        assert!(short(6_000, 1e6).ends_with("Plimsoll would cost as much."));
        assert!(short(20_000, 0.96e6).ends_with("would cost 4.0 % less. Try --ceiling 14k."));
    }

    #[test]
    fn without_a_price_costs_are_in_plain_input_tokens() {
        let known = session(90_000, (4e6, 2e6), (1, 1), Some(5e-6));
        let unknown = session(90_000, (4e6, 2e6), (1, 1), None);
        let text = told(vec![known, unknown]);
        assert!(
            text.contains("8.00 → 4.00 million plain input tokens: 50 % less."),
            "{text}"
        );
        assert!(text.contains("4.00M   -50 %"), "{text}");
    }
}
