//! Answers that can't be read as what they should be, in all three dialects: what of them is a
//! stream is told by its bytes, and none of them brings a hidden call to the client. Where one may
//! hold such a call the client's own request is served, or the stream breaks off.

pub mod answers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use plimsoll_wire::Dialect;

use super::agent::{Answer, received, total, until_metric};
use super::support::{Proxy, client, soon, upstream};
use answers::{DIALECTS, FIRST, ID, THEN, path, request, streamed, whole_hidden, whole_text};

/// One body of an upstream: its content type, if any, and its bytes by reads.
#[derive(Clone)]
struct Sent {
    kind: Option<&'static str>,
    reads: Vec<Bytes>,
    /// Whether it is said to be compressed.
    coded: bool,
}

impl Sent {
    fn new(kind: Option<&'static str>, body: impl Into<Bytes>) -> Self {
        let reads = vec![body.into()];
        let coded = false;
        Self { kind, reads, coded }
    }

    fn respond(&self) -> Response {
        let reads = self.reads.clone();
        // A pause between reads, so that each arrives for itself.
        let reads = stream::iter(reads).then(|read| async move {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            Ok::<_, std::io::Error>(read)
        });
        let response = Response::builder().status(200);
        let response = match self.kind {
            Some(kind) => response.header("content-type", kind),
            None => response,
        };
        let response = match self.coded {
            true => response.header("content-encoding", "x-none"),
            false => response,
        };
        response.body(Body::from_stream(reads)).unwrap()
    }
}

const JSON: Option<&str> = Some("application/json");
const EVENTS: Option<&str> = Some("text/event-stream");

/// A proxy before an upstream that gives each key its own answers, the last one again and again.
struct Stage {
    proxy: Proxy,
    plans: Plans,
}

/// What is left to answer, and how often was asked, by key.
type Plans = Arc<Mutex<HashMap<String, (Vec<Sent>, usize)>>>;

/// What came of a turn.
struct Told {
    answer: Answer,
    /// How many requests it took.
    asked: usize,
}

impl Stage {
    async fn start() -> Self {
        let plans = Plans::default();
        let known = Arc::clone(&plans);
        let addr = upstream(move |request: Request| {
            let key = request.headers()["authorization"].to_str().unwrap();
            let mut plans = known.lock().unwrap();
            let (answers, asked) = plans.get_mut(key).unwrap();
            let answer = answers[(*asked).min(answers.len() - 1)].respond();
            *asked += 1;
            async move { answer }
        })
        .await;
        let proxy = Proxy::before(addr).await;
        Self { proxy, plans }
    }

    async fn told(&self, dialect: Dialect, stream: bool, answers: Vec<Sent>) -> Told {
        let key = {
            let mut plans = self.plans.lock().unwrap();
            let key = format!("Bearer {}", plans.len());
            plans.insert(key.clone(), (answers, 0));
            key
        };
        let sending = client()
            .post(self.proxy.url(path(dialect)))
            .header("authorization", &key)
            .body(request(dialect, stream))
            .send();
        // Read as bytes: what it should be is not what it is.
        let answer = received(soon(sending).await.unwrap(), false).await;
        let asked = self.plans.lock().unwrap()[&key].1;
        Told { answer, asked }
    }
}

impl Told {
    /// The client read neither name nor id.
    fn hides(&self, what: &str) {
        let text = self.answer.text();
        assert!(
            !text.contains("delimiter") && !text.contains(ID),
            "{what}: {text}"
        );
    }
}

/// The plain second answer, in the form that was asked for.
fn plain(dialect: Dialect, stream: bool) -> Sent {
    if stream {
        Sent::new(EVENTS, streamed(dialect, Some(THEN), false).concat())
    } else {
        Sent::new(JSON, whole_text(dialect, THEN))
    }
}

