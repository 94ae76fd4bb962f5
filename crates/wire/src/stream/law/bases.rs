//! The answers that are spoilt: the corpora of all dialects, and some with ids that stand in
//! nothing else.

use std::sync::OnceLock;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Echo, Spec, UsageWish, WhoAsked};
use crate::Dialect;
use crate::{chat, messages, responses};

/// A turn: how it is to be read, and its hops.
pub(super) type Base = (Spec, Vec<Bytes>);

pub(super) fn spec(dialect: Dialect) -> Spec {
    Spec {
        dialect,
        hidden: ["delimiter", "recall"].into_iter().collect(),
        usage_wish: UsageWish::Asked,
        echo: Echo::default(),
        asked: WhoAsked::default(),
        one_text: false,
    }
}

/// One of the streams.
pub(super) fn stream(at: prop::sample::Index) -> &'static Base {
    static ALL: OnceLock<Vec<Base>> = OnceLock::new();
    let all = ALL.get_or_init(streams);
    &all[at.index(all.len())]
}

/// One of the bodies.
pub(super) fn body(at: prop::sample::Index) -> &'static Base {
    static ALL: OnceLock<Vec<Base>> = OnceLock::new();
    let all = ALL.get_or_init(bodies);
    &all[at.index(all.len())]
}

fn streams() -> Vec<Base> {
    let mut all = [
        chat::stream::tests::streams(),
        responses::stream::tests::streams(),
        messages::stream::tests::streams(),
    ]
    .concat();
    // Half of all.
    let own = own();
    let times = all.len() / own.len();
    all.extend((0..times).flat_map(|_| own.clone()));
    all
}

/// How the ids of hidden calls begin.
pub(super) const HIDDEN: &str = "call_hidden";

