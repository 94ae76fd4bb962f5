//! What a pass costs in sessions of 10,000 items with text as agents have it. A session grows under
//! the proxy pass by pass, and the newest pass is timed with what a running proxy remembers by then:
//! the passes before it and the requests since. Beside it, as the far end, a first pass over a
//! session that grew elsewhere. Prints times with the goal; it never fails on time, because machines
//! differ.
//!
//! `cargo bench --bench eviction`

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::unwrap_used, reason = "a bench may stop at once")]

mod session;

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_core::policy::{
    self, EvictionSettings, Order, Policy, PolicyAsk, Proposal, Target, Text,
};
use plimsoll_core::session::index::{ItemIndex, indices};
use plimsoll_core::session::measure::Measure;
use plimsoll_core::session::note::{Left, Note};
use plimsoll_core::session::stub;
use plimsoll_core::session::transcript::{Source, Transcript};
use plimsoll_core::session::view::{Notes, View};
use plimsoll_core::turn::memo::{Decoded, Memo, Reader};
use plimsoll_model::{Digest, ItemKind, Kept, Mark, Marks, Role, TenantId, Words};
use plimsoll_tokens::{Counter, Encoding};
use plimsoll_wire::Dialect;
use plimsoll_wire::chat::original;

use session::{Annotated, ITEMS, Session};

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 21;
/// Turns between two looks at the size of a session that grows.
const STEP: usize = 3;

/// The middle's view of a session at one request.
struct Request<'a> {
    session: &'a Session,
    transcript: Arc<Transcript>,
    marks: Arc<Marks>,
    decoded: Decoded<'a>,
}

impl<'a> Request<'a> {
    fn message(&self, item: ItemIndex) -> Option<usize> {
        let item = self.transcript.items.get(item)?;
        match self.transcript.entries.get(item.entry)?.source {
            Source::Client(message) | Source::LastHop { message, .. } => Some(message),
            Source::Hop { .. } | Source::HiddenResult { .. } | Source::Guidance => None,
        }
    }

