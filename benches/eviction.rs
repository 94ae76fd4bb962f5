//! What a pass costs over sessions of 10,000 items: building the transcript, sizing its view, and
//! evicting from the ceiling down to seven tenths of it. Prints times with the goal; it never
//! fails on time, because machines differ.
//!
//! `cargo bench --bench eviction`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::model::{
    CallId, CallShape, Digest, Effect, EpisodeKind, Handed, Hidden, HiddenCall, Hop, ItemKind,
    Kept, Mark, Marks, Parent, RecordId, Role, Shape, ToolClass, TurnRecord,
};
use plimsoll::policy::{self, Ask, Config, Order, Policy, Proposal, Target};
use plimsoll::session::path::Path;
use plimsoll::session::stub;
use plimsoll::session::transcript::{self, Transcript};
use plimsoll::session::view::{self, Left, Measure, Note};
use plimsoll::tokens::{Counter, Encoding};

/// Items of each session.
const ITEMS: usize = 10_000;
const ROUNDS: usize = 31;
/// Turns of an episode.
const EPISODE: usize = 8;

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
    shapes: Vec<Arc<Shape>>,
    path: Path,
}

fn shape(role: Role, text: u32, number: usize) -> Shape {
    Shape {
        role,
        canonical: Digest::of(&[&number.to_le_bytes()]),
        calls: Vec::new(),
        result_of: None,
        text,
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

fn session(annotated: Annotated) -> Session {
    let mut shapes = vec![
        Arc::new(shape(Role::System, 2000, 0)),
        Arc::new(shape(Role::User, 500, 1)),
    ];
    let mut path = Path::default();
    // Reasoning, text, a call and its result a turn.
    for turn in 0..ITEMS / 4 {
        let id = CallId(format!("call-{turn}"));
        let tool = ["grep", "read", "bash", "edit"].get(turn % 4).copied();
        let call = CallShape {
            id: id.clone(),
            name: tool.unwrap_or_default().to_owned(),
            tokens: 30,
            digest: 0,
        };
        let mut spoken = shape(Role::Assistant, 20, turn + 2);
        (spoken.reasoning, spoken.calls) = (60, vec![call]);
        let record = TurnRecord {
            parent: Parent::Root,
            turn: u32::try_from(turn + 1).unwrap(),
            position: u32::try_from(shapes.len()).unwrap(),
            base: path.next,
            first_item: path.next + if turn == 0 { 2 } else { 0 },
            hops: vec![Hop {
                calls: hidden_calls(annotated, turn),
                ..Hop::default()
            }],
            handed: String::new(),
            visible: spoken.canonical,
            trimmed: spoken.canonical,
            calls: vec![(id.clone(), tool.unwrap_or_default().to_owned())],
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
        path.push(RecordId(spoken.canonical), Arc::new(record));
        shapes.push(Arc::new(spoken));
        let mut result = shape(Role::Tool, 400, turn);
        result.result_of = Some(id);
        shapes.push(Arc::new(result));
    }
    Session { shapes, path }
}

fn build(session: &Session) -> Transcript {
    transcript::build(&transcript::Input {
        shapes: &session.shapes,
        path: &session.path,
        pending: &[],
        handed: &|_, _| Handed::Nothing,
        class: &|name| match name {
            "grep" => ToolClass::Bulk,
            "read" => ToolClass::Read,
            "bash" => ToolClass::Shell,
            _ => ToolClass::Write,
        },
        implicit_tokens: 8000,
    })
}

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().unwrap_or_default()
}

fn main() {
    let counter = Counter::load();
    let count = |text: &str| counter.count(Encoding::O200k, text);
    for (name, annotated) in [
        ("annotated", Annotated::Well),
        ("unannotated", Annotated::Never),
        ("one open episode", Annotated::Open),
    ] {
        report(name, &session(annotated), &count);
    }
}

fn report(name: &str, session: &Session, count: &dyn Fn(&str) -> u32) {
    let transcript = build(session);
    let (_, size) = view::sizes(&transcript, &Marks::default(), &view::Notes::default());
    println!(
        "{name}: {} items, {} episodes, {size} tokens",
        transcript.items.len(),
        transcript.graph.episodes.len()
    );
    let building = median(|| {
        black_box(build(session));
    });
    println!("  build the transcript: {}", ms(building));
    // From just over the ceiling to 0.7 of it, as a pass does; and to a twentieth, as the first
    // pass over a session that grew elsewhere does.
    for (what, ceiling, floor) in [
        ("pass to 0.7", size - 1, size * 7 / 10),
        ("pass to 0.05", size / 10, size / 20),
    ] {
        for order in [Order::Paper, Order::Levels] {
            let target = Target {
                fixed: 0,
                ceiling,
                floor,
            };
            pass(
                &format!("{what}, {order:?}"),
                &transcript,
                order,
                target,
                count,
            );
        }
    }
}

fn pass(
    what: &str,
    transcript: &Transcript,
    order: Order,
    target: Target,
    count: &dyn Fn(&str) -> u32,
) {
    let originals = |item: usize| original(transcript, item);
    let left = |call: usize, mark: Mark, kept: &Kept| left(transcript, call, mark, kept, count);
    let measure = Measure {
        count,
        ceiling: u32::try_from(target.ceiling).unwrap(),
        left: &left,
        recall: None,
    };
    let config = Config {
        order,
        ..Config::default()
    };
    let unmarked = Marks::default();
    let ask = Ask {
        transcript,
        marks: &unmarked,
        config: &config,
        measure,
        target,
        originals: &originals,
    };
    let propose = || -> Proposal { policy::propose(Policy::Cwl, &ask).unwrap() };
    let passing = median(|| {
        black_box(propose());
    });
    let proposal = propose();
    let mut marks = Marks::default();
    marks.apply(proposal.plan.moves(), proposal.plan.kept());
    println!(
        "  {what}: {} (goal 2 ms), {} marks moved, {} tokens left",
        ms(passing),
        proposal.plan.moves().len(),
        proposal.size
    );
    let viewing = median(|| {
        let notes = view::notes(transcript, &marks, measure);
        black_box(view::sizes(transcript, &marks, &notes));
    });
    println!("  view after it: {}", ms(viewing));
}

/// The text of a result: lines of code with names of their own, 400 tokens.
fn original(transcript: &Transcript, item: usize) -> Option<Cow<'static, str>> {
    let result = transcript.items.get(item)?.kind == ItemKind::Result;
    let line = |at: usize| format!("    let value_{item}_{at} = read_config(path)?;\n");
    result.then(|| Cow::Owned((0..33).map(line).collect()))
}

fn left(
    transcript: &Transcript,
    call: usize,
    mark: Mark,
    kept: &Kept,
    count: &dyn Fn(&str) -> u32,
) -> Left {
    let original = transcript
        .items
        .get(call)
        .and_then(|item| item.pair)
        .and_then(|pair| original(transcript, pair));
    let text = stub::result("read:1", 400, mark, kept, &original.unwrap_or_default());
    Left {
        result: Some(Note {
            tokens: count(&text),
            text: text.into(),
        }),
        ..Left::default()
    }
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
