//! Sub-agents: conversations that share a session with the one that they came from, or name it.
//! They are held apart, their records say whose children they are, and the list adds up what a session came to with
//! all that descends from it.

use plimsoll_console::inspect::{Archive, export};
use plimsoll_scripted::{Reply, Script};
use serde_json::{Value, json};

use super::agent::{
    Agent, bash, explore, last_key, learned, newest, none_refused, outline, plan, provider,
};
use super::console::got;
use super::openapi::Description;
use super::shared_store::{self, RedisServer};
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

#[tokio::test]
async fn a_parent_is_named_as_the_client_named_it_or_as_it_was_told() {
    let provider = provider(plan([("go", vec![Reply::text("done")])])).await;
    let proxy = Proxy::before(provider.address).await;
    let begin = async |headers: &[(&'static str, &str)]| {
        let mut agent = Agent::new(&proxy, false).told("go");
        for (name, value) in headers {
            agent = agent.with(name, value);
        }
        let answer = agent.turn().await;
        answer.header("x-plimsoll-session").to_owned()
    };
    // The second looks like a name of the proxy's and is the client's own.
    for own in ["s", "0011223344556677"] {
        let parent = begin(&[("x-plimsoll-session", own)]).await;
        for (child, named) in [("a", own), ("b", &parent)] {
            let child = format!("{own}{child}");
            let headers = [
                ("x-plimsoll-session", &*child),
                ("x-plimsoll-parent", named),
            ];
            let child = begin(&headers).await;
            let archive = Archive::read(&proxy.app.store).unwrap();
            let (branch, _) = archive.find(&child).unwrap();
            assert_eq!(branch.parent_session, Some(parent.clone()), "{named}");
        }
    }
}

/// A model that makes one call and then says that it is done.
fn working() -> Script {
    Script::ask(|view| match last_key(view.messages()).as_str() {
        "go" => Reply::calls(vec![bash("b1")]),
        _ => Reply::text("done"),
    })
}

/// Somebody's session of so many turns, which names its parent, and the name that it got.
async fn member(
    proxy: &Proxy,
    key: &str,
    (name, parent): (&str, Option<&str>),
    turns: u32,
) -> (Agent, String) {
    let mut agent = Agent::new(proxy, false)
        .told("go")
        .with("authorization", &format!("Bearer {key}"))
        .with("x-plimsoll-session", name);
    if let Some(parent) = parent {
        agent = agent.with("x-plimsoll-parent", parent);
    }
    let mut id = String::new();
    for _ in 0..turns {
        let answer = agent.work("out").await;
        answer.header("x-plimsoll-session").clone_into(&mut id);
        if answer.heard.calls.is_empty() {
            agent.user("on");
        }
    }
    (agent, id)
}

/// The tree of a session by the list, held to its description.
async fn tree(proxy: &Proxy, name: &str) -> Value {
    let page = got(proxy, &format!("sessions?parent={name}")).await;
    let faults = Description::read().faults("get", "/api/sessions", "200", &page);
    assert_eq!(faults, Vec::<String>::new(), "{page}");
    page
}

fn names(page: &Value) -> Vec<&str> {
    let rows = page["sessions"].as_array().unwrap().iter();
    rows.map(|row| row["session"].as_str().unwrap()).collect()
}

/// What the rows of the list say of these sessions and their branches, added up.
fn added(all: &Value, members: &[&str]) -> Vec<(String, f64)> {
    let rows = all["sessions"].as_array().unwrap();
    let is = |field: &Value| field.as_str().is_some_and(|name| members.contains(&name));
    let own = |row: &&Value| is(&row["session"]) || (row["branch"] == true && is(&row["parent"]));
    let fields = "/prompt /cached /passes /hops /recalls /over /saved/turns /saved/usd/paid /saved/usd/whole /saved/usd/net";
    let sum = |field: &str| {
        let of = |row: &Value| row.pointer(field).and_then(Value::as_f64).unwrap();
        let sum: f64 = rows.iter().filter(own).map(of).sum();
        (field.to_owned(), sum)
    };
    fields.split(' ').map(sum).collect()
}

/// A root with a child that was rewound, a grandchild and a fork; and others, who are no relatives. Every second
/// turn goes to the other proxy.
async fn sums_are_those_of_all_relatives(one: &Proxy, two: &Proxy) {
    let (mut root, s) = member(one, "k", ("s", None), 2).await;
    let (mut child, a) = member(two, "k", ("a", Some("s")), 3).await;
    let (_, b) = member(one, "k", ("b", Some("a")), 1).await;
    let (_, c) = member(two, "k", ("c", Some("b")), 2).await;
    let url = |proxy: &Proxy| proxy.url("/v1/chat/completions");
    // Back to the first result, and another way from there.
    child.history.truncate(4);
    child.user("another way");
    child.url = url(one);
    child.turn().await;
    // A session of its own that goes on from the root's history.
    let mut fork = root.clone().with("x-plimsoll-session", "f");
    fork = fork.with("x-plimsoll-parent", "s");
    let answer = fork.turn().await;
    let f = answer.header("x-plimsoll-session").to_owned();
    root.url = url(two);
    root.turn().await;
    // Others: another session, and another owner's of the same names.
    member(one, "k", ("x", None), 1).await;
    member(two, "k", ("y", Some("x")), 1).await;
    let (_, other) = member(one, "else", ("s", None), 1).await;
    let (_, others) = member(one, "else", ("a", Some("s")), 1).await;

    let all = got(one, "sessions?limit=1000").await;
    let page = tree(one, &s).await;
    let mut below = names(&page);
    assert_eq!(below.len(), 5, "one of them is a branch: {page}");
    below.retain(|name| [&a, &b, &c, &f].iter().any(|one| one == name));
    assert_eq!(below.len(), 4, "{page}");
    let sums = &page["tree"];
    assert_eq!((&sums["sessions"], &sums["turns"]), (&json!(5), &json!(11)));
    for (field, sum) in added(&all, &[&s, &a, &b, &c, &f]) {
        let shown = sums.pointer(&field).and_then(Value::as_f64).unwrap();
        assert!((shown - sum).abs() < 1e-9, "{field}: {shown} {sum}");
        assert!(sum > 0.0 || !field.contains("paid"), "{field}");
    }
    // A subtree, by its own root, and the other owner's.
    let inner = tree(one, &a).await;
    let counted = |page: &Value| {
        (
            page["tree"]["sessions"].clone(),
            page["tree"]["turns"].clone(),
        )
    };
    assert_eq!(counted(&inner), (json!(3), json!(7)));
    let foreign = tree(one, &other).await;
    assert_eq!(names(&foreign), [others.as_str()]);
    assert_eq!(counted(&foreign), (json!(2), json!(2)));
    // All proxies of a store say the same, and a session's own page says it, too.
    for proxy in [one, two] {
        assert_eq!(tree(proxy, &s).await["tree"], *sums);
        let session = got(proxy, &format!("sessions/{s}")).await;
        assert_eq!(session["tree"], *sums);
        assert_eq!(session["children"].as_array().unwrap().len(), 2);
        let alone = got(proxy, &format!("sessions/{c}")).await;
        assert_eq!(alone["tree"], Value::Null);
    }
    // By pages, each with the sums of all, whatever else is asked.
    let (mut paged, mut query) = (Vec::new(), String::new());
    loop {
        let asked = format!("sessions?parent={s}&sort=turn&limit=2{query}");
        let part = got(one, &asked).await;
        assert_eq!(part["tree"], *sums);
        paged.extend(names(&part).into_iter().map(str::to_owned));
        match part["next"].as_str() {
            Some(next) => query = format!("&cursor={next}"),
            None => break,
        }
    }
    paged.sort_unstable();
    let mut wanted = names(&page);
    wanted.sort_unstable();
    assert_eq!(paged, wanted);
}

#[tokio::test]
async fn a_root_has_the_sums_of_all_that_descends_from_it() {
    let provider = provider(working()).await;
    let proxy = Proxy::before(provider.address).await;
    sums_are_those_of_all_relatives(&proxy, &proxy).await;
    if shared_store::are_here() {
        let server = RedisServer::start(&[]);
        let one = Proxy::with(provider.address, shared_store::on(&server)).await;
        let two = Proxy::with(provider.address, shared_store::on(&server)).await;
        sums_are_those_of_all_relatives(&one, &two).await;
    }
}

#[tokio::test]
async fn a_tree_without_a_root_or_an_end_is_told_all_the_same() {
    let provider = provider(working()).await;
    let proxy = Proxy::before(provider.address).await;
    let nobody = tree(&proxy, "0123456789abcdef").await;
    assert_eq!(
        (names(&nobody).len(), &nobody["tree"]["turns"]),
        (0, &json!(0))
    );
    assert_eq!(nobody["tree"]["saved"]["usd"], Value::Null);
    // Two that name each other, and one whose parent has no turn.
    let (_, p) = member(&proxy, "k", ("p", Some("q")), 1).await;
    let (_, q) = member(&proxy, "k", ("q", Some("p")), 1).await;
    let (_, lone) = member(&proxy, "k", ("lone", Some("gone")), 2).await;
    for (root, child) in [(&p, &q), (&q, &p)] {
        let page = tree(&proxy, root).await;
        assert_eq!(names(&page), [child.as_str()]);
        assert_eq!(page["tree"]["turns"], 2);
    }
    let row = got(&proxy, &format!("sessions/{lone}")).await["row"].clone();
    let page = tree(&proxy, row["parent"].as_str().unwrap()).await;
    assert_eq!(names(&page), [lone.as_str()]);
    assert_eq!(
        (&page["tree"]["sessions"], &page["tree"]["turns"]),
        (&json!(1), &json!(2))
    );
}
