//! Agents that keep a model's calls as text and send results as user messages, as smolagents' ToolCallingAgent does:
//! their sessions are known by the calls that the text names, so marks last from one pass to the next.

use serde_json::json;

use super::dialects::{Agent, Call, DIALECTS, Provider, call, says};
use super::recall::{CEILING, output};
use super::support::Proxy;

/// How many turns a session has: the last half of them under its ceiling by passes alone.
const TURNS: usize = 60;

/// Calls as smolagents writes them.
fn written(calls: &[Call]) -> String {
    let one = |call: &Call| {
        format!(
            "{{'id': '{}', 'type': 'function', 'function': {{'name': '{}', 'arguments': {{'c': None}}}}}}",
            call.id, call.name
        )
    };
    let calls: Vec<String> = calls.iter().map(one).collect();
    format!("Calling tools:\n[{}]", calls.join(", "))
}

/// Plays a session, and returns how many requests did not go on from the one before them, and how many met their budget.
async fn played(mut agent: Agent, provider: &Provider) -> (usize, usize) {
    let mut met = 0;
    agent.user("New task:\ngo");
    for turn in 0..TURNS {
        let answer = agent.ask().await;
        assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
        met += usize::from(answer.header("x-plimsoll-budget") == "met");
        // What the model said stands beside its calls, in one text.
        let said = [answer.text.as_str(), &written(&answer.calls)].join("\n");
        let said = json!({"role": "assistant", "content": said.trim()});
        agent.history.push(said);
        let result: Vec<String> = output(&format!("r{turn}"))
            .lines()
            .take(20)
            .map(str::to_owned)
            .collect();
        agent.user(&format!("Observation:\n{}", result.join("\n")));
    }
    let sent = provider.sent();
    let two = sent.windows(2);
    let broken = two.filter(|two| !two[1].texts().starts_with(&two[0].texts()));
    (broken.count(), met)
}

#[tokio::test]
async fn a_session_whose_calls_come_back_as_text_is_known_from_pass_to_pass() {
    for dialect in DIALECTS {
        for (stream, profile) in [(false, "smolagents"), (true, "smolagents"), (false, "")] {
            let provider = Provider::start(|number, _| {
                let text = if number % 3 == 0 { "I look." } else { "" };
                let id = format!("call_{number}_x");
                says(text, vec![call(&id, "bash", json!({"c": null}))])
            })
            .await;
            let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = CEILING).await;
            let mut agent = Agent::new(&proxy, dialect, stream, "s");
            if !profile.is_empty() {
                agent
                    .headers
                    .push(("x-plimsoll-profile", profile.to_owned()));
            }
            let (broken, met) = played(agent, &provider).await;
            let case = format!("{dialect:?} {stream} {profile}: {broken} broken, {met} met");
            match profile {
                // Nothing may go, so hardly anything changes but for the guidance.
                "" => assert!(broken <= 3 && met < TURNS, "{case}"),
                _ => assert!((2..=9).contains(&broken) && met == TURNS, "{case}"),
            }
        }
    }
}
