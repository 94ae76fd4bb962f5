//! What a server says about its models: the list beside an endpoint and, where that says nothing of how a model is
//! served, what local servers tell at places of their own. Each is asked for once, within limits. Owns the reading of
//! these answers. Never retries, and never decides when to ask.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Limited};
use plimsoll_model::Rope;
use reqwest::Url;
use serde_json::{Value, json};

use super::client::UpstreamClient;
use super::error::UpstreamError;
use super::headers::{to_next_call, to_upstream};
use super::outbound::{Outbound, Payload};

/// How long the whole answer is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes of a list are read. The list of a market with hundreds of models has about a
/// million.
const MAX_BYTES: usize = 4 << 20;
/// A smaller number is not the size of a context. Some servers say 0 or 1 if they do not know.
pub const MIN_WINDOW: u32 = 1_024;

/// The ends of the addresses to which turns go.
const ENDPOINTS: [&str; 3] = ["/chat/completions", "/responses", "/messages"];

/// Where servers write the size of a model's context as it is served, for prompt and answer together.
const SERVED: [&[&str]; 5] = [
    // vLLM and SGLang
    &["max_model_len"],
    // llama.cpp
    &["meta", "n_ctx"],
    // LM Studio
    &["loaded_context_length"],
    // Groq
    &["context_window"],
    // OpenRouter, Together and Fireworks; Ollama for a model that is loaded
    &["context_length"],
];

/// Where servers write what a model was made for, which is seldom less than what is served.
const MADE_FOR: [&[&str]; 2] = [
    // Mistral, LM Studio
    &["max_context_length"],
    // llama.cpp
    &["meta", "n_ctx_train"],
];

/// Where a local server tells how it serves a model.
struct Place {
    /// What its list names as the model's owner.
    owner: &'static str,
    path: &'static str,
    /// Whether the question names the model, in a body.
    names: bool,
}

impl Place {
    const fn of(owner: &'static str, path: &'static str, names: bool) -> Self {
        Self { owner, path, names }
    }
}

/// Where local servers tell how they serve a model. Only a server whose list names one of these owners is asked for more,
/// and place after place until one says how the model is served.
///
/// * LM Studio's own list: <https://lmstudio.ai/docs/developer/rest/endpoints>.
/// * Ollama's list of what is loaded, <https://docs.ollama.com/api/ps>, and what it knows of a model, loaded or not:
///   <https://docs.ollama.com/api-reference/show-model-details>.
/// * The settings of llama.cpp's server, which has one model:
///   <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>.
const LOCAL: [Place; 4] = [
    Place::of("organization_owner", "/api/v0/models", false),
    Place::of("library", "/api/ps", false),
    Place::of("library", "/api/show", true),
    Place::of("llamacpp", "/props", false),
];
/// Where the last of these tells it.
const PROPS_CONTEXT: &[&str] = &["default_generation_settings", "n_ctx"];
/// The setting of a model of Ollama's that says with how much it is loaded.
const NUM_CTX: &str = "num_ctx";
/// What the name of the size ends with that a model of Ollama's was made for. It begins with that of its architecture.
const MADE_FOR_END: &str = ".context_length";

/// Why a server said nothing.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// The address is not that of an endpoint with a list beside it.
    #[error("no list of models stands beside the endpoint")]
    Place,
    /// The status was not 200.
    #[error("the list of models was answered with status {0}")]
    Status(u16),
    /// The answer was not complete in time.
    #[error("the list of models did not come in time")]
    Late,
    /// The answer is not a list, or the list is too long.
    #[error("the list of models could not be read")]
    Form,
    /// There was no response.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

impl UpstreamClient {
    /// Asks a server for the size of a model's context. Reads the list of models beside the
    /// endpoint that a turn went to, with the headers of that turn. `local` says that the server may be one
    /// that tells it elsewhere. Returns `None` if nothing says.
    ///
    /// # Errors
    /// [`ListingError`] if there is no such list.
    pub async fn context_of(
        &self,
        endpoint: &Url,
        headers: &HeaderMap,
        model: &str,
        local: bool,
    ) -> Result<Option<u32>, ListingError> {
        let url = beside(endpoint).ok_or(ListingError::Place)?;
        let root = local.then(|| root_of(&url)).flatten();
        let list = self.read(url, headers, None).await?;
        let Some(entry) = entry(&list, model) else {
            return Ok(None);
        };
        if let Some(served) = context_in(entry, &SERVED) {
            return Ok(Some(served));
        }
        let mut made_for = context_in(entry, &MADE_FOR);
        let owner = entry.get("owned_by").and_then(Value::as_str);
        for place in LOCAL.iter().filter(|place| Some(place.owner) == owner) {
            let Some(root) = &root else { break };
            let named = place.names.then(|| json!({"model": model}).to_string());
            let told = self.read(at(root, place.path), headers, named);
            // A server of another version may not have the place.
            let Ok(told) = told.await else { continue };
            if let Some(served) = served(&told, model) {
                return Ok(Some(served));
            }
            made_for = made_for.or_else(|| shown(&told));
        }
        Ok(made_for)
    }

