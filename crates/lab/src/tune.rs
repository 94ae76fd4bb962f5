//! Which ceiling and floor suit recorded sessions: `cwl` at every pair of them, what each costs
//! and keeps, and which one is worth taking. Owns the sweep and the choice; plays nothing itself
//! and knows no other policy than `cwl` and sending everything.

use plimsoll_core::commit::Floor;
use plimsoll_core::policy::{Ladder, Policy};
use plimsoll_core::turn::MIN_CEILING;

use super::contender::Contender;
use super::outcome::{Outcome, Report};
use super::page::ModelPrice;
use super::{Lab, Options, ReplayError, Source, Watch};

/// How much of K may be given up for money: what is closer together than this is noise.
pub const SLACK: f64 = 0.005;
/// A setting that leaves more than this share of its requests over its ceiling does not hold it.
pub const OVER: f64 = 0.05;

/// The floors that are tried unless others are asked for.
pub const FLOORS: [Floor; 6] = [
    Floor::Auto,
    Floor::Fraction(0.5),
    Floor::Fraction(0.6),
    Floor::Fraction(0.7),
    Floor::Fraction(0.8),
    Floor::Fraction(0.9),
];

/// The default ceiling of the configuration, which is tried wherever it means anything.
const DEFAULT_CEILING: u32 = 80_000;
/// Below this the newest exchange and the tools alone fill most of a view.
const LOWEST: u32 = 8_000;
/// Shares of a long session that are tried as ceilings.
const SHARES: [f64; 5] = [0.2, 0.3, 0.4, 0.55, 0.75];

/// One setting and what it came to over all sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The ceiling in tokens.
    pub ceiling: u32,
    /// Down to where a pass evicts.
    pub floor: Floor,
    /// The figures.
    pub outcome: Outcome,
}

impl Cell {
    /// The share of distinctive strings that calls needed and still saw.
    #[must_use]
    pub fn kept(&self) -> f64 {
        self.outcome.visible.kept()
    }

    /// The share of requests above the ceiling.
    #[must_use]
    pub fn over(&self) -> f64 {
        let requests = (self.outcome.requests + self.outcome.extra).max(1);
        self.outcome.over as f64 / requests as f64
    }
}

/// All settings that were tried, ceiling by ceiling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    /// The settings.
    pub cells: Vec<Cell>,
    /// What sending everything comes to.
    pub untouched: Outcome,
    /// Sessions that were played.
    pub sessions: usize,
    /// Sessions that were left out because they are too short.
    pub short: usize,
    /// The models that the sessions were recorded with.
    pub models: Vec<ModelPrice>,
}

/// What to take, by its place in [`Surface::cells`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The cheapest setting whose K is within [`SLACK`] of the best.
    pub knee: usize,
    /// The cheapest setting.
    pub thrifty: usize,
    /// The cheapest of those that keep most.
    pub safe: usize,
    /// Where the front from the cheapest to the safest bends: farthest above the straight line
    /// between them.
    pub bend: usize,
    /// How many settings hold their ceiling; only these are compared, unless none does.
    pub holding: usize,
}

/// Ceilings for sessions of these sizes in tokens: shares of the size that a quarter of them
/// reaches, with two digits, and the default where a session is larger than that.
#[must_use]
pub fn ceilings(sizes: &[u64]) -> Vec<u32> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let long = sizes.get(sizes.len() * 3 / 4).or(sizes.last());
    let long = long.map_or(0.0, |size| *size as f64);
    let share = |share: &f64| two_digits(long * share).max(LOWEST);
    let mut ceilings: Vec<u32> = SHARES.iter().map(share).collect();
    if sizes
        .last()
        .is_some_and(|size| *size > u64::from(DEFAULT_CEILING))
    {
        let near = |ceiling: &u32| ceiling.abs_diff(DEFAULT_CEILING) * 10 <= DEFAULT_CEILING;
        ceilings.retain(|ceiling| !near(ceiling));
        ceilings.push(DEFAULT_CEILING);
    }
    ceilings.sort_unstable();
    ceilings.dedup();
    ceilings
}

/// A number of tokens with two digits that count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of sessions are positive and far below 2^32"
)]
fn two_digits(tokens: f64) -> u32 {
    let unit = 10_f64.powf(tokens.max(1.0).log10().floor() - 1.0).max(1.0);
    ((tokens / unit).round() * unit) as u32
}

/// The sizes of the sessions that are long enough, in tokens.
///
/// # Errors
/// [`ReplayError`] where a file or a message can't be read.
pub fn sizes(
    options: &Options,
    sources: &[Source],
    watch: &dyn Watch,
) -> Result<Vec<u64>, ReplayError> {
    let lab = Lab::among(options.clone(), Vec::new())?;
    let size = |(at, source): (usize, &Source)| -> Result<Vec<u64>, ReplayError> {
        watch.done(at, sources.len());
        source.read()?.iter().map(|trace| lab.size(trace)).collect()
    };
    let sizes = sources.iter().enumerate().map(size);
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    let long = sizes
        .into_iter()
        .flatten()
        .filter(|size| *size >= options.min_tokens);
    Ok(long.collect())
}

