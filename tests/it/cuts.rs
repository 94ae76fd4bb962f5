//! A managed stream that the upstream breaks off, in all three dialects: the client gets what came,
//! nothing besides, and a connection that breaks as the upstream's did.

use tokio::io::AsyncWriteExt as _;

use super::agent::{received, until_metric};
use super::support::{Proxy, client, raw_upstream, read_head, soon};

/// Streams that say "Hello" and break off, as (path, request, events).
const CUT: [(&str, &str, &str); 3] = [
    (
        "/v1/chat/completions",
        concat!(
            r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}],"#,
            r#""tools":[{"type":"function","function":{"name":"ls","parameters":{}}}]}"#
        ),
        concat!(
            r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","#,
            r#""choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"#,
            r#""finish_reason":null}]}"#,
            "\n\n"
        ),
    ),
    (
        "/v1/responses",
        concat!(
            r#"{"model":"m","stream":true,"input":[{"role":"user","content":"go"}],"#,
            r#""tools":[{"type":"function","name":"ls","parameters":{}}]}"#
        ),
        concat!(
            "event: response.created\n",
            r#"data: {"type":"response.created","sequence_number":0,"response":{"id":"r","#,
            r#""object":"response","status":"in_progress","output":[]}}"#,
            "\n\nevent: response.output_item.added\n",
            r#"data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"#,
            r#""item":{"id":"m1","type":"message","status":"in_progress","role":"assistant","#,
            r#""content":[]}}"#,
            "\n\nevent: response.content_part.added\n",
            r#"data: {"type":"response.content_part.added","sequence_number":2,"item_id":"m1","#,
            r#""output_index":0,"content_index":0,"part":{"type":"output_text","text":"","#,
            r#""annotations":[]}}"#,
            "\n\nevent: response.output_text.delta\n",
            r#"data: {"type":"response.output_text.delta","sequence_number":3,"item_id":"m1","#,
            r#""output_index":0,"content_index":0,"delta":"Hello"}"#,
            "\n\n"
        ),
    ),
    (
        "/v1/messages",
        concat!(
            r#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"go"}],"#,
            r#""tools":[{"name":"ls","input_schema":{"type":"object"}}]}"#
        ),
        concat!(
            "event: message_start\n",
            r#"data: {"type":"message_start","message":{"id":"m1","type":"message","#,
            r#""role":"assistant","model":"m","content":[],"stop_reason":null,"#,
            r#""usage":{"input_tokens":1,"output_tokens":1}}}"#,
            "\n\nevent: content_block_start\n",
            r#"data: {"type":"content_block_start","index":0,"#,
            r#""content_block":{"type":"text","text":""}}"#,
            "\n\nevent: content_block_delta\n",
            r#"data: {"type":"content_block_delta","index":0,"#,
            r#""delta":{"type":"text_delta","text":"Hello"}}"#,
            "\n\n"
        ),
    ),
];

/// Agents go on from what they heard, or ask again because nothing said that the turn was over: so
/// nothing that came is lost, and nothing is said that did not come.
#[tokio::test]
async fn what_came_before_a_cut_arrives_and_then_the_connection_breaks() {
    for (path, body, events) in CUT {
        let addr = raw_upstream(move |mut stream| async move {
            read_head(&mut stream).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                        transfer-encoding: chunked\r\n\r\n";
            // In one write, so that the cut is there as soon as the events are.
            let answer = format!("{head}{:x}\r\n{events}\r\n", events.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let proxy = Proxy::before(addr).await;
        for _ in 0..20 {
            let sending = client().post(proxy.url(path)).body(body).send();
            let answer = received(soon(sending).await.unwrap(), false).await;
            let what = format!("{path}: {} {}", answer.status, answer.text());
            assert_eq!(answer.status, 200, "{what}");
            assert_eq!(answer.text(), events, "{what}");
            assert!(answer.broken, "{what}");
        }
        let line = r#"plimsoll_stream_aborts_total{phase="body",side="upstream"} 20"#;
        until_metric(&proxy, line).await;
    }
}