    /// Asks a question, with a body if it has one.
    async fn read(
        &self,
        url: Url,
        headers: &HeaderMap,
        body: Option<String>,
    ) -> Result<Value, ListingError> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.fetch(url, headers, body));
        let answer = answer.await.map_err(|_| ListingError::Late)??;
        serde_json::from_slice(&answer).map_err(|_| ListingError::Form)
    }

    async fn fetch(
        &self,
        url: Url,
        headers: &HeaderMap,
        body: Option<String>,
    ) -> Result<Bytes, ListingError> {
        let mut headers = asking(headers.clone());
        let method = match &body {
            None => Method::GET,
            Some(_) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Method::POST
            }
        };
        let body = body.map(|body| Rope::from(Bytes::from(body)));
        let outbound = Outbound {
            method,
            url,
            headers,
            payload: Payload::Whole(body.unwrap_or_default()),
        };
        let response = self.attempt(outbound).await?;
        if response.status() != http::StatusCode::OK {
            return Err(ListingError::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES)
            .collect()
            .await;
        Ok(body.map_err(|_| ListingError::Form)?.to_bytes())
    }
}

/// The address of the list beside an endpoint. Keeps the query, because some clients send their key
/// in it.
fn beside(endpoint: &Url) -> Option<Url> {
    let path = endpoint.path();
    let base = ENDPOINTS.iter().find_map(|end| path.strip_suffix(end))?;
    let mut url = endpoint.clone();
    url.set_path(&format!("{base}/models"));
    Some(url)
}

/// The address below which a server keeps what is its own: that of the list without the version of OpenAI's format.
fn root_of(list: &Url) -> Option<Url> {
    let mut url = list.clone();
    url.set_path(list.path().strip_suffix("/v1/models")?);
    Some(url)
}

fn at(server: &Url, path: &str) -> Url {
    let mut url = server.clone();
    url.set_path(&format!("{}{path}", server.path().trim_end_matches('/')));
    url
}

/// The headers for the list: those of the turn, without what describes its body and its answer.
fn asking(mut headers: HeaderMap) -> HeaderMap {
    to_upstream(&mut headers);
    to_next_call(&mut headers);
    let of_body = |name: &HeaderName| name.as_str().starts_with("content-");
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| of_body(name))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

/// What a list says of a model.
fn entry<'a>(list: &'a Value, model: &str) -> Option<&'a Value> {
    let models = list.get("data").or_else(|| list.get("models"));
    let models = models.unwrap_or(list).as_array()?;
    // Ollama's models have a tag, which a client may leave out.
    let is = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        name == model || name.strip_suffix(":latest") == Some(model)
    };
    let named = |entry: &&Value| {
        ["id", "name", "model"]
            .iter()
            .any(|key| entry.get(key).is_some_and(is))
    };
    // llama.cpp serves one model under any name.
    let sole = || match models.as_slice() {
        [only] if only.get("meta").is_some() => Some(only),
        _ => None,
    };
    models.iter().find(named).or_else(sole)
}

/// What a local server tells of a model at a place of its own.
fn served(told: &Value, model: &str) -> Option<u32> {
    let listed = || context_in(entry(told, model)?, &SERVED);
    let set = || size(set_context(told.get("parameters")?.as_str()?)?);
    listed()
        .or_else(|| context_in(told, &[PROPS_CONTEXT]))
        .or_else(set)
}

/// The size with which a model is loaded, as its settings say, one in each line: a name and a value.
fn set_context(settings: &str) -> Option<u64> {
    let mut settings = settings.lines().map(str::split_whitespace);
    let mut setting =
        settings.find_map(|mut line| (line.next() == Some(NUM_CTX)).then_some(line))?;
    setting.next()?.parse().ok()
}

/// The size that a model was made for, as Ollama shows it.
fn shown(told: &Value) -> Option<u32> {
    let mut facts = told.get("model_info")?.as_object()?.iter();
    let (_, context) = facts.find(|(name, _)| name.ends_with(MADE_FOR_END))?;
    size(context.as_u64()?)
}

/// The first size that stands at one of these places.
fn context_in(told: &Value, places: &[&[&str]]) -> Option<u32> {
    places.iter().find_map(|path| {
        let found = path.iter().try_fold(told, |value, key| value.get(key))?;
        size(found.as_u64()?)
    })
}

