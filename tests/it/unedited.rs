//! A session in which nothing is evicted: nothing is saved in it, nothing is rewritten, and the client's own requests
//! are what they were without a proxy. Providers cache every prefix, some of it or none, and the client may change
//! its tools.

use serde_json::json;

use super::dialects::{Agent, DIALECTS, Dialect};
use super::metered::{self, Counted, Metered, side, value};
use super::support::Proxy;

const TURNS: usize = 24;

/// The turn before which the client changes its tools.
const CHANGED: usize = 14;

/// A session with a model by this name, in which the client may change its tools.
async fn play(agent: &mut Agent, model: &str, changes: bool) {
    agent.fields.push(("model", json!(model)));
    metered::play(agent, CHANGED).await;
    if changes {
        agent.tools.push("read");
    }
    metered::play(agent, TURNS - CHANGED).await;
}

/// The same session without a proxy.
async fn direct(dialect: Dialect, stream: bool, model: &str, changes: bool) -> Counted {
    let (metered, mut agent) = metered::alone(dialect, stream).await;
    play(&mut agent, model, changes).await;
    metered.counted()
}

#[tokio::test]
async fn nothing_is_saved_where_nothing_is_evicted() {
    for dialect in DIALECTS {
        for (model, changes, marks) in [
            ("claude-sonnet-4-5", false, false),
            ("claude-sonnet-4-5", false, true),
            ("claude-sonnet-4-5", true, true),
            ("gpt-5", false, true),
            ("gpt-5", true, false),
            ("deepseek-chat", true, true),
        ] {
            let stream = changes;
            let metered = Metered::start(marks).await;
            let proxy = Proxy::with(metered.host.addr, |config| {
                config.budget.ceiling = 100_000;
                config.budget.guide_at = 0.0;
            })
            .await;
            let mut agent = metered::agent(&proxy, dialect, stream);
            play(&mut agent, model, changes).await;
            let shown = proxy.app.metrics_text();
            let case = format!("{dialect:?} {model} changes {changes} marks {marks}");
            let part = |name: &str| {
                let name = format!("plimsoll_saved_units{{part=\"{name}\"}}");
                value(&shown, &name)
            };
            for name in ["evicted", "rewritten", "unexplained"] {
                assert!(part(name).abs() < 1e-6, "{case}: {name} {}", part(name));
            }
            assert!(part("hidden") > 0.0, "{case}");
            let sent = metered.counted();
            assert_eq!(side(&shown, "sent", sent.requests), sent, "{case}");
            // Claude caches what is marked, and only ours are marked in Messages.
            let marked = dialect == Dialect::Messages && model.starts_with("claude");
            assert_eq!(part("breakpoints") > 0.0, marked, "{case}");
            let whole = direct(dialect, stream, model, changes).await;
            if !marked {
                assert_eq!(side(&shown, "client", TURNS), whole, "{case}");
            }
        }
    }
}
