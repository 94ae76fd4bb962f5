//! A request of any wire format: what all formats have of it ([`RequestFields`]), what only its own
//! format knows, and how its body is written anew. Never reads a format itself.

use std::ops::{Deref, Range};

use bytes::Bytes;
use plimsoll_model::raw::{Edit, Object};
use plimsoll_model::{Role, Rope};

use super::diagnosis::{self, Compared};
use super::edit::AssistantEdit;
use super::list::{Around, UnitArray};
use super::messages::message_list::MessageList;
use super::responses::Echo;
use super::responses::request::References;
use super::{chat, messages, responses};
use crate::Dialect;

pub use super::hop_fields::LaterHop;
pub use super::list::{Addition, Breakpoint, Splice, UpstreamView};
pub use super::request_fields::{Limit, RequestError, RequestFields, Unmanaged};

/// A request: its bytes and where things lie in them. The fields of [`RequestFields`] are its own.
#[derive(Clone, Debug)]
pub struct Request {
    fields: RequestFields,
    format: FormatPart,
}

/// What only the request's own format knows.
#[derive(Clone, Debug)]
enum FormatPart {
    Chat,
    Responses(References),
    Messages(messages::request::Hosts),
}

impl Deref for Request {
    type Target = RequestFields;

    fn deref(&self) -> &RequestFields {
        &self.fields
    }
}

/// What a request refers to, found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The units of the conversation up to the response that it goes on from, that one included.
    pub before: Vec<Bytes>,
    /// The items that it names, in its order.
    pub items: Vec<Bytes>,
}

/// What a request refers to and is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The response that it goes on from.
    Response,
    /// An item that it names.
    Item,
}

impl Lost {
    /// The word that says why such a request is not managed.
    #[must_use]
    pub const fn word(self) -> Unmanaged {
        match self {
            Self::Response => Unmanaged::PreviousResponseId,
            Self::Item => Unmanaged::ItemReference,
        }
    }
}

impl Request {
    /// Reads a body.
    pub(super) fn decode(dialect: Dialect, body: Bytes) -> Result<Self, RequestError> {
        Ok(match dialect {
            Dialect::Chat => Self {
                fields: chat::request::decode(body)?,
                format: FormatPart::Chat,
            },
            Dialect::Responses => Self::of_responses(responses::request::decode(body)?),
            Dialect::Messages => {
                let (fields, hosts) = messages::request::decode(body)?;
                let format = FormatPart::Messages(hosts);
                Self { fields, format }
            }
        })
    }

    fn of_responses((fields, references): (RequestFields, References)) -> Self {
        let format = FormatPart::Responses(references);
        Self { fields, format }
    }

    /// The request with everything that it refers to in place, as if that had stood there from the
    /// start. `None` if a part of it can't be read.
    #[must_use]
    pub fn expand(&self, found: &Found) -> Option<Self> {
        let FormatPart::Responses(references) = &self.format else {
            return None;
        };
        let (before, items) = (&found.before, &found.items);
        let expanded = responses::references::expand(self, references, before, items)?;
        Some(Self::of_responses(expanded))
    }

    /// Whether it refers to anything.
    #[must_use]
    pub fn refers(&self) -> bool {
        self.previous_response().is_some() || self.named_items().next().is_some()
    }

    /// The id of the response that it goes on from.
    #[must_use]
    pub fn previous_response(&self) -> Option<&str> {
        self.references()?.response.as_deref()
    }

    /// The ids of the items that it only names, in order.
    pub fn named_items(&self) -> impl Iterator<Item = &str> {
        let items = self.references().into_iter().flat_map(|own| &own.items);
        items.map(|(_, id)| id.as_str())
    }

    /// What a response to it repeats; empty in a format whose responses repeat nothing.
    #[must_use]
    pub fn echo(&self) -> Echo {
        let references = self.references();
        references.map(|own| own.echo.clone()).unwrap_or_default()
    }

    fn references(&self) -> Option<&References> {
        match &self.format {
            FormatPart::Responses(references) => Some(references),
            FormatPart::Chat | FormatPart::Messages(_) => None,
        }
    }

