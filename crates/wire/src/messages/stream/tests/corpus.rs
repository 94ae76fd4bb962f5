//! Streams as providers send them, odd ones included. One case is one turn.

use super::say::{
    call, close, delta, end, error, event, finish, json_delta, marked, open, ping, start, stop,
    text, thinking,
};
use super::*;
use crate::stream::WhoAsked;

/// One turn's hops, and what is known of its outcome beforehand.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) hops: Vec<Bytes>,
    pub(super) spec: Spec,
    pub(super) config: MachineSettings,
    /// Whether the client must get exactly the first hop's bytes.
    pub(super) passes_unchanged: bool,
    /// Whether the upstream keeps the rules of a stream, so that the client's stream must, too.
    pub(super) strict: bool,
    /// The blocks that the client must read.
    pub(super) blocks: Vec<&'static str>,
    /// The stop reason that the client must read.
    pub(super) finish: Option<&'static str>,
    /// Input, read and written cache, and output tokens as the client reads them last.
    pub(super) usage: [u64; 4],
}

impl Case {
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn {
            name: self.name,
            config: &self.config,
            spec: &self.spec,
            hops: &self.hops,
        }
    }

    fn new(name: &'static str, hops: &[String]) -> Self {
        let hops = hops.iter().map(|hop| Bytes::from(hop.clone())).collect();
        Self {
            name,
            hops,
            spec: spec(),
            config: MachineSettings::default(),
            passes_unchanged: false,
            strict: true,
            blocks: Vec::new(),
            finish: Some("end_turn"),
            usage: [10, 5, 2, 7],
        }
    }

    fn unchanged(mut self) -> Self {
        self.passes_unchanged = true;
        self
    }

    fn loose(mut self) -> Self {
        self.strict = false;
        self
    }

    fn blocks(mut self, blocks: &[&'static str]) -> Self {
        self.blocks = blocks.to_vec();
        self
    }

    fn finish(mut self, finish: &'static str) -> Self {
        self.finish = Some(finish);
        self
    }

    fn failed(mut self) -> Self {
        self.finish = None;
        self.usage = [10, 5, 2, 1];
        self
    }

    fn usage(mut self, usage: [u64; 4]) -> Self {
        self.usage = usage;
        self
    }
}

pub(super) fn spec() -> Spec {
    Spec {
        dialect: Dialect::Messages,
        hidden: ["delimiter", "recall"].into_iter().collect(),
        usage_wish: UsageWish::Refused,
        echo: Echo::default(),
        asked: WhoAsked::default(),
        one_text: false,
    }
}

pub(super) fn cases() -> Vec<Case> {
    [plain(), odd(), hidden(), several(), broken()].concat()
}

