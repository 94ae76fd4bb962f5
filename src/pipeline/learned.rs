//! What upstreams were found to refuse: for a tenant and a model the kinds of edits that its views go
//! without. Told by what happened to views alone: one was refused, and the same without some edits
//! was taken. Kept until the process ends; records keep what their turn knew. Never sends anything.

use memchr::memmem;
use parking_lot::Mutex;
use quick_cache::unsync::Cache;

use crate::model::{EditKind, Edits, TenantId};

/// Tenants and models of which something is remembered: those used longest ago go first.
const REMEMBERED: usize = 4_096;
/// Bytes of a model's name that tell it from others.
const NAME: usize = 128;

/// The words by which a refusal shows that it is about a kind of edit, the most telling kind first.
/// Refusals name fields of the wire format, whatever language their text is in.
const WORDS: [(EditKind, &[&str]); 8] = [
    (EditKind::Breakpoints, &["cache_control", "cachepoint"]),
    (
        EditKind::HopReasoning,
        &[
            "unsupported",
            "extra inputs",
            "extra_forbidden",
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
    (EditKind::Arguments, &["arguments", "tool_use.input"]),
    (EditKind::Hidden, OURS),
    (EditKind::Tools, OURS),
    (EditKind::Results, &["tool_result", "call_output"]),
    (EditKind::Text, &["content"]),
];

/// The names of hidden tools as a refusal quotes them: a parser's `Expecting ',' delimiter` is none.
const OURS: &[&str] = &[
    "'delimiter'",
    "`delimiter`",
    "\"delimiter\"",
    "\"delimiter\\\"",
    "'recall'",
    "`recall`",
    "\"recall\"",
    "\"recall\\\"",
];

/// The kind that a refusal names first among some.
fn named(among: Edits, refusal: &[u8]) -> Option<EditKind> {
    let refusal = refusal.to_ascii_lowercase();
    let says = |words: &[&str]| {
        let mut words = words.iter();
        words.any(|word| memmem::find(&refusal, word.as_bytes()).is_some())
    };
    let found = WORDS
        .iter()
        .find(|(kind, words)| among.has(*kind) && says(words));
    found.map(|(kind, _)| *kind)
}

/// What an upstream's model did with the edits of a tenant's views.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// What views go without.
    without: Edits,
    /// Edits that stood in a view that was taken.
    taken: Edits,
    /// Edits whose view was refused once and taken without them, and that no view had since that was
    /// taken.
    doubted: Edits,
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
pub struct Learned(Mutex<Cache<(TenantId, String), Habits>>);

impl Default for Learned {
    fn default() -> Self {
        Self(Mutex::new(Cache::new(REMEMBERED)))
    }
}

impl Learned {
    fn at<T>(&self, tenant: TenantId, model: &str, run: impl FnOnce(&mut Habits) -> T) -> T {
        let name = model.chars().take(NAME).collect();
        let key = (tenant, name);
        let mut known = self.0.lock();
        let mut habits = known.get(&key).copied().unwrap_or_default();
        let value = run(&mut habits);
        known.insert(key, habits);
        value
    }

    /// What views for a model go without.
    pub(super) fn without(&self, tenant: TenantId, model: &str) -> Edits {
        let name: String = model.chars().take(NAME).collect();
        let known = self.0.lock();
        let habits = known.get(&(tenant, name)).copied();
        habits.unwrap_or_default().without
    }

    /// What to suspect of a view with these edits that was refused: the kind that the refusal names,
    /// else all that no view had that was taken. None where nothing is left to suspect.
    pub(super) fn suspects(
        &self,
        tenant: TenantId,
        model: &str,
        edits: Edits,
        refusal: &[u8],
    ) -> Option<Suspects> {
        if let Some(kind) = named(edits, refusal) {
            return Some(Suspects {
                edits: [kind].into_iter().collect(),
                named: true,
            });
        }
        let edits = self.at(tenant, model, |habits| edits.without(habits.taken));
        let named = false;
        (!edits.is_empty()).then_some(Suspects { edits, named })
    }

    /// A view with these edits was taken: none of them is what is refused.
    pub(super) fn taken(&self, tenant: TenantId, model: &str, edits: Edits) {
        if !edits.is_empty() {
            self.at(tenant, model, |habits| {
                habits.taken = habits.taken.or(edits);
                habits.doubted = habits.doubted.without(edits);
            });
        }
    }

    /// A view was refused, and taken without the suspects. What that teaches: at once where the
    /// refusal names what no view had that was taken, else where it happens twice running, because an
    /// upstream may refuse at random.
    pub(super) fn explained(&self, tenant: TenantId, model: &str, suspects: Suspects) -> Edits {
        self.at(tenant, model, |habits| {
            let certain = if suspects.named {
                suspects.edits.without(habits.taken)
            } else {
                Edits::default()
            };
            let learned = certain.or(suspects.edits.and(habits.doubted));
            habits.doubted = habits.doubted.or(suspects.edits).without(learned);
            habits.without = habits.without.or(learned);
            learned
        })
    }

    /// A view was refused, and so was another with these edits left, while the client's own request,
    /// which has none, was taken. Those that no view had that was taken go at once: two refusals are
    /// as many as a rule may cost.
    pub(super) fn unexplained(&self, tenant: TenantId, model: &str, edits: Edits) -> Edits {
        self.at(tenant, model, |habits| {
            let learned = edits.without(habits.taken);
            habits.without = habits.without.or(learned);
            learned
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(crate::model::Digest([7; 32]));
    const MODEL: &str = "m";

    fn edits(kinds: &[EditKind]) -> Edits {
        kinds.iter().copied().collect()
    }

    /// One refused view with these edits, taken without what is suspected of it.
    fn refused(learned: &Learned, all: Edits, text: &str) -> Edits {
        let suspects = learned.suspects(TENANT, MODEL, all, text.as_bytes());
        suspects.map_or_else(Edits::default, |suspects| {
            learned.explained(TENANT, MODEL, suspects)
        })
    }

    #[test]
    fn what_a_refusal_names_is_learned_at_once() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Reasoning, EditKind::Results]);
        let text = "The `reasoning_content` in the thinking mode must be passed back";
        assert_eq!(refused(&learned, all, text), edits(&[EditKind::Reasoning]));
        assert_eq!(
            learned.without(TENANT, MODEL),
            edits(&[EditKind::Reasoning])
        );
        assert!(learned.without(TENANT, "other").is_empty());
        let other = TenantId(crate::model::Digest([8; 32]));
        assert!(learned.without(other, MODEL).is_empty());
    }

    #[test]
    fn what_nothing_names_is_learned_when_it_happens_twice() {
        let learned = Learned::default();
        learned.taken(TENANT, MODEL, edits(&[EditKind::Hidden]));
        let all = edits(&[EditKind::Hidden, EditKind::Reasoning, EditKind::Results]);
        assert!(refused(&learned, all, "Invalid request").is_empty());
        let suspected = edits(&[EditKind::Reasoning, EditKind::Results]);
        assert_eq!(refused(&learned, all, "Invalid request"), suspected);
        assert_eq!(learned.without(TENANT, MODEL), suspected);
    }

    #[test]
    fn a_view_that_is_taken_between_clears_its_edits() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Reasoning, EditKind::Results]);
        for _ in 0..20 {
            assert!(refused(&learned, all, "try again").is_empty());
            learned.taken(TENANT, MODEL, all);
        }
        assert!(learned.without(TENANT, MODEL).is_empty());
    }

    #[test]
    fn what_was_taken_before_takes_two_refusals_that_name_it() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Reasoning]);
        learned.taken(TENANT, MODEL, all);
        assert!(refused(&learned, all, "missing thought_signature").is_empty());
        assert_eq!(refused(&learned, all, "missing thought_signature"), all);
    }

    #[test]
    fn two_refusals_of_one_request_that_the_clients_own_does_not_get_are_enough() {
        let learned = Learned::default();
        let all = edits(&[EditKind::Text, EditKind::Arguments]);
        learned.taken(TENANT, MODEL, edits(&[EditKind::Text]));
        let learnt = learned.unexplained(TENANT, MODEL, all);
        assert_eq!(learnt, edits(&[EditKind::Arguments]));
        assert_eq!(learned.without(TENANT, MODEL), learnt);
    }
}
