//! `recall` from outside: what was evicted comes back byte for byte, by ids that the view shows,
//! and the client sees nothing of it.

use plimsoll::config::{Backend, Config};
use plimsoll_core::policy::Order;
use plimsoll_scripted::{Call, Provider, Reply, RequestView, Script};
use serde_json::{Value, json};

use super::agent::{
    Agent, Answer, bash, explore, extends, last_key, learned, message, metric, newest,
    none_refused, outline, provider,
};
use super::support::Proxy;

pub const CEILING: u32 = 8_000;

/// A hidden call.
fn recall(id: &str, arguments: &Value) -> Call {
    Call::new(id, "recall", arguments.to_string())
}

/// What the agent's tool gives back: 90 lines, some 1,000 tokens, no two alike.
pub fn output(of: &str) -> String {
    let line = |n: usize| {
        format!(
            "{of} line {n}: value-{of}-{n} = \"{}\"\t# \u{e4}\\n\n",
            n * 7919
        )
    };
    (1..=90).map(line).collect()
}

/// A model that works for eight turns in two episodes, and then does what the user says: `recall`
/// with arguments, alone or `mixed` with a visible call, or `bash` with an id. Items are numbered
/// by place: `b1` is `bash:5`, `b2` is `bash:8`.
pub fn working() -> Script {
    Script::ask(|view| {
        let key = last_key(view.messages());
        match key.as_str() {
            "go" => Reply::calls(vec![explore("d1", "first"), bash("b1")]),
            "b3" => Reply::calls(vec![
                learned("d2", "values of b1 to b3"),
                explore("d3", "second"),
                bash("b4"),
            ]),
            "b8" => Reply::text("worked"),
            _ => match key.split_once(' ') {
                Some(("recall", arguments)) => recalling(view, arguments, false),
                Some(("mixed", arguments)) => recalling(view, arguments, true),
                Some(("bash", id)) => Reply::calls(vec![bash(id)]),
                Some(_) => Reply::text("done"),
                None => match key.strip_prefix('b').and_then(|n| n.parse::<u32>().ok()) {
                    Some(n) => Reply::calls(vec![bash(&format!("b{}", n + 1))]),
                    None => Reply::text("done"),
                },
            },
        }
    })
}

pub fn recalling(view: &RequestView<'_>, arguments: &str, mixed: bool) -> Reply {
    let id = format!("r{}", view.index);
    let name = if view.offers("plimsoll_recall") {
        "plimsoll_recall"
    } else {
        "recall"
    };
    let mut calls = vec![Call::new(id, name, arguments)];
    calls.extend(mixed.then(|| bash("mixed")));
    Reply::calls(calls)
}

fn small(config: &mut Config) {
    config.budget.ceiling = CEILING;
}

/// An agent whose eight turns are done, so that the first of them are evicted.
async fn worked(proxy: &Proxy, stream: bool) -> Agent {
    let mut agent = Agent::new(proxy, stream).told("go");
    work(&mut agent).await;
    agent
}

async fn work(agent: &mut Agent) {
    loop {
        let answer = agent.turn().await;
        let Some(call) = answer.heard.calls.first() else {
            return;
        };
        agent.result(&call.id, &output(&call.id));
    }
}

/// Lets the model recall, and gives the answer and the result that the model read.
async fn ask(agent: &mut Agent, provider: &Provider, arguments: &Value) -> (Answer, String) {
    agent.user(&format!("recall {arguments}"));
    let answer = agent.turn().await;
    assert_eq!(answer.heard.text, "done");
    assert!(answer.heard.calls.is_empty());
    (answer, last_result(provider))
}

/// The newest result of a hidden call in the newest request.
fn last_result(provider: &Provider) -> String {
    let messages = newest(provider).value()["messages"].clone();
    let mut messages = messages.as_array().unwrap().iter().rev();
    let hidden = |message: &&Value| {
        let id = message["tool_call_id"].as_str().unwrap_or_default();
        id.starts_with('r')
    };
    let found = messages.find(hidden).unwrap();
    found["content"].as_str().unwrap().to_owned()
}

