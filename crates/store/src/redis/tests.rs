//! The store in a real server and in a real cluster: the laws of every store, and servers that hang,
//! are killed, have no memory or change their places.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_model::blob_id;
use proptest::prelude::*;

use super::super::batch::{Listed, MEMBERS};
use super::super::tests::{answers_as_memory_does, noise, operations, wait};
use super::super::{Link, Store};
use super::*;

#[path = "../../../../tests/servers/cluster.rs"]
mod cluster;
#[path = "../../../../tests/servers/redis.rs"]
mod servers;

mod faults;

use cluster::{RedisCluster, is_replica};
use servers::{RedisServer, are_here};

/// Settings for the server that all tests share, with names of keys that no other test uses. `None`
/// if there is none on this machine.
pub(in super::super) fn fresh() -> Option<StoreSettings> {
    static SERVER: OnceLock<Option<RedisServer>> = OnceLock::new();
    let server = SERVER.get_or_init(|| are_here().then(|| RedisServer::start(&[])));
    Some(settings(&server.as_ref()?.url()))
}

fn settings(url: &str) -> StoreSettings {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut settings = StoreSettings {
        backend: super::super::Backend::Redis,
        retry: Duration::ZERO,
        cache_mb: 8,
        ..StoreSettings::default()
    };
    settings.redis.urls = url.split(',').map(str::to_owned).collect();
    settings.redis.prefix = format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    settings
}

fn open(settings: &StoreSettings) -> Store {
    Store::open(settings).unwrap().store
}

fn batch(seed: u64) -> (Batch, Digest, Digest) {
    let bytes = noise(seed, 2_000);
    let (id, key) = (blob_id(&bytes), blob_id(&seed.to_le_bytes()));
    let batch = Batch {
        blobs: vec![(id, bytes)],
        links: vec![Link { key, id, turn: 7 }],
        ..Batch::default()
    };
    (batch, key, id)
}

