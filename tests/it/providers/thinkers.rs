//! Models that think much before each call, under what each provider demands of their thoughts. No turn is over the
//! budget, streamed and not, with a restart on the way and without.

use plimsoll_scripted::{Form, Rule, Scope};

use super::rule;
use super::script::Quirks;
use super::session::Case;

/// A thought is as long as half of a result.
const SOME: usize = 250;
/// A thought is three times as long as a result.
const MUCH: usize = 1_500;
/// The budget of a session: some sixteen results, or four answers of a heavy thinker.
const CEILING: u32 = 8_000;

fn case(form: Form, model: &'static str, rule: Rule, thinks: usize) -> Case {
    let quirks = Quirks {
        last: 60,
        thinks,
        ..Quirks::PLAIN
    };
    Case::new(form, model, rule).quirks(quirks).budget(CEILING)
}

rule!(kimi_some, {
    case(
        Form::Chat,
        "kimi-k2.6",
        Rule::KimiReasoning(Scope::All),
        SOME,
    )
});
rule!(kimi_much, {
    case(
        Form::Chat,
        "kimi-k2.6",
        Rule::KimiReasoning(Scope::All),
        MUCH,
    )
});
rule!(deepseek_some, {
    let rule = Rule::DeepSeekReasoning(Scope::All);
    case(Form::Chat, "deepseek-chat", rule, SOME)
});
rule!(deepseek_much, {
    let rule = Rule::DeepSeekReasoning(Scope::All);
    case(Form::Chat, "deepseek-chat", rule, MUCH)
});
rule!(deepseek_in_messages, {
    case(
        Form::Messages,
        "deepseek-chat",
        Rule::DeepSeekThinking,
        MUCH,
    )
});
rule!(claude_some, {
    case(
        Form::Messages,
        "claude-opus-4-6",
        Rule::ClaudeThinking,
        SOME,
    )
});
rule!(claude_much, {
    case(
        Form::Messages,
        "claude-opus-4-6",
        Rule::ClaudeThinking,
        MUCH,
    )
});
rule!(an_older_claude, {
    case(
        Form::Messages,
        "claude-sonnet-4-5",
        Rule::ClaudeThinking,
        MUCH,
    )
});
rule!(reasoning_items, {
    case(Form::Responses, "gpt-5", Rule::ReasoningItems, MUCH)
});
rule!(gemini_much, {
    let model = "gemini-3-flash-preview";
    case(Form::Chat, model, Rule::GeminiSignatures, MUCH)
});
rule!(an_older_claude_in_chat, {
    case(Form::Chat, "claude-sonnet-4-5", Rule::StrictNames, MUCH)
});
rule!(an_older_claude_in_responses, {
    let model = "claude-sonnet-4-5";
    case(Form::Responses, model, Rule::ReasoningItems, MUCH)
});
rule!(deepseek_in_responses, {
    case(Form::Responses, "deepseek-chat", Rule::StrictNames, MUCH)
});
rule!(claude_in_no_words, {
    let rule = Rule::ClaudeThinking;
    case(Form::Messages, "claude-opus-4-6", rule, MUCH).and(Rule::Hidden)
});
rule!(an_older_claude_in_no_words, {
    let rule = Rule::ClaudeThinking;
    case(Form::Messages, "claude-sonnet-4-5", rule, MUCH).and(Rule::Hidden)
});
rule!(behind_openrouter, {
    let model = "google/gemini-3-flash-preview";
    case(Form::Chat, model, Rule::OpenRouterSignatures, MUCH)
});
