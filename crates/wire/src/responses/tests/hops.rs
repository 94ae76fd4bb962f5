//! Turns of several hops: whatever was said in them, the client's unit comes apart into the hops
//! as they were made.

use plimsoll_model::{Handed, StoredHop, TurnRecord};
use proptest::prelude::*;

use super::super::item::{self, ItemType};
use super::super::{edit, form};
use crate::answer::{Answer, Block, BlockKind, Call};
use crate::edit::{AssistantEdit, Cut, Insert};

/// What a model makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Thought,
    Text(&'static str),
    Hidden,
    Call,
}

fn answer(hop: usize, made: &[Made]) -> Answer {
    let mut answer = Answer::default();
    for (at, made) in made.iter().enumerate() {
        let id = format!("{hop}_{at}");
        let (kind, raw) = match made {
            Made::Thought => (
                BlockKind::Reasoning,
                format!(r#"{{"type":"reasoning","id":"rs_{id}"}}"#),
            ),
            Made::Text(text) => (
                BlockKind::Text,
                format!(
                    r#"{{"type":"message","id":"msg_{id}","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}"#
                ),
            ),
            Made::Hidden | Made::Call => (
                BlockKind::Call(answer.calls.len()),
                format!(
                    r#"{{"type":"function_call","id":"fc_{id}","call_id":"{id}","name":"f","arguments":"{{}}"}}"#
                ),
            ),
        };
        match made {
            Made::Thought => {}
            Made::Text(text) => answer.text.push_str(text),
            Made::Hidden | Made::Call => answer.calls.push(Call {
                id,
                name: "f".to_owned(),
                arguments: "{}".to_owned(),
                kind: "function_call".to_owned(),
                extra: Vec::new(),
                hidden: *made == Made::Hidden,
                complete: true,
            }),
        }
        let raw = raw.into();
        answer.blocks.push(Block { kind, raw });
    }
    answer
}

fn record(earlier: &[String]) -> TurnRecord {
    let hop = |message: Option<String>| StoredHop {
        message,
        ..StoredHop::default()
    };
    let hops = earlier.iter().cloned().map(Some).chain([None]);
    TurnRecord {
        turn: 1,
        position: 1,
        hops: hops.map(hop).collect(),
        tooled: true,
        ..TurnRecord::default()
    }
}

/// The unit as a client resends it that keeps neither reasoning nor ids.
fn bare(unit: &str) -> String {
    let items: Vec<serde_json::Value> = serde_json::from_str(&format!("[{unit}]")).unwrap();
    let items = items.into_iter().filter(|item| item["type"] != "reasoning");
    let items: Vec<String> = items
        .map(|mut item| {
            item.as_object_mut().unwrap().remove("id");
            item.to_string()
        })
        .collect();
    items.join(",")
}

/// The texts of a unit, and its calls by id.
fn outline(unit: &[u8]) -> (Vec<String>, Vec<String>) {
    let items = item::items(unit).unwrap();
    let of = |kind: fn(ItemType) -> bool| items.iter().filter(move |item| kind(item.kind));
    let texts = of(|kind| matches!(kind, ItemType::Message(_)));
    let calls = of(|kind| kind == ItemType::Call);
    (
        texts.map(item::ResponsesItem::said).collect(),
        calls
            .map(|item| item.call_id().unwrap().into_owned())
            .collect(),
    )
}

fn hop(last: bool) -> impl Strategy<Value = Vec<Made>> {
    let said = prop_oneof![
        Just(Made::Thought),
        Just(Made::Text("x")),
        Just(Made::Text("y"))
    ];
    let all = prop_oneof![said.clone(), Just(Made::Hidden), Just(Made::Call)];
    let earlier = prop_oneof![said, Just(Made::Hidden)];
    let (within, end) = if last {
        (all.boxed(), Made::Call)
    } else {
        (earlier.boxed(), Made::Hidden)
    };
    let begun = prop::collection::vec(within, 0..5);
    (begun, any::<bool>()).prop_map(move |(mut made, text)| {
        made.push(if last && text { Made::Text("z") } else { end });
        made
    })
}

proptest! {
    #[test]
    fn a_turn_comes_apart_into_its_hops(
        earlier in prop::collection::vec(hop(false), 0..3),
        last in hop(true),
        drops in any::<bool>(),
    ) {
        let mut answers: Vec<Answer> = earlier.iter().enumerate().map(|(at, made)| answer(at, made)).collect();
        let own = answer(9, &last);
        let stored = |answer: &Answer| String::from_utf8(form::message(answer).to_vec()).unwrap();
        let earlier_hops: Vec<String> = answers.iter().map(stored).collect();
        answers.push(own.clone());
        let unit = String::from_utf8(form::visible(&answers, None).to_vec()).unwrap();
        let unit = if drops { bare(&unit) } else { unit };
        let spoke = earlier.iter().flatten().any(|made| matches!(made, Made::Text(_)));
        let handed = edit::handed(unit.as_bytes(), &record(&earlier_hops));
        prop_assert_eq!(handed, if spoke { Handed::Split } else { Handed::Nothing });

        let hidden: Vec<(usize, String)> = own.hidden_calls().map(|(at, call)| (at, form::call(call))).collect();
        let insert = hidden.iter().map(|(at, bytes)| Insert { place: *at, block: own.block_of(*at), bytes, ..Insert::default() });
        let hops = if spoke { earlier_hops.iter().map(String::as_str).collect() } else { Vec::new() };
        let edit = AssistantEdit {
            cut: Cut { text: "", hops },
            insert: insert.collect(),
            ..AssistantEdit::default()
        };
        let made = edit::assistant(unit.as_bytes(), &edit).unwrap();
        prop_assert_eq!(outline(&made), outline(&form::message(&own)));

        // Where the client keeps all that it was shown, and was shown all, every item is in place.
        let shown = last.iter().rposition(|made| matches!(made, Made::Text(_) | Made::Call));
        let unseen = last.iter().skip(shown.unwrap_or(0)).any(|made| *made == Made::Thought);
        if !drops && !unseen {
            let form = |block: &Block| match block.kind {
                BlockKind::Call(at) if own.calls[at].hidden => form::call(&own.calls[at]),
                _ => String::from_utf8(block.raw.to_vec()).unwrap(),
            };
            let wanted: Vec<String> = own.blocks.iter().map(form).collect();
            prop_assert_eq!(made, wanted.join(","));
        }
    }
}
