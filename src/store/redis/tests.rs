//! The store in a real server and in a real cluster: the laws of every store, and servers that hang,
//! are killed, have no memory or change their places.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::super::batch::Listed;
use super::super::tests::{answers_as_memory_does, noise, operations, wait};
use super::super::{Link, Store};
use super::*;

#[path = "../../../tests/servers/cluster.rs"]
mod cluster;
#[path = "../../../tests/servers/redis.rs"]
mod servers;

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
    store.links(&[key]).unwrap() == [[(7, id)]]
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
    assert_eq!(open(&elsewhere).links(&[batch(0).1]).unwrap(), [vec![]]);
}

#[test]
fn a_turn_is_written_in_one_round_trip_and_found_in_one() {
    let Some(settings) = fresh() else { return };
    let (one, two) = (open(&settings), open(&settings));
    let (batch, key, id) = batch(1);
    wait(one.commit(batch)).unwrap();
    assert_eq!(one.health().write_trips, 1);
    // Whoever wrote it has it in memory, and asks only for the links.
    assert_eq!(one.links(&[key]).unwrap(), [[(7, id)]]);
    assert!(one.blobs(&[id]).unwrap()[0].is_some());
    assert_eq!(one.health().read_trips, 1);
    // Whoever did not needs the record as well, and reads it with the look whether it is there.
    assert_eq!(two.links(&[key]).unwrap(), [[(7, id)]]);
    assert!(two.blobs(&[id]).unwrap()[0].is_some());
    assert_eq!(two.health().read_trips, 2);
    assert_eq!(two.links(&[key]).unwrap(), [[(7, id)]]);
    assert_eq!(two.health().read_trips, 3);
}

/// A server that was killed and comes back: what was acknowledged is there, and what was not was
/// waiting.
#[test]
fn a_server_that_is_killed_loses_nothing_and_holds_nobody_up() {
    if !are_here() {
        return;
    }
    // Also where the disk gets it within a second only: what the server has answered for, the system
    // has.
    for fsync in ["always", "everysec"] {
        killed_under_load(fsync);
    }
}

fn killed_under_load(fsync: &str) {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", fsync]);
    let store = open(&settings(&server.url()));
    let mut seed = 0;
    for round in 0..3 {
        for _ in 0..10 {
            wait(store.commit(batch(seed).0)).unwrap();
            seed += 1;
        }
        // These may be on their way when the server goes.
        let on_the_way: Vec<Ticket> = (0..20)
            .map(|next| store.commit(batch(seed + next).0))
            .collect();
        server.kill();
        let (_, key, id) = batch(seed + 40);
        let late = store.commit(batch(seed + 40).0);
        assert!(store.links(&[batch(0).1]).is_err(), "round {round}");
        // What waits can be read.
        assert_eq!(store.blobs(&[id]).unwrap().len(), 1);
        let health = store.health();
        assert!(health.memory_only || health.waiting > 0 || health.refused > 0);
        server.restart();
        for ticket in on_the_way {
            wait(ticket).unwrap();
        }
        wait(late).unwrap();
        assert_eq!(store.links(&[key]).unwrap(), [[(7, id)]]);
        seed += 20;
        assert!((0..seed).all(|seed| has(&store, seed)), "round {round}");
        assert!(store.notes().is_empty(), "{:?}", store.notes());
    }
    assert!(store.health().refused > 0);
    // Somebody else sees the same, so it is not only this process's memory.
    let other = open(&StoreSettings {
        redis: match &store {
            Store::Redis(store) => store.shared.settings.redis.clone(),
            _ => unreachable!(),
        },
        ..settings(&server.url())
    });
    assert!((0..seed).all(|seed| has(&other, seed)));
}

/// A server that hangs: reads fail after a while, then at once; writes wait and come through.
#[test]
fn a_server_that_hangs_is_waited_for_by_one_reader_only() {
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    let settings = StoreSettings {
        retry: Duration::from_secs(3_600),
        ..settings(&server.url())
    };
    let store = open(&settings);
    wait(store.commit(batch(1).0)).unwrap();
    server.hang(true);
    let ticket = store.commit(batch(2).0);
    let (_, key, _) = batch(3);
    let error = store.links(&[key]).unwrap_err();
    assert!(
        error.to_string().contains(&server.port.to_string()),
        "{error}"
    );
    let trips = store.health().read_trips;
    for _ in 0..100 {
        assert_eq!(store.links(&[key]), Err(error.clone()));
    }
    assert_eq!(store.health().read_trips, trips, "the others did not ask");
    assert!(
        store.notes()[0].contains("go as they came") || store.notes()[0].contains("wait in memory")
    );
    server.hang(false);
    wait(ticket).unwrap();
    assert!(has(&open(&settings), 2));
}

