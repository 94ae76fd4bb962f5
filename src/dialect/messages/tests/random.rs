//! The rules of the API, held under random conversations and random edits of them: of units left
//! out, answers edited, results replaced, hidden hops and hidden calls put in.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{body, request};
use crate::dialect::answer::Call;
use crate::dialect::edit::{AssistantEdit, Insert};
use crate::dialect::messages::edit::{assistant, hidden_result, result};
use crate::dialect::messages::form;
use crate::dialect::messages::message::parse;
use crate::dialect::splice::{Own, Splice};
use crate::model::Role;

/// One turn of the client's, and the messages behind it.
#[derive(Clone, Debug)]
struct Turn {
    thinking: bool,
    text: bool,
    calls: usize,
    /// Whether the answer, if it is text alone, and the user's words are strings.
    plain: bool,
    /// What stands behind the results: nothing, a reminder, or the user's words.
    behind: u8,
    /// Whether a system message follows.
    system: bool,
    marked: bool,
    /// Whether results stand in another order than their calls.
    turned: bool,
}

/// What becomes of a turn.
#[derive(Clone, Debug)]
struct Fate {
    gone: bool,
    drop_text: bool,
    drop_reasoning: bool,
    keep: [bool; 3],
    masked: bool,
    /// Hidden hops before it, and whether the calls of each are still there.
    hops: Vec<bool>,
    /// Places of hidden calls among its calls.
    hidden: Vec<usize>,
}

fn turns() -> impl Strategy<Value = Vec<(Turn, Fate)>> {
    let turn = (any::<[bool; 6]>(), 0..4_usize, 0..3_u8).prop_map(|(flags, calls, behind)| {
        let [thinking, text, plain, system, marked, turned] = flags;
        Turn {
            thinking,
            text: text || calls == 0,
            calls,
            plain,
            behind,
            system,
            marked,
            turned,
        }
    });
    let fate = (
        prop::bool::weighted(0.3),
        any::<[bool; 3]>(),
        any::<[bool; 3]>(),
        prop::collection::vec(any::<bool>(), 0..3),
        prop::collection::vec(0..4_usize, 0..3),
    )
        .prop_map(
            |(gone, [drop_text, drop_reasoning, masked], keep, hops, hidden)| Fate {
                gone,
                drop_text,
                drop_reasoning,
                keep,
                masked,
                hops,
                hidden,
            },
        );
    prop::collection::vec((turn, fate), 1..6)
}

