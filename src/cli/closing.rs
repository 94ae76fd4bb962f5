//! What a session cost, in words: the closing lines of `plimsoll run`. Owns the words. Never
//! computes a figure of its own: all of them are the ledger's, read from the metrics as a
//! monitoring system would.

use plimsoll_model::MissCause;

use super::output::counted;

/// The closing lines for these metrics.
#[must_use]
pub fn lines(metrics: &str) -> Vec<String> {
    let shown = MetricsText(metrics);
    let turns = shown.sum("context_tokens_count", "stage=\"out\"");
    // A run without a managed turn has no figures that would mean anything.
    if turns == 0.0 {
        let nothing = "nothing was managed: the agent sent no request with tools through it";
        return vec![nothing.to_owned()];
    }
    let watched = shown.sum("projections_total", "");
    let mut lines = vec![shown.tokens(turns)];
    if watched < turns {
        lines.push(shown.money());
    }
    if watched > 0.0 {
        lines.push(shown.projected(watched));
    }
    lines.extend(shown.unpriced());
    lines.extend(shown.missed());
    lines
}

/// Metrics in Prometheus' text format.
pub(super) struct MetricsText<'a>(pub &'a str);

impl MetricsText<'_> {
    /// The sum of all series of a metric whose labels contain `label`.
    pub fn sum(&self, name: &str, label: &str) -> f64 {
        let of = |line: &&str| {
            let rest = line
                .strip_prefix("plimsoll_")
                .and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        };
        let values = self.0.lines().filter(of);
        let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.fold(0.0, |sum, value| sum + value)
    }

    /// How many tokens one side of the ledger has.
    pub fn ledger(&self, side: &str, kind: &str) -> f64 {
        // The encoder sorts labels by name.
        let labels = format!("side=\"{side}\",type=\"{kind}\"");
        self.sum("ledger_tokens_total", &labels)
    }

    fn tokens(&self, turns: f64) -> String {
        let (asked, sent) = (self.ledger("client", "input"), self.ledger("sent", "input"));
        let cached = 100.0 * self.ledger("sent", "cache_read") / sent.max(1.0);
        let passes = self.sum("passes_total", "");
        format!(
            "{}; {asked:.0} tokens asked for, {sent:.0} sent in {}, {cached:.0} % of them from the provider's cache",
            counted(&turns, "request"),
            counted(&passes, "pass")
        )
    }

    /// What one side cost, in a series of the ledger.
    fn side(&self, series: &str, side: &str) -> f64 {
        self.sum(
            &format!("ledger_{series}_total"),
            &format!("side=\"{side}\""),
        )
    }

    /// Whether any price in money is known, and the series to read accordingly.
    fn unit(&self) -> (bool, &'static str) {
        let known = self.side("usd", "client") > 0.0;
        (known, if known { "usd" } else { "units" })
    }

    /// What watched turns cost.
    fn watched(&self, unit: &str) -> f64 {
        let net = self.sum(&format!("projected_saved_{unit}"), "part=\"net\"");
        self.side(unit, "projected") + net
    }

    /// The line about managed turns.
    fn money(&self) -> String {
        let (known, unit) = self.unit();
        let watched = self.watched(unit);
        let side = |side: &str| self.side(unit, side) - watched;
        let (sent, client) = (side("sent"), side("client"));
        let parts = self.parts("saved", unit);
        let word = if parts.net < 0.0 { "lost" } else { "saved" };
        let mut line = format!(
            "{} paid in place of {}: {} {word} {}",
            said(sent, known),
            said(client, known),
            said(parts.net.abs(), known),
            parts.told(client, known),
        );
        line.push_str(no_price(known));
        line
    }

    /// The line about what the provider's cache held and was read anew, if anything was.
    fn missed(&self) -> Option<String> {
        let of = |cause: MissCause| {
            let label = format!("cause=\"{}\"", cause.name());
            (cause, self.sum("cache_missed_tokens_total", &label))
        };
        let mut causes: Vec<(MissCause, f64)> = MissCause::ALL.into_iter().map(of).collect();
        causes.retain(|(_, tokens)| *tokens > 0.0);
        let all: f64 = causes.iter().map(|(_, tokens)| tokens).sum();
        causes.sort_by(|one, other| other.1.total_cmp(&one.1));
        let told = causes.iter();
        let told = told.map(|(cause, tokens)| format!("{tokens:.0} {}", because(*cause)));
        let told = told.collect::<Vec<String>>().join(", ");
        (all > 0.0)
            .then(|| format!("{all:.0} tokens that the provider had cached were read anew: {told}"))
    }

    /// The line about watched turns.
    fn projected(&self, turns: f64) -> String {
        let (known, unit) = self.unit();
        let client = self.watched(unit);
        let parts = self.parts("projected_saved", unit);
        let word = if parts.net < 0.0 { "lost" } else { "saved" };
        let mut line = format!(
            "{} only watched: {} paid, where managing would have cost {} and would have {word} {} {}",
            counted(&turns, "request"),
            said(client, known),
            said(self.side(unit, "projected"), known),
            said(parts.net.abs(), known),
            parts.told(client, known),
        );
        let anew = self.sum("projections_total", "outcome=\"anew\"");
        let unread = self.sum("projections_total", "outcome=\"unread\"");
        if anew + unread > 0.0 {
            line += &format!(
                "; {anew:.0} of them began in the middle of a session and {unread:.0} had an answer \
                 that could not be read, so this is less certain"
            );
        }
        line.push_str(no_price(known));
        line
    }

    /// The line about models without a price, if other models have one.
    fn unpriced(&self) -> Option<String> {
        let side = |side: &str| self.side("unpriced_units", side);
        let (known, _) = self.unit();
        let client = side("client");
        let some = known && client > 0.0;
        some.then(|| {
            let would = side("projected");
            let mut line = format!(
                "not in these dollars, because the price of some models is not known: {} paid in place of \
                 {} (a unit is what a plain input token of its model costs)",
                said(side("sent"), false),
                said(client, false),
            );
            if would > 0.0 {
                line += &format!("; managing those that were only watched would have cost {}", said(would, false));
            }
            line
        })
    }

    fn parts(&self, series: &str, unit: &str) -> SavingParts {
        let part = |part: &str| self.sum(&format!("{series}_{unit}"), &format!("part=\"{part}\""));
        SavingParts {
            net: part("net"),
            evicted: part("evicted"),
            rewritten: part("rewritten"),
            annotated: part("hidden"),
            breakpoints: part("breakpoints"),
        }
    }
}

