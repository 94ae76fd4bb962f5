//! The original texts of a transcript's items, read from the client's request and from records when
//! a policy or a view needs them. Views and passes get them only here. Never keeps a text beyond
//! the request, except in the memo.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_model::{
    Digest, Handed, ItemKind, ItemNo, Kept, Mark, Marks, Shape, StoredHop, Words, is_failure,
};
use plimsoll_wire::edit::AssistantEdit;
use plimsoll_wire::request::Request;

use super::call_spans::CallSpans;
use super::memo::{Decoded, Reader};
use crate::policy::{self, Plan, Policy, PolicyAsk, Proposal, Repetition, Target, Text};
use crate::session::index::{ItemIndex, indices};
use crate::session::marked::fronted;
use crate::session::measure::Measure;
use crate::session::note::{Left, Note};
use crate::session::overlap::{self, Earlier};
use crate::session::path::Path;
use crate::session::stub::Part;
use crate::session::transcript::{Item, Source, Transcript, TranscriptEntry};
use crate::session::view::{Notes, View};
use crate::session::{ids, stub};

/// What a transcript was built from.
#[derive(Clone, Copy)]
pub(super) struct Originals<'a> {
    pub request: &'a Request,
    pub shapes: &'a [Arc<Shape>],
    pub path: &'a Path,
    pub pending: &'a [StoredHop],
    pub transcript: &'a Transcript,
    /// Where the calls of its messages lie.
    pub calls: &'a CallSpans,
    /// The texts that were decoded last, if a pass may follow.
    pub decoded: Option<&'a Decoded<'a>>,
}