    /// The original text of an item, read as the pipeline reads it.
    fn original(&self, index: ItemIndex) -> Option<Text<'a>> {
        self.decoded.text(index, || self.decode(index))
    }

    fn decode(&self, index: ItemIndex) -> Option<Cow<'a, str>> {
        let item = self.transcript.items.get(index)?;
        let message = self.session.messages.get(self.message(index)?)?;
        match item.kind {
            ItemKind::Reasoning => None,
            ItemKind::Call if item.hidden => None,
            ItemKind::Call => original::arguments(original::calls(message).first()?),
            ItemKind::System
            | ItemKind::User
            | ItemKind::Text
            | ItemKind::Result
            | ItemKind::Opaque => original::text(message),
        }
    }

    fn digest(&self, item: ItemIndex) -> Option<Digest> {
        let shape = self.session.shapes.get(self.message(item)?)?;
        Some(shape.canonical)
    }

    /// The strings of a text, remembered as the pipeline remembers them.
    fn words(&self, reader: Reader<'_>, index: ItemIndex) -> Option<Arc<Words>> {
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
                ItemKind::Call => stub::words(&text),
                _ => Words::of(&text),
            })
        })
    }

    /// What is left of a call, remembered as the pipeline remembers it.
    fn left(&self, reader: Reader<'_>, call: ItemIndex, mark: Mark, kept: &Kept) -> Left {
        let item = self.transcript.items.get(call).unwrap();
        let digests = (self.digest(call), item.pair.and_then(|at| self.digest(at)));
        let key = ((item.no, &*item.name, mark as u8), digests, call, kept);
        reader.left(&key, || {
            let arguments = || self.original(call).unwrap_or_default();
            let pair = item.pair.filter(|_| !kept.lines.is_empty());
            let text = pair.and_then(|pair| self.original(pair));
            let text = text.unwrap_or_default();
            let result = kept.of.map(|_| {
                let tokens = item.pair.and_then(|pair| self.transcript.items.get(pair));
                let tokens = tokens.map_or(0, |result| result.tokens);
                let id = format!("{}:{}", item.name, item.no);
                let text = stub::result(&id, tokens, mark, kept, &text);
                let size = reader.count(&text);
                Note::new(text, size)
            });
            let short = kept.trimmed.then(|| stub::trimmed(&arguments())).flatten();
            Left {
                result,
                arguments: short.map(|text| {
                    let size = reader.call(&item.name, &text);
                    Note::new(text, size)
                }),
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
        let left = |call: ItemIndex, mark: Mark, kept: &Kept| self.left(reader, call, mark, kept);
        run(Measure {
            count: &count,
            note: &|text| reader.note(text),
            ceiling: u32::try_from(ceiling).unwrap(),
            left: &left,
            recall: None,
        })
    }

    /// The notes and the sizes of the view.
    fn view(&self, reader: Reader<'_>, ceiling: u64) -> View {
        self.measured(reader, ceiling, |measure| {
            View::new(self.transcript.clone(), self.marks.clone(), measure)
        })
    }

    fn size(&self, reader: Reader<'_>, ceiling: u64) -> u64 {
        self.view(reader, ceiling).size()
    }

    /// Reads what the requests before this one brought, as each of them did.
    fn read_ahead(&self, reader: Reader<'_>, notes: &Notes) {
        for note in notes.results.values().chain(notes.arguments.values()) {
            let _ = note.words();
        }
        let mut entries = self.transcript.entries.iter();
        let newest = entries.rfind(|entry| entry.role == Role::Assistant);
        let end = newest.map_or(ItemIndex(0), |entry| entry.items.start);
        for index in indices(ItemIndex(0)..end) {
            let _ = self.words(reader, index);
        }
    }

    fn pass(&self, reader: Reader<'_>, view: &View, order: Order, target: Target) -> Proposal {
        let config = EvictionSettings {
            order,
            ..EvictionSettings::default()
        };
        self.measured(reader, target.ceiling, |measure| {
            let ask = PolicyAsk {
                view,
                config: &config,
                measure,
                target,
                originals: &|item| self.original(item),
                words: &|item| self.words(reader, item),
            };
            policy::propose(Policy::Cwl, &ask)
        })
    }
}

fn target(ceiling: u64) -> Target {
    Target {
        fixed: 0,
        ceiling,
        floor: ceiling * 7 / 10,
        window: None,
    }
}

/// Times of several rounds, of which each begins with a memo of its own that `warm` has filled.
/// `run` gets what `warm` made.
fn timed<T>(
    counter: &Counter,
    warm: impl Fn(Reader<'_>) -> T,
    run: impl Fn(Reader<'_>, &T),
) -> String {
    let times = (0..ROUNDS).map(|_| {
        let memo = Memo::default();
        let reader = memo.reader(counter, Encoding::O200k, TENANT, Dialect::Chat);
        let made = warm(reader);
        let begun = Instant::now();
        run(reader, &made);
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
        let session = session::session(annotated, reader);
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
            transcript: Arc::new(transcript),
            marks: Arc::new(marks.clone()),
            decoded: Decoded::default(),
        };
        let view = request.view(reader, ceiling);
        if view.size() > ceiling {
            let proposal = request.pass(reader, &view, order, target(ceiling));
            marks.apply(proposal.plan.moves(), proposal.plan.kept());
            passes.push(request);
        }
    }
    let [.., before, newest] = passes.as_slice() else {
        return;
    };
    // What the passes so far left in the memo, then the request that the pass is for.
    let warm = |reader: Reader<'_>| {
        let view = before.view(reader, ceiling);
        before.pass(reader, &view, order, target(ceiling));
        let view = newest.view(reader, ceiling);
        if order == Order::Levels {
            newest.read_ahead(reader, view.notes());
        }
        view
    };
    let passing = timed(counter, warm, |reader, view| {
        black_box(newest.pass(reader, view, order, target(ceiling)));
    });
    let view = newest.view(reader, ceiling);
    let proposal = newest.pass(reader, &view, order, target(ceiling));
    println!(
        "  {order:?}, pass {} at {}k, {} items: {passing} (goal 2 ms), {} marks moved, {} of {} tokens left",
        passes.len(),
        ceiling / 1000,
        newest.transcript.items.len(),
        proposal.plan.moves().len(),
        proposal.size,
        newest.size(reader, ceiling),
    );
    let viewing = timed(counter, warm, |reader, _| {
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
    let request = Request {
        session,
        transcript: Arc::new(transcript),
        marks: Arc::default(),
        decoded: Decoded::default(),
    };
    let memo = Memo::default();
    let reader = memo.reader(counter, Encoding::O200k, TENANT, Dialect::Chat);
    let view = request.view(reader, u64::from(u32::MAX));
    let size = view.size();
    let target = target(size - 1);
    let least = Target {
        floor: size - 1,
        ..target
    };
    let pass = |reader: Reader<'_>, target| {
        black_box(request.pass(reader, &view, order, target));
    };
    let cold = timed(counter, |_| (), |reader, ()| pass(reader, target));
    let warm = timed(
        counter,
        |reader| pass(reader, least),
        |reader, ()| pass(reader, target),
    );
    let proposal = request.pass(reader, &view, order, target);
    println!(
        "  {order:?}, first pass over {size} tokens: {cold}, with texts known {warm}, {} marks moved",
        proposal.plan.moves().len()
    );
}
