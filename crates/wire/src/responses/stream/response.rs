//! The response object: what it reports of a hop, and how it is written anew for a client that was
//! shown something else. It repeats the request that the upstream was sent, tools and instructions
//! included, so it is never passed on unread where something was injected.

use bytes::Bytes;
use plimsoll_model::Usage;
use plimsoll_model::raw::{self, Edit, Span};

use super::output_item::OutputItem;
use super::usage::COUNTS;
use crate::answer::Answer;
use crate::json::{self, Node, lossy};
use crate::names::Names;

/// Values of the client's request that a response repeats and that the proxy may have changed, as
/// raw JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Echo {
    /// Its `instructions`.
    pub instructions: Option<Bytes>,
    /// Its token limit.
    pub limit: Option<Bytes>,
    /// Its `previous_response_id`.
    pub previous: Option<Bytes>,
}

/// The identity of a turn's response, as its first hop tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The response's id as raw JSON.
    id: Option<Bytes>,
    /// Its creation time as raw JSON.
    created: Option<Bytes>,
}

impl Origin {
    /// The response's id, decoded; empty if it has none.
    pub fn id(&self) -> String {
        self.id.as_deref().map(lossy).unwrap_or_default()
    }
}

/// A response object in a body or in an event's data.
pub struct Response<'a>(Node<'a>);

impl<'a> Response<'a> {
    /// The response that a whole body is; `None` if it is something else.
    pub fn of_body(body: &'a [u8]) -> Option<Self> {
        let node = Node::root(body)?;
        node.elements("output")?;
        Some(Self(node))
    }

    /// The response that an event brings.
    pub fn of_event(event: &Node<'a>) -> Option<Self> {
        event.child("response").map(Self)
    }

    /// Its id and its creation time.
    pub fn origin(&self) -> Origin {
        let raw = |key: &str| self.0.object.present(key).map(Bytes::copy_from_slice);
        Origin {
            id: raw("id"),
            created: raw("created_at"),
        }
    }

    /// Puts its id, its model, its creation time and its usage into an answer.
    pub fn add_to(&self, answer: &mut Answer) {
        let object = &self.0.object;
        let text = |key: &str| object.text(key).map(std::borrow::Cow::into_owned);
        answer.id = text("id").or(answer.id.take());
        answer.model = text("model").or(answer.model.take());
        answer.created = self.created().or(answer.created);
        answer.usage = self.usage().or(answer.usage);
    }

    /// How the hop ended, in the words that all formats share; `None` if it failed.
    pub fn finish(&self) -> Option<String> {
        let status = self.0.object.text("status");
        match status.as_deref() {
            Some("failed" | "cancelled") => None,
            Some("incomplete") => Some(self.cause().to_owned()),
            Some(_) | None => Some("stop".to_owned()),
        }
    }

    /// What cut the hop off: a filter, or the token limit, which stands for every other cause.
    fn cause(&self) -> &'static str {
        let details = self.0.child("incomplete_details");
        let reason = details.and_then(|details| details.object.text("reason"));
        match reason.as_deref() {
            Some("content_filter") => "content_filter",
            Some(_) | None => "length",
        }
    }

    /// The items of its output.
    pub fn items(&self) -> Vec<&'a [u8]> {
        let spans = self.0.elements("output").unwrap_or_default();
        spans.iter().map(|span| self.0.bytes(span)).collect()
    }

    fn created(&self) -> Option<u64> {
        let raw = std::str::from_utf8(self.0.object.raw("created_at")?).ok()?;
        // Some servers send a fraction.
        raw.split('.').next()?.parse().ok()
    }

    fn usage(&self) -> Option<Usage> {
        Some(COUNTS.read(&self.0.child("usage")?))
    }

    /// The edits that make it the client's: what it repeats of the request is as the client sent it, and where they
    /// are given, the usage, the identity and the output are these.
    pub fn own_edits(
        &self,
        (hidden, echo): (&Names, &Echo),
        usage: Option<&Usage>,
        origin: Option<&Origin>,
        output: Option<&[Bytes]>,
    ) -> Vec<Edit> {
        let mut edits = self.echo_edits(hidden, echo);
        edits.extend(usage.iter().flat_map(|own| self.usage_edits(own)));
        edits.extend(origin.iter().flat_map(|own| self.origin_edits(own)));
        edits.extend(output.map(|items| self.0.set("output", &json::list(items))));
        edits
    }

    /// The edits that make it repeat what the client sent, not what the upstream was sent.
    pub fn echo_edits(&self, hidden: &Names, echo: &Echo) -> Vec<Edit> {
        let cuts = self.tool_cuts(hidden).into_iter();
        let mut edits: Vec<Edit> = cuts.map(|cut| (cut, Bytes::new())).collect();
        let Echo {
            instructions,
            limit,
            previous,
        } = echo;
        let own = [
            ("instructions", instructions),
            ("max_output_tokens", limit),
            ("previous_response_id", previous),
        ];
        edits.extend(
            own.into_iter()
                .filter_map(|(key, own)| self.own_edit(key, own.as_deref())),
        );
        edits
    }

    fn tool_cuts(&self, hidden: &Names) -> Vec<Span> {
        let tools = self.0.elements("tools").unwrap_or_default();
        let ours = |tool: &Span| {
            let Some(tool) = OutputItem::read(self.0.bytes(tool)) else {
                return false;
            };
            tool.names(hidden)
        };
        let gone: Vec<bool> = tools.iter().map(ours).collect();
        raw::remove_spans(&tools, |place| gone.get(place) == Some(&true))
    }

    /// The edit that puts the client's own value in the place of another one. A value that the
    /// client left out stays as the upstream has it, because the proxy did not put it in.
    fn own_edit(&self, key: &str, own: Option<&[u8]>) -> Option<Edit> {
        let (own, said) = (own?, self.0.object.raw(key)?);
        if raw::string(said).is_some_and(|said| raw::string(own) == Some(said)) {
            return None;
        }
        self.0.replace(key, own)
    }

    /// The edits that give it the id and the time of the turn's first hop.
    fn origin_edits(&self, origin: &Origin) -> Vec<Edit> {
        let put = |key: &str, value: &Option<Bytes>| self.0.replace(key, value.as_deref()?);
        let edits = [put("id", &origin.id), put("created_at", &origin.created)];
        edits.into_iter().flatten().collect()
    }

    /// The edits that replace its usage by these counts.
    fn usage_edits(&self, counts: &Usage) -> Vec<Edit> {
        let usage = self.0.child("usage");
        usage.map_or_else(Vec::new, |usage| COUNTS.write(&usage, counts))
    }

    /// The error that it failed with, as raw JSON.
    pub fn error(&self) -> Option<&'a [u8]> {
        self.0.object.present("error")
    }
}
