//! The edits of a message in any wire format, and what the formats' editors share. Never decides
//! what to edit.

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit, Object};
use plimsoll_model::{Digest, Handed};

use super::json;

/// The digest of a text without its white space: some clients trim texts, or put white space
/// between texts that they join.
#[must_use]
pub fn bare(text: &str) -> Digest {
    let words: String = text.split_whitespace().collect();
    Digest::of(&[b"bare", words.as_bytes()])
}

/// The rest of a client's text behind a text that it was shown, if it joined the two: without the
/// white space that it may have put between them.
#[must_use]
pub fn behind<'t>(text: &'t str, shown: &str) -> Option<&'t str> {
    let rest = text.trim_start().strip_prefix(shown.trim())?;
    Some(rest.trim_start())
}

/// A user message with another text for its content, in any format.
#[must_use]
pub fn user_message_saying(unit: &[u8], text: &str) -> Option<Bytes> {
    Some(json::with_text(&Object::parse(unit).ok()?, "content", text))
}

/// A system message of the proxy's own, in Chat Completions and Responses.
pub fn system_message(block: &str) -> Bytes {
    message_of("system", block)
}

/// A message of a role with this text for its content.
pub fn message_of(role: &str, text: &str) -> Bytes {
    let text = raw::quote(text);
    Bytes::from(format!(r#"{{"role":"{role}","content":{text}}}"#))
}

/// How the client's unit relates to a turn that ended at the hop cap, whose record keeps every hop
/// whole: the unit must say exactly what was `handed` out, and call nothing.
pub fn handed_at_cap(said: &str, calls: bool, handed: &str) -> Handed {
    match !calls && bare(said) == bare(handed) {
        true => Handed::All,
        false => Handed::Changed,
    }
}

/// The edits that set members of a call to these values, each as JSON.
pub fn set_members<const COUNT: usize>(
    call: &Object<'_>,
    members: [(&str, Option<String>); COUNT],
) -> Vec<Edit> {
    let members = members.into_iter();
    let set = members.filter_map(|(key, new)| Some(call.set(key, new?.as_bytes())));
    set.collect()
}

/// What to change in an assistant message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantEdit<'a> {
    /// What earlier hops handed out, to be cut from the front.
    pub cut: Cut<'a>,
    /// Messages of earlier hops whose lists of thoughts the client may have joined to its own.
    pub joined: Vec<&'a str>,
    /// Whether all text is removed.
    pub drop_text: bool,
    /// A line that takes the place of all text.
    pub text: Option<&'a str>,
    /// Whether reasoning is removed.
    pub drop_reasoning: bool,
    /// Whether another model made the message than the one that reads it. Then all reasoning and
    /// all signatures of calls are removed, because only the other model's provider can read them.
    pub foreign: bool,
    /// Which of the client's calls stay; all if it is `None`.
    pub keep_calls: Option<Vec<bool>>,
    /// Hidden calls that are put back, in order.
    pub insert: Vec<Insert<'a>>,
    /// Hidden calls that stay out, each with the place that it would have among the others.
    pub left_out: Vec<Insert<'a>>,
    /// New arguments of the message's own calls, by index.
    pub arguments: Vec<(usize, &'a str)>,
    /// New names of the message's own calls, by index.
    pub names: Vec<(usize, &'a str)>,
    /// New ids of the message's own calls, by index.
    pub ids: Vec<(usize, &'a str)>,
}

/// What to change in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallEdit<'a> {
    /// Its new id.
    pub id: Option<&'a str>,
    /// Its new name.
    pub name: Option<&'a str>,
    /// Its new arguments.
    pub arguments: Option<&'a str>,
    /// Whether the members are removed that only its own provider can read.
    pub bare: bool,
}

impl<'a> AssistantEdit<'a> {
    /// Whether the client's call of an index stays.
    pub(super) fn keeps_call(&self, index: usize) -> bool {
        let keep = self.keep_calls.as_ref();
        keep.is_none_or(|keep| keep.get(index).copied().unwrap_or(true))
    }

    /// The edit of the call with this index; `None` if nothing changes.
    #[must_use]
    pub fn of_call(&self, index: usize) -> Option<CallEdit<'a>> {
        let new = |all: &[(usize, &'a str)]| {
            let found = all.iter().find(|(at, _)| *at == index);
            found.map(|(_, new)| *new)
        };
        let edit = CallEdit {
            id: new(&self.ids),
            name: new(&self.names),
            arguments: new(&self.arguments),
            bare: self.foreign,
        };
        (edit != CallEdit::default()).then_some(edit)
    }
}

/// What earlier hops of a turn handed out. The client sends it back as the front of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut<'a> {
    /// Their text as the client got it, seams included.
    pub text: &'a str,
    /// Their messages as they are stored, if they were not joined to one text.
    pub hops: Vec<&'a str>,
}

/// A hidden call that goes back into its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insert<'a> {
    /// Its place among all calls of the message.
    pub place: usize,
    /// Its place among all blocks of its hop, and the number of those.
    pub block: Option<(u32, u32)>,
    /// The call as it is sent.
    pub bytes: &'a str,
    /// Whether reasoning of its message signed it. At the client that reasoning signs the next
    /// call.
    pub signed: bool,
    /// Whether another model made it than the one that reads it.
    pub foreign: bool,
}
