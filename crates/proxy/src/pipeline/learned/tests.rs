//! Tests of `learned`.

use super::*;

const TENANT: TenantId = TenantId(plimsoll_model::Digest([7; 32]));

fn whose(model: &str) -> TenantModel {
    TenantModel::new(TENANT, Dialect::Chat, model)
}

fn edits(kinds: &[EditKind]) -> Edits {
    kinds.iter().copied().collect()
}

/// One view with these edits is refused. It is accepted without the suspects, or as the
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
    assert_eq!(learned.without(&whose("m"), false), only);
    let others = [
        whose("other"),
        TenantModel::new(TENANT, Dialect::Messages, "m"),
        TenantModel::new(
            TenantId(plimsoll_model::Digest([8; 32])),
            Dialect::Chat,
            "m",
        ),
    ];
    assert!(
        others
            .iter()
            .all(|other| learned.without(other, false).is_empty())
    );
}

#[test]
fn what_nothing_names_is_learned_when_it_happens_twice() {
    let learned = Learned::default();
    learned.accepted(&whose("m"), edits(&[EditKind::Hidden]));
    let all = edits(&[EditKind::Hidden, EditKind::Reasoning, EditKind::Results]);
    assert!(refused(&learned, all, "Invalid request").is_empty());
    let suspected = edits(&[EditKind::Reasoning, EditKind::Results]);
    assert_eq!(refused(&learned, all, "Invalid request"), suspected);
    assert_eq!(learned.without(&whose("m"), false), suspected);
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
    for _ in 0..FORGET_AFTER {
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
    for _ in 0..SUSPECT_AFTER {
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
        let expect = expect.map(|kind| (kind, false));
        assert_eq!(named(all, body.as_bytes()), expect, "{body}");
    }
}

#[test]
fn a_refusal_of_thoughts_is_told_by_its_words_alone_and_learned_at_once() {
    let says = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different \
                conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \
                \"drop_block\". The `tools` list differs from the one this block was created with.";
    let raw = serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": says}});
    let routed = serde_json::json!({"error": {"message": "Provider returned error", "code": 400,
        "metadata": {"raw": raw.to_string(), "provider_name": "Anthropic"}}});
    let bedrock =
        serde_json::json!({"message": format!("The model returned the following errors: {says}")});
    for body in [raw, routed, bedrock] {
        assert!(refuses_thoughts(body.to_string().as_bytes()), "{body}");
    }
    // A signature that is broken itself is another matter.
    for text in [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
    ] {
        assert!(!refuses_thoughts(text.as_bytes()), "{text}");
    }
    let learned = Learned::default();
    let thoughts = edits(&[EditKind::Thoughts]);
    learned.accepted(&whose("m"), thoughts);
    assert!(learned.has_accepted(&whose("m"), EditKind::Thoughts));
    assert_eq!(learned.binds(&whose("m")), thoughts);
    assert_eq!(learned.without(&whose("m"), false), thoughts);
    assert!(learned.without(&whose("other"), false).is_empty());
}

#[test]
fn what_stands_beside_an_edit_is_the_conversations_to_know() {
    let learned = Learned::default();
    let tools = edits(&[EditKind::Tools]);
    learned.accepted(&whose("m"), tools);
    for text in [
        "Tools with mixed values for 'strict' are not allowed.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128.",
        "tools: List should have at most 128 items",
        "Too many functions: at most 64",
    ] {
        // Each time anew, and never for the model.
        assert_eq!(refused(&learned, tools, text), tools, "{text}");
        assert!(learned.without(&whose("m"), false).is_empty(), "{text}");
    }
}

#[test]
fn each_addition_is_told_by_its_words() {
    let all: Edits = EditKind::ALL.into_iter().collect();
    for (text, kind) in [
        (
            "body.stream_options: Extra inputs are not permitted",
            EditKind::Usage,
        ),
        (
            "include_usage is not supported for this model",
            EditKind::Usage,
        ),
        ("System role not supported", EditKind::Guidance),
        (
            "Developer instruction is not enabled for models/gemma-3-27b-it",
            EditKind::Guidance,
        ),
        (
            "diagnostics: Extra inputs are not permitted",
            EditKind::Diagnosis,
        ),
        (
            "Unknown parameter: 'input[0].content[0].prompt_cache_breakpoint'.",
            EditKind::Breakpoints,
        ),
    ] {
        let body = serde_json::json!({"error": {"message": text}}).to_string();
        assert_eq!(named(all, body.as_bytes()), Some((kind, false)), "{text}");
    }
    // A view has guidance in one of two places.
    let among = edits(&[EditKind::GuidanceAmong, EditKind::Tools]);
    for text in [
        "role 'system' is not supported on this model",
        "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter",
        "messages.4.role: Input should be 'user' or 'assistant'",
    ] {
        let body = serde_json::json!({"error": {"message": text}}).to_string();
        let found = named(among, body.as_bytes());
        assert_eq!(found, Some((EditKind::GuidanceAmong, false)), "{text}");
    }
}

#[test]
fn an_edit_that_was_blamed_is_tried_again_where_a_conversation_begins() {
    let learned = Learned::default();
    let blamed = edits(&[EditKind::Results]);
    for _ in 0..2 {
        refused(&learned, blamed, "Invalid request");
    }
    let without = |begins| learned.without(&whose("m"), begins);
    assert_eq!(without(true), blamed);
    for _ in 0..FORGET_AFTER {
        learned.accepted(&whose("m"), edits(&[EditKind::Tools]));
    }
    assert_eq!(without(false), blamed, "what goes on stays as it is");
    assert!(without(true).is_empty());
    assert_eq!(without(true), blamed, "one conversation is enough");
    // It is refused again, in vain.
    assert!(refused(&learned, blamed, "Invalid request").is_empty());
    assert_eq!(without(true), blamed);
    for _ in 0..FORGET_AFTER {
        learned.accepted(&whose("m"), edits(&[EditKind::Tools]));
    }
    assert!(without(true).is_empty());
    learned.accepted(&whose("m"), blamed);
    assert!(without(false).is_empty(), "it was innocent");
}