impl<'a> Originals<'a> {
    /// The original text of an item: a result's or a message's text, or a call's arguments. `None`
    /// if it has none or could not be written back.
    pub fn text(&self, index: ItemIndex) -> Option<Text<'a>> {
        match self.decoded {
            Some(decoded) => decoded.text(index, || self.decode(index)),
            None => self.decode(index).map(Rc::new),
        }
    }

    fn decode(&self, index: ItemIndex) -> Option<Cow<'a, str>> {
        let item = self.transcript.items.get(index)?;
        let entry = self.transcript.entries.get(item.entry)?;
        if let Source::HiddenResult { step, hop, call } = entry.source {
            let call = self.hop(step, hop)?.calls.get(call)?;
            return Some(Cow::Borrowed(&call.result));
        }
        let message = self.message(entry)?;
        match item.kind {
            ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Opaque => self.request.dialect.text(message),
            ItemKind::Call if item.said => self.request.dialect.text(message),
            ItemKind::Call if is_visible(item) => {
                let call = self.visible_call(entry, item)?;
                self.request.dialect.arguments(call)
            }
            ItemKind::Call => None,
            ItemKind::Reasoning => None,
        }
    }

    /// What a recall brings back of an item; of a call, its result. Content that is not text is
    /// named where it was.
    pub fn whole(&self, index: ItemIndex) -> Option<Cow<'a, str>> {
        let item = self.transcript.items.get(index)?;
        let entry = self.transcript.entries.get(item.entry)?;
        match item.kind {
            ItemKind::Call => self.whole(item.pair?),
            ItemKind::Reasoning => self
                .request
                .dialect
                .reasoning(self.message(entry)?)
                .map(Cow::Owned),
            ItemKind::Text => self.own_text(index, entry),
            ItemKind::Result | ItemKind::System | ItemKind::User | ItemKind::Opaque => {
                self.decode(index).or_else(|| {
                    self.request
                        .dialect
                        .parts(self.message(entry)?)
                        .map(Cow::Owned)
                })
            }
        }
    }

    /// The parts of an item's result that are no text, as JSON; of a call those of its result.
    pub fn pictures(&self, index: ItemIndex) -> Vec<String> {
        let item = self.item(index);
        let result = item.and_then(|item| item.pair.filter(|_| item.kind == ItemKind::Call));
        let item = result.map_or(item, |result| self.item(result));
        let entry = item.and_then(|item| self.transcript.entries.get(item.entry));
        let message = entry.and_then(|entry| self.message(entry));
        message
            .map(|message| self.request.dialect.pictures(message))
            .unwrap_or_default()
    }

    /// The texts among the parts of an item's message that whoever speaks said.
    pub fn texts(&self, index: ItemIndex) -> Vec<String> {
        let entry = self
            .item(index)
            .and_then(|item| self.transcript.entries.get(item.entry));
        let message = entry.and_then(|entry| self.message(entry));
        message
            .map(|message| self.request.dialect.texts(message))
            .unwrap_or_default()
    }

    /// The text of one hop. Text that earlier hops handed out belongs to their own items.
    fn own_text(&self, index: ItemIndex, entry: &TranscriptEntry) -> Option<Cow<'a, str>> {
        let parts = || {
            self.request
                .dialect
                .parts(self.message(entry)?)
                .map(Cow::Owned)
        };
        let text = self.decode(index).or_else(parts)?;
        // Only the last hop shares a message with earlier hops.
        let Source::LastHop { step, .. } = entry.source else {
            return Some(text);
        };
        let record = &self.path.entries.get(step)?.record;
        match entry.handed {
            Handed::Nothing | Handed::All | Handed::Changed => Some(text),
            Handed::Front => Some(Cow::Owned(text.strip_prefix(&record.handed)?.to_owned())),
            Handed::Split => {
                let mut edit = AssistantEdit::default();
                edit.cut.hops = record.handed_out();
                let dialect = self.request.dialect;
                let own = dialect.assistant(self.message(entry)?, &edit)?;
                dialect.assistant_text(&own).map(Cow::Owned)
            }
        }
    }

    /// A call's name and arguments as the model wrote them.
    pub fn call(&self, index: ItemIndex) -> Option<String> {
        let item = self.transcript.items.get(index)?;
        let entry = self.transcript.entries.get(item.entry)?;
        if item.said {
            return self.decode(index).map(Cow::into_owned);
        }
        if !item.hidden {
            let call = self.visible_call(entry, item)?;
            return self.request.dialect.written(call);
        }
        let hop = match entry.source {
            Source::Hop { step, hop } => self.hop(step, hop),
            Source::LastHop { step, .. } => self.path.entries.get(step)?.record.hops.last(),
            Source::Client(_) | Source::HiddenResult { .. } | Source::Guidance => None,
        };
        let call = hop?.calls.get(item.place as usize)?;
        Some(format!("{} {}", item.name, call.arguments))
    }

    /// A call that the client sees, as it stands in its message.
    fn visible_call(&self, entry: &TranscriptEntry, item: &Item) -> Option<&'a [u8]> {
        let (message, place) = (self.message(entry)?, item.place as usize);
        let calls = || self.request.dialect.calls(message);
        match entry.source {
            // A message may have thousands of calls. To look for each of them anew would read it as often.
            Source::Client(at) | Source::LastHop { message: at, .. } => {
                self.calls.of(at, message, place, calls)
            }
            Source::Hop { .. } | Source::HiddenResult { .. } | Source::Guidance => {
                calls().get(place).copied()
            }
        }
    }

    fn message(&self, entry: &TranscriptEntry) -> Option<&'a [u8]> {
        match entry.source {
            Source::Client(message) | Source::LastHop { message, .. } => {
                Some(self.request.message(message))
            }
            Source::Hop { step, hop } => Some(self.hop(step, hop)?.message.as_deref()?.as_bytes()),
            Source::HiddenResult { .. } | Source::Guidance => None,
        }
    }

    fn hop(&self, step: usize, hop: usize) -> Option<&'a StoredHop> {
        self.path.hop(self.pending, step, hop)
    }

    /// The strings of an original, read once for all passes.
    pub fn words(&self, reader: Reader<'_>, index: ItemIndex) -> Option<Arc<Words>> {
        let item = self.transcript.items.get(index)?;
        let entry = self.transcript.entries.get(item.entry)?;
        let place = match item.kind {
            ItemKind::Reasoning => return None,
            // Place 0 is the message's text; the arguments of its calls follow.
            ItemKind::Call if item.said => 0,
            ItemKind::Call if is_visible(item) => item.place as usize + 1,
            ItemKind::Call => return None,
            ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Opaque => 0,
        };
        let read = || {
            let text = self.decode(index)?;
            Some(match item.kind {
                ItemKind::Call if !item.said => stub::words(&text),
                ItemKind::Result => Words::of(&text).with_failure(is_failure(&text)),
                _ => Words::of(&text),
            })
        };
        self.named_words(reader, entry, place, read)
    }

    /// The strings of an item that has no single text: a message with a picture, or a call without arguments. Policies
    /// don't read them.
    pub fn other_words(&self, reader: Reader<'_>, index: ItemIndex) -> Option<Arc<Words>> {
        let item = self.transcript.items.get(index)?;
        let entry = self.transcript.entries.get(item.entry)?;
        let (place, text): (_, &dyn Fn() -> Option<String>) = match item.kind {
            ItemKind::Reasoning => return None,
            ItemKind::Call if is_visible(item) => (item.place as usize, &|| self.call(index)),
            ItemKind::Call => return None,
            ItemKind::Result
            | ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Opaque => (0, &|| Some(self.texts(index).join("\n"))),
        };
        // Places from the end on are no other ones.
        let read = || text().map(|text| Words::of(&text));
        self.named_words(reader, entry, usize::MAX - place, read)
    }

    /// Strings that are read once for all requests that have this message, by their place in it.
    fn named_words(
        &self,
        reader: Reader<'_>,
        entry: &TranscriptEntry,
        place: usize,
        read: impl FnOnce() -> Option<Words>,
    ) -> Option<Arc<Words>> {
        match entry.source {
            Source::Client(message) | Source::LastHop { message, .. } => {
                // The key is the digest of the message and the place in it.
                let digest = self.shapes.get(message)?.canonical;
                let mut name = [0; 40];
                let parts = digest.as_bytes().iter().copied();
                let parts = parts.chain((place as u64).to_le_bytes());
                name.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
                reader.words(&name, read)
            }
            Source::Hop { .. } | Source::HiddenResult { .. } | Source::Guidance => {
                read().map(Arc::new)
            }
        }
    }

    /// Reads the strings of what came with this request and of what the last pass left, so that the
    /// next pass doesn't have to read everything at once.
    pub fn read_ahead(&self, reader: Reader<'_>, notes: &Notes) {
        for note in notes.results.values().chain(notes.arguments.values()) {
            let _ = note.words();
        }
        let newest = self.transcript.newest_answer();
        let from = newest.map_or(ItemIndex(0), |entry| entry.items.start);
        for index in indices(from..self.transcript.items.end()) {
            self.words(reader, index);
        }
    }

    /// What is left of a call of which a pass kept a part.
    pub fn left(&self, reader: Reader<'_>, call: ItemIndex, mark: Mark, kept: &Kept) -> Left {
        let Some(item) = self.transcript.items.get(call) else {
            return Left::default();
        };
        if let Some(same) = kept.same.filter(|_| mark == Mark::Clipped) {
            return Left {
                result: self.pointer(reader, call, same, kept),
                arguments: None,
            };
        }
        // Everything that the note depends on is part of the key.
        let name = (item.no, &*item.name, mark as u8);
        let originals = (self.digest(call), item.pair.and_then(|at| self.digest(at)));
        let make = || Left {
            result: self.result(reader, call, mark, kept),
            arguments: kept
                .trimmed
                .then(|| self.trimmed(reader, item, call))
                .flatten(),
        };
        let result = item.pair.and_then(|at| self.transcript.items.get(at));
        let front = result.and_then(|result| result.front.as_deref());
        reader.left(&(name, originals, call, kept, front), make)
    }

    /// The digest of the message that an item is part of.
    fn digest(&self, index: ItemIndex) -> Option<Digest> {
        let item = self.transcript.items.get(index)?;
        match self.transcript.entries.get(item.entry)?.source {
            Source::Client(message) | Source::LastHop { message, .. } => {
                self.shapes.get(message).map(|shape| shape.canonical)
            }
            Source::Hop { .. } | Source::Guidance => None,
            Source::HiddenResult { step, hop, call } => {
                let call = self.hop(step, hop)?.calls.get(call)?;
                Some(Digest::of(&[call.result.as_bytes()]))
            }
        }
    }

    /// The note that replaces a call's result, or a text.
    fn result(
        &self,
        reader: Reader<'_>,
        index: ItemIndex,
        mark: Mark,
        kept: &Kept,
    ) -> Option<Note> {
        // Without a length the result is whole, or has at most lines below it.
        if kept.of.is_none() && !(kept.has_lines_below() && mark == Mark::Clipped) {
            return None;
        }
        let item = self.transcript.items.get(index)?;
        let result = match item.kind {
            ItemKind::Text => index,
            ItemKind::System
            | ItemKind::User
            | ItemKind::Reasoning
            | ItemKind::Call
            | ItemKind::Result
            | ItemKind::Opaque => item.pair?,
        };
        let tokens = self.transcript.items.get(result)?.tokens;
        // If no part of the text is kept, it need not be decoded.
        let shows = !kept.lines.is_empty() || kept.shape.is_some();
        let original = shows.then(|| self.text(result)).flatten();
        let original = original.unwrap_or_default();
        let entered = kept.is_entered(mark);
        // The client may have changed what was edited when it came in; nothing of that was evicted.
        if entered && !is_length(kept, &original) {
            return None;
        }
        let below = if entered { below(kept) } else { String::new() };
        let text = match kept.shape {
            // The result is whole, so it still begins as it did.
            None if !below.is_empty() => format!("{original}{below}"),
            _ => {
                let text = stub::result(&ids::id(item), tokens, mark, kept, &original);
                fronted(self.transcript, index, text + &below)
            }
        };
        let size = reader.count(&text);
        Some(Note::new(text, size))
    }

    /// The note that replaces a result that an earlier one still shows in full, or of which it shows some
    /// lines. `None` if the client has changed or left out one of them since: then the result is
    /// shown as it is.
    fn pointer(
        &self,
        reader: Reader<'_>,
        call: ItemIndex,
        same: ItemNo,
        kept: &Kept,
    ) -> Option<Note> {
        let at = self.transcript.call(same).filter(|at| *at < call)?;
        if kept.lines.is_empty() && kept.of.is_none() {
            let (to, result) = (self.item(at)?.pair?, self.item(call)?.pair?);
            let text = |at: ItemIndex| self.words(reader, at).and_then(|words| words.text());
            text(to).filter(|earlier| text(result) == Some(*earlier))?;
            let text = |id: &str, tokens, made: Option<&str>| Some(stub::pointer(id, tokens, made));
            return Some(reader.note(self.pointing(call, at, kept, text)?));
        }
        // Both texts are read for it, so it is made once.
        let digest = |at: ItemIndex| Some((self.digest(at)?, self.digest(self.item(at)?.pair?)?));
        let make = || Left {
            result: self.shared(reader, call, at, kept),
            arguments: None,
        };
        let (newer, earlier) = (digest(call)?, digest(at)?);
        let left = reader.left(&("shares", same, call, newer, earlier, kept), make);
        left.result
    }

    /// The note of a result of which another one shows all lines but those that are kept.
    fn shared(
        &self,
        reader: Reader<'_>,
        call: ItemIndex,
        earlier: ItemIndex,
        kept: &Kept,
    ) -> Option<Note> {
        let (to, result) = (self.item(earlier)?.pair?, self.item(call)?.pair?);
        let text = self.text(result)?;
        let before = self.text(to)?;
        let long = text.len().max(before.len()) > overlap::LONGEST;
        if long || !is_length(kept, &text) || !self.is_one_text(to) {
            return None;
        }
        let length = u32::try_from(text.len()).ok()?;
        let before = Earlier::new(&before);
        let mut parts = Vec::new();
        let mut end = 0;
        for (start, past) in kept.lines.iter().copied().chain([(length, length)]) {
            if start > end {
                let run = text.get(end as usize..start as usize)?;
                parts.push(Part::Same(before.place(run)?));
            }
            // One run may follow another with nothing between them.
            if past > start {
                let lines = text.get(start as usize..past as usize)?;
                // After an edit of the client a place may be in the midst of a line.
                if past < length && !lines.ends_with('\n') {
                    return None;
                }
                parts.push(Part::Shown(lines));
            }
            end = past;
        }
        let text = self.pointing(call, earlier, kept, |id, tokens, made| {
            stub::shared(id, tokens, made, before.lines, &parts)
        })?;
        let size = reader.count(&text);
        Some(Note::new(text, size))
    }

    /// Whether a result is one text, whose lines a model counts as they are. Of several, one may end in the midst of a
    /// line.
    fn is_one_text(&self, result: ItemIndex) -> bool {
        let entry = self
            .item(result)
            .and_then(|item| self.transcript.entries.get(item.entry));
        let message = entry.and_then(|entry| self.message(entry));
        message.is_some_and(|message| self.request.dialect.texts(message).len() <= 1)
    }

    /// A text that points to the result of an earlier call, of its id, the size of the original and that
    /// call, if it is another one.
    fn pointing(
        &self,
        call: ItemIndex,
        earlier: ItemIndex,
        kept: &Kept,
        text: impl FnOnce(&str, u32, Option<&str>) -> Option<String>,
    ) -> Option<String> {
        let (item, first) = (self.item(call)?, self.item(earlier)?);
        let tokens = self.item(item.pair?)?.tokens;
        let made = if first.is_same_call(item) {
            None
        } else {
            self.call(earlier)
        };
        let text = text(&ids::id(first), tokens, made.as_deref())?;
        Some(fronted(self.transcript, call, text + &below(kept)))
    }

    fn item(&self, index: ItemIndex) -> Option<&'a Item> {
        self.transcript.items.get(index)
    }

    /// The note that replaces the arguments of a call whose long strings are cut.
    fn trimmed(&self, reader: Reader<'_>, item: &Item, call: ItemIndex) -> Option<Note> {
        let text = stub::trimmed(&self.text(call)?)?;
        let size = reader.call(&item.name, &text);
        Some(Note::new(text, size))
    }
}

