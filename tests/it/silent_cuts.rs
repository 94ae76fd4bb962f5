//! Servers that cut a prompt which is longer than what they loaded, and don't say so: the proxy sees it by what they
//! report, says it for them, and keeps the next views below it. And servers whose reports look like that and are not.

use plimsoll::config::Config;
use serde_json::{Value, json};

use super::agent::until_metric;
use super::console::got;
use super::dialects::{Agent, DIALECTS, Dialect, Provider, Sent, Told, call, says};
use super::support::Proxy;

const MODEL: &str = "house-7b";
/// What the servers here load.
const LOADED: usize = 8_192;
const TURNS: usize = 22;

/// The size of a prompt as these servers count it.
fn size(sent: &Sent) -> usize {
    sent.bytes.len() / 4
}

/// What a server reads of a prompt and reports.
type Reads = fn(&Sent) -> usize;

/// Ollama since 2024 and others: the newest tokens, so many as it loaded.
fn newest(sent: &Sent) -> usize {
    size(sent).min(LOADED)
}

/// Ollama in the autumn of 2026: half of them.
fn half(sent: &Sent) -> usize {
    match size(sent) {
        whole if whole > LOADED => LOADED / 2 + 2,
        whole => whole,
    }
}

/// A server whose model calls its tool in each turn.
async fn server(reads: Reads) -> Provider {
    Provider::telling(move |number, sent| {
        let call = call(&format!("c{number}"), "bash", json!({"c": number}));
        let input = reads(sent);
        let told = Told {
            input,
            cached: input / 2,
            ..Told::default()
        };
        (says("", vec![call]), told)
    })
    .await
}

fn agent(proxy: &Proxy, dialect: Dialect, stream: bool) -> Agent {
    let mut agent = Agent::new(proxy, dialect, stream, "cut");
    agent.fields.push(("model", MODEL.into()));
    agent.user("run them all");
    agent
}

/// A result of so many tokens or so, none of whose lines stands anywhere else.
fn output(turn: usize, tokens: usize) -> String {
    let line = |line| format!("{turn}.{line} is what this line of the output says\n");
    (0..tokens / 10).map(line).collect()
}

/// Works, with results of these sizes. Gives what the header said in each turn, and the session's name.
async fn works(
    agent: &mut Agent,
    results: impl IntoIterator<Item = usize>,
) -> (Vec<String>, String) {
    let (mut said, mut session) = (Vec::new(), String::new());
    for (turn, tokens) in results.into_iter().enumerate() {
        let answer = agent.ask().await;
        assert!(
            answer.status == 200 && answer.whole,
            "{turn}: {}",
            answer.bytes
        );
        said.push(answer.header("x-plimsoll-cut").to_owned());
        answer.header("x-plimsoll-session").clone_into(&mut session);
        agent.keep(&answer);
        for call in &answer.calls {
            agent.result(&call.id, &output(turn, tokens));
        }
    }
    (said, session)
}

/// Results of a day's work.
fn results() -> impl Iterator<Item = usize> {
    (0..TURNS).map(|turn| 600 + 150 * (turn * 5 % 7))
}

#[tokio::test]
async fn a_server_that_cuts_is_found_out_and_the_next_views_fit() {
    for (reads, at) in [(newest as Reads, "8192"), (half, "4098")] {
        for dialect in DIALECTS {
            for stream in [false, true] {
                let case = format!("{dialect:?} {stream} {at}");
                let server = server(reads).await;
                let proxy = Proxy::before(server.addr).await;
                let mut agent = agent(&proxy, dialect, stream);
                let (said, session) = works(&mut agent, results()).await;
                // From one turn on it is said with each answer.
                let first = said.iter().position(|cut| !cut.is_empty());
                let first = first.unwrap_or_else(|| panic!("{case}: it was never said"));
                assert!(
                    said[first..].iter().all(|cut| cut == at),
                    "{case}: {said:?}"
                );
                let sizes: Vec<usize> = server.sent().iter().map(size).collect();
                let cut = sizes.iter().filter(|size| **size > LOADED).count();
                assert!((2..=4).contains(&cut), "{case}: {sizes:?}");
                let most = at.parse::<usize>().unwrap();
                let later = sizes.iter().rev().take(TURNS - first - 1);
                assert!(later.clone().count() > 5, "{case}: {said:?}");
                assert!(later.clone().all(|size| *size <= most), "{case}: {sizes:?}");
                // The room that there is gets used.
                assert!(later.max().unwrap() * 10 > most * 6, "{case}: {sizes:?}");
                until_metric(&proxy, "plimsoll_cut_prompts_total 1").await;
                let turns = got(&proxy, &format!("sessions/{session}/turns")).await;
                let shown = turns["columns"]["cut"].as_array().unwrap();
                assert_eq!(shown.last(), Some(&json!(most)), "{case}");
                assert_eq!(shown.first(), Some(&Value::Null), "{case}");
            }
        }
    }
}

