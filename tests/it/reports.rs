//! What the provider reports of a request's size corrects the counts of those behind it, however
//! late it comes, and also where the turns between have no report.

use std::time::Duration;

use axum::response::Response;
use serde_json::{Value, json};

use super::agent::tools;
use super::process::Process;
use super::support::{Lenient, channel_body, client, soon};

const SAID: &str = concat!(
    r#"data: {"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"said"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    "\n\n"
);
const REPORT: &str = concat!(
    r#"data: {"id":"c","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":2500,"completion_tokens":1,"total_tokens":2501}}"#,
    "\n\n"
);
/// How long behind the finish reason the report comes.
const LATE: Duration = Duration::from_millis(400);

/// One that reports the first turn alone, behind all that it says.
async fn provider() -> Lenient {
    Lenient::start(|_, body| {
        let body: Value = serde_json::from_slice(body).unwrap();
        let messages = body["messages"].as_array().unwrap();
        let first = messages
            .iter()
            .all(|message| message["role"] != "assistant");
        let (sender, answer) = channel_body();
        tokio::spawn(async move {
            sender.send(SAID).await.unwrap();
            tokio::time::sleep(LATE).await;
            if first {
                sender.send(REPORT).await.unwrap();
            }
            sender.send("data: [DONE]\n\n").await.unwrap();
        });
        let built = Response::builder().header("content-type", "text/event-stream");
        built.body(answer).unwrap()
    })
    .await
}

/// The size of the view, as the proxy tells it.
async fn size(process: &Process, turns: usize) -> u64 {
    let mut messages = vec![json!({"role": "user", "content": "go ".repeat(500)})];
    for turn in 1..turns {
        messages.push(json!({"role": "assistant", "content": "said"}));
        messages.push(json!({"role": "user", "content": format!("and {turn}")}));
    }
    let body = json!({"model": "m", "stream": true, "messages": messages, "tools": tools()});
    let request = client().post(process.url("/v1/chat/completions"));
    let answer = request.bearer_auth("k").body(body.to_string()).send();
    let answer = soon(answer).await.unwrap();
    let size = answer.headers()["x-plimsoll-context-tokens"].to_str();
    let size = size.unwrap().parse().unwrap();
    soon(answer.bytes()).await.unwrap();
    size
}

#[tokio::test]
async fn a_report_behind_the_finish_reason_counts_also_behind_a_turn_without_one_and_after_a_restart()
 {
    let provider = provider().await;
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), provider.addr, &[], &[]);
    let counted = size(&process, 1).await;
    let mut reported = Vec::new();
    for turns in [2, 3] {
        reported.push(size(&process, turns).await);
    }
    assert!(
        reported.iter().all(|size| *size > counted * 3 / 2),
        "{counted} {reported:?}"
    );
    let process = {
        process.signal("-TERM");
        process.end().await;
        Process::start(directory.path(), provider.addr, &[], &[])
    };
    assert_eq!(size(&process, 3).await, reported[1]);
}
