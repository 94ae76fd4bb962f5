//! The names that a request's tools go by, so that the proxy's own never meet one. Never changes
//! the array.

use std::ops::Range;

use crate::model::raw::{self, Object};

/// Where the array of tools lies, if there is one with at least one tool, and the names in it.
pub fn read(object: &Object<'_>) -> (Option<Range<usize>>, Vec<String>) {
    let (Some(span), Some(raw)) = (object.get("tools"), object.present("tools")) else {
        return (None, Vec::new());
    };
    let mut names = Vec::new();
    match collect(raw, &mut names) {
        Some(1..) => (Some(span), names),
        Some(0) | None => (None, Vec::new()),
    }
}

/// Collects the names of an array of tools, and tells how many tools those are. A namespace's tools
/// count, too: the model sees one list. A tool without a name is called by its type.
fn collect(raw: &[u8], names: &mut Vec<String>) -> Option<usize> {
    let tools = raw::array(raw).ok()?;
    let count = tools.len();
    for tool in tools {
        let Some(Ok(tool)) = raw.get(tool).map(Object::parse) else {
            continue;
        };
        let name = tool.text("name").or_else(|| tool.text("type"));
        names.extend(name.map(std::borrow::Cow::into_owned));
        if tool.text("type").as_deref() == Some("namespace")
            && let Some(inner) = tool.present("tools")
        {
            collect(inner, names);
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_the_model_sees_is_taken() {
        let body = br#"{"tools":[{"type":"function","name":"read"},{"type":"custom","name":"apply_patch"},{"type":"web_search"},{"type":"namespace","name":"agents","tools":[{"type":"function","name":"delimiter"}]},7]}"#;
        let (span, names) = read(&Object::parse(body).unwrap());
        assert_eq!(span, Some(9..body.len() - 1));
        assert_eq!(
            names,
            ["read", "apply_patch", "web_search", "agents", "delimiter"]
        );
        for none in [&br#"{"tools":[]}"#[..], br#"{"tools":null}"#, b"{}"] {
            assert_eq!(read(&Object::parse(none).unwrap()), (None, Vec::new()));
        }
    }
}
