//! Turns as they come over the wire, and what a client must make of them.

use bytes::Bytes;
use plimsoll_model::raw;

use super::say::{Hop, OWN};
use crate::Dialect;
use crate::answer::Verdict;
use crate::stream::harness::Turn;
use crate::stream::{Echo, MachineSettings, Spec, UsageMode, UsageWish, WhoAsked};

/// A turn.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) config: MachineSettings,
    pub(super) spec: Spec,
    pub(super) hops: Vec<Bytes>,
    /// The last hop as it would have come had the client's own request been sent, where nothing
    /// of the turn is hidden.
    pub(super) own: Option<Bytes>,
    /// What the items that the client sees are: their types, or the names of calls.
    pub(super) items: &'static [&'static str],
    pub(super) text: &'static str,
    pub(super) verdict: Verdict,
    /// Input, cached, output and reasoning tokens.
    pub(super) usage: Option<[u64; 4]>,
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

    fn new(name: &'static str, hops: &[Hop]) -> Self {
        Self {
            name,
            config: MachineSettings::default(),
            spec: spec(true),
            hops: hops.iter().map(Hop::bytes).collect(),
            own: None,
            items: &[],
            text: "",
            verdict: Verdict::Done,
            usage: Some([90, 64, 20, 8]),
        }
    }

    /// A turn of one hop that hides nothing, made once as it came and once as the client's own
    /// request would have made it.
    fn open(name: &'static str, say: impl Fn(Hop) -> Hop) -> Self {
        Self {
            own: Some(say(Hop::new("resp_0a1b").plain()).bytes()),
            ..Self::new(name, &[say(Hop::new("resp_0a1b"))])
        }
    }

    fn items(self, items: &'static [&'static str]) -> Self {
        Self { items, ..self }
    }

    fn text(self, text: &'static str) -> Self {
        Self { text, ..self }
    }

    fn verdict(self, verdict: Verdict) -> Self {
        Self { verdict, ..self }
    }

    fn usage(self, usage: [u64; 4]) -> Self {
        let usage = (usage[0] > 0).then_some(usage);
        Self { usage, ..self }
    }
}

/// What the machine knows of the request.
pub(super) fn spec(injected: bool) -> Spec {
    Spec {
        dialect: Dialect::Responses,
        hidden: ["delimiter", "recall"]
            .into_iter()
            .filter(|_| injected)
            .collect(),
        usage_wish: UsageWish::Refused,
        asked: WhoAsked::default(),
        one_text: false,
        echo: Echo {
            instructions: Some(Bytes::from(raw::quote(OWN))),
            limit: Some(Bytes::from_static(b"500")),
            previous: None,
        },
    }
}

/// The usage of a hop.
const USED: [u64; 4] = [90, 64, 20, 8];
/// The usage of a hop before it.
const BEFORE: [u64; 4] = [70, 32, 11, 3];
/// What is told of both.
const BOTH: [u64; 4] = [90, 64, 31, 11];
/// What is told where a hop failed that tells of none.
const NONE: [u64; 4] = [0; 4];

fn hop(id: &str) -> Hop {
    Hop::new(id).begin()
}

/// A hop that says nothing but a hidden call.
fn annotates() -> Hop {
    annotating(Hop::new("resp_0a1b"))
}

fn annotating(hop: Hop) -> Hop {
    hop.begin()
        .reasoning("rs_0", &["Let me\nopen one."])
        .call("0", "delimiter", &["{\"action\"", ":\"start\"}"])
        .end("completed", BEFORE)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = open();
    cases.extend(hiding());
    cases.extend(several());
    cases.extend(broken());
    cases
}

