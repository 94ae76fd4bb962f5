//! Turns of several hops: what the model may do wrong with hidden calls, how a turn ends, and what
//! the client reads of usage.

use plimsoll_scripted::{Call, Reply, Script, Style, UsagePlace, Verdict};
use plimsoll_wire::stream::UsageMode;
use serde_json::{Value, json};

use super::agent::{
    Agent, act, delimiter, explore, extends, last_key, learned, message, newest, none_refused,
    outline, plan, provider, tools,
};
use super::support::Proxy;

const CAP_LINE: &str = "the model only annotated; send \"continue\"";

/// A hop that only annotates, saying something.
fn first(text: &str) -> Reply {
    Reply::calls(vec![explore("d1", "a")]).saying(text)
}

#[tokio::test]
async fn a_turn_ends_at_the_hop_cap_and_goes_up_as_it_was() {
    // (what each hop says) -> what the client reads
    let table: [(&[&str], &str); 4] = [
        (&["", ""], CAP_LINE),
        (&["First.", ""], "First."),
        (&["", "Then."], "Then."),
        (&["First.", "Then."], "First.\n\nThen."),
    ];
    for stream in [false, true] {
        for (texts, read) in table {
            let said: Vec<String> = texts.iter().map(ToString::to_string).collect();
            let provider = provider(Script::ask(move |view| {
                let hidden = view.index;
                match said.get(hidden) {
                    Some(text) => {
                        let call = explore(&format!("d{hidden}"), &format!("e{hidden}"));
                        Reply::calls(vec![call]).saying(text)
                    }
                    None => Reply::text("on"),
                }
            }))
            .await;
            let proxy = Proxy::with(provider.address, |config| config.delimiter.hops = 2).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            let answer = agent.turn().await;
            assert_eq!(answer.heard.text, read, "{texts:?}");
            assert_eq!(answer.heard.finish.as_deref(), Some("stop"));
            assert_eq!(provider.chats().len(), 2, "the cap");
            agent.user("continue");
            assert_eq!(agent.turn().await.heard.text, "on");
            none_refused(&provider);
            let last = newest(&provider);
            assert_eq!(
                outline(&last),
                [
                    "system",
                    "user",
                    "assistant d0",
                    "tool d0",
                    "assistant d1",
                    "tool d1",
                    "user"
                ],
                "{texts:?}: the line of ours and joined texts stay out"
            );
            for (at, text) in [(2, texts[0]), (4, texts[1])] {
                let content = message(&last, at)["content"].clone();
                assert_eq!(content.as_str().unwrap_or_default(), text, "{texts:?}");
            }
            extends(&provider.chats());
        }
    }
}

#[tokio::test]
async fn the_default_cap_is_eight_hops() {
    let provider = provider(Script::ask(|view| {
        Reply::calls(vec![explore(&format!("d{}", view.index), "again")])
    }))
    .await;
    let proxy = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&proxy, true).told("go");
    assert_eq!(agent.turn().await.heard.text, CAP_LINE);
    assert_eq!(provider.chats().len(), 8);
    none_refused(&provider);
}

#[tokio::test]
async fn every_invalid_call_is_answered_with_what_to_do() {
    let same = json!({"action": "start", "name": "a", "type": "expl"});
    // (the calls of a turn's hops, one each) -> how the last one's result begins
    let table: [(&str, Vec<Call>, &str); 6] = [
        (
            "the same call twice",
            vec![delimiter("d1", &same), delimiter("d2", &same)],
            "already done; go on with the work",
        ),
        (
            "arguments that are no JSON",
            vec![Call::new("d1", "delimiter", "{oops")],
            "send the arguments as a JSON object",
        ),
        (
            "no arguments",
            vec![Call::new("d1", "delimiter", "")],
            "send the arguments as a JSON",
        ),
        ("nothing open", vec![learned("d1", "x")], "nothing is open"),
        (
            "a dependency that never was",
            vec![act("d1", "b", &["ghost"])],
            "\"ghost\" is no closed expl episode; there is none yet",
        ),
        (
            "a second episode",
            vec![explore("d1", "a"), explore("d2", "b")],
            "end \"a\" first",
        ),
    ];
    for (what, calls, result) in table {
        for stream in [false, true] {
            let script = calls.clone();
            let provider = provider(Script::ask(move |view| match script.get(view.index) {
                Some(call) => Reply::calls(vec![call.clone()]),
                None => Reply::text("done"),
            }))
            .await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            assert_eq!(agent.turn().await.heard.text, "done", "{what}");
            agent.user("more");
            agent.turn().await;
            let last = newest(&provider);
            let told = message(&last, 1 + 2 * calls.len())["content"].clone();
            assert!(told.as_str().unwrap().starts_with(result), "{what}: {told}");
            none_refused(&provider);
            extends(&provider.chats());
        }
    }
}

