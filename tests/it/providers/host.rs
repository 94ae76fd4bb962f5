//! The provider: the scripted one for Chat Completions, and for Messages and Responses one of its
//! own that has the same rules. Both keep what they refused. Asserts nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use plimsoll_scripted::{Form, Options, Provider, Rules, Script, Verdict};
use serde_json::{Value, json};

use super::script::{self, Quirks};
use super::wire;
use crate::dialects::{Dialect, Sent};
use crate::support::{response_events, upstream};

/// A running provider.
pub struct Host {
    pub addr: SocketAddr,
    chat: Option<Provider>,
    log: Log,
    fronts: Fronts,
}

/// Of each request whether the hidden tools are offered, and whether they are asked for.
type Fronts = Arc<Mutex<Vec<(bool, bool)>>>;

/// How the guidance begins.
const GUIDANCE: &str = "# Context episodes";

/// What became of each request: the model that it named, and what was said against it.
type Log = Arc<Mutex<Vec<(String, Option<String>)>>>;

impl Host {
    pub async fn start(form: Form, rules: Rules, quirks: Quirks) -> Self {
        if form == Form::Chat {
            return Self::chat(rules, quirks).await;
        }
        let (log, fronts) = (Log::default(), Fronts::default());
        let (kept, number) = (Arc::clone(&log), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&fronts);
        let addr = upstream(move |request| {
            let (log, rules, number) = (Arc::clone(&kept), rules.clone(), Arc::clone(&number));
            let fronts = Arc::clone(&seen);
            async move {
                let bytes = to_bytes(request.into_body(), usize::MAX).await.unwrap();
                let body: Value = serde_json::from_slice(&bytes).unwrap();
                let model = body["model"].as_str().unwrap_or_default().to_owned();
                let judged = paired(form, &body).and_then(|()| {
                    let judged = rules.judge(form, &body);
                    judged.map_err(|refusal| (refusal.status, refusal.message))
                });
                let said = judged.as_ref().err().map(|(_, text)| text.clone());
                log.lock().unwrap().push((model.clone(), said));
                let number = number.fetch_add(1, Ordering::SeqCst);
                let sent = Sent {
                    body,
                    bytes: bytes.to_vec(),
                };
                let asked = asked(&sent, &fronts);
                match judged {
                    Err((status, text)) => refused(form, status, &text),
                    Ok(()) => answered(number, form, &model, &rules, quirks, &sent, &asked),
                }
            }
        })
        .await;
        Self {
            addr,
            chat: None,
            log,
            fronts,
        }
    }

    async fn chat(rules: Rules, quirks: Quirks) -> Self {
        let fronts = Fronts::default();
        let seen = Arc::clone(&fronts);
        let script = Script::ask(move |view| {
            let sent = Sent {
                body: view.body.clone(),
                bytes: Vec::new(),
            };
            script::reply(&sent.key(), &asked(&sent, &seen), quirks)
        });
        let options = Options {
            rules,
            ..Options::default()
        };
        let provider = Provider::start(script, options).await.unwrap();
        Self {
            addr: provider.address,
            chat: Some(provider),
            log: Log::default(),
            fronts,
        }
    }

    /// What stood in front of the requests, each time that it changed.
    pub fn fronts(&self) -> Vec<(bool, bool)> {
        let mut fronts = self.fronts.lock().unwrap().clone();
        fronts.dedup();
        fronts
    }

    /// What was refused so far: the model, and the words.
    pub fn refusals(&self) -> Vec<(String, String)> {
        if let Some(chat) = &self.chat {
            let refused = chat.chats().into_iter().filter_map(|request| {
                let model = request.value()["model"].as_str()?.to_owned();
                match request.verdict {
                    Verdict::Refused(refusal) => Some((model, refusal.message)),
                    Verdict::Accepted | Verdict::Unchecked => None,
                }
            });
            return refused.collect();
        }
        let log = self.log.lock().unwrap().clone();
        let refused = log
            .into_iter()
            .filter_map(|(model, text)| Some((model, text?)));
        refused.collect()
    }
}

/// The tools that a model uses, which does not use what waits to be asked for. Notes what stood in
/// front.
fn asked(sent: &Sent, fronts: &Fronts) -> Vec<String> {
    let mut tools = sent.tools();
    let guided = sent.body.to_string().contains(GUIDANCE);
    let offered = tools.iter().any(|name| name == "delimiter");
    fronts.lock().unwrap().push((offered, guided));
    tools.retain(|name| guided || name != "delimiter");
    tools
}

/// Calls have results and results have calls, in both formats.
fn paired(form: Form, body: &Value) -> Result<(), (u16, String)> {
    let list = if form == Form::Messages {
        "messages"
    } else {
        "input"
    };
    let (mut open, mut faults) = (Vec::new(), Vec::new());
    let elements = body[list].as_array().cloned().unwrap_or_default();
    let blocks = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
    let flat: Vec<Value> = match form {
        Form::Messages => elements.iter().flat_map(blocks).collect(),
        Form::Chat | Form::Responses => elements,
    };
    for block in &flat {
        let id = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str().unwrap_or_default() {
            "tool_use" => open.push(id("id")),
            "function_call" => open.push(id("call_id")),
            kind @ ("tool_result" | "function_call_output") => {
                let id = id(if kind == "tool_result" {
                    "tool_use_id"
                } else {
                    "call_id"
                });
                match open.iter().position(|call| *call == id) {
                    Some(at) => drop(open.remove(at)),
                    None => faults.push(format!("No tool call found for output {id}.")),
                }
            }
            _ => {}
        }
    }
    faults.extend(
        open.iter()
            .map(|id| format!("No tool output found for {id}.")),
    );
    match faults.into_iter().next() {
        Some(fault) => Err((400, fault)),
        None => Ok(()),
    }
}

fn refused(form: Form, status: u16, text: &str) -> Response {
    let error = json!({"type": "invalid_request_error", "message": text});
    let body = match form {
        Form::Messages => json!({"type": "error", "error": error}),
        Form::Chat | Form::Responses => json!({"error": error}),
    };
    with(status, "application/json", body.to_string())
}

fn answered(
    number: usize,
    form: Form,
    model: &str,
    rules: &Rules,
    quirks: Quirks,
    sent: &Sent,
    asked: &[String],
) -> Response {
    let mut reply = script::reply(&sent.key(), asked, quirks);
    if let Some(error) = &reply.error {
        return with(error.status, "application/json", error.body.clone());
    }
    rules.issue(form, model, &mut reply);
    let streamed = sent.body["stream"] == true;
    let whole = match form {
        Form::Messages => wire::message(number, model, &reply),
        Form::Chat | Form::Responses => wire::response(number, model, &reply),
    };
    match (streamed, sent.dialect()) {
        (false, _) => with(200, "application/json", whole.to_string()),
        (true, Dialect::Messages) => with(200, "text/event-stream", wire::message_events(&whole)),
        (true, _) => with(200, "text/event-stream", response_events(&whole)),
    }
}

fn with(status: u16, kind: &str, body: impl Into<Body>) -> Response {
    let built = Response::builder().status(status);
    built
        .header("content-type", kind)
        .body(body.into())
        .unwrap()
}
