//! Upstreams that send a head, or a first event, and then read the prompt: until an answer says something,
//! a silence is the wait for its first byte. Behind that it is what an idle connection may be.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{StreamExt as _, stream};
use plimsoll_core::turn::Mode;
use plimsoll_wire::Dialect;

use crate::agent::{Answer, received};
use crate::support::{Proxy, client, soon, upstream};
use crate::unread::answers::{
    DIALECTS, ID, THEN, path, request, streamed, whole_hidden, whole_text,
};

const IDLE: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_millis(900);
const FIRST_BYTE: Duration = Duration::from_millis(2_000);

/// Pieces of a body, with a silence before each but the first.
fn pieces(kind: &'static str, pieces: Vec<String>) -> Response {
    let pieces = stream::iter(pieces.into_iter().enumerate()).then(|(at, piece)| async move {
        if at > 0 {
            tokio::time::sleep(SILENCE).await;
        }
        Ok::<_, Infallible>(Bytes::from(piece))
    });
    let response = Response::builder().header("content-type", kind);
    response.body(Body::from_stream(pieces)).unwrap()
}

/// What a stream of a dialect may begin with while the prompt is read.
fn openings(dialect: Dialect) -> Vec<&'static str> {
    let own: &[&str] = match dialect {
        Dialect::Chat => &[
            "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            "data: {\"id\":\"c\",\"choices\":[],\"prompt_filter_results\":[]}\n\n",
        ],
        Dialect::Responses => &[
            "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"model\":\"m\",\"status\":\"in_progress\",\"output\":[]}}\n\n\
             data: {\"type\":\"response.in_progress\",\"response\":{\"id\":\"resp_1\",\"output\":[]}}\n\n",
            "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":0}\n\n",
        ],
        Dialect::Messages => &[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ],
    };
    [&[": processing\n\n", "\n\n", "retry: 3000\n\n"][..], own].concat()
}

/// An upstream that opens each answer like this, is silent, and then says what it says. `hidden` makes
/// the first of two answers call a hidden tool.
async fn slow(dialect: Dialect, streams: bool, opening: &'static str, hidden: bool) -> SocketAddr {
    upstream(move |request| async move {
        let body = axum::body::to_bytes(request.into_body(), usize::MAX)
            .await
            .unwrap();
        let later = String::from_utf8_lossy(&body).contains(ID);
        let calls = hidden && !later;
        if streams {
            let rest = streamed(dialect, (!calls).then_some(THEN), calls).concat();
            return pieces(
                "text/event-stream",
                vec![opening.to_owned(), String::new(), rest],
            );
        }
        let whole = match calls {
            true => whole_hidden(dialect),
            false => whole_text(dialect, THEN),
        };
        pieces(
            "application/json",
            vec![opening.to_owned(), "\n".to_owned(), whole],
        )
    })
    .await
}

async fn proxy(upstream: SocketAddr, mode: Mode) -> Proxy {
    Proxy::with(upstream, |config| {
        config.upstream.idle_timeout = IDLE;
        config.upstream.first_byte_timeout = FIRST_BYTE;
        config.budget.mode = mode;
    })
    .await
}

async fn asked(proxy: &Proxy, path: &str, body: String) -> Answer {
    let sending = client()
        .post(proxy.url(path))
        .header("authorization", "Bearer k");
    received(soon(sending.body(body).send()).await.unwrap(), false).await
}

