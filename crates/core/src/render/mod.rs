//! Turns a view into bytes: which messages are sent, what is cut out of them, and what the proxy
//! adds. Pure: the same view gives the same bytes. Never decides what is evicted.

pub mod prefix;
pub mod tools;

use std::borrow::Cow;

use bytes::Bytes;
use plimsoll_model::{Handed, HiddenCall, HiddenTool, ItemKind, Role, StoredHop, TurnRecord};
use plimsoll_wire::Dialect;
use plimsoll_wire::edit::{AssistantEdit, CallEdit, Insert};
use plimsoll_wire::request::{Addition, Breakpoint, Request, UpstreamView};

use crate::session::index::EntryIndex;
use crate::session::path::Path;
use crate::session::transcript::{Source, Transcript, TranscriptEntry};
use crate::session::view::{self, Shown};
use tools::Injected;

/// The input of rendering a view.
pub struct RenderInput<'a> {
    /// The client's request.
    pub request: &'a Request,
    /// The records behind the request.
    pub path: &'a Path,
    /// The hops of the turn in hand.
    pub pending: &'a [StoredHop],
    /// What is shown of the conversation.
    pub view: &'a view::View,
    /// The hidden tools with their present names.
    pub injected: &'a Injected,
    /// The system message with guidance, and the index of the client's message that it replaces.
    /// Without an index it is a message of its own.
    pub guidance: Option<(Option<usize>, Bytes)>,
    /// The guidance as a system message among the others, if it is one.
    pub among: Option<&'a [u8]>,
    /// The hidden tools as they stand in front of the client's, if they are offered.
    pub tools: Option<Bytes>,
    /// Breakpoints of the provider's cache, if any are to be set.
    pub breakpoints: Option<Breakpoints>,
}

/// Breakpoints of the provider's cache. The dialect decides whether one is set and on what, because
/// it knows those of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoints {
    /// How many a request may have, including the client's.
    pub max: usize,
    /// The messages that passes edit first: the one that the newest pass was expected to edit,
    /// because the provider has cached what comes before it, and the one for the next pass.
    pub cuts: [Option<EntryIndex>; 2],
}

impl Breakpoints {
    /// The places where breakpoints are useful: what each is for, and the message that it comes
    /// before.
    #[must_use]
    pub fn places(
        &self,
        dialect: Dialect,
        transcript: &Transcript,
    ) -> Vec<(EntryIndex, Breakpoint)> {
        let mut entries = transcript.entries.indexed();
        let answer = entries.find(|(_, entry)| entry.role == Role::Assistant);
        let cuts = self.cuts.into_iter().flatten();
        let prologue = answer.map(|(at, _)| (at, Breakpoint::Prologue));
        let cuts = cuts.map(|at| (at, Breakpoint::Cut));
        let places = prologue.into_iter().chain(cuts);
        if !dialect.marks_users_alone() {
            return places.collect();
        }
        let behind = |(at, what)| Some((behind_user(transcript, at)?, what));
        places.filter_map(behind).collect()
    }
}

/// The entry behind the last one before this place in which the user or the system speaks.
fn behind_user(transcript: &Transcript, place: EntryIndex) -> Option<EntryIndex> {
    let mut found = None;
    let mut spoken = false;
    for (at, entry) in transcript.entries.indexed() {
        if at > place {
            break;
        }
        found = if spoken { Some(at) } else { found };
        spoken = matches!(entry.role, Role::User | Role::System);
    }
    found
}

/// An internal contradiction: a message that was read before can't be read now.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("entry {0} of the transcript could not be rendered")]
pub struct RenderError(pub EntryIndex);

