//! What may be changed in a message, whatever its wire format. Never changes one itself.

use crate::model::Digest;

/// A text without white space as a digest, for clients that trim texts or put some between those
/// that they join.
#[must_use]
pub fn bare(text: &str) -> Digest {
    let words: String = text.split_whitespace().collect();
    Digest::of(&[b"bare", words.as_bytes()])
}

/// What is left of a client's text behind one that it was shown, where it joined the two: without
/// the white space that it may have put between them.
#[must_use]
pub fn behind<'t>(text: &'t str, shown: &str) -> Option<&'t str> {
    let rest = text.trim_start().strip_prefix(shown.trim())?;
    Some(rest.trim_start())
}

/// What to change in an assistant message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantEdit<'a> {
    /// What to cut from the front: what earlier hops handed out.
    pub cut: Cut<'a>,
    /// Messages of earlier hops whose `reasoning_details` the client may have joined to its own.
    pub joined: Vec<&'a str>,
    /// Whether all text goes.
    pub drop_text: bool,
    /// What stands in place of all text.
    pub text: Option<&'a str>,
    /// Whether reasoning fields go.
    pub drop_reasoning: bool,
    /// Whether reasoning stays where something of its message goes, even in a dialect that binds it
    /// to its place among all that was said.
    pub keep_reasoning: bool,
    /// Whether another model made it than the one that reads it: then what only its own provider can
    /// read goes, all reasoning and what signs calls.
    pub foreign: bool,
    /// Which of the client's calls stay; all where it is `None`.
    pub keep_calls: Option<Vec<bool>>,
    /// Hidden calls that go back in, in order.
    pub insert: Vec<Insert<'a>>,
    /// Hidden calls that stay out, each with the place that it would have among the others.
    pub left_out: Vec<Insert<'a>>,
    /// New arguments of the message's own calls, by index.
    pub arguments: Vec<(usize, &'a str)>,
    /// New names of the message's own calls, by index.
    pub names: Vec<(usize, &'a str)>,
}

/// What to change in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallEdit<'a> {
    /// Its new name.
    pub name: Option<&'a str>,
    /// Its new arguments.
    pub arguments: Option<&'a str>,
    /// Whether what only its own provider can read goes.
    pub bare: bool,
}

impl<'a> AssistantEdit<'a> {
    /// What changes in the call of an index; none where nothing does.
    #[must_use]
    pub fn of_call(&self, index: usize) -> Option<CallEdit<'a>> {
        let new = |all: &[(usize, &'a str)]| {
            let found = all.iter().find(|(at, _)| *at == index);
            found.map(|(_, new)| *new)
        };
        let edit = CallEdit {
            name: new(&self.names),
            arguments: new(&self.arguments),
            bare: self.foreign,
        };
        (edit != CallEdit::default()).then_some(edit)
    }
}

/// What earlier hops of a turn handed out, and the client sends back as the front of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut<'a> {
    /// Their text as the client got it, seams included.
    pub text: &'a str,
    /// Their messages as they are stored, where they were not glued into one text.
    pub hops: Vec<&'a str>,
}

/// A hidden call that goes back into its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insert<'a> {
    /// Its place among all calls of the message.
    pub place: usize,
    /// Its place among all blocks of its hop, and how many those were.
    pub block: Option<(u32, u32)>,
    /// The call as it is sent.
    pub bytes: &'a str,
    /// Whether reasoning of its message signed it, which at the client signs the next call.
    pub signed: bool,
    /// Whether another model made it than the one that reads it.
    pub foreign: bool,
}
