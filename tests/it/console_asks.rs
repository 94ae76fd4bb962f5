//! What the console is asked to do over HTTP: to find a session by a text, to evict, to write a session to a file, to say
//! what was needed later and what other lines would have come to. And by whom: no page but its own.

use plimsoll_console::inspect::{Archive, export};
use plimsoll_core::turn::StoreContent;
use plimsoll_proxy::pipeline::ShownContent;
use plimsoll_scripted::{Call, Reply, Script};
use serde_json::{Value, json};

use super::agent::{Agent, bash, last_key, provider};
use super::console::{TURNS, config, got, played, posted, served, through};
use super::openapi::Description;
use super::support::{Proxy, client, soon};

/// A pass that an operator asks for happens with the session's next request, and says so.
#[tokio::test]
async fn a_pass_that_is_asked_for_happens_with_the_next_request() {
    let (_provider, proxy) = served(|_| {}).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    // Above the floor, and below the ceiling.
    let session = through(&mut agent, 5).await;
    let path = format!("sessions/{session}");
    let description = Description::read();
    let before = got(&proxy, &path).await;
    assert_eq!(before["passes"], json!([]));
    let (sent, floor) = (&before["row"]["out"], &before["row"]["floor"]);
    let evict = format!("{path}/evict");
    let (status, told) = posted(&proxy, &evict, &json!({"now": false})).await;
    if sent.as_u64() <= floor.as_u64() {
        panic!("the session is too short: {sent} of {floor}");
    }
    assert_eq!(status, 202, "{told}");
    let faults = description.faults("post", "/api/sessions/{session}/evict", "202", &told);
    assert_eq!(faults, Vec::<String>::new(), "{told}");
    assert_eq!(got(&proxy, &path).await["waiting"]["evict"], false);
    let (status, _) = posted(&proxy, &evict, &json!({"now": true})).await;
    assert_eq!(status, 202);
    assert_eq!(got(&proxy, &path).await["waiting"]["evict"], true);
    agent.turn().await;
    let after = got(&proxy, &path).await;
    assert_eq!(after["passes"][0]["trigger"], "asked", "{after}");
    assert_eq!(after["waiting"]["evict"], false);
    let (status, refused) = posted(&proxy, &evict, &json!({"all": true})).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("bad_body"))
    );
}

