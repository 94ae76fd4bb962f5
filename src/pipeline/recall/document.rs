//! What a recall gives out before it is cut to size: one original, several under headings, the
//! evicted items of an episode, a page of the ledger.

use std::fmt::Write as _;

use super::content::Content;
use super::{Earlier, Recalls, Said, in_view};
use crate::intercept::recall::Ask;
use crate::model::{ItemKind, ItemNo, Mark, Original};
use crate::session::graph::{Delimiter, Kind};
use crate::session::recall as ids;
use crate::session::transcript::Item;
use crate::session::view;

/// Lines of a page of the ledger.
const PAGE: usize = 100;
/// Characters of a call that stand in a heading; a longer one is part of the text.
const CALL_CHARS: usize = 400;

/// A text to give out, whole or in part.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// How the result begins, without what it says of its part.
    pub(super) head: String,
    /// Lines between the head and the text.
    pub(super) more: String,
    /// The text.
    pub(super) text: String,
    /// The originals in the text.
    originals: Vec<Original>,
}

impl Document {
    /// Where the originals stand behind so many bytes.
    pub(super) fn shifted(&self, by: usize) -> Vec<Original> {
        let by = u32::try_from(by).unwrap_or(u32::MAX);
        let shift = |original: &Original| Original {
            start: original.start.saturating_add(by),
            end: original.end.saturating_add(by),
            ..*original
        };
        self.originals.iter().map(shift).collect()
    }

    fn push(&mut self, no: ItemNo, original: &str) {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let start = self.text.len();
        self.text.push_str(original);
        self.originals.push(Original {
            item: no,
            start: place(start),
            end: place(self.text.len()),
        });
    }

    /// Begins a new line where the text does not end with one.
    fn line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

impl<'a> Recalls<'a> {
    fn content(&self) -> Content<'a> {
        Content {
            state: self.state,
            transcript: &self.prepared.transcript,
        }
    }

