//! What an attacker may send, or have a provider of its own answer, in sizes that double. Never sends anything.

use serde_json::{Value, json};

use super::wire::{self, Dialect};

/// Requests of one kind, and how large the smallest is.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// So many calls in one message, with their results.
    CallsOfOne(Dialect),
    /// The same, with nothing behind them and lines that all results have.
    Lines,
    /// So many messages of one call.
    Calls(Dialect),
    /// So many messages of one call, all of which say the same.
    Equal,
    /// So many user messages, each with a call behind it.
    Spans,
    /// So many messages of a single letter.
    Letters(Dialect),
    /// So many items, each with an id, which the client asks to have stored.
    Kept,
    /// A streamed answer of so many KiB of text.
    Stream(Dialect),
    /// A whole answer of so many KiB of text.
    Whole(Dialect),
    /// A streamed answer of so many calls.
    StreamedCalls(Dialect),
    /// A streamed answer of so many texts, each of which is a block or an item of its own.
    Texts(Dialect),
    /// A streamed answer that says so many members that nobody knows.
    Members(Dialect),
    /// A streamed answer of so many hidden calls, each of which is signed, and a visible one in as many pieces.
    Signs,
    /// A streamed answer of so many hidden calls, and a short request behind it.
    HiddenCalls(Dialect),
}

use Dialect::{Chat, Messages, Responses};

/// All shapes, with the size of each at its smallest.
pub const SHAPES: [(Shape, usize); 29] = [
    (Shape::CallsOfOne(Chat), 8_000),
    (Shape::CallsOfOne(Responses), 8_000),
    (Shape::CallsOfOne(Messages), 8_000),
    (Shape::Lines, 1_000),
    (Shape::Calls(Chat), 8_000),
    (Shape::Calls(Responses), 8_000),
    (Shape::Calls(Messages), 8_000),
    (Shape::Equal, 8_000),
    (Shape::Spans, 4_000),
    (Shape::Letters(Chat), 80_000),
    (Shape::Letters(Messages), 80_000),
    (Shape::Kept, 4_000),
    (Shape::Stream(Chat), 16 << 10),
    (Shape::Stream(Responses), 16 << 10),
    (Shape::Stream(Messages), 16 << 10),
    (Shape::Whole(Chat), 16 << 10),
    (Shape::Whole(Responses), 16 << 10),
    (Shape::Whole(Messages), 16 << 10),
    (Shape::StreamedCalls(Chat), 8_000),
    (Shape::StreamedCalls(Responses), 8_000),
    (Shape::StreamedCalls(Messages), 8_000),
    (Shape::Texts(Responses), 8_000),
    (Shape::Texts(Messages), 8_000),
    (Shape::Members(Chat), 40_000),
    (Shape::Members(Messages), 40_000),
    (Shape::Signs, 4_000),
    (Shape::HiddenCalls(Chat), 2_000),
    (Shape::HiddenCalls(Responses), 2_000),
    (Shape::HiddenCalls(Messages), 2_000),
];

/// A request, and what the provider answers it: both follow from the bytes.
pub struct Ask {
    pub path: &'static str,
    pub body: String,
}

impl Shape {
    /// The requests of this shape at a size, in order. `run` tells sessions apart.
    pub fn asks(self, size: usize, run: usize) -> Vec<Ask> {
        let begin = format!("go {run}");
        match self {
            Self::CallsOfOne(dialect) => {
                let numbers: Vec<usize> = (0..size).collect();
                let mut said = vec![wire::user(&begin)];
                said.extend(wire::calls(dialect, &numbers, false));
                // A few exchanges behind it, so that it is not the newest one, which always stays.
                for number in 0..3 {
                    said.push(wire::assistant(&format!("said {number}")));
                    said.push(wire::user(&format!("more {number}")));
                }
                vec![ask(dialect, said, "plain")]
            }
            Self::Lines => {
                let numbers: Vec<usize> = (0..size).collect();
                let mut said = wire::calls(Chat, &numbers, false);
                for (number, result) in said.iter_mut().skip(1).enumerate() {
                    let line = |line: usize| match line == number % 16 {
                        true => format!("own line {number} of src/part_{number}.rs\n"),
                        false => {
                            format!("line {line} of src/part_{line}.rs, the same everywhere\n")
                        }
                    };
                    result["content"] = (0..16).map(line).collect::<String>().into();
                }
                said.insert(0, wire::user(&begin));
                vec![ask(Chat, said, "plain")]
            }
            Self::Calls(dialect) => {
                vec![ask(dialect, singly(dialect, size, &begin, false), "plain")]
            }
            Self::Equal => vec![ask(Chat, singly(Chat, size, &begin, true), "plain")],
            Self::Spans => {
                let span = |number: usize| {
                    let mut said = vec![wire::user(&format!("{begin}, step {number}"))];
                    said.extend(wire::calls(Chat, &[number], false));
                    said
                };
                vec![ask(Chat, (0..size).flat_map(span).collect(), "plain")]
            }
            Self::Letters(dialect) => {
                let mut said = vec![wire::user(&begin)];
                let pair = || [wire::assistant("a"), wire::user("a")];
                said.extend((0..size / 2).flat_map(|_| pair()));
                vec![ask(dialect, said, "plain")]
            }
            Self::Kept => {
                let item = |number: usize| {
                    json!({"type": "message", "id": format!("msg_{run}_{number}"), "role": "user",
                        "content": format!("{begin}, {number}")})
                };
                let said = (0..size).map(item).collect();
                vec![request(Responses, said, "plain", (false, true))]
            }
            Self::Stream(dialect) => vec![one(dialect, &begin, &format!("stream-{size}"), true)],
            Self::Whole(dialect) => vec![one(dialect, &begin, &format!("whole-{size}"), false)],
            Self::StreamedCalls(dialect) => {
                vec![one(dialect, &begin, &format!("calls-{size}"), true)]
            }
            Self::Texts(dialect) => vec![one(dialect, &begin, &format!("texts-{size}"), true)],
            Self::Members(dialect) => vec![one(dialect, &begin, &format!("members-{size}"), true)],
            Self::Signs => vec![one(Chat, &begin, &format!("signs-{size}"), true)],
            Self::HiddenCalls(dialect) => {
                let first = one(dialect, &begin, &format!("hidden-{size}"), true);
                let said = vec![wire::user(&begin), wire::assistant("ok"), wire::user("on")];
                vec![first, ask(dialect, said, "plain")]
            }
        }
    }
}

fn singly(dialect: Dialect, size: usize, begin: &str, equal: bool) -> Vec<Value> {
    let mut said = vec![wire::user(begin)];
    said.extend((0..size).flat_map(|number| wire::calls(dialect, &[number], equal)));
    said
}

fn ask(dialect: Dialect, said: Vec<Value>, model: &str) -> Ask {
    request(dialect, said, model, (false, false))
}

fn one(dialect: Dialect, begin: &str, model: &str, stream: bool) -> Ask {
    request(dialect, vec![wire::user(begin)], model, (stream, false))
}

fn request(dialect: Dialect, said: Vec<Value>, model: &str, (stream, store): (bool, bool)) -> Ask {
    let mut body = json!({"model": model, "stream": stream, "tools": wire::tools(dialect)});
    match dialect {
        Chat => body["messages"] = said.into(),
        Responses => {
            body["input"] = said.into();
            body["store"] = store.into();
        }
        Messages => {
            body["messages"] = said.into();
            body["max_tokens"] = 900.into();
        }
    }
    Ask {
        path: dialect.path(),
        body: body.to_string(),
    }
}
