//! Events as a provider writes them.

/// An event under the name that its data has.
pub(super) fn event(data: &str) -> String {
    let kind = data.split('"').nth(3).unwrap();
    format!("event: {kind}\ndata: {data}\n\n")
}

pub(super) fn start(id: &str) -> String {
    event(&format!(
        r#"{{"type":"message_start","message":{{"id":"{id}","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":5,"output_tokens":1}}}}}}"#
    ))
}

pub(super) fn open(at: usize, block: &str) -> String {
    event(&format!(
        r#"{{"type":"content_block_start","index":{at},"content_block":{block}}}"#
    ))
}

pub(super) fn delta(at: usize, delta: &str) -> String {
    event(&format!(
        r#"{{"type":"content_block_delta","index":{at},"delta":{delta}}}"#
    ))
}

pub(super) fn close(at: usize) -> String {
    event(&format!(r#"{{"type":"content_block_stop","index":{at}}}"#))
}

/// A block of text; the pieces stand between quotes as they are.
pub(super) fn text(at: usize, pieces: &[&str]) -> String {
    let mut all = open(at, r#"{"type":"text","text":""}"#);
    for piece in pieces {
        all += &delta(at, &format!(r#"{{"type":"text_delta","text":"{piece}"}}"#));
    }
    all + &close(at)
}

pub(super) fn thinking(at: usize, pieces: &[&str], signature: &str) -> String {
    let mut all = open(at, r#"{"type":"thinking","thinking":"","signature":""}"#);
    for piece in pieces {
        all += &delta(
            at,
            &format!(r#"{{"type":"thinking_delta","thinking":"{piece}"}}"#),
        );
    }
    all += &delta(
        at,
        &format!(r#"{{"type":"signature_delta","signature":"{signature}"}}"#),
    );
    all + &close(at)
}

/// A call; the pieces are JSON as the model wrote it.
pub(super) fn call(at: usize, id: &str, name: &str, pieces: &[&str]) -> String {
    let mut all = open(
        at,
        &format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#),
    );
    for piece in pieces {
        all += &json_delta(at, piece);
    }
    all + &close(at)
}

pub(super) fn json_delta(at: usize, piece: &str) -> String {
    let piece = plimsoll_model::raw::quote(piece);
    delta(
        at,
        &format!(r#"{{"type":"input_json_delta","partial_json":{piece}}}"#),
    )
}

pub(super) fn end(reason: &str) -> String {
    finish(reason, r#"{"output_tokens":7}"#) + &stop()
}

pub(super) fn finish(reason: &str, usage: &str) -> String {
    event(&format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{usage}}}"#
    ))
}

pub(super) fn stop() -> String {
    event(r#"{"type":"message_stop"}"#)
}

pub(super) fn ping() -> String {
    event(r#"{"type":"ping"}"#)
}

pub(super) fn error() -> String {
    event(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#)
}

/// A call of a hidden tool.
pub(super) fn marked(at: usize, id: &str) -> String {
    call(
        at,
        id,
        "delimiter",
        &["", r#"{"kind": "#, r#""start","name":"a"}"#],
    )
}