/// The conversation as it is sent to the upstream.
///
/// # Errors
/// [`RenderError`] where an entry has no readable bytes; the caller fails open.
pub fn messages(input: &RenderInput<'_>) -> Result<UpstreamView, RenderError> {
    let mut out = input.request.splice();
    if let Some(front) = &input.tools {
        out.offer(front);
    }
    if let Some((None, message)) = &input.guidance {
        out.add(Addition::System, message);
    }
    // The dialect decides about breakpoints while it writes the list, so it is told of the places
    // as they come.
    let places = match &input.breakpoints {
        Some(breakpoints) => {
            out.allow(breakpoints.max);
            breakpoints.places(input.request.dialect, input.view.transcript())
        }
        None => Vec::new(),
    };
    for (at, entry) in input.view.transcript().entries.indexed() {
        for (_, what) in places.iter().filter(|(place, _)| *place == at) {
            out.breakpoint(*what);
        }
        let shown = input.view.shown_of(entry);
        let bytes = entry_bytes(input, entry, &shown).ok_or(RenderError(at))?;
        match (entry.source, bytes) {
            (_, bytes) if bytes.is_empty() => {}
            // Borrowed bytes are the client's message itself, unedited.
            (Source::Client(message) | Source::LastHop { message, .. }, Cow::Borrowed(_)) => {
                out.client(message)
            }
            (Source::Client(message) | Source::LastHop { message, .. }, bytes) => {
                out.edited(message, &bytes)
            }
            (Source::Hop { .. }, bytes) => out.add(Addition::Hop, &bytes),
            (Source::HiddenResult { .. }, bytes) => out.add(Addition::Result, &bytes),
            (Source::Guidance, bytes) => out.add(Addition::Guidance, &bytes),
        }
    }
    // The newest message is always worth a breakpoint: the next request begins with all of this
    // one.
    out.breakpoint(Breakpoint::Tail);
    Ok(out.close())
}

/// The first message whose bytes have another size than its view says, with both sizes in tokens. `size` counts a
/// message as it is sent. For tests alone, because it makes every message a second time.
#[must_use]
pub fn miscounted(
    input: &RenderInput<'_>,
    size: &dyn Fn(&[u8]) -> Option<u32>,
) -> Option<(EntryIndex, u32, u32)> {
    let mut entries = input.view.transcript().entries.indexed();
    // A replay may leave out what hidden calls cost.
    let free = |entry: &TranscriptEntry| {
        let mut items = input.view.transcript().items_of(entry).iter();
        items.any(|item| item.hidden && item.tokens == 0)
    };
    let wrong = |(at, entry): (EntryIndex, &TranscriptEntry)| {
        if free(entry) {
            return None;
        }
        let said = input.view.body_size(entry);
        let bytes = entry_bytes(input, entry, &input.view.shown_of(entry))?;
        let sent = if bytes.is_empty() { 0 } else { size(&bytes)? };
        (sent != said).then_some((at, said, sent))
    };
    entries.find_map(wrong)
}

fn entry_bytes<'a>(
    input: &RenderInput<'a>,
    entry: &TranscriptEntry,
    shown: &Shown<'_>,
) -> Option<Cow<'a, [u8]>> {
    if matches!(shown, Shown::Gone) {
        return Some(Cow::Borrowed(&[]));
    }
    match entry.source {
        Source::Client(message) => client(input, message, entry, shown),
        Source::Guidance => input.among.map(Cow::Borrowed),
        Source::LastHop { message, step } => last_hop(input, message, step, entry, shown),
        Source::Hop { step, hop } => {
            let hop = input.path.hop(input.pending, step, hop)?;
            let bytes = hop.message.as_deref()?.as_bytes();
            let new =
                |call: &HiddenCall| Some((call.place as usize, renamed_in(input, step, call)?));
            // A hop that the client never saw is the proxy's own message, so names and reasoning
            // may be edited freely.
            let own = AssistantEdit {
                foreign: is_foreign(input, step),
                // The client's changed text is sent with its own message, and is left out here.
                drop_text: entry.handed == Handed::Changed && hop.text > 0,
                names: hop.calls.iter().filter_map(new).collect(),
                ..AssistantEdit::default()
            };
            less(input, bytes, entry, shown, own)
        }
        Source::HiddenResult { step, hop, call } => {
            let call = input.path.hop(input.pending, step, hop)?.calls.get(call)?;
            let (text, pictures) = match shown {
                Shown::Note(text) => (*text, &[][..]),
                Shown::Whole | Shown::Less { .. } | Shown::Gone => {
                    (call.result.as_str(), call.pictures.as_slice())
                }
            };
            let dialect = input.request.dialect;
            let result = dialect.hidden_result(&call.id.0, text, pictures);
            Some(Cow::Owned(result.to_vec()))
        }
    }
}

