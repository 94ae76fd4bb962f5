//! What upstreams were found to refuse: for a tenant and a model the kinds of edits that its views go
//! without. Told by what happened to views alone: one was refused, and the same without some edits
//! was accepted. Kept here until the process ends; records keep for good what their session knew. Never
//! sends anything.

use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use serde_json::Value;

use crate::model::{Dialect, EditKind, Edits, TenantId};

/// Tenants and models of which something is remembered: those used longest ago go first.
const REMEMBERED: usize = 4_096;
/// Bytes of a model's name that tell it from others.
const NAME: usize = 128;
/// Refusals running after which an edit that was accepted once is suspected again: what an upstream
/// refuses may change, but what it refuses at random hardly comes so often in a row.
const STUCK: u8 = 5;
/// Refusals by chance that count at most, each of which asks for one more before anything is learned.
const MOST_CHANCE: u8 = 3;
/// Views accepted running after which one of those counts no more.
const CALM: u8 = 32;
/// How deep in a refusal words are looked for.
const DEPTH: usize = 8;
/// The members of a refusal that tell what is wrong. Others may hold the request itself.
const TELLING: [&str; 10] = [
    "message", "param", "code", "type", "error", "errors", "detail", "msg", "loc", "raw",
];

/// The words by which a refusal shows that it is about a kind of edit, the most telling kind first.
/// Refusals name fields of the wire format, whatever language their text is in.
const WORDS: [(EditKind, &[&str]); 6] = [
    (EditKind::Breakpoints, &["cache_control", "cachepoint"]),
    (
        EditKind::HopReasoning,
        &[
            "wrong_api_format",
            "invalid_encrypted_content",
            "invalid `signature`",
            "corrupted thought",
            "invalid thought",
            "could not be verified",
        ],
    ),
    (
        EditKind::Reasoning,
        &["reasoning", "thinking", "thought", "signature"],
    ),
    (EditKind::Hidden, OURS),
    (EditKind::Tools, OURS),
    (EditKind::Results, &["tool_result", "call_output"]),
];

/// The names of hidden tools as a refusal quotes them: a parser's `Expecting ',' delimiter` is none.
const OURS: &[&str] = &[
    "'delimiter'",
    "`delimiter`",
    "\"delimiter\"",
    "'recall'",
    "`recall`",
    "\"recall\"",
    "plimsoll_",
];

/// The kind that a refusal names first among some.
fn named(among: Edits, refusal: &[u8]) -> Option<EditKind> {
    let text = match serde_json::from_slice::<Value>(refusal) {
        Ok(value) => {
            let mut text = String::new();
            tell(&value, DEPTH, &mut text);
            text
        }
        Err(_) => String::from_utf8_lossy(refusal).into_owned(),
    };
    let text = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let found = WORDS
        .iter()
        .find(|(kind, words)| among.has(*kind) && says(words));
    found.map(|(kind, _)| *kind)
}

/// Gathers what a refusal says, one line each.
fn tell(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::String(said) => {
            text.push_str(said);
            text.push('\n');
        }
        Value::Array(list) if depth > 0 => {
            list.iter().for_each(|each| tell(each, depth - 1, text));
        }
        Value::Object(members) if depth > 0 => {
            for (key, value) in members {
                if TELLING.contains(&key.as_str()) || key == "metadata" {
                    tell(value, depth - 1, text);
                }
            }
        }
        Value::Array(_) | Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whose habits: those of an upstream's model in one dialect, as a tenant meets them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Whose {
    tenant: TenantId,
    dialect: Dialect,
    model: String,
}

impl Whose {
    /// Of a model, by its name.
    pub(super) fn new(tenant: TenantId, dialect: Dialect, model: &str) -> Self {
        let model = model.chars().take(NAME).collect();
        Self {
            tenant,
            dialect,
            model,
        }
    }
}

/// What an upstream's model did with the edits of a tenant's views.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// What views go without.
    without: Edits,
    /// Edits that stood in a view that was accepted.
    accepted: Edits,
    /// By kind how often a view was refused with it and accepted without it, since one was accepted
    /// that had it.
    doubts: [u8; EditKind::ALL.len()],
    /// Refusals running that nothing suspected explains.
    stuck: u8,
    /// Refusals lately of views all of whose edits had been accepted before: an upstream that refuses
    /// such refuses by chance, so that it takes more to learn from it.
    chance: u8,
    /// Views that were accepted since the last of those.
    calm: u8,
}

impl Habits {
    /// The kinds that are doubted.
    fn doubted(&self) -> Edits {
        self.doubted_more_than(0)
    }

    /// The kinds that were doubted more often than this.
    fn doubted_more_than(&self, times: u8) -> Edits {
        let kinds = EditKind::ALL.into_iter().zip(self.doubts);
        let doubted = kinds.filter(|(_, doubts)| *doubts > times);
        doubted.map(|(kind, _)| kind).collect()
    }

