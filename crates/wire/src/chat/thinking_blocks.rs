//! The blocks of thinking that LiteLLM puts beside `reasoning_content`, in the form of Messages, and hands back to
//! Anthropic's models as they came (<https://docs.litellm.ai/docs/reasoning_content>). Reads them and tells those of
//! earlier hops from the newest one's; never decides what is removed.

use std::borrow::Cow;
use std::collections::HashSet;

use plimsoll_model::raw::Object;

use crate::json::{self, ListEdit};

/// The field of a message that holds the blocks.
pub const FIELD: &str = "thinking_blocks";

/// The texts of the blocks in a field, and how many bytes of thinking only the provider can read. The details that
/// OpenRouter gives have the same form under other names. A block that is `other` is no thought.
pub fn read<'a>(
    object: &Object<'a>,
    field: &str,
    other: &mut dyn FnMut(&Object<'_>) -> bool,
) -> (Vec<Cow<'a, str>>, usize) {
    let (mut thoughts, mut sealed) = (Vec::new(), 0);
    let blocks = json::elements(object.present(field).unwrap_or_default());
    let blocks = blocks.filter_map(|block| Object::parse(block).ok());
    for block in blocks.filter(|block| !other(block)) {
        let words = ["thinking", "text", "summary"].iter();
        let mut words = words.filter_map(|name| block.text(name));
        match words.find(|text| !text.is_empty()) {
            Some(text) => thoughts.push(text),
            // Where no words are shown, they are in what is sealed.
            None => sealed += seal(&block).map_or(0, |seal| seal.len()),
        }
    }
    (thoughts, sealed)
}

/// What only the provider can read of a block.
fn seal<'a>(block: &Object<'a>) -> Option<Cow<'a, str>> {
    let seal = block.text("signature").or_else(|| block.text("data"))?;
    Some(seal).filter(|seal| !seal.is_empty())
}

/// The edit that leaves the blocks of a message without those that earlier hops had shown, which its client puts in front of
/// the newest hop's. `None` if nothing changes.
pub fn newest(object: &Object<'_>, joined: &[&str]) -> Option<ListEdit> {
    let list = object.present(FIELD)?;
    let hops = joined
        .iter()
        .filter_map(|hop| Object::parse(hop.as_bytes()).ok());
    // A set, because nothing limits how many blocks there are on either side.
    let mut shown = HashSet::new();
    for hop in hops {
        let blocks = json::objects(hop.present(FIELD).unwrap_or_default());
        shown.extend(blocks.filter_map(|block| seal(&block).map(Cow::into_owned)));
    }
    // Most messages have no earlier hops, and their blocks need not be read.
    if shown.is_empty() {
        return None;
    }
    let blocks: Vec<&[u8]> = json::elements(list).collect();
    let is_new = |block: &&&[u8]| {
        let block = Object::parse(block).ok();
        let seal = block.as_ref().and_then(seal);
        seal.is_none_or(|seal| !shown.contains(seal.as_ref()))
    };
    let left = blocks.iter().filter(is_new);
    let left: Vec<&&[u8]> = left.collect();
    (left.len() < blocks.len()).then(|| ListEdit::leaving(&left))
}