/// The hidden calls, their ids and a visible call between.
const CALLS: [(&str, &str, &str); 3] = [
    ("call_hidden_a1", "delimiter", r#"{\"action\":\"end\"}"#),
    ("call_shown_b2", "read", r#"{\"path\":\"a\"}"#),
    ("call_hidden_c3", "recall", r#"{\"id\":\"read:1\"}"#),
];

/// Streams with hidden calls between others, and with hidden calls alone; their names whole and in
/// pieces.
pub(super) fn own() -> Vec<Base> {
    let mut all = Vec::new();
    for calls in [&CALLS[..], &CALLS[..1], &CALLS[1..]] {
        for piece in [100, 4] {
            let hop = Bytes::from(chat_stream(calls, piece));
            all.push((spec(Dialect::Chat), vec![hop.clone(), hop]));
        }
        let hop = Bytes::from(responses_stream(calls));
        all.push((spec(Dialect::Responses), vec![hop.clone(), hop]));
        let hop = Bytes::from(messages_stream(calls));
        all.push((spec(Dialect::Messages), vec![hop.clone(), hop]));
    }
    all
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn named(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\",{data}}}\n\n")
}

fn chunk(delta: &str, finish: &str) -> String {
    event(&format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
    ))
}

fn chat_stream(calls: &[(&str, &str, &str)], piece: usize) -> String {
    let mut stream = chunk(r#"{"role":"assistant","content":"Hi."}"#, "null");
    for (at, (id, name, arguments)) in calls.iter().enumerate() {
        let pieces: Vec<&str> = (0..name.len())
            .step_by(piece)
            .map(|from| &name[from..name.len().min(from + piece)])
            .collect();
        for (number, piece) in pieces.iter().enumerate() {
            let id = if number == 0 {
                format!(r#""id":"{id}","type":"function","#)
            } else {
                String::new()
            };
            stream += &chunk(
                &format!(
                    r#"{{"tool_calls":[{{"index":{at},{id}"function":{{"name":"{piece}"}}}}]}}"#
                ),
                "null",
            );
        }
        stream += &chunk(
            &format!(
                r#"{{"tool_calls":[{{"index":{at},"function":{{"arguments":"{arguments}"}}}}]}}"#
            ),
            "null",
        );
    }
    stream + &chunk("{}", "\"tool_calls\"") + "data: [DONE]\n\n"
}

fn item((id, name, arguments): &(&str, &str, &str), status: &str) -> String {
    format!(
        r#"{{"type":"function_call","id":"fc_{id}","call_id":"{id}","name":"{name}","arguments":"{arguments}","status":"{status}"}}"#
    )
}

fn response(output: &str, status: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1,"model":"m","status":"{status}","output":[{output}]}}"#
    )
}

fn responses_stream(calls: &[(&str, &str, &str)]) -> String {
    let begun = response("", "in_progress");
    let mut stream = named("response.created", &format!(r#""response":{begun}"#));
    for (at, call) in calls.iter().enumerate() {
        let (id, _, arguments) = call;
        let begun = item(&(call.0, call.1, ""), "in_progress");
        let whole = item(call, "completed");
        stream += &named(
            "response.output_item.added",
            &format!(r#""output_index":{at},"item":{begun}"#),
        );
        stream += &named(
            "response.function_call_arguments.delta",
            &format!(r#""item_id":"fc_{id}","output_index":{at},"delta":"{arguments}""#),
        );
        stream += &named(
            "response.output_item.done",
            &format!(r#""output_index":{at},"item":{whole}"#),
        );
    }
    let output: Vec<String> = calls.iter().map(|call| item(call, "completed")).collect();
    let whole = response(&output.join(","), "completed");
    stream + &named("response.completed", &format!(r#""response":{whole}"#))
}

fn messages_stream(calls: &[(&str, &str, &str)]) -> String {
    let mut stream = named(
        "message_start",
        r#""message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}"#,
    );
    for (at, (id, name, arguments)) in calls.iter().enumerate() {
        stream += &named(
            "content_block_start",
            &format!(
                r#""index":{at},"content_block":{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#
            ),
        );
        stream += &named(
            "content_block_delta",
            &format!(
                r#""index":{at},"delta":{{"type":"input_json_delta","partial_json":"{arguments}"}}"#
            ),
        );
        stream += &named("content_block_stop", &format!(r#""index":{at}"#));
    }
    stream
        + &named(
            "message_delta",
            r#""delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":1}"#,
        )
        + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}

/// Whole bodies with the same calls.
pub(super) fn bodies() -> Vec<Base> {
    let mut all = Vec::new();
    for calls in [&CALLS[..], &CALLS[..1], &CALLS[1..]] {
        let list = |one: &dyn Fn(&(&str, &str, &str)) -> String| {
            calls.iter().map(one).collect::<Vec<_>>().join(",")
        };
        let chat = list(&|(id, name, arguments)| {
            format!(
                r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{arguments}"}}}}"#
            )
        });
        let chat = format!(
            r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{chat}]}},"finish_reason":"tool_calls"}}]}}"#
        );
        let blocks = list(&|(id, name, arguments)| {
            let input = arguments.replace('\\', "");
            format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}"#)
        });
        let message = format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{blocks}],"stop_reason":"tool_use","usage":{{"input_tokens":1,"output_tokens":1}}}}"#
        );
        let output = response(&list(&|call| item(call, "completed")), "completed");
        for (dialect, body) in [
            (Dialect::Chat, chat),
            (Dialect::Responses, output),
            (Dialect::Messages, message),
        ] {
            let body = Bytes::from(body);
            all.push((spec(dialect), vec![body.clone(), body]));
        }
    }
    all
}

/// What talk of hidden calls is made of.
pub(super) fn talk() -> Vec<&'static str> {
    vec![
        "delimiter",
        "recall",
        "\"name\":\"delimiter\"",
        "{\"tool_calls\":[{\"function\":{\"name\":\"recall\"}}]}",
        "\"",
        "\\",
        "\n",
        "data: {\"name\":\"delimiter\"}\n\n",
        "call_hidden_a1",
        "\u{e4} ",
        "{",
        "]",
        "NaN",
    ]
}