#[tokio::test]
async fn usage_is_told_by_the_rule_to_whoever_wants_it() {
    // (include_usage, where the provider tells it) -> whether the client reads any
    let table = [
        (None, UsagePlace::Extra, false),
        (Some(true), UsagePlace::Extra, true),
        (Some(true), UsagePlace::OnFinish, true),
        (Some(true), UsagePlace::OnEach, true),
        (Some(true), UsagePlace::Never, false),
        (Some(false), UsagePlace::Extra, false),
    ];
    for mode in [UsageMode::Last, UsageMode::Sum] {
        for (asked, place, told) in table {
            let style = Style {
                usage: place,
                ..Style::default()
            };
            let provider = provider(plan([
                ("go", vec![first("First.").style(style.clone())]),
                ("d1", vec![Reply::text("Then it ends.").style(style)]),
            ]))
            .await;
            let proxy = Proxy::with(provider.address, |c| c.streams.usage = mode).await;
            let mut agent = Agent::new(&proxy, true).told("go");
            if let Some(asked) = asked {
                agent = agent.field("stream_options", json!({"include_usage": asked}));
            }
            let answer = agent.ask().await.whole();
            let what = format!("{mode:?} {asked:?} {place:?}");
            assert_eq!(
                answer.heard.usage.is_some(),
                told,
                "{what}: {}",
                answer.text()
            );
            let sent = newest(&provider).value()["stream_options"]["include_usage"].clone();
            assert_eq!(sent, asked.unwrap_or(true), "{what}");
            let sizes: Vec<u64> = provider.chats().iter().map(|r| r.size as u64).collect();
            if let Some(usage) = answer.heard.usage {
                check_usage(&usage, mode, &sizes, &what);
            }
        }
        let provider = provider(plan([("go", vec![first("First.")])])).await;
        let proxy = Proxy::with(provider.address, |c| c.streams.usage = mode).await;
        let answer = Agent::new(&proxy, false).told("go").ask().await.whole();
        let sizes: Vec<u64> = provider.chats().iter().map(|r| r.size as u64).collect();
        check_usage(&answer.heard.usage.unwrap(), mode, &sizes, "unstreamed");
    }
}

/// The provider reports as prompt the sizes that it counted.
#[track_caller]
fn check_usage(usage: &Value, mode: UsageMode, sizes: &[u64], what: &str) {
    let number = |name: &str| usage[name].as_u64().unwrap();
    let prompt = match mode {
        UsageMode::Last => *sizes.last().unwrap(),
        UsageMode::Sum => sizes.iter().sum(),
    };
    assert_eq!(number("prompt_tokens"), prompt, "{what}: {usage}");
    let own = Reply::text("Then it ends.").text.len().div_ceil(4) as u64;
    assert!(
        number("completion_tokens") > own,
        "{what}: hops are summed: {usage}"
    );
    let total = number("prompt_tokens") + number("completion_tokens");
    assert_eq!(number("total_tokens"), total, "{what}");
}

#[tokio::test]
async fn each_hop_gets_what_is_left_of_the_token_limit() {
    for limit in ["max_tokens", "max_completion_tokens"] {
        let provider = provider(plan([("go", vec![first("First.")])])).await;
        let proxy = Proxy::before(provider.address).await;
        let agent = Agent::new(&proxy, true)
            .field(limit, json!(1000))
            .told("go");
        agent.ask().await.whole();
        let limits: Vec<u64> = provider
            .chats()
            .iter()
            .map(|request| request.value()[limit].as_u64().unwrap())
            .collect();
        assert_eq!(limits[0], 1000);
        assert!((1..1000).contains(&limits[1]), "{limits:?}");
    }
}

#[tokio::test]
async fn a_tool_limit_ends_the_turn_with_its_reason() {
    for reason in ["length", "content_filter"] {
        for stream in [false, true] {
            let cut = Call::new("d1", "delimiter", r#"{"action":"start","na"#);
            let reply = Reply::calls(vec![cut]).saying("I was").finish(reason);
            let provider = provider(plan([("go", vec![reply])])).await;
            let proxy = Proxy::before(provider.address).await;
            let mut agent = Agent::new(&proxy, stream).told("go");
            let answer = agent.turn().await;
            assert_eq!(answer.heard.finish.as_deref(), Some(reason));
            assert_eq!(answer.heard.text, "I was");
            agent.user("go on");
            agent.turn().await;
            assert_eq!(
                outline(&newest(&provider)),
                ["system", "user", "assistant", "user"],
                "half a hidden call is no call"
            );
            none_refused(&provider);
        }
    }
}

#[tokio::test]
async fn a_tool_of_the_same_name_is_the_clients() {
    for stream in [false, true] {
        let provider = provider(Script::ask(|view| {
            match last_key(view.messages()).as_str() {
                "go" => Reply::calls(vec![
                    Call::new(
                        "p1",
                        "plimsoll_delimiter",
                        r#"{"action":"start","name":"a","type":"expl"}"#,
                    ),
                    Call::new("c1", "delimiter", r#"{"mine":true}"#),
                ]),
                _ => Reply::text("done"),
            }
        }))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let own = json!([{"type": "function", "function": {"name": "delimiter"}}]);
        let mut agent = Agent::new(&proxy, stream).field("tools", own).told("go");
        let answer = agent.ask().await;
        assert!(
            !answer.text().contains("plimsoll_delimiter"),
            "{}",
            answer.text()
        );
        assert_eq!(
            answer.heard.calls,
            [Call::new("c1", "delimiter", r#"{"mine":true}"#)]
        );
        agent.keep(&answer.heard);
        agent.result("c1", "ok");
        agent.ask().await;
        none_refused(&provider);
        let last = newest(&provider);
        assert_eq!(
            outline(&last),
            ["system", "user", "assistant p1 c1", "tool p1", "tool c1"]
        );
        let names: Vec<Value> = [0, 1, 2]
            .map(|at| last.value()["tools"][at]["function"]["name"].clone())
            .to_vec();
        assert_eq!(names, ["plimsoll_delimiter", "recall", "delimiter"]);
    }
}

#[tokio::test]
async fn more_than_one_answer_is_not_managed() {
    for stream in [false, true] {
        let provider = provider(plan([])).await;
        let proxy = Proxy::before(provider.address).await;
        let agent = Agent::new(&proxy, stream)
            .field("n", json!(2))
            .field("tools", tools())
            .told("go");
        agent.ask().await.hides();
        let seen = newest(&provider);
        assert_eq!(seen.body, agent.body(), "untouched");
        assert_eq!(seen.verdict, Verdict::Accepted);
    }
}
