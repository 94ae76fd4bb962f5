//! Streams as providers send them, odd ones included. One case is one turn.

mod tokens;

use super::*;
use crate::stream::WhoAsked;

/// One turn's hops, and what is known of its outcome beforehand.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) hops: Vec<Bytes>,
    pub(super) spec: Spec,
    pub(super) config: MachineSettings,
    /// Whether the client must get exactly the first hop's bytes.
    pub(super) passes_unchanged: bool,
    /// The text that the client must read.
    pub(super) text: &'static str,
    /// Names and arguments of the calls that the client must read.
    pub(super) calls: &'static [(&'static str, &'static str)],
    /// The finish reason that the client must read.
    pub(super) finish: Option<&'static str>,
    /// Prompt, completion and total tokens as the client reads them last.
    pub(super) usage: Option<(u64, u64, u64)>,
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
        Self {
            name,
            hops: hops
                .iter()
                .map(|hop| Bytes::copy_from_slice(hop.as_bytes()))
                .collect(),
            spec: Spec {
                dialect: Dialect::Chat,
                hidden: ["delimiter", "recall"].into_iter().collect(),
                usage_wish: UsageWish::Asked,
                echo: Echo::default(),
                asked: WhoAsked::default(),
                one_text: false,
            },
            config: MachineSettings::default(),
            passes_unchanged: false,
            text: "",
            calls: &[],
            finish: Some("stop"),
            usage: None,
        }
    }

    fn unchanged(mut self) -> Self {
        self.passes_unchanged = true;
        self
    }

    fn text(mut self, text: &'static str) -> Self {
        self.text = text;
        self
    }

    fn calls(mut self, calls: &'static [(&'static str, &'static str)]) -> Self {
        self.calls = calls;
        self.finish("tool_calls")
    }

    fn finish(mut self, finish: &'static str) -> Self {
        self.finish = Some(finish);
        self
    }

    fn broken(mut self) -> Self {
        self.finish = None;
        self
    }

    fn usage(mut self, prompt: u64, completion: u64, total: u64) -> Self {
        self.usage = Some((prompt, completion, total));
        self
    }

    fn wish(mut self, wish: UsageWish) -> Self {
        self.spec.usage_wish = wish;
        self
    }
}

const DONE: &str = "data: [DONE]\n\n";

fn event(json: &str) -> String {
    format!("data: {json}\n\n")
}

/// A chunk of the first response with this delta.
fn delta(inner: &str) -> String {
    delta_of("a", inner)
}

fn delta_of(id: &str, inner: &str) -> String {
    event(&format!(
        r#"{{"id":"{id}","created":1,"choices":[{{"index":0,"delta":{{{inner}}},"finish_reason":null}}]}}"#
    ))
}

fn finish(reason: &str) -> String {
    finish_of("a", reason)
}

fn finish_of(id: &str, reason: &str) -> String {
    event(&format!(
        r#"{{"id":"{id}","created":1,"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#
    ))
}

fn usage(id: &str, prompt: u64, completion: u64) -> String {
    event(&format!(
        r#"{{"id":"{id}","created":1,"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":5}}}}}}"#,
        prompt + completion
    ))
}

