//! What comes beside a text: the tokens that it is made of, as OpenAI and vLLM tell of them, and
//! the voice of an audio model.

use super::*;

/// A chunk as OpenAI and vLLM send it, with the tokens that it tells of.
fn told(id: &str, delta: &str, tokens: &[&str], finish: &str) -> String {
    let told = |token: &&str| {
        let text: String = serde_json::from_str(&format!("\"{token}\"")).unwrap();
        let bytes = serde_json::to_string(text.as_bytes()).unwrap();
        format!(r#"{{"token":"{token}","logprob":-0.02,"bytes":{bytes},"top_logprobs":[]}}"#)
    };
    let logprobs = match tokens {
        [] => "null".to_owned(),
        tokens => {
            let all: Vec<String> = tokens.iter().map(told).collect();
            format!(r#"{{"content":[{}],"refusal":null}}"#, all.join(","))
        }
    };
    event(&format!(
        r#"{{"id":"{id}","created":1,"choices":[{{"index":0,"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish}}}]}}"#
    ))
}

fn opening(id: &str) -> String {
    told(
        id,
        r#"{"role":"assistant","content":"","refusal":null}"#,
        &[],
        "null",
    )
}

fn word(id: &str, text: &str) -> String {
    let delta = format!(r#"{{"content":"{text}"}}"#);
    told(id, &delta, &[text], "null")
}

fn piece(inner: &str, more: &str) -> String {
    format!(r#"{{"tool_calls":[{{"index":0,{inner}}}]{more}}}"#)
}

const CALL: &str = r#""id":"h","type":"function","function":{"name":"delimiter","arguments":""}"#;
const ENDS: &str = r#""function":{"arguments":"{\"action\":\"end\"}"}"#;
/// The tokens of its arguments.
const ARGUMENTS: [&str; 4] = [r#"{\""#, "action", r#"\": \""#, r#"end\"}"#];

/// A hop with words before a hidden call whose tokens are told of as well, down to its end.
fn spelling() -> String {
    cat(&[
        opening("a"),
        told(
            "a",
            r#"{"content":"Th\u00e9n"}"#,
            &["Th", r"\u00e9n"],
            "null",
        ),
        told("a", &piece(CALL, ""), &["<call>", "delimiter"], "null"),
        told("a", &piece(ENDS, ""), &ARGUMENTS[..2], "null"),
        told("a", r#"{"content":""}"#, &ARGUMENTS[2..3], "null"),
        told(
            "a",
            &piece(r#""function":{"arguments":""}"#, ""),
            &ARGUMENTS[3..],
            "\"tool_calls\"",
        ),
        DONE.to_owned(),
    ])
}

fn answering() -> String {
    cat(&[
        opening("b"),
        word("b", "So"),
        // Half a character is no text yet.
        told("b", r#"{"content":""}"#, &[r"\u00c3"], "null"),
        told("b", r#"{"content":"\u00e9"}"#, &[r"\u00a9"], "null"),
        told("b", "{}", &[], "\"stop\""),
        DONE.to_owned(),
    ])
}

pub(super) fn tokens() -> Vec<Case> {
    let done = DONE.to_owned();
    let show =
        r#"{"index":1,"id":"v","type":"function","function":{"name":"read","arguments":"{}"}}"#;
    let both = format!(r#"{{"tool_calls":[{{"index":0,{CALL}}},{show}]}}"#);
    let beside = |text: &str| piece(CALL, &format!(r#","content":"{text}""#));
    vec![
        Case::new(
            "tokens",
            &[cat(&[
                opening("a"),
                word("a", "Now"),
                told("a", "{}", &[], "\"stop\""),
                done.clone(),
            ])],
        )
        .unchanged()
        .text("Now"),
        Case::new(
            "tokens before a hidden call and behind it",
            &[spelling(), answering()],
        )
        .text("Thén\n\nSoé"),
        Case::new(
            "tokens of a visible and a hidden call",
            &[cat(&[
                opening("a"),
                told("a", &both, &["delimiter", "read"], "null"),
                told("a", "{}", &ARGUMENTS, "\"tool_calls\""),
                done.clone(),
            ])],
        )
        .calls(&[("read", "{}")]),
        Case::new(
            "tokens of a text beside a hidden call",
            &[cat(&[
                told("a", &beside("Now"), &["Now"], "null"),
                told(
                    "a",
                    &piece(ENDS, r#","content":".""#),
                    &[".", "action"],
                    "null",
                ),
                open(1, "v", "read"),
                finish("tool_calls"),
            ])],
        )
        .text("Now.")
        .calls(&[("read", "")]),
        Case::new(
            "tokens of a hidden call that was cut",
            &[cat(&[
                word("a", "Now"),
                told("a", &piece(CALL, ""), &["delimiter"], "null"),
                told("a", &piece(ENDS, ""), &ARGUMENTS, "\"length\""),
            ])],
        )
        .text("Now")
        .finish("length"),
        Case::new(
            "tokens in one list",
            &[cat(&[
                told("a", &beside("Now"), &[], "null").replace(
                    r#""logprobs":null"#,
                    r#""logprobs":{"tokens":["Now","delimiter"],"token_logprobs":[-0.1,-0.2]}"#,
                ),
                open(1, "v", "read"),
                finish("tool_calls"),
            ])],
        )
        .text("Now")
        .calls(&[("read", "")]),
    ]
}

/// What an audio model says, in the parts in which it comes.
fn voice(id: &str, name: &str) -> String {
    let audio = |inner: &str| delta_of(id, &format!(r#""audio":{{{inner}}}"#));
    cat(&[
        delta_of(id, r#""role":"assistant","content":null,"refusal":null"#),
        audio(&format!(r#""id":"{name}","transcript":"One""#)),
        audio(r#""data":"AAAB""#),
        audio(r#""expires_at":1700000000"#),
    ])
}

pub(super) fn spoken() -> Vec<Case> {
    let done = DONE.to_owned();
    let call = [open(0, "h", "delimiter"), args(0, "{}")].concat();
    let end = |id: &str| cat(&[voice(id, "audio_2"), finish_of(id, "stop"), DONE.into()]);
    let within = delta(&format!(
        r#""audio":{{"id":"audio_1","transcript":"!"}},"tool_calls":[{{"index":0,{CALL}}}]"#
    ));
    vec![
        Case::new("a voice", &[end("a")]).unchanged(),
        Case::new(
            "a voice behind a hidden call",
            &[annotating("a", "h1"), end("b")],
        ),
        Case::new(
            "a voice before a hidden call",
            &[
                cat(&[
                    voice("a", "audio_1"),
                    call,
                    finish("tool_calls"),
                    done.clone(),
                ]),
                talking("b", "ok"),
            ],
        )
        .text("ok")
        .usage(130, 11, 141),
        Case::new(
            "a voice beside a hidden call and a visible one",
            &[cat(&[
                within,
                open(1, "v", "read"),
                args(1, "{}"),
                finish("tool_calls"),
                done,
            ])],
        )
        .calls(&[("read", "{}")]),
    ]
}
