//! Learns which kinds of edits an upstream refuses, for each tenant and model. Learns only from
//! what happened to views: one was refused, and the same view without some edits was accepted; or it was
//! refused in words that no other refusal has. Keeps this until the process ends. Records keep for good what
//! their session knew. Never sends anything.

use parking_lot::Mutex;
use plimsoll_model::{Digest, EditKind, Edits, TenantId};
use plimsoll_wire::Dialect;
use quick_cache::unsync::Cache;
use serde_json::Value;

/// How many pairs of a tenant and a model are remembered. Those used longest ago are dropped first.
const MODELS_HELD: usize = 4_096;
/// How many characters of a model's name are kept.
const NAME_CHARS: usize = 128;
/// After how many refusals in a row an accepted edit is suspected again. An upstream may change
/// what it refuses, but one that refuses at random hardly does so this often in a row.
const SUSPECT_AFTER: u8 = 5;
/// How many chance refusals count at most. Each of them demands one more refusal before anything is
/// learned.
const MOST_CHANCE: u8 = 3;
/// After how many accepted views one chance refusal is forgotten.
const FORGET_AFTER: u8 = 32;
/// How deep in the JSON of a refusal words are searched.
const JSON_DEPTH: usize = 8;
/// The members of a refusal that say what is wrong. Other members may quote the request.
const TELLING_MEMBERS: [&str; 10] = [
    "message", "param", "code", "type", "error", "errors", "detail", "msg", "loc", "raw",
];

/// The words of a refusal of thoughts that something changed before. No other refusal has them
/// (`platform.claude.com/docs/en/build-with-claude/preserved-thinking`).
const BOUND: &str = "bound to a different conversation";

/// The words by which a refusal shows that it is about a kind of edit. The most specific kind comes
/// first. Refusals name fields of the wire format, whatever the language of their text.
const KIND_WORDS: [(EditKind, &[&str]); 11] = [
    (EditKind::Usage, &["stream_options", "include_usage"]),
    (
        EditKind::Diagnosis,
        &[
            "diagnostics",
            "prompt_cache_options",
            "comparison_response_id",
            "previous_message_id",
        ],
    ),
    (
        EditKind::Breakpoints,
        &["cache_control", "cachepoint", "prompt_cache_breakpoint"],
    ),
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
    (EditKind::Hidden, HIDDEN_TOOL_NAMES),
    (EditKind::Tools, HIDDEN_TOOL_NAMES),
    (EditKind::Results, &["tool_result", "call_output"]),
    (EditKind::Guidance, SYSTEM_WORDS),
    (EditKind::GuidanceAmong, SYSTEM_WORDS),
    (
        EditKind::GuidanceAmong,
        &[
            "unexpected role \"system\"",
            "role: input should be 'user' or 'assistant'",
        ],
    ),
];

/// The words of a refusal of a system text, or of one where it stands.
const SYSTEM_WORDS: &[&str] = &[
    "system role",
    "system message",
    "system instruction",
    "system_instruction",
    "system prompt",
    "developer role",
    "developer message",
    "developer instruction",
    "'system' role",
    "`system` role",
    "role 'system'",
    "role `system`",
    "role: system",
];

/// The words by which a refusal shows that it is about what stands beside the hidden tools in this conversation: so many
/// tools, or others than ours, are too much. It has one of each. What it teaches holds for the conversation alone.
const BESIDE_TOOLS: [&[&str]; 2] = [
    &["tool", "function"],
    &[
        "strict",
        "mixed",
        "too many",
        "too long",
        "at most",
        "maximum",
        "number of",
        "limit",
    ],
];

/// The names of hidden tools, quoted as a refusal quotes them. Without quotes, a parser's message
/// such as `Expecting ',' delimiter` would match.
const HIDDEN_TOOL_NAMES: &[&str] = &[
    "'delimiter'",
    "`delimiter`",
    "\"delimiter\"",
    "'recall'",
    "`recall`",
    "\"recall\"",
    "plimsoll_",
];

/// Whether a refusal is of thoughts that something changed before.
pub(super) fn refuses_thoughts(refusal: &[u8]) -> bool {
    said(refusal).contains(BOUND)
}

/// The texts of a refusal, in lower case.
fn said(refusal: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(refusal) {
        Ok(value) => {
            let mut text = String::new();
            tell(&value, JSON_DEPTH, &mut text);
            text
        }
        Err(_) => String::from_utf8_lossy(refusal).into_owned(),
    };
    text.to_lowercase()
}

/// The first kind among `among` that a refusal names, and whether it is about the conversation.
fn named(among: Edits, refusal: &[u8]) -> Option<(EditKind, bool)> {
    let text = said(refusal);
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let found = KIND_WORDS
        .iter()
        .find(|(kind, words)| among.has(*kind) && says(words));
    let beside = || among.has(EditKind::Tools) && BESIDE_TOOLS.into_iter().all(says);
    match found {
        Some((kind, _)) => Some((*kind, false)),
        None => beside().then_some((EditKind::Tools, true)),
    }
}

