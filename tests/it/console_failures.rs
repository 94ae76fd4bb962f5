//! Requests that failed, as the console tells of them: what the client got, what the upstream said, what was
//! tried; with how much of it is kept, and that nothing is where it may not be.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use plimsoll::config::Config;
use plimsoll_core::turn::{Mode, Unmet};
use plimsoll_proxy::pipeline::ShownContent;
use plimsoll_scripted::Reply;
use serde_json::{Value, json};

use super::agent::{Agent, completion, last_key};
use super::console::{got, posted, until};
use super::openapi::Description;
use super::support::{Lenient, Proxy, answered, client, nobody, soon};

/// The first event of an answer.
const BEGUN: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"half"}}]}"#;
const REFUSAL: &str = r#"{"error":{"message":"the messages are odd","type":"invalid_request_error","code":"odd_messages"}}"#;

/// An upstream that is told by the user's last words how to fail.
async fn failing() -> Lenient {
    Lenient::start(|_, body: &Bytes| {
        let asked: Value = serde_json::from_slice(body).unwrap();
        let key = last_key(asked["messages"].as_array().unwrap());
        match key.split(' ').next().unwrap() {
            "limited" => answered(429, r#"{"error":{"type":"rate_limit_error"}}"#),
            "wrong" => Response::builder()
                .status(400)
                .header("x-request-id", "req_7")
                .body(Body::from(REFUSAL))
                .unwrap(),
            "down" => answered(500, format!("boom {}", "long ".repeat(1_000))),
            "cut" => answered(200, format!("{BEGUN}\n\n")),
            "error" => answered(200, format!("{BEGUN}\n\ndata: {REFUSAL}\n\n")),
            _ => completion(&Reply::text("done"), body),
        }
    })
    .await
}

async fn proxy(upstream: &Lenient, change: impl FnOnce(&mut Config)) -> Proxy {
    Proxy::with(upstream.addr, |config| {
        config.upstream.retry_statuses = vec![429];
        change(config);
    })
    .await
}

/// The failures once there are so many: a client may know of one before it is reported.
async fn failures(proxy: &Proxy, query: &str, count: usize) -> Value {
    soon(async {
        loop {
            let page = got(proxy, &format!("failures{query}")).await;
            let faults = Description::read().faults("get", "/api/failures", "200", &page);
            assert_eq!(faults, Vec::<String>::new(), "{page}");
            if page["failures"].as_array().unwrap().len() == count {
                return page;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
}

/// The one failure of a session that went well before it.
async fn failed(proxy: &Proxy, stream: bool, how: &str) -> Value {
    let name = format!("{how}-{stream}");
    let mut agent = Agent::new(proxy, stream).with("x-plimsoll-session", &name);
    agent.user("begin");
    let begun = agent.turn().await;
    let session = begun.header("x-plimsoll-session").to_owned();
    agent.user(how);
    let answer = agent.ask().await;
    let mut page = failures(proxy, &format!("?session={session}"), 1).await;
    let failure = page["failures"][0].take();
    assert_eq!(failure["status"], answer.status, "{how}");
    let place = (&failure["session"], &failure["listed"], &failure["turn"]);
    assert_eq!(
        place,
        (&json!(session), &json!(true), &json!(2)),
        "{failure}"
    );
    failure
}

/// What calls were answered.
fn statuses(failure: &Value) -> Vec<Option<u64>> {
    let calls = failure["calls"].as_array().unwrap().iter();
    calls.map(|call| call["status"].as_u64()).collect()
}

#[tokio::test]
async fn a_failed_turn_says_what_was_said_and_tried() {
    let upstream = failing().await;
    let proxy = proxy(&upstream, |_| {}).await;
    for stream in [false, true] {
        let limited = failed(&proxy, stream, "limited").await;
        assert_eq!(
            (statuses(&limited), &limited["retried"], &limited["kind"]),
            (vec![Some(429)], &json!(["status", "status"]), &json!("4xx"))
        );
        assert_eq!(limited["code"], "rate_limit_error");
        // The view and the client's own request were refused.
        let wrong = failed(&proxy, stream, "wrong").await;
        assert_eq!(
            (statuses(&wrong), &wrong["fail_open"]),
            (vec![Some(400), Some(400)], &json!("refused_twice"))
        );
        assert_eq!(
            (&wrong["said"], &wrong["code"]),
            (&json!(REFUSAL), &json!("odd_messages"))
        );
        assert_eq!(wrong["calls"][1]["request_id"], "req_7");
        let down = failed(&proxy, stream, "down").await;
        assert_eq!(
            (statuses(&down), &down["kind"]),
            (vec![Some(500)], &json!("5xx"))
        );
        let said = down["said"].as_str().unwrap();
        assert!(said.starts_with("boom long") && said.len() <= 2 << 10);
    }
    let cut = failed(&proxy, true, "cut").await;
    assert_eq!(
        (&cut["kind"], &cut["own"], &cut["said"]),
        (
            &json!("broken"),
            &json!("the stream ended early"),
            &json!(null)
        )
    );
    let error = failed(&proxy, true, "error").await;
    assert_eq!(
        (&error["kind"], &error["code"]),
        (&json!("broken"), &json!("odd_messages"))
    );
    assert!(error["said"].as_str().unwrap().contains("are odd"));
    // The overview counts them, and nothing else: each session had a turn that went well.
    let overview = got(&proxy, "overview").await;
    assert_eq!(
        overview["process"]["failed"],
        json!({"4xx": 4, "5xx": 2, "broken": 2})
    );
}

#[tokio::test]
async fn what_is_only_watched_or_not_sent_at_all_is_told_as_well() {
    let upstream = failing().await;
    let watching = proxy(&upstream, |config| config.budget.mode = Mode::Observe).await;
    let wrong = failed(&watching, false, "wrong").await;
    assert_eq!(
        (statuses(&wrong), &wrong["said"]),
        (vec![Some(400)], &json!(REFUSAL))
    );
    let refusing = proxy(&upstream, |config| config.budget.unmet = Unmet::Refuse).await;
    let long = "user words ".repeat(3_000);
    let agent = Agent::new(&refusing, false).with("x-plimsoll-budget", "4000");
    assert_eq!(agent.told(&long).ask().await.status, 400);
    let unmet = failures(&refusing, "", 1).await["failures"][0].take();
    assert_eq!(
        (&unmet["code"], &unmet["said"], &unmet["listed"]),
        (
            &json!("context_budget_exceeded"),
            &json!(null),
            &json!(false)
        )
    );
    assert!(unmet["own"].as_str().unwrap().contains("user text"));
    let (_held, gone) = nobody();
    let alone = Proxy::with(gone, |config| config.upstream.retries = 1).await;
    assert_eq!(Agent::new(&alone, true).told("go").ask().await.status, 502);
    let down = failures(&alone, "", 1).await["failures"][0].take();
    assert_eq!(
        (statuses(&down), &down["retried"], &down["code"]),
        (
            vec![None],
            &json!(["connect"]),
            &json!("upstream_unreachable")
        )
    );
    // What is no request to a model is none.
    let other = client().get(alone.url("/v1/models")).send();
    assert_eq!(soon(other).await.unwrap().status(), 502);
    failures(&alone, "", 1).await;
}

#[tokio::test]
async fn what_an_upstream_said_is_nowhere_where_content_is_withheld() {
    let upstream = failing().await;
    for shown in [ShownContent::Stored, ShownContent::Off] {
        let proxy = proxy(&upstream, |own| own.console.content = Some(shown)).await;
        let wrong = failed(&proxy, false, "wrong").await;
        assert!(!wrong.to_string().contains("are odd"), "{wrong}");
        assert_eq!(
            (&wrong["said"], &wrong["code"], &wrong["status"]),
            (&json!(null), &json!("odd_messages"), &json!(400))
        );
    }
}

#[tokio::test]
async fn a_flood_pushes_out_its_own_and_nobody_elses() {
    let upstream = failing().await;
    let proxy = proxy(&upstream, |_| {}).await;
    let of = |key: &str, how: &str| {
        let mut agent = Agent::new(&proxy, false).told(how);
        agent.headers = vec![("authorization", key.to_owned())];
        agent
    };
    assert_eq!(of("Bearer other", "wrong").ask().await.status, 400);
    assert_eq!(of("Bearer k", "limited").ask().await.status, 429);
    let flood = of("Bearer k", "down");
    for _ in 0..700 {
        assert_eq!(flood.ask().await.status, 500);
    }
    let page = got(&proxy, "failures?limit=5000").await;
    let kept = page["failures"].as_array().unwrap();
    assert_eq!(page["failed"], json!({"4xx": 2, "5xx": 700}));
    assert!((300..600).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept[0]["number"], 702, "the newest comes first");
    let quiet: Vec<&Value> = kept[kept.len() - 2..]
        .iter()
        .map(|one| &one["number"])
        .collect();
    assert_eq!(quiet, [2, 1], "another session's, and another tenant's");
    // Page by page they are the same.
    let first = failures(&proxy, "?limit=1", 1).await;
    assert_eq!(first["next"], "702");
    let second = failures(&proxy, "?limit=2&cursor=702", 2).await;
    assert_eq!(second["failures"][0]["number"], 701);
    let last = failures(&proxy, "?cursor=2", 1).await;
    assert_eq!(last["next"], json!(null));
}

#[tokio::test]
async fn what_is_erased_has_not_failed() {
    let upstream = failing().await;
    let proxy = proxy(&upstream, |_| {}).await;
    let stays = failed(&proxy, false, "down").await;
    let goes = failed(&proxy, false, "wrong").await;
    let (status, told) = posted(&proxy, "store/erase", &json!({"session": goes["session"]})).await;
    assert_eq!(status, 200, "{told}");
    let left = failures(&proxy, "", 1).await;
    assert_eq!(left["failures"][0]["session"], stays["session"]);
    assert!(!left.to_string().contains("odd"));
}

#[tokio::test]
async fn a_failure_is_told_as_it_happens() {
    let upstream = failing().await;
    let proxy = proxy(&upstream, |_| {}).await;
    let url = format!("http://{}/api/events", proxy.admin);
    let response = soon(client().get(url).send()).await.unwrap();
    let mut frames = response.bytes_stream();
    let failure = failed(&proxy, false, "down").await;
    let (told, _) = until(&mut frames, &mut String::new(), "failed").await;
    let faults = Description::read().faults_of("FailedEvent", &told);
    assert_eq!(faults, Vec::<String>::new(), "{told}");
    assert_eq!(told["session"], failure["session"]);
}
