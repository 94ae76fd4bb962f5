//! The rules of the API, held under random conversations and random edits of them: of units left
//! out, answers edited, results replaced, hidden hops and hidden calls put in.

use plimsoll_model::Role;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{body, request};
use crate::answer::Call;
use crate::edit::{AssistantEdit, Insert};
use crate::messages::edit::{assistant, result};
use crate::messages::form::{self, hidden_result};
use crate::messages::message::parse;
use crate::request::{Addition, Breakpoint, Splice};

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
    /// Whether its markers are kept for an hour, if all before it are.
    long: bool,
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
    let marked = prop::bool::weighted(0.25);
    let turn = (any::<[bool; 6]>(), marked, 0..4_usize, 0..3_u8);
    let turn = turn.prop_map(|(flags, marked, calls, behind)| {
        let [thinking, text, plain, system, long, turned] = flags;
        Turn {
            thinking,
            text: text || calls == 0,
            calls,
            plain,
            behind,
            system,
            marked,
            long,
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

fn marker(block: &mut Value, turn: &Turn) {
    if turn.marked {
        block["cache_control"] = match turn.long {
            true => json!({"type": "ephemeral", "ttl": "1h"}),
            false => json!({"type": "ephemeral", "ttl": "5m"}),
        };
    }
}

/// What the client sends. The texts of users and systems are numbered.
fn client(turns: &[Turn]) -> String {
    let mut messages = vec![json!({"role": "user", "content": "user first"})];
    let long = turns.iter().take_while(|turn| turn.long).count();
    for (at, turn) in turns.iter().enumerate() {
        let turn = &Turn {
            long: at < long,
            ..turn.clone()
        };
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
    marker(blocks.last_mut().unwrap(), turn);
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
    marker(blocks.last_mut().unwrap(), turn);
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
    splice: &mut (dyn Splice + '_),
    unit: usize,
    bytes: &[u8],
    at: usize,
    fate: &Fate,
) -> Vec<bool> {
    for (hop, whole) in fate.hops.iter().enumerate() {
        let id = format!("t{at}o{hop}");
        if *whole {
            let message = format!(r#"{{"role":"assistant","content":[{}]}}"#, hidden(&id));
            splice.add(Addition::Hop, message.as_bytes());
            splice.add(Addition::Result, &hidden_result(&id, "ok", &[]));
        } else {
            splice.add(
                Addition::Hop,
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
        bytes,
        ..Insert::default()
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
        splice.add(
            Addition::Result,
            &hidden_result(&format!("t{at}h{n}"), "ok", &[]),
        );
    }
    fate.keep.to_vec()
}

/// The body after all fates.
fn lived(text: &str, fates: &[Fate]) -> String {
    marked(text, fates, &[], 0)
}

/// The body after all fates with breakpoints, each before a unit.
fn marked(text: &str, fates: &[Fate], breakpoints: &[(Breakpoint, usize)], max: usize) -> String {
    let request = request(text);
    let mut splice = request.splice();
    splice.allow(max);
    let (mut turn, mut kept) = (0, Vec::new());
    for unit in 0..request.messages.len() {
        for (what, _) in breakpoints.iter().filter(|(_, at)| *at == unit) {
            splice.breakpoint(*what);
        }
        let bytes = request.message(unit);
        let parsed = parse(bytes).unwrap();
        match parsed.role {
            Role::Assistant => {
                kept = put_answer(&mut *splice, unit, bytes, turn, &fates[turn]);
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
    splice.breakpoint(Breakpoint::Tail);
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

/// The markers of a list in order, each with the block that has it; that block without it.
fn markers(messages: &[Value]) -> Vec<(Value, Value)> {
    let blocks = messages.iter().flat_map(blocks);
    let marked = blocks.filter_map(|mut block| {
        let marker = block.as_object_mut()?.remove("cache_control")?;
        Some((block, marker))
    });
    marked.collect()
}

/// What the API demands of markers.
fn judge_markers(markers: &[(Value, Value)]) -> Result<(), String> {
    if markers.len() > 4 {
        return Err(format!("{} markers", markers.len()));
    }
    let mut short = false;
    for (block, marker) in markers {
        let bare = block["type"] == "text" && block["text"].as_str().unwrap().is_empty();
        if bare || block["type"].as_str().unwrap().contains("thinking") {
            return Err(format!("a marker on {block}"));
        }
        let hour = marker["ttl"] == "1h";
        if hour && short {
            return Err("an hour behind minutes".to_owned());
        }
        short |= !hour;
    }
    Ok(())
}

/// A list without its markers, all contents as blocks.
fn bare(messages: &[Value]) -> Vec<Value> {
    let bare = |message: &Value| {
        let mut blocks = blocks(message);
        for block in &mut blocks {
            block.as_object_mut().unwrap().remove("cache_control");
        }
        json!({"role": message["role"], "content": blocks})
    };
    messages.iter().map(bare).collect()
}

fn breakpoints() -> impl Strategy<Value = Vec<(Breakpoint, usize)>> {
    let what = prop_oneof![
        Just(Breakpoint::Prologue),
        Just(Breakpoint::Cut),
        Just(Breakpoint::Cut)
    ];
    prop::collection::vec((what, 0..24_usize), 0..5)
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

    #[test]
    fn breakpoints_change_nothing_but_where_the_cache_may_end(
        turns in turns(),
        wanted in breakpoints(),
        max in 1..5_usize,
    ) {
        let (turns, fates): (Vec<Turn>, Vec<Fate>) = turns.into_iter().unzip();
        let sent = client(&turns);
        let plain = messages(&lived(&sent, &fates));
        let text = marked(&sent, &fates, &wanted, max);
        let view = messages(&text);
        prop_assert_eq!(bare(&view), bare(&plain));
        prop_assert_eq!(judge(&view), Ok(()));
        let (own, all) = (markers(&plain), markers(&view));
        let mut left = all.iter();
        for one in &own {
            prop_assert!(left.any(|kept| kept == one), "the client's {:?} in {}", one, text);
        }
        prop_assert!(all.len() <= own.len().max(max));
        if judge_markers(&own).is_ok() {
            prop_assert_eq!(judge_markers(&all), Ok(()), "{}", text);
        }
        // Where the client sets none and there is room, its tail is marked.
        prop_assert!(!own.is_empty() || !all.is_empty());
        prop_assert_eq!(marked(&sent, &fates, &wanted, max), text);
    }
}
