//! What the provider is to answer: replies, the shape of their streams, and faults.
//!
//! Owns the types that a test writes its script in. It never touches a connection: `wire` turns a
//! reply into bytes, `server` sends them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

use crate::rng::Rng;

/// A request as a script sees it.
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    /// How many requests the provider had received before this one.
    pub index: usize,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The exact body.
    pub raw: &'a Bytes,
    /// The body, already found valid.
    pub body: &'a Value,
    /// The request's size in tokens, by the formula.
    pub size: usize,
}

impl<'a> RequestView<'a> {
    /// The messages, in order.
    #[must_use]
    pub fn messages(&self) -> &'a [Value] {
        self.body
            .get("messages")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// Whether a tool of this name is offered.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        self.body
            .get("tools")
            .and_then(Value::as_array)
            .is_some_and(|tools| {
                tools.iter().any(|entry| {
                    entry.pointer("/function/name").and_then(Value::as_str) == Some(tool)
                })
            })
    }

    /// Whether the model is asked to use a tool of this name: it is offered, and where its description
    /// says to wait, a system message names it.
    #[must_use]
    pub fn asks(&self, tool: &str) -> bool {
        let tools = self.body.get("tools").and_then(Value::as_array);
        let named =
            |entry: &&Value| entry.pointer("/function/name").and_then(Value::as_str) == Some(tool);
        let Some(entry) = tools.into_iter().flatten().find(named) else {
            return false;
        };
        let text = entry.pointer("/function/description");
        let waits = text
            .and_then(Value::as_str)
            .is_some_and(|text| text.contains("Wait until"));
        let named = format!("`{tool}`");
        let is_system = |message: &&Value| {
            let role = message.get("role").and_then(Value::as_str);
            matches!(role, Some("system" | "developer"))
        };
        let mut system = self.messages().iter().filter(is_system);
        !waits || system.any(|message| message.to_string().contains(&named))
    }

    /// A header's text, if it is there and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// One tool call of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as text, which need not be JSON.
    pub arguments: String,
}

impl Call {
    /// A call.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }
    }
}

/// One answer of the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The answer's text; empty for none.
    pub text: String,
    /// The text of `reasoning_content`; empty for none.
    pub reasoning: String,
    /// The tool calls, in order.
    pub calls: Vec<Call>,
    /// The finish reason; if there is none, what the calls call for.
    pub finish: Option<String>,
    /// How a stream of it is shaped.
    pub style: Style,
    /// What goes wrong while it is sent.
    pub fault: Option<Fault>,
    /// An answer of another kind in its place.
    pub error: Option<ErrorReply>,
    /// What the provider gives beside it.
    pub extra: Extra,
}

/// What a provider gives with an answer beside what it says, to be told by when it comes back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// Members of the first call.
    pub first_call: Map<String, Value>,
    /// Members of the message.
    pub message: Map<String, Value>,
    /// The content comes in parts, and reasoning is one of them.
    pub parts: bool,
    /// `reasoning_content` is there even where it is empty.
    pub reasoning: bool,
    /// What is thought is shown in no words.
    pub hidden: bool,
    /// What signs the reasoning, where that is bound to what stood before it.
    pub signature: Option<String>,
    /// `input_transformations`, where the answer tells them.
    pub transformations: Option<Value>,
}

impl Reply {
    /// An answer that is only text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// An answer that is only calls.
    #[must_use]
    pub fn calls(calls: Vec<Call>) -> Self {
        Self {
            calls,
            ..Self::default()
        }
    }

    /// An error with a body of the test's own.
    pub fn error(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            error: Some(ErrorReply {
                status,
                headers: Vec::new(),
                body: body.into(),
            }),
            ..Self::default()
        }
    }

    /// The same answer with a text before its calls.
    #[must_use]
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// The same answer with reasoning.
    #[must_use]
    pub fn reasoning(mut self, text: impl Into<String>) -> Self {
        self.reasoning = text.into();
        self
    }

    /// The same answer with a finish reason of the test's own, such as `length`.
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.finish = Some(reason.into());
        self
    }

    /// The same answer in another shape.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// The same answer with a fault.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// The finish reason that is sent.
    #[must_use]
    pub fn finish_reason(&self) -> &str {
        match &self.finish {
            Some(reason) => reason,
            None if self.calls.is_empty() || self.style.finish_stop => "stop",
            None => "tool_calls",
        }
    }
}

/// An answer that is no completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    /// The HTTP status.
    pub status: u16,
    /// Headers beside the content type, which is JSON unless one is given here.
    pub headers: Vec<(String, String)>,
    /// The exact body.
    pub body: Bytes,
}

/// What stands in the `index` of a streamed call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IndexStyle {
    /// The call's place, as OpenAI sends it.
    #[default]
    Present,
    /// Nothing: each call is told by its id.
    Omitted,
    /// 0 for every call.
    Zero,
}

/// Where a stream tells its usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UsagePlace {
    /// A chunk of its own at the end, if the client asked with `include_usage`.
    #[default]
    Extra,
    /// On the chunk with the finish reason, asked or not.
    OnFinish,
    /// On each chunk, asked or not.
    OnEach,
    /// Nowhere.
    Never,
}

