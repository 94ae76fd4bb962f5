//! The list of sessions at the admin listener: reads what is asked, and shows rows as JSON. Owns the
//! parameters, the cursor and the fields. Never reads the store itself, and shows no content, since
//! rows hold none.

use http::StatusCode;
use serde_json::{Value, json};

use crate::model::{Digest, SessionRow};
use crate::store::{Listed, StoreError};

/// How many rows a page has if nothing is asked, and at most.
const ROWS: usize = 100;
const MOST_ROWS: usize = 1000;

/// Reads a page of the list: the rows behind a place, newest first, up to a number.
pub type ListSessions =
    dyn Fn(Option<(u64, Digest)>, usize) -> Result<Vec<Listed>, StoreError> + Send + Sync;

/// A page that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageAsk {
    before: Option<(u64, Digest)>,
    limit: usize,
}

impl PageAsk {
    /// Reads the parameters `before` and `limit`.
    ///
    /// # Errors
    /// What is allowed, in a sentence.
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let mut ask = Self {
            before: None,
            limit: ROWS,
        };
        // No value needs any other character than digits, letters and a hyphen.
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "before" => ask.before = Some(parse_cursor(value)?),
                "limit" => {
                    let limit = value.parse().ok();
                    let limit = limit.filter(|limit| (1..=MOST_ROWS).contains(limit));
                    ask.limit = limit
                        .ok_or_else(|| format!("`limit` is a number from 1 to {MOST_ROWS}"))?;
                }
                other => {
                    return Err(format!(
                        "`{other}` is no parameter of the list; it takes `before` and `limit`"
                    ));
                }
            }
        }
        Ok(ask)
    }

    /// The answer: the rows, and the cursor of the next page if there may be one.
    pub(super) fn answer(&self, list: &ListSessions) -> (StatusCode, Value) {
        let rows = match list(self.before, self.limit) {
            Ok(rows) => rows,
            Err(error) => {
                let message = error.to_string();
                return (
                    StatusCode::SERVICE_UNAVAILABLE,
                    json!({"error": {"message": message}}),
                );
            }
        };
        let last = rows.last().filter(|_| rows.len() == self.limit);
        let next = last.map(|last| cursor(last.place()));
        let sessions: Vec<Value> = rows.iter().filter_map(shown).collect();
        (StatusCode::OK, json!({"sessions": sessions, "next": next}))
    }
}

/// A row as JSON. Leaves out what a newer version wrote in another form.
fn shown(listed: &Listed) -> Option<Value> {
    let row: SessionRow = rmp_serde::from_slice(&listed.row).ok()?;
    Some(json!({
        "session": row.session,
        "tenant": row.tenant.hex(),
        "record": row.record.0.hex(),
        "turn": row.turn,
        "began": row.began,
        "ended": row.ended,
        "model": row.model,
        "parent": row.parent,
        "content": row.content,
        "client_tokens": row.client_tokens,
        "view_tokens": row.view_tokens,
    }))
}

fn cursor((at, session): (u64, Digest)) -> String {
    format!("{at}-{}", session.hex())
}

fn parse_cursor(text: &str) -> Result<(u64, Digest), String> {
    let place = text
        .split_once('-')
        .and_then(|(at, session)| Some((at.parse().ok()?, Digest::parse_hex(session)?)));
    place.ok_or_else(|| format!("`{text}` is not the `next` of an earlier page"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let place = (1_700_000_000_123, Digest([0xa7; 32]));
        let ask = PageAsk::read(&format!("limit=7&before={}", cursor(place))).unwrap();
        assert_eq!((ask.before, ask.limit), (Some(place), 7));
        assert_eq!(PageAsk::read(""), PageAsk::read("limit=100"));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_what_is_allowed() {
        for (query, says) in [
            ("limit=0", "from 1 to 1000"),
            ("limit=1001", "from 1 to 1000"),
            ("limit=ten", "from 1 to 1000"),
            ("before=7", "`7` is not the `next`"),
            ("before=7-zz", "is not the `next`"),
            ("after=7", "`after` is no parameter"),
        ] {
            let told = PageAsk::read(query).unwrap_err();
            assert!(told.contains(says), "{query}: {told}");
        }
    }
}
