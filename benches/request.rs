//! What a request costs before it is sent, as ratios measured in one run: reading it against a
//! bare syntax walk, and the whole middle over a cached history against reading it.
//!
//! `cargo bench --bench request`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_core::session::chain::{self, RecordKey};
use plimsoll_core::session::path::Path;
use plimsoll_core::turn::memo::Memo;
use plimsoll_core::turn::needed;
use plimsoll_core::turn::state::{HopContext, Prepared, TurnState};
use plimsoll_core::turn::{Classes, Overrides, Settings, Terms, ToolClasses};
use plimsoll_model::{
    Digest, ItemNo, RecordId, Role, Rope, Scope, StoredHop, StoredMark, TenantId, TurnRecord,
};
use plimsoll_proxy::pipeline::find::{self, Paths, remembered};
use plimsoll_tokens::{Counter, Family};
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Call};
use serde::de::IgnoredAny;
use serde_json::json;
use twox_hash::XxHash3_128;

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TENANT: TenantId = TenantId(Digest([7; 32]));

/// A conversation of so many messages and about so many bytes, half of them tool results.
fn body(messages: usize, bytes: usize) -> Bytes {
    let line = "src/pipeline/open.rs:120: let state = locate_state(app, &place, request)?;\\n";
    let result = line.repeat((bytes * 2 / messages).div_ceil(line.len()));
    let mut list = vec![json!({"role": "system", "content": "be brief"})];
    list.push(json!({"role": "user", "content": "go on"}));
    for turn in 0..(messages - 2) / 2 {
        let id = format!("call_{turn:06}");
        let arguments = json!({"command": format!("sed -n {turn}p notes.txt")}).to_string();
        let function = json!({"name": "bash", "arguments": arguments});
        list.push(json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": function}]}));
        list.push(
            json!({"role": "tool", "tool_call_id": id, "content": format!("value_{turn:06}\n{result}")}),
        );
    }
    let tools = json!([{"type": "function", "function": {"name": "bash", "parameters": {}}}]);
    Bytes::from(json!({"model": "gpt-4o", "messages": list, "tools": tools}).to_string())
}

/// What a pass moved before a turn: all at once, once they are all there. Of each turn the third item is the call.
fn marks(turn: usize, evicted: u32) -> Vec<(ItemNo, StoredMark)> {
    if evicted == 0 || turn != evicted as usize + 10 {
        return Vec::new();
    }
    let call = |turn: u32| (ItemNo(2 + turn * 3 + 2), StoredMark::Removed);
    (0..evicted).map(call).collect()
}

/// An answer with a call that uses a string which has left with others.
fn answer(string: &str) -> Answer {
    let arguments = json!({"command": format!("grep -n {string} .")});
    Answer {
        calls: vec![Call {
            id: "call".to_owned(),
            name: "bash".to_owned(),
            arguments: arguments.to_string(),
            kind: "function".to_owned(),
            extra: Vec::new(),
            hidden: false,
            complete: true,
        }],
        ..Answer::default()
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Medians of several things run in turn, so that the machine's drift hits all alike.
fn interleaved(rounds: usize, runs: &mut [&mut dyn FnMut()]) -> Vec<Duration> {
    let mut times = vec![Vec::new(); runs.len()];
    for round in 0..rounds + 3 {
        for (run, times) in runs.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            run();
            if round >= 3 {
                times.push(begun.elapsed());
            }
        }
    }
    times.into_iter().map(median).collect()
}

/// The middle of the pipeline over one memory, memo and counter.
struct Middle {
    memo: Memo,
    counter: Counter,
    classes: Classes,
    settings: Settings,
    family: Family,
    paths: Paths,
}

impl Middle {
    fn new() -> Self {
        let mut settings = Settings::default();
        // High enough that nothing is evicted: the history is read, found and rendered whole.
        settings.budget.ceiling = 100_000_000;
        Self {
            memo: Memo::default(),
            counter: Counter::load(),
            classes: Classes::new(&ToolClasses::default()).unwrap(),
            settings,
            family: Family::default(),
            paths: Paths::default(),
        }
    }

    fn run(&self, body: &Bytes) -> Rope {
        self.hop(body, |_, prepared, _| prepared.body)
    }

    /// Prepares a hop over the history that is remembered, and gives it away.
    fn hop<T>(
        &self,
        body: &Bytes,
        to: impl FnOnce(&TurnState, Prepared, &HopContext<'_>) -> T,
    ) -> T {
        let scope = Scope::default();
        let request = Dialect::Chat.decode(body.clone()).unwrap();
        let reader = self
            .memo
            .reader(&self.counter, self.family.encoding, TENANT, Dialect::Chat);
        let shapes: Vec<_> = (0..request.messages.len())
            .map(|at| reader.shape(request.message(at)).unwrap())
            .collect();
        let heads = chain::heads(TENANT, &shapes);
        let path = remembered(
            &self.paths,
            &find::PathQuery {
                tenant: TENANT,
                scope: &scope,
                shapes: &shapes,
                heads: &heads,
                text: &|_| None,
            },
        );
        let path = path.unwrap();
        assert!(!path.entries.is_empty(), "the path must come from memory");
        let terms = Terms::of(&self.settings, &Overrides::default(), None, "").unwrap();
        let mut state = TurnState::new(request, shapes, heads, path, terms, &reader);
        let tools = HopContext {
            reader,
            classes: &self.classes,
            family: &self.family,
            now: 0,
        };
        state.inject(&tools).unwrap();
        let prepared = state.prepare(&tools, None).unwrap();
        to(&state, prepared, &tools)
    }

    /// Remembers a path with a record for each assistant message, as a long session has one. A pass has evicted so many
    /// of its first calls.
    fn warm(&self, body: &Bytes, evicted: u32) {
        let request = Dialect::Chat.decode(body.clone()).unwrap();
        let reader = self
            .memo
            .reader(&self.counter, self.family.encoding, TENANT, Dialect::Chat);
        let shapes: Vec<_> = (0..request.messages.len())
            .map(|at| reader.shape(request.message(at)).unwrap())
            .collect();
        let heads = chain::heads(TENANT, &shapes);
        let mut path = Path::default();
        for (at, shape) in shapes
            .iter()
            .enumerate()
            .filter(|(_, s)| s.role == Role::Assistant)
        {
            let record = TurnRecord {
                turn: path.next_turn(),
                position: u32::try_from(at).unwrap(),
                base: path.next,
                first_item: path.next.plus(u32::from(path.entries.is_empty()) * 2),
                hops: vec![StoredHop {
                    estimate: 1000,
                    marks: marks(path.entries.len(), evicted),
                    ..StoredHop::default()
                }],
                visible: shape.canonical,
                calls: shape
                    .calls
                    .iter()
                    .map(|c| (c.id.clone(), c.name.clone()))
                    .collect(),
                tooled: true,
                injected: Some("delimiter".to_owned()),
                model: "gpt-4o".to_owned(),
                ..TurnRecord::default()
            };
            path.push(RecordId(shape.canonical), Arc::new(record));
        }
        let last = path.covered();
        let key = RecordKey::After(*heads.get(last).unwrap()).digest(TENANT, &Scope::default());
        self.paths.insert(key, &Arc::new(path));
    }
}

fn main() {
    let middle = Middle::new();
    for (name, messages, bytes) in [
        ("1 MB, 300 messages", 300, 1 << 20),
        ("8 MB, 2,000 messages", 2000, 8 << 20),
    ] {
        let body = body(messages, bytes);
        middle.warm(&body, 0);
        let [walk, read, whole] = interleaved(
            60,
            &mut [
                &mut || {
                    black_box(serde_json::from_slice::<IgnoredAny>(&body).unwrap());
                },
                &mut || {
                    let request = Dialect::Chat.decode(body.clone()).unwrap();
                    for at in 0..request.messages.len() {
                        black_box(XxHash3_128::oneshot_with_seed(7, request.message(at)));
                    }
                },
                &mut || {
                    black_box(middle.run(&body));
                },
            ],
        )[..] else {
            return;
        };
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        println!("{name} ({} bytes):", body.len());
        println!("  syntax walk                 {walk:?}");
        println!(
            "  parse + split + hash        {read:?}  ratio {:.2} to the walk (goal 1.3)",
            ratio(read, walk)
        );
        println!(
            "  middle over cached history  {whole:?}  ratio {:.2} to parse + split + hash (goal 1.5), {:.2} to the walk",
            ratio(whole, read),
            ratio(whole, walk)
        );
        println!(
            "  middle, per message         {:?}",
            whole / u32::try_from(messages).unwrap_or(1)
        );
        let evicted = u32::try_from(messages / 4).unwrap_or(1);
        middle.warm(&body, evicted);
        // One string stands in view all the same. For the other all of the view is looked through.
        let judged = middle.hop(&body, |state, prepared, tools| {
            ["src/pipeline/open.rs", "value_000003"].map(|string| {
                let answer = answer(string);
                let (reader, classes) = (tools.reader, tools.classes);
                let judge = || needed::judge(state, &prepared, (&answer, &[]), reader, classes);
                let needed = judge().needed;
                assert_eq!(needed.held + needed.missed, 1, "{string}: {needed:?}");
                let times = interleaved(
                    1_000,
                    &mut [&mut || {
                        black_box(judge());
                    }],
                );
                times.first().copied().unwrap_or_default()
            })
        });
        let [held, missed] = judged;
        println!(
            "  judging the view by an answer, {evicted} calls evicted: a string held {held:?}, missed {missed:?} (goal 50 µs)"
        );
    }
}
