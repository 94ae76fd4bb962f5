//! Which turns of which sessions are looked at: those whose history is over the ceiling and no longer
//! than a model can read, and before which every policy had something to leave out and did; in runs of
//! neighbours, drawn by a seed. Owns the draw: the same seed, files, ceiling and policies give the same
//! turns. Never plays a policy itself.

use std::collections::HashSet;

use plimsoll_model::Role;
use plimsoll_scripted::rng::Rng;

use super::message_text::{self, TextPart};
use super::standin::Size;
use super::trace::{Trace, TraceMessage};
use super::{Lab, ReplayError, Source, Watch, across, drive};

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Turns in all.
    pub turns: usize,
    /// Turns that follow each other.
    pub run: usize,
    /// Any number.
    pub seed: u64,
    /// Tokens of the longest history.
    pub longest: u64,
    /// Turns that were drawn before, in place of a draw.
    pub like: Option<Vec<Place>>,
}

/// A turn that was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The session by name.
    pub session: String,
    /// The answer, by its place among the messages.
    pub turn: usize,
    /// The block that it is in.
    pub block: usize,
}

/// Tells of a session at which answers a comparison is one.
pub type Fair<'a> = &'a (dyn Fn(&Drawn) -> Result<HashSet<usize>, ReplayError> + Sync);

/// Bytes that an answer says at least.
const SAYS: usize = 40;

/// A session with the turns that were drawn of it; what comes behind the last one is cut off.
pub struct Drawn {
    /// The session.
    pub trace: Trace,
    /// What was cut off.
    pub future: Vec<TraceMessage>,
    /// Its messages' sizes.
    pub sizes: Vec<Size>,
    /// The answers that were drawn, by their place among the messages, and the block of each.
    pub turns: Vec<(usize, usize)>,
}

impl Drawn {
    /// Cuts off what comes behind an answer.
    fn cut(&mut self, last: Option<usize>) {
        let messages = &mut self.trace.messages;
        let mut future = messages.split_off(last.map_or(0, |at| at + 1).min(messages.len()));
        future.append(&mut self.future);
        self.future = future;
        self.sizes.truncate(self.trace.messages.len());
    }

    /// Tokens of the messages before an answer.
    #[must_use]
    pub fn history(&self, at: usize) -> u64 {
        let before = self.sizes.get(..at).unwrap_or_default();
        before.iter().map(|one| one.tokens).sum()
    }

    /// The same session with every answer drawn.
    #[must_use]
    pub fn everywhere(&self) -> Self {
        Self {
            trace: self.trace.clone(),
            future: Vec::new(),
            sizes: self.sizes.clone(),
            turns: (0..self.sizes.len()).map(|at| (at, 0)).collect(),
        }
    }

    /// Keeps of its turns only the one that was drawn first, and returns it.
    pub fn keep_first(&mut self) -> usize {
        self.turns.sort_unstable_by_key(|(_, block)| *block);
        self.turns.truncate(1);
        let first = self.turns.first().map(|(at, _)| *at);
        self.cut(first);
        first.unwrap_or_default()
    }

    /// The session as it was before anything was cut off.
    #[must_use]
    pub fn whole(&self) -> Trace {
        let mut whole = self.trace.clone();
        whole.messages.extend_from_slice(&self.future);
        whole
    }
}

/// Draws turns of sessions in files. Blocks are numbered so that the first of every session come before
/// the second of any: whatever is looked at in their order is a balanced sample.
///
/// # Errors
/// [`ReplayError`] where a file or a message can't be read.
pub fn draw(
    lab: &Lab,
    sources: &[Source],
    choice: &Choice,
    fair: Fair<'_>,
    watch: &dyn Watch,
) -> Result<Vec<Drawn>, ReplayError> {
    let order: Vec<usize> = (0..sources.len()).collect();
    let all = |source: &Source| -> Result<Vec<_>, ReplayError> {
        let traces = lab.read(source)?.into_iter();
        let one = |trace| session(lab, trace, choice, fair, watch);
        traces.filter_map(|trace| one(trace).transpose()).collect()
    };
    let found = across(
        lab.options.threads,
        &order,
        &|at| sources.get(at).map(all),
        watch,
    );
    let mut drawn = Vec::new();
    let mut runs = Vec::new();
    for all in found.into_iter().flatten() {
        for (session, own) in all? {
            drawn.push(session);
            runs.push(own);
        }
    }
    if choice.like.is_none() {
        for (block, (session, run)) in dealt(&runs, choice).into_iter().enumerate() {
            if let Some(one) = drawn.get_mut(session) {
                one.turns.extend(run.into_iter().map(|at| (at, block)));
            }
        }
    }
    drawn.retain(|one| !one.turns.is_empty());
    for one in &mut drawn {
        one.turns.sort_unstable();
        let last = one.turns.last().map(|(last, _)| *last);
        one.cut(last);
    }
    Ok(drawn)
}

