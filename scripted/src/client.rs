//! The client's side of a recorded session: an agent that resends its growing history.
//!
//! Owns the history, which holds the assistant's messages as they came back over the wire, and the
//! comparison of what came back with the script. It never sends anything: the caller has the HTTP.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::heard::Heard;
use crate::plan::TOOL;
use crate::player::{Session, TURN_HEADER};
use crate::script::Call;
use crate::violation::Violation;

/// How a client writes an assistant message without text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoText {
    /// `content: null`.
    #[default]
    Null,
    /// `content: ""`.
    Empty,
    /// No `content`.
    Omitted,
}

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The model that is asked for.
    pub model: String,
    /// Whether answers are streamed.
    pub streamed: bool,
    /// `stream_options.include_usage`; `None` sends no `stream_options`.
    pub include_usage: Option<bool>,
    /// Whether reasoning is sent back.
    pub echo_reasoning: bool,
    /// Whether `reasoning_details` are sent back, as they came.
    pub echo_details: bool,
    /// How messages without text are written.
    pub no_text: NoText,
    /// Whether the answers are expected to be annotated, which shows in texts only.
    pub annotated: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            model: "scripted-1".to_owned(),
            streamed: true,
            include_usage: Some(true),
            echo_reasoning: false,
            echo_details: false,
            no_text: NoText::Null,
            annotated: true,
        }
    }
}

/// A request as the client sends it, to `…/chat/completions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRequest {
    /// The turn, from 0.
    pub turn: usize,
    /// Headers beside credential and content type.
    pub headers: Vec<(String, String)>,
    /// The exact body.
    pub body: Bytes,
}

/// What came of a response.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The response as the client understood it.
    pub heard: Heard,
    /// Whether the client went on to its next turn; if not, the same request is due again.
    pub advanced: bool,
    /// What the client must not have met. Rules: `refused` (a status other than 200), `response`
    /// (broken as a response), `visible` (unlike the script), `leak` (something hidden shows).
    pub violations: Vec<Violation>,
}

/// An agent that plays a session.
#[derive(Debug, Clone)]
pub struct Client {
    session: Arc<Session>,
    options: ClientOptions,
    /// The messages so far, each as the exact JSON that is sent.
    history: Vec<String>,
    turn: usize,
}

impl Client {
    /// A client at the session's beginning.
    #[must_use]
    pub fn new(session: Arc<Session>, options: ClientOptions) -> Self {
        let mut client = Self {
            session,
            options,
            history: Vec::new(),
            turn: 0,
        };
        client.add();
        client
    }

    /// The turn that is due, from 0.
    #[must_use]
    pub const fn turn(&self) -> usize {
        self.turn
    }

    /// The messages of the request that is due, each as the exact JSON that is sent.
    #[must_use]
    pub fn history(&self) -> &[String] {
        &self.history
    }

    /// Changes a setting for the requests to come.
    pub fn set(&mut self, change: impl FnOnce(&mut ClientOptions)) {
        change(&mut self.options);
    }

    /// The request that is due; the same bytes until a response was heard. `None` at the end.
    #[must_use]
    pub fn request(&self) -> Option<ClientRequest> {
        self.session.recording.turns.get(self.turn)?;
        let mut body = format!(
            "{{\"model\":{},\"messages\":[{}]",
            Value::from(self.options.model.as_str()),
            self.history.join(",")
        );
        if let Some(tools) = &self.session.recording.tools {
            body.push_str(",\"tools\":");
            body.push_str(tools);
        }
        body.push_str(if self.options.streamed {
            ",\"stream\":true"
        } else {
            ",\"stream\":false"
        });
        if let (true, Some(wanted)) = (self.options.streamed, self.options.include_usage) {
            body.push_str(&format!(
                ",\"stream_options\":{{\"include_usage\":{wanted}}}"
            ));
        }
        body.push('}');
        let place = format!("{}:{}", self.session.recording.id, self.turn);
        Some(ClientRequest {
            turn: self.turn,
            headers: vec![(TURN_HEADER.to_owned(), place)],
            body: body.into(),
        })
    }

    /// Takes the response to the request that is due. A whole completion is added to the history,
    /// as it came, even where it is not what the script says; anything else leaves the client
    /// where it was.
    pub fn hear(&mut self, status: u16, body: &[u8]) -> Outcome {
        let heard = Heard::read(body, self.options.streamed && status == 200);
        let mut found = Found {
            place: self.place(),
            violations: Vec::new(),
        };
        if status != 200 || heard.error.is_some() {
            let text = String::from_utf8_lossy(body);
            found.add("refused", format!("status {status}: {text:.600}"));
            return Outcome {
                heard,
                advanced: false,
                violations: found.violations,
            };
        }
        for fault in &heard.faults {
            found.add("response", fault.clone());
        }
        self.compare(&heard, &mut found);
        self.look_for_leaks(body, &heard, &mut found);
        let advanced = heard.finish.is_some();
        if advanced {
            self.history.push(self.written(&heard));
            self.turn += 1;
            self.add();
        }
        Outcome {
            heard,
            advanced,
            violations: found.violations,
        }
    }

