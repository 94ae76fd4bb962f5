//! Thoughts that are bound to what stood before them: which of a request's are valid, what becomes of
//! the others, and the seal that a new one gets.
//!
//! It keeps nothing between requests: a seal says all, so that a fork, a restart and another provider
//! judge alike. The words of its refusals are in `words`.
//!
//! <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking> and
//! <https://developers.openai.com/api/docs/guides/keep-prefix-unchanged>.

use http::HeaderMap;
use serde_json::{Value, json};

use super::prefix::{Carried, Prefix, Step, Walk, digest};
use super::seal::{Seal, TRAIL};
use super::{Form, seal, words};
use crate::validate::Refusal;

/// The beta that the controls need.
pub const CONTROLS: &str = "thinking-binding-controls-2026-08-01";

/// What becomes of a thought whose prefix is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The request is refused. In Responses, which refuses none, the thought is dropped.
    Refuse,
    /// The model does not see it, nobody pays for it, and nothing says so.
    Drop,
    /// Nothing: the model sees it.
    Ignore,
}

/// A thought of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thought {
    /// Where it stands, such as `messages.1.content.0` or `input.3`.
    pub path: String,
    /// Its own id, which no other thought has; empty if its signature can't be read.
    pub own: String,
    /// Whether it is valid.
    pub standing: Standing,
    /// Whether the model saw it.
    pub seen: bool,
    /// How many bytes were thought; 0 if its signature can't be read.
    pub length: usize,
}

/// Whether a thought is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Valid,
    /// Its prefix is another.
    Moved(Difference),
    /// Another model thought it.
    Foreign,
    /// Its signature or its text was changed.
    Forged,
}

/// What differs from the prefix that a thought was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// The system prompt.
    System,
    /// The tools.
    Tools,
    /// What is said, first at this path.
    Content(String),
    /// What is said, somewhere before this path.
    Older(String),
    /// Something that was said is not there, from this path on.
    Missing(String),
    /// The thought before it is not there.
    Gap,
    /// A thought is there that was not.
    Returned,
}

/// What the rules make of a request.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// Why it is refused, if it is.
    pub refusal: Option<Refusal>,
    /// Its thoughts, in order; empty where they are bound to nothing.
    pub thoughts: Vec<Thought>,
    /// `input_transformations`, where the answer tells them.
    pub transformations: Option<Value>,
    /// The request wants no thought.
    pub(super) silent: bool,
    /// What stands before the answer.
    end: Option<End>,
}

impl Judged {
    /// How many of the thoughts are valid.
    #[must_use]
    pub fn valid(&self) -> usize {
        let valid = |thought: &&Thought| thought.standing == Standing::Valid;
        self.thoughts.iter().filter(valid).count()
    }

    /// The thoughts that are not valid.
    pub fn invalid(&self) -> impl Iterator<Item = &Thought> {
        let invalid = |thought: &&Thought| thought.standing != Standing::Valid;
        self.thoughts.iter().filter(invalid)
    }

    /// What was said against it first.
    pub(super) fn refuse(&mut self, refusal: Option<Refusal>) {
        if self.refusal.is_none() {
            self.refusal = refusal;
        }
    }

    /// The signature of what is thought now; nothing where thoughts are bound to nothing.
    pub(super) fn seal(&self, form: Form, model: &str, text: &str, number: u64) -> Option<String> {
        let end = self.end.as_ref()?;
        let before = (end.system, end.tools, end.messages, end.before, end.count);
        let (shown, sealed) = match form {
            Form::Responses => ("", seal::sealed(text)),
            Form::Chat | Form::Messages => (text, String::new()),
        };
        let seal = Seal {
            model: model.to_owned(),
            own: digest((before, model, text, number)),
            before: end.before,
            count: end.count,
            system: end.system,
            tools: end.tools,
            messages: end.messages,
            blocks: end.blocks,
            trail: end.trail.clone(),
            text: digest(shown),
            length: text.len(),
            sealed,
        };
        Some(seal.written())
    }
}

/// What stands before an answer.
#[derive(Debug, Clone)]
struct End {
    system: u64,
    tools: u64,
    messages: u64,
    blocks: usize,
    trail: Vec<u16>,
    before: u64,
    count: usize,
}

