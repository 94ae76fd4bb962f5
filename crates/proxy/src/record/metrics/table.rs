//! How a metric that finished turns move is made: a row says its name, help and label, and what of a turn moves it. Owns
//! how a row becomes a registered metric. All series of a closed set stand at zero from the start. Never decides what is
//! counted.

use plimsoll_model::LabelSet;
use prometheus::{Counter, Error, Gauge, Histogram, HistogramVec, IntCounter};

use super::register::{Each, Pairs, Registrar, members};
use crate::record::turn_report::TurnReport;

/// A finished turn with the label of its model.
pub(super) struct Counted<'a> {
    pub turn: &'a TurnReport,
    pub model: &'a str,
}

/// Moves one metric by a turn.
pub(super) type Row = Box<dyn Fn(&Counted<'_>) + Send + Sync>;

/// Rows in the making.
pub(super) struct Table<'a> {
    registrar: &'a Registrar,
    pub rows: Vec<Row>,
}

impl<'a> Table<'a> {
    pub fn new(registrar: &'a Registrar) -> Self {
        Self {
            registrar,
            rows: Vec::new(),
        }
    }

    fn row(&mut self, moves: impl Fn(&TurnReport) + Send + Sync + 'static) {
        self.rows.push(Box::new(move |counted| moves(counted.turn)));
    }

    /// A row that moves the metrics of a closed set.
    fn row_of<L: LabelSet, M: Send + Sync + 'static, V: 'static>(
        &mut self,
        metrics: Each<L, M>,
        moves: fn(&M, V),
        of: impl Fn(&TurnReport, &mut dyn FnMut(L, V)) + Send + Sync + 'static,
    ) {
        self.row(move |turn| of(turn, &mut |member, by| moves(metrics.at(member), by)));
    }

    /// A count.
    pub fn count(
        &mut self,
        name: &str,
        help: &str,
        of: impl Fn(&TurnReport) -> u64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let counter = self.registrar.counter(name, help)?;
        self.row(move |turn| counter.inc_by(of(turn)));
        Ok(())
    }

    /// A count for each member of a closed set.
    pub fn counts<L: LabelSet>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        of: impl Fn(&TurnReport, &mut dyn FnMut(L, u64)) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let counters = self.registrar.counters(name, help, label)?;
        self.row_of(counters, IntCounter::inc_by, of);
        Ok(())
    }

    /// A count for each pair of members of two closed sets.
    pub fn pairs<A: LabelSet, B: LabelSet>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; 2],
        of: impl Fn(&TurnReport, &mut dyn FnMut(A, B, u64)) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let counters: Pairs<A, B> = self.registrar.pairs(name, help, labels)?;
        self.row(move |turn| {
            of(turn, &mut |one, other, count| {
                counters.at(one, other).inc_by(count)
            })
        });
        Ok(())
    }

    /// A count whose labels are not all known beforehand. `known` are those that are.
    pub fn open<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; N],
        known: &[[&str; N]],
        of: impl Fn(&Counted<'_>, &mut dyn FnMut([&str; N], u64)) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let counters = self.registrar.open(name, help, &labels)?;
        for words in known {
            counters.with_label_values(words);
        }
        self.rows.push(Box::new(move |counted| {
            of(counted, &mut |words, count| {
                counters.with_label_values(&words).inc_by(count)
            });
        }));
        Ok(())
    }

    /// A sum of fractions for each member of a closed set.
    pub fn sums<L: LabelSet>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        of: impl Fn(&TurnReport, &mut dyn FnMut(L, f64)) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let sums = self.registrar.sums(name, help, label)?;
        self.row_of(sums, Counter::inc_by, of);
        Ok(())
    }

    /// A sum of fractions that may fall, for each member of a closed set.
    pub fn balances<L: LabelSet>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        of: impl Fn(&TurnReport, &mut dyn FnMut(L, f64)) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let balances = self.registrar.balances(name, help, label)?;
        self.row_of(balances, Gauge::add, of);
        Ok(())
    }

    /// A distribution.
    pub fn spread(
        &mut self,
        name: &str,
        help: &str,
        buckets: &[f64],
        of: impl Fn(&TurnReport, &mut dyn FnMut(f64)) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let histogram = self.registrar.histogram(name, help, buckets)?;
        self.row(move |turn| of(turn, &mut |value| histogram.observe(value)));
        Ok(())
    }

    /// A distribution for each member of a closed set. Returns the family, to which [`Table::more`] may add.
    pub fn spreads<L: LabelSet>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        buckets: &[f64],
        of: impl Fn(&TurnReport, &mut dyn FnMut(L, f64)) + Send + Sync + 'static,
    ) -> Result<HistogramVec, Error> {
        let family = self.registrar.histograms(name, help, label, buckets)?;
        self.more(&family, of);
        Ok(family)
    }

    /// Adds the members of one more closed set to a family of distributions.
    pub fn more<L: LabelSet>(
        &mut self,
        family: &HistogramVec,
        of: impl Fn(&TurnReport, &mut dyn FnMut(L, f64)) + Send + Sync + 'static,
    ) {
        self.row_of(members(family), Histogram::observe, of);
    }
}

/// Does something with each of several, or with the one that there may be.
pub(super) fn each<T>(of: impl IntoIterator<Item = T>, run: impl FnMut(T)) {
    of.into_iter().for_each(run);
}
