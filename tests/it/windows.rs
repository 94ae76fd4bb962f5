//! What a model takes is a ceiling too: sessions of models with small windows, known by a table, told
//! by the server or not known at all.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::Request;
use http::Method;
use plimsoll::config::Config;
use plimsoll_core::turn::Unmet;
use plimsoll_scripted::Reply;
use serde_json::{Value, json};

use super::agent::{Agent, Answer, bash, completion};
use super::support::{Lenient, Proxy, Seen, answered, soon, upstream};

/// Some 1,300 tokens.
const RESULT: usize = 650;
/// More turns of it than fit into 8,192 tokens, by far.
const TURNS: usize = 24;

/// A table with one row for the agents' model, as a user has one.
fn family(row: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        "[[family]]\nname = \"own\"\nmodels = [\"gpt-4o\"]\n{row}"
    )
    .unwrap();
    file
}

/// An upstream whose model calls the tool with every answer.
async fn busy() -> Lenient {
    Lenient::start(|number, body| {
        completion(&Reply::calls(vec![bash(&format!("b{number}"))]), body)
    })
    .await
}

/// The tokens that a header of an answer counts.
fn sent(answer: &Answer) -> u64 {
    answer.header("x-plimsoll-context-tokens").parse().unwrap()
}

/// Works long enough, and gives the largest view, and the zones that were met on the way.
async fn largest(agent: &mut Agent) -> (u64, Vec<String>) {
    let (mut largest, mut zones) = (0, Vec::new());
    for turn in 0..TURNS {
        let answer = agent
            .work(&format!("line {turn}\n").repeat(RESULT / 2))
            .await;
        assert_eq!(answer.header("x-plimsoll-budget"), "met", "{turn}");
        largest = largest.max(sent(&answer));
        zones.push(answer.header("x-plimsoll-zone").to_owned());
    }
    zones.sort();
    zones.dedup();
    (largest, zones)
}

#[tokio::test]
async fn no_view_is_larger_than_what_the_model_takes() {
    // A row of the table and the answer that is asked for -> the most that may be sent.
    let table: [(&str, Option<u64>, u64); 4] = [
        ("window = 8_192", None, 8_192),
        ("window = 8_192", Some(3_000), 8_192),
        ("context = 12_288", None, 11_520),
        ("context = 12_288", Some(4_000), 7_520),
    ];
    for (row, output, most) in table {
        let upstream = busy().await;
        let file = family(row);
        let own = |config: &mut Config| config.models.families = Some(file.path().to_owned());
        let proxy = Proxy::with(upstream.addr, own).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        if let Some(output) = output {
            agent = agent.field("max_tokens", output.into());
        }
        let (largest, zones) = largest(&mut agent).await;
        assert!(largest <= most, "{row} {output:?}: {largest}");
        assert!(largest * 10 >= most * 8, "{row} {output:?}: {largest}");
        // The zone is that of the ceiling in force: near it a view is no longer green.
        assert!(zones.contains(&"red".to_owned()), "{row}: {zones:?}");
    }
}

#[tokio::test]
async fn what_nobody_knows_the_window_of_has_the_budget() {
    let upstream = busy().await;
    let proxy = Proxy::before(upstream.addr).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    agent = agent.field("model", "someone-elses-model".into());
    let (largest, zones) = largest(&mut agent).await;
    assert!(largest > 20_000, "{largest}");
    assert_eq!(zones, ["green"]);
}

#[tokio::test]
async fn a_request_may_ask_for_less_than_the_window_and_not_for_more() {
    let file = family("window = 8_192");
    let own = |config: &mut Config| config.models.families = Some(file.path().to_owned());
    for (asked, most) in [("5000", 5_000), ("60k", 8_192), ("60%", 4_915)] {
        let upstream = busy().await;
        let proxy = Proxy::with(upstream.addr, own).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        agent = agent.with("x-plimsoll-budget", asked);
        let (largest, _) = largest(&mut agent).await;
        assert!(largest <= most, "{asked}: {largest}");
        assert!(largest * 10 >= most * 7, "{asked}: {largest}");
    }
}

#[tokio::test]
async fn what_has_no_place_in_the_window_is_surfaced_or_refused() {
    let file = family("window = 3_000");
    let long = "user words ".repeat(3_000);
    for unmet in [Unmet::Surface, Unmet::Refuse] {
        let upstream = Lenient::saying(Reply::text("done")).await;
        let proxy = Proxy::with(upstream.addr, |config| {
            config.models.families = Some(file.path().to_owned());
            config.budget.unmet = unmet;
        })
        .await;
        let agent = Agent::new(&proxy, false).told(&long);
        let answer = agent.ask().await;
        match unmet {
            Unmet::Surface => {
                assert_eq!(answer.header("x-plimsoll-budget"), "exceeded");
                assert_eq!(answer.header("x-plimsoll-zone"), "red");
                answer.whole();
                assert_eq!(upstream.newest()["messages"][1]["content"], long);
            }
            Unmet::Refuse => {
                let (status, _, _, code) = answer.error();
                assert_eq!((status, code.as_str()), (400, "context_budget_exceeded"));
                let text = answer.text();
                assert!(text.contains("3000 are allowed"), "{text}");
                assert!(text.contains("a model that takes more"), "{text}");
                assert!(!text.contains("raise the budget"), "{text}");
                assert!(upstream.seen().is_empty(), "nothing is sent");
            }
        }
    }
}

