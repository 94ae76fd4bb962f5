//! The tools that a request declares, wherever they stand: beside its input, or in items of it. The
//! proxy's own never meet one of their names. Never changes an array.

use std::ops::Range;

use plimsoll_model::raw::{self, Object};

use super::item::ItemType;
use crate::request_fields::Tools;

/// How deep tools lie in namespaces. The API knows one level.
const LEVELS: u32 = 4;

/// An array of tools in an item of the input.
pub struct Declared {
    /// What declares it.
    pub kind: ItemType,
    /// The array in the body.
    pub span: Range<usize>,
}

/// The tools of a request. The hidden ones go where the client declares its own: beside the input, or
/// else in the first item that does nothing but declare.
pub fn read(body: &[u8], object: &Object<'_>, declared: &[Declared]) -> Tools {
    let beside = object.present("tools").and(object.get("tools"));
    let beside = beside.into_iter().map(|span| (span, true));
    let inside = declared
        .iter()
        .map(|one| (one.span.clone(), one.kind == ItemType::Tools));
    let mut tools = Tools::default();
    for (span, takes) in beside.chain(inside) {
        let array = body.get(span.clone()).unwrap_or_default();
        if let Some(1..) = collect(array, &mut tools.names, LEVELS) {
            if takes && tools.place.is_none() {
                tools.place = Some(span.clone());
            }
            tools.arrays.push(span);
        }
    }
    tools
}

/// Collects the names of an array of tools, and tells how many tools those are. A namespace's tools
/// count, too: the model sees one list. A tool without a name is called by its type.
fn collect(raw: &[u8], names: &mut Vec<String>, levels: u32) -> Option<usize> {
    let tools = raw::array(raw).ok()?;
    let count = tools.len();
    for tool in tools {
        let Some(Ok(tool)) = raw.get(tool).map(Object::parse) else {
            continue;
        };
        let name = tool.text("name").or_else(|| tool.text("type"));
        names.extend(name.map(std::borrow::Cow::into_owned));
        if levels > 0
            && tool.text("type").as_deref() == Some("namespace")
            && let Some(inner) = tool.present("tools")
        {
            collect(inner, names, levels - 1);
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(body: &[u8], declared: &[Declared]) -> Tools {
        read(body, &Object::parse(body).unwrap(), declared)
    }

    #[test]
    fn every_name_that_the_model_sees_is_taken() {
        let body = br#"{"tools":[{"type":"function","name":"read"},{"type":"custom","name":"apply_patch"},{"type":"web_search"},{"type":"namespace","name":"agents","tools":[{"type":"function","name":"delimiter"}]},7]}"#;
        let read = tools(body, &[]);
        assert_eq!(read.place, Some(9..body.len() - 1));
        assert_eq!(
            read.names,
            ["read", "apply_patch", "web_search", "agents", "delimiter"]
        );
        for none in [&br#"{"tools":[]}"#[..], br#"{"tools":null}"#, b"{}"] {
            assert_eq!(tools(none, &[]), Tools::default());
        }
    }

    #[test]
    fn tools_in_the_input_count_and_the_first_that_are_declared_take_ours() {
        let body = br#"{"tools":[],"input":[[{"name":"a"}],[{"name":"b"}],[{"name":"c"}]]}"#;
        let at = |name: &str| {
            let text = std::str::from_utf8(body).unwrap();
            let start = text.find(&format!(r#"[{{"name":"{name}"}}]"#)).unwrap();
            start..start + 14
        };
        let declared = |name, kind| Declared {
            kind,
            span: at(name),
        };
        let all = [
            declared("a", ItemType::Result),
            declared("b", ItemType::Tools),
            declared("c", ItemType::Tools),
        ];
        let read = tools(body, &all);
        assert_eq!(read.names, ["a", "b", "c"]);
        assert_eq!(read.place, Some(at("b")));
        assert_eq!(read.arrays, [at("a"), at("b"), at("c")]);
        assert_eq!(tools(body, &all[..1]).place, None);
    }

    #[test]
    fn namespaces_in_namespaces_have_an_end() {
        let depth = 20_000;
        let open = r#"[{"type":"namespace","name":"n","tools":"#.repeat(depth);
        let body = format!(r#"{{"tools":{open}[]{}}}"#, "}]".repeat(depth));
        let read = tools(body.as_bytes(), &[]);
        assert_eq!(read.names.len(), LEVELS as usize + 1);
    }
}