/// Whether a store has what the seed names, link and blob.
fn has(store: &Store, seed: u64) -> bool {
    let (_, key, id) = batch(seed);
    store.links(&[key], Take::ALL).unwrap() == [[(7, id)]]
        && store.blobs(&[id]).unwrap() == [Some(noise(seed, 2_000))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_server_answers_as_memory_does(operations in operations()) {
        if let Some(settings) = fresh() {
            answers_as_memory_does(operations, false, &|| Store::open(&settings).unwrap())?;
        }
    }
}

/// What one process writes, another finds.
#[test]
fn stores_on_one_server_see_what_the_others_have_acknowledged() {
    let Some(settings) = fresh() else { return };
    let (one, two) = (open(&settings), open(&settings));
    for seed in 0..20 {
        wait(one.commit(batch(seed).0)).unwrap();
        assert!(has(&two, seed));
    }
    let mut elsewhere = settings.clone();
    elsewhere.redis.prefix.push('x');
    assert_eq!(
        open(&elsewhere).links(&[batch(0).1], Take::ALL).unwrap(),
        [vec![]]
    );
}

#[test]
fn a_turn_is_written_in_one_round_trip_and_found_in_one() {
    let Some(settings) = fresh() else { return };
    let (one, two) = (open(&settings), open(&settings));
    let (batch, key, id) = batch(1);
    wait(one.commit(batch)).unwrap();
    assert_eq!(one.health().write_trips, 1);
    // Whoever wrote it has it in memory, and asks only for the links.
    assert_eq!(one.links(&[key], Take::ALL).unwrap(), [[(7, id)]]);
    assert!(one.blobs(&[id]).unwrap()[0].is_some());
    assert_eq!(one.health().read_trips, 1);
    // Whoever did not needs the record as well, and reads it with the look whether it is there.
    assert_eq!(two.links(&[key], Take::ALL).unwrap(), [[(7, id)]]);
    assert!(two.blobs(&[id]).unwrap()[0].is_some());
    assert_eq!(two.health().read_trips, 2);
    assert_eq!(two.links(&[key], Take::ALL).unwrap(), [[(7, id)]]);
    assert_eq!(two.health().read_trips, 3);
}

/// Damage in the server is not taken for a value.
#[test]
fn a_value_that_is_not_what_was_written_is_absent() {
    let Some(settings) = fresh() else { return };
    let (writer, reader) = (open(&settings), open(&settings));
    let (batch, key, id) = batch(1);
    wait(writer.commit(batch)).unwrap();
    let client = redis::Client::open(settings.redis.urls[0].as_str()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let name = Keys::new(&settings.redis.prefix).blob(&id);
    let mut value: Vec<u8> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
    *value.last_mut().unwrap() ^= 1;
    redis::cmd("SET")
        .arg(&name)
        .arg(value)
        .exec(&mut connection)
        .unwrap();
    assert_eq!(reader.links(&[key], Take::ALL).unwrap(), [vec![]]);
    assert_eq!(reader.blobs(&[id]).unwrap(), [None]);
    assert_eq!(reader.health().mismatched, 2);
    // Whoever commits it again mends it.
    wait(writer.commit(self::batch(1).0)).unwrap();
    assert!(has(&reader, 1));
}

/// Redis itself removes what is old. What a session stands on is named again and lives on, and each
/// kind has an age of its own.
#[test]
fn each_kind_lives_as_long_as_it_is_to_be_kept() {
    let Some(mut settings) = fresh() else { return };
    let days = |days: u64| Duration::from_secs(days * DAY_SECONDS);
    settings.retention.records = Some(days(90));
    settings.retention.content = Some(days(10));
    let store = open(&settings);
    let (mut first, key, id) = batch(1);
    let session = blob_id(b"session");
    first.listed = Some(Listed {
        session,
        at: 1_800_000_000_000,
        id,
        row: Bytes::from_static(b"row"),
    });
    wait(store.commit(first)).unwrap();
    let (mut said, _, said_id) = batch(2);
    (said.kind, said.links) = (BatchKind::Content, Vec::new());
    wait(store.commit(said)).unwrap();
    let names = Keys::new(&settings.redis.prefix);
    let client = redis::Client::open(settings.redis.urls[0].as_str()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut days_of = |name: &[u8]| -> f64 {
        let seconds: f64 = redis::cmd("TTL").arg(name).query(&mut connection).unwrap();
        (seconds / DAY_SECONDS as f64).ceil()
    };
    assert_eq!(days_of(&names.blob(&id)), 91.0);
    assert_eq!(days_of(&names.links(&key)), 91.0);
    assert_eq!(days_of(&names.row(&session)), 91.0);
    assert_eq!(days_of(&names.blob(&said_id)), 11.0);
    // As if most of the time had passed.
    let mut expire = |name: &[u8], seconds: i64| {
        redis::cmd("EXPIRE")
            .arg(name)
            .arg(seconds)
            .exec(&mut connection)
            .unwrap();
    };
    expire(&names.blob(&id), 100);
    let (mut next, _, _) = batch(3);
    next.renewed = vec![id, blob_id(b"never written")];
    wait(store.commit(next)).unwrap();
    let mut connection = client.get_connection().unwrap();
    let left: u64 = redis::cmd("TTL")
        .arg(names.blob(&id))
        .query(&mut connection)
        .unwrap();
    assert!(left > days(90).as_secs());
    // Once it is gone, nothing leads to it, and the list does not show it.
    for name in [names.blob(&id), names.row(&session)] {
        redis::cmd("EXPIRE")
            .arg(name)
            .arg(0)
            .exec(&mut connection)
            .unwrap();
    }
    let other = open(&settings);
    assert_eq!(other.links(&[key], Take::ALL).unwrap(), [vec![]]);
    assert_eq!(other.sessions(None, 9).unwrap(), []);
    // A sweep takes what has expired out of the list, and the links that led there.
    let part = names.part(session.as_bytes()[0] / 16);
    let mut listed = || -> u64 {
        redis::cmd("ZCARD")
            .arg(&part)
            .query(&mut connection)
            .unwrap()
    };
    assert_eq!(listed(), 1);
    assert_eq!(other.sweep().unwrap(), 0);
    assert_eq!(listed(), 0);
    // Without an age what is named again lives for ever.
    settings.retention = Retention::default();
    let forever = open(&settings);
    let (mut again, key, _) = batch(4);
    wait(store.commit(again.clone())).unwrap();
    again.renewed = vec![said_id];
    wait(forever.commit(again)).unwrap();
    for name in [names.links(&key), names.blob(&said_id)] {
        let left: i64 = redis::cmd("TTL").arg(name).query(&mut connection).unwrap();
        assert_eq!(left, -1);
    }
}

/// All pages of the list, however its sessions are spread and however many have the same time.
#[test]
fn pages_leave_no_session_out() {
    let Some(settings) = fresh() else { return };
    let store = open(&settings);
    for number in 0..60u8 {
        // Most are in one part of the list.
        let mut session = [if number % 5 == 0 { 0x70 } else { 0x10 }; 32];
        session[31] = number;
        let listed = Listed {
            session: Digest(session),
            at: u64::from(number / 4),
            id: blob_id(b"id"),
            row: Bytes::from(vec![number, 0, 0]),
        };
        wait(store.commit(Batch {
            listed: Some(listed),
            ..Batch::default()
        }))
        .unwrap();
    }
    let whole = store.sessions(None, 99).unwrap();
    assert_eq!(whole.len(), 60);
    for most in 1..9 {
        let (mut pages, mut before) = (Vec::new(), None);
        while let Some(last) = {
            let page = store.sessions(before, most).unwrap();
            pages.extend(page.iter().cloned());
            page.last().map(Listed::place)
        } {
            before = Some(last);
        }
        assert_eq!(pages, whole, "{most} at a time");
    }
}

/// Whoever asks how the store is never waits for another who asks.
#[test]
fn the_state_of_the_store_is_asked_by_many_at_once() {
    let Some(settings) = fresh() else { return };
    let store = open(&settings);
    std::thread::scope(|scope| {
        for asker in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..5_000 {
                    match (asker + round) % 2 {
                        0 => drop(store.notes()),
                        _ => drop(store.health()),
                    }
                }
            });
        }
    });
    wait(store.commit(batch(1).0)).unwrap();
}

