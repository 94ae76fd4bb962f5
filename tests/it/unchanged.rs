//! Agents that answer a repeated read with "unchanged, see above" after a pass took what stood above: a line below such
//! a result names what left, and `recall` brings it back. In all dialects, over HTTP.

use plimsoll::config::Config;

use super::dialects::{Agent, DIALECTS, Dialect, Provider, Reply, call, file, says};
use super::support::Proxy;

/// What agents say in place of a file, as they say it.
const CLAUDE: &str = "File unchanged since last read. The content from the earlier Read tool_result in this conversation \
     is still current \u{2014} refer to that instead of re-reading.";
const STUBS: [&str; 7] = [
    CLAUDE,
    "Wasted call \u{2014} file unchanged since your last Read. Refer to that earlier tool_result instead.",
    r#"{"status": "unchanged", "message": "File unchanged since last read. The content from the earlier read_file result in this conversation is still current — refer to that instead of re-reading.", "path": "/src/1.rs", "dedup": true, "content_returned": false}"#,
    r#"{"error": "BLOCKED: You have called read_file on this exact region 3 times and the file has NOT changed. STOP calling read_file for this path — the content from your earlier read_file result in this conversation is still current. Proceed with your task using the information you already have.", "path": "/src/1.rs", "already_read": 3}"#,
    "[File src/1.rs unchanged since last read in this session \u{2014} the full content was provided earlier in this \
     conversation. If you cannot retrieve that prior content (e.g. after context compaction) or you suspect the file was \
     modified outside the read/edit tools (shell command, MCP tool, another process), re-read with explicit offset/limit \
     to fetch current content.]",
    "[File unchanged since last read: /src/1.rs]",
    "<system-reminder>This file is already in your context",
];

