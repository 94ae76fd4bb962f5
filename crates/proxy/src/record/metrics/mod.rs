//! The Prometheus metrics. `turns` and `money` are the table of those that a finished turn moves, `others` has the rest.
//! Never has a session, user, request or key as a label, and a model only if the operator listed it.

mod buckets;
mod error;
mod models;
mod money;
mod others;
mod register;
mod table;
#[cfg(test)]
mod tests;
mod turns;

use std::fmt;

use plimsoll_model::{Arm, SplitPlace};
use prometheus::{Registry, TextEncoder};

pub use self::error::MetricsError;
use self::models::ModelLabels;
use self::others::Others;
pub use self::others::{InFlight, log_lines_lost};
use self::register::Registrar;
use self::table::{Counted, Row, Table};
use super::labels::Route;
use super::turn_report::TurnReport;

/// All metrics of the process. They are shared by reference, and only looking up a label takes a
/// lock.
pub struct Metrics {
    /// Not the global one, so that tests share no counts.
    registry: Registry,
    /// What every request moves.
    requests: Vec<Row>,
    /// What turns move.
    turns: Vec<Row>,
    /// What a split is judged by: the rows of each arm, and of all sessions that are in none. While sessions are not split
    /// there are the latter alone, and they count all.
    arms: Vec<(Option<Arm>, Vec<Row>)>,
    /// The profile that is tried, if sessions are split.
    tried: Option<String>,
    others: Others,
    models: ModelLabels,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers every metric. `models` are the names, and globs of names, that may be the label
    /// `model`. All others count as `other`. `tried` is the profile that is tried, if sessions are split.
    ///
    /// # Errors
    /// [`MetricsError`] if an entry of `models` is not a glob, or if this module names a metric
    /// twice.
    pub fn new<S: AsRef<str>>(models: &[S], tried: Option<&str>) -> Result<Self, MetricsError> {
        let models = ModelLabels::new(models)?;
        let listed = models.listed();
        let listed: Vec<&str> = listed.iter().map(|name| &**name).collect();
        let registrar = Registrar::new();
        let mut requests = Table::new(&registrar);
        turns::of_requests(&mut requests)?;
        let mut turns = Table::new(&registrar);
        turns::of_turns(&mut turns, &listed)?;
        let (requests, turns) = (requests.rows, turns.rows);
        let others = Others::register(&registrar)?;
        // What the system knows of the process has the names that all programs use. Only Linux tells it.
        #[cfg(target_os = "linux")]
        registrar.system(prometheus::process_collector::ProcessCollector::for_self())?;
        let mut arms = vec![(None, tried.map(|_| "none"))];
        if tried.is_some() {
            arms.extend(Arm::ALL.map(|arm| (Some(arm), Some(arm.name()))));
        }
        let of_arm = |(arm, word)| {
            let registrar = registrar.of_arm(word);
            let mut rows = Table::new(&registrar);
            turns::of_arms(&mut rows)?;
            Ok((arm, rows.rows))
        };
        let arms = arms
            .into_iter()
            .map(of_arm)
            .collect::<Result<_, MetricsError>>()?;
        Ok(Self {
            registry: registrar.registry,
            requests,
            turns,
            arms,
            tried: tried.map(str::to_owned),
            others,
            models,
        })
    }

    /// Counts a finished turn.
    pub fn observe(&self, turn: &TurnReport) {
        // A name that no upstream answered to may be anything, so it does not become a label.
        let mut statuses = turn.hops.iter().filter_map(|hop| hop.status);
        let answered = statuses.any(|status| status.is_success());
        let model = &*self.models.label(&turn.model, answered);
        let counted = Counted { turn, model };
        self.requests.iter().for_each(|row| row(&counted));
        if turn.route != Route::CountTokens {
            let arm = self.arm(turn);
            let arms = self.arms.iter().filter(|(of, _)| *of == arm);
            let rows = arms.flat_map(|(_, rows)| rows).chain(&self.turns);
            rows.for_each(|row| row(&counted));
        }
    }

    /// The arm of a turn's session in the split that is going on.
    fn arm(&self, turn: &TurnReport) -> Option<Arm> {
        let split = turn.split.as_ref();
        let split = split.filter(|split| Some(&split.profile) == self.tried.as_ref());
        split.map(SplitPlace::arm)
    }

    /// Renders everything in Prometheus' text format, with fresh values about the process.
    ///
    /// # Errors
    /// [`MetricsError`] if a metric has no samples, which a registered one always has.
    pub fn render(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }
}
