//! How many keys a look-up reads, and what it finds by those few.

use std::cell::Cell;

use bytes::Bytes;
use plimsoll_core::turn::ending::named;
use plimsoll_model::{CallId, CallShape, Parent};
use plimsoll_store::{Batch, Link, Store, memory::Memory};

use super::*;
use crate::history::Patience;
use crate::record::StoreOp;

const TENANT: TenantId = TenantId(Digest([1; 32]));

fn shape(role: Role, said: u64) -> Arc<Shape> {
    let call = CallShape {
        id: CallId(format!("call_{said}")),
        name: "bash".to_owned(),
        tokens: 9,
        digest: said,
    };
    Arc::new(Shape {
        role,
        canonical: Digest::of(&[&said.to_le_bytes()]),
        nameless: Digest::of(&[&said.to_le_bytes()]),
        calls: if role == Role::Assistant {
            vec![call]
        } else {
            vec![]
        },
        result_of: None,
        text: 1,
        reasoning: 0,
        opaque: false,
        whole: false,
        blank: false,
    })
}

/// A history of so many turns, and one message more; from turn `edited` on it is another one.
fn history(turns: u64, edited: u64) -> Vec<Arc<Shape>> {
    let said = |turn: u64| {
        if turn < edited {
            turn
        } else {
            turn + (1 << 40)
        }
    };
    let turns = (0..turns).flat_map(|turn| {
        let said = said(turn) * 2;
        [shape(Role::User, said), shape(Role::Assistant, said + 1)]
    });
    turns.chain([shape(Role::User, u64::MAX)]).collect()
}

/// A store that holds a session of so many turns.
fn served(turns: u64) -> Store {
    served_with_ids(turns).0
}

/// The same, and the records of the turns.
fn served_with_ids(turns: u64) -> (Store, Vec<RecordId>) {
    let store = Store::Memory(Memory::default());
    let shapes = history(turns, u64::MAX);
    let heads = chain::heads(TENANT, &shapes);
    let (mut path, mut ids) = (Path::default(), Vec::new());
    for turn in 0..u32::try_from(turns).unwrap() {
        let position = turn * 2 + 1;
        let mut batch = Batch::default();
        let parent = match path.entries.last() {
            None => Parent::Root,
            Some(entry) if turn % 32 > 0 => Parent::Record(entry.id),
            Some(_) => {
                let bytes = Bytes::from(rmp_serde::to_vec_named(&path.snapshot()).unwrap());
                let id = plimsoll_model::blob_id(&bytes);
                batch.blobs.push((id, bytes));
                Parent::Snapshot(id)
            }
        };
        let record = TurnRecord {
            parent,
            turn: turn + 1,
            position,
            visible: shapes[position as usize].canonical,
            ..TurnRecord::default()
        };
        let (id, bytes) = named(&record);
        batch.blobs.push((id.0, bytes));
        let key = RecordKey::After(heads[position as usize + 1]);
        batch.links.push(Link {
            key: key.digest(TENANT, &Scope::default()),
            id: id.0,
            turn,
        });
        drop(store.commit(batch));
        ids.push(id);
        path.push(id, Arc::new(record));
    }
    (store, ids)
}

/// What is found of a history, and how many readings that took.
fn find(
    store: &Store,
    shapes: &[Arc<Shape>],
    patience: &Patience,
) -> (Result<usize, FindError>, usize) {
    let heads = chain::heads(TENANT, shapes);
    let read = Cell::new(0);
    let told = |op, _| read.set(read.get() + usize::from(op == StoreOp::Links));
    let reads = Reads::new(store, &told).while_waited_for(patience);
    let request = PathQuery {
        tenant: TENANT,
        scope: &Scope::default(),
        shapes,
        heads: &heads,
        text: &|_| None,
    };
    let found = locate(&reads, &Paths::default(), &request);
    (found.map(|path| path.covered()), read.get())
}