/// A session and the runs of turns that may be drawn of it; none where it is too short.
#[expect(clippy::type_complexity, reason = "a session beside its runs")]
fn session(
    lab: &Lab,
    trace: Trace,
    choice: &Choice,
    fair: Fair<'_>,
    watch: &dyn Watch,
) -> Result<Option<(Drawn, Vec<Vec<usize>>)>, ReplayError> {
    watch.read(&trace);
    let shapes = drive::shapes(lab, &trace)?;
    if drive::size(&shapes) < lab.options.min_tokens {
        return Ok(None);
    }
    let size = |shape: &std::sync::Arc<plimsoll_model::Shape>| Size {
        role: shape.role,
        tokens: u64::from(shape.tokens()),
    };
    let sizes: Vec<Size> = shapes.iter().map(size).collect();
    let own = |place: &&Place| place.session == trace.name;
    let like = choice.like.iter().flatten().filter(own);
    let turns: Vec<(usize, usize)> = like.map(|place| (place.turn, place.block)).collect();
    let mut drawn = Drawn {
        trace,
        future: Vec::new(),
        sizes,
        turns,
    };
    if choice.like.is_some() {
        return Ok(Some((drawn, Vec::new())));
    }
    let ceiling = u64::from(lab.options.ceilings.iter().copied().max().unwrap_or(0));
    let says = |drawn: &Drawn, at: usize| {
        let answer = drawn.trace.messages.get(at);
        at >= drawn.trace.history && answer.is_some_and(|one| says(&one.raw))
    };
    let single = Choice {
        run: 1,
        ..choice.clone()
    };
    let all = runs(&drawn.sizes, ceiling, &single, &|at| says(&drawn, at));
    drawn.cut(all.last().and_then(|run| run.last().copied()));
    if all.is_empty() {
        return Ok(None);
    }
    let fair = fair(&drawn)?;
    let may = |at: usize| fair.contains(&at) && says(&drawn, at);
    let own = runs(&drawn.sizes, ceiling, choice, &may);
    Ok(Some((drawn, own)))
}

/// Whether an answer says enough to be looked at.
fn says(answer: &[u8]) -> bool {
    let mut bytes = 0;
    message_text::texts(answer, &mut |part: TextPart, text: &str| {
        if part != TextPart::Reasoning {
            bytes += text.len();
        }
    });
    bytes >= SAYS
}

/// Neighbouring answers whose histories are over the ceiling and not too long, in whole runs.
fn runs(
    sizes: &[Size],
    ceiling: u64,
    choice: &Choice,
    says: &dyn Fn(usize) -> bool,
) -> Vec<Vec<usize>> {
    let mut runs = Vec::new();
    let mut run = Vec::new();
    let mut history = 0;
    for (at, one) in sizes.iter().enumerate() {
        if one.role == Role::Assistant {
            if history > ceiling && history <= choice.longest && says(at) {
                run.push(at);
            } else {
                run.clear();
            }
            if run.len() == choice.run.max(1) {
                runs.push(std::mem::take(&mut run));
            }
        }
        history += one.tokens;
    }
    runs
}

/// Deals runs out: sessions in an order of the seed's, one run of each in turn, until there are enough
/// turns.
fn dealt(sessions: &[Vec<Vec<usize>>], choice: &Choice) -> Vec<(usize, Vec<usize>)> {
    let mut rng = Rng::new(choice.seed);
    let mut order: Vec<usize> = (0..sessions.len()).collect();
    shuffle(&mut order, &mut rng);
    let mut left: Vec<(usize, Vec<Vec<usize>>)> = Vec::new();
    for at in order {
        let mut runs = sessions.get(at).cloned().unwrap_or_default();
        shuffle(&mut runs, &mut rng);
        left.push((at, runs));
    }
    let mut dealt = Vec::new();
    let mut turns = 0;
    while turns < choice.turns && left.iter().any(|(_, runs)| !runs.is_empty()) {
        for (session, runs) in &mut left {
            if turns < choice.turns
                && let Some(run) = runs.pop()
            {
                turns += run.len();
                dealt.push((*session, run));
            }
        }
    }
    dealt
}

/// Puts things into an order of the generator's.
pub(super) fn shuffle<T>(all: &mut [T], rng: &mut Rng) {
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(turns: usize, run: usize, seed: u64) -> Choice {
        Choice {
            turns,
            run,
            seed,
            longest: 100,
            like: None,
        }
    }

    #[test]
    fn turns_are_over_the_ceiling_and_not_too_long() {
        let one = |role, tokens| Size { role, tokens };
        let mut sizes = vec![one(Role::User, 30)];
        for _ in 0..6 {
            sizes.push(one(Role::Assistant, 5));
            sizes.push(one(Role::Tool, 15));
        }
        // Histories of 30, 50, 70, 90, 110 … tokens before the answers at 1, 3, 5, 7, 9 …
        let found = |run| runs(&sizes, 40, &choice(9, run, 1), &|_| true);
        assert_eq!(found(1), [[3], [5], [7]]);
        assert_eq!(found(2), [[3, 5]]);
        assert_eq!(
            runs(&sizes, 40, &choice(9, 1, 1), &|at| at != 5),
            [[3], [7]]
        );
        assert!(runs(&sizes, 40, &choice(9, 2, 1), &|at| at != 5).is_empty());
    }

    #[test]
    fn every_session_comes_once_before_any_comes_twice() {
        let sessions: Vec<Vec<Vec<usize>>> = (0..5)
            .map(|_| (0..4).map(|at| vec![at, at + 1]).collect())
            .collect();
        let dealt = dealt(&sessions, &choice(16, 2, 7));
        assert_eq!(dealt.len(), 8, "16 turns in runs of two");
        let mut first: Vec<usize> = dealt.iter().take(5).map(|(one, _)| *one).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3, 4]);
        assert_eq!(dealt, super::dealt(&sessions, &choice(16, 2, 7)));
        assert_ne!(dealt, super::dealt(&sessions, &choice(16, 2, 8)));
    }

    #[test]
    fn what_runs_out_ends_the_draw() {
        assert!(dealt(&[vec![], vec![]], &choice(10, 2, 1)).is_empty());
        assert_eq!(dealt(&[vec![vec![3]]], &choice(10, 1, 1)), [(0, vec![3])]);
    }
}