fn say(text: &str) -> String {
    delta(&format!(r#""content":"{text}""#))
}

fn role() -> String {
    delta(r#""role":"assistant","content":"""#)
}

/// The opening piece of a call, as OpenAI sends it.
fn open(index: u64, id: &str, name: &str) -> String {
    delta(&format!(
        r#""tool_calls":[{{"index":{index},"id":"{id}","type":"function","function":{{"name":"{name}","arguments":""}}}}]"#
    ))
}

fn args(index: u64, piece: &str) -> String {
    delta(&format!(
        r#""tool_calls":[{{"index":{index},"function":{{"arguments":"{piece}"}}}}]"#
    ))
}

/// A hop that only annotates, under this response id.
fn annotating(id: &str, call: &str) -> String {
    [
        delta_of(id, r#""role":"assistant","content":null"#),
        delta_of(id, &format!(r#""tool_calls":[{{"index":0,"id":"{call}","type":"function","function":{{"name":"delimiter","arguments":""}}}}]"#)),
        delta_of(id, r#""tool_calls":[{"index":0,"function":{"arguments":"{\"action\":\"end\"}"}}]"#),
        finish_of(id, "tool_calls"),
        usage(id, 100, 7),
        DONE.to_owned(),
    ]
    .concat()
}

/// A last hop that says a text, under this response id.
fn talking(id: &str, text: &str) -> String {
    [
        delta_of(id, r#""role":"assistant","content":"""#),
        delta_of(id, &format!(r#""content":"{text}""#)),
        finish_of(id, "stop"),
        usage(id, 130, 11),
        DONE.to_owned(),
    ]
    .concat()
}

fn cat(parts: &[String]) -> String {
    parts.concat()
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = plain();
    all.extend(hidden());
    all.extend(odd());
    all.extend(several());
    all.extend(limited());
    all.extend(cut_short());
    all.extend(failed());
    all.extend(counted());
    all.extend(tokens::tokens());
    all.extend(tokens::spoken());
    all
}

/// Streams without a hidden call.
fn plain() -> Vec<Case> {
    let done = DONE.to_owned();
    vec![
        Case::new("tiny", &[format!("{}{DONE}", event(r#"{"choices":[{"delta":{"content":"é"},"finish_reason":"stop"}]}"#))]).unchanged().text("é"),
        Case::new("text", &[cat(&[role(), say("Hel"), say("lo "), say(r#"w\u00f6\n\"x\""#), say("rld"), finish("stop"), usage("a", 9, 3), done.clone()])])
            .unchanged().text("Hello wö\n\"x\"rld").usage(9, 3, 12),
        Case::new("text, CRLF", &[cat(&[role(), say("a"), say("é"), finish("stop"), done.clone()]).replace('\n', "\r\n")]).unchanged().text("aé"),
        Case::new("text, CR", &[cat(&[say("a"), finish("stop"), done.clone()]).replace('\n', "\r")]).unchanged().text("a"),
        Case::new("comments and names", &[cat(&[": hi\n\n".into(), format!("event: message\nid: 1\n{}", say("a")), ":\n\n\n".into(), say("b"), finish("stop"), ": bye\n\n".into(), done.clone()])])
            .unchanged().text("ab"),
        Case::new("data on several lines", &[cat(&["data: {\"choices\":[\ndata: {\"delta\":{\"content\":\"a\"}}]}\n\n".into(), finish("stop"), done.clone()])]).unchanged().text("a"),
        Case::new("a visible call", &[cat(&[role(), open(0, "c1", "read"), args(0, r#"{\"p\":"#), args(0, r#"\"é\"}"#), finish("tool_calls"), done.clone()])])
            .unchanged().calls(&[("read", r#"{"p":"é"}"#)]),
        Case::new("parallel visible calls", &[cat(&[say("x"), open(0, "c1", "read"), args(0, "{}"), open(1, "c2", "grep"), args(1, "{}"), finish("stop"), done.clone()])])
            .unchanged().text("x").calls(&[("read", "{}"), ("grep", "{}")]).finish("stop"),
        Case::new("padding", &[cat(&[
            event(r#"{"id":"a","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null,"obfuscation":"xyz"}"#),
            event(r#"{"id":"a","choices":[{"index":0,"delta":{"content":"b\\\"c"},"finish_reason":null}],"usage":null,"obfuscation":""}"#),
            event(r#"{"id":"a","choices":[{"index":0,"delta":{"content":"d"},"finish_reason":null}],"usage":null,"obfuscation":"pq"}"#),
            finish("stop"), done.clone()])]).unchanged().text("ab\\\"cd"),
        Case::new("reasoning", &[cat(&[role(), delta(r#""reasoning_content":"why""#), delta(r#""reasoning_content":" not""#), delta(r#""reasoning_content":null,"content":"ok""#), finish("stop"), done.clone()])])
            .unchanged().text("ok"),
        Case::new("reasoning in details", &[cat(&[delta(r#""reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","n":1e3}]"#), delta(r#""reasoning":"b","reasoning_details":[{"text":"b"}]"#), say("ok"), finish("stop"), done.clone()])])
            .unchanged().text("ok"),
        Case::new("refusal", &[cat(&[delta(r#""refusal":"I c""#), delta(r#""refusal":"an't""#), finish("stop"), done.clone()])]).unchanged(),
        Case::new("azure's filter chunk", &[cat(&[event(r#"{"choices":[],"created":0,"id":"","model":"","prompt_filter_results":[{"prompt_index":0}]}"#), say("a"), event(r#"{"id":"a","choices":[{"index":0,"finish_reason":null,"content_filter_offsets":{}}]}"#), finish("stop"), done.clone()])])
            .unchanged().text("a"),
        Case::new("no choices, no delta", &[cat(&[event(r#"{"id":"a"}"#), event(r#"{"id":"a","choices":[{"index":0}]}"#), say("a"), event("not json"), event("[1]"), finish("stop"), done.clone()])])
            .unchanged().text("a"),
        Case::new("null and empty tool_calls", &[cat(&[delta(r#""content":"a","tool_calls":null"#), delta(r#""content":"b","tool_calls":[]"#), delta(r#""content":null,"tool_calls":null,"role":"assistant""#), finish("stop"), done.clone()])])
            .unchanged().text("ab"),
        Case::new("a name like a hidden one", &[cat(&[open(0, "c1", "rec"), args(0, "{}"), open(1, "c2", "delimiters"), args(1, "{}"), open(2, "c3", "del"), finish("tool_calls"), done.clone()])])
            .unchanged().calls(&[("rec", "{}"), ("delimiters", "{}"), ("del", "")]),
        Case::new("a hidden name in a text", &[cat(&[say("call delimiter"), finish("stop"), done.clone()])]).unchanged().text("call delimiter"),
        Case::new("end without [DONE]", &[cat(&[say("a"), finish("stop")])]).unchanged().text("a"),
        Case::new("[DONE] without an end", &[cat(&[say("a"), done.clone()])]).unchanged().text("a").broken(),
        Case::new("legacy function call", &[cat(&[delta(r#""content":null,"function_call":{"name":"read","arguments":""}"#), delta(r#""function_call":{"arguments":"{}"}"#), finish("function_call"), done])])
            .unchanged().finish("function_call"),
    ]
}

/// One hop with hidden calls, in every order and form.
fn hidden() -> Vec<Case> {
    let done = DONE.to_owned();
    let whole = |calls: &str| {
        delta(&format!(
            r#""role":"assistant","content":null,"tool_calls":[{calls}]"#
        ))
    };
    let hide = r#"{"index":0,"id":"h","type":"function","function":{"name":"delimiter","arguments":"{\"action\":\"end\"}"}}"#;
    let show =
        r#"{"index":1,"id":"v","type":"function","function":{"name":"read","arguments":"{}"}}"#;
    vec![
        Case::new("mixed, hidden first", &[cat(&[role(), open(0, "h", "delimiter"), args(0, "{}"), open(1, "v", "read"), args(1, r#"{\"a\""#), args(1, ":1}"), finish("tool_calls"), usage("a", 9, 3), done.clone()])])
            .calls(&[("read", r#"{"a":1}"#)]).usage(9, 3, 12),
        Case::new("mixed, hidden last", &[cat(&[role(), open(0, "v", "read"), args(0, "{}"), open(1, "h", "delimiter"), args(1, "{}"), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}")]),
        Case::new("mixed, hidden between and around", &[cat(&[say("x"), open(0, "h1", "delimiter"), args(0, "{}"), open(1, "v1", "read"), args(1, "{}"), open(2, "h2", "recall"), args(2, "{}"), open(3, "v2", "grep"), args(3, "{"), args(3, "}"), open(4, "h3", "delimiter"), finish("stop"), done.clone()])])
            .text("x").calls(&[("read", "{}"), ("grep", "{}")]).finish("stop"),
        Case::new("mixed in one frame", &[cat(&[whole(&format!("{hide},{show}")), finish("tool_calls"), done.clone()])]).calls(&[("read", "{}")]),
        Case::new("mixed in one frame with the end", &[cat(&[whole(&format!("{hide},{show}")).replace("\"finish_reason\":null", "\"finish_reason\":\"tool_calls\""), done.clone()])]).calls(&[("read", "{}")]),
        Case::new("a text beside a hidden call", &[cat(&[delta(&format!(r#""content":"x","tool_calls":[{hide}]"#)), open(1, "v", "read"), args(1, "{}"), finish("tool_calls"), done.clone()])])
            .text("x").calls(&[("read", "{}")]),
        Case::new("mixed, as short as can be", &[format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{}]}}}}]}}\r\n\r\ndata:{{\"choices\":[{{\"finish_reason\":\"stop\"}}]}}\n\n", r#"{"id":"h","function":{"name":"recall"}},{"id":"v","function":{"name":"é"}}"#)]).calls(&[("é", "")]).finish("stop"),
        Case::new("mixed, CRLF", &[cat(&[open(0, "h", "delimiter"), args(0, "{}"), open(1, "v", "read"), args(1, "{}"), finish("tool_calls"), done.clone()]).replace('\n', "\r\n")]).calls(&[("read", "{}")]),
        Case::new("mixed on several lines", &[cat(&[format!("event: x\ndata: {{\"choices\":[{{\"delta\":\ndata: {{\"tool_calls\":[{hide},\ndata: {show}]}}}}]}}\n\n"), finish("tool_calls"), done.clone()])]).calls(&[("read", "{}")]),
        Case::new("recall in pieces beside a mark and a visible call", &[cat(&[role(), open(0, "d", "delimiter"), args(0, "{}"), open(1, "r", "recall"), args(1, r#"{\"id\":\"re"#), args(1, r#"ad:3\"}"#), open(2, "v", "read"), args(2, "{}"), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}")]),
        Case::new("call fields unknown to us", &[cat(&[whole(&format!("{hide},{}", show.replace(r#""index":1,"#, r#""extra_content":{"g":{"sig":"A=="}},"index":1,"#))), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}")]),
    ]
}

/// Call pieces as they should not be, but are.
fn odd() -> Vec<Case> {
    let done = DONE.to_owned();
    let call = |inner: &str| delta(&format!(r#""tool_calls":[{inner}]"#));
    vec![
        Case::new("index missing, visible", &[cat(&[call(r#"{"id":"v1","function":{"name":"read","arguments":"{}"}}"#), call(r#"{"id":"v2","function":{"name":"grep","arguments":"{}"}}"#), finish("stop"), done.clone()])])
            .unchanged().calls(&[("read", "{}"), ("grep", "{}")]).finish("stop"),
        Case::new("index missing, mixed", &[cat(&[call(r#"{"id":"v1","function":{"name":"read","arguments":"{\"a\":"}}"#), call(r#"{"function":{"arguments":"1}"}}"#), call(r#"{"id":"h","function":{"name":"delimiter","arguments":"{"}}"#), call(r#"{"function":{"arguments":"}"}}"#), call(r#"{"id":"v2","function":{"name":"grep","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", r#"{"a":1}"#), ("grep", "{}")]),
        Case::new("index and id missing", &[cat(&[call(r#"{"function":{"name":"delimiter","arguments":"{}"}}"#), call(r#"{"function":{"name":"read","arguments":"{}"}}"#), call(r#"{"function":{"name":"read","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}"), ("read", "{}")]),
        Case::new("index used twice", &[cat(&[call(r#"{"index":0,"id":"h","type":"function","function":{"name":"delimiter","arguments":"{}"}}"#), call(r#"{"index":0,"id":"v1","type":"function","function":{"name":"read","arguments":"{"}}"#), call(r#"{"index":0,"function":{"arguments":"}"}}"#), call(r#"{"index":0,"id":"v2","type":"function","function":{"name":"grep","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}"), ("grep", "{}")]),
        Case::new("name split", &[cat(&[call(r#"{"index":0,"id":"h","function":{"name":"del","arguments":""}}"#), call(r#"{"index":0,"function":{"name":"imi"}}"#), say("x"), call(r#"{"index":0,"function":{"name":"ter","arguments":"{}"}}"#), call(r#"{"index":1,"id":"v","function":{"name":"del"}}"#), call(r#"{"index":1,"function":{"name":"ete","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .text("x").calls(&[("delete", "{}")]),
        Case::new("recall's name split, and one like it", &[cat(&[call(r#"{"index":0,"id":"h","function":{"name":"rec","arguments":""}}"#), call(r#"{"index":0,"function":{"name":"all","arguments":"{}"}}"#), call(r#"{"index":1,"id":"v","function":{"name":"rec"}}"#), call(r#"{"index":1,"function":{"name":"ord","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("record", "{}")]),
        Case::new("name split with arguments between", &[cat(&[call(r#"{"index":0,"function":{"name":"deli","arguments":"{\"a\""}}"#), call(r#"{"index":0,"function":{"name":"miter","arguments":":1}"}}"#), call(r#"{"index":1,"id":"v","function":{"name":"read","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}")]),
        Case::new("a name that grows past a hidden one", &[cat(&[call(r#"{"index":0,"id":"v","function":{"name":"delimiter","arguments":""}}"#), call(r#"{"index":0,"function":{"name":"_two","arguments":"{}"}}"#), finish("tool_calls"), done.clone()])])
            .unchanged().calls(&[("delimiter_two", "{}")]),
        Case::new("name repeated", &[cat(&[call(r#"{"index":0,"id":"h","function":{"name":"delimiter","arguments":"{"}}"#), call(r#"{"index":0,"id":"h","function":{"name":"delimiter","arguments":"}"}}"#), call(r#"{"index":1,"id":"v","function":{"name":"read","arguments":"{"}}"#), call(r#"{"index":1,"id":"v","function":{"name":"read","arguments":"}"}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}")]),
        Case::new("name late", &[cat(&[call(r#"{"index":0,"id":"v"}"#), call(r#"{"index":0,"type":"function","function":{"arguments":"{"}}"#), say("x"), call(r#"{"index":0,"function":{"name":"read"}}"#), call(r#"{"index":0,"function":{"arguments":"}"}}"#), finish("tool_calls"), done.clone()])])
            .unchanged().text("x").calls(&[("read", "{}")]),
        Case::new("id late", &[cat(&[call(r#"{"index":0,"function":{"name":"delimiter"}}"#), call(r#"{"index":0,"id":"h","function":{"arguments":"{}"}}"#), call(r#"{"index":1,"id":"","function":{"name":"read","arguments":"{}"}}"#), call(r#"{"index":1,"id":"v","function":{"arguments":""}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}")]),
        Case::new("interleaved", &[cat(&[open(0, "v1", "read"), open(1, "h", "delimiter"), args(0, "{"), args(1, "{"), args(0, "}"), args(1, "}"), open(2, "v2", "grep"), args(2, "{}"), finish("tool_calls"), done.clone()])])
            .calls(&[("read", "{}"), ("grep", "{}")]),
        Case::new("arguments as an object", &[cat(&[call(r#"{"index":0,"id":"h","function":{"name":"delimiter","arguments":{"action":"end"}}}"#), call(r#"{"index":1,"id":"v","function":{"name":"read","arguments":{"a":"b"}}}"#), finish("tool_calls"), done.clone()])])
            .calls(&[("read", r#"{"a":"b"}"#)]),
        Case::new("custom tools", &[cat(&[call(r#"{"index":0,"id":"v","type":"custom","custom":{"name":"patch","input":"a"}}"#), call(r#"{"index":0,"custom":{"input":"b"}}"#), finish("tool_calls"), done.clone()])])
            .unchanged().calls(&[("patch", "ab")]),
        Case::new("hidden pieces behind the end", &[cat(&[call(r#"{"index":0,"id":"v","function":{"name":"read","arguments":"{}"}}"#), finish("tool_calls"), call(r#"{"index":1,"id":"h","function":{"name":"deli"}}"#), call(r#"{"index":1,"function":{"name":"miter"}}"#), done])])
            .calls(&[("read", "{}")]),
    ]
}

/// Turns of several hops.
fn several() -> Vec<Case> {
    let b_text = || talking("b", "ok");
    let first = |text: &str| {
        annotating("a", "h1").replace(r#""content":null"#, &format!(r#""content":"{text}""#))
    };
    vec![
        Case::new("hidden, then a text", &[annotating("a", "h1"), b_text()]).text("ok").usage(130, 18, 148),
        Case::new("hidden, hidden, then a text", &[annotating("a", "h1"), annotating("b", "h2"), talking("c", "ok")]).text("ok").usage(130, 25, 155),
        Case::new("recalled, annotated, then a text", &[annotating("a", "h1").replace("delimiter", "recall"), annotating("b", "h2"), talking("c", "ok")]).text("ok").usage(130, 25, 155),
        Case::new("three texts", &[first("one"), first(r"two\n").replace(r#""id":"a""#, r#""id":"b""#), talking("c", r"\nthree")]).text("one\n\ntwo\n\nthree").usage(130, 25, 155),
        Case::new("a seam over several frames", &[first("one"), cat(&[delta_of("b", r#""content":"\n""#), delta_of("b", r#""content":"\u000atwo""#), delta_of("b", r#""content":"!""#), finish_of("b", "stop"), DONE.into()])]).text("one\n\ntwo!"),
        Case::new("a seam inside a frame", &[first("one"), cat(&[delta_of("b", r#""content":"\n""#), delta_of("b", r#""content":"two""#), finish_of("b", "stop"), DONE.into()])]).text("one\n\ntwo"),
        Case::new("a seam that is there", &[first(r"one\n\n"), talking("b", "two")]).text("one\n\ntwo").usage(130, 18, 148),
        Case::new("a second text of newlines", &[first("one"), talking("b", r"\n")]).text("one\n").usage(130, 18, 148),
        Case::new("text with the end of the first hop", &[cat(&[say("one"), delta(r#""content":"!","tool_calls":[{"index":0,"id":"h","function":{"name":"recall","arguments":"{}"}}]"#).replace("\"finish_reason\":null", "\"finish_reason\":\"stop\""), DONE.into()]), b_text()])
            .text("one!\n\nok").usage(130, 11, 141),
        Case::new("whole hidden call with role and end", &[delta(r#""role":"assistant","content":null,"tool_calls":[{"index":0,"id":"h","function":{"name":"recall","arguments":"{}"}}]"#).replace("\"finish_reason\":null", "\"finish_reason\":\"stop\""), b_text()])
            .text("ok").usage(130, 11, 141),
        Case::new("hidden, then mixed", &[annotating("a", "h1"), cat(&[delta_of("b", r#""role":"assistant""#), delta_of("b", r#""tool_calls":[{"index":0,"id":"h","function":{"name":"delimiter","arguments":"{}"}}]"#), delta_of("b", r#""tool_calls":[{"index":1,"id":"v","function":{"name":"read","arguments":"{"}}]"#), delta_of("b", r#""tool_calls":[{"index":1,"function":{"arguments":"}"}}]"#), finish_of("b", "tool_calls"), DONE.into()])])
            .calls(&[("read", "{}")]),
        Case::new("hidden, then visible from index 0", &[annotating("a", "h1"), cat(&[delta_of("b", r#""tool_calls":[{"index":0,"id":"v","function":{"name":"read","arguments":"{}"}}]"#), finish_of("b", "tool_calls"), DONE.into()])])
            .calls(&[("read", "{}")]),
        Case::new("hidden up to the cap", &[annotating("a", "h1"), annotating("b", "h2")]).text("the model only annotated").usage(100, 14, 114),
        Case::new("hidden up to the cap, with a text", &[first("one")]).text("one").usage(100, 7, 107),
        Case::new("comments between hops", &[format!(": one\n\n{}", annotating("a", "h1")), format!(": two\n\n{}", b_text())]).text("ok").usage(130, 18, 148),
        Case::new("reasoning in both hops", &[format!("{}{}", delta(r#""reasoning_content":"first""#), annotating("a", "h1")), format!("{}{}", delta_of("b", r#""reasoning_content":"second""#), b_text())]).text("ok").usage(130, 18, 148),
        Case::new("azure's filter chunk in both hops", &[format!("{}{}", event(r#"{"choices":[],"created":0,"id":"","prompt_filter_results":[]}"#), annotating("a", "h1")), format!("{}{}", event(r#"{"choices":[],"created":0,"id":"","prompt_filter_results":[]}"#), b_text())]).text("ok").usage(130, 18, 148),
    ]
}

/// Hops that the token limit or a filter ended.
fn limited() -> Vec<Case> {
    let done = DONE.to_owned();
    vec![
        Case::new(
            "length inside a hidden call",
            &[cat(&[
                say("x"),
                open(0, "h", "delimiter"),
                args(0, r#"{\"act"#),
                finish("length"),
                done.clone(),
            ])],
        )
        .text("x")
        .finish("length"),
        Case::new(
            "length inside a hidden name",
            &[cat(&[
                say("x"),
                open(0, "h", "deli"),
                finish("length"),
                done.clone(),
            ])],
        )
        .text("x")
        .finish("length"),
        Case::new(
            "length behind a hidden call",
            &[cat(&[
                open(0, "h", "delimiter"),
                args(0, "{}"),
                say("x"),
                finish("length"),
                done.clone(),
            ])],
        )
        .text("x")
        .finish("length"),
        Case::new(
            "length inside a visible call",
            &[cat(&[
                open(0, "h", "delimiter"),
                args(0, "{}"),
                open(1, "v", "read"),
                args(1, r#"{\"a"#),
                finish("length"),
                done.clone(),
            ])],
        )
        .calls(&[("read", r#"{"a"#)])
        .finish("length"),
        Case::new(
            "filtered",
            &[cat(&[say("x"), finish("content_filter"), done])],
        )
        .unchanged()
        .text("x")
        .finish("content_filter"),
    ]
}

/// Upstreams that went away.
fn cut_short() -> Vec<Case> {
    let inside = |name: &str| cat(&[say("x"), open(0, "h", name)]);
    vec![
        Case::new("cut inside a hidden name", &[inside("deli")])
            .text("x")
            .broken(),
        Case::new(
            "cut inside a hidden call",
            &[cat(&[inside("delimiter"), args(0, r#"{\"action"#)])],
        )
        .text("x")
        .broken(),
        Case::new(
            "cut inside a frame",
            &[cat(&[
                inside("read"),
                args(0, "{}").trim_end_matches("}]}\n\n").to_owned(),
            ])],
        )
        .text("x")
        .calls(&[("read", "")])
        .broken(),
        Case::new(
            "cut behind a whole frame's data",
            &[cat(&[say("x"), say("y").trim_end().to_owned()])],
        )
        .text("xy")
        .broken(),
        Case::new(
            "cut with a text behind an undecided call",
            &[cat(&[
                inside("deli"),
                say("y"),
                open(1, "v", "read"),
                args(1, "{}"),
            ])],
        )
        .text("xy")
        .calls(&[("read", "{}")])
        .broken(),
    ]
}

/// Upstreams that sent an error, or what is none of theirs to send.
fn failed() -> Vec<Case> {
    let inside = |name: &str| cat(&[say("x"), open(0, "h", name)]);
    vec![
        Case::new(
            "an error event",
            &[cat(&[
                say("x"),
                "event: error\ndata: {\"error\":{\"message\":\"boom\"}}\n\n".into(),
                DONE.into(),
            ])],
        )
        .text("x")
        .broken(),
        Case::new(
            "an error inside a hidden name",
            &[cat(&[
                inside("deli"),
                event(r#"{"error":{"message":"boom"}}"#),
            ])],
        )
        .text("x")
        .broken(),
        Case::new(
            "an error in the second hop",
            &[
                annotating("a", "h1"),
                cat(&[
                    delta_of("b", r#""content":"x""#),
                    event(r#"{"error":{"message":"boom"}}"#),
                ]),
            ],
        )
        .text("x")
        .broken(),
        Case::new(
            "an error behind the end",
            &[cat(&[
                say("x"),
                finish("stop"),
                event(r#"{"error":{"message":"boom"}}"#),
                DONE.into(),
            ])],
        )
        .text("x")
        .finish("stop"),
        Case::new("nothing at all", &[String::new()]).broken(),
    ]
}

/// Usage in all its places.
fn counted() -> Vec<Case> {
    let done = DONE.to_owned();
    let with = |id: &str, content: &str, prompt: u64, completion: u64, finish: &str| {
        event(&format!(
            r#"{{"id":"{id}","created":1,"choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":{finish}}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}}}"#,
            prompt + completion
        ))
    };
    let every = |id: &str| {
        cat(&[
            with(id, "x", 50, 1, "null"),
            with(id, "y", 50, 2, "null"),
            with(id, "", 50, 2, "\"stop\""),
            DONE.into(),
        ])
    };
    let mut sum = Case::new("summed", &[annotating("a", "h1"), talking("b", "ok")])
        .text("ok")
        .usage(230, 18, 248);
    sum.config.usage = UsageMode::Sum;
    vec![
        sum,
        Case::new("the chunk that we asked for", &[cat(&[say("x"), finish("stop"), usage("a", 9, 3), done.clone()])]).text("x").wish(UsageWish::Added),
        Case::new("the chunk that we asked for, twice", &[annotating("a", "h1"), talking("b", "ok")]).text("ok").wish(UsageWish::Added),
        Case::new("hidden up to the cap, not asked", &[annotating("a", "h1")]).text("the model only annotated").wish(UsageWish::Added),
        Case::new("usage though refused", &[cat(&[say("x"), finish("stop"), usage("a", 9, 3), done.clone()])]).unchanged().text("x").usage(9, 3, 12).wish(UsageWish::Refused),
        Case::new("usage in every frame", &[every("a")]).unchanged().text("xy").usage(50, 2, 52),
        Case::new("usage in every frame of a later hop", &[annotating("a", "h1"), every("b")]).text("xy").usage(50, 9, 59),
        Case::new("usage in every frame but the last", &[annotating("a", "h1"), cat(&[with("b", "x", 50, 2, "null"), finish_of("b", "stop"), done.clone()])]).text("x").usage(50, 9, 59),
        Case::new("usage in the choice", &[annotating("a", "h1"), cat(&[delta_of("b", r#""content":"x""#), event(r#"{"id":"b","created":1,"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":50,"completion_tokens":2,"total_tokens":52,"cached_tokens":4}}]}"#), done.clone()])]).text("x"),
        Case::new("usage of groq", &[annotating("a", "h1"), cat(&[delta_of("b", r#""content":"x""#), event(r#"{"id":"b","created":1,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"queue_time":0.50,"prompt_tokens":50,"completion_tokens":2,"total_tokens":52}}}"#), done])]).text("x"),
    ]
}
