//! What a pass costs in sessions of 10,000 items with text as agents have it. A session grows under
//! the proxy pass by pass, and the newest pass is timed with what a running proxy remembers by then:
//! the passes before it and the requests since. Beside it, as the far end, a first pass over a
//! session that grew elsewhere. Prints times with the goal; it never fails on time, because machines
//! differ.
//!
//! `cargo bench --bench eviction`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::dialect::chat::original;
use plimsoll::model::{
    CallId, CallShape, Dialect, Digest, Effect, EpisodeKind, Handed, Hidden, HiddenCall, Hop,
    ItemKind, Kept, Mark, Marks, Parent, RecordId, Role, Shape, TenantId, ToolClass, TurnRecord,
    Words,
};
use plimsoll::pipeline::known::{Decoded, Memo, Reader};
use plimsoll::policy::{self, Ask, Config, Order, Policy, Proposal, Read, Target};
use plimsoll::session::path::Path;
use plimsoll::session::stub;
use plimsoll::session::transcript::{self, Source, Transcript};
use plimsoll::session::view::{self, Left, Measure, Note};
use plimsoll::tokens::{Counter, Encoding};
use serde_json::json;

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Items of each session.
const ITEMS: usize = 10_000;
const ROUNDS: usize = 21;
/// Turns of an episode.
const EPISODE: usize = 8;
/// Turns between two looks at the size of a session that grows.
const STEP: usize = 3;
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
enum Annotated {
    /// An expl, an act on it, an expl and so on.
    Well,
    /// Not at all.
    Never,
    /// An episode that is opened at the start and never ends.
    Open,
}