/// A stream and a body that say this text, given as a JSON string, and have it as a visible call's
/// argument.
pub(super) fn saying(dialect: Dialect, text: &str) -> (Spec, Bytes, Bytes) {
    let input = format!(r#"{{"name":{text},"x":{{"name":"delimiter"}}}}"#);
    let arguments = plimsoll_model::raw::quote(&input);
    let (stream, body) = match dialect {
        Dialect::Chat => chat_saying(text, &arguments),
        Dialect::Responses => responses_saying(text, &arguments),
        Dialect::Messages => messages_saying(text, &input, &arguments),
    };
    (spec(dialect), Bytes::from(stream), Bytes::from(body))
}

fn chat_saying(text: &str, arguments: &str) -> (String, String) {
    let call = format!(
        r#"[{{"index":0,"id":"c1","type":"function","function":{{"name":"read","arguments":{arguments}}}}}]"#
    );
    let stream = chunk(&format!(r#"{{"content":{text}}}"#), "null")
        + &chunk(
            &format!(r#"{{"reasoning_content":{text},"x":{text}}}"#),
            "null",
        )
        + &chunk(&format!(r#"{{"tool_calls":{call}}}"#), "null")
        + &chunk("{}", "\"tool_calls\"")
        + "data: [DONE]\n\n";
    let body = format!(
        r#"{{"id":"c","choices":[{{"index":0,"message":{{"role":"assistant","content":{text},"tool_calls":{call}}},"finish_reason":"tool_calls"}}]}}"#
    );
    (stream, body)
}

fn responses_saying(text: &str, arguments: &str) -> (String, String) {
    let said = format!(
        r#"{{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{{"type":"output_text","text":{text},"annotations":[]}}]}}"#
    );
    let call = format!(
        r#"{{"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":{arguments},"status":"completed"}}"#
    );
    let begun = response("", "in_progress");
    let whole = response(&format!("{said},{call}"), "completed");
    let mut stream = named("response.created", &format!(r#""response":{begun}"#));
    stream += &named(
        "response.output_item.added",
        r#""output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}"#,
    );
    stream += &named(
        "response.output_text.delta",
        &format!(r#""item_id":"msg_1","output_index":0,"content_index":0,"delta":{text}"#),
    );
    for (at, item) in [said, call].iter().enumerate() {
        stream += &named(
            "response.output_item.done",
            &format!(r#""output_index":{at},"item":{item}"#),
        );
    }
    stream += &named("response.completed", &format!(r#""response":{whole}"#));
    (stream, whole)
}

fn messages_saying(text: &str, input: &str, arguments: &str) -> (String, String) {
    let delta = |at: u8, kind: &str, key: &str, value: &str| {
        named(
            "content_block_delta",
            &format!(r#""index":{at},"delta":{{"type":"{kind}","{key}":{value}}}"#),
        )
    };
    let stop = |at: u8| named("content_block_stop", &format!(r#""index":{at}"#));
    let stream = named(
        "message_start",
        r#""message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null}"#,
    ) + &named(
        "content_block_start",
        r#""index":0,"content_block":{"type":"text","text":""}"#,
    ) + &delta(0, "text_delta", "text", text)
        + &stop(0)
        + &named(
            "content_block_start",
            r#""index":1,"content_block":{"type":"tool_use","id":"c1","name":"read","input":{}}"#,
        )
        + &delta(1, "input_json_delta", "partial_json", arguments)
        + &stop(1)
        + &named(
            "message_delta",
            r#""delta":{"stop_reason":"tool_use","stop_sequence":null}"#,
        )
        + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let body = format!(
        r#"{{"id":"msg_1","type":"message","role":"assistant","content":[{{"type":"text","text":{text}}},{{"type":"tool_use","id":"c1","name":"read","input":{input}}}],"stop_reason":"tool_use"}}"#
    );
    (stream, body)
}
