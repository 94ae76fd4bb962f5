//! Whether a call names a file, by which settings choose calls. Never reads a result.

use super::originals::Originals;
use crate::session::index::ItemIndex;

/// Whether the arguments of a call name one of these files.
pub(super) fn names_one(files: &[String], call: ItemIndex, originals: Originals<'_>) -> bool {
    if files.is_empty() {
        return false;
    }
    let arguments = originals.text(call);
    let arguments = arguments.as_deref().map_or("", |text| text);
    files.iter().any(|name| is_named(arguments, name))
}

/// Whether some arguments name a file: nothing that could be part of its name stands beside it.
fn is_named(arguments: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.';
    arguments.match_indices(name).any(|(at, _)| {
        let before = arguments
            .get(..at)
            .and_then(|text| text.chars().next_back());
        let behind = arguments.get(at + name.len()..);
        let behind = behind.and_then(|text| text.chars().next());
        !before.is_some_and(part) && !behind.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_whole_name() {
        for arguments in [
            r#"{"path":"AGENTS.md"}"#,
            r#"{"path":"/a/b/AGENTS.md"}"#,
            "cat ./AGENTS.md",
        ] {
            assert!(is_named(arguments, "AGENTS.md"), "{arguments}");
        }
        for arguments in [r#"{"path":"MY_AGENTS.md"}"#, "AGENTS.md.bak", ""] {
            assert!(!is_named(arguments, "AGENTS.md"), "{arguments}");
        }
    }
}
