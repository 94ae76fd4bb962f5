//! Content that may be shown: the newest request of a live session, or what is stored. Owns the rule. Never writes
//! content anywhere, and never shows what a rule withholds.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::session::index::ItemIndex;
use plimsoll_core::session::path::Path;
use plimsoll_core::turn::Overrides;
use plimsoll_core::turn::state::{HopContext, Look, TurnState};
use plimsoll_model::{ItemKind, ItemNo, Marks, Role, TenantId};
use plimsoll_proxy::history::{self, Reads};
use plimsoll_proxy::pipeline::{App, ShownContent};
use plimsoll_wire::Dialect;
use serde_json::{Value, json};

use super::error::ConsoleError;
use super::known::Known;

/// The longest label, in characters.
const LABEL_CHARS: usize = 120;

/// Where texts of a session come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSource {
    /// From memory.
    Live,
    /// From the store.
    Stored,
    /// The rule does not allow them.
    Withheld,
    /// They are neither in memory nor stored.
    Nowhere,
}

impl TextSource {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stored => "stored",
            Self::Withheld => "withheld",
            Self::Nowhere => "none",
        }
    }

    /// The source of a session's texts.
    #[must_use]
    pub fn of(app: &App, known: &Known) -> Self {
        let live = || {
            let body = app.bodies.get(&known.identity());
            body.is_some_and(|body| body.record == known.row.record)
        };
        match app.serving.shown {
            ShownContent::Off => Self::Withheld,
            ShownContent::Live if live() => Self::Live,
            ShownContent::Live | ShownContent::Stored if known.row.content => Self::Stored,
            ShownContent::Live | ShownContent::Stored => Self::Nowhere,
        }
    }

    /// Whether there are texts.
    #[must_use]
    pub const fn has_texts(self) -> bool {
        matches!(self, Self::Live | Self::Stored)
    }
}

/// A request that can be looked at, with the path behind it.
struct Readable {
    body: Bytes,
    dialect: Dialect,
    path: Arc<Path>,
}

