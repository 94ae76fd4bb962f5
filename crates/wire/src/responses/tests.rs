//! What real agents send, as captured: every request is read and put together again byte for byte,
//! and a history that is resent is the same conversation. And what no version knows passes.

mod hops;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::GzDecoder;
use plimsoll_model::raw::{self, Object};
use plimsoll_model::{Digest, Role};
use proptest::prelude::*;
use serde_json::Value;

use crate::Dialect;
use crate::edit::AssistantEdit;
use crate::message::ParsedCall;
use crate::request::{Request, Rewrite, Unmanaged};

/// One captured request.
struct Captured {
    agent: String,
    number: u64,
    request: Request,
    /// What tells the conversations of one agent apart.
    thread: Vec<Option<String>>,
    plan: Value,
    /// The ids of the calls in the provider's answer.
    ids: Vec<String>,
    /// Why it should not be managed.
    unmanaged: Option<&'static str>,
}

fn captures() -> Vec<Captured> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wire");
    let Ok(files) = std::fs::read_dir(root) else {
        println!("skipped: no captures");
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".jsonl.gz"));
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

fn read(file: &Path) -> Vec<Captured> {
    let mut text = String::new();
    let packed = std::fs::File::open(file).unwrap();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let lines = || {
        text.lines()
            .map(|line| (line, serde_json::from_str::<Value>(line).unwrap()))
    };
    let answers: Vec<Value> = lines()
        .map(|(_, line)| line)
        .filter(|line| line["event"] == "resp")
        .collect();
    let ids = |number: &Value| -> Vec<String> {
        let answer = answers.iter().find(|answer| answer["n"] == *number);
        let items = answer.and_then(|answer| answer["ids"].as_array());
        let ids = items
            .into_iter()
            .flatten()
            .filter_map(|item| item[2].as_str());
        ids.map(str::to_owned).collect()
    };
    let posted = |line: &Value| {
        let path = line["path"].as_str().unwrap_or_default();
        line["body"].is_object()
            && path
                .split('?')
                .next()
                .is_some_and(|path| path.ends_with("/responses"))
    };
    let mut captured = Vec::new();
    for (raw, line) in lines().filter(|(_, line)| posted(line)) {
        let body = Object::parse(raw.as_bytes()).unwrap().raw("body").unwrap();
        let header = |name: &str| {
            let headers = line["headers"].as_object().unwrap();
            let found = headers
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_string())
        };
        captured.push(Captured {
            agent: file.file_name().unwrap().to_string_lossy().into_owned(),
            number: line["n"].as_u64().unwrap(),
            request: Dialect::Responses
                .decode(Bytes::copy_from_slice(body))
                .unwrap(),
            thread: ["thread-id", "x-session-id"].map(header).to_vec(),
            plan: line["plan"].clone(),
            ids: ids(&line["n"]),
            unmanaged: unmanaged(&line["body"]),
        });
    }
    captured
}

fn unmanaged(body: &Value) -> Option<&'static str> {
    if body["previous_response_id"].is_string() {
        return Some("previous_response_id");
    }
    let items = || body["input"].as_array().into_iter().flatten();
    let any = |kind: &'static str| items().any(|item| item["type"] == kind).then_some(kind);
    any("compaction_trigger").or_else(|| any("item_reference"))
}

/// The body with those units that are kept.
fn view(request: &Request, keep: impl Fn(usize) -> bool) -> Bytes {
    let mut splice = request.splice();
    let units = 0..request.messages.len();
    units
        .filter(|at| keep(*at))
        .for_each(|at| splice.client(at));
    let rewrite = Rewrite {
        view: splice.close(),
        tools: None,
        ask_usage: false,
        compared: None,
        later: None,
    };
    request.with(rewrite).to_bytes()
}

fn whole(request: &Request) -> Bytes {
    view(request, |_| true)
}

#[test]
fn every_request_is_put_together_byte_for_byte() {
    for one in captures() {
        for at in 0..one.request.messages.len() {
            Dialect::Responses.parse(one.request.message(at)).unwrap();
        }
        let place = format!("{} {}", one.agent, one.number);
        assert_eq!(whole(&one.request), one.request.body, "{place}");
        assert_eq!(
            one.request.unmanaged.map(Unmanaged::name),
            one.unmanaged,
            "{place}"
        );
    }
}

/// The digests of the units that are in the chain.
fn chain(request: &Request) -> Vec<Digest> {
    let units = (0..request.messages.len())
        .map(|at| Dialect::Responses.parse(request.message(at)).unwrap());
    let chained = units.skip_while(|unit| unit.role == Role::System);
    chained.map(|unit| unit.canonical).collect()
}