    /// Doubts edits once more, and learns what was doubted often enough. Returns what is new.
    fn doubt(&mut self, edits: Edits) -> Edits {
        for (kind, doubts) in EditKind::ALL.into_iter().zip(&mut self.doubts) {
            *doubts = doubts.saturating_add(u8::from(edits.has(kind)));
        }
        let often = self.doubted_more_than(1 + self.chance.min(MOST_CHANCE));
        self.learn(edits.and(often))
    }

    fn learn(&mut self, edits: Edits) -> Edits {
        let new = edits.without(self.without);
        self.without = self.without.or(edits);
        self.clear(edits);
        new
    }

    /// Doubts edits no longer.
    fn clear(&mut self, edits: Edits) {
        for (kind, doubts) in EditKind::ALL.into_iter().zip(&mut self.doubts) {
            if edits.has(kind) {
                *doubts = 0;
            }
        }
    }
}

/// Which edits one more view goes without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspects {
    /// The edits.
    pub edits: Edits,
    /// Whether the refusal names them.
    named: bool,
}

/// What was found out, by tenant and model.
pub struct Learned(Mutex<Cache<Whose, Habits>>);

impl Default for Learned {
    fn default() -> Self {
        Self(Mutex::new(Cache::new(REMEMBERED)))
    }
}

impl Learned {
    fn at<T>(&self, whose: &Whose, run: impl FnOnce(&mut Habits) -> T) -> T {
        let mut known = self.0.lock();
        let mut habits = known.get(whose).copied().unwrap_or_default();
        let value = run(&mut habits);
        known.insert(whose.clone(), habits);
        value
    }

    /// What views for a model go without.
    pub(super) fn without(&self, whose: &Whose) -> Edits {
        let known = self.0.lock();
        let habits = known.get(whose).copied();
        habits.unwrap_or_default().without
    }

    /// What to suspect of a view with these edits that was refused: the kind that the refusal names,
    /// unless others are doubted by now, else all that no view had that was accepted. None where
    /// nothing is left to suspect, and in silence at first, where the client's own request can be sent:
    /// most of what is refused is refused either way.
    pub(super) fn suspects(
        &self,
        whose: &Whose,
        edits: Edits,
        refusal: &[u8],
        own_may_do: bool,
    ) -> Option<Suspects> {
        let named = named(edits, refusal);
        self.at(whose, |habits| {
            let doubted = edits.and(habits.doubted());
            let named = named.filter(|kind| doubted.is_empty() || doubted.has(*kind));
            if let Some(kind) = named {
                return Some(Suspects {
                    edits: [kind].into_iter().collect(),
                    named: true,
                });
            }
            if own_may_do && doubted.is_empty() {
                return None;
            }
            let edits = edits.without(habits.accepted).or(doubted);
            let named = false;
            (!edits.is_empty()).then_some(Suspects { edits, named })
        })
    }

    /// A view with these edits was accepted: none of them is what is refused.
    pub(super) fn accepted(&self, whose: &Whose, edits: Edits) {
        if !edits.is_empty() {
            self.at(whose, |habits| {
                habits.accepted = habits.accepted.or(edits);
                habits.clear(edits);
                habits.stuck = 0;
                habits.calm = habits.calm.saturating_add(1);
                if habits.calm >= CALM {
                    (habits.chance, habits.calm) = (habits.chance.saturating_sub(1), 0);
                }
            });
        }
    }

    /// A view was refused, and accepted without the suspects. Returns what that teaches: at once what
    /// the refusal names and no view had that was accepted, else what it happens to twice running, or
    /// more often where the upstream was seen to refuse by chance.
    pub(super) fn explained(&self, whose: &Whose, suspects: Suspects) -> Edits {
        self.at(whose, |habits| {
            let mut certain = Edits::default();
            if suspects.named {
                certain = suspects.edits.without(habits.accepted);
            }
            let new = habits.learn(certain);
            new.or(habits.doubt(suspects.edits.without(certain)))
        })
    }

