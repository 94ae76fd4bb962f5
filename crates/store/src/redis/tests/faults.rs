//! Servers that hang, are killed, have no memory, say nothing or change their places.

use super::*;

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
        assert!(
            store.links(&[batch(0).1], Take::ALL).is_err(),
            "round {round}"
        );
        // What waits can be read.
        assert_eq!(store.blobs(&[id]).unwrap().len(), 1);
        let health = store.health();
        assert!(health.memory_only || health.waiting > 0 || health.refused > 0);
        server.restart();
        for ticket in on_the_way {
            wait(ticket).unwrap();
        }
        wait(late).unwrap();
        assert_eq!(store.links(&[key], Take::ALL).unwrap(), [[(7, id)]]);
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
    let error = store.links(&[key], Take::ALL).unwrap_err();
    assert!(
        error.to_string().contains(&server.port.to_string()),
        "{error}"
    );
    let trips = store.health().read_trips;
    for _ in 0..100 {
        assert_eq!(store.links(&[key], Take::ALL), Err(error.clone()));
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

/// A server of several that takes connections and says nothing must not use up all patience.
#[test]
fn a_server_that_says_nothing_does_not_hide_the_others() {
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://{}", silent.local_addr().unwrap());
    let store = open(&settings(&format!("{silent},{}", server.url())));
    wait(store.commit(batch(1).0)).unwrap();
    assert!(has(&store, 1));
}

/// A walk goes on when its server was started again in the middle, where a cursor of before means
/// something else.
#[test]
fn a_walk_leaves_nothing_out_when_its_server_is_started_again() {
    if !are_here() {
        return;
    }
    let mut server = RedisServer::start(&["--appendonly", "yes"]);
    let store = open(&settings(&server.url()));
    let batches = |seeds: std::ops::Range<u64>| seeds.map(|seed| noise(seed, 20));
    for from in (0..12_000).step_by(1_000) {
        let blobs = batches(from..from + 1_000).map(|bytes| (blob_id(&bytes), bytes));
        let batch = Batch {
            blobs: blobs.collect(),
            ..Batch::default()
        };
        wait(store.commit(batch)).unwrap();
    }
    let Store::Redis(walked) = &store else {
        unreachable!()
    };
    let mut met = HashSet::new();
    let mut restarts = 0;
    let walk = walked.each_answer('b', Keys::read_value, |id, _| {
        met.insert(id);
        if met.len() > 3_000 * (restarts + 1) && restarts < 2 {
            server.kill();
            server.restart();
            restarts += 1;
        }
        Ok(())
    });
    walk.unwrap();
    assert_eq!((met.len(), restarts), (12_000, 2));
}

/// A user that may not ask INFO is served by a cluster all the same.
#[test]
fn a_cluster_is_known_to_a_user_without_the_right_to_ask() {
    if !are_here() {
        return;
    }
    let cluster = RedisCluster::start();
    let user = [
        "ACL", "SETUSER", "narrow", "on", ">secret", "~*", "&*", "+@all", "-info",
    ];
    for node in &cluster.nodes {
        assert!(node.cli(&user).contains("OK"));
    }
    let url = cluster.url().replace("redis://", "redis://narrow:secret@");
    let store = open(&settings(&url));
    for seed in 0..20 {
        wait(store.commit(batch(seed).0)).unwrap();
    }
    assert!((0..20).all(|seed| has(&store, seed)));
}
