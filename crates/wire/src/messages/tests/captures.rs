//! What real agents send, as captured: bodies that nothing is changed in keep their bytes, and a
//! history that is resent is the same conversation.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use flate2::read::GzDecoder;
use plimsoll_model::raw::Object;
use plimsoll_model::{Digest, Role};
use serde_json::Value;

use super::body;
use crate::Dialect;
use crate::message::ParsedCall;
use crate::messages::message::{canonical_of_answer, parse};
use crate::messages::original;
use crate::request::Request;

/// One captured request.
pub(super) struct Captured {
    pub(super) request: Request,
    /// Whether it asks for the number of tokens alone, so that it has no answer.
    counts: bool,
    /// Roles and digests of its units.
    units: Vec<(Role, Digest)>,
    /// What tells the conversations of one agent apart.
    thread: Vec<Option<String>>,
    plan: Value,
    /// The ids that the provider issued in its answer.
    ids: Vec<String>,
}

fn captured(line: &str, ids: &HashMap<u64, Vec<String>>) -> Option<Captured> {
    let value: Value = serde_json::from_str(line).unwrap();
    let path = value["path"].as_str()?;
    if !path.contains("/v1/messages") {
        return None;
    }
    let object = Object::parse(line.as_bytes()).unwrap();
    let body = Bytes::copy_from_slice(object.raw("body")?);
    let request = Dialect::Messages.decode(body).unwrap();
    let units = (0..request.messages.len()).map(|at| {
        let parsed = parse(request.message(at)).unwrap();
        (parsed.role, parsed.canonical)
    });
    let headers = value["headers"].as_object()?;
    let header = |name: &str| {
        let mut named = headers
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.to_string())
    };
    Some(Captured {
        counts: path.contains("count_tokens"),
        units: units.collect(),
        thread: ["x-claude-code-agent-id", "x-session-id"]
            .map(header)
            .to_vec(),
        plan: value["plan"].clone(),
        ids: ids.get(&value["n"].as_u64()?).cloned().unwrap_or_default(),
        request,
    })
}

/// All captures by file; none where they are not there.
pub(super) fn captures() -> Vec<(String, Vec<Captured>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wire");
    let Ok(files) = std::fs::read_dir(root) else {
        println!("skipped: no captures");
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".jsonl.gz") {
            continue;
        }
        let mut text = String::new();
        let file = std::fs::File::open(&path).unwrap();
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let issued = text.lines().filter_map(issued).collect();
        let found = text.lines().filter_map(|line| captured(line, &issued));
        all.push((name, found.collect()));
    }
    all
}

fn issued(line: &str) -> Option<(u64, Vec<String>)> {
    let value: Value = serde_json::from_str(line).unwrap();
    let ids = (value["event"] == "resp").then(|| value["ids"].as_array().cloned())??;
    let ids = ids.iter().filter_map(|id| id.as_str().map(str::to_owned));
    Some((value["n"].as_u64()?, ids.collect()))
}

#[test]
fn what_is_not_edited_keeps_its_bytes() {
    for (file, captured) in captures() {
        for one in captured {
            let request = &one.request;
            let mut splice = request.splice();
            (0..request.messages.len()).for_each(|unit| splice.client(unit));
            let view = splice.close();
            assert!(view.edits.is_empty());
            assert_eq!(body(request, view).as_bytes(), &request.body[..], "{file}");
            assert_eq!(request.unmanaged, None);
        }
    }
}

#[test]
fn claude_names_its_session() {
    let captures = captures();
    let claude = captures
        .iter()
        .filter(|(file, _)| file.starts_with("claude"));
    for one in claude.flat_map(|(_, captured)| captured) {
        assert_eq!(one.request.hint.as_ref().map(String::len), Some(36));
    }
}

#[test]
fn resent_histories_are_the_same_conversation() {
    let (mut extended, mut others) = (0, Vec::new());
    let captures = captures();
    for (file, captured) in &captures {
        for (at, one) in captured.iter().enumerate() {
            let later = captured.iter().skip(at + 1);
            let mut later = later.filter(|next| next.thread == one.thread && !next.counts);
            let Some(next) = later.next() else { continue };
            let told = one.units.iter().filter(|unit| unit.0 != Role::System);
            let begin = next.units.iter().filter(|unit| unit.0 != Role::System);
            let same = begin.zip(told).all(|(begin, told)| begin == told);
            let answer = next.units.get(one.units.len());
            match answer {
                Some((Role::Assistant, digest)) if same => {
                    extended += 1;
                    answers(one, next, *digest);
                }
                _ => others.push(file.as_str()),
            }
        }
    }
    if extended > 0 {
        // The request that asks for a summary, the history after it, and a title.
        let compact = "claude-compact.jsonl.gz";
        let fork = "claude-fork.jsonl.gz";
        let title = "opencode-anthropic.jsonl.gz";
        assert_eq!(others, [compact, compact, fork, fork, title]);
    }
    println!("{extended} requests extend the one before them");
}

/// The answer to a request comes back with the digest of what was handed out.
fn answers(one: &Captured, next: &Captured, back: Digest) {
    let planned = one.plan["calls"].as_array().cloned().unwrap_or_default();
    if planned.len() != one.ids.len() || planned.is_empty() {
        return;
    }
    let unit = next.request.message(one.units.len());
    let calls: Vec<ParsedCall<'_>> = planned
        .iter()
        .zip(&one.ids)
        .map(|(call, id)| ParsedCall {
            id: id.as_str().into(),
            name: call[0].as_str().unwrap().into(),
            arguments: masked(call[1].as_str().unwrap()).into(),
        })
        .collect();
    let text = original::assistant_text(unit).unwrap();
    assert_eq!(
        canonical_of_answer(&text, &calls),
        back,
        "{}",
        String::from_utf8_lossy(unit)
    );
}

/// The captures name the agent's directory otherwise in requests than in plans.
fn masked(arguments: &str) -> String {
    let (plan, sent) = ("/tmp/research/agents", "/home/dev");
    let escaped = |path: &str| path.replace('/', "\\/");
    arguments
        .replace(plan, sent)
        .replace(&escaped(plan), &escaped(sent))
}
