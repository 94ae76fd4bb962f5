//! Agents of all kinds: patient ones, slow ones, some that leave in the middle of an answer and ask
//! again, and connections that begin a request and never end it. Judges what a client may hear.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;

use crate::provider::Ledger;
use crate::talk::{EXPECTS, Entry, HIDDEN, PLACE, Place};
use crate::wire::{Heard, Wire};

/// Tries of one turn, kills of the proxy included.
const TRIES: u32 = 200;
/// How long an unfinished request is held open.
const STALL: Duration = Duration::from_secs(3);
/// Every so many sessions one has a budget that it outgrows.
const TIGHT: u32 = 10;

/// What all clients share.
pub struct Shared {
    pub http: reqwest::Client,
    pub proxy: SocketAddr,
    pub ledger: Arc<Ledger>,
    pub counts: Counts,
}

/// What came of all turns.
#[derive(Default)]
pub struct Counts {
    pub turns: AtomicUsize,
    pub retries: AtomicUsize,
    pub vanished: AtomicUsize,
    pub stalled: AtomicUsize,
    pub failed_open: AtomicUsize,
    /// Hidden calls of acknowledged turns that a later request did not show, and the first of them.
    pub lost: Mutex<(usize, Vec<String>)>,
    /// Answers that showed something hidden, and the first of them.
    pub leaked: Mutex<(usize, Vec<String>)>,
    /// Turns that no try got through, and the last word on the first of them.
    pub stuck: Mutex<(usize, Vec<String>)>,
}

fn count(what: &AtomicUsize) {
    what.fetch_add(1, Ordering::Relaxed);
}

fn note(what: &Mutex<(usize, Vec<String>)>, text: String) {
    let mut what = what.lock();
    what.0 += 1;
    if what.1.len() < 10 {
        what.1.push(text);
    }
}

/// One conversation.
pub struct Session {
    number: u32,
    wire: Wire,
    stream: bool,
    entries: Vec<Entry>,
    /// Turns that came to their end.
    pub turns: u32,
    /// The ids of the hidden calls of acknowledged turns.
    acknowledged: Vec<String>,
    /// Whether a pass may have evicted any of them.
    squeezed: bool,
}

/// A whole answer.
struct Told {
    heard: Heard,
    /// Whether it answers the client's own bytes.
    failed_open: bool,
}

/// How a client behaves in one try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Patient,
    /// It reads with pauses.
    Slow,
    /// It leaves behind so many bytes.
    Vanishing(usize),
}

impl Session {
    pub fn new(number: u32) -> Self {
        let wires = Wire::ALL;
        Self {
            number,
            wire: wires[number as usize % wires.len()],
            stream: (number as usize / wires.len()).is_multiple_of(2),
            entries: vec![Entry::User(format!("Do the work of number {number}."))],
            turns: 0,
            acknowledged: Vec::new(),
            squeezed: false,
        }
    }

    /// Whether the budget is so tight that passes evict what was said.
    fn is_tight(&self) -> bool {
        self.number.is_multiple_of(TIGHT)
    }

    /// Forgets a try that came to nothing, but for what it tells of later ones.
    fn forget(&mut self, shared: &Shared, place: Place) {
        self.squeezed |= shared.ledger.take(place).squeezed;
    }

