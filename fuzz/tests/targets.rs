//! What reads foreign bytes, and what must hold of it whatever they are: nothing panics, nothing
//! grows beyond its input, what is left alone keeps its bytes, and where reads are cut shows
//! nowhere. Each target first plays its corpus as it is, then spoilt.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed; helpers are no exception"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use plimsoll_core::session::chain;
use plimsoll_core::turn::memo::Memo;
use plimsoll_core::turn::state::{HopContext, TurnState};
use plimsoll_core::turn::{Classes, MIN_CEILING, Overrides, Settings, Terms, ToolClasses};
use plimsoll_fuzz::{Corpus, Spoilt};
use plimsoll_model::raw::{self, Object};
use plimsoll_model::{Digest, Snapshot, TenantId, TurnRecord, blob_id};
use plimsoll_store::Seals;
use plimsoll_store::codec::{self, Encoder};
use plimsoll_tokens::{Counter, Family};
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Verdict};
use plimsoll_wire::names::Names;
use plimsoll_wire::request::{Request, Rewrite};
use plimsoll_wire::sse::{EVENT_CAP, Splitter};
use plimsoll_wire::stream::unary::{self, TurnEnd, Unstreamed};
use plimsoll_wire::stream::{
    Echo, Machine, MachineSettings, Spec, StreamError, UsageMode, UsageWish, WhoAsked,
};

/// Holds a law on each message of a corpus, cut at every place, and on spoilt ones. What breaks it
/// is shown in full: put it into the corpus once it is mended.
fn hold(folders: &[&str], law: impl Fn(&[u8], [usize; 2]) + std::panic::RefUnwindSafe) {
    let corpus = Corpus::read(folders).unwrap();
    for (path, message) in corpus.messages() {
        for at in (0..=message.len()).step_by(message.len() / 64 + 1) {
            show(&path.display().to_string(), message, || {
                law(message, [at, message.len()]);
            });
        }
    }
    bolero::check!()
        .with_type::<Spoilt>()
        .for_each(|spoilt: &Spoilt| {
            let message = spoilt.of(&corpus);
            show("spoilt", &message, || {
                law(&message, spoilt.cuts(message.len()));
            });
        });
}

fn show(name: &str, message: &[u8], law: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(law)) {
        let why = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("?");
        panic!("{name}: {why}\nof b\"{}\"", message.escape_ascii());
    }
}

/// The reads that a message comes in: whole, byte by byte, and cut at two places.
fn reads(message: &[u8], [first, second]: [usize; 2]) -> [Vec<Bytes>; 3] {
    let all = Bytes::copy_from_slice(message);
    let cut = vec![
        all.slice(..first),
        all.slice(first..second),
        all.slice(second..),
    ];
    let bytes = message.chunks(1).map(Bytes::copy_from_slice).collect();
    [vec![all], bytes, cut]
}

#[test]
fn raw() {
    hold(&["chat", "responses", "messages"], |bytes, _| {
        let json = raw::is_json(bytes);
        if let Ok(spans) = raw::array(bytes) {
            assert!(json, "an array of no JSON");
            let elements = spans.iter().all(|span| raw::is_json(&bytes[span.clone()]));
            assert!(elements, "an element is no JSON");
        }
        let Ok(object) = Object::parse(bytes) else {
            return;
        };
        assert!(json, "an object of no JSON");
        assert_eq!(raw::splice(bytes, &[]), bytes);
        for member in object.members() {
            assert!(raw::is_json(&bytes[member.value.clone()]), "{member:?}");
            assert!(member.span.start < member.value.start && member.span.end == member.value.end);
            let same = (
                member.value.clone(),
                Bytes::copy_from_slice(&bytes[member.value.clone()]),
            );
            assert_eq!(raw::splice(bytes, &[same]), bytes);
        }
        // Setting a member puts it in, and leaves the others as they were.
        let edited = raw::splice(bytes, &[object.set("fuzzed", b"[1]")]);
        let after = Object::parse(&edited).unwrap();
        assert_eq!(after.raw("fuzzed"), Some(&b"[1]"[..]));
        let values = |of: &Object<'_>| -> Vec<Vec<u8>> {
            let others = of.members().iter().filter(|member| member.key != "fuzzed");
            let value = others.map(|member| of.bytes()[member.value.clone()].to_vec());
            value.collect()
        };
        assert_eq!(values(&after), values(&object));
    });
}

#[test]
fn quoted() {
    hold(&["chat", "responses", "messages"], |bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        let quoted = raw::quote(&text);
        assert_eq!(raw::string(quoted.as_bytes()).as_deref(), Some(&*text));
        let _any = raw::unescape(bytes);
        let _mended = raw::mended(bytes);
    });
}

