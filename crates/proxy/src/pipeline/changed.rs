//! What a client changed of what its provider had cached, in its own bytes: for a person who asks why a cache missed. Owns
//! how the change is found and how much of it is kept. In memory alone, and only where content may be shown.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_model::MissCause;
use plimsoll_model::raw::{self, Object};

/// How many changes of a session are kept, the newest.
const MOST: usize = 8;
/// How much of each side of a change is kept, in bytes.
const SIDE_BYTES: usize = 4 << 10;
/// How much that stayed is kept around it on each side, in bytes.
const AROUND_BYTES: usize = 160;

/// What changed from one request to the next. Both sides are JSON as it was sent, cut where they are long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The turn whose request has it.
    pub turn: u32,
    /// What of the request changed.
    pub part: MissCause,
    /// What stood before it on both sides.
    pub same: String,
    /// What stood there in the request of the turn before.
    pub before: String,
    /// What stands there now.
    pub after: String,
    /// What stands behind it on both sides.
    pub behind: String,
}

/// The changes of a session, the newest last.
#[derive(Clone, Debug, Default)]
pub struct Changes(VecDeque<Arc<Change>>);

impl Changes {
    /// With one more. The oldest makes room.
    #[must_use]
    pub fn with(mut self, change: Option<Change>) -> Self {
        if self.0.len() == MOST && change.is_some() {
            self.0.pop_front();
        }
        self.0.extend(change.map(Arc::new));
        self
    }

    /// Each of them, the newest last.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.0.iter().map(Arc::as_ref)
    }

    /// How many bytes they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = self
            .iter()
            .flat_map(|one| [&one.same, &one.before, &one.after, &one.behind]);
        texts.map(String::len).sum::<usize>() + self.0.len() * size_of::<Change>()
    }
}

/// What of two requests this cause is about, as it was sent; empty where one of them has none of it. None for a cause that
/// is not the client's.
fn parts<'a>(cause: MissCause, before: &'a [u8], after: &'a [u8]) -> Option<(&'a str, &'a str)> {
    let members: &[&str] = match cause {
        MissCause::ClientTools => &["tools"],
        // Where the system text has no member of its own, it is the first of the messages.
        MissCause::ClientSystem => &["system", "instructions", "messages", "input"],
        MissCause::ClientHistory => &["messages", "input"],
        _ => return None,
    };
    let (before, after) = (Object::parse(before).ok()?, Object::parse(after).ok()?);
    let has = |member: &&&str| {
        [&before, &after]
            .iter()
            .any(|one| one.present(member).is_some())
    };
    let member = members.iter().find(has)?;
    let text = |one: &Object<'a>| std::str::from_utf8(one.present(member).unwrap_or_default()).ok();
    Some((text(&before)?, text(&after)?))
}

/// What the client changed from one body to the next. None if the cause is none of the client's own, or nothing of it
/// differs.
#[must_use]
pub fn change(cause: MissCause, turn: u32, before: &Bytes, after: &Bytes) -> Option<Change> {
    let (before, after) = parts(cause, before, after)?;
    let from = common(before.bytes(), after.bytes());
    let (from_before, from_after) = (
        before.floor_char_boundary(from),
        after.floor_char_boundary(from),
    );
    let (old, new) = (before.get(from_before..)?, after.get(from_after..)?);
    if old.is_empty() && new.is_empty() {
        return None;
    }
    // What came in shifts what stands behind it. What changed in its place does not, but then a history also grew at
    // its end. Of the two, the one is meant that leaves more as it was.
    let all = (before.len(), after.len());
    let [shifted, in_place] = [all, ends(before, after)].map(|(old_to, new_to)| {
        let old = before.get(from_before..old_to).unwrap_or_default();
        let new = after.get(from_after..new_to).unwrap_or_default();
        let end = common(old.bytes().rev(), new.bytes().rev());
        (end, old.len() - end, new.len() - end)
    });
    let (end, old_to, new_to) = if in_place.0 > shifted.0 {
        in_place
    } else {
        shifted
    };
    let same_to = old.floor_char_boundary(old_to + end);
    let (old_to, new_to) = (
        old.ceil_char_boundary(old_to),
        new.ceil_char_boundary(new_to),
    );
    let around = before.ceil_char_boundary(from_before.saturating_sub(AROUND_BYTES));
    let behind = old.get(old_to..same_to).unwrap_or_default();
    Some(Change {
        turn,
        part: cause,
        same: before.get(around..from_before)?.to_owned(),
        before: cut(old.get(..old_to)?),
        after: cut(new.get(..new_to)?),
        behind: behind
            .get(..behind.floor_char_boundary(AROUND_BYTES))
            .unwrap_or(behind)
            .to_owned(),
    })
}

