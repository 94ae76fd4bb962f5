//! The row of the list of sessions: what is shown of a session without reading its records. Owns its
//! form, which every later version must read. Never holds content.

use serde::{Deserialize, Serialize};

use super::{Digest, HourSums, RecordId, SplitPlace, TenantId, TurnSums};

/// What the list says of a session. Each turn writes it anew, and the newest stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The name under which the client knows the session, or the name of a branch of it.
    pub session: String,
    /// Whose session it is.
    pub tenant: Digest,
    /// The record of its newest turn.
    pub record: RecordId,
    /// The number of that turn on its path, from 1.
    pub turn: u32,
    /// When the first turn of that path ended, in milliseconds since 1970.
    pub began: u64,
    /// When the newest turn ended, in milliseconds since 1970.
    pub ended: u64,
    /// The model that was asked.
    pub model: String,
    /// The name of the parent session, if the client says so. Of a branch it is the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether it is a branch: turns that went on from where the session had gone on otherwise before, as after a rewind or
    /// a second attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub branch: bool,
    /// Whether the newest turn's content is stored.
    pub content: bool,
    /// Tokens of what the client sent, counted and not reported.
    pub client_tokens: u64,
    /// Tokens of the view that was sent last, counted by the same formula. 0 if none was sent.
    pub view_tokens: u64,
    /// The newest turn's sizes.
    pub sizes: RowSizes,
    /// What its turns came to; those of the session before a branch are the session's.
    pub sums: TurnSums,
    /// The profile with which the conversation began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The place of the session in a split. None if it is in no split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitPlace>,
    /// The program that asked last: what stands before the version in its `user-agent`. None if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// What its turns came to by the hour, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hours: Vec<HourSums>,
}

/// The sizes of a session's newest turn, in calibrated tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSizes {
    /// The client's request.
    #[serde(rename = "in")]
    pub tokens_in: u64,
    /// The view that was sent last.
    #[serde(rename = "out")]
    pub tokens_out: u64,
    /// The ceiling.
    #[serde(rename = "tau")]
    pub ceiling: u64,
    /// The floor.
    pub floor: u64,
    /// Whether it was sent above the ceiling.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// Whether the turn was only watched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// By how much the client's requests grew with each of the last turns, in the mean. 0 if they did not.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub growth: u32,
}

fn is_nothing(tokens: &u32) -> bool {
    *tokens == 0
}

impl SessionRow {
    /// The name under which the client knows the session whose turns these are.
    #[must_use]
    pub fn of_session(&self) -> &str {
        match &self.parent {
            Some(session) if self.branch => session,
            Some(_) | None => &self.session,
        }
    }

    /// Which session of which tenant it is: two tenants may give a session the same name.
    #[must_use]
    pub fn identity(tenant: TenantId, session: &str) -> Digest {
        Digest::of(&[b"row of", tenant.0.as_bytes(), session.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::is_fixture;

    #[test]
    fn a_row_is_written_as_its_fixture_and_read_back() {
        let row = SessionRow {
            session: "0011223344556677".to_owned(),
            tenant: Digest([1; 32]),
            record: RecordId(Digest([2; 32])),
            turn: 4,
            began: 1_700_000_000_000,
            ended: 1_700_000_060_000,
            model: "gpt-4o".to_owned(),
            parent: Some("8899aabbccddeeff".to_owned()),
            branch: false,
            content: true,
            client_tokens: 91_000,
            view_tokens: 64_000,
            sizes: RowSizes {
                tokens_in: 165_705,
                tokens_out: 30_356,
                ceiling: 40_000,
                floor: 22_399,
                over: true,
                watched: true,
                growth: 1_500,
            },
            sums: crate::turn_facts::tests::sums(),
            profile: Some("coding".to_owned()),
            split: Some(SplitPlace {
                profile: "review".to_owned(),
                tried: false,
            }),
            agent: Some("claude-cli".to_owned()),
            hours: vec![HourSums {
                hour: 472_222,
                model: Some("gpt-4o-mini".to_owned()),
                turns: 3,
                paid: 0.25,
                whole: 0.75,
                saved: 0.5,
                hidden: 0.125,
                aside: 0.0625,
                sent: 90_000,
                client: 270_000,
            }],
        };
        is_fixture("row", &row);
        let alone = SessionRow {
            parent: None,
            profile: None,
            split: None,
            agent: None,
            hours: Vec::new(),
            sizes: RowSizes {
                growth: 0,
                ..row.sizes
            },
            ..row
        };
        is_fixture("row-alone", &alone);
    }

    #[test]
    fn sessions_of_the_same_name_have_a_row_for_each_tenant() {
        let of = |tenant, name| SessionRow::identity(TenantId(Digest([tenant; 32])), name);
        assert_ne!(of(1, "a"), of(2, "a"));
        assert_ne!(of(1, "a"), of(1, "b"));
        assert_eq!(of(1, "a"), of(1, "a"));
    }
}
