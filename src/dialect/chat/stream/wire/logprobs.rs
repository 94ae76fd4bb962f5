//! The tokens that a chunk tells of beside what it says. Knows whether they are those of what the
//! client reads, and how those of several hops are put together; never decides whether they are.

use bytes::Bytes;

use super::{Chunk, Node, ReasoningPart, is_nothing};
use crate::model::raw::{self, Edit, Object, Span};

impl Chunk<'_> {
    /// Where it tells of tokens; `None` where it tells of none.
    pub(super) fn tokens(&self) -> Option<Span> {
        let span = self.choice.as_ref()?.span("logprobs")?;
        let told = self.bytes(&span);
        let empty = match Object::parse(told) {
            Ok(object) => values(&object).all(is_nothing),
            Err(_) => is_nothing(told),
        };
        (!empty).then_some(span)
    }

    /// Where it tells of tokens that are not those of what it says. Some servers tell of the tokens
    /// of calls as well, and nothing says which are which.
    pub(in crate::dialect::chat::stream) fn stray_tokens(&self) -> Option<Span> {
        let span = self.tokens()?;
        let Ok(object) = Object::parse(self.bytes(&span)) else {
            return Some(span);
        };
        let said = self.strings();
        let is_said = |list| spelt(list).is_some_and(|text| said.contains(&text));
        let all_said = values(&object)
            .filter(|list| !is_nothing(list))
            .all(is_said);
        (!all_said).then_some(span)
    }

    /// The list of the tokens of its text; none where it `hides` a call of which it may tell too.
    pub(in crate::dialect::chat::stream) fn text_tokens(&self, hides: bool) -> Option<Span> {
        if hides && self.stray_tokens().is_some() {
            return None;
        }
        let told = Node::at(self.data, &self.tokens()?)?;
        told.span("content")
            .filter(|list| self.bytes(list).starts_with(b"["))
    }

    /// The edit that has it tell of these lists of tokens as one, and of what else it tells.
    pub(in crate::dialect::chat::stream) fn tokens_edit(
        &self,
        lists: &[&Bytes],
        hides: bool,
    ) -> Option<Edit> {
        let inner = |list: &&Bytes| {
            list.get(1..list.len().saturating_sub(1))
                .unwrap_or_default()
                .to_vec()
        };
        let lists = lists
            .iter()
            .map(inner)
            .filter(|list| !list.trim_ascii().is_empty());
        let lists: Vec<Vec<u8>> = lists.collect();
        let list = [b"[", lists.join(&b","[..]).as_slice(), b"]"].concat();
        let own = self
            .tokens()
            .filter(|_| !hides || self.stray_tokens().is_none());
        let own = own.map_or(&br#"{"content":null,"refusal":null}"#[..], |own| {
            self.bytes(&own)
        });
        let (span, value) = Object::parse(own).ok()?.set("content", &list);
        let told = raw::splice(own, &[(span, value)]);
        let choice = self.choice.as_ref()?;
        Some(choice.shifted(choice.object.set("logprobs", &told)))
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
    members.filter_map(|member| object.bytes().get(member.value.clone()))
}

/// What a list of tokens spells; `None` where it is none.
fn spelt(list: &[u8]) -> Option<String> {
    let spans = raw::array(list).ok()?.into_iter();
    let tokens = spans.map(|span| {
        let token = Object::parse(list.get(span)?).ok()?;
        Some(token.text("token")?.into_owned())
    });
    tokens.collect()
}
