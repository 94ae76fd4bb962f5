//! What happens, as server-sent events. Owns their ids and their fields. What a reader missed is sent to
//! it if it is still known; else it is told to read anew. Never waits for a reader.

use std::sync::Arc;

use plimsoll_proxy::pipeline::{Happened, Listening, LiveEvent};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::story::Story;
use super::{Console, overview, session, turns};

/// The most readers at once. A page needs one.
const MOST_READERS: usize = 64;

/// A reader's stream.
pub struct EventStream {
    console: Arc<Console>,
    listening: Listening,
    /// What it missed, the newest first.
    missed: Vec<LiveEvent>,
    /// Whether it has to be told first that something is missing, and how much.
    resync: Option<Option<u64>>,
    /// Frames of an event that were not sent yet, the last first.
    waiting: Vec<String>,
}

/// A frame. Only the last of an event has its id: whoever comes back with that has all of it.
fn frame(id: Option<&str>, name: &str, data: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {data}\n\n")
}

impl Console {
    /// Begins a stream for a reader. `last` is the id of the last event that it read. None if there are
    /// too many readers.
    #[must_use]
    pub fn listen(self: &Arc<Self>, last: Option<&str>) -> Option<EventStream> {
        // The numbers begin anew with each process.
        let known = last.and_then(|last| {
            let (process, number) = last.split_once('-')?;
            let own = process == self.process();
            own.then(|| number.parse().ok()).flatten()
        });
        let listening = self.app.live.listen(known, MOST_READERS)?;
        let resync = match (last, &listening.missed) {
            (None, _) | (Some(_), Some(_)) => None,
            (Some(_), None) => Some(known.map(|known| listening.newest.saturating_sub(known))),
        };
        let mut missed = listening.missed.clone().unwrap_or_default();
        missed.reverse();
        Some(EventStream {
            console: Arc::clone(self),
            listening,
            missed,
            resync,
            waiting: Vec::new(),
        })
    }

    /// Names this process in ids of events.
    fn process(&self) -> String {
        format!("{:x}", self.began)
    }

    /// The frames of an event, in order. None of them if its record is gone.
    fn frames(&self, event: &LiveEvent) -> Vec<String> {
        let id = format!("{}-{}", self.process(), event.number);
        match &event.what {
            Happened::Upstream => {
                let data = json!({"upstream": overview::upstream(self)});
                vec![frame(Some(&id), "upstream", &data)]
            }
            Happened::Failed { tenant, session } => {
                let data = json!({"session": session, "tenant": tenant});
                vec![frame(Some(&id), "failed", &data)]
            }
            Happened::Turn {
                tenant,
                session,
                record,
                watched,
                ..
            } => {
                let Some((known, row)) = self.told(session, *watched) else {
                    return Vec::new();
                };
                let path = &known.path;
                let mut entries = path.entries.iter();
                let Some(at) = entries.rposition(|entry| entry.id == *record) else {
                    return Vec::new();
                };
                let prologues = session::prologues(&Story::of(path), path);
                let (Some(entry), Some(prologue)) = (path.entries.get(at), prologues.get(at))
                else {
                    return Vec::new();
                };
                let tenant = tenant.0.hex();
                let mut frames = Vec::new();
                if entry.record.turn == 1 {
                    let data = json!({"session": session, "tenant": tenant, "parent": known.row.parent, "model": known.row.model});
                    frames.push(frame(None, "session", &data));
                }
                for place in session::passes_of(entry) {
                    let pass = session::pass(&place, None);
                    let data = json!({"session": session, "tenant": tenant, "pass": pass});
                    frames.push(frame(None, "pass", &data));
                }
                let turn = turns::one(entry, *prologue);
                let data = json!({"session": session, "tenant": tenant, "row": row, "turn": turn});
                frames.push(frame(Some(&id), "turn", &data));
                frames
            }
        }
    }

    fn resync(&self, newest: u64, missed: Option<u64>) -> String {
        let id = format!("{}-{newest}", self.process());
        frame(Some(&id), "resync", &json!({"missed": missed}))
    }
}

impl EventStream {
    /// The next frame. Waits until something happens; none when the process ends.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(frame) = self.waiting.pop() {
                return Some(frame);
            }
            if let Some(missed) = self.resync.take() {
                return Some(self.console.resync(self.listening.newest, missed));
            }
            let event = match self.missed.pop() {
                Some(event) => event,
                None => match self.listening.events.recv().await {
                    Ok(event) => event,
                    Err(RecvError::Lagged(missed)) => {
                        // Everything that waits is older than what it has to read anew.
                        let newest = self.console.app.live.newest();
                        self.listening.events = self.listening.events.resubscribe();
                        return Some(self.console.resync(newest, Some(missed)));
                    }
                    Err(RecvError::Closed) => return None,
                },
            };
            let console = Arc::clone(&self.console);
            // Records may have to be read from a disk.
            let frames = tokio::task::spawn_blocking(move || console.frames(&event)).await;
            self.waiting = frames.unwrap_or_default();
            self.waiting.reverse();
        }
    }
}
