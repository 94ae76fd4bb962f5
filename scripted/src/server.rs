//! The HTTP server: routes, authorisation, records, and the sending of what `wire` composed.
//!
//! Owns the connections and the list of received requests. It never decides what to answer: the
//! script does, once the validator has accepted the request.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::cache::PrefixCache;
use crate::link::{Link, Links, Port};
use crate::reads::Answers;
use crate::received::{Progress, Received, Verdict, form_of};
use crate::rules::{Form, Judged, Rule, Rules, own_id};
use crate::script::{Reply, RequestView, Script};
use crate::send;
use crate::side;
use crate::size::{CountFn, Outline, Sizer, quarter_of_bytes};
use crate::validate::{self, Refusal};
use crate::wire::{self, Envelope};

/// The longest body that is read; a longer one is refused with 413.
const BODY_MAX: usize = 256 << 20;
/// When every completion says that it was created, before its number is added.
const CREATED: u64 = 1_760_000_000;

/// Who may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// Everybody.
    #[default]
    Open,
    /// Whoever sends a bearer token.
    Any,
    /// Whoever sends one of these bearer tokens.
    Keys(Vec<String>),
}

/// Settings of a provider.
#[derive(Clone)]
pub struct Options {
    /// Counts the tokens of a text.
    pub count: CountFn,
    /// The model's window in tokens; a longer request is refused.
    pub window: Option<usize>,
    /// Who may ask.
    pub auth: Auth,
    /// What reported prompt tokens are multiplied with, since a provider never counts as the
    /// formula does.
    pub usage_factor: f64,
    /// The step in tokens in which prefixes are cached.
    pub cache_step: usize,
    /// The port of the loopback interface; 0 takes a free one.
    pub port: u16,
    /// Rules of its own, beside those that all providers have.
    pub rules: Rules,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            count: quarter_of_bytes(),
            window: None,
            auth: Auth::Open,
            usage_factor: 1.0,
            cache_step: 1,
            port: 0,
            rules: Rules::default(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("window", &self.window)
            .field("auth", &self.auth)
            .field("usage_factor", &self.usage_factor)
            .field("cache_step", &self.cache_step)
            .field("port", &self.port)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// A running provider. It stops when it is dropped.
#[derive(Debug)]
pub struct Provider {
    /// Its address with the version's path, such as `http://127.0.0.1:40123/v1`.
    pub base_url: String,
    /// The socket address that it listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    links: Links,
    task: JoinHandle<()>,
}

impl Provider {
    /// Starts a provider on the loopback interface, on the runtime of the caller.
    ///
    /// # Errors
    /// The port can't be bound.
    pub async fn start(script: Script, options: Options) -> io::Result<Self> {
        let links = Links::default();
        let (port, address) = Port::bind(options.port, links.clone()).await?;
        let shared = Arc::new(Shared {
            script,
            sizer: Sizer::new(options.count.clone()),
            options,
            received: Mutex::default(),
            cache: Mutex::default(),
            answers: Mutex::default(),
        });
        let router = Router::new()
            .fallback(handle)
            .with_state(Arc::clone(&shared));
        let service = router.into_make_service_with_connect_info::<Link>();
        let task = tokio::spawn(async move {
            // Serving has no end of its own; the task is aborted.
            axum::serve(port, service).await.ok();
        });
        Ok(Self {
            base_url: format!("http://{address}/v1"),
            address,
            shared,
            links,
            task,
        })
    }

    /// Every request since the start or the last [`Provider::take`], in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Received> {
        locked(&self.shared.received).kept.clone()
    }

    /// The requests for completions of Chat Completions only.
    #[must_use]
    pub fn chats(&self) -> Vec<Received> {
        self.asked(Form::Chat)
    }

    /// The requests for answers in a wire format only.
    #[must_use]
    pub fn asked(&self, form: Form) -> Vec<Received> {
        let mut received = self.requests();
        received.retain(|request| request.form() == Some(form));
        received
    }

    /// Takes the requests away, so that long plays need not be held in memory.
    #[must_use]
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut locked(&self.shared.received).kept)
    }

    /// Stops listening and closes every connection, at once.
    pub fn stop(&self) {
        self.task.abort();
        self.links.close();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) struct Shared {
    script: Script,
    options: Options,
    sizer: Sizer,
    received: Mutex<Log>,
    cache: Mutex<PrefixCache>,
    answers: Mutex<Answers>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Log {
    count: usize,
    kept: Vec<Received>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept of a request before anything is answered.
struct Noted {
    index: usize,
    progress: Progress,
}

/// A request that was looked at.
struct Looked {
    form: Form,
    /// The body, unless it is refused.
    value: Result<Value, Refusal>,
    judged: Judged,
    tokens: Tokens,
}

impl Looked {
    fn verdict(&self) -> Verdict {
        match &self.value {
            Ok(_) => Verdict::Accepted,
            Err(refusal) => Verdict::Refused(refusal.clone()),
        }
    }
}

impl Shared {
    fn note(
        &self,
        parts: &Parts,
        body: &Bytes,
        verdict: Verdict,
        looked: Option<&Looked>,
    ) -> Noted {
        let mut log = locked(&self.received);
        let index = log.count;
        let progress = Progress::default();
        let tokens = looked.map_or_else(Tokens::default, |looked| looked.tokens);
        log.count += 1;
        log.kept.push(Received {
            index,
            at: Instant::now(),
            method: parts.method.to_string(),
            path: parts.uri.to_string(),
            headers: parts.headers.clone(),
            body: body.clone(),
            verdict,
            judged: looked
                .map(|looked| looked.judged.clone())
                .unwrap_or_default(),
            size: tokens.size,
            cached: tokens.cached,
            progress: progress.clone(),
        });
        Noted { index, progress }
    }

    /// Checks who asks, what is asked, and how long it is.
    fn look(&self, form: Form, parts: &Parts, body: &Bytes) -> Looked {
        let mut looked = Looked {
            form,
            value: authorised(&self.options.auth, parts).map(|()| Value::Null),
            judged: Judged::default(),
            tokens: Tokens::default(),
        };
        if looked.value.is_err() {
            return looked;
        }
        let rules = &self.options.rules;
        let thinking = rules.has(Rule::ThinkingParts);
        looked.value = validate::request_of(form, body, thinking);
        let model = looked
            .value
            .as_ref()
            .ok()
            .and_then(|value| value.get("model")?.as_str());
        let reads = rules.reads(model.unwrap_or_default());
        if let Ok(value) = &looked.value {
            looked.judged = rules.judge(form, &parts.headers, value);
        }
        let judged = &looked.judged.thoughts;
        let unseen = |seal: &str| {
            let own = own_id(seal).unwrap_or_default();
            judged
                .iter()
                .any(|thought| !thought.seen && thought.own == own)
        };
        let size = self
            .sizer
            .read(form, body, reads, &locked(&self.answers), &unseen);
        looked.tokens.size = size;
        let refusal = match self.options.window {
            Some(window) if size > window => Some(Refusal::context_length(window, size)),
            Some(_) | None => looked.judged.refusal.clone(),
        };
        if let (Ok(_), Some(refusal)) = (&looked.value, refusal) {
            looked.value = Err(refusal);
        }
        if looked.value.is_ok() && form == Form::Chat {
            let outline = Outline::read(body);
            let mut cache = locked(&self.cache);
            let held = cache.admit(credential(parts), &outline, &self.sizer);
            let step = self.options.cache_step.max(1);
            looked.tokens.cached = held / step * step;
        }
        looked
    }

    fn envelope(&self, index: usize, looked: &Looked, body: &Value, reply: &Reply) -> Envelope {
        let (form, tokens) = (looked.form, looked.tokens);
        let mut completion = self.sizer.text(&reply.text) + self.sizer.text(&reply.reasoning);
        for call in &reply.calls {
            completion += self.sizer.text(&call.name) + self.sizer.text(&call.arguments);
        }
        let reported = |count: usize| scaled(count, self.options.usage_factor);
        Envelope {
            form,
            id: match form {
                Form::Chat => format!("chatcmpl-scripted{index:06}"),
                Form::Responses => format!("resp_{index}"),
                Form::Messages => format!("msg_{index}"),
            },
            created: CREATED + u64::try_from(index).unwrap_or_default(),
            model: body
                .get("model")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            prompt: reported(tokens.size),
            cached: reported(tokens.cached),
            completion,
            include_usage: body.pointer("/stream_options/include_usage")
                == Some(&Value::Bool(true)),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Tokens {
    size: usize,
    cached: usize,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52 and never negative"
)]
fn scaled(count: usize, factor: f64) -> usize {
    (count as f64 * factor).round() as usize
}

fn credential(parts: &Parts) -> &str {
    parts
        .headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn authorised(auth: &Auth, parts: &Parts) -> Result<(), Refusal> {
    // Clients of Messages name their key in a header of its own.
    let own = parts.headers.get("x-api-key");
    let own = own.and_then(|value| value.to_str().ok());
    let bearer = credential(parts).strip_prefix("Bearer ");
    let token = bearer.or(own).unwrap_or_default();
    let (message, code) = match auth {
        Auth::Open => return Ok(()),
        Auth::Any if !token.is_empty() => return Ok(()),
        Auth::Keys(keys) if keys.iter().any(|key| key == token) => return Ok(()),
        Auth::Any => ("You didn't provide an API key.", None),
        Auth::Keys(_) if token.is_empty() => ("You didn't provide an API key.", None),
        Auth::Keys(_) => (
            "Incorrect API key provided.",
            Some("invalid_api_key".to_owned()),
        ),
    };
    Err(Refusal {
        status: 401,
        message: message.to_owned(),
        param: None,
        code,
        raw: None,
    })
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let link = parts
        .extensions
        .get::<ConnectInfo<Link>>()
        .map_or_else(Link::default, |info| info.0.clone());
    let body = match to_bytes(body, BODY_MAX).await {
        Ok(body) => body,
        // The other side left within its body, or sent too much: nobody waits for more.
        Err(_) => return send::json(413, send::error("request body is too large").into()),
    };
    let path = parts.uri.path();
    if let Some(form) = form_of(parts.method.as_str(), path) {
        return answer(&shared, form, &parts, body, link).await;
    }
    if (parts.method.as_str(), path) == ("POST", "/v1/messages/count_tokens") {
        return counted(&shared, &parts, &body);
    }
    let verdict = match authorised(&shared.options.auth, &parts) {
        Err(refusal) => Verdict::Refused(refusal),
        Ok(()) => Verdict::Unchecked,
    };
    let noted = shared.note(&parts, &body, verdict.clone(), None);
    match verdict {
        Verdict::Refused(refusal) => send::json(refusal.status, refusal.body(Form::Chat).into()),
        Verdict::Accepted | Verdict::Unchecked => {
            side::answer(&parts, &body, noted.progress.watch())
        }
    }
}

/// Tells the tokens of a request of Messages, which is checked as if it were to be answered.
fn counted(shared: &Shared, parts: &Parts, body: &Bytes) -> Response {
    let looked = shared.look(Form::Messages, parts, body);
    let noted = shared.note(parts, body, looked.verdict(), Some(&looked));
    noted.progress.watch().finish();
    match looked.value {
        Ok(_) => {
            let count = scaled(looked.tokens.size, shared.options.usage_factor);
            let told = serde_json::json!({"input_tokens": count});
            send::json(200, told.to_string().into())
        }
        Err(refusal) => send::json(refusal.status, refusal.body(Form::Messages).into()),
    }
}

async fn answer(shared: &Shared, form: Form, parts: &Parts, body: Bytes, link: Link) -> Response {
    let looked = shared.look(form, parts, &body);
    let noted = shared.note(parts, &body, looked.verdict(), Some(&looked));
    let watch = noted.progress.watch();
    let value = match &looked.value {
        Ok(value) => value,
        Err(refusal) => {
            watch.finish();
            return send::json(refusal.status, refusal.body(form).into());
        }
    };
    let size = looked.tokens.size;
    let reply = shared.script.reply(&RequestView {
        index: noted.index,
        headers: &parts.headers,
        raw: &body,
        body: value,
        size,
    });
    let mut reply = match send::early(form, reply, size, &link, &watch).await {
        Ok(reply) => reply,
        Err(response) => return *response,
    };
    let model = value.get("model").and_then(Value::as_str);
    let rules = &shared.options.rules;
    rules.issue(form, model.unwrap_or_default(), &looked.judged, &mut reply);
    let envelope = shared.envelope(noted.index, &looked, value, &reply);
    let seal = wire::signature(&reply, &envelope);
    locked(&shared.answers).note(noted.index, &reply, &seal);
    let streamed = value.get("stream") == Some(&Value::Bool(true));
    let steps = if streamed {
        wire::stream_steps(&reply, &envelope)
    } else {
        if !reply.style.last_delay.is_zero() {
            tokio::time::sleep(reply.style.last_delay).await;
        }
        wire::body_steps(&reply, &envelope)
    };
    send::steps(steps, streamed, noted.index, watch)
}