/// A session as the middle knows it.
struct Session {
    messages: Vec<Vec<u8>>,
    shapes: Vec<Arc<Shape>>,
    turns: Vec<(RecordId, Arc<TurnRecord>)>,
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }

    fn word(&mut self) -> &'static str {
        let at = self.below(WORDS.len());
        WORDS.get(at).unwrap()
    }

    fn name(&mut self) -> String {
        format!("{}_{}", self.word(), self.word())
    }

    fn path(&mut self) -> String {
        format!("src/{}/{}.rs", self.word(), self.name())
    }

    fn code(&mut self, lines: usize) -> String {
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
    fn result(&mut self, tool: &str) -> String {
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

    fn arguments(&mut self, tool: &str) -> String {
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
        calls: Vec::new(),
        result_of: None,
        text: 0,
        reasoning: 0,
        opaque: false,
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
        nudge: false,
        tool: Hidden::Delimiter,
        block: None,
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
            EpisodeKind::Act
        } else {
            EpisodeKind::Expl
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
    fn say(&mut self, role: Role, message: &serde_json::Value, tokens: u32) -> &mut Shape {
        let message = message.to_string().into_bytes();
        let mut new = shape(role, &message);
        new.text = tokens;
        self.messages.push(message);
        self.shapes.push(Arc::new(new));
        Arc::get_mut(self.shapes.last_mut().unwrap()).unwrap()
    }

    /// The transcript of the request after so many turns.
    fn transcript(&self, turns: usize) -> (Transcript, Path) {
        let mut path = Path::default();
        for (id, record) in self.turns.iter().take(turns) {
            path.push(*id, record.clone());
        }
        let transcript = transcript::build(&transcript::Input {
            shapes: self.shapes.get(..2 + 2 * turns).unwrap(),
            path: &path,
            pending: &[],
            handed: &|_, _| Handed::Nothing,
            class: &|name| match name {
                "grep" => ToolClass::Bulk,
                "read" => ToolClass::Read,
                "bash" => ToolClass::Shell,
                _ => ToolClass::Write,
            },
            implicit_tokens: 8000,
        });
        (transcript, path)
    }
}

/// Reasoning, text, a call and its result a turn.
fn session(annotated: Annotated, reader: Reader<'_>) -> Session {
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
            parent: Parent::Root,
            turn: u32::try_from(turn + 1).unwrap(),
            position,
            base: path.next,
            first_item: path.next + if turn == 0 { 2 } else { 0 },
            hops: vec![Hop {
                calls: hidden_calls(annotated, turn),
                ..Hop::default()
            }],
            handed: String::new(),
            visible: spoken.canonical,
            trimmed: spoken.canonical,
            calls: vec![(id.clone(), tool.to_owned())],
            tooled: true,
            injected: Some("delimiter".to_owned()),
            recall: None,
            prologue: Digest([0; 32]),
            model: String::new(),
            ended: 0,
            nudged: false,
            session: String::new(),
            content: None,
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

/// The middle's view of a session at one request.
struct Request<'a> {
    session: &'a Session,
    transcript: Transcript,
    marks: Marks,
    decoded: Decoded,
}

impl Request<'_> {
    fn message(&self, item: usize) -> Option<usize> {
        let item = self.transcript.items.get(item)?;
        match self.transcript.entries.get(item.entry)?.source {
            Source::Client(message) | Source::LastHop { message, .. } => Some(message),
            Source::Hop { .. } | Source::HiddenResult { .. } => None,
        }
    }

    /// The original text of an item, read as the pipeline reads it.
    fn original(&self, index: usize) -> Option<Cow<'_, str>> {
        self.decoded.text(index, || self.decode(index))
    }

    fn decode(&self, index: usize) -> Option<Cow<'_, str>> {
        let item = self.transcript.items.get(index)?;
        let message = self.session.messages.get(self.message(index)?)?;
        match item.kind {
            ItemKind::Reasoning => None,
            ItemKind::Call if item.hidden => None,
            ItemKind::Call => original::arguments(message, 0),
            ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Result
            | ItemKind::Opaque => original::text(message),
        }
    }

    fn digest(&self, item: usize) -> Option<Digest> {
        let shape = self.session.shapes.get(self.message(item)?)?;
        Some(shape.canonical)
    }

    /// The strings of a text, remembered as the pipeline remembers them.
    fn words(&self, reader: Reader<'_>, read: Read<'_>) -> Option<Arc<Words>> {
        let index = match read {
            Read::Note(text) => return reader.words(text.as_bytes(), || Some(Words::of(text))),
            Read::Original(index) => index,
        };
        let item = self.transcript.items.get(index)?;
        let kind = item.kind;
        if item.hidden || kind == ItemKind::Reasoning {
            return None;
        }
        let mut name = self.digest(index)?.as_bytes().to_vec();
        name.push(u8::from(kind == ItemKind::Call));
        reader.words(&name, || {
            let text = self.decode(index)?;
            Some(match kind {
                ItemKind::Call => Words::of(&stub::flat(&text)),
                _ => Words::of(&text),
            })
        })
    }

    /// What is left of a call, remembered as the pipeline remembers it.
    fn left(&self, reader: Reader<'_>, call: usize, mark: Mark, kept: &Kept) -> Left {
        let item = self.transcript.items.get(call).unwrap();
        let digests = (self.digest(call), item.pair.and_then(|at| self.digest(at)));
        let key = ((item.no, &*item.name, mark as u8), digests, call, kept);
        reader.left(&key, || {
            let arguments = || self.original(call).unwrap_or_default();
            let text = item.pair.and_then(|pair| self.original(pair));
            let text = text.unwrap_or_default();
            if mark == Mark::Removed {
                let names = stub::names(kept, &text, &stub::flat(&arguments()));
                return Left {
                    names: (!names.is_empty()).then(|| names.into()),
                    ..Left::default()
                };
            }
            let result = kept.of.map(|_| {
                let tokens = item.pair.and_then(|pair| self.transcript.items.get(pair));
                let tokens = tokens.map_or(0, |result| result.tokens);
                let id = format!("{}:{}", item.name, item.no);
                let text = stub::result(&id, tokens, mark, kept, &text);
                Note {
                    tokens: reader.count(&text),
                    text: text.into(),
                }
            });
            let trimmed = kept.trimmed.as_ref();
            let short = trimmed.and_then(|index| stub::trimmed(&arguments(), index));
            Left {
                result,
                arguments: short.map(|text| Note {
                    tokens: reader.call(&item.name, &text),
                    text: text.into(),
                }),
                names: None,
            }
        })
    }

    fn measured<T>(
        &self,
        reader: Reader<'_>,
        ceiling: u64,
        run: impl FnOnce(Measure<'_>) -> T,
    ) -> T {
        let count = |text: &str| reader.remembered(text);
        let left = |call: usize, mark: Mark, kept: &Kept| self.left(reader, call, mark, kept);
        run(Measure {
            count: &count,
            ceiling: u32::try_from(ceiling).unwrap(),
            left: &left,
            recall: None,
        })
    }

    /// What each request makes, whether a pass follows or not.
    fn size(&self, reader: Reader<'_>, ceiling: u64) -> u64 {
        self.measured(reader, ceiling, |measure| {
            let notes = view::notes(&self.transcript, &self.marks, measure);
            view::sizes(&self.transcript, &self.marks, &notes).1
        })
    }

    /// Reads what the requests before this one brought, as each of them did.
    fn read_ahead(&self, reader: Reader<'_>) {
        let mut entries = self.transcript.entries.iter();
        let newest = entries.rfind(|entry| entry.role == Role::Assistant);
        for index in 0..newest.map_or(0, |entry| entry.items.start) {
            let _ = self.words(reader, Read::Original(index));
        }
    }

    fn pass(&self, reader: Reader<'_>, order: Order, target: Target) -> Proposal {
        let config = Config {
            order,
            ..Config::default()
        };
        self.measured(reader, target.ceiling, |measure| {
            let ask = Ask {
                transcript: &self.transcript,
                marks: &self.marks,
                config: &config,
                measure,
                target,
                originals: &|item| self.original(item),
                words: &|read| self.words(reader, read),
            };
            policy::propose(Policy::Cwl, &ask).unwrap()
        })
    }
}

fn target(ceiling: u64) -> Target {
    Target {
        fixed: 0,
        ceiling,
        floor: ceiling * 7 / 10,
    }
}