/// Plays a session that is never called cut.
async fn is_not_cut(case: &str, reads: Reads, results: &[usize], change: impl FnOnce(&mut Config)) {
    let server = server(reads).await;
    let proxy = Proxy::with(server.addr, change).await;
    let mut agent = agent(&proxy, Dialect::Chat, false);
    let (said, _) = works(&mut agent, results.iter().copied()).await;
    assert!(said.iter().all(String::is_empty), "{case}: {said:?}");
    until_metric(&proxy, "plimsoll_cut_prompts_total 0").await;
}

/// What was there before the last result, in a cache that the report does not count.
fn what_is_new(sent: &Sent) -> usize {
    let texts = sent.texts();
    // With each turn come one call and one result of the same size.
    texts.iter().rev().take(2).map(String::len).sum::<usize>() / 4
}

/// A server that counts all, of which hardly any comes with a turn, beside a window.
fn little(sent: &Sent) -> usize {
    8_150 + sent.texts().len()
}

/// A server without any window that counts all.
fn all(sent: &Sent) -> usize {
    size(sent)
}

/// A server that cuts at a size that is nobody's window.
fn odd(sent: &Sent) -> usize {
    size(sent).min(5_500)
}

#[tokio::test]
async fn reports_that_only_look_cut_teach_nothing() {
    let same = [1_300; 14];
    // So that what is new comes to a number that is a window.
    is_not_cut("what is new alone", what_is_new, &[1_840; 14], |_| {}).await;
    is_not_cut("small steps", little, &[10; 14], |_| {}).await;
    // Views that passes make shorter and that grow again, near a window.
    let held = |config: &mut Config| config.budget.ceiling = 8_192;
    is_not_cut("passes", all, &same, held).await;
    is_not_cut("no window", odd, &same, |_| {}).await;
    is_not_cut("all", all, &same, |_| {}).await;
}

#[tokio::test]
async fn thoughts_that_a_server_drops_are_no_growth() {
    // The server renders no thought of an earlier turn, and the prompt stands still right below its window.
    let server = Provider::telling(|number, sent| {
        let messages = sent.body["messages"].as_array().unwrap();
        let bare = messages.iter().map(|message| {
            let mut message = message.clone();
            message.as_object_mut().unwrap().remove("reasoning_content");
            message.to_string().len()
        });
        let told = Told {
            input: (bare.sum::<usize>() / 4).clamp(8_150, 8_200),
            ..Told::default()
        };
        let call = call(&format!("c{number}"), "bash", json!({"c": number}));
        (says("", vec![call]), told)
    })
    .await;
    let proxy = Proxy::before(server.addr).await;
    let mut agent = agent(&proxy, Dialect::Chat, false);
    for turn in 0..12 {
        let answer = agent.ask().await;
        assert_eq!(answer.header("x-plimsoll-cut"), "", "{turn}");
        agent.keep(&answer);
        let thought = output(turn, 900);
        agent.history.last_mut().unwrap()["reasoning_content"] = thought.into();
        agent.result(&answer.calls[0].id, "ok");
    }
}

#[tokio::test]
async fn another_model_of_the_server_is_judged_by_its_own_reports() {
    let server = server(newest).await;
    let proxy = Proxy::before(server.addr).await;
    let mut agent = agent(&proxy, Dialect::Chat, false);
    let mut said = Vec::new();
    for turn in 0..TURNS {
        // Never three times running.
        let model = ["house-7b", "house-7b", "other-7b"][turn % 3];
        *agent.fields.last_mut().unwrap() = ("model", model.into());
        let answer = agent.turn().await;
        said.push(answer.header("x-plimsoll-cut").to_owned());
        let long = output(turn, 900);
        let last = agent.history.last_mut().unwrap();
        last["content"] = long.into();
    }
    assert!(said.iter().all(String::is_empty), "{said:?}");
    // The window of one is not that of the other.
    *agent.fields.last_mut().unwrap() = ("model", MODEL.into());
    let (said, _) = works(&mut agent, [700, 900, 700, 900]).await;
    assert_eq!(said.last().map(String::as_str), Some("8192"));
    *agent.fields.last_mut().unwrap() = ("model", "other-7b".into());
    assert_eq!(agent.ask().await.header("x-plimsoll-cut"), "");
}
