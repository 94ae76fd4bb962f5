//! Sessions of 10,000 items with text as agents have it, the same in each run. Times nothing.

use std::fmt::Write as _;
use std::sync::Arc;

use plimsoll_core::session::path::Path;
use plimsoll_core::session::transcript::{self, Transcript};
use plimsoll_core::turn::memo::Reader;
use plimsoll_model::{
    CallId, CallShape, Digest, Effect, ExplicitKind, Handed, HiddenCall, HiddenTool, RecordId,
    Role, Shape, StoredHop, ToolClass, TurnRecord,
};
use serde_json::json;

/// Items of each session.
pub const ITEMS: usize = 10_000;
/// Turns of an episode.
pub const EPISODE: usize = 8;
/// The tools, one a turn.
const TOOLS: [&str; 4] = ["grep", "read", "bash", "edit"];
/// What names are made of.
const WORDS: [&str; 48] = [
    "auth", "token", "cookie", "session", "render", "layout", "parse", "config", "handler",
    "route", "client", "server", "request", "response", "cache", "digest", "index", "query",
    "schema", "migrate", "worker", "queue", "retry", "timeout", "stream", "buffer", "encode",
    "decode", "store", "record", "policy", "budget", "window", "message", "content", "header",
    "socket", "metric", "trace", "filter", "merge", "split", "lookup", "resolve", "account",
    "invoice", "payment", "user",
];

/// How a session is annotated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Annotated {
    /// An expl, an act on it, an expl and so on.
    Well,
    /// Not at all.
    Never,
    /// An episode that is opened at the start and never ends.
    Open,
}

/// A session as the middle knows it.
pub struct Session {
    pub messages: Vec<Vec<u8>>,
    pub shapes: Vec<Arc<Shape>>,
    pub turns: Vec<(RecordId, Arc<TurnRecord>)>,
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }

    pub fn word(&mut self) -> &'static str {
        let at = self.below(WORDS.len());
        WORDS.get(at).unwrap()
    }

    pub fn name(&mut self) -> String {
        format!("{}_{}", self.word(), self.word())
    }

    pub fn path(&mut self) -> String {
        format!("src/{}/{}.rs", self.word(), self.name())
    }

    pub fn code(&mut self, lines: usize) -> String {
        let mut out = String::new();
        for _ in 0..lines {
            let _ = match self.below(7) {
                0 => writeln!(
                    out,
                    "    let {} = {}(&{})?;",
                    self.name(),
                    self.name(),
                    self.word()
                ),
                1 => writeln!(
                    out,
                    "    // The {} is {} before the {}.",
                    self.word(),
                    self.word(),
                    self.word()
                ),
                2 => writeln!(
                    out,
                    "    if {}.is_empty() {{ return Err(\"no {} in {}\".into()); }}",
                    self.word(),
                    self.word(),
                    self.word()
                ),
                3 => writeln!(
                    out,
                    "\nfn {}({}: &str) -> Option<u32> {{",
                    self.name(),
                    self.word()
                ),
                4 => writeln!(
                    out,
                    "        .map(|{0}| {0}.{1}())",
                    self.word(),
                    self.name()
                ),
                5 => writeln!(out, "    }}\n}}"),
                _ => writeln!(
                    out,
                    "    assert_eq!({}.{}, \"{}-{}\");",
                    self.word(),
                    self.word(),
                    self.word(),
                    self.below(100_000)
                ),
            };
        }
        out
    }

    /// What a tool says: half a kilobyte to ten, three or so on average.
    pub fn result(&mut self, tool: &str) -> String {
        let mut out = String::new();
        let size = 1 + self.below(4);
        match tool {
            "grep" => {
                for _ in 0..size * 12 {
                    let (path, line) = (self.path(), self.below(900));
                    let code = self.code(1);
                    let _ = writeln!(out, "{path}:{line}:{}", code.trim());
                }
            }
            "read" => {
                for (at, line) in self.code(size * 40).lines().enumerate() {
                    let _ = writeln!(out, "{:6}\t{line}", at + size);
                }
            }
            "bash" => {
                for _ in 0..size * 16 {
                    let _ = match self.below(4) {
                        0 => writeln!(out, "test {}::{} ... ok", self.word(), self.name()),
                        1 => writeln!(
                            out,
                            "2026-03-1{}T0{}:{:02}:17Z INFO {} id={:08x} took {} ms",
                            self.below(9),
                            self.below(9),
                            self.below(60),
                            self.name(),
                            self.below(1 << 32),
                            self.below(90_000)
                        ),
                        2 => writeln!(
                            out,
                            "warning: unused variable: `{}`\n  --> {}:{}:{}",
                            self.name(),
                            self.path(),
                            self.below(900),
                            self.below(80)
                        ),
                        _ => writeln!(
                            out,
                            "   Compiling {} v0.{}.{}",
                            self.name(),
                            self.below(9),
                            self.below(30)
                        ),
                    };
                }
            }
            _ => {
                let _ = writeln!(
                    out,
                    "The file {} has been updated. The lines now read:",
                    self.path()
                );
                out.push_str(&self.code(6 + size));
            }
        }
        out
    }

    pub fn arguments(&mut self, tool: &str) -> String {
        match tool {
            "grep" => json!({"pattern": self.name(), "path": format!("src/{}", self.word())}),
            "read" => json!({"file_path": self.path(), "offset": self.below(900)}),
            "bash" => json!({"command": format!("cargo test -p {} {}", self.word(), self.name())}),
            _ => {
                let (old, new) = (3 + self.below(20), 3 + self.below(30));
                json!({"file_path": self.path(), "old_string": self.code(old), "new_string": self.code(new)})
            }
        }
        .to_string()
    }
}