#[tokio::test]
async fn a_silence_before_an_answer_is_the_wait_for_its_first_byte() {
    let mut turns: Vec<BoxFuture<'static, ()>> = Vec::new();
    for dialect in DIALECTS {
        for opening in openings(dialect) {
            for (mode, hidden) in [
                (Mode::Manage, false),
                (Mode::Manage, true),
                (Mode::Observe, false),
            ] {
                turns.push(Box::pin(async move {
                    let proxy = proxy(slow(dialect, true, opening, hidden).await, mode).await;
                    let answer = asked(&proxy, path(dialect), request(dialect, true)).await;
                    let what = format!("{dialect:?} {opening:?} {hidden} {}", answer.text());
                    assert!(answer.text().contains(THEN) && !answer.broken, "{what}");
                }));
            }
        }
        for opening in ["", " ", "\n"] {
            for hidden in [false, true] {
                turns.push(Box::pin(async move {
                    let upstream = slow(dialect, false, opening, hidden).await;
                    let proxy = proxy(upstream, Mode::Manage).await;
                    let answer = asked(&proxy, path(dialect), request(dialect, false)).await;
                    let what = format!("{dialect:?} {opening:?} {hidden} {}", answer.text());
                    assert!(answer.text().contains(THEN) && !answer.broken, "{what}");
                }));
            }
        }
    }
    join_all(turns).await;
}

#[tokio::test]
async fn a_forwarded_answer_has_the_same_time_for_its_first_byte() {
    let upstream = upstream(|_| async {
        let opening = "data: {\"choices\":[{\"text\":\"\",\"index\":0}]}\n\n".to_owned();
        let rest = "data: {\"choices\":[{\"text\":\"Then.\",\"index\":0}]}\n\ndata: [DONE]\n\n";
        pieces("text/event-stream", vec![opening, rest.to_owned()])
    })
    .await;
    let proxy = proxy(upstream, Mode::Manage).await;
    let answer = asked(
        &proxy,
        "/v1/completions",
        r#"{"prompt":"go","stream":true}"#.to_owned(),
    );
    let answer = answer.await;
    assert!(
        answer.text().contains(THEN) && !answer.broken,
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_silence_inside_an_answer_is_cut_as_ever() {
    for dialect in DIALECTS {
        let upstream = upstream(move |_| async move {
            let mut said = streamed(dialect, Some(THEN), false);
            let rest = said.split_off(said.len() - 2).concat();
            pieces("text/event-stream", vec![said.concat(), rest])
        })
        .await;
        let proxy = proxy(upstream, Mode::Manage).await;
        let answer = asked(&proxy, path(dialect), request(dialect, true)).await;
        assert!(
            answer.text().contains(THEN),
            "{dialect:?} {}",
            answer.text()
        );
        assert!(answer.broken, "{dialect:?} {}", answer.text());
    }
}

#[tokio::test]
async fn an_answer_that_never_begins_is_cut_all_the_same() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let upstream = upstream(move |_| async move {
                let never = stream::pending::<Result<Bytes, Infallible>>();
                let kind = if stream {
                    "text/event-stream"
                } else {
                    "application/json"
                };
                let response = Response::builder().header("content-type", kind);
                response.body(Body::from_stream(never)).unwrap()
            })
            .await;
            let proxy = proxy(upstream, Mode::Manage).await;
            let begun = Instant::now();
            let answer = asked(&proxy, path(dialect), request(dialect, stream)).await;
            let what = format!("{dialect:?} {stream} {}", answer.text());
            assert!(begun.elapsed() >= FIRST_BYTE, "{what}");
            assert!(answer.status == 502 || answer.broken, "{what}");
            let names = answer.text().contains("upstream.first_byte_timeout");
            assert!(answer.broken || names, "{what}");
        }
    }
}

/// The data of the events of a stream, by a reader that keeps the last `id` and takes a blank line behind
/// it for the end of an event, as openai-python does.
fn kept_ids(text: &str) -> Vec<String> {
    let (mut events, mut data, mut id) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        if line.is_empty() {
            if id || !data.is_empty() {
                events.push(data.join("\n"));
            }
            data.clear();
        } else if let Some(value) = line.strip_prefix("data:") {
            data.push(value.trim_start());
        } else {
            id |= line.starts_with("id:");
        }
    }
    events
}