/// The parts of a saving.
struct SavingParts {
    net: f64,
    evicted: f64,
    rewritten: f64,
    annotated: f64,
    breakpoints: f64,
}

impl SavingParts {
    fn told(&self, whole: f64, known: bool) -> String {
        let share = 100.0 * self.net.abs() / whole.max(f64::MIN_POSITIVE);
        let marked = if self.breakpoints == 0.0 {
            String::new()
        } else {
            format!(" and {} by breakpoints", said(self.breakpoints, known))
        };
        format!(
            "({share:.1} %): {} by eviction{marked}, less {} for rewritten caches and {} for the hidden tools",
            said(self.evicted, known),
            said(self.rewritten, known),
            said(self.annotated, known),
        )
    }
}

/// Why the provider read tokens anew, in words.
fn because(cause: MissCause) -> &'static str {
    match cause {
        MissCause::Pass => "behind passes",
        MissCause::Guidance => "behind the guidance",
        MissCause::Expired => "after a pause",
        MissCause::ClientSystem => "behind a new system text of the agent's",
        MissCause::ClientTools => "behind new tools of the agent's",
        MissCause::ClientHistory => "behind a changed history of the agent's",
        MissCause::Model => "by another model",
        MissCause::Effort => "with another effort",
        MissCause::Provider => "although nothing had changed",
    }
}

/// What to add about amounts in units.
fn no_price(known: bool) -> &'static str {
    if known {
        ""
    } else {
        "; the model's price is not known: a unit is what a plain input token costs"
    }
}