    /// The list of messages as it is written anew, empty so far.
    #[must_use]
    pub fn splice(&self) -> Box<dyn Splice + '_> {
        let around: Around = match &self.format {
            FormatPart::Messages(hosts) => return Box::new(MessageList::new(self, hosts)),
            FormatPart::Chat => |_| Default::default(),
            FormatPart::Responses(_) => responses::request::around,
        };
        let units = self.messages.as_slice().into();
        Box::new(UnitArray::new(self, units, around))
    }

    /// The body without the thoughts of its answers. `None` if there are none.
    #[must_use]
    pub fn without_thoughts(&self) -> Option<Rope> {
        let edit = AssistantEdit {
            drop_reasoning: true,
            ..AssistantEdit::default()
        };
        let mut list = self.splice();
        let mut any = false;
        for at in 0..self.messages.len() {
            let unit = self.message(at);
            let said = self.dialect.parse(unit).ok();
            let said = said.filter(|said| said.role == Role::Assistant);
            let less = said.and_then(|_| self.dialect.assistant(unit, &edit));
            match less.filter(|less| less != unit) {
                None => list.client(at),
                Some(less) => {
                    any = true;
                    // A message that was nothing but thoughts is left out.
                    if !less.is_empty() {
                        list.edited(at, &less);
                    }
                }
            }
        }
        let rewrite = Rewrite {
            view: list.close(),
            tools: None,
            ask_usage: false,
            compared: None,
            later: None,
        };
        any.then(|| self.with(rewrite))
    }

    /// The body with another view, other tools and what the upstream must be told besides.
    /// Everything else keeps its bytes, and is shared with the client's body.
    #[must_use]
    pub fn with(&self, parts: Rewrite) -> Rope {
        let mut edits: Vec<Edit> = parts.view.edits;
        // Tools that are declared in the conversation come with it.
        if let (Some(span), Some(tools), None) =
            (&self.tools.place, parts.tools, self.tools_inside())
        {
            let behind_bracket = span.start + 1;
            edits.push((behind_bracket..behind_bracket, tools));
        }
        // The body was walked once already; only requests that need more edits pay for another
        // walk.
        let asks = parts.ask_usage || parts.compared.is_some();
        if (asks || parts.later.is_some())
            && let Ok(object) = Object::parse(&self.body)
        {
            if parts.ask_usage && self.dialect == Dialect::Chat {
                edits.push(chat::request::ask_usage(&object));
            }
            if let Some(compared) = &parts.compared {
                edits.push(diagnosis::ask(self.dialect, &object, compared));
            }
            if let Some(later) = &parts.later {
                edits.extend(self.dialect.hop_fields().edits(&object, later));
                if let (Some(limit), Some(left)) = (self.limit, later.limit) {
                    edits.push(object.set(limit.field, left.to_string().as_bytes()));
                }
            }
        }
        edits.sort_by_key(|(span, _)| span.start);
        let span = &self.messages_span;
        let (before, after): (Vec<Edit>, Vec<Edit>) = edits
            .into_iter()
            .partition(|(edit, _)| edit.end <= span.start);
        let mut rope = Rope::default();
        self.share(&mut rope, 0..span.start, before);
        rope.append(parts.view.messages);
        self.share(&mut rope, span.end..self.body.len(), after);
        rope
    }

    /// Appends a part of the body with edits in order.
    fn share(&self, rope: &mut Rope, part: Range<usize>, edits: Vec<Edit>) {
        let mut done = part.start;
        for (span, new) in edits {
            rope.share(self.body.slice(done.min(span.start)..span.start));
            rope.share(new);
            done = span.end;
        }
        rope.share(self.body.slice(done.min(part.end)..part.end));
    }
}

/// What replaces parts of a body.
#[derive(Debug)]
pub struct Rewrite {
    /// The conversation.
    pub view: UpstreamView,
    /// What is put in front of the client's tools, behind the bracket that opens them, if they stand
    /// beside the conversation.
    pub tools: Option<Bytes>,
    /// Whether to ask for the usage chunk of a stream.
    pub ask_usage: bool,
    /// What the provider compares the request with, to say why its cache missed. `None` if it is not asked.
    pub compared: Option<Compared>,
    /// What a later hop is sent otherwise than the first. `None` for the first.
    pub later: Option<LaterHop>,
}