fn size(tokens: u64) -> Option<u32> {
    let tokens = u32::try_from(tokens).ok()?;
    Some(tokens).filter(|tokens| *tokens >= MIN_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_tell_contexts_in_several_words() {
        let llama = |id: &str, meta: Value| json!({"object": "list", "data": [{"id": id, "object": "model", "owned_by": "llamacpp", "meta": meta}]});
        let vllm = json!({"object": "list", "data": [
            {"id": "other", "object": "model", "max_model_len": 4096},
            {"id": "m", "object": "model", "owned_by": "vllm", "root": "m", "max_model_len": 32768, "permission": []},
        ]});
        let market = json!({"data": [{"id": "m", "context_length": 131_072, "top_provider": {"context_length": 65_536}}]});
        for (list, context) in [
            (vllm, Some(32_768)),
            (market, Some(131_072)),
            (json!([{"id": "m", "context_length": 8_192}]), Some(8_192)),
            (
                json!({"data": [{"id": "m", "context_window": 131_072}]}),
                Some(131_072),
            ),
            (
                json!({"data": [{"id": "m", "max_context_length": 32_768}]}),
                Some(32_768),
            ),
            (llama("m", json!({"n_ctx_train": 131_072})), Some(131_072)),
            (
                llama("m", json!({"n_ctx_train": 131_072, "n_ctx": 16_384})),
                Some(16_384),
            ),
            // It answers by any name.
            (
                llama("/models/a.gguf", json!({"n_ctx_train": 32_768})),
                Some(32_768),
            ),
            (
                json!({"data": [{"id": "other", "max_model_len": 4_096}]}),
                None,
            ),
            (
                json!({"data": [{"id": "m", "object": "model", "owned_by": "library"}]}),
                None,
            ),
            (json!({"data": [{"id": "m", "max_model_len": 0}]}), None),
            (json!({"data": [{"id": "m", "max_model_len": "8k"}]}), None),
            (
                json!({"data": [{"id": "m", "max_model_len": u64::MAX}]}),
                None,
            ),
            (
                json!({"object": "list", "data": [{"id": "m", "type": "llm", "state": "loaded",
                    "max_context_length": 131_072, "loaded_context_length": 4_096}]}),
                Some(4_096),
            ),
            (
                json!({"models": [{"name": "m:latest", "model": "m:latest", "size": 6, "context_length": 4_096}]}),
                Some(4_096),
            ),
            (json!({"data": {}}), None),
            (json!("m"), None),
        ] {
            let found = entry(&list, "m");
            let places = [&SERVED[..], &MADE_FOR[..]].concat();
            let found = found.and_then(|found| context_in(found, &places));
            assert_eq!(found, context, "{list}");
        }
    }

    #[test]
    fn what_ollama_shows_of_a_model_says_how_it_is_loaded_and_what_it_was_made_for() {
        let info = json!({"general.architecture": "llama", "llama.rope.scaling.original_context_length": 8_192,
            "llama.context_length": 131_072, "llama.embedding_length": 4_096});
        let parameters =
            "stop                           \"<|end|>\"\nnum_ctx                        16384\n";
        for (told, loaded, made_for) in [
            (
                json!({"parameters": parameters, "model_info": info}),
                Some(16_384),
                Some(131_072),
            ),
            (
                json!({"parameters": "temperature 1", "model_info": info}),
                None,
                Some(131_072),
            ),
            (json!({"parameters": "num_ctx 0"}), None, None),
            (json!({"parameters": "num_ctx"}), None, None),
            (json!({"parameters": 7, "model_info": []}), None, None),
            (json!({"error": "model 'm' not found"}), None, None),
        ] {
            assert_eq!(
                (served(&told, "m"), shown(&told)),
                (loaded, made_for),
                "{told}"
            );
        }
    }

    #[test]
    fn a_list_stands_beside_its_endpoint() {
        for (endpoint, list) in [
            ("http://h/v1/chat/completions", Some("http://h/v1/models")),
            ("http://h/v1/responses", Some("http://h/v1/models")),
            ("http://h/v1/messages", Some("http://h/v1/models")),
            ("http://h/chat/completions", Some("http://h/models")),
            (
                "http://h/api/paas/v4/chat/completions?key=k",
                Some("http://h/api/paas/v4/models?key=k"),
            ),
            ("http://h/v1/completions", None),
        ] {
            let found = beside(&Url::parse(endpoint).unwrap());
            assert_eq!(found.as_ref().map(Url::as_str), list, "{endpoint}");
        }
    }

    #[test]
    fn a_question_says_who_asks_and_nothing_of_the_turn() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer k"),
            ("anthropic-version", "2023-06-01"),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
            ("accept", "text/event-stream"),
            ("accept-encoding", "br"),
            ("idempotency-key", "i"),
            ("x-plimsoll-session", "s"),
            ("cookie", "c"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let asking = asking(headers);
        let mut names: Vec<&str> = asking.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expect = [
            "accept",
            "accept-encoding",
            "anthropic-version",
            "authorization",
        ];
        assert_eq!(names, expect);
        assert_eq!(asking["accept"], "application/json");
    }
}