/// What was needed later is told for a session whose texts are there: here a call names what went.
#[tokio::test]
async fn what_was_needed_later_is_told_where_texts_are() {
    let provider = provider(Script::ask(|view| {
        let key = last_key(view.messages());
        let number = key.strip_prefix('b').and_then(|n| n.parse::<u32>().ok());
        match number {
            // The first result went long ago: the call names a value of it, and the same call is made again.
            Some(12) => Reply::calls(vec![Call::new(
                "b13",
                "bash",
                r#"{"c":"find value-b1-45 now"}"#,
            )]),
            Some(13) => Reply::calls(vec![Call::new("b14", "bash", r#"{"c":"run b2"}"#)]),
            Some(14) => Reply::text("done"),
            Some(n) => Reply::calls(vec![bash(&format!("b{}", n + 1))]),
            None => Reply::calls(vec![bash("b1")]),
        }
    }))
    .await;
    let proxy = Proxy::with(provider.address, config).await;
    let session = through(&mut Agent::new(&proxy, false).told("go"), TURNS).await;
    let page = got(&proxy, &format!("sessions/{session}/items")).await;
    assert_eq!(page["needed"], true, "{page}");
    let of = |id: &str| {
        let items = page["items"].as_array().unwrap().iter();
        let mut found = items.filter(|item| item["id"] == *id);
        found.next().unwrap_or_else(|| panic!("no {id}: {page}"))["needed"].clone()
    };
    let first = of("bash:4");
    assert_eq!(
        (&first["how"], &first["turn"]),
        (&json!("missed"), &json!(13)),
        "{first}"
    );
    assert!(first["word"].as_str().unwrap().contains("b1-45"), "{first}");
    let second = of("bash:7");
    assert_eq!(
        (&second["how"], &second["turn"]),
        (&json!("asked again"), &json!(14)),
        "{second}"
    );
    let passes = got(&proxy, &format!("sessions/{session}")).await["passes"].clone();
    let needed: u64 = passes
        .as_array()
        .unwrap()
        .iter()
        .map(|pass| pass["needed"].as_u64().unwrap())
        .sum();
    assert!(needed >= 2, "{passes}");
}

/// A session is found by what one of its calls names, whether its texts are in memory or stored, and not
/// where they may not be shown.
#[tokio::test]
async fn a_session_is_found_by_what_its_calls_name() {
    use ShownContent::{Live, Off, Stored};
    let description = Description::read();
    for (shown, finds) in [(Live, true), (Stored, true), (Off, false)] {
        let (_provider, proxy) = served(|own| {
            own.console.content = Some(shown);
            own.store.content = StoreContent::All;
        })
        .await;
        let session = played(&proxy, false).await;
        // What was read once is kept, and the answer is the same.
        for _ in 0..2 {
            let page = got(&proxy, "sessions?q=RUN%20B7").await;
            let faults = description.faults("get", "/api/sessions", "200", &page);
            assert_eq!(faults, Vec::<String>::new(), "{page}");
            if !finds {
                assert_eq!(
                    (&page["total"], &page["unsearched"]),
                    (&json!(0), &Value::Null)
                );
                continue;
            }
            assert_eq!(
                (&page["total"], &page["unsearched"]),
                (&json!(1), &json!(0))
            );
            assert_eq!(page["sessions"][0]["session"], session, "{page}");
            assert_eq!(page["sessions"][0]["item"], "run b7", "{page}");
        }
        // What the row itself shows is told before an item.
        let page = got(&proxy, &format!("sessions?q={session}")).await;
        assert_eq!(
            (&page["total"], &page["sessions"][0]["item"]),
            (&json!(1), &Value::Null)
        );
        assert_eq!(got(&proxy, "sessions?q=run%20b99").await["total"], 0);
    }
}

/// A session is played under other lines by the lab's own code.
#[tokio::test]
async fn a_session_is_played_under_other_lines() {
    let (_provider, proxy) = served(|_| {}).await;
    let session = played(&proxy, false).await;
    let url = format!("http://{}/api/sessions/{session}/whatif", proxy.admin);
    let ask =
        json!({"budgets": [6000, 12000], "floors": ["auto", "0.5"], "policies": ["none", "cwl"]});
    let response = soon(client().post(&url).body(ask.to_string()).send())
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let text = soon(response.text()).await.unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let description = Description::read();
    let (mut points, mut last) = (Vec::new(), Value::Null);
    for line in lines {
        if line.get("played").is_some() {
            assert_eq!(
                description.faults_of("Progress", &line),
                Vec::<String>::new(),
                "{line}"
            );
            last = line;
        } else {
            assert_eq!(
                description.faults_of("Point", &line),
                Vec::<String>::new(),
                "{line}"
            );
            points.push(line);
        }
    }
    assert_eq!(
        (points.len(), &last["done"], &last["played"]),
        (8, &json!(true), &json!(8))
    );
    let of = |tau: u32, floor: &str, policy: &str| {
        let fits = |point: &&Value| {
            point["budget"] == tau && point["floor"] == *floor && point["policy"] == *policy
        };
        points.iter().find(fits).unwrap()
    };
    let (whole, low) = (of(6000, "auto", "none"), of(6000, "auto", "cwl"));
    assert!(low["passes"].as_u64() > Some(0) && whole["passes"] == 0);
    assert!(low["peak"].as_u64() < whole["peak"].as_u64());
    for (ask, code) in [
        (json!({"budgets": []}), "bad_body"),
        (json!({"budgets": [100]}), "bad_body"),
        (json!({"budgets": [8000], "floors": ["deep"]}), "bad_body"),
        (json!({"budgets": [8000], "policies": ["lru"]}), "bad_body"),
    ] {
        let (status, refused) = posted(&proxy, &format!("sessions/{session}/whatif"), &ask).await;
        assert_eq!(
            (status, &refused["error"]["code"]),
            (400, &json!(code)),
            "{ask}"
        );
    }
}

#[tokio::test]
async fn a_page_of_somebody_else_changes_nothing_and_reads_nothing() {
    let (_provider, proxy) = served(|_| {}).await;
    let session = played(&proxy, false).await;
    let base = format!("http://{}", proxy.admin);
    let pin = format!("{base}/api/sessions/{session}/pin");
    let own = |request: reqwest::RequestBuilder| async move {
        soon(request.send()).await.unwrap().status().as_u16()
    };
    let page = soon(client().get(&base).send()).await.unwrap();
    let policy = page.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(page.headers()["cache-control"], "no-store");
    assert!(page.headers().get("access-control-allow-origin").is_none());
    let page = page.text().await.unwrap();
    let (_, token) = page
        .split_once("name=\"plimsoll-token\" content=\"")
        .unwrap();
    let (token, _) = token.split_once('"').unwrap();
    assert_eq!(token.len(), 32, "{token}");
    let body = r#"{"ids": ["bash:4"]}"#;
    let post = || client().post(&pin).body(body);
    // A program has no page. A browser proves that its page is ours.
    assert_eq!(own(post()).await, 202);
    assert_eq!(own(post().header("origin", &base)).await, 403);
    assert_eq!(
        own(post().header("sec-fetch-site", "same-origin")).await,
        403
    );
    assert_eq!(
        own(post()
            .header("origin", &base)
            .header("x-plimsoll-console", "0".repeat(32)))
        .await,
        403
    );
    let proven = |request: reqwest::RequestBuilder| request.header("x-plimsoll-console", token);
    assert_eq!(own(proven(post().header("origin", &base))).await, 202);
    // A foreign origin or host is refused even with the token, and may not read.
    assert_eq!(
        own(proven(post().header("origin", "https://evil.example"))).await,
        403
    );
    let read = || client().get(format!("{base}/api/overview"));
    assert_eq!(
        own(read().header("origin", "https://evil.example")).await,
        403
    );
    assert_eq!(own(read().header("host", "evil.example")).await, 403);
    assert_eq!(
        own(client().get(&base).header("host", "evil.example")).await,
        403
    );
    assert_eq!(own(client().get(format!("{base}/nothing.js"))).await, 404);
}

/// A figure has one meaning wherever it stands: the proxy's own time of the newest turns and of each, what the system's
/// text, tools and framing take of a view, and what is known of an upstream that nobody asked yet.
#[tokio::test]
async fn a_figure_is_the_same_wherever_it_stands() {
    let (_provider, proxy) = served(|_| {}).await;
    let upstream = &got(&proxy, "overview").await["upstreams"][0];
    assert_eq!(
        (&upstream["healthy"], &upstream["requests"]),
        (&Value::Null, &json!(0))
    );
    let session = played(&proxy, false).await;
    let all = loop {
        let all = got(&proxy, "overview").await;
        // The last turn is counted behind the end of its answer.
        if all["process"]["turns"] == TURNS {
            break all;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(all["upstreams"][0]["healthy"], true);
    let columns = got(&proxy, &format!("sessions/{session}/turns")).await["columns"].clone();
    let times = columns["own_ms"].as_array().unwrap().iter();
    let most = times.filter_map(Value::as_f64).fold(0.0, f64::max);
    let told = all["process"]["own_ms"]["p99"].as_f64().unwrap();
    assert!((told - most).abs() < 0.01, "{told} and {most}");
    let parts = got(&proxy, &format!("sessions/{session}")).await["parts"].clone();
    let sum = parts["system"].as_u64().unwrap() + parts["tools"].as_u64().unwrap();
    let prologues = columns["prologue"].as_array().unwrap();
    assert!(sum > 0);
    assert_eq!(prologues.last().unwrap(), sum, "{parts}");
    // Neither system text nor tools change, so nothing but framing comes and goes.
    let first = prologues[0].as_u64().unwrap();
    for (prologue, sent) in prologues.iter().zip(columns["out"].as_array().unwrap()) {
        let prologue = prologue.as_u64().unwrap();
        assert!(
            prologue >= first / 2 && prologue <= sent.as_u64().unwrap(),
            "{prologues:?}"
        );
    }
}

/// A session's file is what the command writes, and has no texts where none may be shown.
#[tokio::test]
async fn a_session_is_got_as_a_file() {
    for shown in [ShownContent::Live, ShownContent::Off] {
        let (_provider, proxy) = served(|own| {
            own.console.content = Some(shown);
            own.store.content = StoreContent::All;
        })
        .await;
        let session = played(&proxy, false).await;
        let url = format!("http://{}/api/sessions/{session}/export", proxy.admin);
        let response = soon(client().get(&url).send()).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let text = response.text().await.unwrap();
        let branch = Archive::read(&proxy.app.store)
            .unwrap()
            .branches()
            .remove(0);
        let written = export(&proxy.app.store, &branch).unwrap().text;
        match shown {
            ShownContent::Off => {
                assert!(written.contains("Find out what") && !text.contains("Find out what"));
                assert!(text.starts_with("{\"_meta\":") && text.contains("\"content\":false"));
                // What hidden calls say is text as well.
                assert!(!written.contains("\"arguments\":null"));
                assert!(!text.contains("\"arguments\":\"") && !text.contains("\"result\":\""));
            }
            ShownContent::Live | ShownContent::Stored => assert_eq!(text, written),
        }
    }
}
