//! What clients do to the history that they send again: retries, forks, restarts, edits in the
//! middle, other modes. What is hidden comes back where it can, and is never put where it was not.

use plimsoll::config::Backend;
use plimsoll_scripted::{Reply, Script};
use serde_json::{Value, json};

use super::agent::{
    Agent, WHOLE, annotated, bash, explore, extends, last_key, learned, message, newest,
    none_refused, outline, provider,
};
use super::support::Proxy;

#[tokio::test]
async fn a_retry_is_served_as_the_request_was() {
    for stream in [false, true] {
        let provider = provider(annotated(3)).await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        for _ in 0..3 {
            let before = agent.clone();
            let first = agent.work("out").await;
            let sent = newest(&provider).body;
            for _ in 0..2 {
                let again = before.ask().await.whole();
                assert_eq!(newest(&provider).body, sent, "state was advanced");
                assert_eq!(
                    again.header("x-plimsoll-turn"),
                    first.header("x-plimsoll-turn")
                );
            }
        }
        agent.turn().await;
        none_refused(&provider);
        assert_eq!(outline(&newest(&provider)), WHOLE);
        extends(&provider.chats());
    }
}

#[tokio::test]
async fn siblings_of_a_retry_are_branches() {
    // Each answer has ids of its own, as a provider's answers do.
    let provider = provider(Script::ask(|view| {
        match last_key(view.messages()).as_str() {
            "go" => {
                let id = |kind: &str| format!("{kind}-{}", view.index);
                Reply::calls(vec![explore(&id("d"), &id("e")), bash(&id("b"))])
            }
            _ => Reply::text("done"),
        }
    }))
    .await;
    let proxy = Proxy::before(provider.address).await;
    let agent = Agent::new(&proxy, true).told("go");
    let (mut one, mut two) = (agent.clone(), agent);
    one.work("out").await;
    two.work("out").await;
    for (branch, number) in [(&one, 0), (&two, 1), (&one, 0)] {
        branch.ask().await.whole();
        let expect = [
            "system".to_owned(),
            "user".to_owned(),
            format!("assistant d-{number} b-{number}"),
            format!("tool d-{number}"),
            format!("tool b-{number}"),
        ];
        assert_eq!(outline(&newest(&provider)), expect);
    }
    none_refused(&provider);
}

#[tokio::test]
async fn a_fork_keeps_what_was_hidden_and_no_other_tenant_gets_it() {
    let plain = ["system", "user", "assistant b1", "tool b1"];
    let whole = &WHOLE[..5];
    // (session before, header and value of the request that forks) -> what goes up
    let table: [(&str, (&'static str, &str), &[&str]); 4] = [
        ("one", ("x-plimsoll-session", "two"), whole),
        ("", ("x-plimsoll-session", "two"), whole),
        ("one", ("x-session-id", "three"), whole),
        ("one", ("authorization", "Bearer other"), &plain),
    ];
    for stream in [false, true] {
        for (session, (name, value), expect) in table {
            let provider = provider(annotated(3)).await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            if !session.is_empty() {
                agent = agent.with("x-plimsoll-session", session);
            }
            agent.work("out").await;
            let mut fork = agent.clone();
            if name == "x-session-id" {
                fork.headers.retain(|(name, _)| *name == "authorization");
            }
            let mut fork = fork.with(name, value);
            fork.work("fork").await;
            assert_eq!(outline(&newest(&provider)), expect, "{session} {name}");
            // Both go on by themselves.
            agent.work("main").await;
            assert_eq!(outline(&newest(&provider)), whole);
            fork.work("fork").await;
            let last = newest(&provider);
            assert!(outline(&last).contains(&"tool d2".to_owned()), "{name}");
            let fourth = last.value()["messages"].as_array().unwrap().clone();
            let said = |text: &str| fourth.iter().any(|message| message["content"] == text);
            assert!(said("fork") && !said("main"));
            none_refused(&provider);
        }
    }
}

#[tokio::test]
async fn a_session_is_resumed_after_a_restart() {
    for stream in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let provider = provider(annotated(3)).await;
        let mut agent = None;
        for turn in 0..4 {
            let path = path.clone();
            let proxy = Proxy::with(provider.address, |config| {
                config.store.backend = Backend::Sled;
                config.store.path = path;
            })
            .await;
            let agent: &mut Agent =
                agent.get_or_insert_with(|| Agent::new(&proxy, stream).told("go"));
            agent.url = proxy.url("/v1/chat/completions");
            let answer = agent.work("out").await;
            assert_eq!(answer.header("x-plimsoll-turn"), (turn + 1).to_string());
            proxy.end().await;
        }
        none_refused(&provider);
        assert_eq!(outline(&newest(&provider)), WHOLE);
        extends(&provider.chats());
    }
}

/// A change of the history before the fourth request, and what goes up then.
type Edit = (&'static str, fn(&mut Vec<Value>), Vec<&'static str>);

fn edits() -> Vec<Edit> {
    // The client's own: 0 system, 1 user, 2 b1, 3 result, 4 b2, 5 result, 6 b3, 7 result.
    let without = |gone: &[&str]| -> Vec<&'static str> {
        WHOLE
            .iter()
            .copied()
            .filter(|line| !gone.contains(line))
            .collect()
    };
    vec![
        (
            "a blanked result",
            |history| history[3]["content"] = json!("[cleared]"),
            without(&[]),
        ),
        (
            "another system message",
            |history| history[0]["content"] = json!("it is five past noon"),
            without(&[]),
        ),
        (
            "an edited user message",
            |history| history[1]["content"] = json!("go, please"),
            without(&[]),
        ),
        (
            "arguments written anew",
            |history| {
                history[4]["tool_calls"][0]["function"]["arguments"] =
                    json!("{ \"c\" : \"run b2\" }");
            },
            without(&[]),
        ),
        (
            "content as parts",
            |history| history[2]["content"] = json!([{"type": "text", "text": "One."}]),
            without(&[]),
        ),
        (
            "text that the client lost",
            |history| history[2]["content"] = Value::Null,
            without(&[]),
        ),
        (
            "a reminder in the middle",
            |history| history.insert(4, json!({"role": "user", "content": "remember"})),
            [&WHOLE[..5], &["user"], &WHOLE[5..]].concat(),
        ),
        (
            "a turn that was dropped: its exploration never was, nor does it end",
            |history| drop(history.drain(2..4)),
            vec![
                "system",
                "user",
                "assistant b2",
                "tool b2",
                "assistant d3 b3",
                "tool d3",
                "tool b3",
            ],
        ),
        (
            "the newest turn dropped",
            |history| drop(history.drain(6..8)),
            WHOLE[..8].to_vec(),
        ),
        (
            "all but the newest turn compacted",
            |history| {
                history.drain(2..6);
                history[1] = json!({"role": "user", "content": "so far: a summary"});
            },
            vec!["system", "user", "assistant d3 b3", "tool d3", "tool b3"],
        ),
    ]
}