    /// Plays one turn to its end.
    pub async fn turn(&mut self, shared: &Shared) {
        for attempt in 0..TRIES {
            let place = Place {
                session: self.number,
                turn: self.turns,
                attempt,
            };
            match self.attempt(shared, place).await {
                Ok(told) => {
                    self.keep(shared, place, told);
                    count(&shared.counts.turns);
                    return;
                }
                Err(why) if attempt + 1 == TRIES => {
                    note(&shared.counts.stuck, format!("{place}: {why}"));
                }
                Err(_) => {
                    self.forget(shared, place);
                    count(&shared.counts.retries);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        // The session can't go on.
        self.turns = u32::MAX;
    }

    /// Sends the request that is due; an error says why the answer was not whole.
    async fn attempt(&self, shared: &Shared, place: Place) -> Result<Told, String> {
        let mut rng = place.rng("manner");
        let manner = match rng.below(100) {
            0..=2 => Manner::Vanishing(rng.below(3_000)),
            3..=7 => Manner::Slow,
            8 => {
                self.stall(shared);
                Manner::Patient
            }
            _ => Manner::Patient,
        };
        let body = self.wire.request(&self.entries, self.stream).to_string();
        let url = format!("http://{}{}", shared.proxy, self.wire.path());
        let mut post = shared
            .http
            .post(url)
            .bearer_auth(format!("sk-soak-{}", self.number % 7))
            .header("content-type", "application/json")
            .header(PLACE, place.to_string())
            .body(body);
        if self.is_tight() {
            post = post.header("x-plimsoll-budget", "4000");
        } else if !self.squeezed {
            post = post.header(EXPECTS, self.acknowledged.join(","));
        }
        let response = post.send().await.map_err(|error| error.to_string())?;
        let status = response.status();
        let failed_open = response.headers().contains_key("x-plimsoll-fail-open");
        let bytes = self.read(shared, response, manner).await?;
        self.judge(shared, place, &bytes);
        if failed_open {
            count(&shared.counts.failed_open);
        }
        let text = || {
            String::from_utf8_lossy(&bytes)
                .chars()
                .take(300)
                .collect::<String>()
        };
        if !status.is_success() {
            return Err(format!("{status} {}", text()));
        }
        let heard = self.wire.heard(&bytes, self.stream);
        if !heard.whole {
            return Err(text());
        }
        Ok(Told { heard, failed_open })
    }

    async fn read(
        &self,
        shared: &Shared,
        response: reqwest::Response,
        manner: Manner,
    ) -> Result<Vec<u8>, String> {
        let (mut bytes, mut chunks) = (Vec::new(), response.bytes_stream());
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(error) => {
                    self.judge(shared, Place::read("0x0x0").unwrap(), &bytes);
                    return Err(error.to_string());
                }
            }
            match manner {
                Manner::Vanishing(behind) if bytes.len() >= behind => {
                    count(&shared.counts.vanished);
                    return Err("left".to_owned());
                }
                Manner::Slow => tokio::time::sleep(Duration::from_millis(5)).await,
                Manner::Patient | Manner::Vanishing(_) => {}
            }
        }
        Ok(bytes)
    }

    /// A client may hear of no hidden call.
    fn judge(&self, shared: &Shared, place: Place, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let names = ["delimiter", "recall", HIDDEN];
        if let Some(name) = names.into_iter().find(|name| text.contains(name)) {
            let shown: String = text.chars().take(400).collect();
            note(&shared.counts.leaked, format!("{place}: {name} in {shown}"));
        }
    }

    /// Begins a request, keeps its connection for a while, and goes.
    fn stall(&self, shared: &Shared) {
        count(&shared.counts.stalled);
        let (proxy, path) = (shared.proxy, self.wire.path());
        tokio::spawn(async move {
            // Where the proxy is being killed, there is nothing to stall.
            let Ok(mut socket) = tokio::net::TcpStream::connect(proxy).await else {
                return;
            };
            let half = format!(
                "POST {path} HTTP/1.1\r\nhost: {proxy}\r\ncontent-length: 900\r\n\r\n{{\"mes"
            );
            let _refused = socket.write_all(half.as_bytes()).await;
            tokio::time::sleep(STALL).await;
        });
    }

    /// Takes an answer into the history, and does what it asks for.
    fn keep(&mut self, shared: &Shared, place: Place, told: Told) {
        let Told { heard, failed_open } = told;
        let noted = shared.ledger.take(place);
        self.squeezed |= noted.squeezed;
        // The client's own bytes show nothing hidden, and what was hidden before them is not kept.
        if !self.is_tight() && !self.squeezed && !failed_open {
            for id in &noted.missing {
                note(&shared.counts.lost, format!("{place}: {id}"));
            }
            self.acknowledged.extend(noted.hidden);
        }
        let results: Vec<Entry> = heard
            .reply
            .calls
            .iter()
            .map(|call| self.result(&call.id))
            .collect();
        let asks = results.is_empty();
        self.entries.push(Entry::Said(heard.reply));
        self.entries.extend(results);
        if asks {
            self.entries
                .push(Entry::User(format!("Go on behind {}.", self.turns)));
        }
        self.turns += 1;
    }

    fn result(&self, id: &str) -> Entry {
        // About 2 KB, the mean of the results of recorded sessions.
        let lines = if self.is_tight() { 120 } else { 70 };
        let mut rng = plimsoll_scripted::rng::Rng::from_text(id, 3);
        let lines = (0..lines).map(|line| format!("{line}: src/part{:x}.rs", rng.next()));
        Entry::Result {
            id: id.to_owned(),
            text: lines.collect::<Vec<_>>().join("\n"),
        }
    }
}
