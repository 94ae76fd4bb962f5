//! Answers of all dialects, whole and streamed, with a hidden call and without. Spoils none of them.

use plimsoll_wire::Dialect;

pub const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

/// The hidden call's id wherever a dialect has one.
pub const ID: &str = "call_hidden_1";
/// Its arguments, as text and as they stand in a string.
pub const ARGUMENTS: &str = r#"{"action":"start","name":"a","type":"expl"}"#;
pub const QUOTED: &str = r#"{\"action\":\"start\",\"name\":\"a\",\"type\":\"expl\"}"#;
/// What a stream says before its hidden call, where it says anything.
pub const FIRST: &str = "First.";
/// What the second answer says.
pub const THEN: &str = "Then.";

pub fn path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => "/v1/chat/completions",
        Dialect::Responses => "/v1/responses",
        Dialect::Messages => "/v1/messages",
    }
}

pub fn request(dialect: Dialect, stream: bool) -> String {
    match dialect {
        Dialect::Chat => format!(
            r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"go"}}],"tools":[{{"type":"function","function":{{"name":"ls","parameters":{{}}}}}}]}}"#
        ),
        Dialect::Responses => format!(
            r#"{{"model":"m","stream":{stream},"input":[{{"role":"user","content":"go"}}],"tools":[{{"type":"function","name":"ls","parameters":{{}}}}]}}"#
        ),
        Dialect::Messages => format!(
            r#"{{"model":"m","max_tokens":9,"stream":{stream},"messages":[{{"role":"user","content":"go"}}],"tools":[{{"name":"ls","input_schema":{{"type":"object"}}}}]}}"#
        ),
    }
}

/// A whole answer that calls `delimiter` and nothing else.
pub fn whole_hidden(dialect: Dialect) -> String {
    match dialect {
        Dialect::Chat => format!(
            r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"{ID}","type":"function","function":{{"name":"delimiter","arguments":"{QUOTED}"}}}}]}},"finish_reason":"tool_calls"}}]}}"#
        ),
        Dialect::Responses => format!(
            r#"{{"id":"resp_1","object":"response","created_at":1,"model":"m","status":"completed","output":[{{"type":"function_call","id":"fc_1","call_id":"{ID}","name":"delimiter","arguments":"{QUOTED}","status":"completed"}}]}}"#
        ),
        Dialect::Messages => format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{{"type":"tool_use","id":"{ID}","name":"delimiter","input":{ARGUMENTS}}}],"stop_reason":"tool_use","usage":{{"input_tokens":1,"output_tokens":1}}}}"#
        ),
    }
}

/// A whole answer that says this.
pub fn whole_text(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Chat => format!(
            r#"{{"id":"d","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}"#
        ),
        Dialect::Responses => format!(
            r#"{{"id":"resp_2","object":"response","created_at":1,"model":"m","status":"completed","output":[{{"type":"message","id":"msg_2","role":"assistant","status":"completed","content":[{{"type":"output_text","text":"{text}","annotations":[]}}]}}]}}"#
        ),
        Dialect::Messages => format!(
            r#"{{"id":"msg_2","type":"message","role":"assistant","model":"m","content":[{{"type":"text","text":"{text}"}}],"stop_reason":"end_turn","usage":{{"input_tokens":1,"output_tokens":1}}}}"#
        ),
    }
}

pub fn events(frames: &[String]) -> Vec<String> {
    let event = |data: &String| format!("data: {data}\n\n");
    frames.iter().map(event).collect()
}

/// The events of a stream that says a text, if one is given, and makes the hidden call, if asked.
pub fn streamed(dialect: Dialect, text: Option<&str>, hidden: bool) -> Vec<String> {
    match dialect {
        Dialect::Chat => streamed_chat(text, hidden),
        Dialect::Responses => streamed_responses(text, hidden),
        Dialect::Messages => streamed_messages(text, hidden),
    }
}

pub fn streamed_chat(text: Option<&str>, hidden: bool) -> Vec<String> {
    let chunk = |delta: &str, finish: &str| {
        format!(
            r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
        )
    };
    let mut frames = Vec::new();
    frames.extend(text.map(|text| chunk(&format!(r#"{{"content":"{text}"}}"#), "null")));
    if hidden {
        frames.push(chunk(
            &format!(
                r#"{{"tool_calls":[{{"index":0,"id":"{ID}","type":"function","function":{{"name":"delimiter","arguments":"{QUOTED}"}}}}]}}"#
            ),
            "null",
        ));
    }
    frames.push(chunk(
        "{}",
        if hidden {
            r#""tool_calls""#
        } else {
            r#""stop""#
        },
    ));
    let mut frames = events(&frames);
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

pub fn streamed_responses(text: Option<&str>, hidden: bool) -> Vec<String> {
    let mut frames = vec![
        r#"{"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1,"model":"m","status":"in_progress","output":[]}}"#.to_owned(),
    ];
    let mut output = Vec::new();
    if let Some(text) = text {
        let item = format!(
            r#"{{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{{"type":"output_text","text":"{text}","annotations":[]}}]}}"#
        );
        frames.push(r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}}"#.to_owned());
        frames.push(format!(
            r#"{{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"{text}"}}"#
        ));
        frames.push(format!(
            r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#
        ));
        output.push(item);
    }
    if hidden {
        let at = output.len();
        let item = |arguments: &str| {
            format!(
                r#"{{"type":"function_call","id":"fc_1","call_id":"{ID}","name":"delimiter","arguments":"{arguments}","status":"completed"}}"#
            )
        };
        frames.push(format!(
            r#"{{"type":"response.output_item.added","output_index":{at},"item":{}}}"#,
            item("")
        ));
        frames.push(format!(
            r#"{{"type":"response.output_item.done","output_index":{at},"item":{}}}"#,
            item(QUOTED)
        ));
        output.push(item(QUOTED));
    }
    frames.push(format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","object":"response","created_at":1,"model":"m","status":"completed","output":[{}]}}}}"#,
        output.join(",")
    ));
    events(&frames)
}

pub fn streamed_messages(text: Option<&str>, hidden: bool) -> Vec<String> {
    let mut frames = vec![
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}"#.to_owned(),
    ];
    let mut at = 0;
    if let Some(text) = text {
        frames.push(
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#
                .to_owned(),
        );
        frames.push(format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
        ));
        frames.push(r#"{"type":"content_block_stop","index":0}"#.to_owned());
        at = 1;
    }
    if hidden {
        frames.push(format!(
            r#"{{"type":"content_block_start","index":{at},"content_block":{{"type":"tool_use","id":"{ID}","name":"delimiter","input":{{}}}}}}"#
        ));
        frames.push(format!(
            r#"{{"type":"content_block_delta","index":{at},"delta":{{"type":"input_json_delta","partial_json":"{QUOTED}"}}}}"#
        ));
        frames.push(format!(r#"{{"type":"content_block_stop","index":{at}}}"#));
    }
    let reason = if hidden { "tool_use" } else { "end_turn" };
    frames.push(format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":1}}}}"#
    ));
    frames.push(r#"{"type":"message_stop"}"#.to_owned());
    events(&frames)
}
