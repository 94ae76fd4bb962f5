//! What real agents send, as captured: a history that is resent is the same conversation, whatever
//! the client did to its bytes, and an answer comes back as the one that was handed out.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use flate2::read::GzDecoder;
use plimsoll_core::session::chain;
use plimsoll_core::turn::memo::Memo;
use plimsoll_model::{Digest, Head, Shape, TenantId};
use plimsoll_tokens::{Counter, Encoding};
use plimsoll_wire::Dialect;
use plimsoll_wire::message::{self, ParsedCall};
use plimsoll_wire::request::Request;
use serde_json::Value;

/// Agents that speak the chat dialect. aider splices its history in elsewhere, so it is read but
/// not held to extend.
const AGENTS: [&str; 9] = [
    "opencode",
    "opencode-compact",
    "pi",
    "pi-compact",
    "mini-swe-agent",
    "py-openai-chat",
    "py-openai-chat-stream",
    "py-agents-chat",
    "js-vercel-compat",
];

/// One captured request and the ids that the provider issued in its answer.
struct Captured {
    request: Request,
    shapes: Vec<Arc<Shape>>,
    heads: Vec<Head>,
    session: String,
    plan: Value,
    ids: Vec<String>,
}

fn captures(agent: &str, memo: &Memo, counter: &Counter) -> Option<Vec<Captured>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/wire");
    let file = std::fs::File::open(root.join(format!("{agent}.jsonl.gz"))).ok()?;
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ids: HashMap<u64, Vec<String>> = lines
        .iter()
        .filter(|line| line["event"] == "resp")
        .map(|line| {
            let ids = line["ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_str().unwrap().to_owned());
            (line["n"].as_u64().unwrap(), ids.collect())
        })
        .collect();
    let requests = lines
        .iter()
        .filter(|line| line["body"]["messages"].is_array());
    Some(
        requests
            .map(|line| captured(line, &ids, memo, counter))
            .collect(),
    )
}

fn captured(
    line: &Value,
    ids: &HashMap<u64, Vec<String>>,
    memo: &Memo,
    counter: &Counter,
) -> Captured {
    let tenant = TenantId(Digest([1; 32]));
    let request = Dialect::Chat
        .decode(line["body"].to_string().into())
        .unwrap();
    let reader = memo.reader(counter, Encoding::O200k, tenant, Dialect::Chat);
    let shapes: Vec<_> = (0..request.messages.len())
        .map(|at| reader.shape(request.message(at)).unwrap())
        .collect();
    Captured {
        heads: chain::heads(tenant, &shapes),
        request,
        shapes,
        session: line["headers"]["x-session-id"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        plan: line["plan"].clone(),
        ids: ids
            .get(&line["n"].as_u64().unwrap())
            .cloned()
            .unwrap_or_default(),
    }
}

#[test]
fn resent_histories_are_the_same_conversation() {
    let (memo, counter) = (Memo::default(), Counter::load());
    let mut extended = 0;
    for agent in AGENTS {
        let Some(captures) = captures(agent, &memo, &counter) else {
            println!("skipped: no captures of {agent}");
            continue;
        };
        for (at, one) in captures
            .iter()
            .enumerate()
            .filter(|(_, one)| !one.request.tools.names.is_empty())
        {
            let length = one.request.messages.len();
            // Compaction begins a new history; until then the next request of a session extends.
            let next = captures.iter().skip(at + 1).find(|next| {
                next.session == one.session
                    && !next.request.tools.names.is_empty()
                    && next.request.messages.len() > length
                    && next.heads.get(1..3) == one.heads.get(1..3)
            });
            let Some(next) = next else { continue };
            assert_eq!(
                next.heads.get(length),
                one.heads.last(),
                "{agent} request {at}"
            );
            answers(agent, one, next);
            extended += 1;
        }
    }
    println!("{extended} requests extend the one before them");
}

/// The answer to a request comes back with the digest of what was handed out.
fn answers(agent: &str, one: &Captured, next: &Captured) {
    let planned = one.plan["calls"].as_array().cloned().unwrap_or_default();
    if planned.len() != one.ids.len() || planned.is_empty() {
        return;
    }
    let at = one.request.messages.len();
    let back = Dialect::Chat.parse(next.request.message(at)).unwrap();
    let calls: Vec<ParsedCall<'_>> = planned
        .iter()
        .zip(&one.ids)
        .map(|(call, id)| ParsedCall {
            id: id.as_str().into(),
            name: call[0].as_str().unwrap().into(),
            arguments: masked(call[1].as_str().unwrap()).into(),
        })
        .collect();
    let text = back.parts.iter().find_map(|part| match part {
        message::Part::Text(text) => Some(text.to_string()),
        message::Part::Quoted(_)
        | message::Part::Image { .. }
        | message::Part::Picture(_)
        | message::Part::Other(_) => None,
    });
    let handed = Dialect::Chat.canonical_of_answer(text.as_deref().unwrap_or_default(), &calls);
    assert_eq!(
        handed,
        back.canonical,
        "{agent}: {}",
        String::from_utf8_lossy(next.request.message(at))
    );
    assert_eq!(next.shapes[at].canonical, handed);
}

/// The captures name the agent's directory otherwise in requests than in plans.
fn masked(arguments: &str) -> String {
    let (plan, sent) = ("/tmp/research/agents", "/home/dev");
    let escaped = |path: &str| path.replace('/', "\\/");
    arguments
        .replace(plan, sent)
        .replace(&escaped(plan), &escaped(sent))
}
