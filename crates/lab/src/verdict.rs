//! What a replay of what is served comes to, in words: what it would have cost, and how much of what was needed later was in
//! view; then a row for each budget. Pure: figures to text. Owns the wording; never measures anything.

use super::outcome::{Outcome, Report, SessionOutcome};
use super::table::aligned;
use super::{Options, Share};

/// The smallest budget that is advised.
const LEAST: u64 = 4_000;
/// A change of cost that is none, as a share.
const NONE: f64 = 0.0005;

/// What the columns mean.
pub const FIGURES: &str = "cost: of all that is sent and of all that the model writes, under these prices; change: beside the whole history.\n\
    in view: of distinctive strings (paths, names, numbers) in each call's arguments that had been said before, the share \
    that the\nrequest before that call still showed. passes: how often something was evicted. requests above: those that \
    stayed above the\nbudget, mostly because what may never be evicted is larger.\n";

/// The verdict at one of the budgets, by its place, and a row for each. The report has two policies: nothing evicted, and
/// what is served.
#[must_use]
pub fn verdict(report: &Report, options: &Options, at: usize) -> String {
    let mut text = sentences(report, options, at);
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
            in_view(sums.served.visible).unwrap_or_else(|| "–".to_owned()),
            worst(report, at).map_or_else(|| "–".to_owned(), percent),
            sums.served.passes.to_string(),
            sums.served.over.to_string(),
        ]);
    }
    text.push_str(&aligned(&rows));
    text.push_str(&unpriced(report));
    text
}

fn sentences(report: &Report, options: &Options, at: usize) -> String {
    let sums = Sums::of(report, at);
    let count = report.sessions.len();
    let budget = options.ceilings.get(at).copied().unwrap_or_default();
    // The hidden tools may take a request past the budget that would be just below it.
    let reaches = |session: &&SessionOutcome| {
        plays(session, at).is_some_and(|(none, served)| {
            none.peak > u64::from(budget) || served.passes > 0 || served.over > 0
        })
    };
    let reaching = report.sessions.iter().filter(reaches).count();
    let sessions = match count {
        1 => "1 session".to_owned(),
        _ => format!("{count} sessions"),
    };
    let budget = short(budget);
    if reaching == 0 {
        let largest = grouped(sums.none.peak);
        let named = match count {
            1 => format!("{sessions}, whose largest request has {largest} tokens"),
            _ => format!("{sessions}, the largest request has {largest} tokens"),
        };
        return format!(
            "{named}: nothing reaches a budget of {budget}. Plimsoll would cost {}. {}",
            sums.change_in_words(),
            advice(report, options, at)
        );
    }
    let reach = match (count, reaching) {
        (1, _) => "which grows past".to_owned(),
        (all, some) if all == some => "all grow past".to_owned(),
        (_, 1) => "of which 1 grows past".to_owned(),
        (_, some) => format!("of which {some} grow past"),
    };
    let shown = match in_view(sums.served.visible) {
        Some(share) => format!("{share} of what calls needed later was in view"),
        None => "No call needed what had been said before".to_owned(),
    };
    let worst = match worst(report, at) {
        Some(share) if count > 1 && share < 1.0 => {
            format!("; in the worst session {}", percent(share))
        }
        _ => String::new(),
    };
    let dearer = match sums.change_of() > NONE {
        true => format!(" {}", advice(report, options, at)),
        false => String::new(),
    };
    format!(
        "{sessions}, {reach} {budget}. {}: {}. {shown}{worst}.{dearer}",
        sums.costs(),
        sums.change_in_words(),
    )
}

/// What to try where a budget does not pay: the cheapest of the others that were played, if that does, or else a lower one.
fn advice(report: &Report, options: &Options, at: usize) -> String {
    let largest = Sums::of(report, at).none.peak;
    let others = options
        .ceilings
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != at);
    let played = others.map(|(at, budget)| (Sums::of(report, at), *budget));
    let best = played.min_by(|(one, _), (other, _)| one.change_of().total_cmp(&other.change_of()));
    if let Some((sums, budget)) = best.filter(|(sums, _)| sums.change_of() < -NONE) {
        let budget = short(budget);
        return format!("At {budget} it would cost {}.", sums.change_in_words());
    }
    match largest / 2 {
        small if small < LEAST => "It pays in longer sessions.".to_owned(),
        half => format!("Try --budget {}k, or `plimsoll tune`.", half / 1000),
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
        let share = plays(session, at)?.1.visible;
        (share.whole > 0).then(|| share.kept())
    });
    shares.min_by(f64::total_cmp)
}

/// Which models have no price, where sessions of others have one.
fn unpriced(report: &Report) -> String {
    let mut unknown: Vec<&str> = Vec::new();
    for session in report.sessions.iter().filter(|one| one.unit.is_none()) {
        let model = match session.model.as_str() {
            "" => "a session that names no model",
            named => named,
        };
        if !unknown.contains(&model) {
            unknown.push(model);
        }
    }
    match unknown.as_slice() {
        [] => String::new(),
        names => format!(
            "No price is known of {}, so costs are in millions of plain input tokens. --prices names a model's.\n",
            names.join(", ")
        ),
    }
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

    /// How much more it costs, as a share; in dollars where these are told, which weigh models by their prices.
    fn change_of(&self) -> f64 {
        let (none, served) = match (self.none.dollars(), self.served.dollars()) {
            (Some(none), Some(served)) => (none, served),
            _ => (self.none.cost, self.served.cost),
        };
        served / none.max(f64::MIN_POSITIVE) - 1.0
    }

    /// As a cell of a table: `-49 %`.
    fn change(&self) -> String {
        match self.change_of() {
            change if change.abs() < NONE => "±0 %".to_owned(),
            change if change < 0.0 => format!("-{}", size(change)),
            change => format!("+{}", size(change)),
        }
    }

    fn change_in_words(&self) -> String {
        match self.change_of() {
            change if change.abs() < NONE => "as much".to_owned(),
            change if change < 0.0 => format!("{} less", size(change)),
            change => format!("{} more", size(change)),
        }
    }
}

