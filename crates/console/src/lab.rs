//! What the lab says of a session: what was needed later, by its anchors, and what the session would have
//! come to under other lines. Owns what may be tried and how much. Never counts or plays by itself.

use std::collections::{HashMap, HashSet};

use plimsoll_core::commit::Floor;
use plimsoll_core::policy::Ladder;
use plimsoll_core::session::index::ItemIndex;
use plimsoll_core::turn::state::Look;
use plimsoll_core::turn::{Classes, MIN_CEILING, sizes};
use plimsoll_lab::anchors::{Ask, Needs};
use plimsoll_lab::trace::{self, Trace};
use plimsoll_lab::{Lab, Options, Outcome, Pricing, TextPart};
use plimsoll_model::{Effect, ItemNo, Mark, ToolClass};
use plimsoll_proxy::pipeline::App;
use plimsoll_tokens::Cost;
use plimsoll_wire::Dialect;
use serde::Deserialize;
use serde_json::{Value, json};

use super::build::{self, Taken, TakenPart};
use super::content::{self, TextSource};
use super::error::ConsoleError;
use super::known::Known;
use super::needed::{How, Need, NeededLater};
use super::story::{Story, StoryItem, StoryRole};

/// The most combinations of one question.
const MOST_POINTS: usize = 64;
/// The most messages of a session whose needs are looked for.
const MOST_MESSAGES: usize = 20_000;

/// What to try.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIfAsk {
    budgets: Vec<u32>,
    #[serde(default = "auto")]
    floors: Vec<String>,
    #[serde(default = "cwl")]
    policies: Vec<String>,
    #[serde(default)]
    profile: Option<String>,
}

fn auto() -> Vec<String> {
    vec!["auto".to_owned()]
}

fn cwl() -> Vec<String> {
    vec!["none".to_owned(), "cwl".to_owned()]
}

/// A session as the lab reads it, with the items that each of its messages holds.
struct Played {
    trace: Trace,
    /// For each message its turn, the item of its text, and those of its calls; a result has its call's.
    messages: Vec<(u32, Option<ItemNo>, Vec<ItemNo>)>,
}

/// Reads a session for the lab. None without its texts.
fn played(app: &App, known: &Known, story: &Story) -> Result<Option<Played>, ConsoleError> {
    let read = content::look(app, known, None, |look| {
        let tools = look
            .tools()
            .and_then(|(dialect, tools)| chat_tools(dialect, &tools));
        (build::all(look, story), tools)
    })?;
    let Some((parts, tools)) = read else {
        return Ok(None);
    };
    let (id, model) = (&known.row.session, &known.row.model);
    let meta = json!({"_meta": {"id": id, "model": model, "tools": tools}});
    let mut text = format!("{meta}\n");
    for message in build::chat(&parts) {
        text.push_str(&message.to_string());
        text.push('\n');
    }
    let messages = parts.iter().flat_map(held);
    let messages: Vec<_> = messages.collect();
    let trace = trace::parse(&known.row.session, &text);
    // A session without an answer has nothing to play.
    Ok(trace.ok().map(|trace| Played { trace, messages }))
}

/// A session's tools as Chat Completions has them, because the lab plays all sessions so. None if they can't
/// be read.
fn chat_tools(dialect: Dialect, tools: &str) -> Option<Value> {
    let Value::Array(tools) = serde_json::from_str(tools).ok()? else {
        return None;
    };
    let function = |mut tool: Value| {
        let Some(fields) = tool.as_object_mut() else {
            return tool;
        };
        if fields.contains_key("function") || !fields.contains_key("name") {
            return tool;
        }
        fields.remove("type");
        if let Some(schema) = fields.remove("input_schema") {
            fields.insert("parameters".to_owned(), schema);
        }
        json!({"type": "function", "function": tool})
    };
    Some(match dialect {
        Dialect::Chat => Value::Array(tools),
        Dialect::Responses | Dialect::Messages => tools.into_iter().map(function).collect(),
    })
}

/// The messages of a part, as [`build::chat`] writes them.
fn held(part: &TakenPart) -> Vec<(u32, Option<ItemNo>, Vec<ItemNo>)> {
    let one = || vec![(part.turn, part.text, Vec::new())];
    match &part.taken {
        Taken::System(_) | Taken::User(_) | Taken::Finding(..) | Taken::Other(_) => one(),
        Taken::Assistant(_, calls) => {
            let numbers = calls.iter().map(|call| call.no).collect();
            let said = std::iter::once((part.turn, part.text, numbers));
            let results = calls
                .iter()
                .map(|call| (part.turn, Some(call.no), Vec::new()));
            said.chain(results).collect()
        }
    }
}