#[tokio::test]
async fn an_edit_keeps_what_anchors_tie_and_drops_all_else() {
    for stream in [false, true] {
        for (what, edit, expect) in edits() {
            let provider = provider(annotated(3)).await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            for _ in 0..3 {
                agent.work("out").await;
            }
            edit(&mut agent.history);
            agent.work("out").await;
            let edited = newest(&provider);
            assert_eq!(outline(&edited), expect, "{what}");
            // The edit is dealt with once: from here on it is a history like any other.
            agent.user("and then");
            agent.turn().await;
            agent.user("and now");
            agent.turn().await;
            none_refused(&provider);
            let chats = provider.chats();
            extends(&chats[chats.len() - 3..]);
        }
    }
}

#[tokio::test]
async fn an_answer_without_calls_is_anchored_by_the_call_before_it() {
    for stream in [false, true] {
        let script = Script::ask(|view| match last_key(view.messages()).as_str() {
            "go" => Reply::calls(vec![explore("d1", "a"), bash("b1")]),
            "b1" => Reply::calls(vec![learned("d2", "x")]),
            "d2" => Reply::text("done"),
            _ => Reply::text("ok"),
        });
        let provider = provider(script).await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work("out").await;
        agent.turn().await;
        // No head matches any more, and the newest answer has no call to be found by.
        let result = agent
            .history
            .iter()
            .position(|m| m["role"] == "tool")
            .unwrap();
        agent.history[result]["content"] = json!("[cleared]");
        agent.user("and then");
        agent.turn().await;
        none_refused(&provider);
        let last = outline(&newest(&provider));
        assert!(last.contains(&"tool d2".to_owned()), "{last:?}");
    }
}

#[tokio::test]
async fn text_that_a_client_trims_is_known_again() {
    for stream in [false, true] {
        let provider = provider(Script::ask(|view| {
            let key = last_key(view.messages());
            match key.strip_prefix("ask ") {
                Some(number) => Reply::calls(vec![explore(&format!("d{number}"), number)])
                    .saying(format!("  First {number}.")),
                None => Reply::text(format!("Then {key}. \n")),
            }
        }))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream);
        for number in 0..4 {
            agent.user(&format!("ask {number}"));
            agent.turn().await;
            let last = agent.history.last_mut().unwrap();
            let text = last["content"].as_str().unwrap().trim().to_owned();
            last["content"] = text.into();
        }
        none_refused(&provider);
        let last = outline(&newest(&provider));
        for number in 0..4 {
            let call = format!("assistant d{number}");
            assert!(last.contains(&call), "{call}: {last:?}");
        }
    }
}

