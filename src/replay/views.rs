//! The views that policies send at chosen turns, for a real model to read: their messages, the recorded
//! answer, and what the cheap measures say of each. Owns the search for one size, because a policy that
//! evicts less always looks better; never asks a model.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use twox_hash::XxHash3_64;

use super::anchors::{self, Needs, Part};
use super::blocks::{Needed, Texts};
use super::contender::{Contender, summary};
use super::player::Player;
use super::sample::{self, Choice, Drawn};
use super::standin::{self, TRUNCATED, Truncation};
use super::{Lab, ReplayError, Watch, across, drive, json};
use crate::commit::{self, Floor};
use crate::model::strings;
use crate::policy::Policy;

/// Which size the views are to have on the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// What each policy makes it.
    Nothing,
    /// The least that any of the policies makes it.
    Least,
    /// So many tokens.
    Tokens(u64),
}

/// What came out.
pub struct Views {
    /// One JSON object for each turn and policy, in the order in which they are to be scored.
    pub lines: Vec<String>,
    /// Turns and sessions.
    pub counts: (usize, usize),
    /// Each view's name, mean size in tokens and setting.
    pub sizes: Vec<(String, f64, String)>,
}

/// Who makes a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Policy(Policy),
    Truncated,
}

/// How deep it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Depth {
    /// As the lab plays it.
    Own,
    /// Down to a share of the ceiling.
    Floor(f64),
    /// Under a ceiling that is a share of the lab's, where a policy knows no floor.
    Ceiling(f64),
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    maker: Maker,
    depth: Depth,
}

impl Seat {
    fn name(self) -> &'static str {
        match self.maker {
            Maker::Policy(policy) => policy.name(),
            Maker::Truncated => TRUNCATED,
        }
    }

    /// The depths between which its size is looked for; none where nothing is evicted.
    fn range(self) -> Option<(f64, f64)> {
        match self.maker {
            Maker::Policy(Policy::None) => None,
            Maker::Policy(Policy::Compaction | Policy::KeepRecent | Policy::ThreeTier) => {
                Some((0.3, 2.0))
            }
            Maker::Policy(_) | Maker::Truncated => Some((0.1, 1.0)),
        }
    }

    fn at(self, share: f64) -> Self {
        let depth = match self.maker {
            Maker::Policy(Policy::Compaction | Policy::KeepRecent | Policy::ThreeTier) => {
                Depth::Ceiling(share)
            }
            Maker::Policy(_) | Maker::Truncated => Depth::Floor(share),
        };
        Self { depth, ..self }
    }

    fn setting(self, lab: &Lab) -> Value {
        match self.depth {
            Depth::Own => json!({ "floor": json::floor(lab.options.floor) }),
            Depth::Floor(share) => json!({ "floor": share }),
            Depth::Ceiling(share) => json!({ "ceiling": share }),
        }
    }
}

/// Writes the views of the lab's policies, and of plain truncation, at the turns that are drawn.
///
/// # Errors
/// [`ReplayError`] where a session can't be read or played.
pub fn write(
    lab: &Lab,
    files: &[PathBuf],
    choice: &Choice,
    size: Match,
    watch: &dyn Watch,
) -> Result<Views, ReplayError> {
    let mut seats: Vec<Seat> = lab.options.policies.iter().map(own).collect();
    seats.push(Seat {
        maker: Maker::Truncated,
        depth: Depth::Own,
    });
    let fair = |session: &Drawn| fair(lab, session, &seats);
    let drawn = sample::draw(lab, files, choice, &fair, watch)?;
    if size != Match::Nothing {
        search(lab, &drawn, &mut seats, size, watch)?;
    }
    let one = |at: usize| drawn.get(at).map(|session| lines(lab, session, &seats));
    let order: Vec<usize> = (0..drawn.len()).collect();
    let mut all = Vec::new();
    for session in across(lab.options.threads, &order, &one, watch)
        .into_iter()
        .flatten()
    {
        all.extend(session?);
    }
    all.sort_by_key(|line| (line.block, line.at));
    let turns = all.len() / seats.len().max(1);
    let sizes = seats.iter().map(|seat| {
        let own = all.iter().filter(|line| line.name == seat.name());
        let sum: u64 = own.map(|line| line.tokens).sum();
        let mean = sum as f64 / turns.max(1) as f64;
        (seat.name().to_owned(), mean, seat.setting(lab).to_string())
    });
    Ok(Views {
        sizes: sizes.collect(),
        counts: (turns, drawn.len()),
        lines: all.into_iter().map(|line| line.text).collect(),
    })
}

