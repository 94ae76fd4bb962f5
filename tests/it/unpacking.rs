//! Bodies that are small on the wire and large in memory, and many bodies at once: what they may
//! cost is bounded, and who is within the bounds is served.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::Response;
use plimsoll::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::child::Serving;
use crate::support::{EMPTY, Proxy, at_rest, client, error_of, padded, soon, upstream};

const CHAT: &str = "/v1/chat/completions";
const MIB: usize = 1 << 20;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

/// What a frame of zstd is that needs so large a window, whatever it holds.
fn windowed(data: &[u8], log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(log).unwrap();
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Reads the body first, and says how long it was.
async fn counts() -> SocketAddr {
    upstream(|request| async {
        let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
        Response::new(Body::from(body.len().to_string()))
    })
    .await
}

/// Sends a body as it is coded; the answer's status, and the code of an error.
async fn send(url: String, coding: &str, body: Vec<u8>) -> (u16, String) {
    let request = client().post(url).header("content-encoding", coding);
    let response = soon(request.body(body).send()).await.unwrap();
    match response.status().as_u16() {
        200 => (200, String::new()),
        status => (status, error_of(response).await.3),
    }
}

#[tokio::test]
async fn what_unpacks_to_too_much_is_refused_and_nothing_else() {
    let proxy = Proxy::before(counts().await).await;
    let blanks = vec![b' '; 32 * MIB];
    let pieces = zstd(&vec![b' '; 100_000]).repeat(300);
    let members = gzip(&vec![b' '; 100_000]).repeat(30);
    let refused = (413, "body_too_large".to_owned());
    for (what, coding, body) in [
        ("gzip", "gzip", gzip(&blanks)),
        ("zstd", "zstd", zstd(&blanks)),
        ("many frames", "zstd", pieces),
        ("a large window", "zstd", windowed(&blanks[..10 * MIB], 27)),
    ] {
        assert!(body.len() < MIB, "{what}: {}", body.len());
        assert_eq!(send(proxy.url(CHAT), coding, body).await, refused, "{what}");
    }
    // Deflate alone can't do it at more than a thousand to one, which a few members stay under.
    assert_eq!(send(proxy.url(CHAT), "gzip", members).await.0, 413);
    // A megabyte is nobody's bomb, and agents repeat themselves.
    let small = padded(MIB);
    let unit = crate::support::noise(100_000);
    let unit: String = unit
        .iter()
        .map(|byte| char::from(b'a' + byte % 26))
        .collect();
    let again = format!(r#"{{"messages":[],"pad":"{}"}}"#, unit.repeat(40));
    for (what, body) in [("small", small), ("repetitive", again.into_bytes())] {
        for (coding, sent) in [("gzip", gzip(&body)), ("zstd", zstd(&body))] {
            let answer = send(proxy.url(CHAT), coding, sent).await;
            assert_eq!(answer.0, 200, "{what} {coding}");
        }
    }
    let window = windowed(EMPTY.as_bytes(), 23);
    assert_eq!(send(proxy.url(CHAT), "zstd", window).await.0, 200);
}

#[tokio::test]
async fn frames_that_hold_nothing_cost_no_more_than_their_share() {
    let proxy = Proxy::before(counts().await).await;
    // Skippable frames, empty frames and empty members unpack to nothing at all.
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
    for (what, coding, unit) in [
        ("skippable", "zstd", skippable.to_vec()),
        ("empty", "zstd", zstd(b"")),
        ("members", "gzip", gzip(b"")),
    ] {
        let body = unit.repeat(20 * MIB / unit.len());
        let begun = std::time::Instant::now();
        let (status, _) = send(proxy.url(CHAT), coding, body).await;
        // What is left of it is an empty body, which goes up as it came.
        assert!(status == 200 || status == 413, "{what}: {status}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{what}");
    }
}

#[tokio::test]
async fn an_attack_by_small_bodies_costs_little_memory_and_gives_it_back() {
    let proxy = Serving::start(counts().await, "", &[]);
    let idle = proxy.resident().0;
    let zeros = zstd(&vec![b' '; 60 * MIB]);
    let long = windowed(&vec![b'['; 60 * MIB], 27);
    for _ in 0..2 {
        let bombs = (0..32).map(|n| {
            let body = if n % 2 == 0 { &zeros } else { &long };
            tokio::spawn(send(proxy.url(CHAT), "zstd", body.clone()))
        });
        for bomb in bombs.collect::<Vec<_>>() {
            assert_eq!(soon(bomb).await.unwrap().0, 413);
        }
    }
    let (_, most) = proxy.resident();
    assert!(most < idle + 192 * MIB as u64, "{} MiB", most >> 20);
    let kept = idle + 64 * MIB as u64;
    at_rest(kept, || proxy.resident().0).await;
}

/// Bodies of up to two MiB, and twice as much for all of them.
fn narrow(config: &mut Config) {
    config.server.body_cap = 2 * MIB;
    config.server.body_budget = 4 * MIB;
}

/// An upstream that counts who came, and answers once there is a permit for it.
async fn gate() -> (Arc<Semaphore>, Arc<AtomicUsize>, SocketAddr) {
    let (gate, came) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (passes, comes) = (gate.clone(), came.clone());
    let addr = upstream(move |request| {
        let (passes, comes) = (passes.clone(), comes.clone());
        async move {
            drop(to_bytes(request.into_body(), usize::MAX).await);
            comes.fetch_add(1, Ordering::SeqCst);
            passes.acquire().await.unwrap().forget();
            Response::new(Body::from("{}"))
        }
    })
    .await;
    (gate, came, addr)
}

#[tokio::test]
async fn bodies_in_flight_share_one_budget() {
    let (gate, came, addr) = gate().await;
    let proxy = Proxy::with(addr, narrow).await;
    let body = padded(2 * MIB - 4096);
    let post = |body: Vec<u8>| tokio::spawn(client().post(proxy.url(CHAT)).body(body).send());
    let held = [post(body.clone()), post(body.clone())];
    soon(async {
        while came.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // A third has to wait, and is then told to come again.
    let third = post(body.clone());
    let third = soon(third).await.unwrap().unwrap();
    assert_eq!(third.headers()["retry-after"], "1");
    let (_, _, _, code, message) = error_of(third).await;
    assert_eq!(code, "overloaded");
    assert!(message.contains("server.body_budget"), "{message}");
    gate.add_permits(100);
    for held in held {
        assert_eq!(soon(held).await.unwrap().unwrap().status(), 200);
    }
    for coding in ["gzip", "zstd"] {
        // What came and what it unpacks to are both held, and one body has to fit always.
        let noise = crate::support::noise(2 * MIB - 100_000);
        let sent = if coding == "gzip" {
            gzip(&noise)
        } else {
            zstd(&noise)
        };
        // It is no JSON, and goes up as it came.
        assert_eq!(send(proxy.url(CHAT), coding, sent).await.0, 200, "{coding}");
    }
    assert_eq!(soon(post(body)).await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn bodies_that_wait_for_each_other_do_not_wait_for_ever() {
    let (gate, _, addr) = gate().await;
    gate.add_permits(100);
    let proxy = Proxy::with(addr, narrow).await;
    let body = padded(2 * MIB - 4096);
    let (front, back) = body.split_at(7 * MIB / 4);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(proxy.addr).await.unwrap();
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    // Three times seven eighths of a body do not fit; each gets what it can.
    let answers = streams.into_iter().map(|mut stream| {
        let (front, back) = (front.to_vec(), back.to_vec());
        tokio::spawn(async move {
            let (mut read, mut write) = stream.split();
            let sending = async {
                let _refused = write.write_all(&front).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
                let _refused = write.write_all(&back).await;
            };
            let mut answer = [0; 12];
            let reading = read.read_exact(&mut answer);
            let (read, ()) = tokio::join!(reading, sending);
            read.map(|_| answer)
        })
    });
    let mut served = 0;
    for answer in answers.collect::<Vec<_>>() {
        let answer = soon(answer).await.unwrap().unwrap();
        assert!(matches!(&answer[9..], b"200" | b"503"), "{answer:?}");
        served += usize::from(&answer[9..] == b"200");
    }
    assert!(served >= 2, "{served}");
    let after = client().post(proxy.url(CHAT)).body(body).send();
    assert_eq!(soon(after).await.unwrap().status(), 200);
}
