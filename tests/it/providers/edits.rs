//! Rules that nobody wrote down, each for one kind of edit and in words that name nothing, and a
//! provider that refuses by chance. In all three wire formats.

use plimsoll_scripted::{Edit, Form, Rule};

use super::rule;
use super::script::Quirks;
use super::session::Case;

/// An answer of hidden calls alone can't be gone on from where no hidden exchange may be shown.
const MIXED: Quirks = Quirks {
    mixed: true,
    ..Quirks::PLAIN
};
/// So that what is long is what was said.
const WORDY: Quirks = Quirks {
    wordy: true,
    ..Quirks::PLAIN
};

fn case(form: Form, edit: Edit) -> Case {
    Case::new(form, "mystery-1", Rule::Unwritten(edit))
}

fn chance(form: Form, named: bool) -> Case {
    let rule = Rule::Random {
        percent: 15,
        seed: 12,
        named,
    };
    Case::new(form, "mystery-1", rule)
}

mod chat {
    use super::*;

    rule!(reasoning, case(Form::Chat, Edit::Reasoning));
    rule!(results, case(Form::Chat, Edit::Results));
    rule!(arguments, case(Form::Chat, Edit::Arguments).quirks(WORDY));
    rule!(exchange, case(Form::Chat, Edit::Exchange).quirks(MIXED));
    rule!(chance_without_words, chance(Form::Chat, false));
    rule!(chance_with_words, chance(Form::Chat, true));
}

mod messages {
    use super::*;

    rule!(reasoning, case(Form::Messages, Edit::Reasoning));
    rule!(results, case(Form::Messages, Edit::Results));
    rule!(
        arguments,
        case(Form::Messages, Edit::Arguments).quirks(WORDY)
    );
    rule!(exchange, case(Form::Messages, Edit::Exchange).quirks(MIXED));
    rule!(chance_without_words, chance(Form::Messages, false));
}

mod responses {
    use super::*;

    rule!(reasoning, case(Form::Responses, Edit::Reasoning));
    rule!(results, case(Form::Responses, Edit::Results));
    rule!(
        arguments,
        case(Form::Responses, Edit::Arguments).quirks(WORDY)
    );
    rule!(
        exchange,
        case(Form::Responses, Edit::Exchange).quirks(MIXED)
    );
    rule!(chance_without_words, chance(Form::Responses, false));
}