fn client<'a>(
    input: &RenderInput<'a>,
    message: usize,
    entry: &TranscriptEntry,
    shown: &Shown<'_>,
) -> Option<Cow<'a, [u8]>> {
    let bytes = input.request.message(message);
    match (&input.guidance, shown) {
        (Some((Some(guided), new)), _) if *guided == message => Some(Cow::Owned(new.to_vec())),
        (_, Shown::Note(text)) => {
            let result = input.view.transcript().items.get(entry.items.start);
            let dialect = input.request.dialect;
            let new = match result.is_some_and(|result| result.front.is_some()) {
                true => plimsoll_wire::user_message_saying(bytes, text),
                false => dialect.result(bytes, text),
            };
            new.map(|new| Cow::Owned(new.to_vec()))
        }
        (_, Shown::Whole | Shown::Gone) => Some(Cow::Borrowed(bytes)),
        (_, Shown::Less { .. }) => less(input, bytes, entry, shown, AssistantEdit::default()),
    }
}

/// Whether a turn was answered by another model than the one that is asked now. Reasoning and
/// signatures of calls can be read only by the model that made them, and another provider refuses
/// them, so those that the proxy kept are left out. The client's own messages are sent as they
/// came.
fn is_foreign(input: &RenderInput<'_>, step: usize) -> bool {
    let entry = input.path.entries.get(step);
    entry.is_some_and(|entry| is_of_another(&entry.record, &input.request.model))
}

/// Whether another model answered a turn than this one.
#[must_use]
pub fn is_of_another(record: &TurnRecord, model: &str) -> bool {
    !record.model.is_empty() && record.model != model
}

/// The name under which a hidden call was made and its present one, if they differ: the client has brought a tool of
/// that name since.
#[must_use]
pub fn renamed<'a>(
    record: &'a TurnRecord,
    call: &HiddenCall,
    injected: &'a Injected,
) -> Option<(&'a str, &'a str)> {
    let then = match call.tool {
        HiddenTool::Delimiter => record.injected.as_deref(),
        HiddenTool::Recall => record.recall.as_deref(),
    };
    let names = (then?, injected.name(call.tool)?);
    (names.0 != names.1).then_some(names)
}

/// The present name of a hidden call of a step, if that is another one.
fn renamed_in<'a>(input: &RenderInput<'a>, step: usize, call: &HiddenCall) -> Option<&'a str> {
    let record = &input.path.entries.get(step)?.record;
    renamed(record, call, input.injected).map(|(_, now)| now)
}

/// The bytes of a hidden call under its present name.
fn call_bytes<'a>(input: &RenderInput<'a>, step: usize, call: &'a HiddenCall) -> Cow<'a, str> {
    let Some(name) = renamed_in(input, step, call) else {
        return Cow::Borrowed(&call.bytes);
    };
    let edit = CallEdit {
        name: Some(name),
        ..CallEdit::default()
    };
    let dialect = input.request.dialect;
    match dialect.edit_call(call.bytes.as_bytes(), &edit) {
        Some(new) => Cow::Owned(String::from_utf8_lossy(&new).into_owned()),
        None => Cow::Borrowed(&call.bytes),
    }
}

/// A message with an edit of its own, or without the items that are gone.
fn less<'a>(
    input: &RenderInput<'a>,
    bytes: &'a [u8],
    entry: &TranscriptEntry,
    shown: &Shown<'_>,
    own: AssistantEdit<'_>,
) -> Option<Cow<'a, [u8]>> {
    let edit = match shown {
        Shown::Less {
            text,
            line,
            reasoning,
            calls,
            arguments,
        } => AssistantEdit {
            drop_text: !text || own.drop_text,
            text: *line,
            drop_reasoning: !reasoning,
            keep_calls: Some(calls.clone()),
            arguments: arguments.clone(),
            ..own
        },
        Shown::Whole | Shown::Note(_) | Shown::Gone if own == AssistantEdit::default() => {
            return Some(Cow::Borrowed(bytes));
        }
        Shown::Whole | Shown::Note(_) | Shown::Gone => own,
    };
    let edit = keep_opaque(input, entry, edit);
    input
        .request
        .dialect
        .assistant(bytes, &edit)
        .map(|new| Cow::Owned(new.to_vec()))
}

/// Text that must never be edited stays, whatever its mark. The thought of a client's message goes only where its mark
/// says so: a thought that was not counted has none. Those of the proxy's own hops never go to another model.
fn keep_opaque<'e>(
    input: &RenderInput<'_>,
    entry: &TranscriptEntry,
    mut edit: AssistantEdit<'e>,
) -> AssistantEdit<'e> {
    let items = input.view.transcript().items_of(entry);
    if items.iter().any(|item| item.kind == ItemKind::Opaque) {
        edit.drop_text = false;
        edit.text = None;
        let own = matches!(entry.source, Source::Hop { .. });
        edit.drop_reasoning &= own || !thoughtless(input, entry);
        edit.foreign &= own;
    }
    edit
}