fn read(id: &str, number: usize, more: &str) -> super::dialects::Call {
    call(
        id,
        "Read",
        format!(r#"{{"file_path":"/src/{number}.rs"{more}}}"#),
    )
}

/// A model that reads eight files, then the first one again, and then does what the user says.
fn reply(sent: &super::dialects::Sent, more: &str) -> Reply {
    let key = sent.key();
    match key.strip_prefix('r').and_then(|number| number.parse().ok()) {
        Some(8) => says("", vec![read("again", 1, more)]),
        Some(number) => says(
            "",
            vec![read(&format!("r{}", number + 1_usize), number + 1, "")],
        ),
        None if key == "go" => says("", vec![read("r1", 1, "")]),
        None if key.starts_with("recall ") => {
            let id = key.trim_start_matches("recall ");
            says(
                "",
                vec![call("hidden", "recall", format!(r#"{{"id":"{id}"}}"#))],
            )
        }
        None => says("done", Vec::new()),
    }
}

/// Plays that, with this in place of the first file when it is read again. `more` are arguments that only the second
/// read of it has.
async fn played(
    (dialect, stream): (Dialect, bool),
    stub: &str,
    more: &'static str,
    set: impl FnOnce(&mut Config),
) -> (Proxy, Provider, Agent) {
    played_with(&["Read"], (dialect, stream), stub, more, set).await
}

/// The same, with these tools.
async fn played_with(
    tools: &[&'static str],
    (dialect, stream): (Dialect, bool),
    stub: &str,
    more: &'static str,
    set: impl FnOnce(&mut Config),
) -> (Proxy, Provider, Agent) {
    let provider = Provider::start(move |_, sent| reply(sent, more)).await;
    let proxy = Proxy::with(provider.addr, |config| {
        config.budget.ceiling = 4_000;
        set(config);
    })
    .await;
    let mut agent = Agent::new(&proxy, dialect, stream, "reads");
    agent.tools = tools.to_vec();
    agent.user("go");
    agent
        .work(|agent, call| {
            let text = match call.id.strip_prefix('r') {
                Some(number) => file(number.parse().unwrap()),
                None => stub.to_owned(),
            };
            agent.result(&call.id, &text);
        })
        .await;
    (proxy, provider, agent)
}

/// The id that the line below a result names.
fn named(shown: &str, stub: &str) -> String {
    let line = shown
        .strip_prefix(stub)
        .unwrap_or_else(|| panic!("{shown}"));
    let id = line
        .strip_prefix("\n[this refers to ")
        .unwrap_or_else(|| panic!("{shown}"));
    id.split_once(',').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_result_that_refers_to_what_left_says_so_and_recall_brings_it_back() {
    let streams = [false, true];
    for of in DIALECTS
        .into_iter()
        .flat_map(|dialect| streams.map(|stream| (dialect, stream)))
    {
        let (_proxy, provider, mut agent) = played(of, CLAUDE, "", |_| {}).await;
        let shown = provider.newest().result("again").unwrap();
        let id = named(&shown, CLAUDE);
        let brings = format!("not shown in full: recall \"{id}\" brings it back]");
        assert!(shown.ends_with(&brings), "{of:?}: {shown}");
        assert!(
            !agent.body().contains("this refers to"),
            "the client sees nothing of it"
        );
        // What was sent once stays as it was.
        agent.user(&format!("recall {id}"));
        agent.turn().await;
        let sent = provider.newest();
        assert_eq!(sent.result("again").as_ref(), Some(&shown), "{of:?}");
        let brought = sent.result("hidden").unwrap();
        assert!(brought.contains(&file(1)), "{of:?}: {brought}");
    }
}

#[tokio::test]
async fn each_agents_words_are_known() {
    for (stub, of) in STUBS.into_iter().zip(DIALECTS.into_iter().cycle()) {
        let (_proxy, provider, _agent) = played((of, false), stub, "", |_| {}).await;
        named(&provider.newest().result("again").unwrap(), stub);
    }
}

#[tokio::test]
async fn a_call_that_is_written_another_way_is_known_by_its_path() {
    let more = r#","offset":1"#;
    let (_proxy, provider, _agent) = played((Dialect::Chat, false), CLAUDE, more, |_| {}).await;
    named(&provider.newest().result("again").unwrap(), CLAUDE);
}

#[tokio::test]
async fn it_names_our_tool_where_the_client_has_one_of_that_name() {
    let tools = &["Read", "recall"];
    let (_proxy, provider, _agent) =
        played_with(tools, (Dialect::Chat, false), CLAUDE, "", |_| {}).await;
    let shown = provider.newest().result("again").unwrap();
    assert!(shown.contains(": plimsoll_recall \"Read:"), "{shown}");
}

#[tokio::test]
async fn without_recall_the_line_offers_none() {
    let off = |config: &mut Config| config.recall.enabled = false;
    let (_proxy, provider, _agent) = played((Dialect::Messages, true), CLAUDE, "", off).await;
    let shown = provider.newest().result("again").unwrap();
    named(&shown, CLAUDE);
    assert!(
        shown.ends_with("not shown in full]") && !shown.contains("recall"),
        "{shown}"
    );
}

#[tokio::test]
async fn there_is_no_line_where_it_would_say_nothing_new() {
    // Everything is in view; other words; nothing is known; the rung is not there.
    let whole = |config: &mut Config| config.budget.ceiling = 60_000;
    let none = |config: &mut Config| config.budget.unchanged = [].into();
    let ladder = |config: &mut Config| config.budget.ladder = "cwl".parse().unwrap();
    let of = (Dialect::Chat, false);
    let other = "Nothing has changed.";
    for (stub, in_view, set) in [
        (CLAUDE, true, &whole as &dyn Fn(&mut Config)),
        (other, false, &|_: &mut Config| {}),
        (CLAUDE, false, &none),
        (CLAUDE, false, &ladder),
    ] {
        let (_proxy, provider, _agent) = played(of, stub, "", set).await;
        let sent = provider.newest();
        assert_eq!(sent.result("again").as_deref(), Some(stub));
        let is_whole = sent.result("r1") == Some(file(1));
        assert_eq!(is_whole, in_view, "{stub}");
    }
}

/// A model that reads four files, then the fifth together with the first one again.
fn at_once(sent: &super::dialects::Sent) -> Reply {
    let key = sent.key();
    match key.strip_prefix('r').and_then(|number| number.parse().ok()) {
        Some(4) => says("", vec![read("r5", 5, ""), read("again", 1, "")]),
        Some(number) => says(
            "",
            vec![read(&format!("r{}", number + 1_usize), number + 1, "")],
        ),
        None if key == "go" => says("", vec![read("r1", 1, "")]),
        None => says("done", Vec::new()),
    }
}

#[tokio::test]
async fn a_pass_does_not_take_what_a_new_result_refers_to() {
    for dialect in DIALECTS {
        let provider = Provider::start(|_, sent| at_once(sent)).await;
        let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = 4_000).await;
        let mut agent = Agent::new(&proxy, dialect, false, "reads");
        agent.tools = vec!["Read"];
        agent.user("go");
        agent
            .work(|agent, call| {
                let text = match call.id.strip_prefix('r') {
                    // The last one is so long that a pass is due.
                    Some("5") => file(5) + &file(15),
                    Some(number) => file(number.parse().unwrap()),
                    None => CLAUDE.to_owned(),
                };
                agent.result(&call.id, &text);
            })
            .await;
        let sent = provider.newest();
        assert_eq!(sent.result("r1"), Some(file(1)), "{dialect:?}");
        assert_eq!(sent.result("again").as_deref(), Some(CLAUDE), "{dialect:?}");
        assert_ne!(
            sent.result("r2"),
            Some(file(2)),
            "{dialect:?}: a pass was due"
        );
    }
}