#[tokio::test]
async fn a_stream_is_told_by_its_bytes() {
    let kinds = [
        EVENTS,
        JSON,
        Some("text/plain; charset=utf-8"),
        Some("application/octet-stream"),
        None,
    ];
    let begins = [
        "",
        "\u{feff}",
        "\n\n",
        ": hi\n\n",
        "event: x\n",
        "retry: 5\n\n",
    ];
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for kind in kinds {
            for begin in begins {
                turns.push(async move {
                    let what = format!("{dialect:?} {kind:?} {begin:?}");
                    let body = format!("{begin}{}", streamed(dialect, None, true).concat());
                    let answers = vec![Sent::new(kind, body), plain(dialect, true)];
                    let told = stage.told(dialect, true, answers).await;
                    told.hides(&what);
                    let text = told.answer.text();
                    assert!(text.contains(THEN), "{what}: {text}");
                    assert_eq!(told.asked, 2, "{what}");
                    assert_eq!(told.answer.header("x-plimsoll-fail-open"), "", "{what}");
                });
            }
        }
    }
    join_all(turns).await;
}

#[tokio::test]
async fn a_whole_answer_is_told_by_its_bytes() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for kind in [EVENTS, JSON, Some("text/plain"), None] {
            for stream in [false, true] {
                turns.push(async move {
                    let what = format!("{dialect:?} {kind:?} {stream}");
                    let answers = vec![
                        Sent::new(kind, format!(" \n{}", whole_hidden(dialect))),
                        Sent::new(kind, whole_text(dialect, THEN)),
                    ];
                    let told = stage.told(dialect, stream, answers).await;
                    told.hides(&what);
                    let text = told.answer.text();
                    assert!(text.contains(THEN), "{what}: {text}");
                    assert_eq!(told.asked, 2, "{what}");
                });
            }
        }
    }
    join_all(turns).await;
}

