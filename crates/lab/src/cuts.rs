//! Cut points, as paper 003 judges views (Metrics; table 7): one point of each session, what each policy still shows there,
//! and whether all that the recorded future needs of what was said before stands in it. Owns that judgement and its
//! classes. Nobody is asked: strings and lines decide, where the paper has a model judge.

use std::collections::BTreeMap;

use plimsoll_model::{Role, is_failure, tells_place};

use super::anchors::{Contents, Needs};
use super::message_text::{self, TextPart};
use super::outcome::Share;
use super::sample::{self, Choice, Drawn};
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
    /// Tokens of all views.
    pub tokens: u64,
    /// The sum of the shares that were left out.
    pub pruned: f64,
    /// Points at which no string was missed.
    pub strings: Share,
    /// Points at which neither a string nor a line was missed.
    pub whole: Share,
    /// Points at which it missed no string and the first policy did, and the other way round.
    pub beside_first: (u64, u64),
    /// Points at which an anchor of a class was missed.
    pub missed: BTreeMap<Anchor, u64>,
}

/// Conversations that were cut once each, and who makes views of them there.
pub struct CutPoints {
    /// The conversations, without what comes behind the cut.
    pub drawn: Vec<Drawn>,
    /// The policies, and plain truncation.
    pub seats: Vec<Seat>,
    futures: Vec<(Needs, Future)>,
}

impl CutPoints {
    /// Cuts each conversation at a request whose history is over the ceiling, and brings the views to a size. Of the future
    /// behind a cut the next `horizon` answers count.
    ///
    /// # Errors
    /// [`ReplayError`] where a session can't be read or played.
    pub fn draw(
        lab: &Lab,
        sources: &[Source],
        choice: &Choice,
        horizon: usize,
        size: Match,
        watch: &dyn Watch,
    ) -> Result<Self, ReplayError> {
        // Some policies never come down to some ceilings. As in the paper, each stands there with what it left out.
        let any = |session: &Drawn| Ok((0..session.sizes.len()).collect());
        let mut drawn = sample::draw(lab, sources, choice, &any, watch)?;
        let mut futures = Vec::new();
        for session in &mut drawn {
            let at = session.keep_first();
            let whole = session.whole();
            let needs = Needs::of(&whole);
            let future = future(&needs, &whole, at, horizon);
            futures.push((needs, future));
        }
        let mut seats = seats::all(lab);
        if size != Match::Nothing && !drawn.is_empty() {
            seats::search(lab, &drawn, &mut seats, size, watch)?;
        }
        Ok(Self {
            drawn,
            seats,
            futures,
        })
    }

    /// How many points have a future that needs anything.
    #[must_use]
    pub fn needing(&self) -> usize {
        let needing = self.futures.iter().filter(|(_, one)| !one.is_empty());
        needing.count()
    }

    /// Judges the views at all points, a row for each seat.
    ///
    /// # Errors
    /// [`ReplayError`] where a session can't be played.
    pub fn judge(&self, lab: &Lab, watch: &dyn Watch) -> Result<Vec<CutRow>, ReplayError> {
        let one = |at: usize| {
            let (session, (needs, future)) = (self.drawn.get(at)?, self.futures.get(at)?);
            Some(rows(lab, session, &self.seats, needs, future))
        };
        let order: Vec<usize> = (0..self.drawn.len()).collect();
        let mut all: Vec<CutRow> = self
            .seats
            .iter()
            .map(|seat| CutRow::of(seat.name()))
            .collect();
        for session in across(lab.options.threads, &order, &one, watch)
            .into_iter()
            .flatten()
        {
            for (row, own) in all.iter_mut().zip(session?) {
                row.add(&own);
            }
        }
        Ok(all)
    }
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
        let history = session.history(shown.at);
        let tokens = seats::tokens(lab, &shown.messages);
        let held = needs.contents(&shown.messages);
        if let Some(row) = rows.get_mut(shown.seat) {
            row.tokens = tokens;
            row.pruned = 1.0 - tokens as f64 / history.max(1) as f64;
            row.judge(future, &held);
        }
    })?;
    let first = rows.first().is_some_and(CutRow::shows_strings);
    for row in &mut rows {
        let own = row.shows_strings();
        row.beside_first = (u64::from(own && !first), u64::from(first && !own));
    }
    Ok(rows)
}