fn shape(role: Role, message: &[u8]) -> Shape {
    Shape {
        role,
        canonical: Digest::of(&[message]),
        nameless: Digest::of(&[message]),
        calls: Vec::new(),
        result_of: None,
        text: 0,
        reasoning: 0,
        opaque: false,
        whole: false,
        blank: false,
    }
}

fn hidden(turn: usize, place: u32, effect: Effect) -> HiddenCall {
    HiddenCall {
        id: CallId(format!("hidden-{turn}-{place}")),
        place,
        bytes: String::new(),
        arguments: String::new(),
        tokens: 40,
        result: String::new(),
        result_tokens: 12,
        effect,
        tells: false,
        pictures: Vec::new(),
        nudge: false,
        tool: HiddenTool::Delimiter,
        block: None,
        signed: false,
    }
}

/// The hidden calls of a turn: the end of one episode and the start of the next.
fn hidden_calls(annotated: Annotated, turn: usize) -> Vec<HiddenCall> {
    let due = match annotated {
        Annotated::Well => turn.is_multiple_of(EPISODE),
        Annotated::Never => false,
        Annotated::Open => turn == 0,
    };
    if !due {
        return Vec::new();
    }
    let number = turn / EPISODE;
    let name = |number: usize| format!("episode-{number}");
    let is_act = |number: usize| number % 2 == 1;
    let mut calls = Vec::new();
    if let Some(before) = number.checked_sub(1) {
        let learned = "the caller in src/auth.rs:40 never refreshes the cookie; ".repeat(3);
        let ended = Effect::Ended {
            name: name(before),
            description: (!is_act(before)).then_some(learned),
        };
        calls.push(hidden(turn, 0, ended));
    }
    let started = Effect::Started {
        name: name(number),
        kind: if is_act(number) {
            ExplicitKind::Act
        } else {
            ExplicitKind::Expl
        },
        dependencies: number
            .checked_sub(1)
            .filter(|_| is_act(number))
            .map(|before| vec![name(before)])
            .unwrap_or_default(),
    };
    calls.push(hidden(turn, u32::from(!calls.is_empty()), started));
    calls
}

impl Session {
    pub fn say(&mut self, role: Role, message: &serde_json::Value, tokens: u32) -> &mut Shape {
        let message = message.to_string().into_bytes();
        let mut new = shape(role, &message);
        new.text = tokens;
        self.messages.push(message);
        self.shapes.push(Arc::new(new));
        Arc::get_mut(self.shapes.last_mut().unwrap()).unwrap()
    }

    /// The transcript of the request after so many turns.
    pub fn transcript(&self, turns: usize) -> (Transcript, Path) {
        let mut path = Path::default();
        for (id, record) in self.turns.iter().take(turns) {
            path.push(*id, record.clone());
        }
        let transcript = transcript::build(&transcript::TranscriptInput {
            shapes: self.shapes.get(..2 + 2 * turns).unwrap(),
            path: &path,
            pending: &[],
            handed: &|_, _| Handed::Nothing,
            own_thoughts: &|_, _| None,
            front: &|_| None,
            class: &|name| match name {
                "grep" => ToolClass::Bulk,
                "read" => ToolClass::Read,
                "bash" => ToolClass::Shell,
                _ => ToolClass::Write,
            },
            implicit_tokens: 8000,
            guidance: None,
            without: Default::default(),
            thoughts: Default::default(),
            apart: 0,
            foreign: &|_| false,
            hidden: &|_, call| call.tokens,
        });
        (transcript, path)
    }
}

/// Reasoning, text, a call and its result a turn.
pub fn session(annotated: Annotated, reader: Reader<'_>) -> Session {
    let mut session = Session {
        messages: Vec::new(),
        shapes: Vec::new(),
        turns: Vec::new(),
    };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for (role, name, lines) in [(Role::System, "system", 120), (Role::User, "user", 20)] {
        let text = dice.code(lines);
        let message = json!({"role": name, "content": text});
        session.say(role, &message, reader.count(&text));
    }
    let mut path = Path::default();
    for turn in 0..ITEMS / 4 {
        let id = CallId(format!("call-{turn}"));
        let tool = *TOOLS.get(turn % 4).unwrap();
        let text = format!("Let me look at {} in {}.", dice.name(), dice.path());
        let (arguments, result) = (dice.arguments(tool), dice.result(tool));
        let call = CallShape {
            id: id.clone(),
            name: tool.to_owned(),
            tokens: reader.call(tool, &arguments),
            digest: 0,
        };
        let function = json!({"name": tool, "arguments": arguments});
        let message = json!({"role": "assistant", "content": text, "tool_calls": [{"id": id.0, "type": "function", "function": function}]});
        let position = u32::try_from(session.shapes.len()).unwrap();
        let spoken = session.say(Role::Assistant, &message, reader.count(&text));
        (spoken.reasoning, spoken.calls) = (60, vec![call]);
        let record = TurnRecord {
            turn: u32::try_from(turn + 1).unwrap(),
            position,
            base: path.next,
            first_item: path.next.plus(if turn == 0 { 2 } else { 0 }),
            hops: vec![StoredHop {
                calls: hidden_calls(annotated, turn),
                ..StoredHop::default()
            }],
            visible: spoken.canonical,
            bare: spoken.canonical,
            calls: vec![(id.clone(), tool.to_owned())],
            tooled: true,
            injected: Some("delimiter".to_owned()),
            ..TurnRecord::default()
        };
        let (record, at) = (Arc::new(record), RecordId(spoken.canonical));
        path.push(at, record.clone());
        session.turns.push((at, record));
        let message = json!({"role": "tool", "tool_call_id": id.0, "content": result});
        let told = session.say(Role::Tool, &message, reader.count(&result));
        told.result_of = Some(id);
    }
    session
}