    fn item(&self, index: usize) -> Option<&'a Item> {
        self.prepared.transcript.items.get(index)
    }

    fn mark(&self, item: &Item) -> Mark {
        self.state.marks.get(item.no)
    }

    /// One item, or several of one tool.
    pub(super) fn items(&self, ask: &Ask, items: &[usize]) -> Result<Document, Said> {
        let items: Vec<&Item> = items.iter().filter_map(|index| self.item(*index)).collect();
        let standing: Option<Vec<String>> = items.iter().map(|item| self.standing(item)).collect();
        if let Some(standing) = standing {
            return Err(in_view(standing.join("; ")));
        }
        match items.as_slice() {
            [item] => self.one(ask, item),
            _ => Ok(self.several(format!("recalled {}", ask.id), &items)),
        }
    }

    fn one(&self, ask: &Ask, item: &Item) -> Result<Document, Said> {
        let mut document = Document {
            head: format!("recalled {}", ids::id(item)),
            ..Document::default()
        };
        if let Some(call) = self.hidden_call(item) {
            if call.len() <= CALL_CHARS && !call.contains('\n') {
                document.more = format!("{call}\n");
            } else {
                document.text = format!("{call}\n");
            }
        }
        let original = self.original(item);
        if original.is_none() && item.kind != ItemKind::Call {
            return Err(gone(&ask.id));
        }
        document.push(item.no, original.as_deref().unwrap_or_default());
        Ok(document)
    }

    /// Everything of an episode that is not in view.
    pub(super) fn episode(&self, ask: &Ask, at: usize) -> Result<Document, Said> {
        let transcript = &self.prepared.transcript;
        let episode = transcript.graph.episodes.get(at);
        let listed = episode.map_or(&[][..], |episode| episode.items.as_slice());
        let gone: Vec<&Item> = listed
            .iter()
            .filter_map(|index| self.item(*index))
            .filter(|item| item.delimiter.is_none() && self.mark(item) > Mark::Live)
            .collect();
        if gone.iter().all(|item| self.standing(item).is_some()) {
            let nothing = format!("{} is in view: nothing of it is gone", ask.id);
            return Err(in_view(nothing));
        }
        let kind = match episode.map(|episode| episode.kind) {
            Some(Kind::Expl) => "expl ",
            Some(Kind::Act) => "act ",
            Some(Kind::Implicit) | None => "",
        };
        let head = format!("recalled {kind}\"{}\", {} items", ask.id, gone.len());
        let mut document = self.several(head, &gone);
        if let Some(description) = episode.and_then(|episode| episode.description.as_deref()) {
            document.more = format!("{description}\n");
        }
        Ok(document)
    }

    /// Items in order, each under its id. What was itself brought back is only named, so that
    /// nothing is wrapped into itself again and again.
    fn several(&self, head: String, items: &[&Item]) -> Document {
        let mut document = Document {
            head,
            ..Document::default()
        };
        for item in items {
            document.line();
            let _ = write!(document.text, "[{}]", ids::id(item));
            if let Some(standing) = self.standing(item) {
                let _ = writeln!(document.text, " {standing}");
                continue;
            }
            if let Some(call) = self.hidden_call(item) {
                let _ = write!(document.text, " {call}");
            }
            document.text.push('\n');
            if self.is_recall(item) {
                continue;
            }
            if let Some(original) = self.original(item) {
                document.push(item.no, &original);
            }
        }
        document
    }

    /// A page of the lines that the ledger in view has no room for.
    pub(super) fn ledger(&self, ask: &Ask, page: usize) -> Result<Document, Said> {
        let count = |text: &str| self.reader.remembered(text);
        let transcript = &self.prepared.transcript;
        let rest = view::ledger_rest(transcript, &self.state.marks, self.measure(&count));
        let pages = rest.len().div_ceil(PAGE);
        let Some(lines) = rest.chunks(PAGE).nth(page - 1) else {
            let why = match pages {
                0 => "the ledger has no more than what is in view".to_owned(),
                pages => format!("the ledger goes on to ledger:{pages} only"),
            };
            return Err(Said("unknown", why));
        };
        Ok(Document {
            head: format!("recalled {} of {pages}", ask.id),
            text: lines.join("\n"),
            ..Document::default()
        })
    }

    /// What is not on the path any longer: as it was brought back before, if it was.
    pub(super) fn lost(&self, ask: &Ask) -> Result<Document, Said> {
        let transcript = &self.prepared.transcript;
        let no = ids::lost(transcript, &ask.id);
        if let Some(standing) = no.and_then(|no| self.brought(no)) {
            return Err(in_view(format!("{} {standing}", ask.id)));
        }
        let head = format!("recalled {}, which is not in the history any more", ask.id);
        let mut document = Document {
            head,
            ..Document::default()
        };
        let before = || self.earlier.iter().rev();
        let original =
            no.and_then(|no| before().find_map(|earlier| Some((no, earlier.original(no)?))));
        if let Some((no, original)) = original {
            document.push(no, original);
            return Ok(document);
        }
        match before().find(|earlier| earlier.asked() == ask.id) {
            Some(earlier) => {
                document.head.push_str(", as a recall before found it");
                document.text.clone_from(&earlier.call.result);
                Ok(document)
            }
            None if no.is_some() => Err(gone(&ask.id)),
            None => {
                let asked: String = ask.id.chars().take(120).collect();
                let offer = ids::offer(transcript, &self.state.marks, &ask.id);
                Err(Said(
                    "unknown",
                    format!("nothing is known as {asked:?}; {offer}"),
                ))
            }
        }
    }

    /// Where an item stands in view, its original or a copy that was brought back.
    fn standing(&self, item: &Item) -> Option<String> {
        let id = ids::id(item);
        if self.mark(item) > Mark::Live || item.delimiter == Some(Delimiter::Stray) {
            return Some(format!("{id} {}", self.brought(item.no)?));
        }
        Some(match item.kind {
            ItemKind::Call => {
                let call = self.content().call(item).unwrap_or_default();
                let short: String = call.chars().take(CALL_CHARS / 2).collect();
                format!("{id} is in view: the result of the call {short}")
            }
            ItemKind::Text
            | ItemKind::Reasoning
            | ItemKind::User
            | ItemKind::System
            | ItemKind::Result
            | ItemKind::Opaque => format!("{id} is in view where it was said"),
        })
    }

    /// Which recall that is in view holds the whole of an item.
    fn brought(&self, no: ItemNo) -> Option<String> {
        let holds = |earlier: &&Earlier<'_>| earlier.live && earlier.original(no).is_some();
        let earlier = self.earlier.iter().rev().find(holds)?;
        Some(format!(
            "was recalled in {}, which is still in view",
            earlier.id
        ))
    }

    /// The original of an item: as it was brought back before, because the client may have edited
    /// its copy since, else as it stands in the history.
    fn original(&self, item: &Item) -> Option<String> {
        let before = self
            .earlier
            .iter()
            .rev()
            .find_map(|earlier| earlier.original(item.no));
        match before {
            Some(original) => Some(original.to_owned()),
            None => Some(self.content().original(item)?.into_owned()),
        }
    }

    /// A call that the view does not show, with its arguments.
    fn hidden_call(&self, item: &Item) -> Option<String> {
        let hidden = item.kind == ItemKind::Call && self.mark(item) == Mark::Removed;
        hidden.then(|| self.content().call(item)).flatten()
    }

    fn is_recall(&self, item: &Item) -> bool {
        let result = item.pair.and_then(|pair| self.item(pair));
        result.is_some_and(|result| self.content().is_hidden(result))
    }
}

fn gone(id: &str) -> Said {
    Said("gone", format!("{id} is not in the history any more"))
}
