//! Which rule a request breaks. Never words a refusal.

use serde_json::Value;

use super::read::{Call, History, Said, text};
use super::seal::Seal;
use super::{Edit, Form, HIDDEN, Issued, Rule, Scope, is_of, signed, words};
use crate::validate::Refusal;

/// What a rule has against a request.
pub(super) fn broken(
    rule: Rule,
    form: Form,
    model: &str,
    history: &History,
    issued: &Issued,
) -> Option<Refusal> {
    let mut said = history.said.iter();
    match rule {
        Rule::GeminiSignatures => said.filter(|said| said.current).find_map(|said| {
            let first = said.calls.first()?;
            match &first.signature {
                None => Some(words::gemini_missing(&first.name, said.place)),
                Some(own) if is_of(model, own) => None,
                Some(_) => Some(words::gemini_foreign()),
            }
        }),
        Rule::OpenRouterSignatures => said.filter(|said| said.current).find_map(|said| {
            let first = said.calls.first()?;
            let lost = !details_stand(said, issued);
            lost.then(|| words::openrouter(&first.name, said.place))
        }),
        Rule::DeepSeekReasoning(scope) => said
            .find(|said| asked(said, scope) && said.reasoning.is_none())
            .map(|said| words::deepseek(scope, said.place)),
        Rule::KimiReasoning(scope) => said
            .find(|said| asked(said, scope) && said.reasoning.as_deref().is_none_or(str::is_empty))
            .map(|said| words::kimi(said.place)),
        Rule::VllmArguments | Rule::LlamaArguments => calls(history)
            .find(|call| !is_object(&call.arguments))
            .map(|call| words::arguments(rule, &call.arguments)),
        Rule::InputObjects => said.find_map(|said| {
            let torn = |call: &Call| !is_object(&call.arguments);
            let at = said.calls.iter().position(torn)?;
            Some(words::dictionary(said.place, at))
        }),
        Rule::ThinkingParts => said.find(|said| said.bare).map(|_| words::mistral()),
        Rule::StrictNames => calls(history)
            .find(|call| !history.offered.contains(&call.name))
            .map(|call| words::unknown_tool(&call.name)),
        Rule::NoCacheControl => history.marked.then(words::cache_control),
        Rule::ClaudeThinking => claude(model, history, issued),
        Rule::DeepSeekThinking => said
            .find(|said| thought(said, issued) && said.thoughts.is_empty())
            .map(|_| words::deepseek_thinking()),
        Rule::ReasoningItems => said.find_map(items),
        Rule::NothingForeign => said.find_map(|said| foreign(form, model, said)),
        Rule::Unwritten(edit) => unwritten(edit, form, history, issued).then(words::nothing),
        Rule::NoSystemAmong => history.system.then(words::no_system),
        // Its thoughts are judged elsewhere.
        Rule::Bound(_) => history.misplaced.map(words::misplaced),
        // Both are judged where they are told of.
        Rule::Random { .. } | Rule::ThinkingBlocks => None,
        // Neither refuses anything.
        Rule::Hidden | Rule::Reads(_) => None,
    }
}

fn calls(history: &History) -> impl Iterator<Item = &Call> {
    history.said.iter().flat_map(|said| &said.calls)
}

fn is_object(arguments: &str) -> bool {
    let read = serde_json::from_str::<Value>(arguments);
    read.is_ok_and(|value| value.is_object())
}

/// Whether a rule of this scope looks at a message for its reasoning.
fn asked(said: &Said, scope: Scope) -> bool {
    !said.calls.is_empty() && (said.current || scope == Scope::All)
}

/// Whether something was thought when the calls of a message were made.
fn thought(said: &Said, issued: &Issued) -> bool {
    let known = said
        .calls
        .iter()
        .filter_map(|call| issued.calls.get(&call.id));
    known.into_iter().any(|answer| !answer.reasoning.is_empty())
}

/// The details of a message are those of its answer, and the call that they name is in it.
fn details_stand(said: &Said, issued: &Issued) -> bool {
    let mut known = said
        .calls
        .iter()
        .filter_map(|call| issued.calls.get(&call.id));
    let Some(wanted) = known.find_map(|answer| answer.details.as_ref()) else {
        return true;
    };
    let Some(found) = &said.details else {
        return false;
    };
    let named = |id: &str| said.calls.iter().any(|call| call.id == id);
    let list = found.as_array().map_or(&[][..], Vec::as_slice);
    let mut ids = list.iter().map(|detail| text(detail, "id"));
    unnamed(found) == unnamed(wanted) && ids.all(|id| id.is_empty() || named(&id))
}

