//! Sessions that go on with another model, which refuses what the first one issued. The agent drops
//! that from its own messages; ours may still hold some.

use plimsoll_scripted::{Form, Rule, Scope};

use super::rule;
use super::session::Case;

/// Models whose names say nothing.
const FIRST: &str = "first-1";
const SECOND: &str = "second-1";

fn to_strange(form: Form, rule: Rule) -> Case {
    Case::new(form, FIRST, rule).switched(SECOND, [Rule::NothingForeign])
}

rule!(gemini, to_strange(Form::Chat, Rule::GeminiSignatures));
rule!(openrouter, {
    to_strange(Form::Chat, Rule::OpenRouterSignatures).and(Rule::GeminiSignatures)
});
rule!(reasoning, {
    to_strange(Form::Chat, Rule::KimiReasoning(Scope::All))
});
rule!(reasoning_of_a_known_model, {
    let rule = Rule::DeepSeekReasoning(Scope::All);
    Case::new(Form::Chat, "deepseek-chat", rule).switched(SECOND, [Rule::NothingForeign])
});
rule!(thinking, to_strange(Form::Messages, Rule::ClaudeThinking));
rule!(items, to_strange(Form::Responses, Rule::ReasoningItems));