/// The frames of a stream, and what stands behind the last.
fn frames(reads: Vec<Bytes>) -> Vec<Bytes> {
    let mut splitter = Splitter::new(EVENT_CAP);
    let mut found = Vec::new();
    for read in reads {
        splitter.push(read);
        while let Some(frame) = splitter.next_frame().unwrap() {
            assert!(frame.is_whole());
            found.push(frame.into_raw());
        }
    }
    found.extend(splitter.finish().map(|frame| frame.into_raw()));
    found
}

#[test]
fn sse() {
    hold(&["stream"], |bytes, cuts| {
        let [whole, single, cut] = reads(bytes, cuts).map(frames);
        assert_eq!(whole.concat(), bytes, "bytes were lost");
        assert_eq!(single, whole, "byte by byte");
        assert_eq!(cut, whole, "cut at {cuts:?}");
    });
}

fn decoded(dialect: Dialect, bytes: &[u8]) {
    let Ok(request) = dialect.decode(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    assert_eq!(request.body, bytes);
    let mut splice = request.splice();
    for unit in 0..request.messages.len() {
        splice.client(unit);
        let message = request.message(unit);
        if let Ok(parsed) = dialect.parse(message) {
            let _named = parsed.named();
            let _digest = parsed.canonical;
        }
        let _texts = (
            dialect.text(message),
            dialect.reasoning(message),
            dialect.items(message),
            dialect.assistant_text(message),
        );
    }
    let rewrite = Rewrite {
        view: splice.close(),
        tools: request.tools_bytes().map(|_| Bytes::new()),
        ask_usage: false,
        compared: None,
        later: None,
    };
    let rendered = request.with(rewrite).to_bytes();
    assert!(
        rendered == bytes,
        "an unchanged request has other bytes:\n{}",
        rendered.escape_ascii()
    );
    drop(splice);
    viewed(request);
}

/// Makes the view of a conversation that is met for the first time, under a budget that it hardly keeps. Each message of
/// it takes as much as the view says.
fn viewed(request: Request) {
    static KNOWN: LazyLock<(Counter, Memo, Classes)> = LazyLock::new(|| {
        (
            Counter::load(),
            Memo::default(),
            Classes::new(&ToolClasses::default()).unwrap(),
        )
    });
    const TENANT: TenantId = TenantId(Digest([1; 32]));
    let (counter, memo, classes) = &*KNOWN;
    let family = Family::default();
    let reader = memo.reader(counter, family.encoding, TENANT, request.dialect);
    let shapes = (0..request.messages.len()).map(|at| reader.shape(request.message(at)));
    let Ok(shapes) = shapes.collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let mut settings = Settings::default();
    settings.budget.ceiling = MIN_CEILING;
    let Ok(terms) = Terms::of(&settings, &Overrides::default(), None, "") else {
        return;
    };
    let heads = chain::heads(TENANT, &shapes);
    let mut state = TurnState::new(request, shapes, heads, Arc::default(), terms, &reader);
    let tools = HopContext {
        reader,
        classes,
        family: &family,
        now: 1,
    };
    if state.inject(&tools).is_ok()
        && let Ok(prepared) = state.prepare(&tools, None)
    {
        assert_eq!(state.miscounted(&tools, &prepared.view), None);
    }
}

#[test]
fn request_of_chat() {
    hold(&["chat"], |bytes, _| decoded(Dialect::Chat, bytes));
}

#[test]
fn request_of_responses() {
    hold(&["responses"], |bytes, _| {
        decoded(Dialect::Responses, bytes)
    });
}

#[test]
fn request_of_messages() {
    hold(&["messages"], |bytes, _| decoded(Dialect::Messages, bytes));
}

fn spec(dialect: Dialect, hidden: &[&str]) -> Spec {
    Spec {
        dialect,
        hidden: hidden.iter().copied().collect::<Names>(),
        usage_wish: UsageWish::Asked,
        echo: Echo::default(),
        asked: WhoAsked::default(),
        one_text: false,
    }
}

/// What a client gets of a hop that is its turn's last, and what the hop said where the machine
/// could read it.
fn played(spec: &Spec, reads: &[Bytes]) -> (Vec<u8>, Option<Answer>) {
    let mut machine = Machine::new(MachineSettings::default(), spec);
    let mut out = Vec::new();
    for read in reads {
        match machine.push(read.clone(), &mut out) {
            Ok(()) => {}
            Err(StreamError::Withheld) => break,
            Err(error @ (StreamError::TooLarge(_) | StreamError::Full(_))) => panic!("{error}"),
        }
    }
    let answer = machine.end_hop(&mut out);
    if machine.withheld() {
        return (out.concat(), None);
    }
    match answer.verdict() {
        Verdict::HiddenOnly => machine.close(Some("only annotated"), &mut out),
        Verdict::Done | Verdict::Mixed | Verdict::Cut => machine.release(&mut out),
        Verdict::Broken if answer.error.is_some() => machine.release(&mut out),
        Verdict::Broken => machine.fail(br#"{"message":"upstream cut"}"#, &mut out),
    }
    (out.concat(), Some(answer))
}

/// A read answer is written again by its length, and a little more for each frame of ours.
const ROOM: usize = 4096;

fn streamed(dialect: Dialect, bytes: &[u8], cuts: [usize; 2]) {
    let hidden = spec(dialect, &["delimiter", "recall"]);
    let [whole, single, cut] = reads(bytes, cuts).map(|reads| played(&hidden, &reads));
    let text = |(client, _): &(Vec<u8>, Option<Answer>)| client.escape_ascii().to_string();
    assert_eq!(text(&single), text(&whole), "byte by byte");
    assert_eq!(text(&cut), text(&whole), "cut at {cuts:?}");
    assert_eq!((&single.1, &cut.1), (&whole.1, &whole.1));
    assert!(whole.0.len() <= 2 * bytes.len() + ROOM, "it grew");
    // Where nothing is hidden a stream that came to its end passes as it is.
    let open = spec(dialect, &[]);
    let (client, answer) = played(&open, &[Bytes::copy_from_slice(bytes)]);
    if answer.is_some_and(|answer| answer.verdict() == Verdict::Done) {
        // Of its last event the end may be added, or it is left out where it broke off.
        let added = client.strip_prefix(bytes);
        let ended = added.is_some_and(|added| added.iter().all(|byte| b"\r\n".contains(byte)));
        let left = bytes.strip_prefix(client.as_slice());
        let left = left.map(|left| frames(vec![Bytes::copy_from_slice(left)]));
        assert!(
            ended || left.is_some_and(|left| left.len() < 2),
            "an open stream has other bytes:\n{}",
            client.escape_ascii()
        );
    }
    // The same bytes as a body that was not streamed.
    let body = Bytes::copy_from_slice(bytes);
    for spec in [&hidden, &open] {
        let Some(answer) = unary::read(&body, spec) else {
            let _may = unary::may_hide(&body, spec);
            continue;
        };
        let end = match answer.verdict() {
            Verdict::HiddenOnly => TurnEnd::HopCap { line: None },
            _ => TurnEnd::Upstream,
        };
        let ended = Unstreamed {
            skipped: &[],
            usage: UsageMode::default(),
            hidden: &spec.hidden,
            first: &body,
            last: &body,
            hops: &[answer],
            end,
        };
        assert!(
            unary::compose(&ended, spec).len() <= 2 * bytes.len() + ROOM,
            "it grew"
        );
    }
}

#[test]
fn stream_of_chat() {
    hold(&["stream"], |bytes, cuts| {
        streamed(Dialect::Chat, bytes, cuts);
    });
}

#[test]
fn stream_of_responses() {
    hold(&["stream"], |bytes, cuts| {
        streamed(Dialect::Responses, bytes, cuts);
    });
}

#[test]
fn stream_of_messages() {
    hold(&["stream"], |bytes, cuts| {
        streamed(Dialect::Messages, bytes, cuts);
    });
}

#[test]
fn stored() {
    hold(&["../../tests/fixtures/store"], |bytes, _| {
        let id = blob_id(bytes);
        let keys = Seals::new(Some("0123456789abcdef0123456789abcdef"), &[]);
        let decoded = codec::decode(&keys, &id, bytes);
        if decoded.is_ok() {
            assert_eq!(codec::stored_len(bytes), Ok(bytes.len()));
        }
        for seals in [Seals::default(), keys] {
            let mut encoder = Encoder::new(seals.clone()).unwrap();
            let encoded = encoder.encode(&id, bytes).unwrap();
            assert_eq!(codec::stored_len(&encoded), Ok(encoded.len()));
            assert_eq!(codec::decode(&seals, &id, &encoded).unwrap(), bytes);
        }
    });
}

#[test]
fn recorded() {
    hold(&["../../tests/fixtures/records"], |bytes, _| {
        if let Ok(record) = rmp_serde::from_slice::<TurnRecord>(bytes) {
            let encoded = rmp_serde::to_vec_named(&record).unwrap();
            assert_eq!(
                rmp_serde::from_slice::<TurnRecord>(&encoded).unwrap(),
                record
            );
        }
        if let Ok(snapshot) = rmp_serde::from_slice::<Snapshot>(bytes) {
            let encoded = rmp_serde::to_vec_named(&snapshot).unwrap();
            assert_eq!(
                rmp_serde::from_slice::<Snapshot>(&encoded).unwrap(),
                snapshot
            );
        }
    });
}
