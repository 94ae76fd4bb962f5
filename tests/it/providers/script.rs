//! What the model does: 36 commands or more, in turns of the user's of twelve each or in one, marked as
//! episodes where the tool for it is offered, and what the commands give back. Asserts nothing.

use plimsoll_scripted::{Call, Reply, thoughts};
use serde_json::{Value, json};

/// The commands of a session that has no other number of them.
pub const LAST: usize = 36;
/// The commands of one turn of the user's.
const STAGE: usize = 12;

/// The tokens of a long description.
const DESCRIBED: usize = 140;

/// What is odd about the calls.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// The user says one thing only.
    pub alone: bool,
    /// Commands are long, and what they give back is short.
    pub wordy: bool,
    /// No answer is made of hidden calls alone.
    pub mixed: bool,
    /// Such an answer is thought of in no words.
    pub unthought: bool,
    /// Names are misspelt.
    pub misspelt: bool,
    /// Arguments break off.
    pub torn: bool,
    /// An act ends with a description.
    pub described: bool,
    /// No work is marked, although the model is asked to.
    pub unmarked: bool,
    /// Each command is an exploration of its own, which ends with a long description.
    pub explores: bool,
    /// The commands of the session.
    pub last: usize,
    /// The tokens of each thought; 0 for a sentence.
    pub thinks: usize,
}

impl Quirks {
    /// Nothing is.
    pub const PLAIN: Self = Self {
        alone: false,
        wordy: false,
        mixed: false,
        unthought: false,
        misspelt: false,
        torn: false,
        described: false,
        unmarked: false,
        explores: false,
        last: LAST,
        thinks: 0,
    };
}

/// What the user says behind an answer without calls; nothing at the end.
pub fn goes_on(text: &str, quirks: Quirks) -> Option<String> {
    let done: usize = text.strip_suffix("done.")?.trim().parse().ok()?;
    let next = done + 1;
    (next <= quirks.last).then(|| format!("on {next}"))
}

/// What a command gives back: some 500 tokens, no two lines alike.
pub fn output(id: &str, quirks: Quirks) -> String {
    let line = |n: usize| format!("{id} line {n}: value-{id}-{n} = {}\n", n * 7919);
    let lines = if quirks.wordy { 4 } else { 24 };
    (1..=lines).map(line).collect()
}

/// The answer to what a request ends with.
pub fn reply(key: &str, offered: &[String], quirks: Quirks) -> Reply {
    let marks = !quirks.unmarked && offered.iter().any(|name| name == "delimiter");
    if let Some(rest) = key.strip_prefix("hid_") {
        let n = rest.split('_').next().and_then(|n| n.parse().ok());
        let n: usize = n.unwrap_or_default();
        return Reply::calls(vec![bash(n, quirks)])
            .saying(format!("Step {n}."))
            .reasoning(thought(n, quirks));
    }
    let n = match (key, key.strip_prefix("on "), key.strip_prefix('b')) {
        ("go", ..) => 1,
        (_, Some(n), _) => n.parse().unwrap_or_default(),
        (_, _, Some(n)) => n.parse::<usize>().map(|n| n + 1).unwrap_or_default(),
        _ => 0,
    };
    if n == 0 {
        return Reply::error(
            500,
            format!("{{\"error\":{{\"message\":\"who is {key:.60}\"}}}}"),
        );
    }
    let stage = if quirks.alone { quirks.last } else { STAGE };
    if key.starts_with('b') && (n - 1).is_multiple_of(stage) {
        return Reply::text(format!("{} done.", n - 1)).reasoning(thought(n, quirks));
    }
    let lone = lone(n) && !quirks.explores;
    let mut calls = if marks { hidden(n, quirks) } else { Vec::new() };
    if lone && marks && !quirks.mixed {
        let thought = if quirks.unthought {
            String::new()
        } else {
            thought(n, quirks)
        };
        return Reply::calls(calls)
            .saying(format!("Noted {n}."))
            .reasoning(thought);
    }
    calls.push(bash(n, quirks));
    let text = match n {
        _ if lone => format!("Noted {n}. Step {n}."),
        _ if n.is_multiple_of(3) => format!("Step {n}."),
        _ => String::new(),
    };
    Reply::calls(calls)
        .saying(text)
        .reasoning(thought(n, quirks))
}

fn thought(n: usize, quirks: Quirks) -> String {
    if quirks.thinks > 0 {
        return thoughts::words(&format!("thought {n}"), 5, quirks.thinks);
    }
    format!("For {n} I look at what {n} asks, then at what came before {n}, and go on.")
}

fn bash(n: usize, quirks: Quirks) -> Call {
    let mut arguments = json!({"c": format!("run b{n}")});
    if n % 5 == 2 || quirks.wordy {
        let line = |m: usize| format!("note {n}.{m} is {}\n", m * 6007);
        arguments["note"] = (1..=if quirks.wordy { 110 } else { 30 })
            .map(line)
            .collect::<String>()
            .into();
    }
    Call::new(format!("b{n}"), "bash", arguments.to_string())
}

/// Whether an answer of hidden calls alone goes before a command: that ends every other act.
const fn lone(n: usize) -> bool {
    n % 12 == 6
}

/// The hidden calls before command `n`: of each six, an exploration from the first to the fourth, and
/// an act from there. Every other act ends in the answer that begins the next exploration, and so is
/// the first call of what goes on without it.
fn hidden(n: usize, quirks: Quirks) -> Vec<Call> {
    let episode = (n - 1) / 6;
    let start = |kind: &str, rest: Value| {
        let mut start = json!({"action": "start", "name": format!("{kind}{episode}"),
            "type": kind});
        let fields = start.as_object_mut().unwrap();
        fields.extend(rest.as_object().cloned().unwrap_or_default());
        start
    };
    let says = format!("What {n} was about: value-b{n}-1 is 7919.");
    let end = match quirks.described {
        true => json!({"action": "end", "description": says}),
        false => json!({"action": "end"}),
    };
    let marks = match n % 6 {
        _ if quirks.explores => {
            let learned = thoughts::words(&format!("learned {n}"), 9, DESCRIBED);
            let end = json!({"action": "end", "description": learned});
            let start = json!({"action": "start", "name": format!("expl{n}"), "type": "expl"});
            [end, start].into_iter().skip(usize::from(n == 1)).collect()
        }
        1 if n % 12 == 1 && n > 1 => vec![end, start("expl", json!({}))],
        1 => vec![start("expl", json!({}))],
        4 => vec![
            json!({"action": "end", "description": says}),
            start("act", json!({"dependencies": [format!("expl{episode}")]})),
        ],
        _ if lone(n) => vec![end],
        _ => Vec::new(),
    };
    let mut calls = Vec::new();
    for (at, mark) in marks.into_iter().enumerate() {
        let name = match (quirks.misspelt, n % 12) {
            (true, 1) => "functions.delimiter",
            (true, 4) => "Delimiter",
            _ => "delimiter",
        };
        let mut arguments = mark.to_string();
        if quirks.torn && n % 12 == 7 {
            arguments.truncate(arguments.len() / 2);
        }
        calls.push(Call::new(format!("hid_{n}_{at}"), name, arguments));
    }
    calls
}
