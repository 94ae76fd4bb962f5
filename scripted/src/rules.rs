//! The rules that single providers have beside what all of them refuse, each as a switch.
//!
//! Owns what a provider issues with an answer so that it can tell it when it comes back, and which
//! requests it refuses for it. It judges all three wire formats by what `read` makes of them, and
//! never repairs anything. The words of the refusals, and where they are from, are in `words`.

mod bound;
mod judge;
mod prefix;
mod read;
mod seal;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::reads::Reads;
use crate::rng::Rng;
use crate::script::Reply;
pub use bound::{CONTROLS, Difference, Judged, Mismatch, Standing, Thought};
pub(crate) use prefix::Prefix;
use read::History;

/// The tools that no client brings: their calls are the proxy's own.
pub const HIDDEN: [&str; 2] = ["delimiter", "recall"];

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Chat Completions.
    Chat,
    /// Responses.
    Responses,
    /// Messages.
    Messages,
}

/// Which messages a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    All,
    /// Those behind the newest text of the user.
    Turn,
}

/// An edit that a provider takes amiss without saying so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// Reasoning was taken from a message of calls.
    Reasoning,
    /// A result's text is another than it was at first.
    Results,
    /// A call's arguments are others than were said.
    Arguments,
    /// Calls of tools that no client brings are there.
    Exchange,
}

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The first call of each message of the turn carries a signature of this provider's, and each
    /// answer with calls is given one. <https://ai.google.dev/gemini-api/docs/thought-signatures>
    GeminiSignatures,
    /// `reasoning_details` come back unchanged with each message of the turn, and name a call that
    /// the message holds.
    /// <https://openrouter.ai/docs/guides/best-practices/reasoning-tokens#preserving-reasoning-blocks>
    OpenRouterSignatures,
    /// Each message of calls has its `reasoning_content`, be it empty.
    /// <https://api-docs.deepseek.com/guides/thinking_mode#tool-calls>
    DeepSeekReasoning(Scope),
    /// Each message of calls has its `reasoning_content`, and that says something.
    /// <https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model>
    KimiReasoning(Scope),
    /// A call's arguments are a JSON object, as vLLM demands (400).
    /// <https://github.com/vllm-project/vllm/issues/43995>
    VllmArguments,
    /// The same as llama.cpp demands it (500).
    /// <https://github.com/OpenHands/software-agent-sdk/issues/2887>
    LlamaArguments,
    /// The same as Anthropic demands it of a call's `input`.
    /// <https://github.com/prism-php/prism/issues/659>
    InputObjects,
    /// Answers come in parts, thinking among them, and a message of such a part alone says nothing.
    /// <https://docs.mistral.ai/capabilities/reasoning/>
    ThinkingParts,
    /// A call's name is one of the tools that are offered.
    StrictNames,
    /// Nothing is marked with `cache_control`.
    NoCacheControl,
    /// Thinking of the turn is what was issued, and the newest message that was answered with some
    /// begins with it. <https://docs.claude.com/en/docs/build-with-claude/extended-thinking#extended-thinking-with-tool-use>
    ClaudeThinking,
    /// Messages of calls that were answered with thinking have some, in all turns.
    /// <https://github.com/NousResearch/hermes-agent/pull/16149>
    DeepSeekThinking,
    /// A call that was issued behind a reasoning item stands behind it.
    /// <https://community.openai.com/t/1236046>
    ReasoningItems,
    /// Thoughts are bound to what stood before them. A request may leave out all of them, also
    /// while a call waits for its result.
    /// <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking>
    Bound(Mismatch),
    /// No system message stands among the others, as in Messages before Opus 4.8.
    /// <https://github.com/anthropics/claude-code/issues/61412>
    NoSystemAmong,
    /// In Chat Completions these thoughts come as `thinking_blocks`, as LiteLLM hands them on.
    /// <https://docs.litellm.ai/docs/reasoning_content>
    ThinkingBlocks,
    /// What is thought is shown in no words, where a format can do without them, and its signature is as
    /// long as one that holds them.
    /// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking#controlling-thinking-display>
    Hidden,
    /// Which thoughts the model reads, where it does not read all.
    Reads(Reads),
    /// What another model issued is refused: signatures, details, thinking, encrypted reasoning.
    NothingForeign,
    /// So many of a hundred requests are refused, whatever they say.
    Random {
        /// How many.
        percent: usize,
        /// Where the choices begin.
        seed: u64,
        /// Whether the refusal names reasoning; else it names nothing.
        named: bool,
    },
    /// An edit is refused without a word of what it is for.
    Unwritten(Edit),
}

