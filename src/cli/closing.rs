//! What a session came to, in words: the closing lines of `plimsoll run`. Owns the words; every figure is
//! the ledger's, read from the metrics as a monitoring system would.

/// The closing lines for what the metrics show.
#[must_use]
pub fn lines(metrics: &str) -> Vec<String> {
    let shown = Shown(metrics);
    let turns = shown.sum("context_tokens_count", "stage=\"out\"");
    if turns == 0.0 {
        let nothing = "nothing was managed: the agent sent no request with tools through it";
        return vec![nothing.to_owned()];
    }
    vec![shown.tokens(turns), shown.money()]
}

/// Metrics in Prometheus' text format.
pub(super) struct Shown<'a>(pub &'a str);

impl Shown<'_> {
    /// All series of a metric that have a label, in one.
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

    /// Tokens of a side of the ledger.
    pub fn ledger(&self, side: &str, kind: &str) -> f64 {
        // The encoder has labels in the order of their names.
        let labels = format!("side=\"{side}\",type=\"{kind}\"");
        self.sum("ledger_tokens_total", &labels)
    }

    fn tokens(&self, turns: f64) -> String {
        let (asked, sent) = (self.ledger("client", "input"), self.ledger("sent", "input"));
        let cached = 100.0 * self.ledger("sent", "cache_read") / sent.max(1.0);
        let passes = self.sum("passes_total", "");
        format!(
            "{turns:.0} requests; {asked:.0} tokens asked for, {sent:.0} sent in {passes:.0} passes, \
             {cached:.0} % of them from the provider's cache"
        )
    }

    fn money(&self) -> String {
        let known = self.sum("ledger_usd_total", "side=\"client\"") > 0.0;
        let unit = if known { "usd" } else { "units" };
        let side = |side: &str| {
            let total = self.sum(&format!("ledger_{unit}_total"), &format!("side=\"{side}\""));
            said(total, known)
        };
        let part = |part: &str| self.sum(&format!("saved_{unit}"), &format!("part=\"{part}\""));
        let whole = self.sum(&format!("ledger_{unit}_total"), "side=\"client\"");
        let net = part("net");
        let share = 100.0 * net.abs() / whole.max(f64::MIN_POSITIVE);
        let word = if net < 0.0 { "lost" } else { "saved" };
        let mut line = format!(
            "{} paid in place of {}: {} {word} ({share:.1} %): {} by eviction, less {} for rewritten \
             caches and {} for the hidden tools",
            side("sent"),
            side("client"),
            said(net.abs(), known),
            said(part("evicted"), known),
            said(part("rewritten"), known),
            said(part("annotated"), known),
        );
        if !known {
            line += "; the model's price is not known: a unit is what a plain input token costs";
        }
        line
    }
}

/// An amount, as fine as it is small.
fn said(amount: f64, usd: bool) -> String {
    let sign = if amount < 0.0 { "-" } else { "" };
    let amount = amount.abs();
    match (usd, amount < 1.0) {
        (true, true) => format!("{sign}${amount:.4}"),
        (true, false) => format!("{sign}${amount:.2}"),
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
             plimsoll_passes_total{{trigger=\"ceiling\"}} 1\n\
             plimsoll_passes_total{{trigger=\"cold\"}} 1\n\
             plimsoll_ledger_{unit}_total{{side=\"sent\"}} {sent}\n\
             plimsoll_ledger_{unit}_total{{side=\"client\"}} {client}\n\
             plimsoll_saved_{unit}{{part=\"net\"}} {net}\n\
             plimsoll_saved_{unit}{{part=\"evicted\"}} {evicted}\n\
             plimsoll_saved_{unit}{{part=\"rewritten\"}} {rewritten}\n\
             plimsoll_saved_{unit}{{part=\"annotated\"}} {annotated}\n"
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
                "$1.71 paid in place of $2.57: $0.8600 saved (33.5 %): $1.50 by eviction, less \
                 $0.5000 for rewritten caches and $0.1400 for the hidden tools",
            ]
        );
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