/// Plays `cwl` at every ceiling of `options` with every floor.
///
/// # Errors
/// [`ReplayError`] where a session can't be played.
pub fn sweep(
    options: Options,
    floors: &[Floor],
    sources: &[Source],
    watch: &dyn Watch,
) -> Result<Surface, ReplayError> {
    let settings: Vec<(u32, Floor)> = options
        .ceilings
        .iter()
        .flat_map(|ceiling| floors.iter().map(|floor| (*ceiling, *floor)))
        .collect();
    let contender =
        |policy, ceiling, floor| Contender::new(Ladder::from(policy), ceiling, floor, &options);
    let mut contenders = vec![contender(Policy::None, MIN_CEILING, Floor::Auto)?];
    for (ceiling, floor) in &settings {
        contenders.push(contender(Policy::Cwl, *ceiling, *floor)?);
    }
    let report = Lab::among(options, contenders)?.run(sources, watch)?;
    Ok(Surface::of(&report, &settings))
}

impl Surface {
    /// Adds up a report whose runs of `cwl` are those of some settings in order.
    fn of(report: &Report, settings: &[(u32, Floor)]) -> Self {
        let cell = |(ceiling, floor): &(u32, Floor)| Cell {
            ceiling: *ceiling,
            floor: *floor,
            outcome: Outcome::default(),
        };
        let mut surface = Self {
            cells: settings.iter().map(cell).collect(),
            untouched: Outcome::default(),
            sessions: report.sessions.len(),
            short: report.short,
            models: ModelPrice::of(report),
        };
        for played in report.sessions.iter().flat_map(|session| &session.policies) {
            if played.policy == Policy::None.name() {
                surface.untouched.add(&played.outcome());
                continue;
            }
            for (cell, run) in surface.cells.iter_mut().zip(&played.runs) {
                cell.outcome.add(&run.outcome);
            }
        }
        surface
    }

    /// Whether nothing was ever evicted: then there is nothing to choose by.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.cells.iter().all(|cell| cell.outcome.passes == 0)
    }

    /// What to take; none where no setting was tried.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        let places = || 0..self.cells.len();
        let cell = |at: usize| self.cells.get(at);
        let holds = |at: &usize| cell(*at).is_some_and(|cell| cell.over() <= OVER);
        let holding = places().filter(holds).count();
        let compared = || places().filter(move |at| holding == 0 || holds(at));
        let kept = |at: usize| cell(at).map_or(0.0, Cell::kept);
        let best = compared().map(kept).fold(0.0, f64::max);
        let cheapest = |least: f64| {
            let enough = compared().filter(|at| kept(*at) >= least);
            let cost = |at: usize| cell(at).map_or(f64::MAX, |cell| cell.outcome.cost);
            // Of equals the one that keeps more, then the first: the lower ceiling.
            enough.min_by(|a, b| {
                let (money, keeps) = (cost(*a).total_cmp(&cost(*b)), kept(*b).total_cmp(&kept(*a)));
                money.then(keeps).then(a.cmp(b))
            })
        };
        let (thrifty, safe) = (cheapest(0.0)?, cheapest(best)?);
        let above = self.above(thrifty, safe);
        let bend = compared().max_by(|a, b| above(*a).total_cmp(&above(*b)).then(b.cmp(a)))?;
        // Where the cheapest keeps most there is no line to bend.
        let bend = if thrifty == safe { thrifty } else { bend };
        Some(Advice {
            knee: cheapest(best - SLACK)?,
            thrifty,
            safe,
            bend,
            holding,
        })
    }

    /// How far settings keep more than the straight line between two of them would, in parts of
    /// the way from one to the other.
    fn above(&self, from: usize, to: usize) -> impl Fn(usize) -> f64 {
        let point = |at: usize| {
            let cell = self.cells.get(at);
            cell.map_or((0.0, 0.0), |cell| (cell.outcome.cost, cell.kept()))
        };
        let (low, high) = (point(from), point(to));
        let part = |value: f64, low: f64, high: f64| {
            let way = high - low;
            if way > 0.0 { (value - low) / way } else { 0.0 }
        };
        move |at| {
            let (cost, kept) = point(at);
            part(kept, low.1, high.1) - part(cost, low.0, high.0)
        }
    }

    /// The settings that no other beats in both cost and K.
    #[must_use]
    pub fn front(&self) -> Vec<usize> {
        let beats = |a: &Cell, b: &Cell| {
            let (cost, kept) = (a.outcome.cost, a.kept());
            cost <= b.outcome.cost && kept >= b.kept() && (cost < b.outcome.cost || kept > b.kept())
        };
        let cells = self.cells.iter().enumerate();
        let front = cells.filter(|(_, cell)| !self.cells.iter().any(|other| beats(other, cell)));
        front.map(|(at, _)| at).collect()
    }
}

#[cfg(test)]
mod tests;
