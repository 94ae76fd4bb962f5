//! Why a provider read anew what it had cached: each turn that does has one cause, which is what changed before it. Where
//! the client changes nothing it is a pass, the guidance, a pause, or the provider's own doing.

use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::turn::Mode;
use serde_json::{Value, json};

use super::console::got;
use super::dialects::{Agent, DIALECTS, Dialect};
use super::metered::{self, CEILING, Metered, value};
use super::support::Proxy;

const HOUR: u64 = 3_600_000;

static NOW: AtomicU64 = AtomicU64::new(1_000_000_000_000);

const CAUSES: [&str; 9] = [
    "pass",
    "guidance",
    "expired",
    "client_system",
    "client_tools",
    "client_history",
    "model",
    "effort",
    "provider",
];

/// The causes that were counted.
fn causes(proxy: &Proxy) -> Vec<&'static str> {
    let shown = proxy.app.metrics_text();
    let of = |cause: &&str| {
        let name = format!("plimsoll_cache_missed_tokens_total{{cause=\"{cause}\"}}");
        value(&shown, &name) > 0.0
    };
    CAUSES.into_iter().filter(of).collect()
}

/// What the console says of each turn that missed.
pub async fn told(proxy: &Proxy) -> Vec<Value> {
    let listed = got(proxy, "sessions").await;
    let name = listed["sessions"][0]["session"].as_str().unwrap();
    let turns = got(proxy, &format!("sessions/{name}/turns")).await;
    let missed = turns["columns"]["missed"].as_array().unwrap();
    missed
        .iter()
        .filter(|one| !one.is_null())
        .cloned()
        .collect()
}

pub fn system(agent: &mut Agent, dialect: Dialect, text: &str) {
    match dialect {
        Dialect::Chat => {
            agent.history.retain(|message| message["role"] != "system");
            agent
                .history
                .insert(0, json!({"role": "system", "content": text}));
        }
        Dialect::Responses => agent.fields.push(("instructions", json!(text))),
        Dialect::Messages => agent.fields.push(("system", json!(text))),
    }
}

#[tokio::test]
async fn the_cause_names_what_changed() {
    for (dialect, stream) in DIALECTS.into_iter().zip([true, false, true]) {
        for cause in CAUSES {
            missed(dialect, stream, Mode::Manage, cause).await;
        }
    }
}

#[tokio::test]
async fn so_it_does_where_the_client_is_only_watched() {
    for (dialect, stream) in DIALECTS.into_iter().zip([false, true, false]) {
        for cause in CAUSES {
            missed(dialect, stream, Mode::Observe, cause).await;
        }
    }
}

/// Plays a session in which a cache misses for this cause.
async fn missed(dialect: Dialect, stream: bool, mode: Mode, cause: &'static str) {
    // A proxy's clock is one for all, so sessions that let time pass take turns.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TURN.lock().await;
    let ours = ["pass", "guidance"].contains(&cause);
    // A pass needs a budget that is reached, and the guidance one that is half full.
    let (ceiling, guide_at) = match cause {
        "pass" => (CEILING, 0.0),
        "guidance" => (30_000, 0.1),
        _ => (100_000, 0.0),
    };
    let metered = Metered::start(cause == "guidance").await;
    let proxy = Proxy::wired(
        metered.host.addr,
        |config| {
            config.budget.ceiling = ceiling;
            config.budget.guide_at = guide_at;
            config.budget.mode = mode;
        },
        |app| app.clock = || NOW.fetch_add(1, Ordering::SeqCst),
    )
    .await;
    let mut agent = metered::agent(&proxy, dialect, stream);
    agent.fields.push(("model", json!("gpt-5")));
    system(&mut agent, dialect, "You are an agent.");
    metered::play(&mut agent, 8).await;
    if !ours {
        assert!(causes(&proxy).is_empty(), "{dialect:?} {cause}");
    }
    match cause {
        "expired" => {
            NOW.fetch_add(2 * HOUR, Ordering::SeqCst);
            metered.forget();
        }
        "client_system" => system(&mut agent, dialect, "You are another agent."),
        "client_tools" => agent.tools.push("read"),
        "client_history" => {
            let first = agent.history.iter_mut().find(|one| one["role"] == "user");
            first.unwrap()["content"] = json!("go on");
        }
        "model" => {
            agent.fields.push(("model", json!("gpt-5-mini")));
            metered.forget();
        }
        "effort" => {
            agent.fields.push(("tool_choice", json!({"type": "auto"})));
            metered.forget();
        }
        "provider" => metered.forget(),
        _ => {}
    }
    metered::play(&mut agent, 6).await;
    // What is only watched breaks nothing.
    let expect = if ours && mode == Mode::Observe {
        vec![]
    } else {
        vec![cause]
    };
    assert_eq!(causes(&proxy), expect, "{dialect:?} {mode:?}");
    let told = told(&proxy).await;
    let told = |name: &str| told.iter().map(|one| one[name].clone()).collect::<Vec<_>>();
    assert!(
        told("cause").iter().all(|told| told == cause),
        "{dialect:?}"
    );
    if cause == "client_history" {
        // The system text is the message before it.
        assert_eq!(told("message")[0], 1, "{dialect:?}");
    }
    if cause == "expired" {
        assert_eq!(told("idle_s")[0], 7_200, "{dialect:?}");
        assert_eq!(told("lifetime_s")[0], 3_600, "{dialect:?}");
    }
}