/// An upstream that answers turns, and its list of models with this.
async fn listing(status: u16, list: Value) -> Lenient {
    Lenient::judging(move |before, request| {
        if is_question(request) {
            return answered(status, &list);
        }
        let number = before.len();
        completion(
            &Reply::calls(vec![bash(&format!("b{number}"))]),
            &request.body,
        )
    })
    .await
}

fn is_question(seen: &Seen) -> bool {
    seen.path == "/v1/models"
}

fn asking(config: &mut Config) {
    config.upstream.ask_models = true;
}

/// An agent of a model that no table knows.
fn stranger(proxy: &Proxy) -> Agent {
    Agent::new(proxy, false)
        .told("go")
        .field("model", "house-7b".into())
}

#[tokio::test]
async fn what_a_server_says_of_its_model_holds_from_the_next_turn_on() {
    let list = json!({"object": "list", "data": [
        {"id": "house-7b", "object": "model", "owned_by": "vllm", "max_model_len": 12_288},
    ]});
    let upstream = listing(200, list).await;
    let proxy = Proxy::with(upstream.addr, asking).await;
    let mut agent = stranger(&proxy).field("max_tokens", json!(2_000));
    // A share of what nobody knows is refused.
    let share = agent.clone().with("x-plimsoll-budget", "60%");
    assert_eq!(share.ask().await.status, 400);
    agent.work("done\n").await;
    soon(async {
        while share.ask().await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (largest, zones) = largest(&mut agent).await;
    assert!(largest <= 9_520, "{largest}");
    assert!(largest * 10 >= 9_520 * 8, "{largest}");
    assert!(zones.contains(&"red".to_owned()), "{zones:?}");
    let questions: Vec<Seen> = upstream.seen().into_iter().filter(is_question).collect();
    assert_eq!(questions.len(), 1, "it was asked again");
    let question = &questions[0];
    assert_eq!(question.headers["authorization"], "Bearer k");
    assert!(question.body.is_empty());
    assert!(!question.headers.contains_key("content-type"));
    // Another tenant has heard nothing of it.
    let other = share.with("authorization", "Bearer other");
    assert_eq!(other.ask().await.status, 400);
}

#[tokio::test]
async fn a_server_that_says_nothing_leaves_the_budget() {
    let silent = json!({"data": [{"id": "house-7b", "object": "model"}]});
    for (status, list) in [(200, silent), (404, json!({})), (200, json!("?"))] {
        let upstream = listing(status, list).await;
        let proxy = Proxy::with(upstream.addr, asking).await;
        let (largest, zones) = largest(&mut stranger(&proxy)).await;
        assert!(largest > 20_000, "{status}: {largest}");
        assert_eq!(zones, ["green"]);
        let questions = upstream
            .seen()
            .iter()
            .filter(|seen| is_question(seen))
            .count();
        assert!(questions <= 1, "{questions}");
    }
}

#[tokio::test]
async fn only_what_is_not_known_is_asked_and_only_where_a_turn_went_well() {
    let list = json!({"data": [{"id": "house-7b", "max_model_len": 12_288}]});
    for (model, status, asks) in [
        ("house-7b", 200, true),
        ("house-7b", 401, false),
        ("house-7b", 500, false),
        // Anybody may serve a model under a well-known name.
        ("gpt-4o", 200, true),
    ] {
        for wanted in [true, false] {
            let list = list.clone();
            let upstream = Lenient::judging(move |_, request| {
                if is_question(request) || status != 200 {
                    return answered(status, &list);
                }
                completion(&Reply::text("done"), &request.body)
            })
            .await;
            let proxy = Proxy::with(upstream.addr, |config| {
                config.upstream.ask_models = wanted;
                config.upstream.retries = 0;
            })
            .await;
            let agent = stranger(&proxy).field("model", model.into());
            for _ in 0..3 {
                assert_eq!(agent.ask().await.status, status);
            }
            let questions = || {
                upstream
                    .seen()
                    .iter()
                    .filter(|seen| is_question(seen))
                    .count()
            };
            if asks && wanted {
                soon(async {
                    while questions() == 0 {
                        tokio::task::yield_now().await;
                    }
                })
                .await;
            }
            let expect = usize::from(asks && wanted);
            assert_eq!(questions(), expect, "{model} {status} {wanted}");
        }
    }
}

/// A server of its own kind: what it answers at these places, and the most that it takes.
async fn serving(told: Vec<(&'static str, Value)>, most: usize) -> Lenient {
    Lenient::judging(move |before, request| {
        if request.path != "/v1/chat/completions" {
            let told = told.iter().find(|(path, _)| *path == request.path);
            return told.map_or_else(
                || answered(404, json!({"error": {"message": "none"}})),
                |(_, told)| answered(200, told),
            );
        }
        let size = request.body.len() / 4;
        if size > most {
            let error = json!({"code": 400, "type": "exceed_context_size_error", "n_ctx": most,
                "message": "the request exceeds the available context size, try increasing it"});
            return answered(400, json!({"error": error}));
        }
        let id = format!("b{}", before.len());
        completion(&Reply::calls(vec![bash(&id)]), &request.body)
    })
    .await
}

#[tokio::test]
async fn local_servers_are_believed_before_the_table() {
    let list = |entry: Value| json!({"object": "list", "data": [entry]});
    let owned = |by: &str| list(json!({"id": "gpt-4", "object": "model", "owned_by": by}));
    for told in [
        vec![(
            "/v1/models",
            list(json!({"id": "gpt-4", "max_model_len": 12_288})),
        )],
        vec![(
            "/v1/models",
            list(json!({"id": "gpt-4", "meta": {"n_ctx": 12_288, "n_ctx_train": 131_072}})),
        )],
        vec![
            ("/v1/models", owned("organization_owner")),
            (
                "/api/v0/models",
                list(
                    json!({"id": "gpt-4", "loaded_context_length": 12_288, "max_context_length": 131_072}),
                ),
            ),
        ],
        vec![
            ("/v1/models", owned("library")),
            (
                "/api/ps",
                json!({"models": [{"name": "gpt-4:latest", "context_length": 12_288}]}),
            ),
        ],
        // Of another version, which does not say in its list how it loaded the model.
        vec![
            ("/v1/models", owned("library")),
            ("/api/ps", json!({"models": [{"name": "gpt-4:latest"}]})),
            (
                "/api/show",
                json!({"parameters": "temperature 0\nnum_ctx   12288", "model_info": {"llama.context_length": 131_072}}),
            ),
        ],
        // Nothing is loaded any more, and it is loaded as it was made.
        vec![
            ("/v1/models", owned("library")),
            (
                "/api/show",
                json!({"model_info": {"llama.context_length": 12_288}}),
            ),
        ],
        // What is loaded beats what the model could do.
        vec![
            ("/v1/models", owned("library")),
            (
                "/api/ps",
                json!({"models": [{"name": "gpt-4:latest", "context_length": 12_288}]}),
            ),
            (
                "/api/show",
                json!({"parameters": "num_ctx 65536", "model_info": {"llama.context_length": 131_072}}),
            ),
        ],
        vec![
            (
                "/v1/models",
                list(
                    json!({"id": "gpt-4", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072}}),
                ),
            ),
            (
                "/props",
                json!({"default_generation_settings": {"n_ctx": 12_288}}),
            ),
        ],
    ] {
        let case = format!("{told:?}");
        let upstream = serving(told, usize::MAX).await;
        let proxy = Proxy::with(upstream.addr, asking).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        agent = agent.field("model", "gpt-4".into());
        agent.work("done\n").await;
        let (largest, _) = largest(&mut agent).await;
        // The table says 8,192.
        assert!((9_000..=11_520).contains(&largest), "{case}: {largest}");
        let asked = upstream.seen();
        let mut shows = asked.iter().filter(|seen| seen.path == "/api/show");
        if let Some(show) = shows.next() {
            assert_eq!(show.value(), json!({"model": "gpt-4"}));
            assert_eq!(show.headers["authorization"], "Bearer k");
            assert_eq!(show.headers["content-type"], "application/json");
            assert_eq!(shows.count(), 0, "{case}");
        }
    }
}

#[tokio::test]
async fn a_size_that_a_refusal_names_is_not_met_twice() {
    for model in ["gpt-oss-20b", "house-7b"] {
        let upstream = serving(Vec::new(), 10_000).await;
        let proxy = Proxy::with(upstream.addr, asking).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        agent = agent.field("model", model.into());
        largest(&mut agent).await;
        let sent = upstream.seen();
        let turns = sent.iter().filter(|seen| !seen.body.is_empty()).count();
        assert!(
            turns <= TURNS + 1,
            "{model}: {turns} requests for {TURNS} turns"
        );
    }
}

/// Counts itself as ended when it is dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_list_that_never_comes_delays_no_turn() {
    let (begun, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counts = (begun.clone(), ended.clone());
    let addr = upstream(move |request: Request| {
        let (begun, ended) = counts.clone();
        async move {
            if request.method() == Method::GET {
                begun.fetch_add(1, Ordering::SeqCst);
                let _open = Open(ended);
                return std::future::pending().await;
            }
            completion(&Reply::text("done"), b"")
        }
    })
    .await;
    let proxy = Proxy::with(addr, asking).await;
    let agent = stranger(&proxy);
    agent.ask().await.whole();
    soon(async {
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..3 {
        agent.ask().await.whole();
    }
    let counted = (begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
    assert_eq!(counted, (1, 0), "turns waited until the question was over");
    // It is given up in time of its own.
    soon(async {
        while ended.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
