//! Writes streams as OpenAI does: which events bring an item, in which order, with which fields.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Value, json};

/// The client's own instructions as they stand in its request.
pub(super) const OWN: &str = "Be brief.\nUse t\u{f6}\u{f6}ls.";
/// What the proxy appended to them.
pub(super) const GUIDANCE: &str = "Mark your episodes with delimiter.";

/// One hop in the making.
#[derive(Clone)]
pub(super) struct Hop {
    id: String,
    stream: String,
    sequence: u64,
    /// The items that are whole, as raw JSON.
    output: Vec<String>,
    /// Whether the upstream was sent more than the client's own request.
    injected: bool,
    limit: u64,
    padded: bool,
}

impl Hop {
    /// A hop of a turn into which hidden tools were injected.
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            stream: String::new(),
            sequence: 0,
            output: Vec::new(),
            injected: true,
            limit: 500,
            padded: false,
        }
    }

    /// As if the client's own request had been sent.
    pub(super) fn plain(mut self) -> Self {
        self.injected = false;
        self
    }

    /// With another token limit than the client's.
    pub(super) fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// With the padding that hides the length of what is said.
    pub(super) fn padded(mut self) -> Self {
        self.padded = true;
        self
    }

    /// The stream.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes::from(self.stream.clone())
    }

    /// The response object, as the last event and the unstreamed body have it.
    pub(super) fn response(&self, status: &str, usage: [u64; 4]) -> String {
        let tool = |name: &str| {
            format!(
                r#"{{"type":"function","description":"does {name}","name":"{name}","strict":false}}"#
            )
        };
        let mut tools = vec![tool("read"), r#"{"type": "web_search"}"#.to_owned()];
        let mut instructions = OWN.to_owned();
        if self.injected {
            tools.splice(0..0, [tool("delimiter"), tool("recall")]);
            write!(instructions, "\n\n{GUIDANCE}").unwrap();
        }
        let [input, cached, output, reasoning] = usage;
        let usage = format!(
            r#"{{"input_tokens":{input},"input_tokens_details":{{"cached_tokens":{cached}}},"output_tokens":{output},"output_tokens_details":{{"reasoning_tokens":{reasoning}}},"total_tokens":{}}}"#,
            input + output
        );
        let usage = if input == 0 { "null".to_owned() } else { usage };
        let details = match status {
            "length" => r#"{"reason":"max_output_tokens"}"#,
            "filter" => r#"{"reason":"content_filter"}"#,
            _ => "null",
        };
        let error = match status {
            "failed" => r#"{"code":"server_error","message":"it broke"}"#,
            _ => "null",
        };
        let status = match status {
            "length" | "filter" => "incomplete",
            other => other,
        };
        format!(
            r#"{{"id":"{}","object":"response","created_at":17,"status":"{status}","error":{error},"incomplete_details":{details},"instructions":{},"max_output_tokens":{},"model":"gpt-5.1","output":[{}],"tools":[{}],"usage":{usage},"top_p":1.0}}"#,
            self.id,
            Value::from(instructions),
            self.limit,
            self.output.join(","),
            tools.join(","),
        )
    }

    /// An event under its name; its members stand behind type and number.
    pub(super) fn event(mut self, kind: &str, members: &str) -> Self {
        let padding = if self.padded && kind.ends_with(".delta") {
            let pad = "q".repeat((self.sequence % 5) as usize);
            format!(r#","obfuscation":"{pad}""#)
        } else {
            String::new()
        };
        write!(
            self.stream,
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{},{members}{padding}}}\n\n",
            self.sequence
        )
        .unwrap();
        self.sequence += 1;
        self
    }

    /// Bytes of any kind.
    pub(super) fn raw(mut self, bytes: &str) -> Self {
        self.stream.push_str(bytes);
        self
    }

    pub(super) fn begin(self) -> Self {
        let response = format!(
            r#""response":{}"#,
            self.clone().empty().response("in_progress", [0; 4])
        );
        self.event("response.created", &response)
            .event("response.in_progress", &response)
    }

    fn empty(mut self) -> Self {
        self.output.clear();
        self
    }

    /// The end, with input, cached, output and reasoning tokens.
    pub(super) fn end(self, status: &str, usage: [u64; 4]) -> Self {
        let response = format!(r#""response":{}"#, self.response(status, usage));
        let kind = match status {
            "length" | "filter" => "response.incomplete",
            "failed" => "response.failed",
            _ => "response.completed",
        };
        self.event(kind, &response)
    }

    fn added(self, item: &str) -> Self {
        let members = format!(r#""output_index":{},"item":{item}"#, self.output.len());
        self.event("response.output_item.added", &members)
    }

    fn done(mut self, item: &str) -> Self {
        let members = format!(r#""output_index":{},"item":{item}"#, self.output.len());
        self.output.push(item.to_owned());
        self.event("response.output_item.done", &members)
    }

    /// Leaves out the frames of the item that was said last, from the one of this type on, as if
    /// the upstream had been cut short; the end then still tells of it.
    pub(super) fn torn(mut self, before: &str) -> Self {
        let at = self.stream.rfind(&format!("event: {before}\n")).unwrap();
        self.sequence -= self.stream[at..].matches("\n\n").count() as u64;
        self.stream.truncate(at);
        self
    }

    fn within(self, kind: &str, id: &str, members: &str) -> Self {
        let members = format!(
            r#""item_id":"{id}","output_index":{},{members}"#,
            self.output.len()
        );
        self.event(kind, &members)
    }

    pub(super) fn text(self, id: &str, pieces: &[&str]) -> Self {
        let whole = pieces.concat();
        let part = |text: &str| {
            format!(
                r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{}}}"#,
                json!(text)
            )
        };
        let item = |status: &str, content: &str| {
            format!(
                r#"{{"id":"{id}","type":"message","status":"{status}","content":[{content}],"role":"assistant"}}"#
            )
        };
        let at = r#""content_index":0"#;
        let mut hop = self.added(&item("in_progress", "")).within(
            "response.content_part.added",
            id,
            &format!(r#"{at},"part":{}"#, part("")),
        );
        for piece in pieces {
            let delta = format!(r#"{at},"delta":{},"logprobs":[]"#, json!(piece));
            hop = hop.within("response.output_text.delta", id, &delta);
        }
        let text = format!(r#"{at},"text":{},"logprobs":[]"#, json!(whole));
        let done = format!(r#"{at},"part":{}"#, part(&whole));
        hop.within("response.output_text.done", id, &text)
            .within("response.content_part.done", id, &done)
            .done(&item("completed", &part(&whole)))
    }

    pub(super) fn refusal(self, id: &str, pieces: &[&str]) -> Self {
        let whole = pieces.concat();
        let part = |text: &str| format!(r#"{{"type":"refusal","refusal":{}}}"#, json!(text));
        let item = |status: &str, content: &str| {
            format!(
                r#"{{"id":"{id}","type":"message","status":"{status}","content":[{content}],"role":"assistant"}}"#
            )
        };
        let at = r#""content_index":0"#;
        let mut hop = self.added(&item("in_progress", "")).within(
            "response.content_part.added",
            id,
            &format!(r#"{at},"part":{}"#, part("")),
        );
        for piece in pieces {
            let delta = format!(r#"{at},"delta":{}"#, json!(piece));
            hop = hop.within("response.refusal.delta", id, &delta);
        }
        let text = format!(r#"{at},"refusal":{}"#, json!(whole));
        let done = format!(r#"{at},"part":{}"#, part(&whole));
        hop.within("response.refusal.done", id, &text)
            .within("response.content_part.done", id, &done)
            .done(&item("completed", &part(&whole)))
    }

    pub(super) fn reasoning(self, id: &str, summaries: &[&str]) -> Self {
        let part = |text: &str| format!(r#"{{"type":"summary_text","text":{}}}"#, json!(text));
        let mut hop = self.added(&format!(
            r#"{{"id":"{id}","type":"reasoning","encrypted_content":"gAAAA{id}","summary":[]}}"#
        ));
        for (at, summary) in summaries.iter().enumerate() {
            let at = format!(r#""summary_index":{at}"#);
            let (text, part) = (json!(summary), part(summary));
            hop = hop
                .within(
                    "response.reasoning_summary_part.added",
                    id,
                    &format!(r#"{at},"part":{{"type":"summary_text","text":""}}"#),
                )
                .within(
                    "response.reasoning_summary_text.delta",
                    id,
                    &format!(r#"{at},"delta":{text}"#),
                )
                .within(
                    "response.reasoning_summary_text.done",
                    id,
                    &format!(r#"{at},"text":{text}"#),
                )
                .within(
                    "response.reasoning_summary_part.done",
                    id,
                    &format!(r#"{at},"part":{part}"#),
                );
        }
        let whole: Vec<String> = summaries.iter().map(|summary| part(summary)).collect();
        hop.done(&format!(
            r#"{{"id":"{id}","type":"reasoning","encrypted_content":"gAAAA{id}+/==","summary":[{}]}}"#,
            whole.join(",")
        ))
    }

    pub(super) fn call(self, id: &str, name: &str, pieces: &[&str]) -> Self {
        let whole = json!(pieces.concat());
        let item = |status: &str, name: &str, arguments: &Value| {
            format!(
                r#"{{"id":"fc_{id}","type":"function_call","status":"{status}","arguments":{arguments},"call_id":"call_{id}","name":"{name}"}}"#
            )
        };
        // A name in braces is told only when the call is whole.
        let late = name
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        let (first, name) = (late.map_or(name, |_| ""), late.unwrap_or(name));
        let own = format!("fc_{id}");
        let mut hop = self.added(&item("in_progress", first, &json!("")));
        for piece in pieces {
            let delta = format!(r#""delta":{}"#, json!(piece));
            hop = hop.within("response.function_call_arguments.delta", &own, &delta);
        }
        let done = format!(r#""arguments":{whole},"name":"{name}""#);
        hop.within("response.function_call_arguments.done", &own, &done)
            .done(&item("completed", name, &whole))
    }

    pub(super) fn custom(self, id: &str, name: &str, pieces: &[&str]) -> Self {
        let whole = json!(pieces.concat());
        let item = |status: &str, input: &Value| {
            format!(
                r#"{{"id":"ctc_{id}","type":"custom_tool_call","status":"{status}","call_id":"call_{id}","input":{input},"name":"{name}"}}"#
            )
        };
        let own = format!("ctc_{id}");
        let mut hop = self.added(&item("in_progress", &json!("")));
        for piece in pieces {
            let delta = format!(r#""delta":{}"#, json!(piece));
            hop = hop.within("response.custom_tool_call_input.delta", &own, &delta);
        }
        hop.within(
            "response.custom_tool_call_input.done",
            &own,
            &format!(r#""input":{whole}"#),
        )
        .done(&item("completed", &whole))
    }

    pub(super) fn search(self, id: &str) -> Self {
        let item = |status: &str, action: &str| {
            format!(r#"{{"id":"{id}","type":"web_search_call","status":"{status}"{action}}}"#)
        };
        let mut hop = self.added(&item("in_progress", ""));
        for step in ["in_progress", "searching", "completed"] {
            let kind = format!("response.web_search_call.{step}");
            let members = format!(r#""output_index":{},"item_id":"{id}""#, hop.output.len());
            hop = hop.event(&kind, &members);
        }
        hop.done(&item(
            "completed",
            r#","action":{"type":"search","query":"tides"}"#,
        ))
    }

    /// An item that comes in two frames and is not touched in between.
    pub(super) fn item(self, begun: &str, whole: &str) -> Self {
        self.added(begun).done(whole)
    }
}