/// The answers before which each of some seats had left something out, and met the ceiling: what leaves
/// more in view always looks better.
fn fair(lab: &Lab, session: &Drawn, seats: &[Seat]) -> Result<HashSet<usize>, ReplayError> {
    let answers = 0..session.sizes.len();
    let whole = Drawn {
        trace: session.trace.clone(),
        sizes: session.sizes.clone(),
        turns: answers.map(|at| (at, 0)).collect(),
    };
    let evicting = seats.iter().filter(|seat| seat.range().is_some());
    let evicting: Vec<Seat> = evicting.copied().collect();
    let mut met: HashMap<usize, usize> = HashMap::new();
    play(lab, &whole, &evicting, &mut |shown| {
        let history = whole.sizes.get(..shown.at).unwrap_or_default();
        let history: u64 = history.iter().map(|one| one.tokens).sum();
        let size = tokens(lab, &shown.messages);
        let is_met = size < history && size <= u64::from(ceiling(lab));
        *met.entry(shown.at).or_default() += usize::from(is_met);
    })?;
    let all = |(at, count): (usize, usize)| (count == evicting.len()).then_some(at);
    Ok(met.into_iter().filter_map(all).collect())
}

fn own(policy: &Policy) -> Seat {
    Seat {
        maker: Maker::Policy(*policy),
        depth: Depth::Own,
    }
}

/// Rounds of the search, each of which plays all sessions once for all policies.
const ROUNDS: usize = 8;
/// How near a mean size is near enough.
const NEAR: f64 = 0.005;

/// Sets each seat's depth so that the views have one mean size: by halves, the nearest that was seen
/// being kept, because a size doesn't follow a floor smoothly.
fn search(
    lab: &Lab,
    drawn: &[Drawn],
    seats: &mut [Seat],
    size: Match,
    watch: &dyn Watch,
) -> Result<(), ReplayError> {
    let first = sizes(lab, drawn, seats, watch)?;
    let evicting = seats.iter().zip(&first);
    let evicting = evicting.filter(|(seat, _)| seat.range().is_some());
    let target = match size {
        Match::Tokens(tokens) => tokens as f64,
        Match::Nothing | Match::Least => evicting
            .map(|(_, size)| *size)
            .fold(f64::INFINITY, f64::min),
    };
    let far = |size: f64| (size - target).abs();
    let mut best: Vec<(f64, Seat)> = Vec::new();
    best.extend(
        first
            .iter()
            .map(|size| far(*size))
            .zip(seats.iter().copied()),
    );
    let mut ranges: Vec<(f64, f64)> = Vec::new();
    ranges.extend(seats.iter().map(|seat| seat.range().unwrap_or_default()));
    for _ in 0..ROUNDS {
        let near = |(at, _): &(usize, &(f64, Seat))| {
            let seat = seats.get(*at).copied();
            seat.is_some_and(|seat| seat.range().is_some())
        };
        let open = best.iter().enumerate().filter(near);
        let open = open.filter(|(_, (far, _))| *far > NEAR * target);
        let open: Vec<usize> = open.map(|(at, _)| at).collect();
        let middles = open.iter().map(|at| {
            let (low, high) = ranges.get(*at).copied().unwrap_or_default();
            f64::midpoint(low, high)
        });
        let middles: Vec<f64> = middles.collect();
        let tried = open.iter().zip(&middles);
        let tried = tried.filter_map(|(at, middle)| seats.get(*at).map(|seat| seat.at(*middle)));
        let tried: Vec<Seat> = tried.collect();
        if tried.is_empty() {
            break;
        }
        let found = sizes(lab, drawn, &tried, watch)?;
        for (((at, seat), size), middle) in open.iter().zip(&tried).zip(found).zip(middles) {
            if let Some((low, high)) = ranges.get_mut(*at) {
                *(if size > target { high } else { low }) = middle;
            }
            if let Some(best) = best.get_mut(*at)
                && far(size) < best.0
            {
                *best = (far(size), *seat);
            }
        }
    }
    for (seat, (_, found)) in seats.iter_mut().zip(best) {
        *seat = found;
    }
    Ok(())
}

/// The mean size of each seat's views.
fn sizes(
    lab: &Lab,
    drawn: &[Drawn],
    seats: &[Seat],
    watch: &dyn Watch,
) -> Result<Vec<f64>, ReplayError> {
    let order: Vec<usize> = (0..drawn.len()).collect();
    let one = |at: usize| {
        let session = drawn.get(at)?;
        let mut sums = vec![0; seats.len()];
        let played = play(lab, session, seats, &mut |shown| {
            if let Some(sum) = sums.get_mut(shown.seat) {
                *sum += tokens(lab, &shown.messages);
            }
        });
        Some(played.map(|()| sums))
    };
    let mut sums = vec![0_u64; seats.len()];
    for one in across(lab.options.threads, &order, &one, watch)
        .into_iter()
        .flatten()
    {
        for (sum, own) in sums.iter_mut().zip(one?) {
            *sum += own;
        }
    }
    let turns: usize = drawn.iter().map(|session| session.turns.len()).sum();
    Ok(sums
        .iter()
        .map(|sum| *sum as f64 / turns.max(1) as f64)
        .collect())
}

