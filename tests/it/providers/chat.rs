//! Rules of Chat Completions.

use plimsoll_scripted::{Form, Rule, Scope};

use super::rule;
use super::script::Quirks;
use super::session::Case;

/// A model that no table knows.
const UNKNOWN: &str = "mystery-1";

fn case(rule: Rule) -> Case {
    Case::new(Form::Chat, UNKNOWN, rule)
}

const ALONE: Quirks = Quirks {
    alone: true,
    ..Quirks::PLAIN
};
const UNTHOUGHT: Quirks = Quirks {
    unthought: true,
    ..Quirks::PLAIN
};
const TORN: Quirks = Quirks {
    torn: true,
    ..Quirks::PLAIN
};
const MISSPELT: Quirks = Quirks {
    misspelt: true,
    described: true,
    ..Quirks::PLAIN
};

rule!(no_cache_control, case(Rule::NoCacheControl));
rule!(gemini, {
    let model = "gemini-3-flash-preview";
    Case::new(Form::Chat, model, Rule::GeminiSignatures).quirks(ALONE)
});
rule!(gemini_in_turns, case(Rule::GeminiSignatures));
rule!(gemini_of_another_name, {
    case(Rule::GeminiSignatures).quirks(ALONE)
});
rule!(openrouter, {
    let model = "google/gemini-3-flash-preview";
    Case::new(Form::Chat, model, Rule::OpenRouterSignatures).quirks(ALONE)
});
rule!(deepseek_turn, {
    case(Rule::DeepSeekReasoning(Scope::Turn)).quirks(UNTHOUGHT)
});
rule!(deepseek_all, {
    case(Rule::DeepSeekReasoning(Scope::All)).quirks(UNTHOUGHT)
});
rule!(deepseek_by_name, {
    let rule = Rule::DeepSeekReasoning(Scope::All);
    Case::new(Form::Chat, "deepseek-chat", rule).quirks(UNTHOUGHT)
});
rule!(kimi_turn, {
    case(Rule::KimiReasoning(Scope::Turn)).quirks(ALONE)
});
rule!(kimi_all, case(Rule::KimiReasoning(Scope::All)));
rule!(vllm_arguments, case(Rule::VllmArguments).quirks(TORN));
rule!(llama_arguments, case(Rule::LlamaArguments).quirks(TORN));
rule!(mistral, case(Rule::ThinkingParts));
rule!(strict_names, case(Rule::StrictNames).quirks(MISSPELT));
rule!(strict_arguments_and_names, {
    let quirks = Quirks {
        torn: true,
        ..MISSPELT
    };
    case(Rule::StrictNames)
        .and(Rule::VllmArguments)
        .quirks(quirks)
});
