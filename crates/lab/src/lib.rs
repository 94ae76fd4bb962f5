//! The policy lab: recorded sessions through the code that serves, for several policies side by
//! side, and what each of them sent, cost and lost. Owns the comparison; it never opens a socket
//! or a store, and has no eviction order of its own.

pub mod advice;
pub mod agents;
pub mod anchors;
mod blocks;
pub mod bootstrap;
pub mod cache;
mod contender;
pub mod cuts;
mod drive;
pub mod explain;
mod holdings;
mod hop;
pub mod json;
mod later;
mod message_text;
mod named;
pub mod outcome;
mod over;
pub mod page;
mod passes;
mod plans;
mod player;
pub mod sample;
mod seats;
mod sent;
mod shown;
pub mod source;
mod standin;
pub mod table;
#[cfg(test)]
mod tests;
mod think;
mod time;
pub mod trace;
pub mod tune;
pub mod verdict;
pub mod views;
pub mod worth;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::commit::Floor;
use plimsoll_core::policy::{AdmitSettings, Ladder, Policy};
use plimsoll_core::turn::memo::Memo;
use plimsoll_core::turn::{
    Budget, Classes, KeepSettings, Offer, RungTable, TermsError, ToolClasses, Uncached,
};
use plimsoll_model::GlobError;
use plimsoll_scripted::plan::Habits;
use plimsoll_tokens::Counter;

pub use cache::{PricesError, Pricing};
pub use contender::{Annotate, Contender, is_annotated, summary};
pub use later::{Later, LaterNeed};
pub use message_text::TextPart;
pub use outcome::{Outcome, Played, Point, PolicyRun, Report, SessionOutcome, Share};
pub use over::Over;
pub use passes::PassSizes;
pub use source::Source;
pub use think::Think;
pub use trace::{Trace, TraceError};

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policies, in the order in which they are shown.
    pub policies: Vec<Ladder>,
    /// The ceilings that are summed over, in tokens.
    pub ceilings: Vec<u32>,
    /// Down to where a pass evicts.
    pub floor: Floor,
    /// Where episodes come from.
    pub annotate: Annotate,
    /// Whether costs are those of a whole bill: the recorded answers are charged too, and all tools that are offered.
    pub bill: bool,
    /// How closely the obedient model follows the guidance.
    pub habits: Habits,
    /// When the hidden tools are offered.
    pub offer: Offer,
    /// The share of the ceiling past which the guidance comes in.
    pub guide_at: f64,
    /// Which new results `admit` clips.
    pub admit: AdmitSettings,
    /// What passes take last.
    pub keep: KeepSettings,
    /// When a pass happens below the ceiling, where the provider caches nothing.
    pub uncached: Uncached,
    /// What single rungs may touch, and how far down they evict.
    pub rungs: RungTable,
    /// How much every answer thinks; as it was recorded if nothing is said.
    pub think: Option<Think>,
    /// How long requests ask to keep what is cached; as it was recorded if nothing is said.
    pub cached_for: Option<Duration>,
    /// Sessions below so many tokens are left out.
    pub min_tokens: u64,
    /// The cache and the prices.
    pub pricing: Pricing,
    /// Sessions that are played at once, at least 1.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policies: evicting().map(Ladder::from).collect(),
            ceilings: vec![80_000],
            floor: Floor::Auto,
            annotate: Annotate::default(),
            bill: false,
            habits: Habits::default(),
            offer: Budget::default().offer,
            guide_at: Budget::default().guide_at,
            admit: AdmitSettings::default(),
            keep: KeepSettings::default(),
            uncached: Uncached::default(),
            rungs: RungTable::default(),
            think: None,
            cached_for: None,
            min_tokens: 0,
            pricing: Pricing::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A message can't be sent.
    #[error("session {session}: message {message} can't be replayed: {cause}")]
    Message {
        /// The session.
        session: String,
        /// The message's number, from 1.
        message: usize,
        /// Why.
        cause: String,
    },
    /// The terms that were asked for can't be had.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The built-in classes of tools can't be read.
    #[error(transparent)]
    Classes(#[from] GlobError),
}

/// Everything that sessions are played with.
pub struct Lab {
    options: Options,
    contenders: Vec<Contender>,
    memo: Memo,
    counter: Counter,
    classes: Classes,
}

/// The policies that evict, which are those that can be compared alone.
fn evicting() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter().filter(|policy| policy.evicts())
}

impl Lab {
    /// A lab for some options.
    ///
    /// # Errors
    /// [`ReplayError`] where a policy has no terms under them.
    pub fn new(options: Options) -> Result<Self, ReplayError> {
        let mut contenders = Vec::new();
        for ladder in &options.policies {
            for ceiling in &options.ceilings {
                let new = Contender::new(ladder.clone(), *ceiling, options.floor, &options);
                contenders.push(new?);
            }
        }
        Self::among(options, contenders)
    }

    /// A lab for contenders of one's own.
    fn among(options: Options, contenders: Vec<Contender>) -> Result<Self, ReplayError> {
        Ok(Self {
            options,
            contenders,
            memo: Memo::default(),
            counter: Counter::load(),
            classes: Classes::new(&ToolClasses::default())?,
        })
    }

    /// What was asked for.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The conversations of a source as they are played.
    ///
    /// # Errors
    /// [`TraceError`] if it can't be read, or is a recording without an answer.
    pub fn read(&self, source: &Source) -> Result<Vec<Trace>, TraceError> {
        let encoding = self.options.pricing.family.encoding;
        let thought = |trace| match self.options.think {
            Some(think) => think.thought(trace, &self.counter, encoding),
            None => trace,
        };
        Ok(source.read()?.into_iter().map(thought).collect())
    }