/// How a stream is shaped. All sizes are in bytes; pieces end between characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Style {
    /// The calls' `index`.
    pub index: IndexStyle,
    /// Arguments come in pieces of this size; `None` is the whole call in one chunk.
    pub arguments: Option<usize>,
    /// Names come in pieces of this size, to be joined; `None` is the whole name at once.
    pub name: Option<usize>,
    /// Each piece of a call repeats its id.
    pub id_on_each: bool,
    /// Texts come in pieces of this size.
    pub text: usize,
    /// The stream begins with a chunk that only tells the role.
    pub role_frame: bool,
    /// Chunks of calls also say `content: null`.
    pub content_null: bool,
    /// Where usage is told.
    pub usage: UsagePlace,
    /// Lines end with CR LF.
    pub crlf: bool,
    /// Comment lines stand between the events.
    pub comments: bool,
    /// The first chunk has `choices: []` and prompt filter results, as Azure sends it.
    pub prompt_filter: bool,
    /// JSON is written with a space behind colons and commas, as Python's writer does.
    pub spaced: bool,
    /// The body is cut every so many bytes, wherever that is; `None` leaves events whole.
    pub cut: Option<usize>,
    /// The wait before each event but the first.
    pub delay: Duration,
    /// A further wait before the event with the finish reason.
    pub last_delay: Duration,
    /// The finish reason is `stop` even where calls were made.
    pub finish_stop: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            index: IndexStyle::Present,
            arguments: Some(24),
            name: None,
            id_on_each: false,
            text: 40,
            role_frame: true,
            content_null: false,
            usage: UsagePlace::Extra,
            crlf: false,
            comments: false,
            prompt_filter: false,
            spaced: false,
            cut: None,
            delay: Duration::ZERO,
            last_delay: Duration::ZERO,
            finish_stop: false,
        }
    }
}

impl Style {
    /// Some shape without delays, chosen by the generator: a sweep over many seeds meets every
    /// combination that a provider is known for.
    pub fn any(rng: &mut Rng) -> Self {
        let index = match rng.below(4) {
            0 => IndexStyle::Omitted,
            1 => IndexStyle::Zero,
            _ => IndexStyle::Present,
        };
        let usage = match rng.below(4) {
            0 => UsagePlace::OnFinish,
            1 => UsagePlace::OnEach,
            2 => UsagePlace::Never,
            _ => UsagePlace::Extra,
        };
        let size = |rng: &mut Rng, percent, most| rng.chance(percent).then(|| rng.below(most) + 1);
        Self {
            index,
            arguments: size(rng, 70, 64),
            name: size(rng, 30, 6),
            id_on_each: rng.chance(20),
            text: rng.below(400) + 8,
            role_frame: rng.chance(80),
            content_null: rng.chance(30),
            usage,
            crlf: rng.chance(25),
            comments: rng.chance(25),
            prompt_filter: rng.chance(20),
            spaced: rng.chance(30),
            cut: size(rng, 30, 700),
            delay: Duration::ZERO,
            last_delay: Duration::ZERO,
            finish_stop: rng.chance(20),
        }
    }
}

/// What goes wrong with an answer. Events are counted from 0 as they are streamed, comments not
/// counted; an unstreamed answer is one event, so there a fault at an event strikes in its middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection closes and nothing was said.
    CloseBeforeHeaders,
    /// The connection closes after so many bytes of the body.
    CloseAfter {
        /// Bytes that are still sent.
        bytes: usize,
    },
    /// The connection closes in place of an event.
    CloseAt {
        /// The event's number.
        event: usize,
    },
    /// Nothing more is said from an event on, and the connection stays open.
    StallAt {
        /// The event's number.
        event: usize,
    },
    /// The stream ends as if it were complete, in place of an event and without `[DONE]`.
    EndAt {
        /// The event's number.
        event: usize,
    },
    /// An error event stands in place of an event, and the stream ends.
    ErrorEventAt {
        /// The event's number.
        event: usize,
    },
    /// An event that is no JSON is put before an event; the rest follows.
    GarbageAt {
        /// The event's number.
        event: usize,
    },
    /// An event breaks off within a character, and the connection closes.
    HalfUtf8At {
        /// The event's number.
        event: usize,
    },
    /// A status with OpenAI's error shape: 429, 500, 503, 529.
    Status {
        /// The HTTP status.
        status: u16,
        /// The seconds of `retry-after`.
        retry_after: Option<u64>,
        /// The milliseconds of `retry-after-ms`.
        retry_after_ms: Option<u64>,
    },
    /// The request is refused as longer than this window.
    ContextLength {
        /// The window that the error text names.
        window: usize,
    },
    /// The request is taken and never answered.
    NeverAnswer,
}

/// A script that is asked with each request.
pub type AskFn = Arc<dyn Fn(&RequestView<'_>) -> Reply + Send + Sync>;

/// Where replies come from.
#[derive(Clone)]
pub enum Script {
    /// A closure answers each valid request.
    Ask(AskFn),
    /// The replies of a queue, first come, first served; then status 500.
    Queue(Arc<Mutex<VecDeque<Reply>>>),
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(_) => "Script::Ask",
            Self::Queue(_) => "Script::Queue",
        })
    }
}

impl Script {
    /// A script that is a closure.
    pub fn ask(ask: impl Fn(&RequestView<'_>) -> Reply + Send + Sync + 'static) -> Self {
        Self::Ask(Arc::new(ask))
    }

    /// A script that is a list.
    pub fn queue(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::Queue(Arc::new(Mutex::new(replies.into_iter().collect())))
    }

    /// The reply to a request.
    #[must_use]
    pub fn reply(&self, request: &RequestView<'_>) -> Reply {
        match self {
            Self::Ask(ask) => ask(request),
            Self::Queue(queue) => queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
                .unwrap_or_else(|| {
                    let body = r#"{"error":{"message":"the script has no more replies","type":"server_error","param":null,"code":null}}"#;
                    Reply::error(500, body)
                }),
        }
    }
}
