//! A session's items, one of them at a turn, and what a pass did to them. Owns their fields. Texts come
//! from `content`, and only where they may be shown.

use std::collections::HashMap;

use plimsoll_model::{Held, ItemNo, Mark, PassFacts};
use plimsoll_proxy::pipeline::App;
use serde_json::{Value, json};

use super::content::{self, TextSource};
use super::error::ConsoleError;
use super::known::Known;
use super::needed::{Need, NeededLater};
use super::session;
use super::story::{Story, StoryItem, StoryRole, mark_name};

/// The number of items of a page if nothing is asked, and at most.
pub const ITEMS: usize = 1000;
/// The most items of a page.
pub const MOST_ITEMS: usize = 5000;

/// What is shown of items beside what records tell.
#[derive(Debug, Default)]
pub struct ItemTexts {
    /// One line of each, by number.
    pub labels: HashMap<ItemNo, String>,
    /// What stands in the place of each.
    pub stubs: HashMap<ItemNo, String>,
}

impl ItemTexts {
    /// The labels of these items, and what stood in their places at a turn.
    pub fn of(
        app: &App,
        known: &Known,
        turn: Option<u32>,
        numbers: &[ItemNo],
        stubs: bool,
    ) -> Result<Self, ConsoleError> {
        let read = content::look(app, known, turn, |look| {
            let mut texts = Self::default();
            let items = look.transcript().items.indexed();
            let wanted: std::collections::HashSet<ItemNo> = numbers.iter().copied().collect();
            let items = items.filter(|(_, item)| {
                item.kind != plimsoll_model::ItemKind::Result && wanted.contains(&item.no)
            });
            for (at, item) in items {
                if let Some(label) = content::label(look, at) {
                    texts.labels.insert(item.no, label);
                }
                if let Some(stub) = look.shown(at).filter(|_| stubs) {
                    texts.stubs.insert(item.no, stub);
                }
            }
            texts
        })?;
        Ok(read.unwrap_or_default())
    }
}

/// An item as JSON.
#[must_use]
pub fn item(
    known: &Known,
    one: &StoryItem,
    needed: Option<&Need>,
    label: Option<&String>,
    shows: bool,
) -> Value {
    let marks = one.marks.iter();
    let marks: Vec<Value> = marks
        .map(|(turn, mark)| json!([turn, mark_name(*mark)]))
        .collect();
    json!({
        "no": one.no.0,
        "id": one.id,
        "role": one.role.name(),
        "tool": one.tool,
        "turn": one.turn,
        "episode": one.episode,
        "tokens": one.tokens,
        "marks": marks,
        "sizes": one.sizes,
        "needed": needed.map(|need| need.shown(shows)),
        "pinned": known.path.pins.items().contains(&one.no),
        "client": one.role != StoryRole::Hidden,
        "label": label,
    })
}

/// A page of items.
pub fn page(
    app: &App,
    known: &Known,
    story: &Story,
    needed: Option<&NeededLater>,
    (turn, from, limit): (Option<u32>, usize, usize),
) -> Result<Value, ConsoleError> {
    let up_to = turn.unwrap_or(u32::MAX);
    let all: Vec<&StoryItem> = story
        .items
        .iter()
        .filter(|item| item.turn <= up_to)
        .collect();
    let page = all.get(from..).unwrap_or_default();
    let page = page.get(..limit.min(page.len())).unwrap_or_default();
    let source = TextSource::of(app, known);
    let numbers: Vec<ItemNo> = page.iter().map(|item| item.no).collect();
    let texts = ItemTexts::of(app, known, turn, &numbers, false)?;
    let shown = page.iter().map(|one| {
        let need = needed.and_then(|needed| needed.of(one.no));
        item(
            known,
            one,
            need,
            texts.labels.get(&one.no),
            source.has_texts(),
        )
    });
    let shown: Vec<Value> = shown.collect();
    let end = from + shown.len();
    Ok(json!({
        "items": shown,
        "next": (end < all.len()).then(|| end.to_string()),
        "total": all.len(),
        "content": source.name(),
        "needed": needed.is_some(),
    }))
}