/// What of a session was needed later. None without its texts.
pub fn needed(app: &App, known: &Known) -> Result<Option<NeededLater>, ConsoleError> {
    let story = Story::of(&known.path);
    let Some(played) = played(app, known, &story)? else {
        return Ok(None);
    };
    let whole = played.trace.messages.len() == played.messages.len();
    if !whole || played.messages.len() > MOST_MESSAGES {
        return Ok(None);
    }
    let needs = Needs::of(&played.trace);
    let mut judged = Judged {
        view: None,
        hidden: HashMap::new(),
        classes: &app.settings.settings(known.row.profile.as_deref()).classes,
        story: &story,
        played: &played,
        needs: &needs,
        found: NeededLater::default(),
    };
    judged.all(app, known)?;
    let mut found = judged.found;
    recalled(known, &story, &mut found);
    Ok(Some(found))
}

/// What stood in a view in place of what was gone.
#[derive(Default)]
struct LeftView {
    /// Calls whose results are not shown as they came, and texts that are not.
    texts: HashSet<ItemNo>,
    /// Calls whose arguments are not shown as they came.
    arguments: HashSet<ItemNo>,
    /// Calls whose results are pointers to the same text.
    pointing: HashSet<ItemNo>,
    /// Needed strings of the texts of the proxy's own, by number.
    strings: HashSet<u32>,
}

impl LeftView {
    fn of(look: &Look<'_>, needs: &Needs) -> Self {
        let (view, items) = (look.view(), &look.transcript().items);
        let mut left = Self::default();
        let number = |at: ItemIndex| items.get(at).map(|item| item.no);
        for (at, note) in &view.notes().results {
            left.texts.extend(number(*at));
            left.strings
                .extend(needs.strings_of(TextPart::Text, note.text()));
        }
        for (at, note) in &view.notes().arguments {
            left.arguments.extend(number(*at));
            left.strings
                .extend(needs.strings_of(TextPart::Call(0), note.text()));
        }
        for (no, mark) in view.marks().iter() {
            if mark == Mark::Removed {
                left.texts.insert(no);
                left.arguments.insert(no);
            }
        }
        let pointers = view.marked().pointers().into_values().flatten();
        left.pointing = pointers.filter_map(number).collect();
        left
    }
}

/// The places of hidden calls that have a needed string.
fn hidden(look: &Look<'_>, story: &Story, needs: &Needs) -> HashMap<u32, Vec<(u32, ItemNo, bool)>> {
    let mut found: HashMap<u32, Vec<(u32, ItemNo, bool)>> = HashMap::new();
    for (at, item) in look.transcript().items.indexed() {
        let told = story.numbered(item.no);
        let Some(told) = told.filter(|told| told.role == StoryRole::Hidden) else {
            continue;
        };
        let call = look.call(at);
        let arguments = call.as_deref().and_then(|call| call.split_once(' '));
        let arguments = arguments.map(|(_, text)| (TextPart::Call(0), text));
        let result = look.original(at);
        let result = result.as_deref().map(|text| (TextPart::Text, text));
        for (part, text) in arguments.into_iter().chain(result) {
            for string in needs.strings_of(part, text) {
                let place = (told.turn, told.no, part != TextPart::Text);
                found.entry(string).or_default().push(place);
            }
        }
    }
    found
}

/// A session whose needs are judged, answer by answer.
struct Judged<'a> {
    /// The view of the answers that are being judged. None before anything was gone.
    view: Option<LeftView>,
    /// Where hidden calls have each needed string: the turn, the call, and whether in its arguments.
    hidden: HashMap<u32, Vec<(u32, ItemNo, bool)>>,
    classes: &'a Classes,
    story: &'a Story,
    played: &'a Played,
    needs: &'a Needs,
    found: NeededLater,
}

