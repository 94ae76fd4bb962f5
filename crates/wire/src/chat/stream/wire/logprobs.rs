//! The tokens that a chunk tells of beside what it says (`logprobs`): whether they are those of the
//! text that the client reads, and how the lists of several hops become one. It never decides what
//! the client reads.

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit, Object, Span};

use super::chunk::{Chunk, ReasoningPart, is_nothing};
use crate::json::{self, Node};

/// The members of `logprobs` that list the tokens of a text and of a refusal.
const SAID: [&str; 2] = ["content", "refusal"];

impl Chunk<'_> {
    /// The span of its `logprobs`; `None` if they tell of no token.
    pub fn tokens(&self) -> Option<Span> {
        let span = self.choice.as_ref()?.span("logprobs")?;
        let logprobs = self.bytes(&span);
        let empty = match Object::parse(logprobs) {
            Ok(object) => values(&object).all(is_nothing),
            Err(_) => is_nothing(logprobs),
        };
        (!empty).then_some(span)
    }

    /// The span of `logprobs` whose tokens are not those of what the chunk says. Some servers tell
    /// of the tokens of calls as well, and nothing says which tokens those are.
    pub fn stray_tokens(&self) -> Option<Span> {
        let span = self.tokens()?;
        let Ok(object) = Object::parse(self.bytes(&span)) else {
            return Some(span);
        };
        let strings = self.strings();
        let is_said = |list| spelt(list).is_some_and(|text| strings.contains(&text));
        let all_said = values(&object)
            .filter(|list| !is_nothing(list))
            .all(is_said);
        (!all_said).then_some(span)
    }

    /// The lists of the tokens of its text and of its refusal; none if the hop `hides` a call whose tokens may be in them.
    pub fn lists_of_tokens(&self, hides: bool) -> [Option<Span>; 2] {
        let own = self.own_tokens(hides);
        let logprobs = own.and_then(|span| Node::at(self.data, &span));
        SAID.map(|key| {
            let list = logprobs.as_ref()?.span(key)?;
            self.bytes(&list).starts_with(b"[").then_some(list)
        })
    }

    /// The edit that makes the lists of several hops one, and keeps what else the `logprobs` tell.
    pub fn tokens_edit(&self, hops: &[&[Option<Bytes>; 2]], hides: bool) -> Option<Edit> {
        let own = self.own_tokens(hides);
        let mut logprobs = own.map_or_else(
            || Bytes::from_static(br#"{"content":null,"refusal":null}"#),
            |own| Bytes::copy_from_slice(self.bytes(&own)),
        );
        for (at, key) in SAID.into_iter().enumerate() {
            let lists = hops.iter().filter_map(|hop| hop.get(at)?.as_ref());
            let inner = lists.map(|list| {
                list.get(1..list.len().saturating_sub(1))
                    .unwrap_or_default()
            });
            let inner: Vec<&[u8]> = inner.filter(|list| !list.trim_ascii().is_empty()).collect();
            if !inner.is_empty() {
                let before = Object::parse(&logprobs).ok()?;
                logprobs = json::with(&before, key, &json::list(&inner));
            }
        }
        Some(self.choice.as_ref()?.set("logprobs", &logprobs))
    }

    /// The span of its `logprobs`, unless they may tell of a hidden call.
    fn own_tokens(&self, hides: bool) -> Option<Span> {
        self.tokens()
            .filter(|_| !hides || self.stray_tokens().is_none())
    }

    /// The strings that it says, each by itself.
    fn strings(&self) -> Vec<String> {
        let reasoning = self.reasoning().into_iter();
        let reasoning = reasoning.filter_map(|(_, part)| match part {
            ReasoningPart::Text(span) => Some(span),
            ReasoningPart::Items(_) => None,
        });
        let spans = [self.text(), self.refusal()].into_iter().flatten();
        let spans = spans.chain(reasoning);
        spans.map(|span| raw::unescape(self.bytes(&span))).collect()
    }
}

fn values<'a>(object: &'a Object<'_>) -> impl Iterator<Item = &'a [u8]> {
    let members = object.members().iter();
    members.map(|member| json::value(object, member))
}

/// The text that a list of tokens spells; `None` if it is no list of tokens.
fn spelt(list: &[u8]) -> Option<String> {
    let tokens = json::array(list)?;
    let tokens = tokens.map(|token| {
        let token = Object::parse(token).ok()?;
        Some(token.text("token")?.into_owned())
    });
    tokens.collect()
}