    /// The last view was refused with these edits, while the client's own request, which has none, was
    /// accepted. Returns what that teaches where it happens often enough running. Where all of them were
    /// accepted once, they are suspected again after some refusals in a row.
    pub(super) fn unexplained(&self, whose: &Whose, edits: Edits) -> Edits {
        self.at(whose, |habits| {
            let fresh = edits.without(habits.accepted);
            habits.stuck = habits.stuck.saturating_add(1);
            if fresh.is_empty() {
                (habits.chance, habits.calm) = (habits.chance.saturating_add(1), 0);
            }
            if habits.stuck >= STUCK {
                habits.accepted = habits.accepted.without(edits);
                habits.stuck = 0;
            }
            habits.doubt(fresh)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(crate::model::Digest([7; 32]));

    fn whose(model: &str) -> Whose {
        Whose::new(TENANT, Dialect::Chat, model)
    }

    fn edits(kinds: &[EditKind]) -> Edits {
        kinds.iter().copied().collect()
    }

    /// One view with these edits is refused, and accepted without what is suspected of it, or as the
    /// client's own request.
    fn refused(learned: &Learned, all: Edits, text: &str) -> Edits {
        let body = serde_json::json!({"error": {"message": text}}).to_string();
        match learned.suspects(&whose("m"), all, body.as_bytes(), true) {
            Some(suspects) => learned.explained(&whose("m"), suspects),
            None => learned.unexplained(&whose("m"), all),
        }
    }

    #[test]
    fn what_a_refusal_names_is_learned_at_once() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Reasoning, EditKind::Results]);
        let text = "The `reasoning_content` in the thinking mode must be passed back";
        let only = edits(&[EditKind::Reasoning]);
        assert_eq!(refused(&learned, all, text), only);
        assert_eq!(refused(&learned, all, text), Edits::default(), "told twice");
        assert_eq!(learned.without(&whose("m")), only);
        let others = [
            whose("other"),
            Whose::new(TENANT, Dialect::Messages, "m"),
            Whose::new(TenantId(crate::model::Digest([8; 32])), Dialect::Chat, "m"),
        ];
        assert!(others.iter().all(|other| learned.without(other).is_empty()));
    }

    #[test]
    fn what_nothing_names_is_learned_when_it_happens_twice() {
        let learned = Learned::default();
        learned.accepted(&whose("m"), edits(&[EditKind::Hidden]));
        let all = edits(&[EditKind::Hidden, EditKind::Reasoning, EditKind::Results]);
        assert!(refused(&learned, all, "Invalid request").is_empty());
        let suspected = edits(&[EditKind::Reasoning, EditKind::Results]);
        assert_eq!(refused(&learned, all, "Invalid request"), suspected);
        assert_eq!(learned.without(&whose("m")), suspected);
    }

    #[test]
    fn a_view_that_is_accepted_between_clears_its_edits() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Reasoning, EditKind::Results]);
        for _ in 0..20 {
            assert!(refused(&learned, all, "try again").is_empty());
            learned.accepted(&whose("m"), all);
        }
        let late = refused(&learned, all, "try again");
        assert!(late.is_empty());
    }

    #[test]
    fn what_was_accepted_before_takes_two_refusals_that_name_it() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Reasoning]);
        learned.accepted(&whose("m"), all);
        assert!(refused(&learned, all, "missing thought_signature").is_empty());
        assert_eq!(refused(&learned, all, "missing thought_signature"), all);
    }

    #[test]
    fn an_upstream_that_refuses_by_chance_teaches_later() {
        let learned = Learned::default();
        let (old, new) = (edits(&[EditKind::Tools]), edits(&[EditKind::Results]));
        learned.accepted(&whose("m"), old);
        learned.unexplained(&whose("m"), old);
        assert!(refused(&learned, new, "no").is_empty());
        assert!(refused(&learned, new, "no").is_empty());
        assert_eq!(refused(&learned, new, "no"), new);
        // What lies long back counts no more.
        let (old, new) = (edits(&[EditKind::Hidden]), edits(&[EditKind::Text]));
        for _ in 0..CALM {
            learned.accepted(&whose("m"), old);
        }
        assert!(refused(&learned, new, "no").is_empty());
        assert_eq!(refused(&learned, new, "no"), new);
    }

    #[test]
    fn edits_that_were_accepted_once_are_suspected_again_after_refusals_in_a_row() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Text, EditKind::Arguments]);
        learned.accepted(&whose("m"), all);
        for _ in 0..STUCK {
            assert_eq!(learned.suspects(&whose("m"), all, b"no", false), None);
            assert!(learned.unexplained(&whose("m"), all).is_empty());
        }
        for _ in 0..=MOST_CHANCE {
            assert!(refused(&learned, all, "Invalid request").is_empty());
        }
        assert_eq!(refused(&learned, all, "Invalid request"), all);
    }

    #[test]
    fn only_what_a_refusal_says_counts_and_not_what_it_quotes() {
        let all = edits(&[EditKind::Reasoning, EditKind::Hidden]);
        for (body, expect) in [
            (
                r#"{"error":{"message":"bad","input":{"reasoning_content":"x"}}}"#,
                None,
            ),
            (
                r#"[{"error":{"message":"no thought_signature"}}]"#,
                Some(EditKind::Reasoning),
            ),
            (
                r#"{"error":{"message":"Provider returned error","metadata":{"raw":"{\"m\":\"thinking must be back\"}"}}}"#,
                Some(EditKind::Reasoning),
            ),
            (
                r#"{"error":{"message":"Expecting ',' delimiter: line 1"}}"#,
                None,
            ),
            (
                r#"{"error":{"message":"no tool named `delimiter`"}}"#,
                Some(EditKind::Hidden),
            ),
            ("thinking is required", Some(EditKind::Reasoning)),
        ] {
            assert_eq!(named(all, body.as_bytes()), expect, "{body}");
        }
    }
}