/// Collects the texts in a refusal, one per line.
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
                // OpenRouter puts the provider's own refusal into `metadata`.
                if TELLING_MEMBERS.contains(&key.as_str()) || key == "metadata" {
                    tell(value, depth - 1, text);
                }
            }
        }
        Value::Array(_) | Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The model of an upstream in one dialect, as one tenant meets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TenantModel {
    tenant: TenantId,
    dialect: Dialect,
    model: String,
}

impl TenantModel {
    /// The model with this name.
    pub(super) fn new(tenant: TenantId, dialect: Dialect, model: &str) -> Self {
        let model = model.chars().take(NAME_CHARS).collect();
        Self {
            tenant,
            dialect,
            model,
        }
    }

    /// A digest of all three.
    pub(super) fn digest(&self) -> Digest {
        let tenant = self.tenant.0.as_bytes();
        Digest::of(&[
            tenant,
            self.dialect.name().as_bytes(),
            self.model.as_bytes(),
        ])
    }
}

/// What a model did with the edits of a tenant's views.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// The edits that views go without.
    without: Edits,
    /// The edits that stood in a view that was accepted.
    accepted: Edits,
    /// How often a view was refused with a kind of edit and accepted without it, since a view with
    /// that kind was last accepted.
    doubts: [u8; EditKind::ALL.len()],
    /// How many refusals in a row no suspect explains.
    stuck: u8,
    /// How many recent refusals hit a view whose edits had all been accepted before. Such an
    /// upstream refuses by chance, so more refusals are needed to learn from it.
    chance: u8,
    /// How many views were accepted since the last of those.
    calm: u8,
    /// The edits among `without` that no refusal has named.
    unnamed: Edits,
    /// How many views were accepted without those since one was last tried again.
    spared: u8,
}

impl Habits {
    /// The kinds that are in doubt.
    fn doubted(&self) -> Edits {
        self.doubted_more_than(0)
    }

    /// The kinds that were doubted more often than `times`.
    fn doubted_more_than(&self, times: u8) -> Edits {
        let kinds = EditKind::ALL.into_iter().zip(self.doubts);
        let doubted = kinds.filter(|(_, doubts)| *doubts > times);
        doubted.map(|(kind, _)| kind).collect()
    }

    /// Doubts edits once more. Learns and returns those that were doubted often enough.
    fn doubt(&mut self, edits: Edits) -> Edits {
        for (kind, doubts) in EditKind::ALL.into_iter().zip(&mut self.doubts) {
            *doubts = doubts.saturating_add(u8::from(edits.has(kind)));
        }
        let often = self.doubted_more_than(1 + self.chance.min(MOST_CHANCE));
        let new = self.learn(edits.and(often));
        (self.unnamed, self.spared) = (self.unnamed.or(new), 0);
        new
    }

    /// What a conversation goes without. Where it begins, one edit is tried again that nothing has named, after views
    /// enough without it: it may have been blamed for another.
    fn spare(&mut self, begins: bool) -> Edits {
        let blamed = self.unnamed.iter().next();
        match blamed.filter(|_| begins && self.spared >= FORGET_AFTER) {
            None => self.without,
            Some(kind) => {
                self.spared = 0;
                self.without.without([kind].into_iter().collect())
            }
        }
    }

    fn learn(&mut self, edits: Edits) -> Edits {
        let new = edits.without(self.without);
        self.without = self.without.or(edits);
        self.clear(edits);
        new
    }

    /// Removes all doubt about edits.
    fn clear(&mut self, edits: Edits) {
        for (kind, doubts) in EditKind::ALL.into_iter().zip(&mut self.doubts) {
            if edits.has(kind) {
                *doubts = 0;
            }
        }
    }
}

/// The edits that the next try of a view goes without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspects {
    /// The edits.
    pub edits: Edits,
    /// Whether the refusal named them.
    named: bool,
    /// Whether they are refused for what stands beside them in the conversation.
    beside: bool,
}

/// What was learned, for each tenant and model.
pub struct Learned(Mutex<Cache<TenantModel, Habits>>);

impl Default for Learned {
    fn default() -> Self {
        Self(Mutex::new(Cache::new(MODELS_HELD)))
    }
}

impl Learned {
    fn at<T>(&self, whose: &TenantModel, run: impl FnOnce(&mut Habits) -> T) -> T {
        let mut known = self.0.lock();
        let mut habits = known.get(whose).copied().unwrap_or_default();
        let value = run(&mut habits);
        known.insert(whose.clone(), habits);
        value
    }