/// Turns in which nothing is hidden.
fn open() -> Vec<Case> {
    vec![
        Case::open("text", |hop| {
            hop.begin()
                .text("msg_1", &["Gr\u{fc}\u{df}", " \"dich\"\n", "\u{1f600}"])
                .end("completed", USED)
        })
        .items(&["message"])
        .text("Gr\u{fc}\u{df} \"dich\"\n\u{1f600}"),
        Case::open("padded text, comments, an end after the end", |hop| {
            hop.padded()
                .raw(": hi\n\n")
                .begin()
                .text("msg_1", &["a", "b", "c", "d", "e", "f"])
                .raw(": hi\n\n")
                .end("completed", USED)
                .raw("data: [DONE]\n\n")
        })
        .items(&["message"])
        .text("abcdef"),
        Case::open("reasoning, then text", |hop| {
            hop.begin()
                .reasoning("rs_1", &["One.", "Two."])
                .text("msg_1", &["So."])
                .end("completed", USED)
        })
        .items(&["reasoning", "message"])
        .text("So."),
        Case::open("reasoning alone", |hop| {
            hop.begin().reasoning("rs_1", &[]).end("completed", USED)
        })
        .items(&["reasoning"]),
        Case::open("parallel calls", |hop| {
            hop.begin()
                .reasoning("rs_1", &["Both."])
                .call("1", "read", &["{\"p\":", "\"a\"}"])
                .call("2", "delimiters", &["{}"])
                .end("completed", USED)
        })
        .items(&["reasoning", "read", "delimiters"]),
        Case::open("a custom call", |hop| {
            hop.begin()
                .custom("1", "apply_patch", &["*** Begin", " Patch\n\"x\""])
                .end("completed", USED)
        })
        .items(&["apply_patch"]),
        Case::open("a server's own tool", |hop| {
            hop.begin()
                .reasoning("rs_1", &["Look."])
                .search("ws_1")
                .text("msg_1", &["Tides."])
                .end("completed", USED)
        })
        .items(&["reasoning", "web_search_call", "message"])
        .text("Tides."),
        Case::open("a refusal", |hop| {
            hop.begin()
                .refusal("msg_1", &["I ", "can't."])
                .end("completed", USED)
        })
        .items(&["message"]),
        Case::open("events that nobody knows", |hop| {
            hop.begin()
                .event("keepalive", r#""z":0"#)
                .raw("event: codex.rate_limits\ndata: {\"type\":\"codex.rate_limits\",\"left\":3}\n\n")
                .raw("data: what\n\n")
                .text("msg_1", &["x"])
                .event("response.novelty", r#""z":[]"#)
                .end("completed", USED)
        })
        .items(&["message"])
        .text("x"),
        Case::open("cut by the limit", |hop| {
            hop.begin()
                .text("msg_1", &["half a "])
                .end("length", USED)
        })
        .items(&["message"])
        .text("half a ")
        .verdict(Verdict::Cut),
        Case::open("cut by a filter", |hop| {
            hop.begin().text("msg_1", &["no"]).end("filter", USED)
        })
        .items(&["message"])
        .text("no")
        .verdict(Verdict::Cut),
        Case::open("a call in a namespace", |hop| {
            let item = r#"{"id":"fc_1","type":"function_call","status":"completed","namespace":"multi","arguments":"{}","call_id":"call_1","name":"recall_not"}"#;
            hop.begin().item(item, item).end("completed", USED)
        })
        .items(&["recall_not"]),
        Case::open("the client's shell", |hop| {
            let item = r#"{"id":"sh_1","type":"shell_call","status":"completed","action":{"commands":["ls"]},"call_id":"call_1"}"#;
            hop.begin().item(item, item).end("completed", USED)
        })
        .items(&["shell_call"]),
        Case::open("other ends of lines", |hop| {
            hop.begin()
                .raw("event: keepalive\r\ndata: {\"type\":\"keepalive\",\r\ndata: \"n\":1}\r\n\r\n")
                .text("msg_1", &["x"])
                .end("completed", USED)
        })
        .items(&["message"])
        .text("x"),
        Case {
            spec: spec(false),
            ..Case::open("nothing injected", |hop| annotating(hop.plain()))
        }
        .items(&["reasoning", "delimiter"])
        .usage(BEFORE),
    ]
}

/// Turns of one hop in which something is hidden.
fn hiding() -> Vec<Case> {
    vec![
        Case::new(
            "mixed",
            &[hop("resp_0a1b")
                .reasoning("rs_1", &["Begin."])
                .text("msg_1", &["On", " it."])
                .call("1", "delimiter", &["{\"action\":", "\"start\"}"])
                .reasoning("rs_2", &["Read."])
                .call("2", "read", &["{}"])
                .call("3", "recall", &["{}"])
                .call("4", "read", &["{", "}"])
                .end("completed", USED)],
        )
        .items(&["reasoning", "message", "reasoning", "read", "read"])
        .text("On it.")
        .verdict(Verdict::Mixed),
        Case::new(
            "mixed, the hidden call first",
            &[hop("resp_0a1b")
                .padded()
                .reasoning("rs_1", &["Begin."])
                .call("1", "delimiter", &["{}"])
                .custom("2", "apply_patch", &["*", "*"])
                .search("ws_1")
                .event("keepalive", r#""z":0"#)
                .end("completed", USED)],
        )
        .items(&["reasoning", "apply_patch", "web_search_call"])
        .verdict(Verdict::Mixed),
        Case::new(
            "mixed, reasoning at the end",
            &[hop("resp_0a1b")
                .call("2", "read", &["{}"])
                .reasoning("rs_2", &["And."])
                .call("1", "delimiter", &["{}"])
                .end("completed", USED)],
        )
        .items(&["read", "reasoning"])
        .verdict(Verdict::Mixed),
        Case::new(
            "mixed with the client's shell",
            &[hop("resp_0a1b")
                .call("1", "delimiter", &["{}"])
                .item(
                    r#"{"id":"sh_1","type":"local_shell_call","status":"in_progress","action":{"type":"exec","command":[]},"call_id":"call_1"}"#,
                    r#"{"id":"sh_1","type":"local_shell_call","status":"completed","action":{"type":"exec","command":["ls"]},"call_id":"call_1"}"#,
                )
                .end("completed", USED)],
        )
        .items(&["local_shell_call"])
        .verdict(Verdict::Mixed),
        Case::new(
            "names that come late",
            &[hop("resp_0a1b")
                .call("1", "{read}", &["{}"])
                .call("2", "{delimiter}", &["{}"])
                .call("3", "{read}", &["{}"])
                .end("completed", USED)],
        )
        .items(&["read", "read"])
        .verdict(Verdict::Mixed),
        Case::new(
            "cut in a hidden call",
            &[hop("resp_0a1b")
                .text("msg_1", &["x"])
                .reasoning("rs_1", &["Hm."])
                .item(
                    r#"{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"delimiter"}"#,
                    r#"{"id":"fc_1","type":"function_call","status":"incomplete","arguments":"{\"act","call_id":"call_1","name":"delimiter"}"#,
                )
                .end("length", USED)],
        )
        .items(&["message", "reasoning"])
        .text("x")
        .verdict(Verdict::Cut),
        Case::new(
            "cut in a text that never closes, behind a hidden call",
            &[hop("resp_0a1b")
                .call("1", "delimiter", &["{}"])
                .text("msg_1", &["half a "])
                .torn("response.output_text.done")
                .end("length", USED)],
        )
        .items(&["message"])
        .text("half a ")
        .verdict(Verdict::Cut),
        Case::new(
            "events that are not about an item and name a tool",
            &[hop("resp_0a1b")
                .raw("data: {\"type\":\"debug\",\"tool\":\"delimiter\"}\n\n")
                .raw("data: \"delimiter\"\n\n")
                .event("debug", r#""tool":"recall""#)
                .text("msg_1", &["x"])
                .end("completed", USED)],
        )
        .items(&["message"])
        .text("x"),
    ]
}

/// Turns of several hops.
fn several() -> Vec<Case> {
    let later = |id: &str| Hop::new(id).limit(489).begin();
    vec![
        Case::new(
            "hidden only, then text",
            &[
                annotates(),
                later("resp_2")
                    .text("msg_2", &["Done", "."])
                    .end("completed", USED),
            ],
        )
        .items(&["message"])
        .text("Done.")
        .usage(BOTH),
        Case {
            config: MachineSettings {
                usage: UsageMode::Sum,
                ..MachineSettings::default()
            },
            ..Case::new(
                "three hops, texts and reasoning in all, usage summed",
                &[
                    hop("resp_0a1b")
                        .reasoning("rs_1", &["One."])
                        .text("msg_1", &["First. "])
                        .reasoning("rs_1b", &["Then."])
                        .call("1", "delimiter", &["{}"])
                        .call("2", "recall", &["{}"])
                        .end("completed", BEFORE)
                        .raw("data: [DONE]\n\n"),
                    later("resp_2")
                        .search("ws_2")
                        .text("msg_2", &["Second. "])
                        .call("3", "recall", &["{\"x\":1}"])
                        .end("completed", BEFORE)
                        .raw(": left over\n\n"),
                    later("resp_3")
                        .padded()
                        .reasoning("rs_3", &["Three."])
                        .text("msg_3", &["Third."])
                        .call("4", "read", &["{}"])
                        .end("completed", USED)
                        .raw("data: [DONE]\n\n"),
                ],
            )
        }
        .items(&[
            "reasoning",
            "message",
            "web_search_call",
            "message",
            "reasoning",
            "message",
            "read",
        ])
        .text("First. Second. Third.")
        .usage([230, 128, 42, 14]),
        Case::new(
            "hidden only, then mixed",
            &[
                annotates(),
                later("resp_2")
                    .event("keepalive", r#""z":0"#)
                    .reasoning("rs_2", &["Go."])
                    .call("2", "read", &["{}"])
                    .call("3", "delimiter", &["{}"])
                    .end("completed", USED),
            ],
        )
        .items(&["reasoning", "read"])
        .verdict(Verdict::Mixed)
        .usage(BOTH),
        Case::new("at the cap with nothing said", &[annotates(), annotates()])
            .items(&["message"])
            .text("the model only annotated")
            .verdict(Verdict::HiddenOnly)
            .usage([70, 32, 22, 6]),
        Case::new(
            "at the cap with something said",
            &[
                hop("resp_0a1b")
                    .text("msg_1", &["Said."])
                    .call("1", "delimiter", &["{}"])
                    .end("completed", BEFORE),
                annotates().raw("data: [DONE]\n\n"),
            ],
        )
        .items(&["message"])
        .text("Said.")
        .verdict(Verdict::HiddenOnly)
        .usage([70, 32, 22, 6]),
        Case::new("the cap in the first hop", &[annotates()])
            .items(&["message"])
            .text("the model only annotated")
            .verdict(Verdict::HiddenOnly)
            .usage(BEFORE),
        Case::new(
            "hidden only, then cut by the limit",
            &[
                annotates(),
                later("resp_2").text("msg_2", &["half"]).end("length", USED),
            ],
        )
        .items(&["message"])
        .text("half")
        .verdict(Verdict::Cut)
        .usage(BOTH),
    ]
}

/// Turns that come to no good end.
fn broken() -> Vec<Case> {
    let failed = |case: Case| case.verdict(Verdict::Broken).usage(NONE);
    let error = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"it broke\",\"param\":null,\"sequence_number\":2}\n\n";
    vec![
        failed(Case::open("failed at once", |hop| {
            hop.begin().end("failed", NONE)
        })),
        failed(
            Case::new(
                "failed behind a hidden call",
                &[hop("resp_0a1b")
                    .call("1", "delimiter", &["{}"])
                    .text("msg_1", &["x"])
                    .end("failed", NONE)],
            )
            .items(&["message"])
            .text("x"),
        ),
        failed(Case::new(
            "failed in the second hop",
            &[
                annotates(),
                Hop::new("resp_2")
                    .begin()
                    .reasoning("rs_1", &["Hm."])
                    .end("failed", NONE),
            ],
        )),
        failed(Case::new(
            "an error in the second hop",
            &[annotates(), Hop::new("resp_2").begin().raw(error)],
        )),
        failed(Case::open("an error event", |hop| hop.begin().raw(error))),
        failed(
            Case::new(
                "cut off in the middle",
                &[hop("resp_0a1b")
                    .call("1", "delimiter", &["{}"])
                    .text("msg_1", &["x", "y"])
                    .torn("response.output_text.delta")
                    .raw("event: response.output_text.delta\ndata: {\"type\":\"resp")],
            )
            .text("x"),
        ),
        failed(Case::new(
            "cut off before an end",
            &[annotates(), Hop::new("resp_2").begin()],
        )),
        failed(Case::new("nothing at all", &[Hop::new("resp_0a1b")])),
    ]
}
