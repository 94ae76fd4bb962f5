//! Cut points, as paper 003 judges views (Metrics; table 7): one point of each session, what each policy still shows there,
//! and whether all that the recorded future needs of what was said before stands in it. Owns that judgement and its
//! classes. Nobody is asked: strings and lines decide, where the paper has a model judge.

use std::collections::{BTreeMap, HashSet};

use plimsoll_model::{Role, is_failure, tells_place};
use plimsoll_wire::Dialect;

use super::anchors::{Held, Needs};
use super::message_text::{self, TextPart};
use super::outcome::Share;
use super::sample::{self, Choice, Drawn, Place};
use super::seats::{self, Match, Seat};
use super::trace::{Trace, TraceMessage};
use super::{Lab, ReplayError, Source, Watch, across};

/// What kind of anchor a view lacks, by rule. The first that fits counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anchor {
    /// A string or a line that the user or the system said.
    Contract,
    /// A string whose newest holder is the result of a call that was made before with the same arguments, or one that
    /// tells of a failure.
    State,
    /// A path, a URL, or a handle: letters and digits in one word.
    Locator,
    /// Any other string: names and numbers.
    Evidence,
    /// A line.
    Verbatim,
}

impl Anchor {
    /// The words for each, in the order in which they are shown.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("locator", Self::Locator),
        ("evidence", Self::Evidence),
        ("contract", Self::Contract),
        ("verbatim", Self::Verbatim),
        ("state", Self::State),
    ];
}

/// What the future needs of what was said before a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Future {
    /// Strings by number, each once.
    pub strings: BTreeMap<u32, Anchor>,
    /// Lines by number, each once.
    pub lines: BTreeMap<u32, Anchor>,
}

/// What became of one policy at all cut points.
#[derive(Clone, Debug, Default)]
pub struct CutRow {
    /// The policy.
    pub name: String,
    /// Tokens of all views, and of all histories.
    pub tokens: (u64, u64),
    /// The sum of the shares that were left out.
    pub pruned: f64,
    /// Points at which no string was missed.
    pub strings: Share,
    /// Points at which neither a string nor a line was missed.
    pub whole: Share,
    /// Points at which an anchor of a class was missed.
    pub missed: BTreeMap<Anchor, u64>,
}

/// All policies at the same cut points.
#[derive(Clone, Debug, Default)]
pub struct CutPoints {
    /// One for each policy.
    pub rows: Vec<CutRow>,
    /// The points, each of a session of its own.
    pub points: Vec<Place>,
    /// How many of them have a future that needs anything.
    pub needing: usize,
}

/// Judges the lab's policies, and plain truncation, at one point of each session: a request whose history is over the
/// ceiling. Of its future the next `horizon` answers count.
///
/// # Errors
/// [`ReplayError`] where a session can't be read or played.
pub fn judge(
    lab: &Lab,
    sources: &[Source],
    choice: &Choice,
    (size, horizon): (Match, usize),
    watch: &dyn Watch,
) -> Result<CutPoints, ReplayError> {
    let mut seats = seats::all(lab);
    // Some policies never come down to some ceilings. As in the paper, each stands there with what it left out.
    let any = |session: &Drawn| Ok((0..session.sizes.len()).collect());
    let mut drawn = sample::draw(lab, sources, choice, &any, watch)?;
    let futures: Vec<(Needs, Future)> = drawn
        .iter_mut()
        .map(|session| {
            let at = session.keep_first();
            let whole = session.whole();
            let needs = Needs::of(&whole);
            let future = future(&needs, &whole, at, horizon);
            (needs, future)
        })
        .collect();
    if size != Match::Nothing {
        seats::search(lab, &drawn, &mut seats, size, watch)?;
    }
    let one = |at: usize| {
        let (session, (needs, future)) = (drawn.get(at)?, futures.get(at)?);
        Some(rows(lab, session, &seats, needs, future))
    };
    let order: Vec<usize> = (0..drawn.len()).collect();
    let mut judged = CutPoints {
        rows: seats.iter().map(|seat| CutRow::of(seat.name())).collect(),
        points: drawn.iter().filter_map(Drawn::first).collect(),
        needing: futures.iter().filter(|(_, one)| !one.is_empty()).count(),
    };
    for session in across(lab.options.threads, &order, &one, watch) {
        for (row, own) in judged
            .rows
            .iter_mut()
            .zip(session.transpose()?.unwrap_or_default())
        {
            row.add(&own);
        }
    }
    Ok(judged)
}