/// What a request says of its own wishes.
struct Wishes {
    outcome: Mismatch,
    /// The answer tells what became of the thoughts.
    told: bool,
}

/// Judges the thoughts of a request.
pub(super) fn judge(
    outcome: Mismatch,
    form: Form,
    model: &str,
    headers: &HeaderMap,
    body: &Value,
) -> Judged {
    let wishes = match wishes(outcome, form, headers, body) {
        Ok(wishes) => wishes,
        Err(refusal) => {
            return Judged {
                refusal: Some(refusal),
                ..Judged::default()
            };
        }
    };
    let prefix = Prefix::read(form, body);
    let mut judge = Judge {
        form,
        model,
        wishes,
        prefix: &prefix,
        walk: Walk::new(&prefix),
        silent: body.pointer("/thinking/type").and_then(Value::as_str) == Some("disabled"),
        before: 0,
        count: 0,
        judged: Judged::default(),
        told: Vec::new(),
    };
    for step in &prefix.steps {
        match step {
            Step::Block(block) => {
                if block.compacted {
                    (judge.before, judge.count) = (0, 0);
                }
                judge.walk.pass(block);
            }
            Step::Thought(thought) => judge.thought(thought),
        }
    }
    judge.finished()
}

fn wishes(
    outcome: Mismatch,
    form: Form,
    headers: &HeaderMap,
    body: &Value,
) -> Result<Wishes, Refusal> {
    let mut wishes = Wishes {
        outcome,
        told: false,
    };
    match form {
        Form::Chat => return Ok(wishes),
        Form::Responses => {
            if outcome == Mismatch::Refuse {
                wishes.outcome = Mismatch::Drop;
            }
            return Ok(wishes);
        }
        Form::Messages => {}
    }
    let betas = headers.get_all("anthropic-beta");
    let mut betas = betas.iter().filter_map(|value| value.to_str().ok());
    wishes.told = betas.any(|list| list.split(',').any(|beta| beta.trim() == CONTROLS));
    let thinking = body.get("thinking").unwrap_or(&Value::Null);
    let Some(binding) = thinking.get("block_binding") else {
        return Ok(wishes);
    };
    let kind = thinking.get("type").and_then(Value::as_str);
    let kind = kind.unwrap_or("adaptive");
    if !wishes.told {
        return Err(words::binding_unknown(kind));
    }
    wishes.outcome = match binding
        .get("prefix_mismatch_behavior")
        .and_then(Value::as_str)
    {
        Some("drop_block") => Mismatch::Drop,
        Some("error") => Mismatch::Refuse,
        Some(_) => return Err(words::binding_value(kind)),
        None => outcome,
    };
    Ok(wishes)
}

struct Judge<'a> {
    form: Form,
    model: &'a str,
    wishes: Wishes,
    prefix: &'a Prefix,
    walk: Walk<'a>,
    silent: bool,
    /// The id of the newest thought that the model sees.
    before: u64,
    /// How many it sees.
    count: usize,
    judged: Judged,
    told: Vec<Value>,
}