/// No request was refused or over the ceiling, and the tools never flipped.
#[track_caller]
fn held(provider: &Provider) {
    none_refused(provider);
    let chats = provider.chats();
    let tools = |body: &[u8]| {
        let text = String::from_utf8_lossy(body).into_owned();
        let at = text.find("\"tools\":").unwrap();
        text[at..at + 3000.min(text.len() - at)].to_owned()
    };
    for request in &chats {
        assert!(request.size <= CEILING as usize, "{}", request.size);
        let (own, first) = (tools(&request.body), tools(&chats[0].body));
        let end = first.find("\"bash\"").unwrap();
        assert_eq!(own[..end], first[..end]);
    }
}

/// Whether the newest request shows the whole output of a command.
fn shows(provider: &Provider, of: &str) -> bool {
    let (messages, output) = (newest(provider).value()["messages"].clone(), output(of));
    let mut messages = messages.as_array().unwrap().iter();
    messages.any(|message| {
        let content = message["content"].as_str().unwrap_or_default();
        content.contains(&output)
    })
}

#[tokio::test]
async fn an_evicted_item_comes_back_byte_for_byte() {
    // In levels the call stays in view; in the published order it goes with its result, and what is
    // open makes no room for more than some lines.
    let (whole, part) = (
        json!({"id": "bash:5"}),
        json!({"id": "bash:5", "lines": "1-12"}),
    );
    let called = "lines 1-12 of 90\nbash {\"c\":\"run b1\"}\n";
    for (stream, order, asked, head, lines) in [
        (false, Order::Levels, &whole, "90 lines\n", 90),
        (true, Order::Levels, &whole, "90 lines\n", 90),
        (false, Order::Paper, &part, called, 12),
        (true, Order::Paper, &part, called, 12),
    ] {
        let provider = provider(working()).await;
        let proxy = Proxy::with(provider.address, |config| {
            small(config);
            config.budget.order = order;
        })
        .await;
        let mut agent = worked(&proxy, stream).await;
        let before = String::from_utf8_lossy(&newest(&provider).body).into_owned();
        assert!(before.contains("bash:5"), "the view names it: {before}");
        assert!(!shows(&provider, "b1"));
        let (_, result) = ask(&mut agent, &provider, asked).await;
        let original: String = output("b1").split_inclusive('\n').take(lines).collect();
        assert_eq!(result, format!("recalled bash:5: {head}{original}"));
        // It stays where it is put, for a client that knows nothing of it.
        let shown = provider.chats().len();
        agent.user("thanks");
        agent.turn().await;
        extends(&provider.chats()[shown - 1..]);
        let outline = outline(&newest(&provider));
        let tail = outline
            .iter()
            .skip(outline.len() - 4)
            .map(|line| &line[..4]);
        let tail: Vec<&str> = tail.collect();
        assert_eq!(tail, ["assi", "tool", "assi", "user"], "{outline:?}");
        held(&provider);
    }
}

#[tokio::test]
async fn lines_and_searches_give_parts() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, small).await;
    let mut agent = worked(&proxy, true).await;
    let all = output("b1");
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    let asked = json!({"id": "bash:5", "lines": "10-12"});
    let (_, result) = ask(&mut agent, &provider, &asked).await;
    let head = "recalled bash:5: lines 10-12 of 90\n";
    assert_eq!(result, format!("{head}{}", lines[9..12].concat()));
    let asked = json!({"id": "bash:5", "search": "value-b1-33 "});
    let (_, result) = ask(&mut agent, &provider, &asked).await;
    let line = |n: usize| lines[n - 1];
    let want = format!(
        "recalled bash:5: 1 of 1 lines with \"value-b1-33 \", of 90\n31- {}32- {}33: {}34- {}35- {}",
        line(31),
        line(32),
        line(33),
        line(34),
        line(35)
    );
    // A pass may have taken the call out of view since: then it comes back with its result.
    assert_eq!(result.replacen("bash {\"c\":\"run b1\"}\n", "", 1), want);
    let asked = json!({"id": "bash:5", "search": "nowhere"});
    let (_, result) = ask(&mut agent, &provider, &asked).await;
    assert_eq!(
        result,
        "no line of bash:5 has \"nowhere\": it has 90 lines, 1-90 were searched"
    );
    held(&provider);
}

