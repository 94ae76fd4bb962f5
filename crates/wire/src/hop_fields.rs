//! What of a client's request holds for which hops of its turn. The first hop is sent every member as
//! the client set it, and so is each later hop, but for what the table of its format names. Owns what a
//! table says and how it changes a body; the tables stand with their formats (`hops.rs`). Never reads a
//! conversation.

use bytes::Bytes;
use plimsoll_model::raw::{self, Edit, Object};

/// What a format has to say about later hops.
#[derive(Clone, Copy, Debug)]
pub struct HopFields {
    /// Members that hold for the first hop alone. Later hops go without them.
    pub first_only: &'static [&'static str],
    /// The least token limit that the API takes at all.
    pub least_limit: u64,
    /// Members that a token limit may not fall below. Hops share the client's limit, and what is left
    /// of it for a later one still has to fit the client's own settings.
    pub below_limit: &'static [BelowLimit],
    /// The member by which the next request goes on with what the provider keeps for an answer.
    pub handle: Option<&'static str>,
}

/// A demand on the token limit.
#[derive(Debug)]
pub enum BelowLimit {
    /// The number at this path, and so many tokens more.
    Number(&'static [&'static str], u64),
    /// A member with this word as its value stands for so many tokens.
    Word(&'static [&'static str], &'static str, u64),
}

/// What a later hop is sent that the client did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaterHop {
    /// What is left of the client's token limit.
    pub limit: Option<u64>,
    /// The handle that the newest answer gave.
    pub handle: Option<String>,
}

impl HopFields {
    /// The least limit that a request may have. A client's own limit that is lower was taken as it is.
    pub fn least(&self, object: &Object<'_>, limit: u64) -> u64 {
        let demands = self.below_limit.iter().filter_map(|below| match below {
            BelowLimit::Number(path, more) => at(object, path, Object::number)?.checked_add(*more),
            BelowLimit::Word(path, word, tokens) => {
                let said = at(object, path, |holder, key| holder.text(key))?;
                (said == *word).then_some(*tokens)
            }
        });
        let least = demands.max().unwrap_or_default();
        least.min(limit).max(self.least_limit)
    }

    /// The edits that make a request that of a later hop, but for its limit.
    pub fn edits(&self, object: &Object<'_>, later: &LaterHop) -> Vec<Edit> {
        let members = object.members();
        let goes = |place: usize| {
            let key = members.get(place).map(|member| member.key.as_ref());
            key.is_some_and(|key| self.first_only.contains(&key))
        };
        let cuts = object.remove_spans(goes).into_iter();
        let mut edits: Vec<Edit> = cuts.map(|cut| (cut, Bytes::new())).collect();
        if let (Some(key), Some(handle)) = (self.handle, &later.handle) {
            let handle = raw::quote(handle);
            // What else the client says of it holds for each hop.
            edits.push(match (object.child(key), object.get(key)) {
                (Some(own), Some(span)) => {
                    let (at, new) = own.set("id", handle.as_bytes());
                    (raw::shift(&at, span.start), new)
                }
                _ => object.set(key, handle.as_bytes()),
            });
        }
        edits
    }
}

/// Reads the value at a path.
fn at<'a, T>(
    object: &Object<'a>,
    path: &[&str],
    read: impl Fn(&Object<'a>, &str) -> Option<T>,
) -> Option<T> {
    match path {
        [] => None,
        [key] => read(object, key),
        [key, rest @ ..] => at(&object.child(key)?, rest, read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn least(dialect: Dialect, members: &str, limit: u64) -> u64 {
        let body = format!("{{{members}}}");
        let object = Object::parse(body.as_bytes()).unwrap();
        dialect.hop_fields().least(&object, limit)
    }

    #[test]
    fn a_limit_stays_above_what_else_a_client_asks() {
        use Dialect::{Chat, Messages, Responses};
        for (dialect, members, limit, want) in [
            (Chat, "", 500, 1),
            (Messages, "", 500, 1),
            (Responses, "", 500, 16),
            (
                Chat,
                r#""thinking":{"type":"enabled","budget_tokens":1024}"#,
                5000,
                1025,
            ),
            (
                Messages,
                r#""thinking":{"type":"enabled","budget_tokens":1024}"#,
                5000,
                1025,
            ),
            (Chat, r#""reasoning":{"max_tokens":2000}"#, 5000, 2001),
            (Responses, r#""reasoning":{"max_tokens":2000}"#, 5000, 2001),
            (Chat, r#""reasoning":{"effort":"low"}"#, 5000, 1025),
            (Chat, r#""reasoning_effort":"high""#, 5000, 4097),
            (Chat, r#""min_tokens":400"#, 5000, 400),
            (
                Chat,
                r#""min_tokens":400,"thinking":{"budget_tokens":1024}"#,
                5000,
                1025,
            ),
            (
                Chat,
                r#""min_tokens":null,"thinking":7,"reasoning":{}"#,
                5000,
                1,
            ),
            // The provider took the client's own limit, so it takes that again.
            (Messages, r#""thinking":{"budget_tokens":9000}"#, 4000, 4000),
            (
                Chat,
                r#""min_tokens":18446744073709551615,"thinking":{"budget_tokens":18446744073709551615}"#,
                7,
                7,
            ),
        ] {
            assert_eq!(least(dialect, members, limit), want, "{members}");
        }
    }

    #[track_caller]
    fn check(dialect: Dialect, body: &str, handle: Option<&str>, want: &str) {
        let object = Object::parse(body.as_bytes()).unwrap();
        let later = LaterHop {
            limit: None,
            handle: handle.map(str::to_owned),
        };
        let mut edits = dialect.hop_fields().edits(&object, &later);
        edits.sort_by_key(|(span, _)| span.start);
        assert_eq!(raw::splice(body.as_bytes(), &edits), want);
    }

    #[test]
    fn a_handle_goes_on() {
        let id = Some("c\"1");
        check(
            Dialect::Messages,
            r#"{"a":1}"#,
            id,
            r#"{"a":1,"container":"c\"1"}"#,
        );
        check(
            Dialect::Messages,
            r#"{"container":null}"#,
            id,
            r#"{"container":"c\"1"}"#,
        );
        check(
            Dialect::Messages,
            r#"{"container":"old","a":1}"#,
            id,
            r#"{"container":"c\"1","a":1}"#,
        );
        check(
            Dialect::Messages,
            r#"{"container": {"id":null,"skills":[1]}}"#,
            id,
            r#"{"container": {"id":"c\"1","skills":[1]}}"#,
        );
        check(
            Dialect::Messages,
            r#"{"container":{"skills":[1]}}"#,
            id,
            r#"{"container":{"skills":[1],"id":"c\"1"}}"#,
        );
        check(
            Dialect::Messages,
            r#"{"container":{"skills":[1]}}"#,
            None,
            r#"{"container":{"skills":[1]}}"#,
        );
        check(Dialect::Chat, r#"{"a":1}"#, id, r#"{"a":1}"#);
    }

    #[test]
    fn what_holds_for_the_first_hop_alone_is_left_out() {
        check(
            Dialect::Chat,
            r#"{"request_id":"r","messages":[],"add_generation_prompt":false,"continue_final_message":true}"#,
            None,
            r#"{"messages":[]}"#,
        );
        check(
            Dialect::Responses,
            r#"{"input":[], "request_id":"r"}"#,
            None,
            r#"{"input":[]}"#,
        );
    }
}
