//! What an operator asked to have back in the view: one hidden exchange at the tail, as if the model had
//! called `recall` for it, recorded and shown ever after like any other. Owns when that is sound. Never
//! brings back more than the model itself could, and never sends anything.

use bytes::Bytes;
use memchr::memmem;
use plimsoll_model::{Effect, HiddenTool, RecallOutcome, Role, StoredHop};
use plimsoll_tokens::Family;
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Block, BlockKind, Call};
use plimsoll_wire::request::Request;
use serde_json::{Value, json};

use super::asked::NamedAsk;
use super::hidden::{self, HiddenCounts, Keep};
use super::state::{HopContext, Prepared, TurnState};

/// Fields by which providers sign what a model thought.
const SIGNATURES: [&str; 4] = [
    "thought_signature",
    "thoughtSignature",
    "reasoning_details",
    "thinking_blocks",
];

/// Why no exchange may be made that the model did not have itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExchange {
    /// Messages with thinking: the newest message of the model has to begin with some.
    #[error(
        "the session runs with thinking, and its provider refuses a call that the model did not think about"
    )]
    Thinking,
    /// Families that demand their reasoning back.
    #[error(
        "its model demands its reasoning back with each call, and there is none for a call that it did not make"
    )]
    Demanded,
    /// Calls with signatures of their provider's.
    #[error("its provider signs calls, and refuses one that it did not sign")]
    Signed,
}

/// Whether a provider takes an exchange that its model did not have.
///
/// # Errors
/// Why it does not.
pub fn may_speak(request: &Request, family: &Family) -> Result<(), NoExchange> {
    if thinks(request) {
        return Err(NoExchange::Thinking);
    }
    if family.reasoning_back.demands() {
        return Err(NoExchange::Demanded);
    }
    let holds = |field: &&str| memmem::find(&request.body, field.as_bytes()).is_some();
    if SIGNATURES.iter().any(holds) {
        return Err(NoExchange::Signed);
    }
    Ok(())
}

/// Whether a request of Messages asks for thinking.
fn thinks(request: &Request) -> bool {
    #[derive(serde::Deserialize)]
    struct Asked {
        thinking: Option<Value>,
    }
    if request.dialect != Dialect::Messages {
        return false;
    }
    let asked = serde_json::from_slice::<Asked>(&request.body);
    let thinking = asked.ok().and_then(|asked| asked.thinking);
    let is_on = |thinking: &Value| thinking.get("type").and_then(Value::as_str) != Some("disabled");
    thinking.is_some_and(|thinking| !thinking.is_null() && is_on(&thinking))
}

impl TurnState {
    /// Hops of this turn whose answers were settled. An exchange that an operator asked for has none.
    #[must_use]
    pub fn settled(&self) -> usize {
        self.pending.len() - usize::from(self.asks.brought)
    }

    /// Brings back what an operator asked for, before the first hop, which `prepared` is so far. If it
    /// says something, the hop has to be prepared anew.
    pub fn bring_back(
        &mut self,
        prepared: &Prepared,
        tools: &HopContext<'_>,
    ) -> Option<HiddenCounts> {
        let asks = std::mem::take(&mut self.asks.recalls);
        let passed = prepared.pass.is_some();
        let (due, later): (Vec<NamedAsk>, Vec<NamedAsk>) =
            asks.into_iter().partition(|ask| ask.now || passed);
        if due.is_empty() || !self.pending.is_empty() || !self.is_managed() {
            self.asks.recalls = due.into_iter().chain(later).collect();
            return None;
        }
        self.asks.recalls = later;
        let (name, sound) = (
            self.injected.name(HiddenTool::Recall)?.to_owned(),
            may_speak(&self.request, tools.family).is_ok(),
        );
        // A client that has the model go on with its own words leaves no place for an exchange.
        let spoke = self
            .shapes
            .last()
            .is_none_or(|one| one.role == Role::Assistant);
        if !sound || spoke || !self.offers() {
            return None;
        }
        let reader = &tools.reader;
        let run = |asks: &[&NamedAsk]| {
            let answer = answer(self.request.dialect, &name, asks);
            hidden::settle(self, prepared, &answer, Keep::Message, reader)
        };
        let all: Vec<&NamedAsk> = due.iter().collect();
        let (hop, counted) = run(&all);
        // What brings nothing back leaves no exchange. What has no room now waits for a turn that has.
        let results = due.iter().zip(hop.calls.iter().zip(&counted.recalls));
        let mut brings = Vec::new();
        let mut full = Vec::new();
        for (ask, (call, counted)) in results {
            if matches!(call.effect, Effect::Recalled { .. }) {
                brings.push(ask);
            } else if counted.outcome == RecallOutcome::Full {
                full.push(ask.clone());
            }
        }
        if brings.is_empty() {
            self.asks.recalls.extend(full);
            return None;
        }
        let (hop, counted) = if brings.len() == due.len() {
            (hop, counted)
        } else {
            run(&brings)
        };
        self.asks.recalls.extend(full);
        self.pending.push(StoredHop {
            // Nothing was sent for it: the upstream has what it had before.
            estimate: prepared.asked.before,
            ..hop
        });
        self.asks.brought = true;
        Some(counted)
    }

    /// Takes the exchange back, because the upstream may have refused the view for it. Says whether there
    /// was one.
    pub fn take_back(&mut self) -> bool {
        let alone = self.asks.brought && self.pending.len() == 1;
        if alone {
            self.pending.clear();
            self.asks.brought = false;
        }
        alone
    }
}

/// What the model would have said.
fn answer(dialect: Dialect, name: &str, asks: &[&NamedAsk]) -> Answer {
    let kind = match dialect {
        Dialect::Chat => "function",
        Dialect::Responses => "function_call",
        Dialect::Messages => "tool_use",
    };
    let calls = asks.iter().map(|ask| Call {
        // An id of ours takes the place of none.
        id: String::new(),
        name: name.to_owned(),
        arguments: json!({"id": ask.name}).to_string(),
        kind: kind.to_owned(),
        extra: Vec::new(),
        hidden: true,
        complete: true,
    });
    let calls: Vec<Call> = calls.collect();
    let blocks = calls.iter().enumerate().map(|(at, call)| Block {
        kind: BlockKind::Call(at),
        raw: Bytes::from(dialect.call_of(call)),
    });
    let blocks = match dialect {
        Dialect::Chat => Vec::new(),
        Dialect::Responses | Dialect::Messages => blocks.collect(),
    };
    Answer {
        calls,
        blocks,
        complete: true,
        ..Answer::default()
    }
}