#[tokio::test]
async fn an_episode_comes_back_by_its_name_as_far_as_it_fits() {
    for stream in [false, true] {
        let provider = provider(working()).await;
        let proxy = Proxy::with(provider.address, small).await;
        let mut agent = worked(&proxy, stream).await;
        let (_, result) = ask(&mut agent, &provider, &json!({"id": "first"})).await;
        assert!(
            result.starts_with("recalled expl \"first\", 3 items: lines 1-"),
            "{result}"
        );
        let lines: Vec<&str> = result.lines().collect();
        assert!(
            lines[0].contains(" no more fits: ask for lines \""),
            "{}",
            lines[0]
        );
        assert_eq!(lines[1], "values of b1 to b3");
        assert_eq!(lines[2], "[bash:5]");
        assert!(result.contains("\n[... "), "{result}");
        assert!(output("b1").starts_with(&lines[3..20].join("\n")));
        assert!(output("b3").ends_with(&format!("{}\n", lines[lines.len() - 8..].join("\n"))));
        // What was left out is had by its lines in a later turn.
        let (_, rest) = lines[0].split_once("ask for lines \"").unwrap();
        let (rest, _) = rest.split_once('"').unwrap();
        let (first, _) = rest.split_once('-').unwrap();
        let asked = json!({"id": "first", "lines": format!("{first}-")});
        let (_, more) = ask(&mut agent, &provider, &asked).await;
        assert!(more.starts_with(&format!("recalled expl \"first\", 3 items: lines {first}-")));
        held(&provider);
    }
}

#[tokio::test]
async fn a_turn_brings_back_at_most_a_quarter_of_the_ceiling() {
    // Two of a thousand tokens each fit into 2,000 tokens with what stands around them; of the
    // third only what is left.
    let provider = provider(Script::ask(|view| {
        match last_key(view.messages()).as_str() {
            "three" => Reply::calls(vec![
                recall("r1", &json!({"id": "bash:5"})),
                recall("r2", &json!({"id": "bash:8"})),
                recall("r3", &json!({"id": "bash:11"})),
            ]),
            _ => working().reply(view),
        }
    }))
    .await;
    let proxy = Proxy::with(provider.address, small).await;
    let mut agent = worked(&proxy, true).await;
    agent.user("three");
    agent.turn().await;
    let messages = newest(&provider).value()["messages"].clone();
    let results = messages.as_array().unwrap().iter().filter_map(|message| {
        let id = message["tool_call_id"].as_str()?;
        id.starts_with('r')
            .then(|| message["content"].as_str().unwrap().to_owned())
    });
    let results: Vec<String> = results.collect();
    assert!(results[0].ends_with(&output("b1")));
    assert!(
        results[1].contains("; no more fits: ask for lines \""),
        "{}",
        results[1]
    );
    assert!(
        results[2].starts_with("no room for it now: "),
        "{}",
        results[2]
    );
    held(&provider);
}

#[tokio::test]
async fn a_recall_beside_a_visible_call_costs_no_hop() {
    for stream in [false, true] {
        let provider = provider(working()).await;
        let proxy = Proxy::with(provider.address, small).await;
        let mut agent = worked(&proxy, stream).await;
        let before = provider.chats().len();
        agent.user("mixed {\"id\":\"bash:5\"}");
        let answer = agent.turn().await;
        assert_eq!(answer.heard.calls, [bash("mixed")]);
        assert_eq!(provider.chats().len(), before + 1);
        agent.result("mixed", "out");
        agent.turn().await;
        assert!(last_result(&provider).ends_with(&output("b1")));
        let outline = outline(&newest(&provider));
        let tail = &outline[outline.len() - 3..];
        let id = format!("r{before}");
        assert_eq!(
            tail,
            [
                format!("assistant {id} mixed"),
                format!("tool {id}"),
                "tool mixed".to_owned()
            ]
        );
        held(&provider);
    }
}

#[tokio::test]
async fn what_is_in_view_is_not_repeated() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, small).await;
    let mut agent = worked(&proxy, true).await;
    let (_, live) = ask(&mut agent, &provider, &json!({"id": "bash:28"})).await;
    assert_eq!(
        live,
        "bash:28 is in view: the result of the call bash {\"c\":\"run b8\"}"
    );
    ask(&mut agent, &provider, &json!({"id": "bash:5"})).await;
    let (_, again) = ask(
        &mut agent,
        &provider,
        &json!({"id": "bash:5", "lines": "1-2"}),
    )
    .await;
    assert!(
        again.starts_with("bash:5 was recalled in recall:")
            && again.ends_with("which is still in view"),
        "{again}"
    );
    let (_, unknown) = ask(&mut agent, &provider, &json!({"id": "bash:6"})).await;
    assert!(
        unknown.starts_with("nothing is known as \"bash:6\"; evicted are bash:5 ("),
        "{unknown}"
    );
    assert!(unknown.ends_with("; episodes: second, first"), "{unknown}");
    held(&provider);
}

