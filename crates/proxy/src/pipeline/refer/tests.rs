//! What is read to find items that a request names, and which of several with one id it is.

use std::cell::{Cell, RefCell};

use plimsoll_model::blob_id;
use plimsoll_store::{Batch, Store, memory::Memory};
use serde_json::json;

use super::super::erasing::Began;
use super::*;
use crate::history::{Patience, Waiting};
use crate::record::StoreOp;

const TENANT: TenantId = TenantId(Digest([1; 32]));
const CAP: usize = 1 << 20;

fn scope() -> Scope {
    Scope("session".to_owned())
}

/// An answer's message with items of these ids, which say `text`.
fn message(ids: &[String], text: &str) -> Bytes {
    let item = |id: &String| {
        json!({"type": "function_call", "id": id, "call_id": id, "name": "read", "arguments": text})
            .to_string()
    };
    let items: Vec<String> = ids.iter().map(item).collect();
    items.join(",").into()
}

/// Keeps a message of this turn under the ids of its items.
fn keep(store: &Store, scope: &Scope, turn: u32, message: &Bytes) {
    let id = blob_id(message);
    let mut batch = Batch {
        blobs: vec![(id, message.clone())],
        ..Batch::default()
    };
    for (name, _) in Dialect::Responses.items(message) {
        let item = item_key(TENANT, Dialect::Responses, &name);
        let keys = [item, own_key(TENANT, item, scope)];
        batch
            .links
            .extend(keys.into_iter().map(|key| Link { key, id, turn }));
    }
    drop(store.commit(batch));
}

/// As [`look_until`] for somebody who waits as long as it takes.
fn look(
    store: &Store,
    ids: &[String],
    patience: &Patience,
) -> (Result<Vec<String>, FindError>, [usize; 2]) {
    look_until(store, ids, patience, usize::MAX, &RefCell::default())
}

/// The arguments of the items that a request for these finds, nothing if one of them is lost; and how many
/// sets and messages were read one after the other. After so many nobody waits any more.
fn look_until(
    store: &Store,
    ids: &[String],
    patience: &Patience,
    most: usize,
    waiting: &RefCell<Option<Waiting>>,
) -> (Result<Vec<String>, FindError>, [usize; 2]) {
    let named = |id: &String| json!({"type": "item_reference", "id": id});
    let input: Vec<_> = ids.iter().map(named).collect();
    let body = json!({"model": "gpt-5", "input": input}).to_string();
    let request = Dialect::Responses.decode(body.into()).unwrap();
    let (links, blobs) = (Cell::new(0), Cell::new(0));
    let told = |op, _| {
        let read = if op == StoreOp::Links { &links } else { &blobs };
        read.set(read.get() + 1);
        if links.get() + blobs.get() >= most {
            drop(waiting.take());
        }
    };
    let reads = Reads::new(store, &told).while_waited_for(patience);
    let found = look_up(&reads, (TENANT, &scope()), &request, CAP);
    let said = |item: &Bytes| {
        let item: serde_json::Value = serde_json::from_slice(item).unwrap();
        item["arguments"].as_str().unwrap().to_owned()
    };
    let found = found.map(|found| match found {
        LookedUp::Found(found) => found.found.items.iter().map(said).collect(),
        LookedUp::Lost(_) => Vec::new(),
    });
    (found, [links.get(), blobs.get()])
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("fc_{number}")).collect()
}

