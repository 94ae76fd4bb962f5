//! How metrics are made: named, registered, and resolved for each member of a closed set, so that
//! every series that is known beforehand stands at zero from the start. Never observes anything.

use std::marker::PhantomData;

use plimsoll_model::LabelSet;
use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec,
    IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// One metric for each member of a closed set.
#[derive(Debug)]
pub(in crate::record) struct Each<L, M> {
    metrics: Vec<M>,
    set: PhantomData<fn(L)>,
}

impl<L: LabelSet, M> Each<L, M> {
    fn of(make: impl Fn(&str) -> M) -> Self {
        let members = L::MEMBERS.iter();
        Self {
            metrics: members.map(|member| make(member.label())).collect(),
            set: PhantomData,
        }
    }

    /// The metric of a member.
    #[expect(
        clippy::indexing_slicing,
        reason = "there is one metric for each member, in the order of their places"
    )]
    pub fn at(&self, member: L) -> &M {
        &self.metrics[member.place()]
    }
}

/// One counter for each pair of members of two closed sets.
#[derive(Debug)]
pub(in crate::record) struct Pairs<A, B>(Each<A, Each<B, IntCounter>>);

impl<A: LabelSet, B: LabelSet> Pairs<A, B> {
    /// The counter of a pair.
    pub fn at(&self, one: A, other: B) -> &IntCounter {
        self.0.at(one).at(other)
    }
}

/// Puts the prefix before a name. No other place does.
pub(super) fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("plimsoll")
}

/// Makes and registers a metric in one step, so that none is made and forgotten.
pub(super) struct Registrar {
    pub registry: Registry,
    /// The arm of a split that all metrics are of that are made. None while sessions are not split.
    arm: Option<&'static str>,
}

impl Registrar {
    /// Of a registry of its own.
    pub fn new() -> Self {
        Self {
            registry: Registry::new(),
            arm: None,
        }
    }

    /// Of the same registry, for metrics of an arm.
    pub fn of_arm(&self, arm: Option<&'static str>) -> Self {
        Self {
            registry: self.registry.clone(),
            arm,
        }
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        let opts = opts(name, help);
        match self.arm {
            Some(arm) => opts.const_label("arm", arm),
            None => opts,
        }
    }

    /// Registers a metric that exists already, such as a counter that is older than its registry.
    pub fn add<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.add(IntCounter::with_opts(self.opts(name, help))?)
    }

    /// Counters whose labels are not all known beforehand. The caller touches those that are.
    pub fn open(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(self.opts(name, help), labels)?)
    }

    /// Counters of a closed set.
    pub fn counters<L: LabelSet>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Each<L, IntCounter>, Error> {
        let counters = self.open(name, help, &[label])?;
        Ok(Each::of(|word| counters.with_label_values(&[word])))
    }

    /// Counters for each pair of members of two closed sets.
    pub fn pairs<A: LabelSet, B: LabelSet>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; 2],
    ) -> Result<Pairs<A, B>, Error> {
        let counters = self.open(name, help, &labels)?;
        Ok(Pairs(Each::of(|one| {
            Each::of(|other| counters.with_label_values(&[one, other]))
        })))
    }

    /// Sums of fractions for a closed set.
    pub fn sums<L: LabelSet>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Each<L, Counter>, Error> {
        let sums = self.add(CounterVec::new(self.opts(name, help), &[label])?)?;
        Ok(Each::of(|word| sums.with_label_values(&[word])))
    }

    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::with_opts(self.opts(name, help))?)
    }

    /// Gauges for a closed set.
    pub fn gauges<L: LabelSet>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Each<L, IntGauge>, Error> {
        let gauges = self.add(IntGaugeVec::new(self.opts(name, help), &[label])?)?;
        Ok(Each::of(|word| gauges.with_label_values(&[word])))
    }

    /// Gauges of fractions for a closed set. They may fall below zero.
    pub fn balances<L: LabelSet>(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<Each<L, Gauge>, Error> {
        let gauges = self.add(GaugeVec::new(self.opts(name, help), &[label])?)?;
        Ok(Each::of(|word| gauges.with_label_values(&[word])))
    }

    /// A gauge that is always 1 and says something by its label.
    pub fn fact(&self, name: &str, help: &str, label: &str, word: &str) -> Result<(), Error> {
        let gauge = self.add(IntGaugeVec::new(self.opts(name, help), &[label])?)?;
        gauge.with_label_values(&[word]).set(1);
        Ok(())
    }

    /// Registers what has names of its own.
    pub fn system<C: Collector + 'static>(&self, collector: C) -> Result<(), Error> {
        self.registry.register(Box::new(collector))
    }

    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(opts)?)
    }

    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        label: &str,
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec());
        self.add(HistogramVec::new(opts, &[label])?)
    }
}

/// The histograms of a closed set. The caller resolves the other labels of the family.
pub(super) fn members<L: LabelSet>(family: &HistogramVec) -> Each<L, Histogram> {
    Each::of(|word| family.with_label_values(&[word]))
}
