//! What a view names of what it does not show: item ids such as `read:3,5,7-10` and names of
//! episodes. Read from the text that the model sees, so that nothing counts as recoverable that
//! it could not ask for.

/// Item ids of one tool: a name and a range of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The tool's name, or the kind of text.
    pub name: Box<str>,
    /// The first number.
    pub first: u32,
    /// The last number.
    pub last: u32,
}

/// All item ids that a text names.
#[must_use]
pub fn ids(text: &str) -> Vec<Ids> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    for colon in memchr::memchr_iter(b':', bytes) {
        let before = bytes.get(..colon).unwrap_or_default();
        let length = before
            .iter()
            .rev()
            .take_while(|byte| is_name(**byte))
            .count();
        let name = text.get(colon - length..colon).unwrap_or_default();
        let list = text.get(colon + 1..).unwrap_or_default();
        if !name.is_empty() && list.starts_with(|c: char| c.is_ascii_digit()) {
            read_list(name, list, &mut found);
        }
    }
    found
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// `3,5,7-10`, up to whatever else follows.
fn read_list(name: &str, list: &str, found: &mut Vec<Ids>) {
    let end = list.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '-');
    let list = list.get(..end.unwrap_or(list.len())).unwrap_or_default();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
            let name = name.into();
            found.push(Ids { name, first, last });
        }
    }
}

/// Whether a text names an episode: its name with no letter, digit, `-` or `_` on either side.
#[must_use]
pub fn names(text: &str, episode: &str) -> bool {
    let inside = |byte: Option<&u8>| byte.is_some_and(|b| is_name(*b) && *b != b'.');
    !episode.is_empty()
        && memchr::memmem::find_iter(text.as_bytes(), episode).any(|at| {
            let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
            let after = text.as_bytes().get(at + episode.len());
            !inside(before) && !inside(after)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_the_forms_that_notes_have() {
        for (text, expect) in [
            (
                "evicted 9 items, 2.1k tokens: Read:3,5,7-10 Bash:12",
                "Read:3-3 Read:5-5 Read:7-10 Bash:12-12",
            ),
            (
                "auto-7: evicted 1 items, 9 tokens: mcp__x.get-y:8",
                "mcp__x.get-y:8-8",
            ),
            ("evicted Read:12", "Read:12-12"),
            ("recall(\"Read:4\")", "Read:4-4"),
            ("at 12:30, a: b, ::5", "12:30-30"),
            ("nothing", ""),
        ] {
            let found: Vec<String> = ids(text)
                .iter()
                .map(|ids| format!("{}:{}-{}", ids.name, ids.first, ids.last))
                .collect();
            assert_eq!(found.join(" "), expect, "{text}");
        }
    }

    #[test]
    fn an_episode_is_named_by_its_whole_name() {
        for (text, name, expect) in [
            ("expl \"auth\": found it", "auth", true),
            ("- auto-7: x", "auto-7", true),
            ("- auto-71: x", "auto-7", false),
            ("closed expl \"my-auth\"", "auth", false),
            ("anything", "", false),
        ] {
            assert_eq!(names(text, name), expect, "{text}");
        }
    }
}
