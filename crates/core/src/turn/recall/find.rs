//! Makes the document that a recall brings back: one original, several under headings, the evicted
//! items of an episode, a page of the ledger, or the lines that contain a text. Never cuts it to
//! size.

use std::borrow::Cow;
use std::fmt::Write as _;

use plimsoll_model::{ItemKind, ItemNo, Mark, RecallOutcome};
use serde_json::Value;

use super::document::Document;
use super::{Earlier, NotRecalled, Recalls, in_view};
use crate::intercept::recall::{EVERYTHING, RecallAsk};
use crate::session::graph::EpisodeKind;
use crate::session::ids;
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::transcript::Item;

/// Lines of a page of the ledger.
const PAGE: usize = 100;

/// Characters of a call that says what is in view.
const NAMED_CHARS: usize = 200;
/// Characters of a call that an offer shows.
const OFFERED_CHARS: usize = 80;

impl<'a> Recalls<'a> {
    fn item(&self, index: ItemIndex) -> Option<&'a Item> {
        self.prepared.view.transcript().items.get(index)
    }

    /// Whether the view shows the original of an item.
    fn is_whole(&self, index: ItemIndex) -> bool {
        self.prepared.view.is_whole(index)
    }

    fn id(&self, index: ItemIndex) -> String {
        self.item(index).map(ids::id).unwrap_or_default()
    }

    /// One item, or several of one tool.
    pub(super) fn items(
        &self,
        ask: &RecallAsk,
        items: &[ItemIndex],
    ) -> Result<Document, NotRecalled> {
        let standing: Option<Vec<String>> = items.iter().map(|at| self.standing(*at)).collect();
        match (standing, items) {
            (Some(standing), _) => Err(in_view(standing.join("; "))),
            (None, [item]) => self.one(ask, *item),
            (None, _) => Ok(self.several(format!("recalled {}", ask.id), items)),
        }
    }

    fn one(&self, ask: &RecallAsk, index: ItemIndex) -> Result<Document, NotRecalled> {
        let mut document = Document::headed(format!("recalled {}", self.id(index)));
        if let Some(call) = self.call(index) {
            document.call(&call);
        }
        match (self.item(index), self.original(index)) {
            (Some(item), Some(original)) => {
                document.push(item.no, &original);
                document.pictures = self.pictures_of(index);
            }
            _ => return Err(gone(&ask.id)),
        }
        Ok(document)
    }

    /// All evicted lines that contain a text, each with the id of its item.
    pub(super) fn everything(&self, ask: &RecallAsk) -> Result<Document, NotRecalled> {
        let search = ask.search.as_deref().unwrap_or_default();
        let wanted = search.to_lowercase();
        let mut document = Document::headed(format!("recalled from {EVERYTHING}"));
        let items = self.prepared.view.transcript().items.indexed();
        for (at, item) in items.filter(|(_, item)| item.kind != ItemKind::Result) {
            if item.hidden || !self.is_gone(at) {
                continue;
            }
            let call = self.call(at).unwrap_or_default();
            let original = self.original(at).unwrap_or_default();
            document.push_matches(&ids::id(item), &call, &original, &wanted);
        }
        for (_, item) in self.state.dropped.iter() {
            document.push_matches(&item.id, &item.call, &item.original, &wanted);
        }
        if document.text.is_empty() {
            let offer = self.offer(ask);
            let why = format!("nothing that is evicted has {search:?}; {offer}");
            return Err(NotRecalled(RecallOutcome::NoMatch, why));
        }
        Ok(document)
    }

    /// The results of calls with a path among their arguments, newest first; `None` if there is no
    /// such call.
    pub(super) fn by_path(&self, ask: &RecallAsk) -> Option<Result<Document, NotRecalled>> {
        let items = self.prepared.view.transcript().items.indexed();
        let calls = items.filter(|(_, item)| item.kind == ItemKind::Call && !item.hidden);
        let named = |at: &ItemIndex| {
            let call = self.originals().call(*at).unwrap_or_default();
            names(&call, &ask.id)
        };
        let mut named: Vec<ItemIndex> = calls.map(|(at, _)| at).filter(named).collect();
        // The newest read of a file shows its present state.
        named.reverse();
        let newest = named.first().copied()?;
        let gone: Vec<ItemIndex> = named.into_iter().filter(|at| self.is_gone(*at)).collect();
        let newest = if gone.is_empty() { vec![newest] } else { gone };
        Some(self.items(ask, &newest))
    }

    /// What else may be recalled, each item with the beginning of its call.
    fn offer(&self, ask: &RecallAsk) -> String {
        let transcript = self.prepared.view.transcript();
        let call = |at: ItemIndex| {
            let call = self.originals().call(at).unwrap_or_default();
            call.chars().take(OFFERED_CHARS).collect()
        };
        let offer = ids::offer(transcript, &ask.id, &|at| self.is_gone(at), &call);
        match self.state.dropped.told() {
            Some(told) => format!("{offer}; {told}"),
            None => offer,
        }
    }

    /// All items of an episode that are not in view.
    pub(super) fn episode(
        &self,
        ask: &RecallAsk,
        at: EpisodeIndex,
    ) -> Result<Document, NotRecalled> {
        let episode = self.prepared.view.transcript().graph.episodes.get(at);
        let listed = episode.map_or(&[][..], |episode| episode.items.as_slice());
        let gone: Vec<ItemIndex> = listed
            .iter()
            .copied()
            .filter(|at| self.is_gone(*at))
            .collect();
        if gone.iter().all(|at| self.standing(*at).is_some()) {
            let nothing = format!("{} is in view: nothing of it is gone", ask.id);
            return Err(in_view(nothing));
        }
        let kind = match episode.map(|episode| episode.kind) {
            Some(EpisodeKind::Expl) => "expl ",
            Some(EpisodeKind::Act) => "act ",
            Some(EpisodeKind::Implicit) | None => "",
        };
        let head = format!("recalled {kind}\"{}\", {} items", ask.id, gone.len());
        let mut document = self.several(head, &gone);
        if let Some(description) = episode.and_then(|episode| episode.description.as_deref()) {
            document.more = format!("{description}\n");
        }
        Ok(document)
    }

    /// Whether the original of an item is not in view. `delimiter` calls have no content.
    pub(in crate::turn) fn is_gone(&self, index: ItemIndex) -> bool {
        let content = self
            .item(index)
            .is_some_and(|item| item.delimiter.is_none());
        content && !self.is_whole(index)
    }

    /// Items in order, each under its id. An item that was itself brought back is only named, so
    /// that recalls are not nested.
    fn several(&self, head: String, items: &[ItemIndex]) -> Document {
        let mut document = Document::headed(head);
        for index in items {
            let Some(item) = self.item(*index) else {
                continue;
            };
            document.line();
            let _ = write!(document.text, "[{}]", ids::id(item));
            if let Some(standing) = self.standing(*index) {
                let _ = writeln!(document.text, " {standing}");
                continue;
            }
            if let Some(call) = self.call(*index) {
                let _ = write!(document.text, " {call}");
            }
            document.text.push('\n');
            if item.hidden {
                continue;
            }
            if let Some(original) = self.original(*index) {
                document.push(item.no, &original);
                document.pictures.extend(self.pictures_of(*index));
            }
        }
        document
    }

    /// A page of the lines for which the ledger in view has no room.
    pub(super) fn ledger(&self, ask: &RecallAsk, page: usize) -> Result<Document, NotRecalled> {
        let rest = self.written().ledger_rest(&self.prepared.view);
        let pages = rest.len().div_ceil(PAGE);
        let Some(lines) = rest.chunks(PAGE).nth(page - 1) else {
            let why = match pages {
                0 => "the ledger has no more than what is in view".to_owned(),
                pages => format!("the ledger goes on to ledger:{pages} only"),
            };
            return Err(NotRecalled(RecallOutcome::Unknown, why));
        };
        let mut document = Document::headed(format!("recalled {} of {pages}", ask.id));
        document.text = lines.join("\n");
        Ok(document)
    }

    /// An item that is no longer on the path, if an earlier recall brought it back.
    pub(super) fn lost(&self, ask: &RecallAsk) -> Result<Document, NotRecalled> {
        let transcript = self.prepared.view.transcript();
        let no = ids::lost(transcript, &ask.id);
        // It is gone from the history, but a recall that is in view still has it.
        if let Some(standing) = no.and_then(|no| self.brought(no)) {
            return Err(in_view(format!("{} {standing}", ask.id)));
        }
        let head = format!("recalled {}, which is not in the history any more", ask.id);
        let mut document = Document::headed(head);
        let before = || self.earlier.iter().rev();
        let original =
            no.and_then(|no| before().find_map(|earlier| Some((no, earlier.original(no)?))));
        if let Some((no, original)) = original {
            document.push(no, original);
            document.pictures = before()
                .find_map(|earlier| earlier.pictures(no))
                .unwrap_or_default();
            return Ok(document);
        }
        // Without an item number the id may be one that an earlier recall was asked for.
        match before().find(|earlier| earlier.asked() == ask.id) {
            Some(earlier) => {
                document.head.push_str(", as a recall before found it");
                document.text.clone_from(&earlier.call.result);
                Ok(document)
            }
            None if no.is_some() => Err(gone(&ask.id)),
            None => {
                let asked: String = ask.id.chars().take(120).collect();
                let offer = self.offer(ask);
                Err(NotRecalled(
                    RecallOutcome::Unknown,
                    format!("nothing is known as {asked:?}; {offer}"),
                ))
            }
        }
    }

    /// Where the original of an item, or a copy that a recall brought back, is in view.
    fn standing(&self, index: ItemIndex) -> Option<String> {
        let item = self.item(index)?;
        let id = ids::id(item);
        if !self.is_whole(index) {
            return Some(format!("{id} {}", self.brought(item.no)?));
        }
        Some(match item.kind {
            ItemKind::Call => {
                let call = self.originals().call(index).unwrap_or_default();
                let short: String = call.chars().take(NAMED_CHARS).collect();
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

    /// The recall in view that holds the whole of an item.
    pub(super) fn brought(&self, no: ItemNo) -> Option<String> {
        let holds = |earlier: &&Earlier<'_>| earlier.live && earlier.original(no).is_some();
        let earlier = self.earlier.iter().rev().find(holds)?;
        Some(format!(
            "was recalled in {}, which is still in view",
            earlier.id
        ))
    }

    /// The original of an item: as an earlier recall brought it back, because the client may have
    /// edited its copy since, else from the history. A call without a result has an empty one.
    fn original(&self, index: ItemIndex) -> Option<Cow<'_, str>> {
        let item = self.item(index)?;
        let mut before = self.earlier.iter().rev();
        if let Some(original) = before.find_map(|earlier| earlier.original(item.no)) {
            return Some(Cow::Borrowed(original));
        }
        match (self.originals().whole(index), item.kind) {
            (None, ItemKind::Call) => Some(Cow::Borrowed("")),
            (original, _) => original,
        }
    }

    /// The pictures of an item: as an earlier recall of it alone brought them back, else from the history.
    fn pictures_of(&self, index: ItemIndex) -> Vec<String> {
        let no = self.item(index).map(|item| item.no);
        let mut before = self.earlier.iter().rev();
        let brought = before.find_map(|earlier| earlier.pictures(no?));
        brought.unwrap_or_else(|| self.originals().pictures(index))
    }

    /// A call that the view doesn't show, or shows with trimmed arguments.
    fn call(&self, index: ItemIndex) -> Option<String> {
        let item = self.item(index)?;
        let trimmed = self.prepared.view.notes().arguments.contains_key(&index);
        let hidden = trimmed || self.state.marks.get(item.no) == Mark::Removed;
        let call = item.kind == ItemKind::Call && hidden;
        call.then(|| self.originals().call(index)).flatten()
    }
}

/// Whether the arguments of a call, as the model wrote it, name a path, in full or by its end.
pub(super) fn names(call: &str, path: &str) -> bool {
    let arguments = call.split_once(' ').map_or("", |(_, arguments)| arguments);
    let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
        return false;
    };
    let ends = |long: &str, short: &str| {
        let rest = long.strip_suffix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    let texts = fields.values().filter_map(Value::as_str);
    let mut texts = texts.filter(|text| !text.is_empty());
    texts.any(|text| ends(text, path) || ends(path, text))
}

fn gone(id: &str) -> NotRecalled {
    NotRecalled(
        RecallOutcome::Gone,
        format!("{id} is not in the history any more"),
    )
}