/// Times of several rounds, of which each begins with a memo of its own that `warm` has filled.
fn timed(counter: &Counter, warm: impl Fn(Reader<'_>), run: impl Fn(Reader<'_>)) -> String {
    let times = (0..ROUNDS).map(|_| {
        let memo = Memo::default();
        let reader = memo.reader(counter, Encoding::O200k, TENANT, Dialect::Chat);
        warm(reader);
        let begun = Instant::now();
        run(reader);
        begun.elapsed()
    });
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = |part: usize| times.get(part).copied().unwrap_or_default().as_secs_f64() * 1e3;
    format!("{:.2} ms ({:.2} at best)", at(ROUNDS / 2), at(0))
}

const TENANT: TenantId = TenantId(Digest([7; 32]));

fn main() {
    let counter = Counter::load();
    let memo = Memo::default();
    let reader = memo.reader(&counter, Encoding::O200k, TENANT, Dialect::Chat);
    for (name, annotated) in [
        ("annotated", Annotated::Well),
        ("unannotated", Annotated::Never),
        ("one open episode", Annotated::Open),
    ] {
        let session = session(annotated, reader);
        let bytes: usize = session.messages.iter().map(Vec::len).sum();
        let (transcript, _) = session.transcript(ITEMS / 4);
        println!(
            "{name}: {} items, {} episodes, {} KB",
            transcript.items.len(),
            transcript.graph.episodes.len(),
            bytes / 1000
        );
        let only = std::env::args().skip(1).find(|only| !only.starts_with('-'));
        for ceiling in [80_000, 200_000] {
            for order in [Order::Paper, Order::Levels] {
                let this = format!("{name} {order:?} {ceiling}");
                if only.as_ref().is_some_and(|only| this != *only) {
                    continue;
                }
                grown(&counter, &session, order, ceiling);
            }
        }
        for order in [Order::Paper, Order::Levels] {
            let this = format!("{name} {order:?} first");
            if only.as_ref().is_some_and(|only| this != *only) {
                continue;
            }
            first(&counter, &session, order);
        }
    }
}

/// The newest pass of a session that grew under the proxy.
fn grown(counter: &Counter, session: &Session, order: Order, ceiling: u64) {
    let memo = Memo::default();
    let reader = memo.reader(counter, Encoding::O200k, TENANT, Dialect::Chat);
    let mut marks = Marks::default();
    let mut passes: Vec<Request<'_>> = Vec::new();
    for turns in (STEP..=session.turns.len()).step_by(STEP) {
        let (transcript, _) = session.transcript(turns);
        let request = Request {
            session,
            transcript,
            marks: marks.clone(),
            decoded: Decoded::default(),
        };
        if request.size(reader, ceiling) > ceiling {
            let proposal = request.pass(reader, order, target(ceiling));
            marks.apply(proposal.plan.moves(), proposal.plan.kept());
            passes.push(request);
        }
    }
    let [.., before, newest] = passes.as_slice() else {
        return;
    };
    // What the passes so far left in the memo, then the request that the pass is for.
    let warm = |reader: Reader<'_>| {
        before.size(reader, ceiling);
        before.pass(reader, order, target(ceiling));
        newest.size(reader, ceiling);
        if order == Order::Levels {
            newest.read_ahead(reader);
        }
    };
    let passing = timed(counter, warm, |reader| {
        black_box(newest.pass(reader, order, target(ceiling)));
    });
    let proposal = newest.pass(reader, order, target(ceiling));
    println!(
        "  {order:?}, pass {} at {}k, {} items: {passing} (goal 2 ms), {} marks moved, {} of {} tokens left",
        passes.len(),
        ceiling / 1000,
        newest.transcript.items.len(),
        proposal.plan.moves().len(),
        proposal.size,
        newest.size(reader, ceiling),
    );
    let viewing = timed(counter, warm, |reader| {
        black_box(newest.size(reader, ceiling));
    });
    let (texts, bytes) = memo.read();
    println!(
        "    the view alone: {viewing}; {texts} texts read so far, remembered at {} bytes each",
        bytes / (texts as u64).max(1)
    );
}

/// The first pass over a session of which the proxy knows nothing, and the same once it has read it.
fn first(counter: &Counter, session: &Session, order: Order) {
    let (transcript, _) = session.transcript(session.turns.len());
    let marks = Marks::default();
    let request = Request {
        session,
        transcript,
        marks,
        decoded: Decoded::default(),
    };
    let memo = Memo::default();
    let reader = memo.reader(counter, Encoding::O200k, TENANT, Dialect::Chat);
    let size = request.size(reader, u64::from(u32::MAX));
    let target = target(size - 1);
    let least = Target {
        floor: size - 1,
        ..target
    };
    let pass = |reader: Reader<'_>, target| drop(black_box(request.pass(reader, order, target)));
    let cold = timed(counter, |_| (), |reader| pass(reader, target));
    let warm = timed(
        counter,
        |reader| pass(reader, least),
        |reader| pass(reader, target),
    );
    let proposal = request.pass(reader, order, target);
    println!(
        "  {order:?}, first pass over {size} tokens: {cold}, with texts known {warm}, {} marks moved",
        proposal.plan.moves().len()
    );
}
