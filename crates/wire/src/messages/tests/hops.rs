//! A turn of several hops on its way out and back: what goes up again is each answer exactly as it
//! was made, whatever of it was hidden.

use bytes::Bytes;
use plimsoll_model::Handed;
use proptest::prelude::*;
use serde_json::Value;

use super::edits::record;
use crate::answer::{Answer, Block, BlockKind, Call};
use crate::edit::{AssistantEdit, Cut, Insert};
use crate::messages::edit::{assistant, handed};
use crate::messages::form;

/// What an answer is made of.
#[derive(Clone, Copy, Debug)]
enum Made {
    Thought,
    Sealed,
    Said,
    Hidden,
    Visible,
}

fn made(calls: impl Strategy<Value = Made>) -> impl Strategy<Value = Vec<Made>> {
    let block = prop_oneof![
        2 => Just(Made::Thought),
        1 => Just(Made::Sealed),
        2 => Just(Made::Said),
        3 => calls,
    ];
    prop::collection::vec(block, 0..6)
}

/// Earlier hops, whose calls are hidden, and the last.
fn turn() -> impl Strategy<Value = (Vec<Vec<Made>>, Vec<Made>)> {
    let last = prop_oneof![Just(Made::Hidden), Just(Made::Visible)];
    (
        prop::collection::vec(made(Just(Made::Hidden)), 0..3),
        made(last),
    )
}

fn answer(hop: usize, made: &[Made]) -> Answer {
    let mut answer = Answer::default();
    for (at, made) in made.iter().enumerate() {
        let (kind, raw) = match made {
            Made::Thought => (
                BlockKind::Reasoning,
                format!(r#"{{"type":"thinking","thinking":"","signature":"s{hop}.{at}"}}"#),
            ),
            Made::Sealed => (
                BlockKind::Reasoning,
                format!(r#"{{"type":"redacted_thinking","data":"d{hop}.{at}"}}"#),
            ),
            Made::Said => (
                BlockKind::Text,
                format!(r#"{{"type":"text","text":"t{hop}.{at}"}}"#),
            ),
            Made::Hidden | Made::Visible => {
                answer.calls.push(Call {
                    id: format!("c{hop}.{at}"),
                    name: "n".to_owned(),
                    arguments: "{}".to_owned(),
                    kind: "tool_use".to_owned(),
                    extra: Vec::new(),
                    hidden: matches!(made, Made::Hidden),
                    complete: true,
                });
                let call = answer.calls.len() - 1;
                (BlockKind::Call(call), form::call(&answer.calls[call]))
            }
        };
        let raw = Bytes::from(raw);
        answer.blocks.push(Block { kind, raw });
    }
    answer
}

/// The last hop's message as it goes up, made of the client's unit and the record.
fn back(unit: &[u8], earlier: &[String], last: &Answer) -> (Handed, Bytes) {
    let hops: Vec<&str> = earlier.iter().map(String::as_str).collect();
    let relation = handed(unit, &record(&hops, false, ""));
    let calls: Vec<(usize, String)> = last
        .hidden_calls()
        .map(|(place, call)| (place, form::call(call)))
        .collect();
    let insert = calls.iter().map(|(place, bytes)| Insert {
        place: *place,
        block: last.block_of(*place),
        bytes,
        ..Insert::default()
    });
    let hops = if relation == Handed::Split {
        hops
    } else {
        Vec::new()
    };
    let edit = AssistantEdit {
        cut: Cut { text: "", hops },
        insert: insert.collect(),
        ..AssistantEdit::default()
    };
    (relation, assistant(unit, &edit).unwrap())
}

/// A message without its reasoning, and its calls alone.
fn less(message: &[u8]) -> (usize, Vec<Value>) {
    let message: Value = serde_json::from_slice(message).unwrap();
    let blocks = message["content"].as_array().unwrap();
    let of = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
    (of("text").count(), of("tool_use").cloned().collect())
}

proptest! {
    #[test]
    fn what_was_handed_out_goes_up_as_it_was_made((earlier, last) in turn()) {
        let answers: Vec<Answer> = earlier
            .iter()
            .chain([&last])
            .enumerate()
            .map(|(hop, made)| answer(hop, made))
            .collect();
        let (last, earlier) = answers.split_last().unwrap();
        let says = |block: &Block| block.kind != BlockKind::Reasoning;
        prop_assume!(last.blocks.iter().any(says));
        let messages: Vec<String> = earlier
            .iter()
            .map(|answer| String::from_utf8(form::message(answer).to_vec()).unwrap())
            .collect();
        let unit = form::visible(&answers, None);
        let (relation, up) = back(&unit, &messages, last);
        prop_assert_eq!(&up, &form::message(last));
        let shown = |block: &Block| !matches!(block.kind, BlockKind::Call(_));
        let split = earlier.iter().flat_map(|answer| &answer.blocks).any(shown);
        prop_assert_eq!(relation, if split { Handed::Split } else { Handed::Nothing });
    }

    #[test]
    fn a_client_may_leave_reasoning_out((earlier, last) in turn()) {
        let mut answers: Vec<Answer> = earlier
            .iter()
            .chain([&last])
            .enumerate()
            .map(|(hop, made)| answer(hop, made))
            .collect();
        let messages: Vec<String> = answers
            .iter()
            .take(earlier.len())
            .map(|answer| String::from_utf8(form::message(answer).to_vec()).unwrap())
            .collect();
        let whole = answers.last().unwrap().clone();
        for answer in &mut answers {
            answer.blocks.retain(|block| block.kind != BlockKind::Reasoning);
        }
        prop_assume!(!answers.last().unwrap().blocks.is_empty());
        let (_, up) = back(&form::visible(&answers, None), &messages, &whole);
        prop_assert_eq!(less(&up), less(&form::message(&whole)));
    }
}