/// Details without the ids of calls: whose message lost the named call may name another.
fn unnamed(details: &Value) -> Value {
    let mut details = details.clone();
    for detail in details.as_array_mut().into_iter().flatten() {
        if let Some(fields) = detail.as_object_mut() {
            fields.remove("id");
        }
    }
    details
}

fn claude(model: &str, history: &History, issued: &Issued) -> Option<Refusal> {
    let mut turn = history.said.iter().filter(|said| said.current);
    let forged = |block: &Value| {
        let (made, signature) = (
            signed(model, &text(block, "thinking")),
            text(block, "signature"),
        );
        let hidden = text(block, "thinking").is_empty() && is_of(model, &signature);
        let sealed = signature == made || hidden || Seal::read(&signature).is_some();
        text(block, "type") == "thinking" && !sealed
    };
    if let Some(said) = turn.find(|said| said.thoughts.iter().any(forged)) {
        return Some(words::claude_signature(said.place));
    }
    let last = history.said.last().filter(|said| said.current)?;
    let led = matches!(last.first.as_str(), "thinking" | "redacted_thinking");
    (thought(last, issued) && !led).then(|| words::claude(last.place, &last.first))
}

/// The number of the answer that an item's id was issued in.
fn answer_of(id: &str) -> Option<&str> {
    let (kind, number) = id.split_once('_')?;
    let number = number.split('_').next()?;
    matches!(kind, "rs" | "fc" | "msg").then_some(number)
}

/// Items stand behind the reasoning of their answer, and reasoning before such an item.
fn items(said: &Said) -> Option<Refusal> {
    for (place, id) in said.ids.iter().enumerate() {
        let Some(number) = answer_of(id) else {
            continue;
        };
        let reasoning = format!("rs_{number}");
        if *id == reasoning {
            let next = said.ids.get(place + 1).and_then(|next| answer_of(next));
            if next != Some(number) {
                return Some(words::reasoning_alone(id));
            }
        } else if !said.ids.iter().take(place).any(|id| *id == reasoning) {
            return Some(words::without_reasoning(id, &reasoning));
        }
    }
    None
}

fn foreign(form: Form, model: &str, said: &Said) -> Option<Refusal> {
    let signatures = said.calls.iter().filter_map(|call| call.signature.as_ref());
    let mut signatures = signatures.chain(None);
    if signatures.any(|own| !is_of(model, own)) {
        return Some(words::gemini_foreign());
    }
    if form == Form::Chat && said.reasoning.is_some() {
        return Some(words::unsupported(said.place, "reasoning_content"));
    }
    if form == Form::Chat && said.details.is_some() {
        return Some(words::unsupported(said.place, "reasoning_details"));
    }
    said.thoughts.iter().find_map(|block| match form {
        Form::Chat => None,
        Form::Messages => {
            (!is_of(model, &text(block, "signature"))).then(|| words::claude_signature(said.place))
        }
        Form::Responses => (!is_of(model, &text(block, "encrypted_content")))
            .then(|| words::encrypted(&text(block, "id"))),
    })
}

fn unwritten(edit: Edit, form: Form, history: &History, issued: &Issued) -> bool {
    let visible = |id: &str| {
        let known = issued.calls.get(id);
        known.filter(|answer| !HIDDEN.contains(&answer.name.as_str()))
    };
    match edit {
        Edit::Reasoning => history.said.iter().any(|said| {
            let has = match form {
                Form::Chat => said
                    .reasoning
                    .as_deref()
                    .is_some_and(|text| !text.is_empty()),
                Form::Messages | Form::Responses => !said.thoughts.is_empty(),
            };
            thought(said, issued) && !has
        }),
        Edit::Results => history.results.iter().any(|(id, text)| {
            let first = issued.results.get(id);
            visible(id).is_some() && first.is_some_and(|first| first != text)
        }),
        Edit::Arguments => calls(history).any(|call| {
            let said = visible(&call.id).map(|answer| &answer.arguments);
            said.is_some_and(|said| !same(said, &call.arguments))
        }),
        Edit::Exchange => calls(history).any(|call| HIDDEN.contains(&call.name.as_str())),
    }
}

/// Whether two texts are the same JSON.
fn same(a: &str, b: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    a == b || read(a).is_some_and(|value| Some(value) == read(b))
}