#[tokio::test]
async fn a_system_message_may_change_with_every_request() {
    for stream in [false, true] {
        let provider = provider(annotated(3)).await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        for minute in 0..4 {
            let clock = format!("it is 12:0{minute}");
            agent.history[0] = json!({"role": "system", "content": clock});
            agent.work("out").await;
            let system = message(&newest(&provider), 0)["content"].clone();
            let system = system.as_str().unwrap();
            assert!(
                system.starts_with(&clock) && system.contains("delimiter"),
                "{system}"
            );
        }
        none_refused(&provider);
        assert_eq!(outline(&newest(&provider)), WHOLE);
    }
}

#[tokio::test]
async fn observe_and_off_leave_every_byte() {
    for stream in [false, true] {
        for mode in ["observe", "off"] {
            let provider = provider(annotated(3)).await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            agent.work("out").await;
            let watched = agent.clone().with("x-plimsoll-mode", mode);
            let answer = watched.ask().await;
            assert_eq!(newest(&provider).body, watched.body(), "untouched");
            assert_eq!(answer.header("x-plimsoll-fail-open"), "");
            let reported = answer.headers.contains_key("x-plimsoll-context-tokens");
            assert_eq!(reported, mode == "observe");
            // The mode is not remembered; the turn that it left is a gap.
            agent.keep(&json_heard("b2"));
            agent.result("b2", "out");
            agent.turn().await;
            let expect = [&WHOLE[..5], &["assistant b2", "tool b2"]].concat();
            assert_eq!(outline(&newest(&provider)), expect, "{mode}");
            none_refused(&provider);
        }
    }
}

/// What an agent heard that made one visible call.
fn json_heard(id: &str) -> plimsoll_scripted::Heard {
    plimsoll_scripted::Heard {
        calls: vec![bash(id)],
        ..plimsoll_scripted::Heard::default()
    }
}

#[tokio::test]
async fn a_request_without_tools_stands_where_its_history_does() {
    for stream in [false, true] {
        let provider = provider(annotated(3)).await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        // On an unknown path it goes as it is, under the same report.
        let mut title = agent.clone().field("tools", Value::Null);
        let answer = title.ask().await;
        assert_eq!(newest(&provider).body, title.body(), "untouched");
        assert_eq!(answer.header("x-plimsoll-budget"), "met");
        let mut long = Agent::new(&proxy, stream).told(&"word ".repeat(90_000));
        long = long.field("tools", Value::Null);
        let answer = long.ask().await;
        assert_eq!(
            newest(&provider).body,
            long.body(),
            "untouched, however long"
        );
        assert_eq!(answer.header("x-plimsoll-budget"), "exceeded");
        // On a known one it sees what was hidden, and neither tools nor guidance.
        agent.work("out").await;
        title.history.clone_from(&agent.history);
        title.user("summarise all this");
        title.ask().await.whole();
        let seen = newest(&provider);
        assert_eq!(outline(&seen), [&WHOLE[..5], &["user"]].concat());
        assert!(seen.value().get("tools").is_none());
        assert_eq!(message(&seen, 0)["content"], "be brief");
        // Its answer is a side branch.
        agent.work("out").await;
        agent.work("out").await;
        agent.turn().await;
        assert_eq!(outline(&newest(&provider)), WHOLE);
        none_refused(&provider);
    }
}

#[tokio::test]
async fn a_long_session_does_not_hold_the_square_of_its_length_and_is_found_at_any_point() {
    let provider = provider(Script::ask(|view| {
        match last_key(view.messages()).strip_prefix('b') {
            Some(number) => {
                let next = number.parse::<usize>().unwrap() + 1;
                Reply::calls(vec![bash(&format!("b{next}"))])
            }
            None => Reply::calls(vec![explore("d1", "e"), bash("b1")]),
        }
    }))
    .await;
    let proxy = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    let (mut old, mut sent, mut half) = (None, None, 0);
    for turn in 0..160 {
        agent.work("out").await;
        if turn == 140 {
            old = Some(agent.clone());
        }
        if turn == 141 {
            sent = Some(newest(&provider).body);
        }
        if turn == 79 {
            half = proxy.app.paths.weight();
        }
    }
    // Of longer paths two stay, each weighed with all of its records: twice the turns weigh twice
    // as much.
    let held = proxy.app.paths.weight();
    assert!(held < half * 5 / 2, "{held} after {half}");
    old.unwrap().turn().await;
    assert_eq!(Some(newest(&provider).body), sent);
    none_refused(&provider);
}
