//! What a model takes is a ceiling too: sessions of models with small windows, known by a table, told
//! by the server or not known at all.

use std::io::Write as _;

use plimsoll::config::Config;
use plimsoll::pipeline::Unmet;
use plimsoll_scripted::Reply;

use super::agent::{Agent, Answer, bash, completion};
use super::support::{Lenient, Proxy};

/// Some 1,300 tokens.
const RESULT: usize = 650;
/// More turns of it than fit into 8,192 tokens, by far.
const TURNS: usize = 24;

/// A table with one row for the agents' model, as a user has one.
fn family(row: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        "[[family]]\nname = \"own\"\nmodels = [\"gpt-4o\"]\n{row}"
    )
    .unwrap();
    file
}

/// An upstream whose model calls the tool with every answer.
async fn busy() -> Lenient {
    Lenient::start(|number, body| {
        completion(&Reply::calls(vec![bash(&format!("b{number}"))]), body)
    })
    .await
}

/// The tokens that a header of an answer counts.
fn sent(answer: &Answer) -> u64 {
    answer.header("x-plimsoll-context-tokens").parse().unwrap()
}

/// Works long enough, and gives the largest view, and the zones that were met on the way.
async fn largest(agent: &mut Agent) -> (u64, Vec<String>) {
    let (mut largest, mut zones) = (0, Vec::new());
    for turn in 0..TURNS {
        let answer = agent.work(&format!("line {turn}\n").repeat(RESULT / 2)).await;
        assert_eq!(answer.header("x-plimsoll-budget"), "met", "{turn}");
        largest = largest.max(sent(&answer));
        zones.push(answer.header("x-plimsoll-zone").to_owned());
    }
    zones.sort();
    zones.dedup();
    (largest, zones)
}

#[tokio::test]
async fn no_view_is_larger_than_what_the_model_takes() {
    // A row of the table and the answer that is asked for -> the most that may be sent.
    let table: [(&str, Option<u64>, u64); 4] = [
        ("window = 8_192", None, 8_192),
        ("window = 8_192", Some(3_000), 8_192),
        ("context = 12_288", None, 11_520),
        ("context = 12_288", Some(4_000), 7_520),
    ];
    for (row, output, most) in table {
        let upstream = busy().await;
        let file = family(row);
        let own = |config: &mut Config| config.models.families = Some(file.path().to_owned());
        let proxy = Proxy::with(upstream.addr, own).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        if let Some(output) = output {
            agent = agent.field("max_tokens", output.into());
        }
        let (largest, zones) = largest(&mut agent).await;
        assert!(largest <= most, "{row} {output:?}: {largest}");
        assert!(largest * 10 >= most * 8, "{row} {output:?}: {largest}");
        // The zone is that of the ceiling in force: near it a view is no longer green.
        assert!(zones.contains(&"red".to_owned()), "{row}: {zones:?}");
    }
}

#[tokio::test]
async fn what_nobody_knows_the_window_of_has_the_budget() {
    let upstream = busy().await;
    let proxy = Proxy::before(upstream.addr).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    agent = agent.field("model", "someone-elses-model".into());
    let (largest, zones) = largest(&mut agent).await;
    assert!(largest > 20_000, "{largest}");
    assert_eq!(zones, ["green"]);
}

#[tokio::test]
async fn a_request_may_ask_for_less_than_the_window_and_not_for_more() {
    let file = family("window = 8_192");
    let own = |config: &mut Config| config.models.families = Some(file.path().to_owned());
    for (asked, most) in [("5000", 5_000), ("60k", 8_192), ("60%", 4_915)] {
        let upstream = busy().await;
        let proxy = Proxy::with(upstream.addr, own).await;
        let mut agent = Agent::new(&proxy, false).told("go");
        agent = agent.with("x-plimsoll-budget", asked);
        let (largest, _) = largest(&mut agent).await;
        assert!(largest <= most, "{asked}: {largest}");
        assert!(largest * 10 >= most * 7, "{asked}: {largest}");
    }
}

#[tokio::test]
async fn what_has_no_place_in_the_window_is_surfaced_or_refused() {
    let file = family("window = 3_000");
    let long = "user words ".repeat(3_000);
    for unmet in [Unmet::Surface, Unmet::Refuse] {
        let upstream = Lenient::saying(Reply::text("done")).await;
        let proxy = Proxy::with(upstream.addr, |config| {
            config.models.families = Some(file.path().to_owned());
            config.budget.unmet = unmet;
        })
        .await;
        let agent = Agent::new(&proxy, false).told(&long);
        let answer = agent.ask().await;
        match unmet {
            Unmet::Surface => {
                assert_eq!(answer.header("x-plimsoll-budget"), "exceeded");
                assert_eq!(answer.header("x-plimsoll-zone"), "red");
                answer.whole();
                assert_eq!(upstream.newest()["messages"][1]["content"], long);
            }
            Unmet::Refuse => {
                let (status, _, _, code) = answer.error();
                assert_eq!((status, code.as_str()), (400, "context_budget_exceeded"));
                let text = answer.text();
                assert!(text.contains("3000 are allowed"), "{text}");
                assert!(text.contains("a model that takes more"), "{text}");
                assert!(!text.contains("raise the budget"), "{text}");
                assert!(upstream.seen().is_empty(), "nothing is sent");
            }
        }
    }
}