    /// Plays one session.
    ///
    /// # Errors
    /// [`ReplayError`] where a message of it can't be sent.
    pub fn session(&self, trace: &Trace) -> Result<SessionOutcome, ReplayError> {
        self.followed(trace, &mut |_| {})
    }

    /// Plays one session, and tells how much of it is played, from 0 to 1.
    fn followed(
        &self,
        trace: &Trace,
        far: &mut dyn FnMut(f64),
    ) -> Result<SessionOutcome, ReplayError> {
        let all = trace.messages.len().max(1) as f64;
        let mut each = |at: usize, _: &[player::Player<'_>]| far(at as f64 / all);
        let played = drive::watched(self, trace, &self.contenders, None, &mut each)?;
        Ok(drive::outcome(trace, &played, &self.options.pricing))
    }

    /// Plays one session for the first policy at the first ceiling, and tells which evicted items were
    /// needed later, in the order of the requests.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub fn needed(&self, trace: &Trace) -> Result<Vec<LaterNeed>, ReplayError> {
        let one = self.contenders.get(..1).unwrap_or_default();
        let played = drive::play(self, trace, one, None)?;
        let player = played.players.first();
        Ok(player.map_or_else(Vec::new, |player| later::needs(&played, player)))
    }

    /// The size of a session in tokens, as [`Options::min_tokens`] means it.
    ///
    /// # Errors
    /// [`ReplayError`] where a message of it can't be read.
    pub fn size(&self, trace: &Trace) -> Result<u64, ReplayError> {
        Ok(drive::size(&drive::shapes(self, trace)?))
    }

    /// Plays all sessions that are long enough, several at once. What comes out does not depend on
    /// how many. `watch` is told of each file when it is done.
    ///
    /// # Errors
    /// The first [`ReplayError`] in the order of the files.
    pub fn run(&self, sources: &[Source], watch: &dyn Watch) -> Result<Report, ReplayError> {
        let mut order: Vec<usize> = (0..sources.len()).collect();
        // The largest first: the last to end are short then.
        order.sort_by_cached_key(|at| std::cmp::Reverse(sources.get(*at).map_or(0, Source::bytes)));
        let bytes: Vec<u64> = sources.iter().map(Source::bytes).collect();
        let all = bytes.iter().sum::<u64>().max(1) as f64;
        let one = |at: usize| {
            let weight = bytes.get(at).map_or(0.0, |bytes| *bytes as f64 / all);
            let source = sources.get(at)?;
            Some(self.source(source, (at, weight), watch))
        };
        let done = across(self.options.threads, &order, &one, watch);
        let mut report = Report::default();
        for one in done.into_iter().flatten() {
            for one in one? {
                match one {
                    One::Played(session) => report.sessions.push(*session),
                    One::Short => report.short += 1,
                }
            }
        }
        Ok(report)
    }

    /// What became of the conversations of a source.
    fn source(
        &self,
        source: &Source,
        (at, weight): (usize, f64),
        watch: &dyn Watch,
    ) -> Result<Vec<One>, ReplayError> {
        let traces = self.read(source)?;
        let all = traces.len().max(1) as f64;
        let one = |(before, trace): (usize, &Trace)| {
            watch.read(trace);
            self.one(trace, &mut |part| {
                watch.plays(&Playing {
                    source: at,
                    name: &trace.name,
                    weight,
                    part: (before as f64 + part) / all,
                });
            })
        };
        traces.iter().enumerate().map(one).collect()
    }

    fn one(&self, trace: &Trace, far: &mut dyn FnMut(f64)) -> Result<One, ReplayError> {
        far(0.0);
        let long = self.size(trace)? >= self.options.min_tokens;
        let one = if long {
            One::Played(Box::new(self.followed(trace, far)?))
        } else {
            One::Short
        };
        far(1.0);
        Ok(one)
    }
}

/// Does something for each of some numbers, several at once and in their order; the results stand in the
/// order of the numbers themselves.
fn across<T: Send>(
    threads: usize,
    order: &[usize],
    work: &(dyn Fn(usize) -> T + Sync),
    watch: &dyn Watch,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::default();
    watch.done(0, order.len());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, order.len().max(1)) {
            scope.spawn(|| {
                while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = work(*at);
                    let mut done = done.lock();
                    done.push((*at, one));
                    watch.done(done.len(), order.len());
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, one)| one).collect()
}

/// What became of one conversation.
enum One {
    Played(Box<SessionOutcome>),
    Short,
}

/// Who wants to know how far a replay is. Called from several threads.
pub trait Watch: Sync {
    /// A conversation was read.
    fn read(&self, trace: &Trace);
    /// A conversation is played so far.
    fn plays(&self, playing: &Playing<'_>);
    /// So many files of all are done.
    fn done(&self, files: usize, of: usize);
}

/// A conversation that is played, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playing<'a> {
    /// The place of its file among all.
    pub source: usize,
    /// Its name.
    pub name: &'a str,
    /// The file's share of the bytes of all.
    pub weight: f64,
    /// How much of the file is played, from 0 to 1.
    pub part: f64,
}

/// Nobody does.
impl Watch for () {
    fn read(&self, _trace: &Trace) {}
    fn plays(&self, _playing: &Playing<'_>) {}
    fn done(&self, _files: usize, _of: usize) {}
}
