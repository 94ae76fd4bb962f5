//! What the lab says of a session: what was needed later, by its anchors, and what the session would have
//! come to under other lines. Owns what may be tried and how much. Never counts or plays by itself.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::build::{self, Taken, TakenPart};
use super::content::{self, TextSource};
use super::error::ConsoleError;
use super::known::Known;
use super::needed::{How, Need, NeededLater};
use super::story::Story;
use crate::commit::Floor;
use crate::model::{Effect, ItemNo, Mark, ToolClass};
use crate::pipeline::App;
use crate::policy::Ladder;
use crate::replay::anchors::Needs;
use crate::replay::trace::{self, Trace};
use crate::replay::{Lab, Options, Outcome, Pricing, TextPart};
use crate::tokens::Cost;
use crate::turn::MIN_CEILING;

/// The most combinations of one question.
const MOST_POINTS: usize = 64;
/// The most messages of a session whose needs are looked for.
const MOST_MESSAGES: usize = 20_000;

/// What to try.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatIfAsk {
    taus: Vec<u32>,
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
    let read = content::look(app, known, None, |look| build::all(look, story))?;
    let Some(parts) = read else { return Ok(None) };
    let meta = json!({"_meta": {"id": known.row.session, "model": known.row.model}});
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

/// The messages of a part, as [`build::chat`] writes them.
fn held(part: &TakenPart) -> Vec<(u32, Option<ItemNo>, Vec<ItemNo>)> {
    let one = || vec![(part.turn, part.text, Vec::new())];
    match &part.taken {
        Taken::System(_) | Taken::User(_) | Taken::Finding(..) => one(),
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
    let stubs = stubs(app, known)?;
    let needs = Needs::of(&played.trace);
    let mut found: HashMap<ItemNo, Need> = HashMap::new();
    let classes = &app.settings.settings(known.row.profile.as_deref()).classes;
    for (at, ask) in needs.asks.iter().enumerate() {
        let Some((turn, ..)) = played.messages.get(at) else {
            continue;
        };
        let turn = *turn;
        let gone = |no: ItemNo| {
            let item = story.numbered(no)?;
            (item.turn < turn && item.mark_at(turn) != Mark::Live).then_some(item)
        };
        for again in &ask.again {
            let item = played
                .messages
                .get(*again)
                .and_then(|(_, no, _)| gone((*no)?));
            if let Some(item) = item {
                let class = item.tool.as_deref().map(|tool| classes.of(tool));
                let how = if class == Some(ToolClass::Read) {
                    How::ReadAgain
                } else {
                    How::AskedAgain
                };
                note(
                    &mut found,
                    item.no,
                    Need {
                        how,
                        turn,
                        word: None,
                    },
                );
            }
        }
        for string in &ask.strings {
            let word = needs.string(*string);
            let holders = needs.holders(*string, at);
            let holders: Vec<ItemNo> = holders
                .filter_map(|(message, part)| {
                    let (_, text, calls) = played.messages.get(message)?;
                    match part {
                        TextPart::Text | TextPart::Reasoning => *text,
                        TextPart::Call(place) => calls.get(place).copied(),
                    }
                })
                .collect();
            let shown = |no: &ItemNo| {
                let whole = gone(*no).is_none();
                whole || stubs.get(no).is_some_and(|stub| stub.contains(word))
            };
            let how = if holders.iter().any(shown) {
                How::Held
            } else {
                How::Missed
            };
            for item in holders.iter().filter_map(|no| gone(*no)) {
                let word = Some(word.to_owned());
                note(&mut found, item.no, Need { how, turn, word });
            }
        }
    }
    recalled(known, &mut found);
    Ok(Some(NeededLater(found)))
}

/// Notes a need. What was worst counts, and of equals the first.
fn note(found: &mut HashMap<ItemNo, Need>, no: ItemNo, need: Need) {
    let before = found.get(&no);
    if before.is_none_or(|before| before.how < need.how) {
        found.insert(no, need);
    }
}

/// What stands now in the place of items.
fn stubs(app: &App, known: &Known) -> Result<HashMap<ItemNo, String>, ConsoleError> {
    let read = content::look(app, known, None, |look| {
        let items = look.transcript().items.indexed();
        let stubs = items.filter_map(|(at, item)| Some((item.no, look.shown(at)?)));
        stubs.collect()
    })?;
    Ok(read.unwrap_or_default())
}

/// Notes what the model recalled.
fn recalled(known: &Known, found: &mut HashMap<ItemNo, Need>) {
    for entry in &known.path.entries {
        let turn = entry.record.turn;
        let calls = entry.record.hops.iter().flat_map(|hop| &hop.calls);
        for call in calls {
            if let Effect::Recalled { originals, .. } = &call.effect {
                for original in originals {
                    let need = Need {
                        how: How::Recalled,
                        turn,
                        word: None,
                    };
                    note(found, original.item, need);
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
    content::log_look(known, "its texts, to be played under other lines");
    let settings = app
        .settings
        .settings(ask.profile.as_deref().or(known.row.profile.as_deref()));
    let model = &known.row.model;
    let pricing = Pricing::named(model).unwrap_or_default();
    let usd = Cost::usd(1.0, &app.models.family(model).prices);
    let of = tried.len();
    for (at, (tau, floor, name, ladder)) in tried.into_iter().enumerate() {
        let options = Options {
            policies: vec![ladder],
            ceilings: vec![tau],
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
            .map(crate::replay::Played::outcome)
            .next();
        let outcome = outcome.unwrap_or_default();
        let point = point((tau, &floor.0, &name), &outcome, usd);
        let command = command(known, ask);
        let progress = json!({"played": at + 1, "of": of, "command": command, "done": at + 1 == of, "error": null});
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
            let depth = match floor.as_str() {
                "auto" => Floor::Auto,
                "ceiling" => Floor::Ceiling,
                share => {
                    let share = share
                        .parse::<f64>()
                        .ok()
                        .filter(|share| *share > 0.0 && *share <= 1.0);
                    let message = || {
                        format!("a floor is auto, ceiling, or a share up to 1, and not `{floor}`")
                    };
                    Floor::Fraction(share.ok_or_else(|| refuse(message()))?)
                }
            };
            for tau in &ask.taus {
                if *tau < MIN_CEILING {
                    return Err(refuse(format!(
                        "a ceiling is at least {MIN_CEILING} tokens"
                    )));
                }
                tried.push((*tau, (floor.clone(), depth), policy.clone(), ladder.clone()));
            }
        }
    }
    if tried.is_empty() || tried.len() > MOST_POINTS {
        return Err(refuse(format!("ask for 1 to {MOST_POINTS} combinations")));
    }
    Ok(tried)
}

/// The figures of one combination.
fn point((tau, floor, policy): (u32, &str, &str), outcome: &Outcome, usd: Option<f64>) -> Value {
    json!({
        "tau": tau,
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

/// The same at a prompt.
fn command(known: &Known, ask: &WhatIfAsk) -> String {
    let taus: Vec<String> = ask.taus.iter().map(u32::to_string).collect();
    let session = &known.row.session;
    let floors = ask.floors.join(",");
    let ceilings = taus.join(",");
    format!(
        "plimsoll export {session} > {session}.jsonl && plimsoll tune {session}.jsonl --ceilings {ceilings} --floors {floors}"
    )
}