impl<'a> Judged<'a> {
    /// Judges every answer under the view that it was given. Looks at no view in which nothing is gone that an
    /// answer asks for: of a long session all views take long.
    fn all(&mut self, app: &App, known: &Known) -> Result<(), ConsoleError> {
        let needs = self.needs;
        let turns = self.played.messages.iter().map(|(turn, ..)| *turn);
        let asks = needs.asks.iter().enumerate().zip(turns);
        let asks = asks.filter(|((at, ask), turn)| self.concerns(*at, *turn, ask));
        let mut asks: Vec<(u32, usize, &Ask)> =
            asks.map(|((at, ask), turn)| (turn, at, ask)).collect();
        asks.sort_unstable_by_key(|(turn, at, _)| (*turn, *at));
        let entries = known.path.entries.iter();
        let moved =
            entries.filter(|entry| entry.record.hops.iter().any(|hop| !hop.marks.is_empty()));
        let moved: Vec<u32> = moved.map(|entry| entry.record.turn).collect();
        let newest = |turn: u32| {
            let before = moved.partition_point(|moved| *moved <= turn);
            moved.get(before.checked_sub(1)?).copied()
        };
        // The newest view at each answer's turn, and the answers that were given it.
        let views = asks.chunk_by(|(one, ..), (other, ..)| newest(*one) == newest(*other));
        let views = views.filter_map(|asks| Some((newest(asks.first()?.0)?, asks)));
        let (turns, views): (Vec<u32>, Vec<_>) = views.unzip();
        let mut asks = views.into_iter();
        content::look_at_turns(app, known, &turns, |_, look| {
            if self.view.is_none() {
                self.hidden = hidden(look, self.story, needs);
            }
            self.view = Some(LeftView::of(look, needs));
            for (turn, at, ask) in asks.next().into_iter().flatten() {
                self.ask(*at, *turn, ask);
            }
        })
    }

    /// Whether something was gone that an answer asks for.
    fn concerns(&self, at: usize, turn: u32, ask: &Ask) -> bool {
        let is_gone = |(message, part)| {
            let item = self.item(message, part);
            item.is_some_and(|no| self.gone(no, turn).is_some())
        };
        let mut again = ask.again.iter().map(|message| (*message, TextPart::Text));
        let mut said = ask
            .strings
            .iter()
            .flat_map(|string| self.needs.holders(*string, at));
        again.any(is_gone) || said.any(is_gone)
    }

    /// Notes what an answer needed of what was gone.
    fn ask(&mut self, at: usize, turn: u32, ask: &Ask) {
        for again in &ask.again {
            let item = self.item(*again, TextPart::Text);
            let item = item.and_then(|no| self.gone(no, turn));
            let points = |no: ItemNo| {
                let view = self.view.as_ref();
                view.is_some_and(|view| view.pointing.contains(&no))
            };
            if let Some(item) = item.filter(|item| !points(item.no)) {
                let class = item.tool.as_deref().map(|tool| self.classes.of(tool));
                let how = if class == Some(ToolClass::Read) {
                    How::ReadAgain
                } else {
                    How::AskedAgain
                };
                let word = None;
                self.found.note(item, Need { how, turn, word });
            }
        }
        let needs = self.needs;
        for string in &ask.strings {
            let how = if self.holds(*string, at, turn) {
                How::Held
            } else {
                How::Missed
            };
            for (message, part) in needs.holders(*string, at) {
                let item = self.item(message, part);
                if let Some(item) = item.and_then(|no| self.gone(no, turn)) {
                    let word = Some(needs.string(*string).to_owned());
                    self.found.note(item, Need { how, turn, word });
                }
            }
        }
    }

    /// The item at a part of a message.
    fn item(&self, message: usize, part: TextPart) -> Option<ItemNo> {
        let (_, text, calls) = self.played.messages.get(message)?;
        match part {
            TextPart::Text | TextPart::Reasoning => *text,
            TextPart::Call(place) => calls.get(place).copied(),
        }
    }

    /// An item that a turn's view did not show as it came.
    fn gone(&self, no: ItemNo, turn: u32) -> Option<&'a StoryItem> {
        let item = self.story.numbered(no)?;
        (item.turn < turn && item.mark_at(turn) != Mark::Live).then_some(item)
    }

    /// Whether a turn's view had a string of what was said before a message, in whatever place.
    fn holds(&self, string: u32, at: usize, turn: u32) -> bool {
        let Some(view) = &self.view else {
            return true;
        };
        let shows = |no: ItemNo, arguments: bool| {
            let left = if arguments {
                &view.arguments
            } else {
                &view.texts
            };
            !left.contains(&no)
        };
        let shown = |(message, part): (usize, TextPart)| {
            let no = self.item(message, part);
            no.is_none_or(|no| shows(no, matches!(part, TextPart::Call(_))))
        };
        let hidden = self.hidden.get(&string);
        let mut hidden = hidden.into_iter().flatten();
        view.strings.contains(&string)
            || hidden.any(|(said, no, arguments)| *said < turn && shows(*no, *arguments))
            || self.needs.holders(string, at).any(shown)
    }
}

