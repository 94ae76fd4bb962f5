//! Many streams at once, half of which nobody reads: the others are whole, and what the rest cost is
//! bounded. The bench of this name measures it at full size. And a stream with an event of many megabytes.

#[path = "../../benches/streams/load.rs"]
mod load;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use load::Pace;

use crate::child::Serving;
use crate::dialects::{Agent, Dialect};
use crate::support::{Lenient, Proxy, answered, soon};

const HALF: usize = 50;

#[tokio::test]
async fn streams_that_nobody_reads_cost_little_and_hold_up_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(load::provide(listener));
    let proxy = Serving::start(upstream, "", &[]);
    let whole: [String; 0] = [];
    assert_eq!(
        soon(load::fast(proxy.listen, 1, 1, Pace::Flood)).await,
        whole
    );
    let idle = proxy.resident().0;
    let slow = soon(load::slow(proxy.listen, HALF, Pace::Flood, false)).await;
    assert_eq!(
        soon(load::fast(proxy.listen, HALF, 200, Pace::Flood)).await,
        whole
    );
    let over = proxy.resident().1.saturating_sub(idle) >> 20;
    assert!(over < 96, "{over} MiB");
    assert!(slow.iter().all(|reader| !reader.is_finished()));
}

#[tokio::test]
async fn a_picture_in_an_event_of_a_managed_stream_arrives() {
    let picture = format!("data:image/png;base64,{}", "A".repeat(17 << 20));
    let image = json!({"type": "image_url", "image_url": {"url": picture}});
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let said = json!({"role": "assistant", "content": "Here.", "images": [image]});
    let events = [chunk(said, Value::Null), chunk(json!({}), "stop".into())];
    let events: String = events.map(|event| format!("data: {event}\n\n")).concat();
    let body = format!("{events}data: [DONE]\n\n");
    let sent = body.clone();
    let upstream = Lenient::start(move |_, _| answered(200, &sent)).await;
    let proxy = Proxy::with(upstream.addr, |_| ()).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, true, "draw");
    agent.user("draw");
    let answer = agent.ask().await;
    let tools = upstream.newest()["tools"].to_string();
    assert!(tools.contains("delimiter"), "{tools}");
    assert_eq!(answer.status, 200);
    assert!(
        answer.bytes == body,
        "{} of {}",
        answer.bytes.len(),
        body.len()
    );
}

#[tokio::test]
async fn all_who_come_at_once_are_accepted() {
    const AT_ONCE: usize = 600;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Serving::start(listener.local_addr().unwrap(), "", &[]);
    // Nothing is accepted meanwhile, as on a busy machine.
    proxy.signal("STOP");
    let connecting = (0..AT_ONCE).map(|_| TcpStream::connect(proxy.listen));
    let all = soon(futures_util::future::join_all(connecting)).await;
    assert!(all.iter().all(Result::is_ok));
}