/// What each seat came to at the cut point of a session.
fn rows(
    lab: &Lab,
    session: &Drawn,
    seats: &[Seat],
    needs: &Needs,
    future: &Future,
) -> Result<Vec<CutRow>, ReplayError> {
    let mut rows: Vec<CutRow> = seats.iter().map(|_| CutRow::default()).collect();
    seats::play(lab, session, seats, &mut |shown| {
        let history = session.sizes.get(..shown.at).unwrap_or_default();
        let history: u64 = history.iter().map(|one| one.tokens).sum();
        let tokens = seats::tokens(lab, &shown.messages);
        let held = all_held(needs, shown.messages.iter().map(Vec::as_slice));
        if let Some(row) = rows.get_mut(shown.seat) {
            row.tokens = (tokens, history);
            row.pruned = 1.0 - tokens as f64 / history.max(1) as f64;
            row.judge(future, &held);
        }
    })?;
    Ok(rows)
}

impl CutRow {
    fn of(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Holds one view against the future.
    fn judge(&mut self, future: &Future, held: &AllHeld) {
        let strings = future.strings.iter();
        let strings = strings.filter(|(string, _)| !held.strings.contains(*string));
        let lines = future.lines.iter();
        let lines = lines.filter(|(line, _)| !held.lines.contains(*line));
        let of_strings: HashSet<u8> = strings.clone().map(|(_, anchor)| *anchor as u8).collect();
        let missed: Vec<Anchor> = strings.chain(lines).map(|(_, anchor)| *anchor).collect();
        self.strings = Share {
            part: u64::from(of_strings.is_empty()),
            whole: 1,
        };
        self.whole = Share {
            part: u64::from(missed.is_empty()),
            whole: 1,
        };
        self.missed = missed.into_iter().map(|anchor| (anchor, 1)).collect();
    }

    /// Adds another point.
    fn add(&mut self, one: &Self) {
        self.tokens.0 += one.tokens.0;
        self.tokens.1 += one.tokens.1;
        self.pruned += one.pruned;
        self.strings.add(one.strings);
        self.whole.add(one.whole);
        for (anchor, count) in &one.missed {
            *self.missed.entry(*anchor).or_default() += count;
        }
    }
}

impl Future {
    /// Whether nothing is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty() && self.lines.is_empty()
    }
}

/// What some messages hold.
#[derive(Default)]
struct AllHeld {
    strings: HashSet<u32>,
    lines: HashSet<u32>,
}

impl AllHeld {
    fn take(&mut self, held: Held) {
        self.strings
            .extend(held.parts.iter().map(|(_, string)| *string));
        self.lines.extend(held.lines);
    }
}

fn all_held<'a>(needs: &Needs, messages: impl Iterator<Item = &'a [u8]>) -> AllHeld {
    let mut all = AllHeld::default();
    for held in messages.filter_map(|one| needs.held(one)) {
        all.take(held);
    }
    all
}

/// What the calls of the next answers need that stands before the cut, and that nobody has said behind it again by then.
/// Of strings those count that tell where something is; a plain word proves nothing.
fn future(needs: &Needs, trace: &Trace, at: usize, horizon: usize) -> Future {
    let (before, after) = trace.messages.split_at(at.min(trace.messages.len()));
    let prefix = all_held(needs, before.iter().map(|one| one.raw.as_ref()));
    let said = said(needs, before);
    let told = Told::of(before);
    let mut since = AllHeld::default();
    let mut future = Future::default();
    let mut answers = 0;
    for (message, asked) in after.iter().zip(needs.asks.get(at..).unwrap_or_default()) {
        if message.role == Role::Assistant {
            answers += 1;
            if answers > horizon {
                break;
            }
        }
        let strings = asked.strings.iter().filter(|one| {
            let new = !since.strings.contains(*one);
            new && prefix.strings.contains(*one) && tells_place(needs.string(**one))
        });
        for string in strings {
            let holder = needs.holders(*string, at).next();
            let anchor = if said.strings.contains(string) {
                Anchor::Contract
            } else if holder.is_some_and(|(message, _)| told.state.contains(&message)) {
                Anchor::State
            } else if is_handle(needs.string(*string)) {
                Anchor::Locator
            } else {
                Anchor::Evidence
            };
            future.strings.insert(*string, anchor);
        }
        let lines = asked.lines.iter();
        let lines = lines.filter(|one| !since.lines.contains(*one) && prefix.lines.contains(*one));
        for line in lines {
            let anchor = match said.lines.contains(line) {
                true => Anchor::Contract,
                false => Anchor::Verbatim,
            };
            future.lines.insert(*line, anchor);
        }
        if let Some(held) = needs.held(&message.raw) {
            since.take(held);
        }
    }
    future
}