/// An item at a turn, with its texts where they may be shown.
pub fn detail(
    app: &App,
    known: &Known,
    story: &Story,
    needed: Option<&NeededLater>,
    (name, turn): (&str, Option<u32>),
) -> Result<Value, ConsoleError> {
    let newest = known.row.turn;
    let turn = turn.unwrap_or(newest);
    if turn > newest {
        let message = format!("the session has {newest} turns");
        return Err(ConsoleError::new(404, "unknown_turn", message));
    }
    let Some(one) = story.find(name) else {
        let message = format!("no item of this session is named {name}");
        return Err(ConsoleError::new(404, "unknown_item", message));
    };
    let source = TextSource::of(app, known);
    let read = content::look(app, known, Some(turn), |look| {
        let at = content::place(look, one.no)?;
        let texts = (look.original(at), look.call(at), look.shown(at));
        Some((texts, content::label(look, at)))
    })?
    .flatten();
    let ((original, call, stub), label) = read.unwrap_or_default();
    let arguments = call.and_then(|call| call.split_once(' ').map(|(_, rest)| rest.to_owned()));
    let mark = one.mark_at(turn);
    let moved = one.marks.iter().rev().find(|(at, _)| *at <= turn);
    let passed = moved.and_then(|(at, _)| {
        let passes = session::passes(&known.path);
        let mut of_turn = passes.filter(|place| place.entry.record.turn == *at);
        of_turn.next().map(|place| (*at, &*place.facts.trigger))
    });
    let (why, reason) = why(one, turn, mark, passed.map(|(_, trigger)| trigger));
    let need = needed.and_then(|needed| needed.of(one.no));
    Ok(json!({
        "item": item(known, one, need, label.as_ref(), source.has_texts()),
        "turn": turn,
        "mark": mark_name(mark),
        "original": original,
        "arguments": arguments,
        "shown": stub,
        "why": why,
        "reason": reason,
        "pass": passed.map(|(at, _)| at),
        "content": source.name(),
    }))
}

/// Why an item differs between what the client sent and what the model was sent. `passed` has the trigger of
/// the pass that moved it, if one did.
fn why(one: &StoryItem, turn: u32, mark: Mark, trigger: Option<&str>) -> (&'static str, String) {
    if one.turn > turn {
        return ("later", format!("it came in turn {}", one.turn));
    }
    if one.role == StoryRole::Hidden {
        let reason =
            "the model marked its work, or an original came back; the agent never sees these calls";
        return ("hidden", reason.to_owned());
    }
    let moved = one.marks.iter().rev().find(|(at, _)| *at <= turn);
    match (mark, moved) {
        (Mark::Live, _) | (_, None) => ("same", "the same bytes on both sides".to_owned()),
        (mark, Some((at, _))) => {
            let left = left_of(mark);
            match trigger {
                Some("asked") => {
                    let reason = format!("an operator asked for the pass of turn {at}: {left}");
                    ("pass", reason)
                }
                Some(_) => {
                    let reason =
                        format!("the pass of turn {at} made room under the budget: {left}");
                    ("pass", reason)
                }
                None => {
                    let reason = format!("it was shortened as it came in turn {at}: {left}");
                    ("entry", reason)
                }
            }
        }
    }
}

fn left_of(mark: Mark) -> &'static str {
    match mark {
        Mark::Live => "all of it is left",
        Mark::Clipped => "some of its lines are left",
        Mark::Masked => "a line that names it is left",
        Mark::Tombstone => "a line stands for its episode",
        Mark::Trimmed => "a line is left of its result, and its arguments are cut",
        Mark::Removed => "nothing is left of it, and a line of its episode names it",
    }
}

/// A pass with what it moved and what it left.
pub fn pass(
    app: &App,
    known: &Known,
    story: &Story,
    needed: Option<&NeededLater>,
    turn: u32,
) -> Result<Value, ConsoleError> {
    let passes = session::passes(&known.path);
    let of_turn = passes.filter(|place| place.entry.record.turn == turn);
    let Some(place) = of_turn.last() else {
        let message = format!("no pass ran before turn {turn}");
        return Err(ConsoleError::new(404, "unknown_pass", message));
    };
    let numbers = place.moved();
    let texts = ItemTexts::of(app, known, Some(turn), &numbers, true)?;
    let shows = TextSource::of(app, known).has_texts();
    let moved = numbers.iter().filter_map(|no| story.numbered(*no));
    let moves: Vec<Value> = moved
        .map(|one| {
            let before = one.marks.iter().rev().find(|(of, _)| *of < turn);
            let size = one.sizes.iter().rev().find(|(of, _)| *of < turn);
            let size = size.map(|(_, size)| *size).or(one.tokens);
            let need = needed.and_then(|needed| needed.since(one.no, turn));
            json!({
                "no": one.no.0,
                "id": one.id,
                "episode": one.episode,
                "from": mark_name(before.map_or(Mark::Live, |(_, mark)| *mark)),
                "to": mark_name(one.mark_at(turn)),
                "before": size,
                "after": one.size_at(turn),
                "stub": texts.stubs.get(&one.no),
                "label": texts.labels.get(&one.no),
                "needed": need.map(|need| need.shown(shows)),
            })
        })
        .collect();
    let lost = needed.map(|needed| needed.lost_of(&numbers, turn));
    Ok(json!({
        "pass": session::pass(&place, lost),
        "moves": moves,
        "held": held(story, place.facts),
    }))
}

/// The episodes that a pass left, and why.
fn held(story: &Story, facts: &PassFacts) -> Vec<Value> {
    let held = facts.held.iter();
    held.map(|(name, tokens, why)| {
        let episode = story.episodes.iter().position(|one| one.name == *name);
        let why = match why {
            Held::Open => "open",
            Held::Needed => "needed",
            Held::Recent => "recent",
            Held::Kept => "kept",
            Held::Floor => "floor",
            Held::Protected => "protected",
        };
        json!({"episode": episode, "name": name, "tokens": tokens, "why": why})
    })
    .collect()
}