#[tokio::test]
async fn it_works_after_a_restart_and_in_a_fork() {
    for stream in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let provider = provider(working()).await;
        let path = directory.path().to_owned();
        let on_disk = move |config: &mut Config| {
            small(config);
            config.store.backend = Backend::Sled;
            config.store.path = path;
        };
        let proxy = Proxy::with(provider.address, on_disk.clone()).await;
        let mut agent = worked(&proxy, stream).await;
        let (_, first) = ask(&mut agent, &provider, &json!({"id": "bash:8"})).await;
        assert!(first.ends_with(&output("b2")));
        proxy.end().await;
        let proxy = Proxy::with(provider.address, on_disk).await;
        agent.url = proxy.url("/v1/chat/completions");
        let mut fork = agent.clone().with("x-plimsoll-session", "another");
        for agent in [&mut agent, &mut fork] {
            let (_, result) = ask(agent, &provider, &json!({"id": "bash:5"})).await;
            assert!(result.ends_with(&output("b1")));
            // What was recalled before the restart stands where it stood.
            let shown = String::from_utf8_lossy(&newest(&provider).body).into_owned();
            assert!(shown.contains("recalled bash:8: 90 lines"), "{shown}");
        }
        held(&provider);
    }
}

#[tokio::test]
async fn an_edit_of_the_clients_changes_nothing_that_was_recalled() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, small).await;
    let mut agent = worked(&proxy, true).await;
    ask(&mut agent, &provider, &json!({"id": "bash:5"})).await;
    let blank = |agent: &mut Agent| {
        for message in &mut agent.history {
            if message["tool_call_id"] == "b1" || message["tool_call_id"] == "b2" {
                message["content"] = json!("[cleared]");
            }
        }
    };
    let stranger = agent.clone().with("authorization", "Bearer another");
    blank(&mut agent);
    agent.user("go on");
    agent.turn().await;
    assert!(shows(&provider, "b1"), "the recall stands as it was");
    // More work evicts the recalled copy; the next recall is served from the record.
    for n in 0..8 {
        agent.user(&format!("bash m{n}"));
        agent.turn().await;
        agent.result(&format!("m{n}"), &output(&format!("m{n}")).repeat(4));
        agent.turn().await;
    }
    assert!(!shows(&provider, "b1"), "the recalled copy is evicted");
    let (_, again) = ask(&mut agent, &provider, &json!({"id": "bash:5"})).await;
    assert!(again.ends_with(&output("b1")), "{again}");
    let (_, other) = ask(&mut agent, &provider, &json!({"id": "bash:8"})).await;
    assert!(other.ends_with("\n[cleared]"), "{other}");
    held(&provider);
    // Another tenant that sends the same history finds nothing but what it sent.
    let mut stranger = stranger;
    blank(&mut stranger);
    stranger.user("hello");
    let before = provider.chats().len();
    stranger.turn().await;
    for id in ["bash:5", "recall:30", "first", "bash:4"] {
        let (_, result) = ask(&mut stranger, &provider, &json!({"id": id})).await;
        assert!(!result.contains("value-b1"), "{id}: {result}");
    }
    for request in &provider.chats()[before..] {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        assert!(!body.contains("value-b1"), "another tenant's recall");
    }
}

#[tokio::test]
async fn what_the_client_dropped_is_said_to_be_gone() {
    let provider = provider(working()).await;
    let alone = |config: &mut Config| {
        small(config);
        config.recall.dropped = false;
    };
    let proxy = Proxy::with(provider.address, alone).await;
    let mut agent = worked(&proxy, true).await;
    // The assistant message of `b2` and its result.
    let at = agent
        .history
        .iter()
        .position(|message| message["tool_call_id"] == "b2")
        .unwrap();
    agent.history.drain(at - 1..=at);
    let (_, result) = ask(&mut agent, &provider, &json!({"id": "bash:8"})).await;
    assert_eq!(result, "bash:8 is not in the history any more");
    none_refused(&provider);
}