/// A turn that brings thousands of items at once would cost the store as many keys.
#[test]
fn the_newest_items_of_a_turn_are_linked() {
    let messages: Vec<(Digest, Bytes)> = (0..1_000)
        .map(|number| message(&[format!("msg_{number}")], "x"))
        .chain([message(&ids(20), "answer")])
        .map(|bytes| (blob_id(&bytes), bytes))
        .collect();
    let place = RecordPlace::new(
        TENANT,
        (scope(), None),
        Dialect::Responses,
        Began::default(),
    );
    let kept = StoredContent {
        id: Digest([2; 32]),
        messages,
    };
    let record = RecordId(Digest([3; 32]));
    let links = links(&place, Dialect::Responses, ("resp_1", record, 7), &kept);
    assert_eq!(links.len(), 1 + 2 * LINKED_ITEMS);
    let is_linked = |id: &str| {
        let key = item_key(TENANT, Dialect::Responses, id);
        let keys = [key, own_key(TENANT, key, &scope())];
        keys.map(|key| links.iter().any(|link| link.key == key && link.turn == 7))
    };
    assert_eq!(is_linked("fc_0"), [true; 2]);
    assert_eq!(is_linked("fc_19"), [true; 2]);
    assert_eq!(is_linked("msg_999"), [true; 2]);
    assert_eq!(is_linked("msg_0"), [false; 2]);
}

#[test]
fn a_message_is_read_once_for_all_its_items() {
    let store = Store::Memory(Memory::default());
    let (_waiting, patience) = Patience::new();
    let ids = ids(300);
    keep(&store, &scope(), 1, &message(&ids, "x"));
    let (found, read) = look(&store, &ids, &patience);
    assert_eq!(found.unwrap(), vec!["x"; ids.len()]);
    assert_eq!(read, [ids.len().div_ceil(ITEMS_AT_ONCE), 1]);
}

#[test]
fn of_many_items_with_one_id_the_newest_of_the_session_is_found() {
    let store = Store::Memory(Memory::default());
    let (_waiting, patience) = Patience::new();
    let ids = ids(1);
    for turn in 1..=1_100 {
        keep(
            &store,
            &scope(),
            turn,
            &message(&ids, &format!("own {turn}")),
        );
        let other = message(&ids, &format!("other {turn}"));
        keep(&store, &Scope("another".to_owned()), turn + 5, &other);
    }
    let (found, read) = look(&store, &ids, &patience);
    assert_eq!(found.unwrap(), ["own 1100"]);
    assert_eq!(read, [1, 1]);
}

/// A short request may name an item of each of many long messages.
#[test]
fn no_more_is_read_than_a_few_times_the_longest_body() {
    let store = Store::Memory(Memory::default());
    let (_waiting, patience) = Patience::new();
    let ids = ids(64);
    let long = "x".repeat(CAP / 2);
    for (turn, id) in (1..).zip(&ids) {
        let of_one = [id.clone()];
        keep(&store, &scope(), turn, &message(&of_one, "short"));
        // Newer, and without the item, as a store that gives one id twice may have it.
        let other = message(&[format!("{id} no more")], &long);
        let link = own_key(TENANT, item_key(TENANT, Dialect::Responses, id), &scope());
        let blob = blob_id(&other);
        drop(store.commit(Batch {
            blobs: vec![(blob, other)],
            links: vec![Link {
                key: link,
                id: blob,
                turn: turn + 100,
            }],
            ..Batch::default()
        }));
    }
    let (found, read) = look(&store, &ids, &patience);
    assert_eq!(found.unwrap(), [""; 0]);
    assert!(read[1] <= 4 * READ_TIMES, "{read:?}");
    let few = &ids[..3];
    assert_eq!(look(&store, few, &patience).0.unwrap(), ["short"; 3]);
}

#[test]
fn a_look_up_of_items_stops_where_nobody_waits_any_more() {
    let store = Store::Memory(Memory::default());
    let (waiting, patience) = Patience::new();
    keep(&store, &scope(), 1, &message(&ids(300), "x"));
    // In the middle of it, and before it begins.
    let waiting = RefCell::new(Some(waiting));
    for most in [3, 0] {
        let (found, read) = look_until(&store, &ids(300), &patience, most, &waiting);
        assert!(matches!(found, Err(FindError::Late)));
        assert_eq!(read.iter().sum::<usize>(), most);
    }
}