/// Where two lists end, if each has as many elements as the shorter one; all of what is no list.
fn ends(one: &str, other: &str) -> (usize, usize) {
    let lists = [one, other].map(|text| raw::array(text.as_bytes()).unwrap_or_default());
    let [one_list, other_list] = &lists;
    let alike = one_list.iter().zip(other_list).next_back();
    alike.map_or((one.len(), other.len()), |(one, other)| {
        (one.end, other.end)
    })
}

/// How many bytes two run on alike.
fn common(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> usize {
    one.zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

/// The beginning of a text, and how much is left out.
fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(SIDE_BYTES);
    match text.get(..end) {
        Some(kept) if end < text.len() => format!("{kept} … {} more bytes", text.len() - end),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cause: MissCause, before: &str, after: &str) -> Option<(String, String, String)> {
        let bytes = |text: &str| Bytes::from(text.to_owned());
        let change = change(cause, 7, &bytes(before), &bytes(after))?;
        Some((change.same, change.before, change.after))
    }

    fn told(same: &str, before: &str, after: &str) -> Option<(String, String, String)> {
        Some((same.to_owned(), before.to_owned(), after.to_owned()))
    }

    #[test]
    fn a_clock_in_the_system_text_is_found_in_each_dialect() {
        for member in [r#""system":"#, r#""instructions":"#] {
            let body = |clock: &str| format!(r#"{{{member}"It is {clock} ä.","messages":[]}}"#);
            assert_eq!(
                found(MissCause::ClientSystem, &body("10:00"), &body("10:01")),
                told("\"It is 10:0", "0", "1")
            );
        }
        let chat = |clock: &str| {
            format!(r#"{{"messages":[{{"role":"system","content":"{clock}"}},{{"role":"user"}}]}}"#)
        };
        let (_, before, after) = found(MissCause::ClientSystem, &chat("ü"), &chat("ö")).unwrap();
        // Characters are never cut.
        assert_eq!((before.as_str(), after.as_str()), ("ü", "ö"));
    }

    #[test]
    fn tools_that_came_in_stand_between_what_stayed() {
        assert_eq!(
            found(
                MissCause::ClientTools,
                r#"{"tools":[1,3]}"#,
                r#"{"tools":[1,2,3]}"#
            ),
            told("[1,", "", "2,")
        );
        assert_eq!(
            found(MissCause::ClientTools, "{}", r#"{"tools":[1]}"#),
            told("", "", "[1]")
        );
    }

    #[test]
    fn what_changed_in_its_place_is_told_alone_where_the_history_also_grew() {
        let body = |clock: &str, more: &str| {
            format!(
                r#"{{"messages":[{{"content":"It is {clock}, says the tower."}},{{"content":"a"}}{more}]}}"#
            )
        };
        let (_, before, after) = found(
            MissCause::ClientSystem,
            &body("10:00", ""),
            &body("11:11", r#",{"content":"ab"},{"content":"b"}"#),
        )
        .unwrap();
        assert_eq!((before.as_str(), after.as_str()), ("0:00", "1:11"));
    }

    #[test]
    fn nothing_is_told_of_what_the_client_did_not_change() {
        let body = r#"{"messages":[1]}"#;
        assert_eq!(found(MissCause::Pass, body, r#"{"messages":[2]}"#), None);
        assert_eq!(found(MissCause::ClientHistory, body, body), None);
        assert_eq!(found(MissCause::ClientHistory, "no JSON", body), None);
    }

    #[test]
    fn long_sides_are_cut_and_old_changes_go() {
        let long = |text: &str| format!(r#"{{"tools":"{}"}}"#, text.repeat(100_000));
        let bytes = |text: String| Bytes::from(text);
        let one = change(
            MissCause::ClientTools,
            1,
            &bytes(long("ä")),
            &bytes(long("x")),
        )
        .unwrap();
        assert!(one.before.len() < SIDE_BYTES + 40 && one.before.ends_with("more bytes"));
        let mut changes = Changes::default();
        for turn in 0..20 {
            changes = changes
                .with(Some(Change {
                    turn,
                    ..one.clone()
                }))
                .with(None);
        }
        let turns: Vec<u32> = changes.iter().map(|change| change.turn).collect();
        assert_eq!(turns, (12..20).collect::<Vec<_>>());
        assert!(changes.bytes() < 80 << 10);
    }
}