#[tokio::test]
async fn a_heartbeat_ends_no_event() {
    for dialect in DIALECTS {
        let upstream = upstream(move |request| async move {
            let body = axum::body::to_bytes(request.into_body(), usize::MAX)
                .await
                .unwrap();
            let later = String::from_utf8_lossy(&body).contains(ID);
            let events = match later {
                true => streamed(dialect, Some(THEN), false),
                false => streamed(dialect, Some("First."), true),
            };
            let numbered = events.iter().enumerate();
            let numbered: String = numbered
                .map(|(at, event)| format!("id: {at}\n{event}"))
                .collect();
            let (first, rest) = numbered.split_once("\n\n").unwrap();
            pieces(
                "text/event-stream",
                vec![format!("{first}\n\n"), rest.to_owned()],
            )
        })
        .await;
        let proxy = Proxy::with(upstream, |config| {
            config.streams.heartbeat = Duration::from_millis(100);
        })
        .await;
        let answer = asked(&proxy, path(dialect), request(dialect, true)).await;
        let text = answer.text();
        assert!(text.contains(THEN) && !answer.broken, "{dialect:?} {text}");
        let beats = text.lines().filter(|line| *line == ": plimsoll").count();
        assert!(beats > 2, "{dialect:?} {text}");
        let events = kept_ids(&text);
        assert!(
            events.iter().all(|event| !event.is_empty()),
            "{dialect:?} {text}"
        );
        assert!(events.len() > 3, "{dialect:?} {text}");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_its_own_request_behind_a_head_hears_heartbeats() {
    for dialect in [Dialect::Responses, Dialect::Messages] {
        let upstream = upstream(move |request| async move {
            let body = axum::body::to_bytes(request.into_body(), usize::MAX)
                .await
                .unwrap();
            let body = String::from_utf8_lossy(&body).into_owned();
            if body.contains(ID) {
                return Response::builder().status(413).body(Body::empty()).unwrap();
            }
            let own = !body.contains("delimiter");
            if own {
                tokio::time::sleep(SILENCE).await;
            }
            let events = streamed(dialect, own.then_some(THEN), !own).concat();
            pieces("text/event-stream", vec![events])
        })
        .await;
        let proxy = Proxy::with(upstream, |config| {
            config.streams.heartbeat = Duration::from_millis(100);
        })
        .await;
        let answer = asked(&proxy, path(dialect), request(dialect, true)).await;
        let text = answer.text();
        assert!(text.contains(THEN) && !answer.broken, "{dialect:?} {text}");
        let beats = text.lines().filter(|line| *line == ": plimsoll").count();
        assert!(beats > 2, "{dialect:?} {text}");
    }
}

#[tokio::test]
async fn a_refusal_that_is_long_in_coming_is_the_answer_of_a_client_that_has_heard_nothing() {
    const REFUSAL: &str = r#"{"error":{"message":"no more today","type":"invalid_request_error"}}"#;
    for status in [401, 413, 429, 503] {
        let upstream = upstream(move |request| async move {
            let body = axum::body::to_bytes(request.into_body(), usize::MAX)
                .await
                .unwrap();
            let body = String::from_utf8_lossy(&body).into_owned();
            if body.contains("delimiter") && !body.contains(ID) {
                let events = streamed(Dialect::Chat, None, true).concat();
                return pieces("text/event-stream", vec![events]);
            }
            // The head of the refusal comes at once, and its words behind a silence.
            let words = vec![String::new(), REFUSAL.to_owned()];
            let mut response = pieces("application/json", words);
            *response.status_mut() = status.try_into().unwrap();
            response
        })
        .await;
        let proxy = Proxy::with(upstream, |config| {
            config.streams.heartbeat = SILENCE / 2;
            config.upstream.retries = 0;
        })
        .await;
        let chat = Dialect::Chat;
        let answer = asked(&proxy, path(chat), request(chat, true)).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, REFUSAL));
        // A head that was made before the refusal would name the session.
        let names = answer.headers.contains_key("x-plimsoll-session");
        assert!(status != 401 || !names);
    }
}
