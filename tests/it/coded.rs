//! Answers that name a coding although none was asked for, in all three dialects. What can be read is
//! read, and no answer that was accepted is asked for again where it can be handed on.

use std::io::Write as _;

use axum::body::Body;
use axum::response::Response;
use plimsoll_wire::Dialect;

use crate::agent::{Answer, received};
use crate::support::{Lenient, Proxy, client, soon};
use crate::unread::answers::{
    DIALECTS, FIRST, ID, THEN, path, request, streamed, whole_hidden, whole_text,
};

/// Packs bytes in the coding of this name, if it is one.
fn packed(coding: &str, text: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    match coding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => zstd::encode_all(text, 3).unwrap(),
        _ => text.to_vec(),
    }
}

fn coded(stream: bool, codings: &[&str], body: Vec<u8>) -> Response {
    let kind = if stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    let response = Response::builder().header("content-type", kind);
    let response = codings.iter().fold(response, |response, coding| {
        response.header("content-encoding", *coding)
    });
    response.body(Body::from(body)).unwrap()
}

/// Two hops, the first of a hidden call beside a text and the second of a text.
fn hop(dialect: Dialect, stream: bool, later: bool) -> Vec<u8> {
    match (stream, later) {
        (true, false) => streamed(dialect, Some(FIRST), true).concat(),
        (true, true) => streamed(dialect, Some(THEN), false).concat(),
        (false, false) => whole_hidden(dialect),
        (false, true) => whole_text(dialect, THEN),
    }
    .into_bytes()
}

async fn asked(proxy: &Proxy, dialect: Dialect, stream: bool, body: String) -> Answer {
    let sending = client()
        .post(proxy.url(path(dialect)))
        .header("authorization", "Bearer k");
    received(soon(sending.body(body).send()).await.unwrap(), stream).await
}

/// Plays a turn of two hops, each under these codings and packed as this one says.
async fn turn(dialect: Dialect, stream: bool, codings: &'static [&'static str], way: &'static str) {
    let upstream = Lenient::start(move |number, _| {
        coded(
            stream,
            codings,
            packed(way, &hop(dialect, stream, number % 2 == 1)),
        )
    })
    .await;
    let proxy = Proxy::before(upstream.addr).await;
    let answer = asked(&proxy, dialect, stream, request(dialect, stream)).await;
    let (text, asked) = (answer.text(), upstream.seen().len());
    let what = format!(
        "{dialect:?} {stream} {codings:?} {asked} {:?} {text}",
        answer.headers
    );
    assert_eq!((answer.status, answer.broken), (200, false), "{what}");
    assert_eq!(answer.header("x-plimsoll-fail-open"), "", "{what}");
    assert!(text.contains(THEN) && !text.contains(ID), "{what}");
    assert_eq!(text.contains(FIRST), stream, "{what}");
    assert_eq!(asked, 2, "{what}");
    let told = answer.header("content-encoding");
    assert!(
        !told.contains("zip") && !told.contains("zstd") && told != "deflate",
        "{what}"
    );
}

#[tokio::test]
async fn identity_is_no_coding() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            for codings in [
                &["identity"][..],
                &["Identity"],
                &["identity, identity"],
                &[" identity ,IDENTITY, "],
                &["identity", "identity"],
                &[""],
            ] {
                turn(dialect, stream, codings, "").await;
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_packed_against_our_asking_is_unpacked() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            for (codings, way) in [
                (&["gzip"][..], "gzip"),
                (&["X-GZIP"], "gzip"),
                (&["identity, gzip"], "gzip"),
                (&["deflate"], "deflate"),
                (&["zstd", "identity"], "zstd"),
                // Some gateways unpack an answer and leave the header.
                (&["gzip"], ""),
            ] {
                turn(dialect, stream, codings, way).await;
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_hides_nothing_passes_as_it_is_packed() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let body = b"\x0b\x02\x80br\x03".to_vec();
            let sent = body.clone();
            let upstream = Lenient::start(move |_, _| coded(stream, &["br"], sent.clone())).await;
            let proxy = Proxy::before(upstream.addr).await;
            // Without tools the model is offered none of ours.
            let mut plain: serde_json::Value =
                serde_json::from_str(&request(dialect, stream)).unwrap();
            plain.as_object_mut().unwrap().remove("tools");
            let answer = asked(&proxy, dialect, stream, plain.to_string()).await;
            let what = format!("{dialect:?} {stream}");
            assert_eq!(
                (answer.status, &answer.bytes[..]),
                (200, &body[..]),
                "{what}"
            );
            assert_eq!(answer.header("content-encoding"), "br", "{what}");
            assert_eq!(upstream.seen().len(), 1, "{what}");
        }
    }
}

#[tokio::test]
async fn what_is_not_packed_as_it_says_is_had_again_once() {
    for dialect in DIALECTS {
        for stream in [false, true] {
            let upstream = Lenient::start(move |number, _| match number {
                0 => coded(stream, &["gzip"], b"\x1f\x8bnothing of the kind".to_vec()),
                _ => coded(stream, &[], hop(dialect, stream, true)),
            })
            .await;
            let proxy = Proxy::before(upstream.addr).await;
            let answer = asked(&proxy, dialect, stream, request(dialect, stream)).await;
            let what = format!("{dialect:?} {stream} {}", answer.text());
            assert!(answer.text().contains(THEN), "{what}");
            assert_eq!(answer.header("x-plimsoll-fail-open"), "intercept", "{what}");
            assert_eq!(upstream.seen().len(), 2, "{what}");
        }
    }
}

#[tokio::test]
async fn a_later_hop_in_another_form_is_read_as_long_as_the_client_has_nothing() {
    for dialect in DIALECTS {
        let upstream = Lenient::start(move |number, _| match number {
            // A stream that shows nothing: no head, and a hidden call.
            0 => coded(true, &[], quiet(dialect)),
            _ => coded(false, &[], hop(dialect, false, true)),
        })
        .await;
        let proxy = Proxy::before(upstream.addr).await;
        let answer = asked(&proxy, dialect, true, request(dialect, true)).await;
        let what = format!("{dialect:?} {}", answer.text());
        assert!(
            answer.text().contains(THEN) && !answer.text().contains(ID),
            "{what}"
        );
        assert_eq!(answer.header("content-type"), "application/json", "{what}");
        assert_eq!(answer.header("x-plimsoll-fail-open"), "", "{what}");
        assert_eq!(upstream.seen().len(), 2, "{what}");
    }
}

/// A stream of a hidden call, without the event that opens a response.
fn quiet(dialect: Dialect) -> Vec<u8> {
    let events = streamed(dialect, None, true);
    let opens =
        |event: &&String| event.contains("message_start") || event.contains("response.created");
    let events: Vec<String> = events
        .iter()
        .filter(|event| !opens(event))
        .cloned()
        .collect();
    events.concat().into_bytes()
}
