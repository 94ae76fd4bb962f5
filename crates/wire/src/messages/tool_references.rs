//! The tools that the conversation of a Messages request refers to. A search for tools answers with
//! their names, and a tool of a server is declared nowhere else in the request. Never reads what a tool
//! is.

use std::collections::BTreeSet;

use memchr::memmem;
use plimsoll_model::raw::Object;

use crate::json;

/// The type of a reference, as no other type stands in JSON.
const REFERENCE: &str = "tool_reference";

/// The names of all tools that the messages refer to.
pub fn names<'a>(messages: impl Iterator<Item = &'a [u8]>) -> BTreeSet<String> {
    let finder = memmem::Finder::new(REFERENCE);
    let mut names = BTreeSet::new();
    // Few conversations search for tools, so few messages are read for it.
    for message in messages.filter(|message| finder.find(message).is_some()) {
        let Ok(message) = Object::parse(message) else {
            continue;
        };
        for block in json::objects(message.present("content").unwrap_or_default()) {
            collect(&block, &mut names);
        }
    }
    names
}

/// The references of one block: a result of the client's lists them as its content, and a search of the
/// provider's in an object there.
fn collect(block: &Object<'_>, names: &mut BTreeSet<String>) {
    let Some(content) = block.present("content") else {
        return;
    };
    let inner = Object::parse(content).ok();
    let found = inner.and_then(|found| found.present("tool_references"));
    let listed = json::objects(found.unwrap_or(content));
    let references = listed.filter(|one| one.text("type").as_deref() == Some(REFERENCE));
    names.extend(references.filter_map(|one| Some(one.text("tool_name")?.into_owned())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_that_a_search_found_have_names() {
        let messages = [
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"tool_reference"},{"type":"tool_reference","tool_name":"recall"}]}]}"#,
            r#"{"role":"assistant","content":[{"type":"tool_search_tool_result","tool_use_id":"b","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"delimiter"},{"type":"other","tool_name":"no"}]}}]}"#,
            r#"{"role":"user","content":"{\"type\":\"tool_reference\",\"tool_name\":\"text\"}"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","input":{"content":[{"type":"tool_reference","tool_name":"argument"}]}}]}"#,
            "tool_reference",
        ];
        let found = names(messages.iter().map(|message| message.as_bytes()));
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["delimiter", "recall"]
        );
    }
}
