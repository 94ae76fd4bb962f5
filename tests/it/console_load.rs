//! The console beside a server with much to do: of ten thousand sessions it reads no more than what a page
//! shows, and readers that take none of its events keep no turn waiting and no event in memory.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_model::{SessionRow, TenantId};
use plimsoll_scripted::{Provider, Reply, Script};
use plimsoll_store::faults::{Faults, ReadCounts};
use plimsoll_store::memory::Memory;
use plimsoll_store::{Batch, Listed, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::broadcast::error::RecvError;

use super::agent::{Agent, provider};
use super::console::{TURNS, config, got, played, working};
use super::support::{Proxy, soon};

const SESSIONS: usize = 10_000;

/// A proxy on a store that counts what is read of it.
async fn counted(script: Script) -> (Provider, Proxy, Faults) {
    let provider = provider(script).await;
    let faults = Faults::default();
    let store = Arc::new(Store::Memory(Memory::with_faults(faults.clone())));
    let wire = |app: &mut plimsoll_proxy::pipeline::App| app.store = store;
    let proxy = Proxy::wired(provider.address, config, wire).await;
    (provider, proxy, faults)
}

/// Lists a session under ten thousand other names, each with a time and a number of turns of its own.
fn copied(proxy: &Proxy) -> SessionRow {
    let store = &proxy.app.store;
    let listed = store.sessions(None, 1).unwrap().remove(0);
    let row: SessionRow = rmp_serde::from_slice(&listed.row).unwrap();
    for number in 0..SESSIONS {
        let mut copy = row.clone();
        copy.session = format!("{number:016x}");
        copy.ended -= 1 + number as u64;
        copy.turn = 1 + u32::try_from(number * 7919 % SESSIONS).unwrap();
        copy.model = format!("model-{}", number % 10);
        let session = SessionRow::identity(TenantId(copy.tenant), &copy.session);
        let listed = Listed {
            session,
            at: copy.ended,
            id: listed.id,
            row: Bytes::from(rmp_serde::to_vec_named(&copy).unwrap()),
        };
        let batch = Batch {
            listed: Some(listed),
            ..Batch::default()
        };
        store.commit(batch).wait().unwrap();
    }
    row
}

/// The reports of what the newest turns cost, which come behind the rows, are all that is read of records.
#[track_caller]
fn rows_alone(counts: ReadCounts, rows: usize, what: &str) {
    assert!(counts.rows <= rows, "{what}: {counts:?}");
    assert!(
        counts.keys <= counts.rows && counts.blobs <= counts.rows,
        "{what}: {counts:?}"
    );
}

#[tokio::test]
async fn ten_thousand_sessions_are_listed_without_their_records() {
    let (_provider, proxy, faults) = counted(working()).await;
    let name = played(&proxy, false).await;
    let row = copied(&proxy);
    assert_eq!(row.session, name);
    let all = SESSIONS + 1;
    // Each session has so many records, none of which is read for a list.
    assert_eq!(row.turn, TURNS);
    let _ = faults.take_counts();

    let overview = got(&proxy, "overview").await;
    assert_eq!(overview["sessions"], all);
    rows_alone(faults.take_counts(), all, "the overview");

    let page = got(&proxy, "sessions?limit=100").await;
    assert_eq!(
        (page["sessions"].as_array().unwrap().len(), &page["total"]),
        (100, &all.into())
    );
    let counts = faults.take_counts();
    assert!(counts.blobs <= 100 && counts.keys <= 100, "{counts:?}");
    let next = page["next"].as_str().unwrap();
    got(&proxy, &format!("sessions?limit=100&cursor={next}")).await;
    let counts = faults.take_counts();
    assert!(
        counts.rows <= 100 && counts.blobs <= 100,
        "a further page: {counts:?}"
    );

    let sorted = "sessions?sort=turn&limit=100";
    let page = got(&proxy, sorted).await;
    assert_eq!(page["sessions"][0]["turn"], SESSIONS);
    rows_alone(faults.take_counts(), all, "sorted");
    let filtered = got(&proxy, "sessions?model=model-3&sort=-turn&limit=100").await;
    assert_eq!(filtered["total"], SESSIONS / 10);
    rows_alone(faults.take_counts(), all, "filtered");

    // Titles, findings and sparks are of the page's sessions alone.
    got(&proxy, "sessions?sort=turn&limit=20&spark=1").await;
    let counts = faults.take_counts();
    let most = all + 20 * 2 * TURNS as usize;
    assert!(counts.blobs <= most, "{counts:?}");

    // What happens to a session is told without a walk over the others.
    let mut agent = Agent::new(&proxy, false).told("another task");
    let mut events = listen(proxy.admin).await;
    let _ = faults.take_counts();
    agent.turn().await;
    let mut read = String::new();
    while !read.contains("event: turn") {
        let mut bytes = [0; 4096];
        let count = soon(events.read(&mut bytes)).await.unwrap();
        assert!(count > 0, "{read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    let counts = faults.take_counts();
    assert!(counts.rows <= 1_000, "{counts:?}");
}

/// A page that begins to listen. The system takes as little for it as it may.
async fn listen(admin: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = soon(socket.connect(admin)).await.unwrap();
    let head = format!("GET /api/events HTTP/1.1\r\nhost: {admin}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = [0; 12];
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 200");
    stream
}

/// Turns go on beside readers that take nothing, and what they did not take is not kept for them.
#[tokio::test]
async fn a_reader_that_takes_nothing_holds_up_no_turn_and_no_memory() {
    const MOST_KEPT: u64 = 256;
    let (_provider, proxy, _) = counted(Script::ask(|_| Reply::text("done"))).await;
    let _page = listen(proxy.admin).await;
    let mut listening = proxy.app.live.listen(None, 64).unwrap();
    let mut turns = 0;
    for task in 0..30 {
        let mut agent = Agent::new(&proxy, false).told(&format!("task {task}"));
        for _ in 0..10 {
            agent.turn().await;
            agent = agent.told("go on");
            turns += 1;
        }
    }
    let Err(RecvError::Lagged(missed)) = soon(listening.events.recv()).await else {
        panic!("all of {turns} turns were kept");
    };
    assert!(missed >= turns - MOST_KEPT, "{missed} of {turns}");
}