    /// The edits that views of a conversation with a model go without. `begins` says whether nothing is known of it.
    pub(super) fn without(&self, whose: &TenantModel, begins: bool) -> Edits {
        let mut known = self.0.lock();
        let habits = known.get_mut(whose);
        habits
            .map(|mut habits| habits.spare(begins))
            .unwrap_or_default()
    }

    /// Learns that the upstream refuses thoughts that something changed before. One refusal that says so is
    /// enough, whatever was accepted before.
    pub(super) fn binds(&self, whose: &TenantModel) -> Edits {
        let thoughts = Edits::from_iter([EditKind::Thoughts]);
        self.at(whose, |habits| habits.learn(thoughts));
        thoughts
    }

    /// Whether the upstream accepted a view with such an edit.
    pub(super) fn has_accepted(&self, whose: &TenantModel, kind: EditKind) -> bool {
        let known = self.0.lock();
        let habits = known.get(whose).copied();
        habits.unwrap_or_default().accepted.has(kind)
    }

    /// The edits to suspect after a view with `edits` was refused. That is the kind that the
    /// refusal names, unless others are in doubt already. Otherwise it is every kind that never
    /// stood in an accepted view.
    ///
    /// Returns `None` if nothing is left to suspect. If the refusal names nothing and the client's
    /// own request can still be sent, it also returns `None` at first, because most refused views
    /// would be refused as the client sent them, too.
    pub(super) fn suspects(
        &self,
        whose: &TenantModel,
        edits: Edits,
        refusal: &[u8],
        own_may_do: bool,
    ) -> Option<Suspects> {
        let named = named(edits, refusal);
        // A doubt is followed up before a new suspicion, so that each try answers one question.
        self.at(whose, |habits| {
            let doubted = edits.and(habits.doubted());
            let named =
                named.filter(|(kind, beside)| *beside || doubted.is_empty() || doubted.has(*kind));
            if let Some((kind, beside)) = named {
                return Some(Suspects {
                    edits: [kind].into_iter().collect(),
                    named: true,
                    beside,
                });
            }
            // The client's own request tells more: if that is accepted, an edit is at fault.
            if own_may_do && doubted.is_empty() {
                return None;
            }
            let edits = edits.without(habits.accepted).or(doubted);
            (!edits.is_empty()).then_some(Suspects {
                edits,
                named: false,
                beside: false,
            })
        })
    }

    /// Notes that a view with these edits was accepted, so none of them is what the upstream
    /// refuses.
    pub(super) fn accepted(&self, whose: &TenantModel, edits: Edits) {
        if !edits.is_empty() {
            self.at(whose, |habits| {
                habits.accepted = habits.accepted.or(edits);
                habits.clear(edits);
                let innocent = habits.unnamed.and(edits);
                habits.without = habits.without.without(innocent);
                habits.unnamed = habits.unnamed.without(innocent);
                habits.spared = habits.spared.saturating_add(1);
                habits.stuck = 0;
                habits.calm = habits.calm.saturating_add(1);
                if habits.calm >= FORGET_AFTER {
                    (habits.chance, habits.calm) = (habits.chance.saturating_sub(1), 0);
                }
            });
        }
    }

    /// Notes that a view was refused, and accepted without the suspects. Returns what that teaches.
    /// An edit that the refusal names is learned at once, unless it stood in an accepted view. Any
    /// other edit is learned when this happens twice in a row, or more often if the upstream was
    /// seen to refuse by chance. What is refused for what stands beside it is the conversation's to know.
    pub(super) fn explained(&self, whose: &TenantModel, suspects: Suspects) -> Edits {
        if suspects.beside {
            return suspects.edits;
        }
        self.at(whose, |habits| {
            let mut certain = Edits::default();
            if suspects.named {
                certain = suspects.edits.without(habits.accepted);
            }
            let new = habits.learn(certain);
            new.or(habits.doubt(suspects.edits.without(certain)))
        })
    }

    /// Notes that a view with these edits was refused, and the client's own request was accepted.
    /// Returns what that teaches, once it happened often enough in a row. If all the edits had been
    /// accepted before, they are suspected again after some refusals in a row.
    pub(super) fn unexplained(&self, whose: &TenantModel, edits: Edits) -> Edits {
        self.at(whose, |habits| {
            let fresh = edits.without(habits.accepted);
            habits.stuck = habits.stuck.saturating_add(1);
            // Nothing new can be at fault, so the upstream refuses by chance.
            if fresh.is_empty() {
                (habits.chance, habits.calm) = (habits.chance.saturating_add(1), 0);
            }
            if habits.stuck >= SUSPECT_AFTER {
                habits.accepted = habits.accepted.without(edits);
                habits.stuck = 0;
            }
            habits.doubt(fresh)
        })
    }
}

#[cfg(test)]
mod tests;