/// Twice all of the newest and the few behind them, and twice the newest answers: without ids, and as anchors.
const READINGS: usize = 2 * (NEWEST_HEADS / HEADS_AT_ONCE + 24 + NEWEST_ANSWERS / HEADS_AT_ONCE);

#[test]
fn a_history_that_nothing_is_known_of_costs_few_look_ups_however_long_it_is() {
    let store = Store::Memory(Memory::default());
    let (_waiting, patience) = Patience::new();
    for turns in [100_u64, 5_000, 50_000] {
        let (found, read) = find(&store, &history(turns, 0), &patience);
        assert_eq!(found.unwrap(), 0);
        assert!(read <= READINGS, "{turns} turns: {read}");
    }
}

#[test]
fn the_newest_known_head_is_found_however_far_back_a_client_has_edited() {
    const TURNS: u64 = 700;
    let store = served(TURNS);
    let (_waiting, patience) = Patience::new();
    for edited in (0..=TURNS).step_by(33).chain([1, 2, TURNS - 1]) {
        let (found, read) = find(&store, &history(TURNS, edited), &patience);
        assert_eq!(
            found.unwrap() as u64,
            edited * 2,
            "edited from turn {edited} on"
        );
        assert!(
            read <= READINGS + 64,
            "edited from turn {edited} on: {read}"
        );
    }
}

#[test]
fn a_look_up_stops_where_nobody_waits_any_more() {
    let store = served(40);
    let (waiting, patience) = Patience::new();
    drop(waiting);
    let (found, read) = find(&store, &history(40, 20), &patience);
    assert!(matches!(found, Err(FindError::Late)));
    assert_eq!(read, 0);
}

/// A history whose first message a client changed, so that no head of it is known. From the newest answer
/// on, the answers have this many calls, again and again.
fn reworded(turns: u64, calls: &[u64]) -> Vec<Arc<Shape>> {
    let mut shapes = history(turns, u64::MAX);
    shapes[0] = shape(Role::User, 1 << 41);
    let answers = shapes.iter_mut().rev();
    let answers = answers.filter(|shape| shape.role == Role::Assistant);
    for (answer, calls) in answers.zip(calls.iter().cycle()) {
        let answer = Arc::make_mut(answer);
        let call = answer.calls.pop().unwrap();
        answer.calls = (0..*calls)
            .map(|number| CallShape {
                id: CallId(format!("{}_{number}", call.id.0)),
                ..call.clone()
            })
            .collect();
    }
    shapes
}

#[test]
fn the_newest_answer_whose_call_is_known_is_found_in_whichever_reading_it_is() {
    const TURNS: usize = 80;
    let (_waiting, patience) = Patience::new();
    for calls in [&[1][..], &[63, 1, 2], &[64, 1], &[90, 3, 30]] {
        let shapes = reworded(TURNS as u64, calls);
        for known in [
            &[0][..],
            &[7],
            &[8],
            &[63],
            &[64],
            &[3, 5],
            &[7, 8],
            &[9, 64],
        ] {
            let (store, ids) = served_with_ids(TURNS as u64);
            let mut batch = Batch::default();
            for before in known {
                let turn = TURNS - 1 - before;
                let answer = &shapes[turn * 2 + 1];
                let last = answer.calls.iter().take(ANCHOR_CALLS).next_back().unwrap();
                let key = RecordKey::Call(&last.id, &last.name);
                batch.links.push(Link {
                    key: key.digest(TENANT, &Scope::default()),
                    id: ids[turn].0,
                    turn: u32::try_from(turn).unwrap(),
                });
            }
            drop(store.commit(batch));
            let newest = known[0];
            let wanted = if newest < NEWEST_ANSWERS {
                (TURNS - newest) * 2
            } else {
                0
            };
            let (found, _) = find(&store, &shapes, &patience);
            assert_eq!(found.unwrap(), wanted, "{calls:?} calls, known {known:?}");
        }
    }
}
