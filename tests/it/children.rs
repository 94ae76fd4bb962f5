//! Sub-agents: conversations that share a session with the one that they came from, or name it.
//! They are held apart, and their records say whose children they are.

use plimsoll::inspect::{Archive, export};
use plimsoll_scripted::Reply;
use serde_json::{Value, json};

use super::agent::{Agent, bash, explore, learned, newest, none_refused, outline, plan, provider};
use super::support::Proxy;

type Headers = &'static [(&'static str, &'static str)];

/// How a conversation and two of its children name themselves.
const FAMILIES: [[Headers; 3]; 4] = [
    [
        &[("x-claude-code-session-id", "s")],
        &[
            ("x-claude-code-session-id", "s"),
            ("x-claude-code-agent-id", "a"),
        ],
        &[
            ("x-claude-code-session-id", "s"),
            ("x-claude-code-agent-id", "b"),
        ],
    ],
    [
        &[("session-id", "s"), ("thread-id", "s")],
        &[
            ("session-id", "s"),
            ("thread-id", "a"),
            ("x-codex-parent-thread-id", "s"),
        ],
        &[
            ("session-id", "s"),
            ("thread-id", "b"),
            ("x-codex-parent-thread-id", "s"),
        ],
    ],
    [
        &[("x-session-id", "s")],
        &[("x-session-id", "a"), ("x-parent-session-id", "s")],
        &[("x-session-id", "b"), ("x-parent-session-id", "s")],
    ],
    [
        &[("x-plimsoll-session", "s")],
        &[("x-plimsoll-session", "a"), ("x-plimsoll-parent", "s")],
        &[("x-plimsoll-session", "b"), ("x-plimsoll-parent", "s")],
    ],
];

fn with(mut agent: Agent, headers: Headers, own: Option<&str>) -> Agent {
    for (name, value) in headers {
        agent = agent.with(name, value);
    }
    match own {
        Some(own) => agent.with("x-plimsoll-session", own),
        None => agent,
    }
}

/// Works through a session of one episode with a call in it, and returns its name.
async fn work(agent: &mut Agent) -> String {
    let answer = agent.work("out").await;
    agent.turn().await;
    answer.header("x-plimsoll-session").to_owned()
}

#[tokio::test]
async fn children_that_begin_alike_are_held_apart_and_name_their_parent() {
    let with_own = FAMILIES.iter().take(3).map(|family| (family, Some("mine")));
    let told = FAMILIES.iter().map(|family| (family, None));
    for ([main, one, two], own) in told.chain(with_own) {
        let hidden = Reply::calls(vec![explore("d1", "a")]);
        let visible = Reply::calls(vec![bash("b1")]);
        let ended = Reply::calls(vec![learned("d2", "nothing")]).saying("Then.");
        let provider = provider(plan([
            ("go", vec![hidden]),
            ("d1", vec![visible]),
            ("b1", vec![ended]),
            ("d2", vec![Reply::text("done")]),
        ]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        // All of them say the same, down to the ids, and run at once.
        let mut agents =
            [main, one, two].map(|headers| with(Agent::new(&proxy, true).told("go"), headers, own));
        let [main, one, two] = &mut agents;
        let (main, one, two) = tokio::join!(work(main), work(one), work(two));
        assert!(main != one && one != two && main != two, "{own:?} {main}");
        none_refused(&provider);
        assert_eq!(
            outline(&newest(&provider)),
            [
                "system",
                "user",
                "assistant d1",
                "tool d1",
                "assistant b1",
                "tool b1",
                "assistant d2",
                "tool d2"
            ]
        );
        let archive = Archive::read(&proxy.app.store).unwrap();
        for (name, parent) in [(&main, None), (&one, Some(&main)), (&two, Some(&main))] {
            let (branch, others) = archive.find(name).unwrap();
            assert_eq!((branch.turns, others), (2, 0), "{own:?} {name}");
            assert_eq!(branch.parent_session.as_ref(), parent, "{own:?} {name}");
            let text = export(&proxy.app.store, &branch).unwrap().text;
            let meta: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            assert_eq!(meta["_meta"]["parent_session"], json!(parent));
        }
    }
}

/// How a conversation, its child and a child of that name themselves.
const LINES: [[Headers; 3]; 3] = [
    [
        &[("session-id", "s"), ("thread-id", "s")],
        &[
            ("session-id", "s"),
            ("thread-id", "a"),
            ("x-codex-parent-thread-id", "s"),
        ],
        &[
            ("session-id", "s"),
            ("thread-id", "b"),
            ("x-codex-parent-thread-id", "a"),
        ],
    ],
    [
        &[("x-session-id", "s")],
        &[("x-session-id", "a"), ("x-parent-session-id", "s")],
        &[("x-session-id", "b"), ("x-parent-session-id", "a")],
    ],
    [
        &[("x-session-affinity", "s")],
        &[("x-session-affinity", "a"), ("x-parent-session-id", "s")],
        &[("x-session-affinity", "b"), ("x-parent-session-id", "a")],
    ],
];

#[tokio::test]
async fn a_child_of_a_child_names_that() {
    for line in LINES {
        for own in [None, Some("mine")] {
            let provider = provider(plan([("go", vec![Reply::text("done")])])).await;
            let proxy = Proxy::before(provider.address).await;
            let mut parent = None;
            for headers in line {
                let mut agent = with(Agent::new(&proxy, false).told("go"), headers, own);
                let answer = agent.turn().await;
                let name = answer.header("x-plimsoll-session").to_owned();
                let archive = Archive::read(&proxy.app.store).unwrap();
                let (branch, _) = archive.find(&name).unwrap();
                assert_eq!(branch.parent_session, parent, "{own:?} {headers:?}");
                parent = Some(name);
            }
        }
    }
}
