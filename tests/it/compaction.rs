//! Agents that compact their own history: what was evicted before is recalled after it, from memory, or from the store where
//! that is asked for. In all dialects, over HTTP.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use memchr::memmem;
use plimsoll::config::Config;
use plimsoll_core::turn::{CompactionView, Unmet};
use plimsoll_store::{Batch, Store, StoreSettings};

use super::dialects::{Agent, DIALECTS, Dialect, Provider, Reply, Sent, call, file, says};
use super::process::Process;
use super::shared_store::{RedisServer, are_here};
use super::support::Proxy;

/// A model that reads eight files and then does what the user says.
fn reply(sent: &Sent) -> Reply {
    let key = sent.key();
    let read = |number: usize| {
        let path = format!(r#"{{"file_path":"/src/{number}.rs"}}"#);
        says("", vec![call(&format!("r{number}"), "Read", path)])
    };
    // Each with an id of its own, because one may be called several times.
    let id = format!("h{}", sent.calls().len());
    let hidden = |name: &str, arguments: String| says("", vec![call(&id, name, arguments)]);
    match key
        .strip_prefix('r')
        .and_then(|number| number.parse::<usize>().ok())
    {
        Some(number) if number % 10 == 8 => says("done", Vec::new()),
        Some(number) => read(number + 1),
        None if key.starts_with("go") => read(key[2..].parse::<usize>().unwrap_or(0) + 1),
        None if key.starts_with("recall ") => {
            hidden("recall", key.trim_start_matches("recall ").to_owned())
        }
        None if key == "mark" => hidden(
            "delimiter",
            r#"{"action":"start","name":"next","type":"act","description":"goes on"}"#.to_owned(),
        ),
        None => says(&format!("did {key}"), Vec::new()),
    }
}

/// Has an agent read eight files, of which the first ones are evicted.
async fn reads(agent: Agent) -> Agent {
    reads_behind(agent, "").await
}

/// The same with those behind this number.
async fn reads_behind(mut agent: Agent, number: &str) -> Agent {
    agent.tools = vec!["Read"];
    agent.user(&format!("go{number}"));
    agent
        .work(|agent, call| {
            let number = call.id.trim_start_matches('r').parse().unwrap();
            agent.result(&call.id, &file(number));
        })
        .await;
    agent
}

/// The same agent with a history of a summary alone, which it has sent once.
async fn compacted(before: &Agent) -> Agent {
    let mut agent = before.clone();
    // No two summaries are the same.
    static SUMMARIES: AtomicUsize = AtomicUsize::new(0);
    let number = SUMMARIES.fetch_add(1, Ordering::Relaxed);
    agent.history.clear();
    agent.user(&format!(
        "This session goes on from one before. Summary {number}: files were read."
    ));
    agent.turn().await;
    agent
}

/// Has the model recall, and returns what it got.
async fn recalled(agent: &mut Agent, provider: &Provider, ask: &str) -> String {
    agent.user(&format!("recall {ask}"));
    agent.turn().await;
    newest_result(provider)
}

/// The result of the newest call that a view has.
fn newest_result(provider: &Provider) -> String {
    let sent = provider.newest();
    let id = sent.calls().pop().unwrap().id;
    sent.result(&id).unwrap()
}

fn small(config: &mut Config) {
    config.budget.ceiling = 4_000;
}

const BY_PATH: &str = r#"{"id":"/src/1.rs"}"#;
const BY_SEARCH: &str = r#"{"search":"value_1_40 "}"#;

fn each() -> impl Iterator<Item = (Dialect, bool)> {
    DIALECTS
        .into_iter()
        .flat_map(|dialect| [(dialect, false), (dialect, true)])
}

#[tokio::test]
async fn what_was_evicted_before_is_recalled_after() {
    for (dialect, stream) in each() {
        let of = (dialect, stream);
        let provider = Provider::start(|_, sent| reply(sent)).await;
        let proxy = Proxy::with(provider.addr, small).await;
        let before = reads(Agent::new(&proxy, dialect, stream, "s")).await;
        let shown = provider.newest().result("r1");
        assert!(
            !shown.unwrap_or_default().contains("value_1_40"),
            "{of:?}: it was evicted"
        );
        // By path, by the id that the first result names, and by what it holds.
        let mut agent = compacted(&before).await;
        agent.user("mark");
        agent.turn().await;
        let told = newest_result(&provider);
        let id = told.split(' ').find(|word| word.starts_with("Read:"));
        let id = id.unwrap_or_else(|| panic!("{of:?}: {told}")).to_owned();
        assert!(
            told.contains("results of the history before, the newest Read:"),
            "{of:?}: {told}"
        );
        let brought = recalled(&mut agent, &provider, BY_PATH).await;
        assert!(brought.ends_with(&file(1)), "{of:?}: {brought}");
        assert!(
            !brought.contains("of the history before, the newest"),
            "it is said once"
        );
        let number: usize = told.split_once("/src/").unwrap().1[..1].parse().unwrap();
        let mut other = compacted(&before).await;
        let by_id = recalled(&mut other, &provider, &format!(r#"{{"id":"{id}"}}"#)).await;
        assert!(by_id.contains(&file(number)), "{of:?}: {by_id}");
        let found = recalled(&mut other, &provider, BY_SEARCH).await;
        assert!(found.contains(": let value_1_40 = "), "{of:?}: {found}");
        // What is in view again is not brought back twice.
        let again = recalled(&mut agent, &provider, BY_PATH).await;
        assert!(again.contains("still in view"), "{of:?}: {again}");
    }
}

#[tokio::test]
async fn an_agent_may_compact_again_and_again_and_numbers_mean_one_thing() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let mut agent = reads(Agent::new(&proxy, Dialect::Chat, false, "s")).await;
    let mut ids = Vec::new();
    for round in 0..3 {
        let mut next = compacted(&agent).await;
        let brought = recalled(&mut next, &provider, BY_PATH).await;
        assert!(brought.contains(&file(1)), "{round}: {brought}");
        agent = reads(next).await;
        let stubs = provider.newest().texts();
        let named = stubs
            .iter()
            .flat_map(|text| text.split(|at: char| !at.is_alphanumeric() && at != ':'));
        let named: Vec<String> = named
            .filter(|word| word.starts_with("read:") || word.starts_with("Read:"))
            .map(str::to_owned)
            .collect();
        assert!(!named.is_empty(), "{stubs:?}");
        assert!(
            named.iter().all(|id| !ids.contains(id)),
            "{named:?} {ids:?}"
        );
        ids.extend(named);
    }
}

#[tokio::test]
async fn a_client_that_drops_a_part_has_it_recalled_too() {
    for session in ["", "s"] {
        let provider = Provider::start(|_, sent| reply(sent)).await;
        let proxy = Proxy::with(provider.addr, small).await;
        // Where it names no session, what it still sends leads to the rest.
        let mut agent = reads(Agent::new(&proxy, Dialect::Chat, false, session)).await;
        let newest = agent.history.split_off(agent.history.len() - 5);
        agent.history.clear();
        agent.user("Summary: files were read.");
        agent.history.extend(newest);
        let brought = recalled(&mut agent, &provider, BY_PATH).await;
        assert!(brought.contains(&file(1)), "{brought}");
        // A pass in the new history does not take the place of the old one.
        let mut agent = reads_behind(agent, "10").await;
        let found = recalled(&mut agent, &provider, BY_SEARCH).await;
        assert!(found.contains(": let value_1_40 = "), "{found}");
        let found = recalled(&mut agent, &provider, r#"{"search":"value_11_40 "}"#).await;
        assert!(found.contains(": let value_11_40 = "), "{found}");
    }
}

#[tokio::test]
async fn the_newest_read_of_a_file_comes_first_and_a_search_has_all_of_them() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let mut agent = reads(Agent::new(&proxy, Dialect::Chat, false, "s")).await;
    // It is written and read again behind the last pass.
    agent.user("go0");
    let answer = agent.ask().await;
    agent.keep(&answer);
    agent.result("r1", "let value_1_40 = new;\n");
    agent.turn().await;
    let mut agent = compacted(&agent).await;
    let brought = recalled(&mut agent, &provider, BY_PATH).await;
    assert!(brought.contains("let value_1_40 = new;\n"), "{brought}");
    assert!(!brought.contains("= 316761"), "{brought}");
    assert!(brought.contains(" was before it"), "{brought}");
    let both = r#"{"id":"/src/1.rs","search":"value_1_40 "}"#;
    let found = recalled(&mut agent, &provider, both).await;
    assert!(
        found.contains("= new;") && found.contains("= 316761"),
        "{found}"
    );
}

#[tokio::test]
async fn a_summary_that_was_made_on_the_path_takes_nothing_away() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let mut agent = reads(Agent::new(&proxy, Dialect::Chat, false, "s")).await;
    let mut summary = agent.clone();
    summary.user(SUMMARISE[0]);
    summary.turn().await;
    let newest = agent.history.split_off(agent.history.len() - 3);
    agent.history.clear();
    agent.user("Summary: files were read.");
    agent.history.extend(newest);
    let brought = recalled(&mut agent, &provider, BY_PATH).await;
    assert!(brought.contains(&file(1)), "{brought}");
}

#[tokio::test]
async fn a_first_request_that_is_sent_again_begins_where_it_began() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let elsewhere = Proxy::before(provider.addr).await;
    // It comes here in mid-session, and something is evicted from its first request.
    let mut agent = reads(Agent::new(&elsewhere, Dialect::Chat, false, "s")).await;
    agent.at(&proxy);
    agent.user("done?");
    agent.ask().await;
    let first = provider.newest();
    assert!(first.result("r1").is_none_or(|result| result != file(1)));
    agent.ask().await;
    assert_eq!(provider.newest().texts(), first.texts());
}

