//! The response object: what it reports of a hop, and how it is written anew for a client that was
//! shown something else. It repeats the request that the upstream was sent, tools and instructions
//! included, so it is never passed on unread where something was injected.

use bytes::Bytes;

use super::item::Item;
use super::node::{Node, lossy};
use super::usage;
use crate::dialect::answer::Answer;
use crate::dialect::names::Names;
use crate::dialect::stream::{Echo, Spec};
use crate::model::Usage;
use crate::model::raw::{self, Edit, Span};

/// Who a turn's response is, as its first hop says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The response's id as raw JSON.
    id: Option<Bytes>,
    /// Its creation time as raw JSON.
    created: Option<Bytes>,
}

impl Origin {
    /// The response's id, decoded; empty if it has none.
    pub(super) fn id(&self) -> String {
        self.id.as_deref().map(lossy).unwrap_or_default()
    }
}

/// A response object in a body or in an event's data.
pub(super) struct Response<'a>(Node<'a>);

impl<'a> Response<'a> {
    /// The response that a whole body is; `None` if it is something else.
    pub(super) fn of_body(body: &'a [u8]) -> Option<Self> {
        let node = Node::root(body)?;
        node.elements("output")?;
        Some(Self(node))
    }

    /// The response that an event brings.
    pub(super) fn of_event(event: &Node<'a>) -> Option<Self> {
        event.child("response").map(Self)
    }

    /// Who it is.
    pub(super) fn origin(&self) -> Origin {
        let raw = |key: &str| self.0.object.present(key).map(Bytes::copy_from_slice);
        Origin {
            id: raw("id"),
            created: raw("created_at"),
        }
    }

    /// Puts what it says of itself into an answer: who spoke, the usage, and how it ended.
    pub(super) fn tell(&self, answer: &mut Answer) {
        let object = &self.0.object;
        let text = |key: &str| object.text(key).map(std::borrow::Cow::into_owned);
        answer.id = text("id").or(answer.id.take());
        answer.model = text("model").or(answer.model.take());
        answer.created = self.created().or(answer.created);
        answer.usage = self.usage().or(answer.usage);
    }

    /// How the hop ended, in the words that all dialects share; `None` where it failed.
    pub(super) fn finish(&self) -> Option<String> {
        let status = self.0.object.text("status");
        match status.as_deref() {
            Some("failed" | "cancelled") => None,
            Some("incomplete") => Some(self.cause().to_owned()),
            Some(_) | None => Some("stop".to_owned()),
        }
    }

    /// What cut the hop off. All that the model did not end itself counts as its limit, but for a
    /// filter.
    fn cause(&self) -> &'static str {
        let details = self.0.child("incomplete_details");
        let reason = details.and_then(|details| details.object.text("reason"));
        match reason.as_deref() {
            Some("content_filter") => "content_filter",
            Some(_) | None => "length",
        }
    }

    /// The items of its output.
    pub(super) fn items(&self) -> Vec<&'a [u8]> {
        let spans = self.0.elements("output").unwrap_or_default();
        spans.iter().map(|span| self.0.bytes(span)).collect()
    }

    fn created(&self) -> Option<u64> {
        let raw = std::str::from_utf8(self.0.object.raw("created_at")?).ok()?;
        // Some servers send a fraction.
        raw.split('.').next()?.parse().ok()
    }

    fn usage(&self) -> Option<Usage> {
        Some(usage::read(&self.0.child("usage")?))
    }

    /// The edits that make it repeat what the client sent, not what the upstream was sent.
    pub(super) fn echo_edits(&self, spec: &Spec) -> Vec<Edit> {
        let mut edits: Vec<Edit> = self
            .tool_cuts(&spec.hidden)
            .into_iter()
            .map(|cut| (cut, Bytes::new()))
            .collect();
        let Echo {
            instructions,
            limit,
            previous,
        } = &spec.echo;
        edits.extend(self.own_edit("instructions", instructions.as_deref()));
        edits.extend(self.own_edit("max_output_tokens", limit.as_deref()));
        edits.extend(self.own_edit("previous_response_id", previous.as_deref()));
        edits
    }

    fn tool_cuts(&self, hidden: &Names) -> Vec<Span> {
        let tools = self.0.elements("tools").unwrap_or_default();
        let ours = |tool: &Span| {
            let Some(tool) = Item::read(self.0.bytes(tool)) else {
                return false;
            };
            tool.names(hidden)
        };
        let gone: Vec<bool> = tools.iter().map(ours).collect();
        raw::remove_spans(&tools, |place| gone.get(place) == Some(&true))
    }

    /// The client's own value in the place of one that says something else. What the client left
    /// out the proxy did not put in, so that the upstream's word on it stands.
    fn own_edit(&self, key: &str, own: Option<&[u8]>) -> Option<Edit> {
        let (own, said) = (own?, self.0.object.raw(key)?);
        if raw::string(said).is_some_and(|said| raw::string(own) == Some(said)) {
            return None;
        }
        self.0.replace(key, own)
    }

    /// The edits that give it the id and the time of the turn's first hop.
    pub(super) fn origin_edits(&self, origin: &Origin) -> Vec<Edit> {
        let put = |key: &str, value: &Option<Bytes>| self.0.replace(key, value.as_deref()?);
        let edits = [put("id", &origin.id), put("created_at", &origin.created)];
        edits.into_iter().flatten().collect()
    }

    /// The edits that put these counts in the place of its own.
    pub(super) fn usage_edits(&self, counts: &Usage) -> Vec<Edit> {
        let usage = self.0.child("usage");
        usage.map_or_else(Vec::new, |usage| usage::write(&usage, counts))
    }

    /// The edit that gives it these items as its output.
    pub(super) fn output_edit(&self, items: &[Bytes]) -> Edit {
        self.0.set("output", &array(items))
    }

    /// The error that it failed with, as raw JSON.
    pub(super) fn error(&self) -> Option<&'a [u8]> {
        self.0.object.present("error")
    }
}

fn array(items: &[Bytes]) -> Vec<u8> {
    let mut array = vec![b'['];
    array.extend_from_slice(&items.join(&b','));
    array.push(b']');
    array
}
