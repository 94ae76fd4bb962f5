//! The story of one item: when and why it went, what was left of it, and whether it was needed
//! later. Owns the words; the facts are a player's.

use std::fmt::Write as _;

use plimsoll_core::session::tombstone;
use plimsoll_core::session::transcript::Item;
use plimsoll_model::{ItemKind, ItemNo};

use super::drive::{self, PlayedSession};
use super::later::{self, Later, LaterNeed};
use super::passes::Passed;
use super::player::{Followed, Player};
use super::shown::item;
use super::trace::Trace;
use super::{Contender, Lab, ReplayError};

/// Characters of a text that are quoted.
const QUOTED: usize = 240;
/// Needs that are told one by one.
const TOLD: usize = 20;

/// Why an item can't be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// What was given is no item's id.
    #[error("{0:?} is no item: give a tool's name and a number, such as Read:12")]
    Form(String),
    /// The session has no such item.
    #[error("the session has no item {asked}{}", near(.found))]
    Absent {
        /// What was asked for.
        asked: String,
        /// The item of that number.
        found: Option<String>,
    },
    /// There is more than one story to tell.
    #[error("an item is explained for one session, one policy and one budget: name one of each")]
    One,
    /// The session could not be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

fn near(found: &Option<String>) -> String {
    let name = found.as_deref();
    name.map_or_else(String::new, |name| format!(": that number is {name}"))
}

/// Tells the story of an item such as `Read:12`.
///
/// # Errors
/// [`ExplainError`] where there is no such item, or more than one policy or ceiling.
pub fn explain(lab: &Lab, trace: &Trace, asked: &str) -> Result<String, ExplainError> {
    let form = || ExplainError::Form(asked.to_owned());
    let (tool, number) = asked.rsplit_once(':').ok_or_else(form)?;
    let number = ItemNo(number.parse().map_err(|_| form())?);
    let [contender] = lab.contenders.as_slice() else {
        return Err(ExplainError::One);
    };
    let played = drive::play(lab, trace, std::slice::from_ref(contender), Some(number))?;
    let player = played.players.first().ok_or(ExplainError::One)?;
    let item = item(&player.transcript, number);
    let absent = |found: Option<&Item>| ExplainError::Absent {
        asked: asked.to_owned(),
        found: found.map(called),
    };
    let item = item.ok_or_else(|| absent(None))?;
    if !word(item).eq_ignore_ascii_case(tool) {
        return Err(absent(Some(item)));
    }
    Ok(Story {
        player,
        played: &played,
        item,
    }
    .tell())
}

fn word(item: &Item) -> &str {
    match item.kind {
        ItemKind::System => "system",
        ItemKind::User => "user",
        ItemKind::Text => "text",
        ItemKind::Reasoning => "reasoning",
        ItemKind::Call | ItemKind::Result => &item.name,
        ItemKind::Opaque => "opaque",
    }
}

fn called(item: &Item) -> String {
    format!("{}:{}", word(item), item.no)
}

struct Story<'a> {
    player: &'a Player<'a>,
    played: &'a PlayedSession<'a>,
    item: &'a Item,
}

impl Story<'_> {
    fn tell(&self) -> String {
        let mut text = self.head();
        let number = self.item.no;
        let mut went = false;
        for (at, pass) in self.player.passes.iter().enumerate() {
            let moved = pass.moves.iter().find(|(item, _)| *item == number);
            if let Some((_, mark)) = moved {
                went = true;
                let _ = write!(
                    text,
                    "\nrequest {}, pass {} ({}): {}\n{}",
                    pass.request,
                    at + 1,
                    pass.trigger.name(),
                    format!("{mark:?}").to_lowercase(),
                    why(pass),
                );
                text.push_str(&self.left(pass.request));
            }
        }
        if !went {
            let _ = writeln!(
                text,
                "\nnever evicted: {} passes were made",
                self.player.passes.len()
            );
        }
        text.push_str(&self.needed());
        text
    }

    fn head(&self) -> String {
        let transcript = &self.player.transcript;
        let result = self.item.pair.and_then(|pair| transcript.items.get(pair));
        let tokens = self.item.tokens + result.map_or(0, |result| result.tokens);
        let episode = self.item.episode;
        let episode = episode.and_then(|at| transcript.graph.episodes.get(at));
        let inside = episode.map_or_else(String::new, |episode| {
            format!(", episode {}", tombstone::name(transcript, episode))
        });
        let Contender {
            ladder, ceiling, ..
        } = self.player.contender;
        format!(
            "{}: {tokens} tokens{}{inside}; policy {ladder} at a budget of {ceiling}\n",
            called(self.item),
            if result.is_some() {
                ", its result included"
            } else {
                ""
            },
        )
    }

    /// What the view showed of it after a pass.
    fn left(&self, request: usize) -> String {
        let followed = self.player.followed.iter();
        let seen = followed.rev().find(|seen| seen.request == request);
        match seen {
            Some(Followed {
                text: Some(text), ..
            }) => {
                format!("  its result now reads: {}\n", quoted(text))
            }
            Some(Followed {
                named: Some(line), ..
            }) => format!("  it is named by: {}\n", quoted(line)),
            Some(_) | None => "  nothing in the view names it\n".to_owned(),
        }
    }

    /// Whether later calls missed something that it held, or made its call again.
    fn needed(&self) -> String {
        let mut lines = Vec::new();
        let needs = later::needs(self.played, self.player);
        for LaterNeed { request, how, .. } in needs.iter().filter(|one| one.item == self.item.no) {
            match how {
                Later::Held(_) => {}
                Later::Missed { string, named } => {
                    let how = if *named {
                        "named in the view"
                    } else {
                        "not named in the view"
                    };
                    lines.push(format!("  request {request}: {string} ({how})"));
                }
                Later::Again => {
                    lines.push(format!("  request {request}: the same call was made again"));
                }
            }
        }
        if lines.is_empty() {
            return "\nnothing of it was missed later\n".to_owned();
        }
        let more = lines.len().saturating_sub(TOLD);
        let mut text = format!("\nneeded later, {} times:\n", lines.len());
        lines.truncate(TOLD);
        text.push_str(&lines.join("\n"));
        if more > 0 {
            let _ = write!(text, "\n  and {more} times more");
        }
        text.push('\n');
        text
    }
}

/// The sizes of a pass, and what went in it.
fn why(pass: &Passed) -> String {
    let gone: Vec<String> = pass
        .gone
        .iter()
        .map(|(level, items, tokens)| format!("{} {items} items, {tokens} tokens", level.name()))
        .collect();
    format!(
        "  the view had {} tokens and was to have {}; it has {} now\n  the pass took: {}\n",
        pass.before,
        pass.floor,
        pass.after,
        gone.join("; ")
    )
}

fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