    /// Blanks the middle tool result of the history, as agents do that clear old results. Returns
    /// the id of the call whose result it is.
    pub fn blank_result(&mut self) -> Option<String> {
        let is_result = |raw: &&mut String| raw.contains("\"role\":\"tool\"");
        let count = self.history.iter_mut().filter(is_result).count();
        let raw = self.history.iter_mut().filter(is_result).nth(count / 2)?;
        let mut message: Value = serde_json::from_str(raw).ok()?;
        message
            .as_object_mut()?
            .insert("content".into(), "[cleared]".into());
        *raw = message.to_string();
        message.get("tool_call_id")?.as_str().map(str::to_owned)
    }

    fn place(&self) -> String {
        format!("{} turn {}", self.session.recording.id, self.turn)
    }

    fn add(&mut self) {
        if let Some(turn) = self.session.recording.turns.get(self.turn) {
            self.history
                .extend(turn.before.iter().map(|message| message.raw.clone()));
        }
    }

    fn compare(&self, heard: &Heard, found: &mut Found) {
        let want = self
            .session
            .plan()
            .visible(self.turn, self.options.annotated);
        if heard.text != want.text {
            found.add(
                "visible",
                format!("text {:?}, the script says {:?}", heard.text, want.text),
            );
        }
        if heard.calls != want.calls {
            found.add(
                "visible",
                format!("calls {:?}, the script says {:?}", heard.calls, want.calls),
            );
        }
        if !heard.reasoning.ends_with(&want.reasoning) {
            let text = format!(
                "reasoning {:?}, the script says {:?}",
                heard.reasoning, want.reasoning
            );
            found.add("visible", text);
        }
        let calls = !want.calls.is_empty();
        let finish = heard.finish.as_deref();
        if finish != Some("stop") && !(calls && finish == Some("tool_calls")) {
            found.add("visible", format!("the finish reason is {finish:?}"));
        }
    }

    /// Scans the raw bytes: ids, names and descriptions of annotations, and more mentions of the
    /// hidden tool than the script's own text has.
    fn look_for_leaks(&self, body: &[u8], heard: &Heard, found: &mut Found) {
        let raw = String::from_utf8_lossy(body);
        let want = self
            .session
            .plan()
            .visible(self.turn, self.options.annotated);
        let mut said = format!("{}{}", want.text, want.reasoning);
        if !heard.details.is_empty() {
            // Details say again what was thought.
            said.push_str(&want.reasoning);
        }
        for call in &want.calls {
            said.push_str(&call.name);
            said.push_str(&call.arguments);
        }
        let (have, own) = (raw.matches(TOOL).count(), said.matches(TOOL).count());
        if have > own {
            found.add(
                "leak",
                format!("{TOOL:?} occurs {have} times, in the script {own} times"),
            );
        }
        let plan = self.session.plan();
        let hops = plan.hops(self.turn);
        let hidden = hops
            .iter()
            .flat_map(|hop| hop.calls.iter().filter(|call| call.hidden));
        for planned in hidden {
            let fields: Value = serde_json::from_str(&planned.call.arguments).unwrap_or_default();
            let marks = [
                Some(planned.call.id.as_str()),
                field(&fields, "name"),
                field(&fields, "description"),
            ];
            for mark in marks.into_iter().flatten() {
                if raw.contains(mark) {
                    found.add("leak", format!("{mark:?} shows"));
                }
            }
        }
    }

    /// The assistant's message as this client sends it back.
    fn written(&self, heard: &Heard) -> String {
        let mut message = json!({"role": "assistant", "content": heard.text});
        let Some(fields) = message.as_object_mut() else {
            return String::new();
        };
        if heard.text.is_empty() && !heard.calls.is_empty() {
            match self.options.no_text {
                NoText::Null => fields.insert("content".into(), Value::Null),
                NoText::Empty => None,
                NoText::Omitted => fields.remove("content"),
            };
        }
        if self.options.echo_reasoning && !heard.reasoning.is_empty() {
            fields.insert("reasoning_content".into(), heard.reasoning.as_str().into());
        }
        if self.options.echo_details && !heard.details.is_empty() {
            fields.insert("reasoning_details".into(), heard.details.clone().into());
        }
        if !heard.calls.is_empty() {
            let calls: Vec<Value> = heard.calls.iter().map(written_call).collect();
            fields.insert("tool_calls".into(), calls.into());
        }
        message.to_string()
    }
}

struct Found {
    place: String,
    violations: Vec<Violation>,
}

impl Found {
    fn add(&mut self, rule: &'static str, text: String) {
        self.violations
            .push(Violation::new(rule, &self.place, text));
    }
}

fn written_call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

fn field<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}
