//! Responses requests that name what was said before: what was served is put in its place and never
//! asked of the provider, through restarts and forks, and of nobody else's; all else is the
//! provider's own.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use plimsoll_console::inspect::Archive;
use plimsoll_core::turn::StoreContent;
use plimsoll_proxy::pipeline::App;
use plimsoll_store::{Store, StoreSettings};
use serde_json::{Value, json};

use super::process::Process;
use super::support::{Lenient, Proxy, client, response_events, soon};

/// What the provider answers to the newest item of a request: its number, the items, the status.
pub fn answer(number: usize, body: &Value) -> Value {
    let newest = match &body["input"] {
        Value::Array(items) => items.last().cloned().unwrap_or_default(),
        text => json!({"content": text}),
    };
    let asked = newest["content"].as_str().or(newest["output"].as_str());
    let asked = asked.unwrap_or_default();
    let call = |name: &str, arguments: &str| {
        json!({"type": "function_call", "id": format!("fc_{number}"), "status": "completed",
            "call_id": format!("call_{number}"), "name": name, "arguments": arguments})
    };
    let text = json!({"type": "message", "id": format!("msg_{number}"), "role": "assistant",
        "status": "completed", "content": [{"type": "output_text", "annotations": [],
        "text": format!("answer {number}")}]});
    let (status, output) = match asked {
        "look" => ("completed", vec![call("read", r#"{"path":"a"}"#)]),
        "mark" => {
            let start = r#"{"action":"start","name":"a","type":"expl"}"#;
            ("completed", vec![call("delimiter", start)])
        }
        "hush" => ("completed", Vec::new()),
        "stop" => ("incomplete", vec![text]),
        "fail" => ("failed", vec![text]),
        _ => ("completed", vec![text]),
    };
    json!({"id": format!("resp_{number}"), "object": "response", "created_at": number,
        "status": status, "error": null, "model": "gpt-4o", "output": output,
        "instructions": body["instructions"], "tools": body["tools"],
        "previous_response_id": null, "store": true,
        "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}})
}

/// A provider that has kept nothing: what it is asked to go on from it refuses. So it does with what
/// is odd to it, unless it is the client's own.
pub async fn provider() -> Lenient {
    Lenient::start(|number, body| {
        let body: Value = serde_json::from_slice(body).unwrap();
        let named = body["previous_response_id"].is_string()
            || body["input"].to_string().contains("item_reference");
        let odd = body["input"].to_string().contains("\"odd\"");
        let built = Response::builder();
        let (built, bytes) = if named {
            let error = json!({"error": {"message": "not found"}});
            (built.status(404), error.to_string())
        } else if odd && body["tools"].to_string().contains("delimiter") {
            let error = json!({"error": {"message": "odd"}});
            (built.status(400), error.to_string())
        } else if body["stream"] == true {
            let built = built.header("content-type", "text/event-stream");
            (built, response_events(&answer(number, &body)))
        } else {
            let built = built.header("content-type", "application/json");
            (built, answer(number, &body).to_string())
        };
        built.body(Body::from(bytes)).unwrap()
    })
    .await
}

pub struct Heard {
    pub status: u16,
    headers: HeaderMap,
    /// The response object, the last one of a stream.
    pub body: Value,
}

impl Heard {
    pub fn id(&self) -> &str {
        self.body["id"].as_str().unwrap()
    }

    pub fn unmanaged(&self) -> Option<&str> {
        let why = self.headers.get("x-plimsoll-unmanaged")?;
        Some(why.to_str().unwrap())
    }
}

/// One who asks.
pub struct Asker {
    url: String,
    key: &'static str,
    stream: bool,
}

impl Asker {
    pub fn of(proxy: &Proxy, stream: bool) -> Self {
        Self::at(proxy.url("/v1/responses"), stream)
    }

    fn at(url: String, stream: bool) -> Self {
        let key = "k";
        Self { url, key, stream }
    }

    fn bytes(&self, more: Value) -> String {
        let mut body = json!({"model": "gpt-4o", "stream": self.stream, "instructions": "be brief",
            "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}]});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body.to_string()
    }

    pub async fn ask(&self, more: Value) -> Heard {
        let request = client().post(&self.url).bearer_auth(self.key);
        let request = request.header("content-type", "application/json");
        let response = soon(request.body(self.bytes(more)).send()).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = soon(response.text()).await.unwrap();
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut events = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
        let body = match events.next_back() {
            Some(last) => last["response"].clone(),
            None => serde_json::from_str(&text).unwrap(),
        };
        assert!(!text.contains("delimiter"), "leaked: {text}");
        Heard {
            status,
            headers,
            body,
        }
    }

    /// Goes on from a response, and holds the answer to naming it.
    async fn after(&self, heard: &Heard, input: Value) -> Heard {
        let next = json!({"previous_response_id": heard.id(), "input": input});
        let next = self.ask(next).await;
        assert_eq!(
            (next.status, next.unmanaged()),
            (200, None),
            "{}",
            next.body
        );
        assert_eq!(next.body["previous_response_id"], heard.id());
        next
    }
}

/// The input of the newest request in brief: ids where there are any, else what was said.
fn brief(provider: &Lenient) -> Vec<String> {
    let newest = provider.newest();
    assert_eq!(newest["previous_response_id"], Value::Null);
    let items = newest["input"].as_array().unwrap().clone();
    let brief = |item: &Value| {
        let name = item["id"].as_str().or(item["content"].as_str());
        let of = item["call_id"].as_str().map(|id| format!("for {id}"));
        name.map(str::to_owned).or(of).unwrap()
    };
    items.iter().map(brief).collect()
}

#[tokio::test]
async fn a_refused_chain_fails_open_with_all_that_it_refers_to() {
    for stream in [false, true] {
        let provider = provider().await;
        let proxy = Proxy::before(provider.addr).await;
        let asker = Asker::of(&proxy, stream);
        let first = asker.ask(json!({"input": "mark"})).await;
        let odd = json!([{"role": "user", "content": "odd"}]);
        let odd = json!({"previous_response_id": first.id(), "input": odd});
        let second = asker.ask(odd).await;
        assert_eq!((second.status, provider.bodies().len()), (200, 4));
        assert_eq!(second.headers["x-plimsoll-fail-open"], "refused");
        assert_eq!(brief(&provider), ["mark", "msg_1", "odd"]);
        let newest = provider.newest();
        assert_eq!(newest["tools"].as_array().unwrap().len(), 1);
        assert!(!newest.to_string().contains("delimiter"), "{newest}");
    }
}

#[tokio::test]
async fn a_chain_is_put_together_with_what_was_hidden() {
    for stream in [false, true] {
        let provider = provider().await;
        let proxy = Proxy::before(provider.addr).await;
        let asker = Asker::of(&proxy, stream);
        let first = asker.ask(json!({"input": "mark"})).await;
        // Two hops, and the client knows the first one's id.
        assert_eq!((first.id(), provider.bodies().len()), ("resp_0", 2));
        let look = json!([{"role": "user", "content": "look"}]);
        let second = asker.after(&first, look).await;
        assert_eq!(
            brief(&provider),
            ["mark", "fc_0", "for call_0", "msg_1", "look"]
        );
        let result = json!([{"type": "function_call_output", "call_id": "call_2", "output": "x"}]);
        let third = asker.after(&second, result).await;
        let whole = [
            "mark",
            "fc_0",
            "for call_0",
            "msg_1",
            "look",
            "fc_2",
            "for call_2",
        ];
        assert_eq!(brief(&provider), whole);
        assert_eq!(third.headers["x-plimsoll-turn"], "3");

        // Nothing new is said, and what was said first is not said again.
        let silent = json!({"previous_response_id": third.id(), "instructions": "be long"});
        let fourth = asker.ask(silent).await;
        assert_eq!(brief(&provider), [&whole[..], &["msg_3"]].concat());
        let instructions = provider.newest()["instructions"].to_string();
        assert!(instructions.starts_with("\"be long") && !instructions.contains("be brief"));
        assert_eq!(fourth.body["instructions"], "be long");
    }
}

#[tokio::test]
async fn forks_share_what_they_go_on_from() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let (plain, streamed) = (Asker::of(&proxy, false), Asker::of(&proxy, true));
    let first = plain.ask(json!({"input": "one"})).await;
    let left = plain.after(&first, json!("left")).await;
    let right = streamed.after(&first, json!("right")).await;
    assert_eq!(brief(&provider), ["one", "msg_0", "right"]);
    plain.after(&right, json!("more")).await;
    assert_eq!(brief(&provider), ["one", "msg_0", "right", "msg_2", "more"]);
    streamed.after(&left, json!("more")).await;
    assert_eq!(brief(&provider), ["one", "msg_0", "left", "msg_1", "more"]);
}

#[tokio::test]
async fn a_chain_keeps_its_place_whatever_the_session_is_called() {
    let provider = provider().await;
    let directory = tempfile::tempdir().unwrap();
    let config = StoreSettings {
        path: directory.path().to_owned(),
        ..StoreSettings::default()
    };
    for on_disk in [false, true] {
        let store = on_disk.then(|| Arc::new(Store::open(&config).unwrap().store));
        let rewire = |app: &mut App| app.store = store.unwrap_or(Arc::clone(&app.store));
        let proxy = Proxy::wired(provider.addr, |_| {}, rewire).await;
        let asker = Asker::of(&proxy, false);
        let first = json!({"input": "mark", "prompt_cache_key": "a"});
        let first = asker.ask(first).await;
        let second = json!({"previous_response_id": first.id(), "input": "two",
            "prompt_cache_key": "b"});
        let second = asker.ask(second).await;
        let sent = brief(&provider);
        assert_eq!((sent.len(), &*sent[0], &*sent[4]), (5, "mark", "two"));
        assert_eq!(second.headers["x-plimsoll-turn"], "2");
        let third = asker.after(&second, json!("three")).await;
        assert_eq!(brief(&provider)[..5], sent);
        assert_eq!(third.headers["x-plimsoll-turn"], "3");
    }
}

#[tokio::test]
async fn what_comes_and_goes_moves_nothing() {
    for stream in [false, true] {
        let provider = provider().await;
        let proxy = Proxy::before(provider.addr).await;
        let asker = Asker::of(&proxy, stream);
        let mut heard = asker.ask(json!({"input": "mark"})).await;
        let mut said = ["mark", "fc_0", "for call_0"].map(str::to_owned).to_vec();
        for (number, instructions) in [json!(null), json!(null), json!("x")].iter().enumerate() {
            let word = format!("word {number}");
            let next = json!({"previous_response_id": heard.id(), "input": word,
                "instructions": instructions});
            heard = asker.ask(next).await;
            said.extend([format!("msg_{}", number + 1), word]);
            // Without instructions of the client's the guidance is an item of its own.
            let guided = usize::from(instructions.is_null());
            assert_eq!(brief(&provider)[guided..], said);
            assert_eq!(heard.headers["x-plimsoll-turn"], (number + 2).to_string());
        }
    }
}

#[tokio::test]
async fn a_response_that_says_nothing_is_gone_on_from() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let first = asker.ask(json!({"input": "one"})).await;
    let second = asker.after(&first, json!("hush")).await;
    let third = asker.after(&second, json!("three")).await;
    assert_eq!(brief(&provider), ["one", "msg_0", "hush", "three"]);
    asker.after(&third, json!("four")).await;
    assert_eq!(
        brief(&provider),
        ["one", "msg_0", "hush", "three", "msg_2", "four"]
    );
}

#[tokio::test]
async fn items_are_put_in_where_they_are_named() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let own = json!([{"type": "message", "id": "mine", "role": "user", "content": "look"}]);
    asker.ask(json!({"input": own})).await;
    let result = json!({"type": "function_call_output", "call_id": "call_0", "output": "x"});
    let named = |id: &str| json!({"type": "item_reference", "id": id});
    let input = json!([named("mine"), {"id": "fc_0"}, result]);
    let second = asker.ask(json!({"input": input})).await;
    assert_eq!((second.status, second.unmanaged()), (200, None));
    assert_eq!(second.headers["x-plimsoll-turn"], "2");
    let newest = provider.newest();
    assert_eq!(newest["input"][0], own[0]);
    assert_eq!(newest["input"][1]["arguments"], r#"{"path":"a"}"#);
    assert_eq!(newest["input"][2], result);

    // One that is nobody's, and the whole request is the provider's.
    let request = json!({"input": [named("mine"), named("msg_other")]});
    let lost = asker.ask(request.clone()).await;
    assert_eq!(
        (lost.status, lost.unmanaged()),
        (404, Some("item_reference"))
    );
    let sent = provider.bodies().pop().unwrap();
    assert_eq!(sent, asker.bytes(request));
}

#[tokio::test]
async fn an_item_is_that_of_the_conversation_that_names_it() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let mine =
        |text: &str| json!([{"type": "message", "id": "mine", "role": "user", "content": text}]);
    let first = json!({"input": mine("one"), "prompt_cache_key": "a"});
    let first = asker.ask(first).await;
    // The client has changed its copy elsewhere, and said more there.
    let other = asker
        .ask(json!({"input": "x", "prompt_cache_key": "b"}))
        .await;
    let other = json!({"previous_response_id": other.id(), "input": mine("two"),
        "prompt_cache_key": "b"});
    asker.ask(other).await;
    for (session, before, text) in [
        ("a", None, "one"),
        ("b", None, "two"),
        ("c", None, "two"),
        ("c", Some(first.id()), "one"),
        ("b", Some(first.id()), "one"),
    ] {
        let input = json!([{"type": "item_reference", "id": "mine"}]);
        let request = json!({"input": input, "previous_response_id": before,
            "prompt_cache_key": session});
        let heard = asker.ask(request).await;
        assert_eq!((heard.status, heard.unmanaged()), (200, None));
        let newest = provider.newest();
        let last = newest["input"].as_array().unwrap().last().unwrap();
        assert_eq!(last["content"], text, "{session} {before:?}");
    }
}

#[tokio::test]
async fn items_of_the_conversation_and_of_others_are_named_side_by_side() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let said = |id: &str, text: &str| json!([{"type": "message", "id": id, "role": "user", "content": text}]);
    let first = asker.ask(json!({"input": said("mine", "one")})).await;
    for id in ["other_1", "other_2", "mine"] {
        let elsewhere =
            json!({"input": said(id, &format!("elsewhere {id}")), "prompt_cache_key": "b"});
        asker.ask(elsewhere).await;
    }
    let named = ["other_1", "mine", "other_2", "mine"];
    let input: Vec<Value> = named
        .map(|id| json!({"type": "item_reference", "id": id}))
        .into();
    let request = json!({"input": input, "previous_response_id": first.id()});
    let heard = asker.ask(request).await;
    assert_eq!((heard.status, heard.unmanaged()), (200, None));
    let newest = provider.newest();
    let input = newest["input"].as_array().unwrap();
    let texts: Vec<&str> = input[input.len() - 4..]
        .iter()
        .map(|item| item["content"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        ["elsewhere other_1", "one", "elsewhere other_2", "one"]
    );
}

/// What a request that goes on from this response comes to where it is not known.
async fn is_forwarded(provider: &Lenient, asker: &Asker, id: &str) {
    let request = json!({"previous_response_id": id, "input": "next"});
    let heard = asker.ask(request.clone()).await;
    let why = Some("previous_response_id");
    assert_eq!((heard.status, heard.unmanaged()), (404, why), "{id}");
    let sent = provider.bodies().pop().unwrap();
    assert_eq!(sent, asker.bytes(request), "{id}");
}

#[tokio::test]
async fn another_tenants_are_nobodys() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let first = asker.ask(json!({"input": "one"})).await;
    let other = Asker {
        key: "other",
        ..Asker::of(&proxy, false)
    };
    is_forwarded(&provider, &other, first.id()).await;
    let named = json!([{"type": "item_reference", "id": "msg_0"}]);
    let lost = other.ask(json!({"input": named})).await;
    assert_eq!(lost.unmanaged(), Some("item_reference"));
    asker.after(&first, json!("two")).await;
}

#[tokio::test]
async fn what_was_not_kept_is_the_providers() {
    let provider = provider().await;
    for stream in [false, true] {
        let proxy = Proxy::before(provider.addr).await;
        let asker = Asker::of(&proxy, stream);
        is_forwarded(&provider, &asker, "resp_never").await;
        let unkept = asker.ask(json!({"input": "one", "store": false})).await;
        is_forwarded(&provider, &asker, unkept.id()).await;
        // A failed one has no end to go on from; one that was cut short has.
        let failed = asker.ask(json!({"input": "fail"})).await;
        is_forwarded(&provider, &asker, failed.id()).await;
        let cut = asker.ask(json!({"input": "stop"})).await;
        asker.after(&cut, json!("go on")).await;
        // A chat without tools may be gone on from, too.
        let plain = asker.ask(json!({"input": "one", "tools": []})).await;
        let next = json!({"previous_response_id": plain.id(), "input": "two", "tools": []});
        let next = asker.ask(next).await;
        assert_eq!((next.status, next.unmanaged()), (200, None));
        assert_eq!(next.headers["x-plimsoll-turn"], "2");
        let asked_once = json!({"input": "one", "tools": [], "store": false});
        let asked_once = asker.ask(asked_once).await;
        is_forwarded(&provider, &asker, asked_once.id()).await;
    }
    let proxy = Proxy::with(provider.addr, |config| {
        config.store.content = StoreContent::Off;
    });
    let asker = Asker::of(&proxy.await, false);
    let first = asker.ask(json!({"input": "one"})).await;
    // The provider can go on from what it keeps only if there is nothing of ours in it.
    let tools = || provider.newest()["tools"].to_string();
    assert!(!tools().contains("delimiter"), "{}", tools());
    is_forwarded(&provider, &asker, first.id()).await;
    let unkept = json!({"input": "two", "store": false});
    asker.ask(unkept).await;
    assert!(tools().contains("delimiter"), "{}", tools());
}

#[tokio::test]
async fn what_is_kept_begins_where_the_client_asks() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let first = asker.ask(json!({"input": "one", "store": false})).await;
    let kept = || Archive::read(&proxy.app.store).unwrap().branches()[0].content;
    assert!(!kept());
    let mut history = vec![json!({"role": "user", "content": "one"})];
    history.extend(first.body["output"].as_array().unwrap().clone());
    history.push(json!({"role": "user", "content": "two"}));
    let second = asker.ask(json!({"input": history})).await;
    assert!(kept());
    asker.after(&second, json!("three")).await;
    assert_eq!(brief(&provider), ["one", "msg_0", "two", "msg_1", "three"]);
    // What goes on from it need not be kept itself.
    let third = json!({"previous_response_id": second.id(), "input": "x", "store": false});
    let third = asker.ask(third).await;
    assert_eq!(third.unmanaged(), None);
    is_forwarded(&provider, &asker, third.id()).await;
}

#[tokio::test]
async fn no_more_is_put_together_than_a_body_may_have() {
    let provider = provider().await;
    let proxy = Proxy::with(provider.addr, |config| config.server.body_cap = 4000);
    let asker = Asker::of(&proxy.await, false);
    let first = asker.ask(json!({"input": "x".repeat(3000)})).await;
    let second = asker.after(&first, json!("two")).await;
    let long = json!({"previous_response_id": second.id(), "input": "z".repeat(600)});
    let long = asker.ask(long).await;
    assert_eq!(long.unmanaged(), Some("previous_response_id"));
}

#[tokio::test]
async fn a_store_that_fails_leaves_the_request_to_the_provider() {
    let provider = provider().await;
    let directory = tempfile::tempdir().unwrap();
    let config = StoreSettings {
        path: directory.path().to_owned(),
        ..StoreSettings::default()
    };
    let store = Arc::new(Store::open(&config).unwrap().store);
    let own = Arc::clone(&store);
    let proxy = Proxy::wired(provider.addr, |_| {}, move |app| app.store = own).await;
    let asker = Asker::of(&proxy, false);
    let first = asker.ask(json!({"input": "one"})).await;
    asker.after(&first, json!("two")).await;
    store.close().unwrap();
    let request = json!({"previous_response_id": first.id(), "input": "next"});
    let heard = asker.ask(request.clone()).await;
    assert_eq!((heard.status, heard.unmanaged()), (404, None));
    assert_eq!(heard.headers["x-plimsoll-fail-open"], "store");
    let sent = provider.bodies().pop().unwrap();
    assert_eq!(sent, asker.bytes(request));
}

#[tokio::test]
async fn what_is_refused_in_full_is_asked_for_as_the_client_did() {
    let refusing = Lenient::start(|number, body| {
        let body: Value = serde_json::from_slice(body).unwrap();
        let named = body["previous_response_id"].is_string();
        let whole = body["input"].is_array() && !named;
        let built = Response::builder().header("content-type", "application/json");
        let built = if whole { built.status(400) } else { built };
        let bytes = answer(number, &body).to_string();
        built.body(Body::from(bytes)).unwrap()
    });
    let provider = refusing.await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let first = asker.ask(json!({"input": "one"})).await;
    let request = json!({"previous_response_id": first.id(), "input": "two"});
    let second = asker.ask(request.clone()).await;
    assert_eq!(second.status, 200);
    assert_eq!(second.headers["x-plimsoll-fail-open"], "refused");
    let bodies = provider.bodies();
    assert_eq!(
        (bodies.len(), &bodies[2]),
        (3, &Bytes::from(asker.bytes(request)))
    );
}

/// A process on a directory, and one who asks it.
fn served(directory: &std::path::Path, provider: SocketAddr, stream: bool) -> (Process, Asker) {
    let process = Process::start(directory, provider, &[], &[]);
    let asker = Asker::at(process.url("/v1/responses"), stream);
    (process, asker)
}

#[tokio::test]
async fn a_chain_outlives_restarts_and_kills() {
    let provider = provider().await;
    let directory = tempfile::tempdir().unwrap();
    let mut said = vec![
        "mark".to_owned(),
        "fc_0".to_owned(),
        "for call_0".to_owned(),
    ];
    let (mut process, mut asker) = served(directory.path(), provider.addr, false);
    let mut heard = asker.ask(json!({"input": "mark"})).await;
    for (number, signal) in ["-KILL", "-TERM", "-KILL"].into_iter().enumerate() {
        process.signal(signal);
        process.end().await;
        (process, asker) = served(directory.path(), provider.addr, number % 2 == 0);
        let word = format!("word {number}");
        heard = asker.after(&heard, json!(word)).await;
        said.extend([format!("msg_{}", number + 1), word]);
        assert_eq!(brief(&provider), said, "{signal}");
    }
    let named =
        json!([{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "x"}]);
    let named = asker.ask(json!({"input": named})).await;
    assert_eq!(named.unmanaged(), None);
    assert_eq!(brief(&provider), ["msg_1", "x"]);
}
