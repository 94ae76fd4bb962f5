//! An eventful session on a real proxy, in which each kind of event happens at least once that a
//! client or a provider can bring about, and what `/metrics` shows after each step of it. Asserts
//! only that the steps came to what they are meant to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll::config::Backend;
use plimsoll_scripted::{Call, Fault, Options, Provider, Reply, Script};
use serde_json::json;
use tempfile::TempDir;

use super::agent::{Agent, bash, delimiter, explore, last_key};
use super::recall::{CEILING, output, recalling, working};
use super::support::{EMPTY, Proxy, client, padded, soon};

const CHAT: &str = "/v1/chat/completions";

/// A proxy with a store on disk before a provider that does what the user's words say.
pub struct Hour {
    pub proxy: Proxy,
    _provider: Provider,
    _directory: TempDir,
}

/// What the user's words make the provider do, beside working as `working` does.
fn eventful() -> Script {
    let (worked, busy) = (working(), AtomicUsize::new(0));
    Script::ask(move |view| {
        let key = last_key(view.messages());
        match key.as_str() {
            // Every other time.
            "busy" if busy.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => Reply::text("")
                .fault(Fault::Status {
                    status: 503,
                    retry_after: None,
                    retry_after_ms: Some(1),
                }),
            "down" => Reply::text("").fault(Fault::Status {
                status: 503,
                retry_after: None,
                retry_after_ms: Some(1),
            }),
            "refuse" if view.offers("delimiter") => Reply::error(400, "{}"),
            "cut" => Reply::text("half an answer").fault(Fault::CloseAt { event: 2 }),
            "gone" => Reply::text("").fault(Fault::CloseBeforeHeaders),
            "alone" => Reply::calls(vec![explore("l1", "alone")]),
            "l1" => Reply::calls(vec![bash("l2")]),
            "wrong" => Reply::calls(vec![
                delimiter("w1", &json!({"action": "begin"})),
                bash("w2"),
            ]),
            "lost" => recalling(view, &json!({"id": "nobody"}).to_string(), false),
            "limits" => Reply::calls(vec![Call::new("m1", "recall", "{}"), bash("m2")]),
            _ => worked.reply(view),
        }
    })
}

impl Hour {
    pub async fn begin() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            usage_factor: 1.1,
            ..Options::default()
        };
        let provider = Provider::start(eventful(), options).await.unwrap();
        let proxy = Proxy::with(provider.address, |config| {
            config.budget.ceiling = CEILING;
            config.upstream.retry_statuses = vec![503];
            config.upstream.idle_timeout = Duration::from_secs(2);
            config.store.backend = Backend::Sled;
            config.store.path = directory.path().to_owned();
        })
        .await;
        Self {
            proxy,
            _provider: provider,
            _directory: directory,
        }
    }

    /// What `/metrics` shows now.
    pub async fn shown(&self) -> String {
        let url = format!("http://{}/metrics", self.proxy.admin);
        let answer = soon(client().get(url).send()).await.unwrap();
        soon(answer.text()).await.unwrap()
    }

    /// An agent that works until passes have taken what it read first; `after` each turn.
    pub async fn work(&self, stream: bool, after: &mut impl AsyncFnMut(&Self)) -> Agent {
        let mut agent = Agent::new(&self.proxy, stream).told("go");
        loop {
            let answer = agent.turn().await;
            after(self).await;
            let Some(call) = answer.heard.calls.first() else {
                return agent;
            };
            agent.result(&call.id, &output(&call.id));
        }
    }

    /// Everything that is no plain work: hidden calls of all kinds, faults of the provider's, and
    /// requests that are not managed.
    pub async fn events(&self, mut agent: Agent, after: &mut impl AsyncFnMut(&Self)) {
        for words in [
            "recall {\"id\":\"bash:5\"}",
            "recall {\"id\":\"bash:5\"}",
            "recall {\"id\":\"nobody\"}",
            "recall {\"id\":\"bash:8\",\"search\":\"nothing of the kind\"}",
            "bash b1",
            "alone",
            "wrong",
            "limits",
            "busy",
        ] {
            agent.user(words);
            let answer = agent.turn().await;
            for call in &answer.heard.calls {
                agent.result(&call.id, "again");
            }
            after(self).await;
        }
        for words in ["cut", "gone", "down"] {
            agent.clone().told(words).ask().await;
            after(self).await;
        }
        self.unmanaged(after).await;
    }

    async fn unmanaged(&self, after: &mut impl AsyncFnMut(&Self)) {
        let (chat, responses) = (self.proxy.url(CHAT), self.proxy.url("/v1/responses"));
        let twice = r#"{"messages":[{"role":"user","content":"a"}],"n":1,"n":1}"#;
        let several = r#"{"messages":[{"role":"user","content":"a"}],"n":2}"#;
        for (url, coding, body) in [
            (&chat, "identity", EMPTY.into()),
            (&chat, "identity", twice.into()),
            (&chat, "identity", several.into()),
            (&chat, "br", padded(100)),
            (
                &responses,
                "identity",
                br#"{"input":"a","previous_response_id":"resp_0"}"#.to_vec(),
            ),
        ] {
            let request = client().post(url).header("content-encoding", coding);
            let answer = soon(request.bearer_auth("k").body(body).send()).await;
            soon(answer.unwrap().bytes()).await.unwrap();
            after(self).await;
        }
    }
}