/// How large a change is: in whole percent, and a small one in tenths.
fn size(change: f64) -> String {
    match change.abs() * 100.0 {
        small if small < 9.95 => format!("{small:.1} %"),
        large => format!("{large:.0} %"),
    }
}

fn units(outcome: &Outcome) -> String {
    format!("{:.2}", outcome.cost / 1e6)
}

/// Dollars, with as many digits as a small amount needs to be told from another.
fn dollars(amount: f64) -> String {
    match amount {
        none if none <= 0.0 => "$0".to_owned(),
        small if small < 0.1 => format!("${small:.4}"),
        some if some < 1.0 => format!("${some:.3}"),
        some => format!("${some:.2}"),
    }
}

/// A share of what was needed; none where nothing was.
fn in_view(share: Share) -> Option<String> {
    (share.whole > 0).then(|| percent(share.kept()))
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
        verdict(&report, &options, 0)
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
            "2 sessions, all grow past 40k. $25.00 → $12.50: 50 % less. 96 % of what calls needed later was in view; \
             in the worst session 93 %."
        );
        // A dear model's session weighs more.
        let dear = session(60_000, (1e6, 1e6), (100, 100), Some(15e-6));
        assert!(first(vec![one(), dear]).contains("$35.00 → $25.00: 29 % less."));
        let mut below = session(30_000, (1e6, 1.002e6), (0, 0), unit);
        below.policies[1].runs[0].outcome.passes = 0;
        let text = first(vec![one(), below.clone()]);
        assert!(
            text.starts_with("2 sessions, of which 1 grows past 40k. $25.00 → "),
            "{text}"
        );
        assert_eq!(
            first(vec![one()]),
            "1 session, which grows past 40k. $20.00 → $10.00: 50 % less. 93 % of what calls needed later was in view."
        );
        // What is just below grows past it with the hidden tools.
        below.policies[1].runs[0].outcome.passes = 1;
        let text = first(vec![below]);
        assert!(
            text.starts_with("1 session, which grows past 40k. "),
            "{text}"
        );
        assert!(
            text.contains("No call needed what had been said before."),
            "{text}"
        );
    }

    #[test]
    fn a_budget_that_does_not_pay_is_told_with_one_that_might() {
        let dearer = |budgets: Vec<u32>, costs: &[f64]| {
            let mut one = session(60_000, (1e6, 0.0), (999, 1_000), Some(5e-6));
            for (place, played) in one.policies.iter_mut().enumerate() {
                let run = played.runs[0].clone();
                let runs = costs.iter().map(|cost| {
                    let mut run = run.clone();
                    run.outcome.cost = if place == 0 { 1e6 } else { *cost };
                    run.outcome.price(Some(5e-6));
                    run
                });
                played.runs = runs.collect();
            }
            let options = Options {
                ceilings: budgets,
                ..Options::default()
            };
            let report = Report {
                sessions: vec![one],
                short: 0,
            };
            let text = verdict(&report, &options, costs.len() - 1);
            text.lines().next().unwrap().to_owned()
        };
        assert_eq!(
            dearer(vec![40_000, 50_000], &[0.9e6, 1.25e6]),
            "1 session, which grows past 50k. $5.00 → $6.25: 25 % more. 99.9 % of what calls needed later was in view. \
             At 40k it would cost 10 % less."
        );
        let text = dearer(vec![50_000], &[1.25e6]);
        assert!(
            text.ends_with("Try --budget 30k, or `plimsoll tune`."),
            "{text}"
        );
    }

    #[test]
    fn where_nothing_reaches_the_budget_it_says_what_that_costs_and_what_to_try() {
        let short = |peak: u64, cost: f64| {
            let mut one = session(peak, (1e6, cost), (0, 0), Some(5e-6));
            one.policies[1].runs[0].outcome.passes = 0;
            first(vec![one])
        };
        assert_eq!(
            short(34_001, 1.001e6),
            "1 session, whose largest request has 34,001 tokens: nothing reaches a budget of 40k. Plimsoll would cost \
             0.1 % more. Try --budget 17k, or `plimsoll tune`."
        );
        let text = short(6_000, 1e6);
        assert!(
            text.ends_with("Plimsoll would cost as much. It pays in longer sessions."),
            "{text}"
        );
    }

    #[test]
    fn without_a_price_costs_are_in_plain_input_tokens_and_the_model_is_named() {
        let mut known = session(90_000, (4e6, 2e6), (1, 1), Some(5e-6));
        known.unit = Some(5e-6);
        let mut unknown = session(90_000, (4e6, 2e6), (1, 1), None);
        unknown.model = "mine".to_owned();
        let text = told(vec![known, unknown]);
        assert!(
            text.contains("8.00 → 4.00 million plain input tokens: 50 % less."),
            "{text}"
        );
        assert!(text.contains("4.00M   -50 %"), "{text}");
        assert!(text.contains("\nNo price is known of mine, so "), "{text}");
    }

    #[test]
    fn small_amounts_are_told_apart() {
        let amounts = [0.0, 0.012_34, 0.123_4, 1.234, 1_234.5].map(dollars);
        assert_eq!(amounts, ["$0", "$0.0123", "$0.123", "$1.23", "$1234.50"]);
    }
}
