//! A provider of three dialects in the bench's own process: it refuses what real ones refuse, notes
//! what it hid in each answer and what it missed in each request, and fails as often as it is told
//! to. Keeps nothing of a request.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use plimsoll_scripted::rng::Rng;
use serde_json::Value;

use crate::talk::{EXPECTS, HIDDEN, PLACE, Place, Reply};
use crate::wire::Wire;

/// The longest request that is read.
const LONGEST: usize = 16 << 20;

/// Bytes of an unstreamed answer that are sent at a time.
const PART: usize = 100;

/// What the provider knows of one try of one turn.
#[derive(Debug, Default)]
pub struct Noted {
    /// The ids of the hidden calls that it made.
    pub hidden: Vec<String>,
    /// Hidden calls of earlier turns that a managed request had to show and did not.
    pub missing: Vec<String>,
    /// Hops that had their chance of a fault: what is sent again is answered.
    failed: HashSet<usize>,
    /// Whether a request was called too long, so that a pass may take what was said.
    pub squeezed: bool,
}

/// What it noted, shared with the clients.
#[derive(Default)]
pub struct Ledger {
    places: Mutex<HashMap<Place, Noted>>,
    /// Requests that a real provider would refuse, the first ones described.
    pub invalid: Mutex<(usize, Vec<String>)>,
    pub requests: AtomicUsize,
    pub faults: AtomicUsize,
}

impl Ledger {
    /// What it noted of a place, which is then forgotten.
    pub fn take(&self, place: Place) -> Noted {
        self.places.lock().remove(&place).unwrap_or_default()
    }

    fn refuse(&self, place: Place, why: String) {
        let mut invalid = self.invalid.lock();
        invalid.0 += 1;
        if invalid.1.len() < 10 {
            invalid.1.push(format!("{place}: {why}"));
        }
    }
}

/// What goes wrong with an answer.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A status that may pass.
    Status(u16),
    /// The request is called too long, whatever its length.
    TooLong,
    /// The connection breaks behind so many frames.
    Cut(usize),
    /// Nothing comes for a while behind so many frames.
    Pause(usize),
    /// The answer says that it is of another kind.
    Mislabelled,
    /// The answer holds bytes that are no text.
    NoText,
}

impl Fault {
    /// A fault for about one first try in ten.
    fn choose(rng: &mut Rng) -> Option<Self> {
        match rng.below(100) {
            0 | 1 => Some(Self::Status(429)),
            2 | 3 => Some(Self::Status(500)),
            4 => Some(Self::TooLong),
            5 | 6 => Some(Self::Cut(rng.below(12))),
            7 => Some(Self::Pause(rng.below(6))),
            8 => Some(Self::Mislabelled),
            9 => Some(Self::NoText),
            _ => None,
        }
    }
}

/// Starts it on a free port.
pub async fn start(ledger: Arc<Ledger>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(answer).with_state(ledger);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn json(status: u16, body: &Value) -> Response {
    let response = Response::builder().status(status);
    let typed = response.header("content-type", "application/json");
    typed.body(Body::from(body.to_string())).unwrap()
}

async fn answer(State(ledger): State<Arc<Ledger>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let place = header(PLACE).and_then(Place::read);
    let (Some(wire), Some(place)) = (Wire::of(parts.uri.path()), place) else {
        return json(404, &Value::Null);
    };
    ledger.requests.fetch_add(1, Ordering::Relaxed);
    let Ok(body) = axum::body::to_bytes(body, LONGEST).await else {
        return json(413, &Value::Null);
    };
    let request = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let asked = wire.asked(&request);
    let fault = asked
        .as_ref()
        .map_or(Some("no request".to_owned()), |asked| asked.fault());
    let (Some(asked), None) = (asked, &fault) else {
        ledger.refuse(place, fault.unwrap_or_default());
        return json(400, &wire.error(400, "invalid request", None));
    };
    let offered = asked.tools.iter().any(|tool| tool == "delimiter");
    let shown = asked.hidden();
    let (hop, reply, fault) = {
        let mut places = ledger.places.lock();
        let noted = places.entry(place).or_default();
        // Each hop that was sent hid one call.
        let hop = noted.hidden.len();
        let mut rng = place.rng(&format!("fault {hop}"));
        let first = place.attempt == 0 && offered && noted.failed.insert(hop);
        let fault = first.then(|| Fault::choose(&mut rng)).flatten();
        let reply = place.reply(hop, offered);
        noted.squeezed |= matches!(fault, Some(Fault::TooLong));
        if offered && !noted.squeezed {
            let expected = header(EXPECTS).unwrap_or_default().split(',');
            let missing = expected.filter(|id| !id.is_empty() && !shown.contains(id));
            noted.missing.extend(missing.map(str::to_owned));
        }
        if !matches!(fault, Some(Fault::Status(_) | Fault::TooLong)) {
            let hidden = reply
                .calls
                .iter()
                .filter(|call| call.id.starts_with(HIDDEN));
            noted.hidden.extend(hidden.map(|call| call.id.clone()));
        }
        (hop, reply, fault)
    };
    ledger
        .faults
        .fetch_add(usize::from(fault.is_some()), Ordering::Relaxed);
    match fault {
        Some(Fault::Status(status)) => {
            let mut response = json(status, &wire.error(status, "try again", None));
            let soon = http::HeaderValue::from_static("20");
            response.headers_mut().insert("retry-after-ms", soon);
            response
        }
        Some(Fault::TooLong) => {
            let text = "prompt is too long: 300000 tokens > 200000 maximum";
            json(400, &wire.error(400, text, Some("context_length_exceeded")))
        }
        fault => send(wire, place, hop, &request, &reply, fault),
    }
}

/// Sends an answer as it was asked for, with a fault that lies in its bytes.
fn send(
    wire: Wire,
    place: Place,
    hop: usize,
    request: &Value,
    reply: &Reply,
    fault: Option<Fault>,
) -> Response {
    let id = format!("{place}x{hop}");
    let streamed = request["stream"] == true;
    let mut frames: Vec<Bytes> = if streamed {
        let frames = wire.frames(&id, request, reply);
        frames.into_iter().map(Bytes::from).collect()
    } else {
        let body = Bytes::from(wire.body(&id, request, reply).to_string());
        body.chunks(PART).map(Bytes::copy_from_slice).collect()
    };
    let mut kind = if streamed {
        "text/event-stream"
    } else {
        "application/json"
    };
    match fault {
        Some(Fault::Mislabelled) => {
            kind = if streamed {
                "application/json"
            } else {
                "text/plain"
            }
        }
        Some(Fault::NoText) => {
            if let Some(last) = frames.last_mut() {
                *last = [b"\xff\xfe", last.as_ref()].concat().into();
            }
        }
        Some(Fault::Cut(_) | Fault::Pause(_) | Fault::Status(_) | Fault::TooLong) | None => {}
    }
    let steps = stream::iter(frames.into_iter().enumerate()).then(move |(at, frame)| async move {
        match fault {
            Some(Fault::Cut(behind)) if at >= behind => {
                // What was said before goes out first; a server drops what it has not written.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err(std::io::Error::other("cut"))
            }
            Some(Fault::Pause(behind)) if at == behind => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(frame)
            }
            _ => Ok(frame),
        }
    });
    let response = Response::builder().header("content-type", kind);
    response.body(Body::from_stream(steps)).unwrap()
}