/// Whether no thought of a message was counted.
fn thoughtless(input: &RenderInput<'_>, entry: &TranscriptEntry) -> bool {
    let items = input.view.transcript().items_of(entry);
    items.iter().all(|item| item.kind != ItemKind::Reasoning)
}

/// The client's message for the last hop of a turn: without the text of earlier hops, with the
/// hidden calls in their places, and without the items that are gone.
fn last_hop<'a>(
    input: &RenderInput<'a>,
    message: usize,
    step: usize,
    entry: &TranscriptEntry,
    shown: &Shown<'_>,
) -> Option<Cow<'a, [u8]>> {
    let bytes = input.request.message(message);
    let record = &input.path.entries.get(step)?.record;
    let hop = record.hops.last().filter(|hop| hop.message.is_none());
    let hidden = hop.map_or(&[][..], |hop| hop.calls.as_slice());
    let joined = joined_lists(record);
    // Nothing to put in and nothing to cut out: the bytes stay the client's.
    let same = hidden.is_empty() && entry.handed == Handed::Nothing && joined.is_empty();
    if same && matches!(shown, Shown::Whole) {
        return Some(Cow::Borrowed(bytes));
    }
    let mut edit = AssistantEdit {
        joined,
        ..AssistantEdit::default()
    };
    match entry.handed {
        Handed::Front => edit.cut.text = &record.handed,
        Handed::Split => edit.cut.hops = record.handed_out(),
        Handed::All => {
            edit.drop_text = true;
            edit.drop_reasoning = thoughtless(input, entry);
        }
        Handed::Nothing | Handed::Changed => {}
    }
    let calls = hidden.iter().map(|call| call_bytes(input, step, call));
    let calls: Vec<Cow<'a, str>> = calls.collect();
    let foreign = is_foreign(input, step);
    // The client never saw the hidden calls. They go back to their places among its own.
    edit.insert = hidden
        .iter()
        .zip(&calls)
        .map(|(call, bytes)| Insert {
            place: call.place as usize,
            block: call.block,
            bytes,
            signed: call.signed,
            foreign,
        })
        .collect();
    if let Shown::Less {
        text,
        line,
        reasoning,
        calls,
        arguments,
    } = shown
    {
        edit.drop_text |= !text;
        edit.text = *line;
        edit.drop_reasoning |= !reasoning;
        // `calls` counts client's and hidden calls together; the edit wants them apart.
        split_calls(&mut edit, calls, arguments);
    }
    let edit = keep_opaque(input, entry, edit);
    input
        .request
        .dialect
        .assistant(bytes, &edit)
        .map(|new| Cow::Owned(new.to_vec()))
}

/// The earlier hops of a turn whose thoughts come as lists. The client joins those of all hops into one message, and
/// those of the earlier hops are sent with the hops.
pub fn joined_lists(record: &TurnRecord) -> Vec<&str> {
    let lists = ["\"reasoning_details\"", "\"thinking_blocks\""];
    let mut joined = record.handed_out();
    joined.retain(|hop| lists.iter().any(|list| hop.contains(list)));
    joined
}

/// Splits which of all calls stay into the client's calls that stay and the hidden calls that go
/// back in. Places count the client's calls and the hidden calls before that stay, so that those
/// left out don't shift the others.
fn split_calls<'e>(edit: &mut AssistantEdit<'e>, kept: &[bool], arguments: &[(usize, &'e str)]) {
    // All hidden calls are waiting in `insert`; those that stay are put back one by one.
    let hidden = std::mem::take(&mut edit.insert);
    let mut client = Vec::with_capacity(kept.len());
    let mut rest = hidden.into_iter().peekable();
    for (at, keep) in kept.iter().enumerate() {
        match rest.next_if(|hidden| hidden.place == at) {
            Some(hidden) if *keep => {
                let place = client.len() + edit.insert.len();
                edit.insert.push(Insert { place, ..hidden });
            }
            Some(hidden) => {
                let place = client.len() + edit.insert.len();
                edit.left_out.push(Insert { place, ..hidden });
            }
            None => {
                let new = arguments.iter().find(|(place, _)| *place == at);
                edit.arguments
                    .extend(new.map(|(_, new)| (client.len(), *new)));
                client.push(*keep);
            }
        }
    }
    edit.keep_calls = Some(client);
}