/// Looks at a session's texts under the marks that it had at a turn. None if there are no texts.
pub fn look<T>(
    app: &App,
    known: &Known,
    turn: Option<u32>,
    look: impl FnOnce(&Look<'_>) -> T,
) -> Result<Option<T>, ConsoleError> {
    with_turn(app, known, |mut state, tools| {
        state.marks = Arc::new(marks_at(&known.path, turn));
        state.look_at(tools, look)
    })
}

/// Looks at a session's texts under the marks that it had at each of some turns, which ascend. Nobody is
/// called if there are no texts.
pub fn look_at_turns(
    app: &App,
    known: &Known,
    turns: &[u32],
    mut each: impl FnMut(u32, &Look<'_>),
) -> Result<(), ConsoleError> {
    with_turn(app, known, |state, tools| {
        let (mut marks, mut entries) = (Marks::default(), known.path.entries.iter().peekable());
        let markings = turns.iter().map(|turn| {
            while let Some(entry) = entries.next_if(|entry| entry.record.turn <= *turn) {
                for hop in &entry.record.hops {
                    marks.apply(&hop.marks, &hop.kept);
                }
            }
            Arc::new(marks.clone())
        });
        let mut turns = turns.iter();
        state.look_under(tools, markings, &mut |look| {
            turns.next().into_iter().for_each(|turn| each(*turn, look));
        });
    })?;
    Ok(())
}

/// Makes a turn of a session's texts. None if there are no texts.
fn with_turn<T>(
    app: &App,
    known: &Known,
    then: impl FnOnce(TurnState, &HopContext<'_>) -> T,
) -> Result<Option<T>, ConsoleError> {
    let readable = match TextSource::of(app, known) {
        TextSource::Withheld | TextSource::Nowhere => None,
        TextSource::Live => live(app, known),
        TextSource::Stored => stored(app, known)?,
    };
    let Some(readable) = readable else {
        return Ok(None);
    };
    let Ok(request) = readable.dialect.decode(readable.body) else {
        return Ok(None);
    };
    let (model, profile) = (known.row.model.clone(), known.row.profile.as_deref());
    let family = app.models.family(&model);
    let tenant = TenantId(known.row.tenant);
    let tools = app.tools(family, tenant, readable.dialect, profile);
    let terms = app
        .settings
        .terms(profile, &Overrides::default(), None, &model);
    let Ok(terms) = terms else { return Ok(None) };
    let state = TurnState::again(request, readable.path, terms, &tools.reader);
    Ok(state.ok().map(|state| then(state, &tools)))
}

/// The marks that a session had at a turn, or has now.
fn marks_at(path: &Path, turn: Option<u32>) -> Marks {
    let Some(turn) = turn else {
        return path.marks.clone();
    };
    let mut marks = Marks::default();
    let before = path.entries.iter().map(|entry| &entry.record);
    for hop in before
        .filter(|record| record.turn <= turn)
        .flat_map(|record| &record.hops)
    {
        marks.apply(&hop.marks, &hop.kept);
    }
    marks
}

/// The newest request, and the path before its turn.
fn live(app: &App, known: &Known) -> Option<Readable> {
    let live = app.bodies.get(&known.identity())?;
    let mut path = Path::clone(&known.path);
    path.entries.pop();
    Some(Readable {
        body: live.body,
        dialect: live.dialect,
        path: Arc::new(path),
    })
}

/// The stored history as a request, and the path that ends with its last answer.
fn stored(app: &App, known: &Known) -> Result<Option<Readable>, ConsoleError> {
    let store = known.store(app);
    let unwatched = |_, _| {};
    let reads = Reads::new(store, &unwatched);
    let Some(said) = history::conversation(&reads, &known.path)? else {
        return Ok(None);
    };
    let Some(units) = said.read(&reads, |_| true)? else {
        return Ok(None);
    };
    let tools = said.read_tools(&reads)?;
    let dialect = known.dialect();
    Ok(Some(Readable {
        body: dialect.whole_request(&known.row.model, &units, tools.as_ref()),
        dialect,
        path: Arc::clone(&known.path),
    }))
}

/// The title of a session.
#[must_use]
pub fn title(look: &Look<'_>) -> Option<String> {
    let items = &look.transcript().items;
    let said = items.indexed().filter(|(_, item)| {
        let entry = look.transcript().entries.get(item.entry);
        item.kind == ItemKind::User && entry.is_some_and(|entry| entry.role == Role::User)
    });
    super::title::title(said.filter_map(|(at, _)| look.original(at)))
}

/// Where items stand in a transcript, by number.
#[must_use]
pub fn place(look: &Look<'_>, no: ItemNo) -> Option<ItemIndex> {
    let mut items = look.transcript().items.indexed();
    let found = items.find(|(_, item)| item.no == no && item.kind != ItemKind::Result);
    found.map(|(at, _)| at)
}

/// One line of an item: a call's name and arguments, or the beginning of its text.
#[must_use]
pub fn label(look: &Look<'_>, at: ItemIndex) -> Option<String> {
    let text = look
        .call(at)
        .map(|call| telling(&call))
        .or_else(|| look.original(at))?;
    Some(line(&text, LABEL_CHARS)).filter(|label| !label.is_empty())
}

/// One line of each item but results, each line once.
#[must_use]
pub fn labels(look: &Look<'_>) -> String {
    let items = look.transcript().items.indexed();
    let items = items.filter(|(_, item)| item.kind != ItemKind::Result);
    let (mut seen, mut lines) = (HashSet::new(), String::new());
    for line in items.filter_map(|(at, _)| label(look, at)) {
        if !seen.contains(&line) {
            lines.push_str(&line);
            lines.push('\n');
            seen.insert(line);
        }
    }
    lines
}

/// What tells most of a call: the values of its arguments that are short texts.
fn telling(call: &str) -> String {
    let Some((_, arguments)) = call.split_once(' ') else {
        return call.to_owned();
    };
    let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
        return arguments.to_owned();
    };
    let texts = fields.values().filter_map(Value::as_str);
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    if texts.is_empty() {
        arguments.to_owned()
    } else {
        texts.join(" ")
    }
}

/// The beginning of a text on one line.
#[must_use]
pub fn line(text: &str, chars: usize) -> String {
    let words = text.split_whitespace();
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() >= chars {
            break;
        }
    }
    line.chars().take(chars).collect()
}

/// Why a session's texts are not there.
#[must_use]
pub fn absent(source: TextSource) -> ConsoleError {
    match source {
        TextSource::Withheld => {
            let message = "content is withheld: console.content does not allow it";
            ConsoleError::new(409, "content_withheld", message)
        }
        TextSource::Live | TextSource::Stored | TextSource::Nowhere => {
            let message = "this session's texts are neither in memory nor stored: set store.content to \"all\" \
                           before a session that is to be used again";
            ConsoleError::new(409, "content_gone", message)
        }
    }
}

/// What the client changed lately of what its provider had cached, the newest last.
///
/// # Errors
/// If texts may not be shown. None is no error: what was changed is known as long as it is in memory.
pub fn changes(app: &App, known: &Known) -> Result<Value, ConsoleError> {
    if app.serving.shown == ShownContent::Off {
        return Err(absent(TextSource::Withheld));
    }
    let live = app.bodies.get(&known.identity());
    let changes = live.iter().flat_map(|live| live.changes.iter());
    let shown = changes.map(|change| {
        json!({
            "turn": change.turn,
            "cause": change.part.name(),
            "same": change.same,
            "before": change.before,
            "after": change.after,
            "behind": change.behind,
        })
    });
    let shown: Vec<Value> = shown.collect();
    Ok(json!({"changes": shown}))
}