#[tokio::test]
async fn a_cache_key_is_no_name_of_a_session() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let mut agent = Agent::new(&proxy, Dialect::Chat, false, "");
    agent.fields = vec![("prompt_cache_key", "all".into())];
    let before = reads(agent).await;
    let mut other = compacted(&before).await;
    let none = recalled(&mut other, &provider, BY_SEARCH).await;
    assert!(!none.contains("value_1_40 ="), "{none}");
}

#[tokio::test]
async fn nobody_else_finds_it_and_nothing_is_found_where_it_is_off() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let before = reads(Agent::new(&proxy, Dialect::Chat, false, "s")).await;
    let mut stranger = before.clone();
    stranger.headers = vec![("x-api-key", "another".to_owned())];
    let mut elsewhere = before.clone();
    elsewhere.session = "another".to_owned();
    for other in [stranger, elsewhere] {
        let mut other = compacted(&other).await;
        for ask in [BY_PATH, BY_SEARCH] {
            let none = recalled(&mut other, &provider, ask).await;
            assert!(!none.contains("value_1_40 ="), "{none}");
        }
    }
    let off = |config: &mut Config| {
        small(config);
        config.recall.dropped = false;
    };
    let proxy = Proxy::with(provider.addr, off).await;
    let before = reads(Agent::new(&proxy, Dialect::Chat, false, "s")).await;
    let mut agent = compacted(&before).await;
    let none = recalled(&mut agent, &provider, BY_PATH).await;
    assert!(none.starts_with("nothing is known as"), "{none}");
    assert_eq!(proxy.app.histories.weight(), 0);
}

