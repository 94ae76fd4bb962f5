//! What real agents send, as captured: every request is read and put together again byte for byte,
//! and a history that is resent is the same conversation. And what no version knows passes.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;

use super::request::decode;
use crate::dialect::edit::AssistantEdit;
use crate::dialect::message::ParsedCall;
use crate::dialect::request::{Request, Rewrite};
use crate::model::raw::Object;
use crate::model::{Dialect, Digest, Role};

/// One captured request.
struct Captured {
    agent: String,
    number: u64,
    request: Request,
    /// What tells the conversations of one agent apart.
    thread: Vec<Option<String>>,
    plan: Value,
    /// The ids that the provider issued in its answer.
    ids: Vec<String>,
}

fn captures() -> Vec<Captured> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/wire");
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
        let ids = answer.and_then(|answer| answer["ids"].as_array());
        ids.into_iter()
            .flatten()
            .map(|id| id.as_str().unwrap().to_owned())
            .collect()
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
            request: decode(Bytes::copy_from_slice(body)).unwrap(),
            thread: ["thread-id", "x-session-id"].map(header).to_vec(),
            plan: line["plan"].clone(),
            ids: ids(&line["n"]),
        });
    }
    captured
}

fn whole(request: &Request) -> Bytes {
    let mut splice = request.splice();
    (0..request.messages.len()).for_each(|at| splice.client(at));
    let rewrite = Rewrite {
        view: splice.close(),
        tools: None,
        ask_usage: false,
        limit: None,
    };
    request.with(rewrite).to_bytes()
}

#[test]
fn every_request_is_put_together_byte_for_byte() {
    for one in captures() {
        let units = (0..one.request.messages.len()).map(|at| one.request.message(at));
        for unit in units {
            Dialect::Responses.parse(unit).unwrap();
        }
        let place = format!("{} {}", one.agent, one.number);
        assert_eq!(whole(&one.request), one.request.body, "{place}");
        let odd = match place.as_str() {
            _ if one.agent.starts_with("py-openai-resp-prev") && one.number > 1 => {
                one.request.unmanaged.is_some() || one.request.messages.len() == 1
            }
            "codex-openai-compact.jsonl.gz 5" => {
                one.request.unmanaged == Some("compaction_trigger")
            }
            _ => one.request.unmanaged.is_none(),
        };
        assert!(odd, "{place}: {:?}", one.request.unmanaged);
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
    for (at, one) in captures.iter().enumerate() {
        let next = captures.iter().skip(at + 1);
        let mut next = next.filter(|next| next.agent == one.agent && next.thread == one.thread);
        let Some(next) = next.next().filter(|next| next.request.unmanaged.is_none()) else {
            continue;
        };
        let (before, after) = (chain(&one.request), chain(&next.request));
        if !after.starts_with(&before) || after.len() == before.len() {
            begun_anew.push(format!("{} {}", one.agent, one.number));
            continue;
        }
        extended += 1;
        let answer = next.request.messages.len() - after.len() + before.len();
        let answer = Dialect::Responses
            .parse(next.request.message(answer))
            .unwrap();
        assert_eq!(answer.role, Role::Assistant, "{} {}", one.agent, one.number);
        answered += usize::from(is_answer(one, &answer.canonical, next));
    }
    println!(
        "{extended} requests extend the one before them, with {answered} answers that were known; begun anew: {begun_anew:?}"
    );
    if !captures.is_empty() {
        assert_eq!(begun_anew, ["x"]);
        assert!(extended >= 50 && answered >= 30, "{extended}, {answered}");
    }
}

/// Whether what the provider answered is known, in which case it came back as it was handed out.
fn is_answer(one: &Captured, back: &Digest, next: &Captured) -> bool {
    let planned = one.plan["calls"].as_array().cloned().unwrap_or_default();
    if planned.is_empty() || planned.len() != one.ids.len() {
        return false;
    }
    let calls: Vec<ParsedCall<'_>> = planned
        .iter()
        .zip(&one.ids)
        .map(|(call, id)| ParsedCall {
            id: id.as_str().into(),
            name: call[0].as_str().unwrap().into(),
            arguments: call[1]
                .as_str()
                .unwrap()
                .replace("/tmp/research/agents", "/home/dev")
                .into(),
        })
        .collect();
    let handed = Dialect::Responses.canonical_of_answer("", &calls);
    assert_eq!(
        *back, handed,
        "{} {} -> {}",
        one.agent, one.number, next.number
    );
    true
}

proptest! {
    #[test]
    fn whatever_stands_in_the_input_passes_untouched(
        kinds in prop::collection::vec("[a-z_]{1,12}|reasoning|[a-z]{1,4}_call|[a-z]{1,4}_output|message|item_reference", 1..8),
        spaces in prop::collection::vec("[ \n\t]{0,2}", 8),
        instructions in prop::option::of("[a-z\"\\\\]{0,8}"),
        behind in any::<bool>(),
    ) {
        let items: Vec<String> = kinds.iter().zip(&spaces).enumerate().map(|(at, (kind, space))| {
            format!(r#"{space}{{{space}"type":{space}"{kind}","role":"x","n":1e{at},"id":"{at}"}}{space}"#)
        }).collect();
        let input = format!(r#""input":{}[{}]"#, spaces[0], items.join(","));
        let told = instructions.map(|text| format!(r#""instructions":{}"#, serde_json::to_string(&text).unwrap()));
        let members: Vec<String> = if behind { vec![input].into_iter().chain(told).collect() } else { told.into_iter().chain([input]).collect() };
        let body = Bytes::from(format!("{{{}}}", members.join(" , ")));
        let request = decode(body.clone()).unwrap();
        prop_assert_eq!(whole(&request), &body);
        for at in 0..request.messages.len() {
            let unit = request.message(at);
            let parsed = Dialect::Responses.parse(unit).unwrap();
            if parsed.role == Role::Assistant {
                let same = Dialect::Responses.assistant(unit, &AssistantEdit::default()).unwrap();
                prop_assert_eq!(&same[..], unit);
            }
        }
        // Without one of its units the body is JSON still, and all others are there.
        for left_out in 0..request.messages.len() {
            let mut splice = request.splice();
            (0..request.messages.len()).filter(|at| *at != left_out).for_each(|at| splice.client(at));
            let rewrite = Rewrite { view: splice.close(), tools: None, ask_usage: false, limit: None };
            let less = request.with(rewrite).to_bytes();
            let read: Value = serde_json::from_slice(&less).unwrap();
            let ids = read["input"].as_array().unwrap().len();
            let outside = Object::parse(request.message(left_out)).is_err() && request.message(left_out).first() == Some(&b'"');
            let of_unit = super::item::items(request.message(left_out)).map_or(0, |items| items.len());
            prop_assert_eq!(ids, kinds.len() - if outside { 0 } else { of_unit });
        }
    }
}