impl CutRow {
    fn of(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Whether it missed no string, at one point.
    fn shows_strings(&self) -> bool {
        self.strings.part == self.strings.whole
    }

    /// Holds one view against the future.
    fn judge(&mut self, future: &Future, held: &Contents) {
        let strings = future.strings.iter();
        let strings = strings.filter(|(string, _)| !held.strings.contains(*string));
        let lines = future.lines.iter();
        let lines = lines.filter(|(line, _)| !held.lines.contains(*line));
        let shows_strings = strings.clone().next().is_none();
        let missed: Vec<Anchor> = strings.chain(lines).map(|(_, anchor)| *anchor).collect();
        let one = |met: bool| Share {
            part: u64::from(met),
            whole: 1,
        };
        self.strings = one(shows_strings);
        self.whole = one(missed.is_empty());
        self.missed = missed.into_iter().map(|anchor| (anchor, 1)).collect();
    }

    /// Adds another point.
    fn add(&mut self, one: &Self) {
        self.tokens += one.tokens;
        self.pruned += one.pruned;
        self.strings.add(one.strings);
        self.whole.add(one.whole);
        self.beside_first.0 += one.beside_first.0;
        self.beside_first.1 += one.beside_first.1;
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

/// What the calls of the next answers need that stands before the cut, and that no result and no user has said again by
/// then. What the model itself says behind the cut it can only say because it was shown. Of strings those count that tell
/// where something is; a plain word proves nothing.
fn future(needs: &Needs, trace: &Trace, at: usize, horizon: usize) -> Future {
    let (before, after) = trace.messages.split_at(at.min(trace.messages.len()));
    let prefix = needs.contents(before.iter().map(|one| &one.raw));
    let asked_for = before
        .iter()
        .filter(|one| matches!(one.role, Role::User | Role::System));
    let asked_for = needs.contents(asked_for.map(|one| &one.raw));
    // How things stand is told by results of calls that were made again, and of calls that failed.
    let stands = |at: usize| needs.is_rerun(at) || before.get(at).is_some_and(tells_failure);
    let mut again = Contents::default();
    let mut future = Future::default();
    let mut answers = 0;
    for (message, ask) in after.iter().zip(needs.asks.get(at..).unwrap_or_default()) {
        if message.role == Role::Assistant {
            answers += 1;
            if answers > horizon {
                break;
            }
        } else if let Some(held) = needs.held(&message.raw) {
            again.take(held);
        }
        let strings = ask.strings.iter().filter(|one| {
            let old = prefix.strings.contains(*one) && !again.strings.contains(*one);
            old && tells_place(needs.string(**one))
        });
        for string in strings {
            let holder = needs.holders(*string, at).next();
            let anchor = if asked_for.strings.contains(string) {
                Anchor::Contract
            } else if holder.is_some_and(|(message, _)| stands(message)) {
                Anchor::State
            } else if is_locator(needs.string(*string)) {
                Anchor::Locator
            } else {
                Anchor::Evidence
            };
            future.strings.insert(*string, anchor);
        }
        let lines = ask.lines.iter();
        let lines = lines.filter(|one| prefix.lines.contains(*one) && !again.lines.contains(*one));
        for line in lines {
            let anchor = match asked_for.lines.contains(line) {
                true => Anchor::Contract,
                false => Anchor::Verbatim,
            };
            future.lines.insert(*line, anchor);
        }
    }
    future
}

/// A path, a URL, or letters and digits in one word, as ids of tasks and hashes have them.
fn is_locator(string: &str) -> bool {
    let has = |of: fn(&char) -> bool| string.chars().any(|one| of(&one));
    let word = string
        .chars()
        .all(|one| one.is_ascii_alphanumeric() || one == '-');
    let mixed = has(char::is_ascii_digit) && has(char::is_ascii_alphabetic);
    string.contains('/') || (word && mixed)
}

/// Whether a message tells that a call failed.
fn tells_failure(message: &TraceMessage) -> bool {
    let mut failed = false;
    message_text::texts(&message.raw, &mut |_: TextPart, text: &str| {
        failed |= is_failure(text);
    });
    message.role == Role::Tool && failed
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

    const SAID: [(&str, &str); 15] = [
        ("user", "never touch /etc/app.toml"),
        ("call", "make"),
        (
            "result",
            "wrote /srv/out.log as job 7f3a91c2\nrow_count stands at the bottom line",
        ),
        ("call", "status"),
        ("result", "all well in /srv/old.json and /srv/told.txt"),
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
        ("result", "ok, as announced"),
        ("assistant", "now /srv/told.txt"),
        ("call", "cat /srv/told.txt"),
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
            own("/srv/told.txt", Anchor::Locator),
        ];
        all.extend(first);
        all.sort();
        // A result behind the cut brought old.json again, and late.txt was never said before it. That the model itself
        // announced told.txt proves nothing.
        assert_eq!(needed(&SAID, 7, usize::MAX), all);
        assert_eq!(needed(&SAID, 13, 1), []);
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
            row.judge(&future, &needs.contents(shown.map(|(_, one)| &one.raw)));
            let missed: Vec<Anchor> = row.missed.keys().copied().collect();
            (row.strings.part, row.whole.part, missed)
        };
        assert_eq!(judged(&[]), (1, 1, vec![]));
        assert_eq!(judged(&[4]), (0, 0, vec![Anchor::Locator]));
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

    /// The bundled session, cut once.
    fn cut(seed: u64, horizon: usize, size: Match) -> (Lab, CutPoints) {
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
        let choice = Choice {
            turns: usize::MAX,
            run: 1,
            seed,
            longest: u64::MAX,
            like: None,
        };
        let points = CutPoints::draw(&lab, &sources, &choice, horizon, size, &()).unwrap();
        let read = lab.read(&sources[0]).unwrap();
        let whole = points.drawn[0].whole();
        let raw = |trace: &Trace| {
            trace
                .messages
                .iter()
                .map(|one| one.raw.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(raw(&whole), raw(&read[0]), "what is cut off is kept");
        let (at, _) = points.drawn[0].turns[0];
        assert_eq!(points.drawn[0].trace.messages.len(), at + 1);
        (lab, points)
    }

    #[test]
    fn whoever_leaves_nothing_out_misses_nothing_and_the_same_seed_cuts_the_same() {
        let (lab, points) = cut(1, usize::MAX, Match::Nothing);
        let rows = points.judge(&lab, &()).unwrap();
        assert_eq!(
            (points.drawn.len(), points.needing(), rows.len()),
            (1, 1, 4)
        );
        let [none, cwl, oldest, truncated] = &rows[..] else {
            panic!()
        };
        assert_eq!(
            (none.strings.part, none.whole.part, none.pruned),
            (1, 1, 0.0)
        );
        for row in [cwl, oldest, truncated] {
            assert!(row.pruned > 0.3 && row.tokens <= 40_000, "{row:?}");
            assert_eq!(row.whole.part == 1, row.missed.is_empty(), "{row:?}");
            assert!(row.strings.part >= row.whole.part);
            assert_eq!(
                row.beside_first,
                (0, 1 - row.strings.part),
                "the first misses nothing"
            );
        }
        let turn = |points: &CutPoints| points.drawn[0].turns.clone();
        assert_eq!(turn(&points), turn(&cut(1, usize::MAX, Match::Nothing).1));
        let others = (2..6).map(|seed| turn(&cut(seed, 1, Match::Nothing).1));
        assert!(others.into_iter().any(|other| other != turn(&points)));
        // The next answer alone needs less than all of them.
        let needs = |points: &CutPoints| {
            let (_, future) = &points.futures[0];
            future.strings.len() + future.lines.len()
        };
        let next = needs(&cut(1, 1, Match::Nothing).1);
        assert!(next < needs(&points), "{next} of {}", needs(&points));
    }

    #[test]
    fn views_of_one_size_are_judged_at_the_same_point() {
        let (lab, points) = cut(1, usize::MAX, Match::Least);
        let sent = cut(1, usize::MAX, Match::Nothing).1;
        assert_eq!(points.drawn[0].turns, sent.drawn[0].turns);
        let rows = points.judge(&lab, &()).unwrap();
        let sizes: Vec<u64> = rows.iter().skip(1).map(|row| row.tokens).collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*most < least + least / 5, "{sizes:?}");
        assert!(*most < rows[0].tokens);
    }
}