fn marker(block: &mut Value, marked: bool) {
    if marked {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
}

/// What the client sends. The texts of users and systems are numbered.
fn client(turns: &[Turn]) -> String {
    let mut messages = vec![json!({"role": "user", "content": "user first"})];
    for (at, turn) in turns.iter().enumerate() {
        messages.push(answer(at, turn));
        let words = json!({"type": "text", "text": format!("user {at}")});
        let content = match (turn.calls, turn.plain) {
            (0, true) => words["text"].clone(),
            (0, false) => json!([words]),
            _ => results(at, turn, words),
        };
        messages.push(json!({"role": "user", "content": content}));
        if turn.system {
            messages.push(json!({"role": "system", "content": format!("system {at}")}));
        }
    }
    json!({"messages": messages, "max_tokens": 9}).to_string()
}

fn answer(at: usize, turn: &Turn) -> Value {
    let mut blocks = Vec::new();
    if turn.thinking {
        blocks.push(json!({"type": "thinking", "thinking": "hm", "signature": format!("s{at}")}));
    }
    if turn.text {
        blocks.push(json!({"type": "text", "text": format!("said {at}")}));
    }
    for call in 0..turn.calls {
        blocks.push(
            json!({"type": "tool_use", "id": format!("t{at}c{call}"), "name": "n", "input": {}}),
        );
    }
    marker(blocks.last_mut().unwrap(), turn.marked);
    match blocks.as_slice() {
        [only] if turn.plain && turn.text && !turn.marked => {
            json!({"role": "assistant", "content": only["text"]})
        }
        _ => json!({"role": "assistant", "content": blocks}),
    }
}

fn results(at: usize, turn: &Turn, words: Value) -> Value {
    let mut blocks: Vec<Value> = (0..turn.calls)
        .map(|call| json!({"type": "tool_result", "tool_use_id": format!("t{at}c{call}"), "content": "found"}))
        .collect();
    if turn.turned {
        blocks.reverse();
    }
    match turn.behind {
        0 => {}
        1 => blocks.push(json!({"type": "text", "text": format!("<system-reminder>{at}")})),
        _ => blocks.push(words),
    }
    marker(blocks.last_mut().unwrap(), turn.marked);
    json!(blocks)
}

fn hidden(id: &str) -> String {
    form::call(&Call {
        id: id.to_owned(),
        name: "delimiter".to_owned(),
        arguments: "{}".to_owned(),
        kind: "tool_use".to_owned(),
        extra: Vec::new(),
        hidden: true,
        complete: true,
    })
}

/// Puts in an answer and the hidden hops before it; which of its calls are still there.
fn put_answer(
    splice: &mut Splice<'_>,
    unit: usize,
    bytes: &[u8],
    at: usize,
    fate: &Fate,
) -> Vec<bool> {
    for (hop, whole) in fate.hops.iter().enumerate() {
        let id = format!("t{at}o{hop}");
        if *whole {
            let message = format!(r#"{{"role":"assistant","content":[{}]}}"#, hidden(&id));
            splice.own(Own::Hop, message.as_bytes());
            splice.own(Own::Result, &hidden_result(&id, "ok"));
        } else {
            splice.own(
                Own::Hop,
                br#"{"role":"assistant","content":[{"type":"text","text":"told"}]}"#,
            );
        }
    }
    if fate.gone {
        return vec![false; 3];
    }
    let calls: Vec<String> = (0..fate.hidden.len())
        .map(|n| hidden(&format!("t{at}h{n}")))
        .collect();
    let mut places = fate.hidden.clone();
    places.sort_unstable();
    let insert = calls.iter().zip(&places).map(|(bytes, place)| Insert {
        place: *place,
        block: None,
        bytes,
    });
    let edit = AssistantEdit {
        drop_text: fate.drop_text,
        drop_reasoning: fate.drop_reasoning,
        keep_calls: Some(fate.keep.to_vec()),
        insert: insert.collect(),
        ..AssistantEdit::default()
    };
    let edited = assistant(bytes, &edit).unwrap();
    if edited == bytes {
        splice.client(unit);
    } else if !edited.is_empty() {
        splice.edited(unit, &edited);
    }
    for n in 0..calls.len() {
        splice.own(Own::Result, &hidden_result(&format!("t{at}h{n}"), "ok"));
    }
    fate.keep.to_vec()
}

/// The body after all fates.
fn lived(text: &str, fates: &[Fate]) -> String {
    let request = request(text);
    let mut splice = request.splice();
    let (mut turn, mut kept) = (0, Vec::new());
    for unit in 0..request.messages.len() {
        let bytes = request.message(unit);
        let parsed = parse(bytes).unwrap();
        match parsed.role {
            Role::Assistant => {
                kept = put_answer(&mut splice, unit, bytes, turn, &fates[turn]);
                turn += 1;
            }
            Role::Tool => {
                let id = parsed.result_of.unwrap().0;
                let call: usize = id.split_once('c').unwrap().1.parse().unwrap();
                match (kept[call], fates[turn - 1].masked) {
                    (false, _) => {}
                    (true, true) => splice.edited(unit, &result(bytes, "stub").unwrap()),
                    (true, false) => splice.client(unit),
                }
            }
            Role::User | Role::System | Role::Other => splice.client(unit),
        }
    }
    body(&request, splice.close())
}

fn blocks(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        other => panic!("{other}"),
    }
}

fn ids(message: &Value, kind: &str, key: &str) -> Vec<String> {
    let mut ids: Vec<String> = blocks(message)
        .iter()
        .filter(|block| block["type"] == kind)
        .map(|block| block[key].as_str().unwrap().to_owned())
        .collect();
    ids.sort_unstable();
    ids
}

/// What the API demands of a list of messages.
fn judge(messages: &[Value]) -> Result<(), String> {
    let role = |at: usize| {
        messages
            .get(at)
            .map_or("end", |message| message["role"].as_str().unwrap())
    };
    for (at, message) in messages.iter().enumerate() {
        let blocks = blocks(message);
        let last = blocks.last().ok_or("an empty message")?;
        if blocks.iter().any(|block| block["text"] == "") {
            return Err("an empty text".to_owned());
        }
        let results = ids(message, "tool_result", "tool_use_id");
        match role(at) {
            "assistant" => {
                if role(at + 1) == "assistant" {
                    return Err(format!("two answers in a row at {at}"));
                }
                if ["thinking", "redacted_thinking"].contains(&last["type"].as_str().unwrap()) {
                    return Err(format!("an answer that ends in reasoning at {at}"));
                }
                let calls = ids(message, "tool_use", "id");
                let answered = match role(at + 1) {
                    "user" => ids(&messages[at + 1], "tool_result", "tool_use_id"),
                    _ => Vec::new(),
                };
                if calls != answered {
                    return Err(format!("calls {calls:?}, results {answered:?}"));
                }
            }
            "user" => {
                let behind = blocks
                    .iter()
                    .skip_while(|block| block["type"] == "tool_result");
                if behind
                    .into_iter()
                    .any(|block| block["type"] == "tool_result")
                {
                    return Err(format!("results are not first at {at}"));
                }
                if !results.is_empty() && (at == 0 || role(at - 1) != "assistant") {
                    return Err(format!("results without calls at {at}"));
                }
            }
            "system" => {
                let placed = at > 0
                    && role(at - 1) == "user"
                    && ["assistant", "end"].contains(&role(at + 1));
                if !placed {
                    return Err(format!("a system message at {at}"));
                }
            }
            other => return Err(format!("a role {other}")),
        }
    }
    Ok(())
}

/// The texts of a role but for the separators.
fn texts(messages: &[Value], role: &str) -> Vec<String> {
    messages
        .iter()
        .filter(|message| message["role"] == role)
        .flat_map(blocks)
        .filter_map(|block| block["text"].as_str().map(str::to_owned))
        .filter(|text| text != "[results evicted]")
        .collect()
}

fn messages(text: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(text).unwrap();
    body["messages"].as_array().unwrap().clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_rules_of_the_api_hold(turns in turns()) {
        let (turns, fates): (Vec<Turn>, Vec<Fate>) = turns.into_iter().unzip();
        let sent = client(&turns);
        judge(&messages(&sent)).expect("the client keeps to the rules");
        let view = lived(&sent, &fates);
        let (before, after) = (messages(&sent), messages(&view));
        prop_assert_eq!(judge(&after), Ok(()), "{}", view);
        for role in ["user", "system"] {
            prop_assert_eq!(texts(&before, role), texts(&after, role), "{}", view);
        }
        let markers = |text: &str| text.matches("cache_control").count();
        prop_assert!(markers(&view) <= markers(&sent));
        let again = lived(&sent, &fates);
        prop_assert_eq!(view, again);
    }

    #[test]
    fn what_is_left_alone_keeps_its_bytes(turns in turns()) {
        let turns: Vec<Turn> = turns.into_iter().map(|(turn, _)| turn).collect();
        let sent = client(&turns);
        let fate = Fate {
            gone: false,
            drop_text: false,
            drop_reasoning: false,
            keep: [true; 3],
            masked: false,
            hops: Vec::new(),
            hidden: Vec::new(),
        };
        prop_assert_eq!(&lived(&sent, &vec![fate; turns.len()]), &sent);
    }
}