/// Makes views and passes, with the proxy's own texts written from the originals.
#[derive(Clone, Copy)]
pub(super) struct OwnTexts<'a> {
    pub originals: Originals<'a>,
    pub reader: Reader<'a>,
    /// The ceiling in tokens.
    pub ceiling: u32,
    /// The name of `recall`, if texts may mention it.
    pub recall: Option<&'a str>,
}

impl OwnTexts<'_> {
    /// The view of a transcript under these marks.
    pub fn view(&self, transcript: &Arc<Transcript>, marks: &Arc<Marks>) -> View {
        let (transcript, marks) = (Arc::clone(transcript), Arc::clone(marks));
        self.measured(|measure| View::new(transcript, marks, measure))
    }

    /// A view after the moves of a plan.
    pub fn after(&self, view: &View, plan: &Plan) -> View {
        self.measured(|measure| plan.view(view, measure))
    }

    /// A view without these thoughts, for good.
    pub fn without_thoughts(&self, view: &View, thoughts: &[ItemIndex]) -> View {
        let mut marks = view.marks().clone();
        for thought in thoughts {
            if let Some(item) = self.originals.item(*thought) {
                marks.raise(item.no, Mark::Removed);
            }
        }
        self.view(&view.shared(), &Arc::new(marks))
    }

    /// What one policy would do with a view.
    pub fn propose(
        &self,
        policy: Policy,
        view: &View,
        config: &policy::EvictionSettings,
        target: Target,
    ) -> Proposal {
        self.asking(view, config, target, |ask| policy::propose(policy, ask))
    }

    /// Has `answer` answer the question what to do with a view.
    pub fn asking<T>(
        &self,
        view: &View,
        config: &policy::EvictionSettings,
        target: Target,
        answer: impl FnOnce(&PolicyAsk<'_>) -> T,
    ) -> T {
        let originals = self.originals;
        self.measured(|measure| {
            answer(&PolicyAsk {
                view,
                config,
                measure,
                target,
                originals: &|item| originals.text(item),
                words: &|item| originals.words(self.reader, item),
            })
        })
    }

    /// How many times running the newest new call has brought the same result.
    pub fn repetition(&self, view: &View) -> Repetition {
        policy::newest_repetition(view.transcript(), &|item| self.originals.text(item))
    }

    /// The lines of a view's ledger that did not fit.
    pub fn ledger_rest(&self, view: &View) -> Vec<String> {
        self.measured(|measure| view.ledger_rest(measure))
    }

    fn measured<T>(&self, run: impl FnOnce(Measure<'_>) -> T) -> T {
        let Self {
            originals, reader, ..
        } = *self;
        run(Measure {
            count: &|text| reader.remembered(text),
            note: &|text| reader.note(text),
            ceiling: self.ceiling,
            left: &|call, mark, kept| originals.left(reader, call, mark, kept),
            recall: self.recall,
        })
    }
}

/// The lines below a result, each behind a line break.
fn below(kept: &Kept) -> String {
    let looped = kept.times.map(stub::loop_line);
    let lines = kept.refers.iter().chain(&looped);
    lines.map(|line| format!("\n{line}")).collect()
}

/// Whether a text is as long as it was when it was edited. A result that only got lines below it
/// is kept as one run of lines.
fn is_length(kept: &Kept, text: &str) -> bool {
    let whole = kept.lines.first().map(|(_, end)| *end);
    kept.of.or(whole) == u32::try_from(text.len()).ok()
}

/// Whether an item is a call that the client sees.
fn is_visible(item: &Item) -> bool {
    item.kind == ItemKind::Call && !item.hidden && !item.said
}