/// Notes what the model recalled.
fn recalled(known: &Known, story: &Story, found: &mut NeededLater) {
    for entry in &known.path.entries {
        let turn = entry.record.turn;
        let calls = entry.record.hops.iter().flat_map(|hop| &hop.calls);
        for call in calls {
            if let Effect::Recalled { originals, .. } = &call.effect {
                let items = originals.iter();
                for item in items.filter_map(|original| story.numbered(original.item)) {
                    let need = Need {
                        how: How::Recalled,
                        turn,
                        word: None,
                    };
                    found.note(item, need);
                }
            }
        }
    }
}

/// Plays a session under each combination of what is asked, and hands on a line for each.
pub fn what_if(
    app: &App,
    known: &Known,
    ask: &WhatIfAsk,
    each: &mut dyn FnMut(&Value) -> bool,
) -> Result<(), ConsoleError> {
    let tried = combinations(ask)?;
    let story = Story::of(&known.path);
    let Some(played) = played(app, known, &story)? else {
        return Err(content::absent(TextSource::of(app, known)));
    };
    let settings = app
        .settings
        .settings(ask.profile.as_deref().or(known.row.profile.as_deref()));
    let model = &known.row.model;
    let pricing = Pricing::named(model).unwrap_or_default();
    let usd = Cost::usd(1.0, &app.models.family(model).prices);
    let of = tried.len();
    for (at, (budget, floor, name, ladder)) in tried.into_iter().enumerate() {
        let options = Options {
            policies: vec![ladder],
            ceilings: vec![budget],
            floor: floor.1,
            admit: settings.budget.admit.clone(),
            keep: settings.budget.keep.clone(),
            rungs: settings.budget.rungs.clone(),
            pricing: pricing.clone(),
            threads: 1,
            ..Options::default()
        };
        let session = Lab::new(options).and_then(|lab| lab.session(&played.trace));
        let session =
            session.map_err(|error| ConsoleError::new(409, "unplayable", error.to_string()))?;
        let outcome = session
            .policies
            .iter()
            .map(plimsoll_lab::Played::outcome)
            .next();
        let outcome = outcome.unwrap_or_default();
        let point = point((budget, &floor.0, &name), &outcome, usd);
        let progress = json!({"played": at + 1, "of": of, "done": at + 1 == of, "error": null});
        if !each(&point) || !each(&progress) {
            return Ok(());
        }
    }
    Ok(())
}

type Tried = (u32, (String, Floor), String, Ladder);

/// What is tried, each once.
fn combinations(ask: &WhatIfAsk) -> Result<Vec<Tried>, ConsoleError> {
    let refuse = |message: String| ConsoleError::new(400, "bad_body", message);
    let mut tried: Vec<Tried> = Vec::new();
    for policy in &ask.policies {
        let ladder: Ladder = policy
            .parse()
            .map_err(|error| refuse(format!("`{policy}`: {error}")))?;
        for floor in &ask.floors {
            let depth = sizes::floor(floor)
                .map_err(|error| refuse(format!("a floor {error}, and not `{floor}`")))?;
            for budget in &ask.budgets {
                sizes::not_below(*budget, MIN_CEILING)
                    .map_err(|error| refuse(format!("a budget {error}, and not {budget}")))?;
                tried.push((
                    *budget,
                    (floor.clone(), depth),
                    policy.clone(),
                    ladder.clone(),
                ));
            }
        }
    }
    if tried.is_empty() || tried.len() > MOST_POINTS {
        return Err(refuse(format!("ask for 1 to {MOST_POINTS} combinations")));
    }
    Ok(tried)
}

/// The figures of one combination.
fn point((budget, floor, policy): (u32, &str, &str), outcome: &Outcome, usd: Option<f64>) -> Value {
    json!({
        "budget": budget,
        "floor": floor,
        "policy": policy,
        "usd": usd.map(|usd| usd * outcome.cost),
        "units": outcome.cost,
        "peak": outcome.peak,
        "passes": outcome.passes,
        "cached": outcome.cached_share(),
        "requests": outcome.requests + outcome.extra,
        "extra": outcome.extra,
        "over": outcome.over,
        "visible": outcome.visible.kept(),
        "recoverable": outcome.recoverable.kept(),
        "again": outcome.refetches,
    })
}
