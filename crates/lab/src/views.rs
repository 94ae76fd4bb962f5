//! The views that policies send at chosen turns, for a real model to read: their messages, the recorded
//! answer, and what the cheap measures say of each. Owns the lines that are written; never asks a model.

use std::collections::HashSet;

use plimsoll_model::strings;
use serde_json::{Map, Value, json};
use twox_hash::XxHash3_64;

use super::anchors::Needs;
use super::blocks::{Needed, Texts};
use super::message_text::{self, TextPart};
use super::sample::{self, Choice, Drawn};
pub use super::seats::Match;
use super::seats::{self, Seat, ceiling, play, search, tokens};
use super::{Lab, ReplayError, Source, Watch, across};

/// What came out.
pub struct Views {
    /// One JSON object for each turn and policy, in the order in which they are to be scored.
    pub lines: Vec<String>,
    /// Turns and sessions.
    pub counts: (usize, usize),
    /// Each view's name, mean size in tokens and setting.
    pub sizes: Vec<(String, f64, String)>,
}

/// Writes the views of the lab's policies, and of plain truncation, at the turns that are drawn.
///
/// # Errors
/// [`ReplayError`] where a session can't be read or played.
pub fn write(
    lab: &Lab,
    sources: &[Source],
    choice: &Choice,
    size: Match,
    watch: &dyn Watch,
) -> Result<Views, ReplayError> {
    let mut seats = seats::all(lab);
    let fair = |session: &Drawn| seats::fair(lab, session, &seats);
    let drawn = sample::draw(lab, sources, choice, &fair, watch)?;
    if size != Match::Nothing {
        search(lab, &drawn, &mut seats, size, watch)?;
    }
    of(lab, &drawn, &seats, watch)
}

/// Writes the views of some seats at turns that were drawn.
///
/// # Errors
/// [`ReplayError`] where a session can't be played.
pub fn of(
    lab: &Lab,
    drawn: &[Drawn],
    seats: &[Seat],
    watch: &dyn Watch,
) -> Result<Views, ReplayError> {
    let kinds: Vec<(String, Value)> = seats
        .iter()
        .map(|seat| (seat.name(), seat.setting(lab)))
        .collect();
    gather(
        lab,
        drawn,
        &kinds,
        &|session| lines(lab, session, seats),
        watch,
    )
}

/// Makes the lines of each session, and puts them into the order in which they are to be scored. `kinds` are the views
/// of a turn by name, with their settings.
pub(super) fn gather(
    lab: &Lab,
    drawn: &[Drawn],
    kinds: &[(String, Value)],
    lines: &(dyn Fn(&Drawn) -> Result<Vec<ViewLine>, ReplayError> + Sync),
    watch: &dyn Watch,
) -> Result<Views, ReplayError> {
    let one = |at: usize| drawn.get(at).map(lines);
    let order: Vec<usize> = (0..drawn.len()).collect();
    let mut all = Vec::new();
    for session in across(lab.options.threads, &order, &one, watch)
        .into_iter()
        .flatten()
    {
        all.extend(session?);
    }
    all.sort_by_key(|line| (line.block, line.at, line.kind));
    let turns = all.len() / kinds.len().max(1);
    let sizes = kinds.iter().enumerate().map(|(kind, (name, setting))| {
        let own = all.iter().filter(|line| line.kind == kind);
        let sum: u64 = own.map(|line| line.tokens).sum();
        let mean = sum as f64 / turns.max(1) as f64;
        (name.clone(), mean, setting.to_string())
    });
    Ok(Views {
        sizes: sizes.collect(),
        counts: (turns, drawn.len()),
        lines: all.into_iter().map(|line| line.text).collect(),
    })
}

/// One line of the file.
pub(super) struct ViewLine {
    block: usize,
    at: usize,
    /// Which of the views of its turn it is.
    kind: usize,
    tokens: u64,
    text: String,
}

/// A view that is to be written.
pub(super) struct WrittenView<'a> {
    /// The answer, by its place among the messages.
    pub at: usize,
    /// The block that it was drawn in.
    pub block: usize,
    /// Which of the views of its turn it is, by number and by name.
    pub kind: (usize, &'a str),
    /// How it came about.
    pub setting: &'a Value,
    /// Its messages.
    pub messages: &'a [Vec<u8>],
}