/// What Claude Code and codex ask for a summary with.
const SUMMARISE: [&str; 2] = [
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n- Do NOT use Read, Bash, Grep",
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary",
];

#[tokio::test]
async fn a_summary_is_made_of_the_view_or_of_the_whole_history_if_the_operator_wants_that() {
    for (whole, (dialect, stream)) in [false, true]
        .into_iter()
        .flat_map(|whole| each().map(move |of| (whole, of)))
    {
        let provider = Provider::start(|_, sent| reply(sent)).await;
        let proxy = Proxy::with(provider.addr, |config| {
            small(config);
            if whole {
                config.compaction.view = CompactionView::Whole;
            }
        })
        .await;
        let before = reads(Agent::new(&proxy, dialect, stream, "s")).await;
        for words in SUMMARISE {
            let mut agent = before.clone();
            agent.user(words);
            let answer = agent.turn().await;
            let sent = provider.newest();
            let shows = sent.result("r1").is_some_and(|result| result == file(1));
            assert_eq!(shows, whole, "{dialect:?} {stream}");
            let why = answer.header("x-plimsoll-unmanaged");
            assert_eq!(why, if whole { "compaction" } else { "" });
        }
        // Only what asks for a summary goes up whole, and only where there is something to be summarised.
        let mut agent = before.clone();
        agent.user(&format!("What does this mean: {}", SUMMARISE[0]));
        agent.turn().await;
        assert!(
            provider
                .newest()
                .result("r1")
                .is_none_or(|result| result != file(1))
        );
        let mut agent = compacted(&before).await;
        let brought = recalled(&mut agent, &provider, BY_PATH).await;
        assert!(brought.contains(&file(1)), "{brought}");
        agent.user(SUMMARISE[0]);
        assert_eq!(agent.turn().await.header("x-plimsoll-unmanaged"), "");
    }
}