/// The rules of a provider, with what it has issued. Clones share what was issued.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<(Option<String>, Rule)>,
    issued: Arc<Mutex<Issued>>,
}

/// What a provider remembers of its answers and of what it was sent.
#[derive(Debug, Default)]
struct Issued {
    /// By a call's id: the call's arguments and what was issued with its answer.
    calls: HashMap<String, Answer>,
    /// By a call's id: the first text of its result.
    results: HashMap<String, String>,
    /// How many requests were judged.
    judged: u64,
    /// How many answers were issued.
    answers: u64,
}

#[derive(Debug, Clone, Default)]
struct Answer {
    name: String,
    arguments: String,
    reasoning: String,
    details: Option<Value>,
}

impl Rules {
    /// These rules, whichever model is asked for.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules = rules.into_iter().map(|rule| (None, rule)).collect();
        Self {
            rules,
            ..Self::default()
        }
    }

    /// The same with rules of one model.
    #[must_use]
    pub fn of(mut self, model: &str, rules: impl IntoIterator<Item = Rule>) -> Self {
        let named = rules.into_iter().map(|rule| (Some(model.to_owned()), rule));
        self.rules.extend(named);
        self
    }

    /// Which thoughts a model reads.
    #[must_use]
    pub fn reads(&self, model: &str) -> Reads {
        let reads = self.under(model).find_map(|rule| match rule {
            Rule::Reads(reads) => Some(reads),
            _ => None,
        });
        reads.unwrap_or_default()
    }

    /// Whether a rule holds for any model.
    #[must_use]
    pub fn has(&self, rule: Rule) -> bool {
        self.rules.iter().any(|(_, held)| *held == rule)
    }

    fn under<'a>(&'a self, model: &'a str) -> impl Iterator<Item = Rule> + 'a {
        let own = move |name: &Option<String>| name.as_ref().is_none_or(|name| name == model);
        self.rules
            .iter()
            .filter(move |(name, _)| own(name))
            .map(|(_, rule)| *rule)
    }

    fn issued(&self) -> MutexGuard<'_, Issued> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an answer what the rules of its model will ask for, and notes it. What was judged is the
    /// request that it answers.
    pub fn issue(&self, form: Form, model: &str, judged: &Judged, reply: &mut Reply) {
        self.bind(form, model, judged, reply);
        let first = reply.calls.first().map(|call| call.id.clone());
        let mut details = None;
        for rule in self.under(model) {
            match (rule, &first) {
                (Rule::GeminiSignatures, Some(first)) => {
                    let signature = json!({"google": {"thought_signature": signed(model, first)}});
                    let extra = &mut reply.extra.first_call;
                    extra.insert("extra_content".to_owned(), signature);
                }
                (Rule::OpenRouterSignatures, Some(first)) => {
                    let list = thought_details(model, first, &reply.reasoning);
                    let extra = &mut reply.extra.message;
                    extra.insert("reasoning_details".to_owned(), list.clone());
                    details = Some(list);
                }
                // Who refuses the field does not give it either.
                (Rule::NothingForeign, _) if form == Form::Chat => reply.reasoning.clear(),
                (Rule::ThinkingParts, _) => reply.extra.parts = true,
                (Rule::Hidden, _) => reply.extra.hidden = true,
                (Rule::DeepSeekReasoning(_) | Rule::KimiReasoning(_), _) => {
                    reply.extra.reasoning = true;
                }
                _ => {}
            }
        }
        let mut issued = self.issued();
        for call in &reply.calls {
            let answer = Answer {
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                reasoning: reply.reasoning.clone(),
                details: details.clone(),
            };
            issued.calls.insert(call.id.clone(), answer);
        }
    }

    /// Binds what is thought to the request.
    fn bind(&self, form: Form, model: &str, judged: &Judged, reply: &mut Reply) {
        let number = {
            let mut issued = self.issued();
            issued.answers += 1;
            issued.answers
        };
        reply.extra.transformations = judged.transformations.clone();
        if judged.silent {
            reply.reasoning.clear();
        }
        if reply.reasoning.is_empty() {
            return;
        }
        let Some(signature) = judged.seal(form, model, &reply.reasoning, number) else {
            return;
        };
        if form == Form::Chat {
            let blocks = self.under(model).any(|rule| rule == Rule::ThinkingBlocks);
            let (field, list) = if blocks {
                let block = json!([{"type": "thinking", "thinking": reply.reasoning,
                    "signature": signature}]);
                ("thinking_blocks", block)
            } else {
                let detail = json!([{"type": "reasoning.text", "text": reply.reasoning,
                    "signature": signature, "format": "anthropic-claude-v1", "index": 0}]);
                ("reasoning_details", detail)
            };
            reply.extra.message.insert(field.to_owned(), list);
        }
        reply.extra.signature = Some(signature);
    }

    /// Judges a request: what is said against it is the first rule that it breaks.
    #[must_use]
    pub fn judge(&self, form: Form, headers: &HeaderMap, body: &Value) -> Judged {
        let model = body.get("model").and_then(Value::as_str).unwrap_or("");
        let bound = self.under(model).find_map(|rule| match rule {
            Rule::Bound(outcome) => Some(outcome),
            _ => None,
        });
        let mut judged = bound.map_or_else(Judged::default, |outcome| {
            bound::judge(outcome, form, model, headers, body)
        });
        let history = History::read(form, body);
        let mut issued = self.issued();
        issued.judged += 1;
        for (id, text) in &history.results {
            let known = issued.results.entry(id.clone());
            known.or_insert_with(|| text.clone());
        }
        for rule in self.under(model) {
            let refused = match rule {
                Rule::Random {
                    percent,
                    seed,
                    named,
                } => {
                    let refuses = Rng::new(seed ^ (issued.judged << 20)).chance(percent);
                    refuses.then(|| words::random(named))
                }
                _ => judge::broken(rule, form, model, &history, &issued),
            };
            judged.refuse(refused);
        }
        judged
    }
}