#[tokio::test]
async fn the_third_recall_of_an_id_stays_in_view() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, small).await;
    let mut agent = worked(&proxy, true).await;
    let mut fresh = 0;
    for time in 1..=3 {
        let (_, result) = ask(&mut agent, &provider, &json!({"id": "bash:5"})).await;
        let pinned = result
            .lines()
            .next()
            .unwrap()
            .contains("it stays in view until");
        assert_eq!(pinned, time == 3, "{result}");
        // Enough work to evict what is not pinned, in few turns.
        for _ in 0..2 {
            fresh += 1;
            let id = format!("m{fresh}");
            agent.user(&format!("bash {id}"));
            agent.turn().await;
            agent.result(&id, &output(&id).repeat(4));
        }
        agent.turn().await;
        assert_eq!(shows(&provider, "b1"), time == 3, "{time}");
    }
    none_refused(&provider);
}

#[tokio::test]
async fn it_is_off_where_it_is_turned_off_and_stays_as_a_conversation_began() {
    let names = |provider: &Provider| -> Vec<String> {
        let tools = newest(provider).value()["tools"].clone();
        let tools = tools.as_array().unwrap().iter();
        tools
            .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (both, without) = (
        vec!["delimiter", "recall", "bash"],
        vec!["delimiter", "bash"],
    );
    // (in the configuration, in the header at first, later) -> the tools, always
    let table = [
        (true, None, Some("off"), &both),
        (true, Some("off"), Some("on"), &without),
        (false, None, None, &without),
        (false, Some("on"), None, &both),
    ];
    for (enabled, first, later, want) in table {
        let provider = provider(working()).await;
        let proxy = Proxy::with(provider.address, |config| {
            small(config);
            config.recall.enabled = enabled;
        })
        .await;
        let mut agent = Agent::new(&proxy, true).told("go");
        for header in [first, later] {
            agent
                .headers
                .retain(|(name, _)| *name != "x-plimsoll-recall");
            if let Some(value) = header {
                agent = agent.with("x-plimsoll-recall", value);
            }
            let answer = agent.turn().await;
            let id = answer.heard.calls[0].id.clone();
            agent.result(&id, &output(&id));
            assert_eq!(names(&provider), *want, "{enabled} {first:?} {later:?}");
        }
        work(&mut agent).await;
        let body = String::from_utf8_lossy(&newest(&provider).body).into_owned();
        assert_eq!(body.contains("recall"), *want == both, "{body}");
        none_refused(&provider);
    }
}

#[tokio::test]
async fn beside_a_recall_of_the_clients_it_has_another_name() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, small).await;
    let own = json!([
        {"type": "function", "function": {"name": "bash"}},
        {"type": "function", "function": {"name": "recall"}},
    ]);
    let mut agent = Agent::new(&proxy, true).field("tools", own).told("go");
    work(&mut agent).await;
    let (answer, result) = ask(&mut agent, &provider, &json!({"id": "bash:5"})).await;
    assert!(result.ends_with(&output("b1")));
    assert!(!answer.text().contains("plimsoll_recall"));
    let request = newest(&provider).value();
    assert_eq!(request["tools"][1]["function"]["name"], "plimsoll_recall");
    let guided = message(&newest(&provider), 0)["content"].clone();
    assert!(guided.as_str().unwrap().contains("`plimsoll_recall`"));
    held(&provider);
}

#[tokio::test]
async fn calls_hits_and_refetches_are_counted() {
    let provider = provider(working()).await;
    let proxy = Proxy::with(provider.address, small).await;
    let mut agent = worked(&proxy, true).await;
    for id in ["bash:5", "bash:5", "nobody"] {
        agent.user(&format!("recall {}", json!({"id": id})));
        agent.turn().await;
    }
    // The same command again whose result is gone, and one whose result is in view.
    for id in ["b1", "b8"] {
        agent.user(&format!("bash {id}"));
        agent.turn().await;
        agent.result(id, "again");
    }
    agent.turn().await;
    for (line, count) in [
        ("plimsoll_recall_total{outcome=\"ok\"}", "1"),
        ("plimsoll_recall_total{outcome=\"in_view\"}", "1"),
        ("plimsoll_recall_total{outcome=\"unknown\"}", "1"),
        ("plimsoll_refetch_total", "1"),
    ] {
        let found = metric(&proxy, line).await;
        assert_eq!(found.as_deref(), Some(format!("{line} {count}").as_str()));
    }
    let tokens = metric(&proxy, "plimsoll_recalled_tokens_total")
        .await
        .unwrap();
    let tokens: u32 = tokens.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((800..2_000).contains(&tokens), "{tokens}");
}
