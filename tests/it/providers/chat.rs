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

const UNTHOUGHT: Quirks = Quirks {
    mixed: false,
    unthought: true,
    misspelt: false,
    torn: false,
    described: false,
};
const TORN: Quirks = Quirks {
    mixed: false,
    unthought: false,
    misspelt: false,
    torn: true,
    described: false,
};
const MISSPELT: Quirks = Quirks {
    mixed: false,
    unthought: false,
    misspelt: true,
    torn: false,
    described: true,
};

rule!(gemini, {
    Case::new(Form::Chat, "gemini-3-flash-preview", Rule::GeminiSignatures)
});
rule!(gemini_of_another_name, case(Rule::GeminiSignatures));
rule!(openrouter, {
    let model = "google/gemini-3-flash-preview";
    Case::new(Form::Chat, model, Rule::OpenRouterSignatures)
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
rule!(kimi_turn, case(Rule::KimiReasoning(Scope::Turn)));
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