/// An amount, to a tenth of a cent. A smaller one gets more digits.
fn said(amount: f64, usd: bool) -> String {
    let sign = if amount < 0.0 { "-" } else { "" };
    let amount = amount.abs();
    match (usd, amount < 1.0) {
        (true, true) => format!("{sign}${amount:.4}"),
        (true, false) => format!("{sign}${amount:.3}"),
        (false, _) => format!("{sign}{amount:.0} units"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(unit: &str, values: [f64; 6]) -> String {
        let [sent, client, net, evicted, rewritten, annotated] = values;
        format!(
            "plimsoll_context_tokens_count{{stage=\"in\"}} 4\n\
             plimsoll_context_tokens_count{{stage=\"out\"}} 4\n\
             plimsoll_ledger_tokens_total{{side=\"client\",type=\"input\"}} 9000\n\
             plimsoll_ledger_tokens_total{{side=\"sent\",type=\"input\"}} 6000\n\
             plimsoll_ledger_tokens_total{{side=\"sent\",type=\"cache_read\"}} 3000\n\
             plimsoll_passes_total{{trigger=\"budget\"}} 1\n\
             plimsoll_passes_total{{trigger=\"cold\"}} 1\n\
             plimsoll_ledger_{unit}_total{{side=\"sent\"}} {sent}\n\
             plimsoll_ledger_{unit}_total{{side=\"client\"}} {client}\n\
             plimsoll_saved_{unit}{{part=\"net\"}} {net}\n\
             plimsoll_saved_{unit}{{part=\"evicted\"}} {evicted}\n\
             plimsoll_saved_{unit}{{part=\"rewritten\"}} {rewritten}\n\
             plimsoll_saved_{unit}{{part=\"hidden\"}} {annotated}\n"
        )
    }

    #[test]
    fn dollars_are_told_where_the_price_is_known() {
        let shown = metrics("usd", [1.71, 2.57, 0.86, 1.5, 0.5, 0.14]);
        assert_eq!(
            lines(&shown),
            [
                "4 requests; 9000 tokens asked for, 6000 sent in 2 passes, 50 % of them from the \
                 provider's cache",
                "$1.710 paid in place of $2.570: $0.8600 saved (33.5 %): $1.500 by eviction, less \
                 $0.5000 for rewritten caches and $0.1400 for the hidden tools",
            ]
        );
    }

    #[test]
    fn what_breakpoints_saved_is_told_where_they_did() {
        let shown = metrics("usd", [1.71, 2.82, 1.11, 1.5, 0.5, 0.14])
            + "plimsoll_saved_usd{part=\"breakpoints\"} 0.25\n";
        let told = lines(&shown);
        let expect =
            "$1.500 by eviction and $0.2500 by breakpoints, less $0.5000 for rewritten caches";
        assert!(told[1].contains(expect), "{told:?}");
    }

    /// Half of it at a model without a price: dollars for the one, units for the other, none of both.
    #[test]
    fn of_prices_that_are_known_in_part_both_parts_are_told() {
        let shown = metrics("usd", [1.71, 2.57, 0.86, 1.5, 0.5, 0.14])
            + "plimsoll_ledger_unpriced_units_total{side=\"sent\"} 900\n\
               plimsoll_ledger_unpriced_units_total{side=\"client\"} 1200\n";
        let told = lines(&shown);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[1].starts_with("$1.710 paid in place of $2.570"),
            "{told:?}"
        );
        assert!(
            told[2].contains("900 units paid in place of 1200 units"),
            "{told:?}"
        );
    }

    /// What was only watched was not saved, and is no part of what was.
    #[test]
    fn what_would_have_been_saved_is_not_said_to_be() {
        let watched = "plimsoll_ledger_usd_total{side=\"projected\"} 1\n\
                       plimsoll_projected_saved_usd{part=\"net\"} 0.5\n\
                       plimsoll_projected_saved_usd{part=\"evicted\"} 0.75\n\
                       plimsoll_projected_saved_usd{part=\"rewritten\"} 0.125\n\
                       plimsoll_projected_saved_usd{part=\"hidden\"} 0.125\n";
        let none = metrics("usd", [1.5, 1.5, 0.0, 0.0, 0.0, 0.0]);
        let all = format!("{none}{watched}plimsoll_projections_total{{outcome=\"whole\"}} 4\n");
        let told = lines(&all);
        assert_eq!(
            told[1..],
            [
                "4 requests only watched: $1.500 paid, where managing would have cost $1.000 and \
                 would have saved $0.5000 (33.3 %): $0.7500 by eviction, less $0.1250 for rewritten \
                 caches and $0.1250 for the hidden tools"
            ]
        );
        let both = metrics("usd", [3.0, 4.0, 1.0, 1.5, 0.5, 0.0]);
        let some = format!("{both}{watched}plimsoll_projections_total{{outcome=\"anew\"}} 1\n");
        let told = lines(&some);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[1].starts_with("$1.500 paid in place of $2.500: $1.000 saved (40.0 %)"),
            "{told:?}"
        );
        assert!(told[2].contains("1 of them began in"), "{told:?}");
    }

    #[test]
    fn without_a_price_and_at_a_loss_both_are_said() {
        let shown = metrics("units", [1_100.0, 1_000.0, -100.0, 0.0, 0.0, 100.0]);
        let told = &lines(&shown)[1];
        assert!(
            told.contains("1100 units paid in place of 1000 units: 100 units lost (10.0 %)"),
            "{told}"
        );
        assert!(told.contains("price is not known"), "{told}");
        assert!(lines("")[0].contains("nothing was managed"));
    }
}