/// What somebody else wrote at one of our names fails the batch that meets it, and no other.
#[test]
fn a_name_that_is_taken_fails_one_batch() {
    let Some(settings) = fresh() else { return };
    let store = open(&settings);
    let client = redis::Client::open(settings.redis.urls[0].as_str()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let name = Keys::new(&settings.redis.prefix).links(&batch(3).1);
    redis::cmd("SET")
        .arg(name)
        .arg("foreign")
        .exec(&mut connection)
        .unwrap();
    let tickets: Vec<Ticket> = (0..6).map(|seed| store.commit(batch(seed).0)).collect();
    for (seed, ticket) in tickets.into_iter().enumerate() {
        let outcome = wait(ticket);
        assert_eq!(outcome.is_err(), seed == 3, "{seed}: {outcome:?}");
    }
    assert!([0, 1, 2, 4, 5].iter().all(|seed| has(&store, *seed)));
}

/// What is erased is gone, with the links that led there, and nothing else is.
#[test]
fn what_is_erased_is_gone_and_nothing_else() {
    let Some(settings) = fresh() else { return };
    let store = open(&settings);
    let row = |session: u64, id| Listed {
        session: blob_id(&session.to_be_bytes()),
        at: session,
        id,
        row: Bytes::from_static(b"row"),
    };
    for seed in 0..6 {
        let (mut batch, _, id) = batch(seed);
        batch.listed = Some(row(seed, id));
        wait(store.commit(batch)).unwrap();
    }
    // This one leads to nothing, as if its blob had been too old.
    let dangling = Link {
        key: batch(5).1,
        id: blob_id(b"gone"),
        turn: 1,
    };
    wait(store.commit(Batch {
        links: vec![dangling],
        ..Batch::default()
    }))
    .unwrap();
    let (_, _, id) = batch(2);
    let erased = HashSet::from([id, row(2, id).session, row(3, id).session]);
    assert_eq!(store.erase(erased).unwrap(), 1);
    for store in [store, open(&settings)] {
        assert_eq!(store.blobs(&[id]).unwrap(), [None]);
        assert!([0, 1, 3, 4, 5].iter().all(|seed| has(&store, *seed)));
        let listed = store.sessions(None, 9).unwrap();
        let times: Vec<u64> = listed.iter().map(|row| row.at).collect();
        assert_eq!(times, [5, 4, 1, 0]);
        let mut links = 0;
        let each = &mut |batch: Batch| {
            links += batch.links.len();
            Ok(())
        };
        store.each(each).unwrap();
        assert_eq!(links, 5);
        assert_eq!(store.sweep().unwrap(), 0);
    }
}

/// Links that lead to nothing do not hide those behind them.
#[test]
fn a_set_that_is_full_of_gone_blobs_is_read_on() {
    let Some(settings) = fresh() else { return };
    let store = open(&settings);
    let key = blob_id(b"key");
    let most = u32::try_from(MEMBERS).unwrap();
    let gone = |turn: u32| Link {
        key,
        id: blob_id(&turn.to_le_bytes()),
        turn,
    };
    let bytes = noise(1, 100);
    let id = blob_id(&bytes);
    let mut links: Vec<Link> = (0..2 * most).map(gone).collect();
    let live = Link {
        key,
        id,
        turn: 3 * most,
    };
    links.push(live);
    // From its other end, too.
    let high = blob_id(b"high");
    let first = Link {
        key: high,
        id,
        turn: 0,
    };
    links.push(first);
    links.extend(
        (1..2 * most)
            .map(gone)
            .map(|link| Link { key: high, ..link }),
    );
    // A second set that has to be read on, with more that is stored.
    let other = blob_id(b"other");
    links.extend((0..100).map(gone).map(|link| Link { key: other, ..link }));
    links.extend((200..203).map(|turn| Link {
        key: other,
        id,
        turn,
    }));
    wait(store.commit(Batch {
        blobs: vec![(id, bytes)],
        links,
        ..Batch::default()
    }))
    .unwrap();
    for few in [1, 65, MEMBERS] {
        let sets = store
            .links(&[key, blob_id(b"none"), other], Take::First(few))
            .unwrap();
        let others: Vec<_> = (200..203).map(|turn| (turn, id)).take(few).collect();
        assert_eq!(sets, [vec![(live.turn, id)], vec![], others]);
        let sets = store.links(&[high, other], Take::Last(few)).unwrap();
        let others: Vec<_> = (200..203).rev().map(|turn| (turn, id)).take(few).collect();
        assert_eq!(sets, [vec![(0, id)], others.into_iter().rev().collect()]);
    }
}

#[test]
fn a_store_is_opened_and_closed_without_a_server() {
    let nowhere = StoreSettings {
        close_wait: Duration::from_millis(50),
        ..settings("redis://127.0.0.1:1")
    };
    let store = open(&nowhere);
    let ticket = store.commit(batch(1).0);
    assert!(!ticket.is_refused());
    assert!(store.links(&[batch(1).1], Take::ALL).is_err());
    let waited = nowhere.close_wait;
    assert_eq!(store.close(), Err(StoreError::Slow { waited }));
    assert_eq!(store.close(), Err(StoreError::Closed));
    assert_eq!(store.blobs(&[]), Err(StoreError::Closed));
}

#[test]
fn passwords_are_not_shown() {
    let secret = settings("redis://user:hunter2@127.0.0.1:1");
    let store = open(&secret);
    let error = store.links(&[batch(1).1], Take::ALL).unwrap_err();
    for shown in [
        error.to_string(),
        format!("{error:?}"),
        format!("{secret:?}"),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(error.to_string().contains("127.0.0.1:1"));
}