/// What the user and the system said.
fn said(needs: &Needs, messages: &[TraceMessage]) -> AllHeld {
    let theirs = messages
        .iter()
        .filter(|one| matches!(one.role, Role::User | Role::System));
    all_held(needs, theirs.map(|one| one.raw.as_ref()))
}

/// A path, a URL, or letters and digits in one word, as ids of tasks and hashes have them.
fn is_handle(string: &str) -> bool {
    let has = |of: fn(&char) -> bool| string.chars().any(|one| of(&one));
    let word = string
        .chars()
        .all(|one| one.is_ascii_alphanumeric() || one == '-');
    let mixed = has(char::is_ascii_digit) && has(char::is_ascii_alphabetic);
    string.contains('/') || (word && mixed)
}

/// Which results tell how things stand: those of calls that were made again, and of calls that failed.
struct Told {
    state: HashSet<usize>,
}

impl Told {
    fn of(messages: &[TraceMessage]) -> Self {
        let mut calls: Vec<(String, (String, String))> = Vec::new();
        let mut made: HashSet<(String, String)> = HashSet::new();
        let mut state = HashSet::new();
        for (at, message) in messages.iter().enumerate() {
            let Ok(parsed) = Dialect::Chat.parse(&message.raw) else {
                continue;
            };
            if message.role == Role::Assistant {
                let own = parsed.calls.iter().map(|call| {
                    let what = (call.name.to_string(), call.arguments.to_string());
                    (call.id.to_string(), what)
                });
                calls = own.collect();
            }
            let Some(id) = &parsed.result_of else {
                continue;
            };
            let call = calls.iter().find(|(own, _)| *own == id.0);
            let again = call.is_some_and(|(_, what)| !made.insert(what.clone()));
            let mut failed = false;
            message_text::texts(&message.raw, &mut |_: TextPart, text: &str| {
                failed |= is_failure(text);
            });
            if again || failed {
                state.insert(at);
            }
        }
        Self { state }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_core::policy::{Ladder, Policy};
    use serde_json::json;

    use super::super::{Options, source, trace};
    use super::*;

    /// A session by what is said, with a call of a command in each answer but the last.
    fn session(said: &[(&str, &str)]) -> Trace {
        let line = |(at, (role, text)): (usize, &(&str, &str))| match *role {
            "call" => {
                json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("c{at}"),
                "type": "function", "function": {"name": "bash", "arguments": json!({"c": text}).to_string()}}]})
            }
            "result" => {
                json!({"role": "tool", "tool_call_id": format!("c{}", at - 1), "content": text})
            }
            role => json!({"role": role, "content": text}),
        };
        let lines: Vec<String> = said
            .iter()
            .enumerate()
            .map(|one| line(one).to_string())
            .collect();
        trace::parse("one", &lines.join("\n")).unwrap()
    }

    /// The anchors that the future of a session needs behind a cut, by what they are.
    fn needed(said: &[(&str, &str)], at: usize, horizon: usize) -> Vec<(String, Anchor)> {
        let trace = session(said);
        let needs = Needs::of(&trace);
        let future = future(&needs, &trace, at, horizon);
        let strings = future.strings.iter();
        let strings = strings.map(|(string, anchor)| (needs.string(*string).to_owned(), *anchor));
        let lines = future
            .lines
            .values()
            .map(|anchor| ("(line)".to_owned(), *anchor));
        let mut all: Vec<_> = strings.chain(lines).collect();
        all.sort();
        all
    }

    const SAID: [(&str, &str); 14] = [
        ("user", "never touch /etc/app.toml"),
        ("call", "make"),
        (
            "result",
            "wrote /srv/out.log as job 7f3a91c2\nrow_count stands at the bottom line",
        ),
        ("call", "status"),
        ("result", "all well in /srv/old.json"),
        ("call", "status"),
        ("result", "blocked by /srv/now.json"),
        // The cut.
        (
            "call",
            "cat /etc/app.toml /srv/out.log 7f3a91c2 row_count plainwords",
        ),
        ("result", "nothing, but /srv/late.txt and /srv/old.json"),
        (
            "call",
            "cat /srv/late.txt /srv/now.json\nrow_count stands at the bottom line",
        ),
        ("result", "ok"),
        ("call", "cat /srv/old.json /srv/out.log"),
        ("result", "ok"),
        ("assistant", "done"),
    ];

    #[test]
    fn the_future_needs_what_stands_before_the_cut_alone_by_class() {
        let own = |name: &str, anchor| (name.to_owned(), anchor);
        let first = vec![
            own("/etc/app.toml", Anchor::Contract),
            own("/srv/out.log", Anchor::Locator),
            own("7f3a91c2", Anchor::Locator),
            own("row_count", Anchor::Evidence),
        ];
        assert_eq!(needed(&SAID, 7, 1), first);
        let mut all = vec![
            own("(line)", Anchor::Verbatim),
            own("/srv/now.json", Anchor::State),
        ];
        all.extend(first);
        all.sort();
        // The last two were said again behind the cut, and late.txt was never said before it.
        assert_eq!(needed(&SAID, 7, usize::MAX), all);
        assert_eq!(needed(&SAID, 13, usize::MAX), []);
    }

    #[test]
    fn a_view_is_held_against_all_of_it() {
        let trace = session(&SAID);
        let needs = Needs::of(&trace);
        let future = future(&needs, &trace, 7, usize::MAX);
        let judged = |left_out: &[usize]| {
            let shown = trace.messages.iter().enumerate().take(7);
            let shown = shown.filter(|(at, _)| !left_out.contains(at));
            let mut row = CutRow::default();
            row.judge(
                &future,
                &all_held(&needs, shown.map(|(_, one)| one.raw.as_ref())),
            );
            let missed: Vec<Anchor> = row.missed.keys().copied().collect();
            (row.strings.part, row.whole.part, missed)
        };
        assert_eq!(judged(&[]), (1, 1, vec![]));
        assert_eq!(judged(&[4]), (1, 1, vec![]));
        assert_eq!(judged(&[0]), (0, 0, vec![Anchor::Contract]));
        assert_eq!(judged(&[6]), (0, 0, vec![Anchor::State]));
        assert_eq!(
            judged(&[2]),
            (
                0,
                0,
                vec![Anchor::Locator, Anchor::Evidence, Anchor::Verbatim]
            )
        );
    }

    #[test]
    fn whoever_leaves_nothing_out_misses_nothing_and_the_same_seed_cuts_the_same() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demo/session.jsonl.zst");
        let sources = source::find(&[path]).unwrap().found;
        let policies = [Policy::None, Policy::Cwl, Policy::OldestTurn];
        let lab = Lab::new(Options {
            policies: policies.map(Ladder::from).to_vec(),
            ceilings: vec![40_000],
            ..Options::default()
        })
        .unwrap();
        let judged = |seed, size| {
            let choice = Choice {
                turns: usize::MAX,
                run: 1,
                seed,
                longest: u64::MAX,
                like: None,
            };
            judge(&lab, &sources, &choice, (size, usize::MAX), &()).unwrap()
        };
        let one = judged(1, Match::Nothing);
        assert_eq!((one.points.len(), one.needing, one.rows.len()), (1, 1, 4));
        let [none, cwl, oldest, truncated] = &one.rows[..] else {
            panic!()
        };
        assert_eq!(
            (none.strings.part, none.whole.part, none.pruned),
            (1, 1, 0.0)
        );
        for row in [cwl, oldest, truncated] {
            assert!(row.pruned > 0.3 && row.tokens.0 <= 40_000, "{row:?}");
            assert_eq!(row.whole.part == 1, row.missed.is_empty(), "{row:?}");
            assert!(row.strings.part >= row.whole.part);
        }
        let tokens =
            |judged: &CutPoints| judged.rows.iter().map(|row| row.tokens).collect::<Vec<_>>();
        assert_eq!(tokens(&one), tokens(&judged(1, Match::Nothing)));
        let others = (2..6).map(|seed| tokens(&judged(seed, Match::Nothing)));
        assert!(others.into_iter().any(|other| other != tokens(&one)));
    }
}