/// One view as it was sent.
struct Shown {
    seat: usize,
    at: usize,
    block: usize,
    messages: Vec<Vec<u8>>,
}

/// Plays a session for some seats and shows what each of them sent at the turns that were drawn.
fn play(
    lab: &Lab,
    session: &Drawn,
    seats: &[Seat],
    each: &mut dyn FnMut(Shown),
) -> Result<(), ReplayError> {
    let mut contenders = Vec::new();
    let mut seated = Vec::new();
    let mut cuts = Vec::new();
    for (number, seat) in seats.iter().enumerate() {
        match seat.maker {
            Maker::Policy(policy) => {
                contenders.push(contender(lab, policy, seat.depth)?);
                seated.push(number);
            }
            Maker::Truncated => cuts.push((number, truncation(lab, seat.depth))),
        }
    }
    let block = |at: usize| {
        let drawn = session.turns.iter().find(|(own, _)| *own == at);
        drawn.map(|(_, block)| *block)
    };
    let raw = &session.trace.messages;
    let before = |at: usize| raw.get(..at).unwrap_or_default();
    drive::watched(
        lab,
        &session.trace,
        &contenders,
        None,
        &mut |at, players| {
            for (seat, cut) in &mut cuts {
                let kept = cut.view(session.sizes.get(..at).unwrap_or_default());
                if let Some(block) = block(at) {
                    let messages = kept.iter().filter_map(|at| raw.get(*at));
                    let messages = messages.map(|message| message.raw.to_vec()).collect();
                    each(Shown {
                        seat: *seat,
                        at,
                        block,
                        messages,
                    });
                }
            }
            let Some(block) = block(at) else { return };
            for (player, seat) in players.iter().zip(&seated) {
                let history: Vec<&[u8]> = before(at).iter().map(|one| one.raw.as_ref()).collect();
                each(Shown {
                    seat: *seat,
                    at,
                    block,
                    messages: sent(lab, player, &history),
                });
            }
        },
    )?;
    Ok(())
}

fn contender(lab: &Lab, policy: Policy, depth: Depth) -> Result<Contender, ReplayError> {
    let options = &lab.options;
    let ceiling = ceiling(lab);
    Ok(match depth {
        Depth::Own => Contender::new(policy, ceiling, options.floor, options)?,
        Depth::Floor(share) => {
            let floor = Floor::Fraction(share);
            let mut contender = Contender::new(policy, ceiling, floor, options)?;
            // The published order has a floor of its own.
            contender.terms.commit.floor = floor;
            contender
        }
        Depth::Ceiling(share) => {
            Contender::new(policy, part(ceiling, share), options.floor, options)?
        }
    })
}

fn truncation(lab: &Lab, depth: Depth) -> Truncation {
    let ceiling = ceiling(lab);
    let floor = match (depth, lab.options.floor) {
        (Depth::Floor(share), _) | (Depth::Own | Depth::Ceiling(_), Floor::Fraction(share)) => {
            share
        }
        (Depth::Own | Depth::Ceiling(_), Floor::Auto) => commit::AUTO_DEFAULT,
        (Depth::Own | Depth::Ceiling(_), Floor::Ceiling) => 1.0,
    };
    Truncation::new(u64::from(ceiling), u64::from(part(ceiling, floor)))
}

/// The one ceiling of a lab that writes views.
fn ceiling(lab: &Lab) -> u32 {
    lab.options.ceilings.first().copied().unwrap_or_default()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares are between 0 and 2, and ceilings far below 2^31"
)]
fn part(ceiling: u32, share: f64) -> u32 {
    (f64::from(ceiling) * share) as u32
}

/// What a player sent last, with the summary that its policy has a model write.
fn sent(lab: &Lab, player: &Player<'_>, history: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = player.sent.messages().map(<[u8]>::to_vec).collect();
    let contender = player.contender;
    let most = u64::from(summary(contender.policy, contender.ceiling));
    if most == 0 || player.passes.is_empty() {
        return messages;
    }
    let shown: HashSet<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let gone = history.iter().copied().filter(|one| !shown.contains(one));
    let same = |(own, other): &(&Vec<u8>, &&[u8])| own.as_slice() == **other;
    let kept = messages.iter().zip(history).take_while(same).count();
    let size = |text: &str| {
        let message = json!({"role": "user", "content": text}).to_string();
        tokens(lab, &[message.into_bytes()])
    };
    let summary = standin::summary(gone, most, &size);
    messages.insert(kept, summary);
    messages
}