#[tokio::test]
async fn a_summary_stays_the_views_where_the_whole_may_not_fit() {
    for (model, unmet) in [("gpt-4o", Unmet::Refuse), ("nobody-knows", Unmet::Surface)] {
        let provider = Provider::start(|_, sent| reply(sent)).await;
        let proxy = Proxy::with(provider.addr, |config| {
            small(config);
            config.compaction.view = CompactionView::Whole;
            config.budget.unmet = unmet;
        })
        .await;
        let mut agent = Agent::new(&proxy, Dialect::Chat, false, "s");
        agent.fields = vec![("model", model.into())];
        let mut agent = reads(agent).await;
        agent.user(SUMMARISE[0]);
        assert_eq!(agent.turn().await.header("x-plimsoll-unmanaged"), "");
    }
}

#[tokio::test]
async fn what_memory_has_lost_is_unknown_and_the_session_goes_on() {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let proxy = Proxy::with(provider.addr, small).await;
    let before = reads(Agent::new(&proxy, Dialect::Chat, false, "s")).await;
    let mut agent = compacted(&before).await;
    proxy.app.histories.forget();
    for ask in [BY_PATH, BY_SEARCH, r#"{"id":"Read:3"}"#] {
        let none = recalled(&mut agent, &provider, ask).await;
        assert!(!none.contains("value_1_40 ="), "{none}");
    }
    let mut agent = reads(agent).await;
    let brought = recalled(&mut agent, &provider, BY_PATH).await;
    assert!(brought.contains(&file(1)), "{brought}");
}

/// A process that is killed behind the summary, with the store and the settings of `env`; `true` if a line of the first
/// file is in a file below `directory`.
async fn killed(env: &[(&str, &str)], stream: bool) -> (String, bool) {
    let provider = Provider::start(|_, sent| reply(sent)).await;
    let directory = tempfile::tempdir().unwrap();
    let env: Vec<_> = env
        .iter()
        .copied()
        .chain([("PLIMSOLL__BUDGET__TOKENS", "4000")])
        .collect();
    let start = || Process::start(directory.path(), provider.addr, &["--data=./data"], &env);
    let process = start();
    let lenient = Proxy::before(provider.addr).await;
    let mut agent = Agent::new(&lenient, Dialect::Chat, stream, "s");
    let url = |process: &Process| process.url("/v1/chat/completions");
    agent.url = url(&process);
    let before = reads(agent).await;
    process.signal("-KILL");
    process.end().await;
    let process = start();
    let mut agent = before;
    agent.url = url(&process);
    let mut agent = compacted(&agent).await;
    // It is found again by every later process.
    process.signal("-KILL");
    process.end().await;
    let is_there =
        env.iter().all(|(_, value)| *value != "redis") && holds(directory.path(), b"value_1_40 =");
    let process = start();
    agent.url = url(&process);
    (recalled(&mut agent, &provider, BY_PATH).await, is_there)
}

/// Whether anything in the store of a directory has these bytes. What is stored is compressed, so the files alone don't
/// tell.
fn holds(directory: &Path, bytes: &[u8]) -> bool {
    let settings = StoreSettings {
        path: directory.join("data"),
        ..StoreSettings::default()
    };
    let store = Store::open(&settings).unwrap().store;
    let mut holds = false;
    let each = &mut |batch: Batch| {
        holds |= batch
            .blobs
            .iter()
            .any(|(_, blob)| memmem::find(blob, bytes).is_some());
        Ok(())
    };
    store.each(each).unwrap();
    store.close().unwrap();
    holds
}

const KEPT: [(&str, &str); 2] = [
    ("PLIMSOLL__STORE__KEEP_EVICTED", "true"),
    ("PLIMSOLL__STORE__KEEP_CONTENT", "30d"),
];

#[tokio::test]
async fn it_outlives_the_process_where_the_store_keeps_it_and_else_no_file_has_it() {
    for stream in [false, true] {
        let (brought, is_there) = killed(&KEPT, stream).await;
        assert!(is_there && brought.contains(&file(1)), "{brought}");
        let (none, is_there) = killed(&[], stream).await;
        assert!(
            !is_there && none.starts_with("nothing is known as"),
            "{none}"
        );
    }
}

#[tokio::test]
async fn a_shared_store_keeps_it_too() {
    if !are_here() {
        return;
    }
    let server = RedisServer::start(&[]);
    let url = server.url();
    let shared = [
        ("PLIMSOLL__STORE__BACKEND", "redis"),
        ("PLIMSOLL__STORE__URL", url.as_str()),
        ("PLIMSOLL__TENANT__KEY", "0123456789abcdef0123456789abcdef"),
    ];
    let env: Vec<_> = shared.into_iter().chain(KEPT).collect();
    let (brought, _) = killed(&env, true).await;
    assert!(brought.contains(&file(1)), "{brought}");
}