/// A server without memory refuses writes. They wait until there is room, and no more of them than
/// the queue takes.
#[test]
fn a_server_without_memory_makes_writes_wait() {
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    let settings = StoreSettings {
        queue: 5,
        ..settings(&server.url())
    };
    let store = open(&settings);
    wait(store.commit(batch(1).0)).unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let waiting: Vec<Ticket> = (2..7).map(|seed| store.commit(batch(seed).0)).collect();
    assert!(waiting.iter().all(|ticket| !ticket.is_refused()));
    assert_eq!(wait(store.commit(batch(9).0)), Err(StoreError::Busy));
    assert!(
        (1..7).all(|seed| has(&store, seed)),
        "reads go on, also of what waits"
    );
    let begun = Instant::now();
    while store.notes().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(store.notes()[0].contains("OOM"), "{:?}", store.notes());
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    for ticket in waiting {
        wait(ticket).unwrap();
    }
    assert!((1..7).all(|seed| has(&open(&settings), seed)));
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
    assert_eq!(reader.links(&[key]).unwrap(), [vec![]]);
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
    assert_eq!(other.links(&[key]).unwrap(), [vec![]]);
    assert_eq!(other.sessions(None, 9).unwrap(), []);
    // Rows that are too old leave the list when a newer one comes to its part.
    let (mut later, _, id) = batch(4);
    later.listed = Some(Listed {
        session: Digest({
            let mut bytes = *session.as_bytes();
            bytes[31] ^= 1;
            bytes
        }),
        at: 1_800_000_000_000 + 1000 * days(92).as_secs(),
        id,
        row: Bytes::from_static(b"row"),
    });
    wait(store.commit(later)).unwrap();
    let listed: u64 = redis::cmd("ZCARD")
        .arg(names.part(session.as_bytes()[0] / 16))
        .query(&mut connection)
        .unwrap();
    assert_eq!(listed, 1);
    assert_eq!(other.sessions(None, 9).unwrap().len(), 1);
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
    wait(store.commit(Batch {
        blobs: vec![(id, bytes)],
        links,
        ..Batch::default()
    }))
    .unwrap();
    assert_eq!(store.links(&[key]).unwrap(), [[(live.turn, id)]]);
}

#[test]
fn a_write_that_too_few_replicas_have_is_not_acknowledged() {
    if !are_here() {
        return;
    }
    let main = RedisServer::start(&[]);
    let mut settings = settings(&main.url());
    settings.redis.replicas = 1;
    let store = open(&settings);
    assert_eq!(
        wait(store.commit(batch(1).0)),
        Err(StoreError::Unreplicated { wanted: 1, had: 0 })
    );
    assert!(store.notes()[0].contains("fewer than 1 replicas"));
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &main.port.to_string()]);
    let begun = Instant::now();
    while wait(store.commit(batch(2).0)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(store.notes(), Vec::<String>::new());
    // What was acknowledged is on the replica, which takes over when its master goes.
    drop(main);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    settings.redis.urls = vec![replica.url()];
    assert!(has(&open(&settings), 2));
}

/// Three masters with three replicas, of which one master is killed under load.
#[test]
fn a_cluster_loses_no_acknowledged_write_when_a_master_is_killed() {
    if !are_here() {
        return;
    }
    let mut cluster = RedisCluster::start();
    let mut settings = settings(&cluster.url());
    settings.redis.replicas = 1;
    let store = open(&settings);
    let mut acknowledged = Vec::new();
    for seed in 0..30 {
        wait(store.commit(batch(seed).0)).unwrap();
        acknowledged.push(seed);
    }
    let killed = cluster.a_master();
    cluster.nodes[killed].kill();
    // Until its replica has taken over, what is to be written waits.
    for seed in 30..35 {
        if wait(store.commit(batch(seed).0)).is_ok() {
            acknowledged.push(seed);
        }
    }
    assert!(
        (0..35).all(|seed| has(&store, seed)),
        "no write is given up"
    );
    cluster.nodes[killed].restart();
    cluster.wait("the replica", |cluster| {
        is_replica(&cluster.nodes[killed])
            && cluster.nodes[killed]
                .cli(&["INFO", "replication"])
                .contains("master_link_status:up")
    });
    for seed in 35..60 {
        let begun = Instant::now();
        while wait(store.commit(batch(seed).0)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        acknowledged.push(seed);
    }
    let other = open(&settings);
    assert!(acknowledged.iter().all(|seed| has(&other, *seed)));
    let linked = other.linked().unwrap();
    assert_eq!(linked.len(), 60, "a walk comes to all masters");
    // A failover that an operator asks for.
    let replica = (0..6)
        .find(|node| is_replica(&cluster.nodes[*node]))
        .unwrap();
    let said = cluster.nodes[replica].cli(&["CLUSTER", "FAILOVER"]);
    assert_eq!(said.trim(), "OK");
    for seed in 60..90 {
        let begun = Instant::now();
        while wait(store.commit(batch(seed).0)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }
    let other = open(&settings);
    assert!((0..90).all(|seed| has(&other, seed)));
}

/// A server that went and came back between two reads: nobody notices.
#[test]
fn a_connection_that_died_unnoticed_is_made_again() {
    if !are_here() {
        return;
    }
    let mut server = RedisServer::start(&["--appendonly", "yes"]);
    let settings = settings(&server.url());
    let (store, other) = (open(&settings), open(&settings));
    wait(store.commit(batch(1).0)).unwrap();
    assert!(has(&other, 1));
    server.restart();
    assert!(has(&other, 1));
    wait(store.commit(batch(2).0)).unwrap();
    assert!(has(&other, 2));
    assert_eq!(other.health().refused + store.health().refused, 0);
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
    assert!(store.links(&[batch(1).1]).is_err());
    let waited = nowhere.close_wait;
    assert_eq!(store.close(), Err(StoreError::Slow { waited }));
    assert_eq!(store.close(), Err(StoreError::Closed));
    assert_eq!(store.blobs(&[]), Err(StoreError::Closed));
}

#[test]
fn passwords_are_not_shown() {
    let secret = settings("redis://user:hunter2@127.0.0.1:1");
    let store = open(&secret);
    let error = store.links(&[batch(1).1]).unwrap_err();
    for shown in [
        error.to_string(),
        format!("{error:?}"),
        format!("{secret:?}"),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(error.to_string().contains("127.0.0.1:1"));
}