fn tokens(lab: &Lab, messages: &[Vec<u8>]) -> u64 {
    let reader = drive::reader(lab);
    let shapes = messages.iter().filter_map(|one| reader.shape(one).ok());
    shapes.map(|shape| u64::from(shape.tokens())).sum()
}

/// One line of the file.
struct Line {
    block: usize,
    at: usize,
    name: &'static str,
    tokens: u64,
    text: String,
}

fn lines(lab: &Lab, session: &Drawn, seats: &[Seat]) -> Result<Vec<Line>, ReplayError> {
    let needs = Needs::of(&session.trace);
    let mut lines = Vec::new();
    let mut turn: Option<(usize, Turn)> = None;
    let raw = &session.trace.messages;
    play(lab, session, seats, &mut |shown| {
        let Some(seat) = seats.get(shown.seat) else {
            return;
        };
        let before = raw.get(..shown.at).unwrap_or_default();
        let Some(answer) = raw.get(shown.at) else {
            return;
        };
        let known = turn.take().filter(|(at, _)| *at == shown.at);
        let (_, own) = known.unwrap_or_else(|| {
            let history: Vec<&[u8]> = before.iter().map(|one| one.raw.as_ref()).collect();
            (shown.at, Turn::of(&history, &answer.raw))
        });
        let size = tokens(lab, &shown.messages);
        let sizes = session.sizes.get(..shown.at).unwrap_or_default();
        let text = json!({
            "session": session.trace.name,
            "turn": shown.at,
            "block": shown.block,
            "policy": seat.name(),
            "annotate": lab.options.annotate.name(),
            "ceiling": ceiling(lab),
            "setting": seat.setting(lab),
            "tokens": size,
            "history": sizes.iter().map(|one| one.tokens).sum::<u64>(),
            "measures": measures(&needs, shown.at, &own, &shown.messages),
            "strings": own.strings.told(&shown.messages),
            "messages": shown.messages.iter().filter_map(|one| value(one)).collect::<Vec<_>>(),
            "answer": value(&answer.raw),
        });
        lines.push(Line {
            block: shown.block,
            at: shown.at,
            name: seat.name(),
            tokens: size,
            text: text.to_string(),
        });
        turn = Some((shown.at, own));
    })?;
    Ok(lines)
}

fn value(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}

/// What an answer needs, however the view came about.
struct Turn {
    needed: Needed,
    strings: Strings,
}

impl Turn {
    fn of(history: &[&[u8]], answer: &[u8]) -> Self {
        let texts = Texts::of(history.iter().copied());
        Self {
            needed: Needed::of(answer, &texts),
            strings: Strings::of(history, answer),
        }
    }
}

/// Each measure's part and whole.
fn measures(needs: &Needs, at: usize, turn: &Turn, messages: &[Vec<u8>]) -> Value {
    let (mut strings, mut lines) = (HashSet::new(), HashSet::new());
    for held in messages.iter().filter_map(|one| needs.held(one)) {
        strings.extend(held.strings());
        lines.extend(held.lines);
    }
    let mut found = Map::new();
    let share = |needed: &[u32], held: &HashSet<u32>| {
        let part = needed.iter().filter(|one| held.contains(one)).count();
        json!([part, needed.len()])
    };
    if let Some(ask) = needs.asks.get(at) {
        found.insert("K".to_owned(), share(&ask.strings, &strings));
        found.insert("L".to_owned(), share(&ask.lines, &lines));
    }
    let texts = Texts::of(messages.iter().map(Vec::as_slice));
    for (name, one) in turn.needed.in_view(&texts) {
        found.insert(name, json!([one.part, one.whole]));
    }
    Value::Object(found)
}

/// The distinctive strings of an answer that had been said before, and the lines of its history.
struct Strings {
    said: Vec<String>,
    lines: HashSet<u64>,
}

impl Strings {
    fn of(history: &[&[u8]], answer: &[u8]) -> Self {
        let (mut known, mut lines) = (HashSet::new(), HashSet::new());
        for bytes in history {
            anchors::texts(bytes, &mut |_: Part, text: &str| {
                known.extend(strings(text).map(|(_, string)| string.to_owned()));
                lines.extend(text.lines().map(line));
            });
        }
        let mut said = HashSet::new();
        anchors::texts(answer, &mut |part: Part, text: &str| {
            if part != Part::Reasoning {
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
            anchors::texts(bytes, &mut |_: Part, text: &str| {
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
