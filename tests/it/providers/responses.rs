//! Rules of Responses.

use plimsoll_scripted::{Form, Rule};

use super::rule;
use super::script::Quirks;
use super::session::Case;

fn case(rule: Rule) -> Case {
    Case::new(Form::Responses, "mystery-1", rule)
}

rule!(no_cache_control, case(Rule::NoCacheControl));
rule!(reasoning_items, case(Rule::ReasoningItems));
rule!(vllm_arguments, {
    let quirks = Quirks {
        torn: true,
        ..Quirks::PLAIN
    };
    case(Rule::VllmArguments).quirks(quirks)
});
rule!(strict_names, {
    let quirks = Quirks {
        misspelt: true,
        described: true,
        ..Quirks::PLAIN
    };
    case(Rule::StrictNames).quirks(quirks)
});