fn plain() -> Vec<Case> {
    let hello = [
        start("m1"),
        ping(),
        text(0, &["Hel", "lo ", r#"w\u00f6\n\"x\""#]),
        end("end_turn"),
    ];
    vec![
        Case::new("text", &[hello.concat()])
            .unchanged()
            .blocks(&["text Hello wö\n\"x\""]),
        Case::new("text, CRLF", &[hello.concat().replace('\n', "\r\n")])
            .unchanged()
            .blocks(&["text Hello wö\n\"x\""]),
        Case::new(
            "thinking, redacted thinking and text",
            &[[
                start("m1"),
                thinking(0, &["why", r"\u00e9 "], "EqQB+/=="),
                open(1, r#"{"type":"redacted_thinking","data":"Emw\/AA=="}"#),
                close(1),
                text(2, &["so"]),
                end("end_turn"),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&["thinking whyé  EqQB+/==", "redacted Emw/AA==", "text so"]),
        Case::new(
            "omitted thinking",
            &[[
                start("m1"),
                thinking(0, &[], "EqQB"),
                call(1, "t1", "read", &[]),
                end("tool_use"),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&["thinking  EqQB", "tool_use t1 read "])
        .finish("tool_use"),
        Case::new(
            "parallel calls",
            &[[
                start("m1"),
                text(0, &["Let me"]),
                call(1, "t1", "read", &["", r#"{"p""#, r#":"a\"b"}"#]),
                ping(),
                call(2, "t2", "delimiters", &[r#"{"a":"#, "[1, 2]}"]),
                end("tool_use"),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&[
            "text Let me",
            r#"tool_use t1 read {"p":"a\"b"}"#,
            r#"tool_use t2 delimiters {"a":[1, 2]}"#,
        ])
        .finish("tool_use"),
        Case::new(
            "the token limit cuts a call",
            &[[
                start("m1"),
                call(0, "t1", "read", &[r#"{"p":"#]),
                end("max_tokens"),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&[r#"tool_use t1 read {"p":"#])
        .finish("max_tokens"),
        Case::new(
            "refusal",
            &[[start("m1"), text(0, &["No"]), end("refusal")].concat()],
        )
        .unchanged()
        .blocks(&["text No"])
        .finish("refusal"),
        Case::new(
            "server tools, citations and a pause",
            &[[
                start("m1"),
                open(0, r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#),
                json_delta(0, r#"{"query":"x"}"#),
                close(0),
                open(1, r#"{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","url":"u"}]}"#),
                close(1),
                open(2, r#"{"type":"text","text":"","citations":[]}"#),
                delta(2, r#"{"type":"citations_delta","citation":{"url":"u"}}"#),
                delta(2, r#"{"type":"text_delta","text":"cited"}"#),
                delta(2, r#"{"type":"citations_delta","citation":{"url":"v"}}"#),
                close(2),
                end("pause_turn"),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&[
            r#"server_tool_use s1 web_search {"query":"x"}"#,
            "web_search_tool_result",
            "text cited",
        ])
        .finish("pause_turn"),
        Case::new(
            "nothing said",
            &[[start("m1"), end("end_turn")].concat()],
        )
        .unchanged(),
    ]
}

fn odd() -> Vec<Case> {
    vec![
        Case::new(
            "comments, unknown events and deltas",
            &[[
                ": hi\n\n".to_owned(),
                start("m1"),
                event(r#"{"type":"future_event","a":{"index":3}}"#),
                open(0, r#"{"type":"compaction","content":null}"#),
                delta(0, r#"{"type":"compaction_delta","content":"sum","n":1}"#),
                delta(0, r#"{"type":"compaction_delta","content":"mary","n":1}"#),
                event(r#"{"type":"future_block_event","index":0}"#),
                close(0),
                text(1, &["a", "b"]),
                ": bye\n\n".to_owned(),
                end("end_turn"),
                ping(),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&["compaction", "text ab"]),
        Case::new(
            "without names, on several lines, no JSON",
            &[[
                start("m1").replace("event: message_start\n", ""),
                "data: {\"type\":\"content_block_start\",\"index\":0,\ndata: \"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n".to_owned(),
                "data: hello\n\n".to_owned(),
                delta(0, r#"{"type":"text_delta","text":"b"}"#),
                close(0),
                end("end_turn"),
                "data: [DONE]\n\n".to_owned(),
            ]
            .concat()],
        )
        .unchanged()
        .loose()
        .blocks(&["text ab"]),
        Case::new(
            "a block that is never closed",
            &[[
                start("m1"),
                open(0, r#"{"type":"tool_use","id":"t1","name":"read","input":{"p":1}}"#),
                end("tool_use"),
            ]
            .concat()],
        )
        .unchanged()
        .loose()
        .blocks(&["tool_use t1 read "])
        .finish("tool_use"),
        Case::new(
            "text that shows nothing",
            &[[
                start("m1"),
                text(0, &[r"\n\n"]),
                call(1, "t1", "read", &["{}"]),
                end("tool_use"),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&["text \n\n", "tool_use t1 read {}"])
        .finish("tool_use"),
        Case::new(
            "a delta of the message before its end",
            &[[
                start("m1"),
                event(r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"input_tokens":0,"output_tokens":3}}"#),
                text(0, &["a"]),
                finish("stop_sequence", r#"{"input_tokens":11,"cache_read_input_tokens":6,"cache_creation_input_tokens":2,"output_tokens":8}"#),
                stop(),
            ]
            .concat()],
        )
        .unchanged()
        .blocks(&["text a"])
        .finish("stop_sequence")
        .usage([11, 6, 2, 8]),
        Case::new(
            "no end but the finish",
            &[[start("m1"), text(0, &["a"]), finish("end_turn", r#"{"output_tokens":7}"#)].concat()],
        )
        .unchanged()
        .loose()
        .blocks(&["text a"]),
    ]
}

fn hidden() -> Vec<Case> {
    vec![
        Case::new(
            "hidden between",
            &[[
                start("m1"),
                text(0, &["a", "b"]),
                marked(1, "h1"),
                ping(),
                call(2, "t1", "read", &[r#"{"p""#, r#":1}"#]),
                call(3, "h2", "recall", &[]),
                call(4, "t2", "read", &["{}"]),
                end("tool_use"),
            ]
            .concat()],
        )
        .blocks(&[
            "text ab",
            r#"tool_use t1 read {"p":1}"#,
            "tool_use t2 read {}",
        ])
        .finish("tool_use"),
        Case::new(
            "hidden first, thinking before it",
            &[[
                start("m1"),
                thinking(0, &["hm"], "S1"),
                marked(1, "h1"),
                event(r#"{"type":"future_block_event","index":1,"name":"delimiter"}"#),
                text(2, &["go"]),
                call(3, "t1", "read", &["{}"]),
                end("tool_use"),
            ]
            .concat()],
        )
        .blocks(&["thinking hm S1", "text go", "tool_use t1 read {}"])
        .finish("tool_use"),
        Case::new(
            "hidden at the cap, nothing said",
            &[[
                start("m1"),
                thinking(0, &["hm"], "S1"),
                marked(1, "h1"),
                end("tool_use"),
            ]
            .concat()],
        )
        .blocks(&["thinking hm S1", "text the model only annotated"]),
        Case::new(
            "hidden at the cap, text said",
            &[[
                start("m1"),
                text(0, &["said"]),
                marked(1, "h1"),
                ping(),
                end("tool_use"),
            ]
            .concat()],
        )
        .blocks(&["text said"]),
        Case::new(
            "hidden at the cap, cut behind its finish",
            &[[
                start("m1"),
                marked(0, "h1"),
                finish("tool_use", r#"{"output_tokens":7}"#),
            ]
            .concat()],
        )
        .blocks(&["text the model only annotated"]),
        Case::new(
            "hidden at the cap, an end without a finish",
            &[[start("m1"), marked(0, "h1"), stop()].concat()],
        )
        .blocks(&["text the model only annotated"])
        .usage([10, 5, 2, 1]),
        Case::new(
            "the token limit cuts a hidden call",
            &[[
                start("m1"),
                text(0, &["a"]),
                marked(1, "h1"),
                call(2, "h2", "recall", &[r#"{"x":"#]),
                end("max_tokens"),
            ]
            .concat()],
        )
        .blocks(&["text a"])
        .finish("max_tokens"),
    ]
}

fn several() -> Vec<Case> {
    let first = [
        start("m1"),
        thinking(0, &["hm"], "S1"),
        text(1, &["One."]),
        marked(2, "h1"),
        call(3, "h2", "recall", &[r#"{"n":"x"}"#]),
        end("tool_use"),
    ]
    .concat();
    let silent = [start("m2"), ping(), marked(0, "h3"), end("tool_use")].concat();
    let last = [
        start("m3"),
        ping(),
        thinking(0, &["oh"], "S2"),
        text(1, &["T", "wo"]),
        call(2, "t1", "read", &["{}"]),
        finish("tool_use", r#"{"input_tokens":30,"cache_read_input_tokens":20,"output_tokens":9,"output_tokens_details":{"thinking_tokens":4}}"#),
        stop(),
    ]
    .concat();
    let blocks = [
        "thinking hm S1",
        "text One.",
        "thinking oh S2",
        "text Two",
        "tool_use t1 read {}",
    ];
    let mut summed = Case::new(
        "three hops, usage summed",
        &[first.clone(), silent.clone(), last.clone()],
    );
    summed.config.usage = UsageMode::Sum;
    vec![
        Case::new("two hops", &[first.clone(), last.clone()])
            .blocks(&blocks)
            .finish("tool_use")
            .usage([30, 20, 2, 16]),
        summed
            .blocks(&blocks)
            .finish("tool_use")
            .usage([50, 30, 6, 23]),
        Case::new(
            "three hops, CRLF",
            &[first.clone(), silent.clone(), last.replace('\n', "\r\n")],
        )
        .blocks(&blocks)
        .finish("tool_use")
        .usage([30, 20, 2, 23]),
        Case::new(
            "two hops to the cap",
            &[silent.clone(), silent.replace("m2", "m4")],
        )
        .blocks(&["text the model only annotated"])
        .usage([10, 5, 2, 14]),
        Case::new("two hops to the cap, text said", &[first.clone(), silent])
            .blocks(&["thinking hm S1", "text One."])
            .usage([10, 5, 2, 14]),
        Case::new(
            "mixed in the second hop",
            &[
                first.clone(),
                [
                    start("m2"),
                    marked(0, "h4"),
                    call(1, "t1", "read", &["{}"]),
                    finish("tool_use", "{}"),
                    stop(),
                ]
                .concat(),
            ],
        )
        .blocks(&["thinking hm S1", "text One.", "tool_use t1 read {}"])
        .finish("tool_use")
        .usage([10, 5, 2, 8]),
        Case::new(
            "the second hop says no usage",
            &[
                first,
                [
                    event(r#"{"type":"message_start","message":{"id":"m2"}}"#),
                    text(0, &["b"]),
                    event(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#),
                    stop(),
                ]
                .concat(),
            ],
        )
        .blocks(&["thinking hm S1", "text One.", "text b"]),
    ]
}

fn broken() -> Vec<Case> {
    let first = [
        start("m1"),
        text(0, &["a"]),
        marked(1, "h1"),
        end("tool_use"),
    ]
    .concat();
    vec![
        Case::new("an error at once", &[error()])
            .unchanged()
            .failed()
            .usage([0; 4]),
        Case::new(
            "an error in the middle",
            &[[
                start("m1"),
                text(0, &["a"]),
                call(1, "t1", "read", &["{}"]),
                open(2, r#"{"type":"text","text":""}"#),
                error(),
            ]
            .concat()],
        )
        .unchanged()
        .failed()
        .blocks(&["text a", "tool_use t1 read {}", "text "]),
        Case::new(
            "an error in the second hop",
            &[
                first.clone(),
                [start("m2"), text(0, &["b"]), error()].concat(),
            ],
        )
        .failed()
        .blocks(&["text a", "text b"]),
        Case::new(
            "an error behind the finish",
            &[[
                start("m1"),
                text(0, &["a"]),
                finish("end_turn", "{}"),
                error(),
                stop(),
            ]
            .concat()],
        )
        .failed()
        .blocks(&["text a"]),
        Case::new(
            "a bare error, then an end",
            &[[
                start("m1"),
                "data: {\"error\":{\"message\":\"x\"}}\n\n".to_owned(),
                stop(),
            ]
            .concat()],
        )
        .failed()
        .loose(),
        Case::new(
            "cut in a hidden call",
            &[[
                start("m1"),
                text(0, &["a"]),
                open(
                    1,
                    r#"{"type":"tool_use","id":"h1","name":"delimiter","input":{}}"#,
                ),
                json_delta(1, "{"),
            ]
            .concat()],
        )
        .failed()
        .blocks(&["text a"]),
        Case::new(
            "cut in the second hop",
            &[first, [start("m2"), text(0, &["b"])].concat()],
        )
        .failed()
        .blocks(&["text a", "text b"]),
        Case::new("nothing at all", &[String::new()])
            .failed()
            .usage([0; 4]),
    ]
}