/// Whole answers that no strict reader reads, and some clients do.
fn spoilt(dialect: Dialect) -> Vec<(&'static str, Vec<u8>)> {
    let body = whole_hidden(dialect);
    let with = |from: &str, to: &str| body.replacen(from, to, 1).into_bytes();
    let mut invalid = body.clone().into_bytes();
    let at = body.find(r#""model":"m"#).unwrap() + r#""model":"m"#.len();
    invalid.splice(at..at, *b"\xff");
    let mut spoilt = vec![
        ("no UTF-8", invalid),
        ("a mark", format!("\u{feff}{body}").into_bytes()),
        ("trailing bytes", format!("{body}x").into_bytes()),
        ("two of them", format!("{body}{body}").into_bytes()),
        ("NaN", with(r#""model":"m""#, r#""model":NaN"#)),
        (
            "a comma too many",
            with(r#""model":"m","#, r#""model":"m",,"#),
        ),
        ("cut", body.as_bytes()[..body.len() - 1].to_vec()),
        (
            "escapes and a mark",
            format!("\u{feff}{}", body.replace("delimiter", r"\u0064elimiter")).into_bytes(),
        ),
        ("in a list", format!("[{body}]").into_bytes()),
        (
            "under another key",
            format!(r#"{{"data":{body}}}"#).into_bytes(),
        ),
    ];
    match dialect {
        Dialect::Chat => spoilt.extend([
            (
                "function_call",
                br#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":null,"function_call":{"name":"delimiter","arguments":"{}"}},"finish_reason":"function_call"}]}"#.to_vec(),
            ),
            (
                "a second choice",
                with(
                    r#""choices":["#,
                    r#""choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"},"#,
                ),
            ),
            (
                "calls that are no list",
                body.replace(r#""tool_calls":["#, r#""tool_calls":"#)
                    .replace(r#"}]},"finish"#, r#"}},"finish"#)
                    .into_bytes(),
            ),
        ]),
        Dialect::Responses => spoilt.extend([
            (
                "another kind of call",
                with(r#""type":"function_call""#, r#""type":"custom_tool_call""#),
            ),
            ("no kind", with(r#""type":"function_call","#, "")),
        ]),
        Dialect::Messages => spoilt.extend([
            (
                "another kind of call",
                with(r#""type":"tool_use""#, r#""type":"server_tool_use""#),
            ),
            (
                "content that is no list",
                body.replace("[{", "{").replace("}]", "}").into_bytes(),
            ),
        ]),
    }
    spoilt
}

#[tokio::test]
async fn a_whole_answer_that_cannot_be_read_is_asked_for_again_as_the_client_did() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for (name, body) in spoilt(dialect) {
            // Also behind a hop that was read.
            for behind in [0, 1] {
                let mut answers = vec![Sent::new(JSON, whole_hidden(dialect)); behind];
                answers.extend([Sent::new(JSON, body.clone()), plain(dialect, false)]);
                turns.push(async move {
                    let what = format!("{dialect:?} {name} {behind}");
                    let told = stage.told(dialect, false, answers).await;
                    told.hides(&what);
                    let answer = &told.answer;
                    assert_eq!(answer.text(), whole_text(dialect, THEN), "{what}");
                    assert_eq!(answer.header("x-plimsoll-fail-open"), "intercept", "{what}");
                    assert_eq!(told.asked, behind + 2, "{what}");
                });
            }
        }
    }
    let count = join_all(turns).await.len();
    let line = format!(r#"plimsoll_fail_open_total{{stage="intercept"}} {count}"#);
    until_metric(&stage.proxy, &line).await;
}

/// Streams that no strict reader reads, and some clients do, as events. Those without a mark are
/// read as what they are meant to be.
fn spoilt_events(dialect: Dialect, text: Option<&str>) -> Vec<(&'static str, bool, Vec<Bytes>)> {
    let frames = streamed(dialect, text, true);
    let each = |edit: &dyn Fn(&str) -> String| -> Vec<Bytes> {
        frames
            .iter()
            .map(|frame| Bytes::from(edit(frame)))
            .collect()
    };
    let named = |frame: &str| frame.contains("delimiter");
    let spoil = |edit: &dyn Fn(&str) -> String| {
        each(&|frame| {
            if named(frame) {
                edit(frame)
            } else {
                frame.to_owned()
            }
        })
    };
    let invalid = frames
        .iter()
        .map(|frame| {
            let mut bytes = frame.clone().into_bytes();
            if named(frame) {
                let at = frame.find(ID).unwrap();
                bytes.splice(at..at, *b"\xff");
            }
            Bytes::from(bytes)
        })
        .collect();
    let mut spoilt = vec![
        ("no UTF-8", true, invalid),
        (
            "NaN",
            true,
            spoil(&|frame| frame.replacen('{', r#"{"x":NaN,"#, 1)),
        ),
        (
            "trailing bytes",
            true,
            spoil(&|frame| frame.replace("\n\n", "}\n\n")),
        ),
        (
            "a mark",
            true,
            spoil(&|frame| frame.replacen("{", "\u{feff}{", 1)),
        ),
        (
            "no data",
            true,
            spoil(&|frame| frame.replacen("data: ", "date: ", 1)),
        ),
        (
            "under another key",
            true,
            spoil(&|frame| format!("data: {{\"x\":[{}]}}\n\n", &frame[6..frame.len() - 2])),
        ),
    ];
    if dialect == Dialect::Chat {
        let other = |frame: &str| frame.replacen(r#""index":0"#, r#""index":1"#, 1);
        let message = |frame: &str| frame.replace(r#""delta""#, r#""message""#);
        spoilt.extend([
            ("another choice", false, each(&other)),
            ("a message", false, each(&message)),
            ("another choice, sometimes", text.is_some(), spoil(&other)),
            (
                "function_call",
                true,
                spoil(&|frame| {
                    frame
                        .replace(r#""tool_calls":[{"index":0,"id":"call_hidden_1","type":"function","function":"#, r#""function_call":"#)
                        .replace("}}]}", "}}")
                }),
            ),
        ]);
    }
    spoilt
}

#[tokio::test]
async fn a_stream_that_cannot_be_read_is_asked_for_again_before_its_first_byte() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for (name, unread, reads) in spoilt_events(dialect, None) {
            turns.push(async move {
                // In one read, so that nothing was said before what can't be read.
                let body = Sent::new(EVENTS, reads.concat());
                let what = format!("{dialect:?} {name}");
                let answers = vec![body, plain(dialect, true)];
                let told = stage.told(dialect, true, answers).await;
                told.hides(&what);
                let text = told.answer.text();
                assert!(text.contains(THEN), "{what}: {text}");
                assert_eq!(told.asked, 2, "{what}");
                let stage = if unread { "intercept" } else { "" };
                assert_eq!(told.answer.header("x-plimsoll-fail-open"), stage, "{what}");
                usize::from(unread)
            });
        }
    }
    let count: usize = join_all(turns).await.into_iter().sum();
    let line = format!(r#"plimsoll_fail_open_total{{stage="intercept"}} {count}"#);
    until_metric(&stage.proxy, &line).await;
}

#[tokio::test]
async fn and_breaks_off_behind_it() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for (name, unread, reads) in spoilt_events(dialect, Some(FIRST)) {
            turns.push(async move {
                let kind = EVENTS;
                let what = format!("{dialect:?} {name}");
                let answers = vec![
                    Sent {
                        kind,
                        reads,
                        coded: false,
                    },
                    plain(dialect, true),
                ];
                let told = stage.told(dialect, true, answers).await;
                told.hides(&what);
                let text = told.answer.text();
                assert!(text.contains(FIRST), "{what}: {text}");
                assert_eq!(told.answer.broken, unread, "{what}: {text}");
                assert_eq!(text.contains(THEN), !unread, "{what}: {text}");
                usize::from(unread)
            });
        }
    }
    let count: usize = join_all(turns).await.into_iter().sum();
    let line = format!(r#"plimsoll_stream_aborts_total{{phase="body",side="upstream"}} {count}"#);
    until_metric(&stage.proxy, &line).await;
}

#[tokio::test]
async fn a_later_hop_in_another_form_or_coding_is_not_handed_on() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for (stream, said) in [(false, false), (true, false), (true, true)] {
            let whole = Sent::new(JSON, whole_hidden(dialect));
            let text = said.then_some(FIRST);
            let events = Sent::new(EVENTS, streamed(dialect, text, true).concat());
            let (first, other) = if stream {
                (events, whole)
            } else {
                (whole, events)
            };
            let coded = Sent {
                coded: true,
                ..first.clone()
            };
            for second in [other, coded] {
                let answers = vec![first.clone(), second, plain(dialect, stream)];
                turns.push(async move {
                    let what = format!("{dialect:?} {stream} {said}");
                    let told = stage.told(dialect, stream, answers).await;
                    told.hides(&what);
                    let text = told.answer.text();
                    // Some dialects tell how a response begins before it says anything.
                    let heard = stream && (said || !text.contains(THEN));
                    assert_eq!(told.answer.broken, heard, "{what}: {text}");
                    assert_eq!(text.contains(THEN), !heard, "{what}: {text}");
                });
            }
        }
    }
    join_all(turns).await;
}

/// Answers that talk about hidden calls, or name something else as they do.
fn innocent(dialect: Dialect) -> Vec<String> {
    let talk =
        r#"use {\"name\":\"delimiter\",\"id\":\"call_hidden_1\"} or \"recall\", \u0064elimiter"#;
    let mut bodies = vec![
        whole_text(dialect, talk),
        whole_text(dialect, "delimiter"),
        r#"{"error":{"message":"no tool \"delimiter\""}}"#.to_owned(),
        "delimiter".to_owned(),
        "<html>recall</html>".to_owned(),
        String::new(),
    ];
    let named = r#"{"name":"delimiter","x":["recall"]}"#;
    bodies.push(match dialect {
        Dialect::Chat => format!(
            r#"{{"id":"c","choices":[{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"ls","arguments":{named}}}}}]}},"finish_reason":"tool_calls"}}]}}"#
        ),
        Dialect::Responses => format!(
            r#"{{"id":"r","object":"response","status":"completed","metadata":{named},"text":{{"format":{named}}},"output":[{{"type":"mcp_call","id":"x","server_label":"s","name":"recall","arguments":"{{}}"}},{{"type":"function_call","id":"f","call_id":"c1","namespace":"n","name":"delimiter","arguments":"{{}}"}},{{"type":"function_call","id":"f","call_id":"c1","name":"ls","arguments":"{{}}"}}]}}"#
        ),
        Dialect::Messages => format!(
            r#"{{"id":"m","type":"message","role":"assistant","content":[{{"type":"mcp_tool_use","id":"x","server_name":"s","name":"recall","input":{{}}}},{{"type":"tool_use","id":"c1","name":"ls","input":{named}}}],"stop_reason":"tool_use"}}"#
        ),
    });
    bodies
}

#[tokio::test]
async fn what_only_talks_about_hidden_calls_passes_byte_for_byte() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    let talk =
        r#"use {\"name\":\"delimiter\",\"id\":\"call_hidden_1\"} or \"recall\", \u0064elimiter"#;
    let calls = r#"\n{\"tool_calls\":[{\"name\":\"recall\"}]}"#;
    for dialect in DIALECTS {
        let whole = innocent(dialect).into_iter().map(|body| (false, body));
        let streams = [talk, "delimiter", calls].into_iter();
        let streams = streams.map(|text| (true, streamed(dialect, Some(text), false).concat()));
        for (stream, body) in whole.chain(streams) {
            turns.push(async move {
                let kind = if stream { EVENTS } else { JSON };
                let answers = vec![Sent::new(kind, body.clone())];
                let told = stage.told(dialect, stream, answers).await;
                assert_eq!(told.answer.text(), body);
                assert!(!told.answer.broken, "{body}");
                assert_eq!(told.asked, 1, "{body}");
            });
        }
    }
    join_all(turns).await;
    let counted = total(&stage.proxy, "plimsoll_fail_open_total{").await;
    assert_eq!(counted, 0.0);
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// An answer with a hidden call, spoilt by some bytes put in or cut out.
fn spoilt_somewhere(dialect: Dialect, stream: bool, seed: usize) -> Sent {
    const BITS: [&[u8]; 12] = [
        b"\xff",
        b"\xef\xbb\xbf",
        b"\n",
        b"\r\n\r\n",
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"NaN,",
        b"data: ",
        b"\0",
        b"",
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (seed as u64 + 1) << 20);
    let mut bytes = match stream {
        true => streamed(dialect, seed.is_multiple_of(2).then_some(FIRST), true).concat(),
        false => whole_hidden(dialect),
    }
    .into_bytes();
    for _ in 0..=dice.below(3) {
        let (at, bit) = (dice.below(bytes.len()), BITS[dice.below(BITS.len())]);
        let cut = dice.below(4).min(bytes.len() - at);
        bytes.splice(at..at + cut, bit.iter().copied());
    }
    let kinds = [EVENTS, JSON, Some("text/plain"), None];
    let half = bytes.split_off(dice.below(bytes.len()));
    Sent {
        kind: kinds[dice.below(kinds.len())],
        reads: vec![bytes.into(), half.into()],
        coded: false,
    }
}

#[tokio::test]
async fn no_answer_that_is_spoilt_somewhere_shows_a_hidden_call() {
    let stage = &Stage::start().await;
    let mut turns = Vec::new();
    for dialect in DIALECTS {
        for stream in [false, true] {
            for seed in 0..60 {
                turns.push(async move {
                    let spoilt = spoilt_somewhere(dialect, stream, seed);
                    let answers = vec![spoilt, plain(dialect, stream)];
                    let text = stage.told(dialect, stream, answers).await.answer.text();
                    let what = format!("{dialect:?} {stream} {seed}: {text}");
                    assert!(!text.contains(r#""name":"delimiter""#), "{what}");
                });
            }
        }
    }
    join_all(turns).await;
}