/// Writes views of one session.
pub(super) struct Writer<'a> {
    lab: &'a Lab,
    session: &'a Drawn,
    /// What the session's answers need.
    pub needs: Needs,
    /// The answer that was looked at last.
    turn: Option<(usize, DrawnTurn)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(lab: &'a Lab, session: &'a Drawn) -> Self {
        let needs = Needs::of(&session.trace);
        Self {
            lab,
            session,
            needs,
            turn: None,
        }
    }

    /// The line of a view; none where the session has no such answer.
    pub(super) fn line(&mut self, view: &WrittenView<'_>) -> Option<ViewLine> {
        let (lab, session, at) = (self.lab, self.session, view.at);
        let raw = &session.trace.messages;
        let before = raw.get(..at).unwrap_or_default();
        let answer = raw.get(at)?;
        let known = self.turn.take().filter(|(known, _)| *known == at);
        let (_, own) = known.unwrap_or_else(|| {
            let history: Vec<&[u8]> = before.iter().map(|one| one.raw.as_ref()).collect();
            (at, DrawnTurn::of(&history, &answer.raw))
        });
        let size = tokens(lab, view.messages);
        let (kind, name) = view.kind;
        let text = json!({
            "session": session.trace.name,
            "turn": at,
            "block": view.block,
            "policy": name,
            "annotate": lab.options.annotate.name(),
            "budget": ceiling(lab),
            "setting": view.setting,
            "tokens": size,
            "history": session.history(at),
            "measures": measures(&self.needs, at, &own, view.messages),
            "strings": own.strings.told(view.messages),
            "messages": view.messages.iter().filter_map(|one| value(one)).collect::<Vec<_>>(),
            "answer": value(&answer.raw),
        });
        self.turn = Some((at, own));
        Some(ViewLine {
            block: view.block,
            at,
            kind,
            tokens: size,
            text: text.to_string(),
        })
    }
}

fn lines(lab: &Lab, session: &Drawn, seats: &[Seat]) -> Result<Vec<ViewLine>, ReplayError> {
    let mut writer = Writer::new(lab, session);
    let mut lines = Vec::new();
    play(lab, session, seats, &mut |shown| {
        let Some(seat) = seats.get(shown.seat) else {
            return;
        };
        lines.extend(writer.line(&WrittenView {
            at: shown.at,
            block: shown.block,
            kind: (shown.seat, &seat.name()),
            setting: &seat.setting(lab),
            messages: &shown.messages,
        }));
    })?;
    Ok(lines)
}

fn value(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}

/// What an answer needs, however the view came about.
struct DrawnTurn {
    needed: Needed,
    strings: AnswerStrings,
}

impl DrawnTurn {
    fn of(history: &[&[u8]], answer: &[u8]) -> Self {
        let texts = Texts::of(history.iter().copied());
        Self {
            needed: Needed::of(answer, &texts),
            strings: AnswerStrings::of(history, answer),
        }
    }
}

/// Each measure's part and whole.
fn measures(needs: &Needs, at: usize, turn: &DrawnTurn, messages: &[Vec<u8>]) -> Value {
    let shown = needs.contents(messages);
    let mut found = Map::new();
    let share = |needed: &[u32], held: &HashSet<u32>| {
        let part = needed.iter().filter(|one| held.contains(one)).count();
        json!([part, needed.len()])
    };
    if let Some(ask) = needs.asks.get(at) {
        found.insert("K".to_owned(), share(&ask.strings, &shown.strings));
        found.insert("L".to_owned(), share(&ask.lines, &shown.lines));
        let held = ask
            .passages
            .iter()
            .filter(|(one, _)| shown.passages.contains(one));
        let part: u32 = held.map(|(_, weight)| weight).sum();
        let whole: u32 = ask.passages.iter().map(|(_, weight)| weight).sum();
        found.insert("P".to_owned(), json!([part, whole]));
    }
    let texts = Texts::of(messages.iter().map(Vec::as_slice));
    for (name, one) in turn.needed.in_view(&texts) {
        found.insert(name, json!([one.part, one.whole]));
    }
    Value::Object(found)
}

/// The distinctive strings of an answer that had been said before, and the lines of its history.
struct AnswerStrings {
    said: Vec<String>,
    lines: HashSet<u64>,
}

impl AnswerStrings {
    fn of(history: &[&[u8]], answer: &[u8]) -> Self {
        let (mut known, mut lines) = (HashSet::new(), HashSet::new());
        for bytes in history {
            message_text::texts(bytes, &mut |_: TextPart, text: &str| {
                known.extend(strings(text).map(|(_, string)| string.to_owned()));
                lines.extend(text.lines().map(line));
            });
        }
        let mut said = HashSet::new();
        message_text::texts(answer, &mut |part: TextPart, text: &str| {
            if part != TextPart::Reasoning {
                let all = strings(text).map(|(_, string)| string.to_owned());
                said.extend(all.filter(|string| known.contains(string)));
            }
        });
        let mut said: Vec<String> = said.into_iter().collect();
        said.sort_unstable();
        Self { said, lines }
    }

    /// How a view shows them: `shown` in a line that stands so in the history, `indexed` in others alone,
    /// `hidden` nowhere.
    fn told(&self, messages: &[Vec<u8>]) -> Value {
        let (mut shown, mut noted) = (HashSet::new(), HashSet::new());
        for bytes in messages {
            message_text::texts(bytes, &mut |_: TextPart, text: &str| {
                for one in text.lines() {
                    let own = strings(one).map(|(_, string)| string.to_owned());
                    if self.lines.contains(&line(one)) {
                        shown.extend(own);
                    } else {
                        noted.extend(own);
                    }
                }
            });
        }
        let (mut seen, mut indexed, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
        for string in &self.said {
            let list = match (shown.contains(string), noted.contains(string)) {
                (true, _) => &mut seen,
                (false, true) => &mut indexed,
                (false, false) => &mut hidden,
            };
            list.push(string);
        }
        json!({"shown": seen, "indexed": indexed, "hidden": hidden})
    }
}

fn line(text: &str) -> u64 {
    XxHash3_64::oneshot(text.trim().as_bytes())
}
