//! What a frame that only passes costs in the interceptor, over what splitting costs anyway: both
//! measured in the same run, in turns, so that a busy machine slows both alike.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use plimsoll_wire::Dialect;
use plimsoll_wire::sse::{EVENT_CAP, Splitter};
use plimsoll_wire::stream::{Echo, Machine, MachineSettings, Spec, UsageWish, WhoAsked};

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const FRAMES: usize = 2_000;
const ROUNDS: usize = 400;
/// Bytes of one read, as a busy connection gives them.
const READ: usize = 16 << 10;
/// Bytes of one frame.
const FRAME: usize = 329;

/// A frame of exactly [`FRAME`] bytes with some text in it.
fn frame(number: usize, field: &str) -> String {
    let head = format!(
        "data: {{\"id\":\"chatcmpl-9f8e7d6c5b4a\",\"object\":\"chat.completion.chunk\",\"created\":1735689600,\
         \"model\":\"gpt-5.2-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\
         \"choices\":[{{\"index\":0,\"delta\":{{{field}\"word {number:05} \\\\n"
    );
    let close = if field.contains("arguments") {
        "}}]"
    } else {
        ""
    };
    let tail = format!("\"{close}}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n");
    let fill = FRAME.saturating_sub(head.len() + tail.len());
    format!("{head}{}{tail}", "x".repeat(fill))
}

/// The stream cut into reads.
fn reads(stream: &str) -> Vec<Bytes> {
    let stream = Bytes::copy_from_slice(stream.as_bytes());
    (0..stream.len())
        .step_by(READ)
        .map(|at| stream.slice(at..stream.len().min(at + READ)))
        .collect()
}

fn split(reads: &[Bytes]) -> usize {
    let mut splitter = Splitter::new(EVENT_CAP);
    let mut bytes = 0;
    for read in reads {
        splitter.push(read.clone());
        while let Ok(Some(frame)) = splitter.next_frame() {
            bytes += black_box(frame).raw().len();
        }
    }
    bytes
}

fn machine() -> Machine {
    let hidden = vec!["delimiter".to_owned(), "recall".to_owned()];
    Machine::new(
        MachineSettings::default(),
        &Spec {
            dialect: Dialect::Chat,
            hidden: hidden.into_iter().collect(),
            usage_wish: UsageWish::Asked,
            echo: Echo::default(),
            asked: WhoAsked::default(),
            one_text: false,
        },
    )
}

/// A machine that has come to its second hop, where frames are written anew.
fn machine_in_second_hop() -> Machine {
    let mut machine = machine();
    let hidden = "data: {\"id\":\"chatcmpl-9f8e7d6c5b4a\",\"created\":1735689600,\"choices\":[{\"delta\":{\"tool_calls\":\
                  [{\"index\":0,\"id\":\"h\",\"function\":{\"name\":\"delimiter\",\"arguments\":\"{}\"}}]},\
                  \"finish_reason\":\"stop\"}]}\n\n";
    let mut out = Vec::new();
    assert!(
        machine
            .push(Bytes::from_static(hidden.as_bytes()), &mut out)
            .is_ok()
    );
    machine.end_hop(&mut out);
    machine.next_hop(&mut out);
    machine
}

fn intercept(machine: &mut Machine, reads: &[Bytes]) -> usize {
    let mut out = Vec::with_capacity(64);
    let mut bytes = 0;
    for read in reads {
        if machine.push(read.clone(), &mut out).is_err() {
            return 0;
        }
        bytes += out
            .drain(..)
            .map(|said| black_box(said).len())
            .sum::<usize>();
    }
    bytes
}

/// The best rounds' nanoseconds a frame.
struct Times {
    splitter: f64,
    machine: f64,
    /// What the end of the hop costs, once, spread over its frames.
    end: f64,
}

/// Measures the two in turns.
fn measure(stream: &str, start_machine: fn() -> Machine) -> Times {
    let reads = reads(stream);
    let mut best = Times {
        splitter: f64::MAX,
        machine: f64::MAX,
        end: f64::MAX,
    };
    let since = |start: Instant| start.elapsed().as_nanos() as f64 / FRAMES as f64;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let bytes = black_box(split(&reads));
        best.splitter = best.splitter.min(since(start));
        assert_eq!(bytes, stream.len(), "the splitter lost bytes");

        let mut machine = start_machine();
        let start = Instant::now();
        let bytes = black_box(intercept(&mut machine, &reads));
        best.machine = best.machine.min(since(start));
        assert_eq!(bytes, stream.len(), "the machine lost bytes");

        let start = Instant::now();
        black_box(machine.end_hop(&mut Vec::new()));
        best.end = best.end.min(since(start));
    }
    best
}

#[expect(clippy::print_stdout, reason = "a bench reports to the terminal")]
fn main() {
    // `cargo test --benches` runs benches too; there is nothing to measure in a debug build.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let begun = "data: {\"id\":\"chatcmpl-9f8e7d6c5b4a\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":\
                 [{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"read\",\"arguments\":\"\"}}]}}]}\n\n";
    let first: fn() -> Machine = machine;
    let kinds = [
        ("text", String::new(), "\"content\":", first),
        ("reasoning", String::new(), "\"reasoning_content\":", first),
        (
            "arguments",
            begun.to_owned(),
            "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":",
            first,
        ),
        ("text, no two shapes alike", String::new(), "", first),
        (
            "text of a second hop",
            String::new(),
            "\"content\":",
            machine_in_second_hop,
        ),
    ];
    println!("ns a frame of {FRAME} bytes, best of {ROUNDS} rounds of {FRAMES} frames");
    for (name, mut stream, field, start) in kinds {
        for number in 0..FRAMES {
            if field.is_empty() {
                stream.push_str(
                    &frame(number, "\"content\":")
                        .replace("1735689600", &format!("{}", 1_735_689_600 + number)),
                );
            } else {
                stream.push_str(&frame(number, field));
            }
        }
        let Times {
            splitter,
            machine,
            end,
        } = measure(&stream, start);
        let added = machine - splitter;
        println!(
            "{name:26} splitter {splitter:6.1}   with the machine {machine:6.1}   \
             added {added:6.1}   (end of the hop {end:6.1})"
        );
    }
}