/// What only the provider of a model can make for a text.
#[must_use]
pub fn signed(model: &str, text: &str) -> String {
    format!("sig-{model}-{:016x}", Rng::from_text(text, 7).next())
}

/// The same for what is thought in words that are not shown: it holds them, so it is as long as they are.
#[must_use]
pub fn sealed(model: &str, text: &str, thought: &str) -> String {
    format!("{}-{}", signed(model, text), seal::sealed(thought))
}

/// The id of the thought that a signature signs, which no other thought has.
#[must_use]
pub fn own_id(signature: &str) -> Option<String> {
    seal::Seal::read(signature).map(|seal| seal.id())
}

/// Whether a signature is one that a model's provider made.
fn is_of(model: &str, signature: &str) -> bool {
    signature
        .strip_prefix("sig-")
        .and_then(|rest| rest.strip_prefix(model))
        .is_some_and(|rest| rest.starts_with('-'))
}

/// `reasoning_details` as OpenRouter gives them for Gemini: what was thought, and one block that is
/// encrypted, under the id of the first call.
fn thought_details(model: &str, first: &str, reasoning: &str) -> Value {
    let format = "google-gemini-v1";
    let mut text = Map::new();
    text.insert("type".to_owned(), "reasoning.text".into());
    text.insert("text".to_owned(), reasoning.into());
    text.insert("format".to_owned(), format.into());
    text.insert("index".to_owned(), 0.into());
    json!([text, {"type": "reasoning.encrypted", "data": signed(model, first), "id": first,
        "format": format, "index": 0}])
}

#[cfg(test)]
mod tests;