impl Judge<'_> {
    fn thought(&mut self, thought: &Carried) {
        let seal = Seal::read(&thought.signature);
        let standing = self.standing(thought, seal.as_ref());
        let seen = match &standing {
            Standing::Valid => true,
            Standing::Moved(difference) => self.moved(thought, difference),
            Standing::Foreign => {
                self.tell("dropped", thought, "model");
                false
            }
            Standing::Forged => {
                let refusal = self.forged(thought, seal.is_some());
                self.judged.refuse(Some(refusal));
                false
            }
        };
        if let (true, Some(seal)) = (seen, &seal) {
            self.before = seal.own;
            self.count += 1;
        }
        self.judged.thoughts.push(Thought {
            path: thought.path.clone(),
            length: seal.as_ref().map_or(0, |seal| seal.length),
            own: seal.map(|seal| seal.id()).unwrap_or_default(),
            standing,
            seen,
        });
    }

    /// What becomes of a thought whose prefix is another; true if the model sees it.
    fn moved(&mut self, thought: &Carried, difference: &Difference) -> bool {
        match self.wishes.outcome {
            Mismatch::Refuse => {
                let told = self.wishes.told;
                let refusal = words::bound(self.form, &thought.path, told, difference);
                self.judged.refuse(Some(refusal));
                false
            }
            Mismatch::Drop => {
                self.tell("dropped", thought, "prefix");
                false
            }
            Mismatch::Ignore => {
                self.tell("mismatch_allowed", thought, "prefix");
                true
            }
        }
    }

    fn forged(&self, thought: &Carried, sealed: bool) -> Refusal {
        match self.form {
            Form::Responses => words::encrypted(&thought.id),
            Form::Chat | Form::Messages if sealed && self.prefix.newest == Some(thought.place) => {
                words::newest(self.form, &thought.path)
            }
            Form::Chat | Form::Messages => words::forged(self.form, &thought.path),
        }
    }

    fn tell(&mut self, what: &str, thought: &Carried, check: &str) {
        self.told.push(match self.form {
            // Which members an entry has beside these is written nowhere.
            Form::Responses => json!({"type": format!("reasoning_{what}"), "id": thought.id,
                "reason": format!("{check}_mismatch")}),
            Form::Chat | Form::Messages => json!({"type": format!("thinking_{what}"),
                "path": thought.path, "reason": format!("{check}_binding_mismatch")}),
        });
    }

    fn standing(&self, thought: &Carried, seal: Option<&Seal>) -> Standing {
        let Some(seal) = seal else {
            // One that binds to nothing is of a model that has no such rule.
            let old = thought.signature.starts_with("sig-") && !thought.signature.contains('.');
            return if old {
                Standing::Foreign
            } else {
                Standing::Forged
            };
        };
        if seal.text != digest(thought.text.as_str()) {
            return Standing::Forged;
        }
        if seal.model != self.model {
            return Standing::Foreign;
        }
        match self.difference(seal) {
            Some(difference) => Standing::Moved(difference),
            None => Standing::Valid,
        }
    }

    fn difference(&self, seal: &Seal) -> Option<Difference> {
        if seal.system != self.prefix.system {
            return Some(Difference::System);
        }
        if seal.tools != self.walk.tools {
            return Some(Difference::Tools);
        }
        if seal.messages != self.walk.messages {
            return Some(self.content(seal));
        }
        // Whether an item's neighbour is there is nothing to Responses.
        if self.form == Form::Responses {
            return None;
        }
        // What is left must be the end of what there was: nothing may be missing within, and nothing
        // may stand before it that did not.
        if self.count > seal.count {
            return Some(Difference::Returned);
        }
        (self.count > 0 && seal.before != self.before).then_some(Difference::Gap)
    }

    /// Where what is said differs first, as far as the seal can tell.
    fn content(&self, seal: &Seal) -> Difference {
        let passed = &self.walk.passed;
        let first = seal.blocks.saturating_sub(seal.trail.len());
        let path = |at: usize| {
            let found = passed.get(at).or(passed.last());
            found
                .map_or("messages.0.content.0", |found| found.1)
                .to_owned()
        };
        let differs =
            |(at, hash): &(usize, u16)| passed.get(*at).is_some_and(|(found, _)| found != hash);
        let trail: Vec<(usize, u16)> = (first..).zip(seal.trail.iter().copied()).collect();
        match trail.iter().find(|found| differs(found)) {
            // All that is told apart differs, so the first to differ is not among it.
            Some((at, _)) if *at == first && first > 0 => Difference::Older(path(first)),
            Some((at, _)) => Difference::Content(path(*at)),
            None if passed.len() < seal.blocks => Difference::Missing(path(passed.len())),
            None if passed.len() > seal.blocks => Difference::Content(path(seal.blocks)),
            None => Difference::Older(path(first)),
        }
    }

    fn finished(self) -> Judged {
        let passed = &self.walk.passed;
        let trail = passed.iter().skip(passed.len().saturating_sub(TRAIL));
        let end = End {
            system: self.prefix.system,
            tools: self.walk.tools,
            messages: self.walk.messages,
            blocks: passed.len(),
            trail: trail.map(|(hash, _)| *hash).collect(),
            before: self.before,
            count: self.count,
        };
        let told = match self.form {
            Form::Messages => self.wishes.told,
            Form::Responses => !self.told.is_empty(),
            Form::Chat => false,
        };
        Judged {
            end: Some(end),
            silent: self.silent,
            transformations: told.then(|| self.told.into()),
            ..self.judged
        }
    }
}

#[cfg(test)]
mod tests;