#[test]
fn resent_histories_are_the_same_conversation() {
    let captures = captures();
    let mut begun_anew = Vec::new();
    let (mut extended, mut answered) = (0, 0);
    // What an item is named by stands for it in the chain of those who only name it.
    let managed = |one: &&Captured| matches!(one.unmanaged, None | Some("item_reference"));
    for (at, one) in captures.iter().enumerate().filter(|(_, one)| managed(one)) {
        let next = captures.iter().skip(at + 1);
        let mut next = next.filter(|next| next.agent == one.agent && next.thread == one.thread);
        let Some(next) = next.next().filter(managed) else {
            continue;
        };
        let (before, after) = (chain(&one.request), chain(&next.request));
        if !after.starts_with(&before) || after.len() == before.len() {
            begun_anew.push(format!("{} {}", one.agent, one.number));
            continue;
        }
        extended += 1;
        let at = next.request.messages.len() - after.len() + before.len();
        let answer = Dialect::Responses.parse(next.request.message(at)).unwrap();
        assert_eq!(answer.role, Role::Assistant, "{} {}", one.agent, one.number);
        if let Some(handed) = handed_out(one) {
            assert_eq!(answer.canonical, handed, "{} {}", one.agent, one.number);
            answered += 1;
        }
    }
    println!("{extended} requests extend the one before them, {answered} by an answer of calls");
    if !captures.is_empty() {
        // A compaction, a title, and the sub-agent of an SDK that says nothing of it.
        let wanted = [
            "codex-compact.jsonl.gz 4",
            "opencode-responses.jsonl.gz 1",
            "py-agents-responses.jsonl.gz 6",
            "py-agents-responses.jsonl.gz 8",
        ];
        assert_eq!(begun_anew, wanted);
        assert!(extended > 40 && answered > 20, "{extended}, {answered}");
    }
}

/// The digest of what the provider answered, where that was calls alone.
fn handed_out(one: &Captured) -> Option<Digest> {
    let planned = one.plan["calls"].as_array()?;
    if planned.is_empty() || planned.len() != one.ids.len() {
        return None;
    }
    let call = |(call, id): (&Value, &String)| -> Option<(String, String, String)> {
        let arguments = masked(call[1].as_str()?);
        Some((id.clone(), call[0].as_str()?.to_owned(), arguments))
    };
    let calls = planned.iter().zip(&one.ids).map(call);
    let calls: Vec<(String, String, String)> = calls.collect::<Option<_>>()?;
    let calls = calls.iter().map(|(id, name, arguments)| ParsedCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    });
    let calls: Vec<ParsedCall<'_>> = calls.collect();
    Some(Dialect::Responses.canonical_of_answer("", &calls))
}

/// The captures name the agent's directory otherwise in requests than in plans.
fn masked(arguments: &str) -> String {
    let (plan, sent) = ("/tmp/research/agents", "/home/dev");
    let escaped = |path: &str| path.replace('/', "\\/");
    arguments
        .replace(plan, sent)
        .replace(&escaped(plan), &escaped(sent))
}

/// A body of items of these types, with white space wherever it may stand.
fn body(kinds: &[String], space: &str, instructions: Option<&str>, behind: bool) -> Bytes {
    let item = |(at, kind): (usize, &String)| {
        format!(
            r#"{space}{{{space}"type":{space}"{kind}","role":"x","n":1e{at},"id":"{at}"}}{space}"#
        )
    };
    let items: Vec<String> = kinds.iter().enumerate().map(item).collect();
    let mut members = vec![format!(r#""input":{space}[{}]"#, items.join(","))];
    if let Some(text) = instructions {
        let text = raw::quote(text);
        members.insert(
            usize::from(behind),
            format!(r#""instructions":{space}{text}"#),
        );
    }
    Bytes::from(format!("{{{}}}", members.join(" , ")))
}

proptest! {
    #[test]
    fn whatever_stands_in_the_input_passes_untouched(
        kinds in prop::collection::vec(
            "[a-z_]{1,12}|reasoning|[a-z]{1,4}_call|[a-z]{1,4}_output|message|item_reference",
            1..8,
        ),
        space in "[ \n\t]{0,2}",
        instructions in prop::option::of("[a-z\"\\\\]{0,8}"),
        behind in any::<bool>(),
    ) {
        let body = body(&kinds, &space, instructions.as_deref(), behind);
        let request = Dialect::Responses.decode(body.clone()).unwrap();
        prop_assert_eq!(whole(&request), &body);
        let outside = instructions.is_some_and(|text| !text.is_empty());
        for at in usize::from(outside)..request.messages.len() {
            let unit = request.message(at);
            let parsed = Dialect::Responses.parse(unit).unwrap();
            if parsed.role == Role::Assistant {
                let same = Dialect::Responses.assistant(unit, &AssistantEdit::default());
                prop_assert_eq!(&same.unwrap()[..], unit);
            }
            // Without the unit the body is JSON still, and all else is there.
            let less = view(&request, |other| other != at);
            let read: Value = serde_json::from_slice(&less).unwrap();
            let gone = super::item::items(unit).unwrap().len();
            prop_assert_eq!(read["input"].as_array().unwrap().len(), kinds.len() - gone);
        }
    }
}
