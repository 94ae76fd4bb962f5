//! Where the room of a context goes: what views are made of, and prologues that clients change.

use plimsoll_scripted::Reply;

use super::agent::{Agent, annotated, metric, provider, tools, total};
use super::support::{Lenient, Proxy};

#[tokio::test]
async fn the_parts_of_a_view_make_up_all_of_it() {
    let provider = provider(annotated(3)).await;
    let proxy = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    for _ in 0..3 {
        agent.work(&"a line of the log\n".repeat(20)).await;
    }
    let sum = async |name: &str| {
        let name = format!("plimsoll_context_{name}");
        metric(&proxy, &name)
            .await
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .unwrap()
    };
    let mut all = 0.0;
    for part in ["system", "tools", "user", "calls", "results", "own"] {
        let tokens = sum(&format!("part_tokens_sum{{part=\"{part}\"}}")).await;
        assert!(tokens > 0.0, "{part}");
        all += tokens;
    }
    let sent = sum("tokens_sum{stage=\"out\"}").await;
    // Each part of each turn is rounded for itself.
    assert!((all - sent).abs() <= 9.0, "{all} of {sent}");
    // What the client itself sent is known exactly.
    let tools = sum("part_tokens_sum{part=\"tools\"}").await;
    let brought = sum("part_tokens_sum{part=\"own\"}").await;
    assert!(
        brought > tools,
        "schemas and guidance are longer than one tool"
    );
}

#[tokio::test]
async fn a_prologue_that_the_client_changes_is_counted_and_ours_is_not() {
    // The guidance comes in with the second turn.
    let upstream = Lenient::saying(Reply::text("done")).await;
    let proxy = Proxy::with(upstream.addr, |config| config.budget.guide_at = 1.0).await;
    let changes = async || total(&proxy, "plimsoll_prologue_changes_total").await;
    let mut agent = Agent::new(&proxy, false).told("go");
    agent.turn().await;
    agent.user("go on");
    agent = agent.with("x-plimsoll-guide", "now");
    agent.turn().await;
    agent.user("go on");
    agent.turn().await;
    assert_eq!(changes().await, 0.0, "nothing was changed by the client");
    let mut tools = tools();
    tools[0]["function"]["description"] = "runs a command".into();
    agent = agent.field("tools", tools);
    agent.user("go on");
    agent.turn().await;
    assert_eq!(changes().await, 1.0, "a tool");
    agent.history[0]["content"] = "be brief; it is noon".into();
    agent.user("go on");
    agent.turn().await;
    agent.user("go on");
    agent.turn().await;
    assert_eq!(changes().await, 2.0, "system text, once");
}
