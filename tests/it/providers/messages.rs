//! Rules of Messages.

use plimsoll_scripted::{Form, Rule};

use super::rule;
use super::script::Quirks;
use super::session::Case;

const CLAUDE: &str = "claude-sonnet-4-5";

fn case(model: &'static str, rule: Rule) -> Case {
    Case::new(Form::Messages, model, rule)
}

rule!(claude, {
    let quirks = Quirks {
        alone: true,
        ..Quirks::PLAIN
    };
    case(CLAUDE, Rule::ClaudeThinking).quirks(quirks)
});
rule!(deepseek, case("mystery-1", Rule::DeepSeekThinking));
rule!(deepseek_as_claude, case(CLAUDE, Rule::DeepSeekThinking));
rule!(no_cache_control, case(CLAUDE, Rule::NoCacheControl));
rule!(input_objects, {
    let quirks = Quirks {
        torn: true,
        ..Quirks::PLAIN
    };
    case(CLAUDE, Rule::InputObjects).quirks(quirks)
});
rule!(strict_names, {
    let quirks = Quirks {
        misspelt: true,
        described: true,
        ..Quirks::PLAIN
    };
    case(CLAUDE, Rule::StrictNames).quirks(quirks)
});
