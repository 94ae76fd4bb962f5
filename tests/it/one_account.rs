//! Three hundred turns in three dialects, with caches that are kept for an hour, pauses, a rewind, titles and a session that
//! is only watched: what the provider charges is what the metrics, the log and the console say, to the token and to a tenth
//! of a cent.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll::cli::closing;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use super::console::got;
use super::dialects::{Agent, Dialect};
use super::metered::{self, CEILING, Counted, Metered, value};
use super::support::Proxy;

const MINUTE: u64 = 60_000;

static NOW: AtomicU64 = AtomicU64::new(1_000_000_000_000);

/// Dollars for a million tokens: plain, read from the cache, written for an hour, and of output.
type Prices = [f64; 4];

const CLAUDE: (&str, Prices) = ("claude-sonnet-4-5", [3.0, 0.3, 6.0, 15.0]);
const GPT: (&str, Prices) = ("gpt-5", [1.25, 0.125, 1.25, 10.0]);

fn charged(counted: &Counted, prices: Prices) -> f64 {
    let plain = counted.input - counted.cached - counted.written;
    let parts = [plain, counted.cached, counted.written, counted.output];
    let costs = parts
        .iter()
        .zip(prices)
        .map(|(tokens, price)| *tokens as f64 * price / 1e6);
    costs.sum()
}

/// Keeps what is logged on this thread.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Logged {
    /// The lines of turns.
    fn turns(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let fields = lines.map(|line| line["fields"].clone());
        fields
            .filter(|fields| fields["message"] == "turn")
            .collect()
    }
}

fn sum(turns: &[Value], name: &str) -> f64 {
    turns.iter().filter_map(|turn| turn[name].as_f64()).sum()
}

/// What the console says of all that was sent: prompt tokens, those from the cache, and dollars.
async fn console(proxy: &Proxy) -> (u64, u64, f64) {
    let overview = got(proxy, "overview").await;
    let beside = &overview["process"]["beside"];
    let number = |value: &Value| value.as_u64().unwrap();
    let usd = |account: &Value, part: &str| account["usd"][part].as_f64().unwrap_or(0.0);
    let listed = got(proxy, "sessions?limit=100").await;
    let (mut prompt, mut cached) = (number(&beside["prompt"]), number(&beside["cached"]));
    let mut paid = usd(&beside["account"], "paid");
    for row in listed["sessions"].as_array().unwrap() {
        prompt += number(&row["prompt"]);
        cached += number(&row["cached"]);
        // What is only watched was sent whole.
        paid += usd(&row["saved"], "paid") + usd(&row["projected"], "whole");
    }
    let total = |name: &str| number(&overview[name]) + number(&beside[name]);
    assert_eq!((total("prompt"), total("cached")), (prompt, cached));
    (prompt, cached, paid)
}

/// A session of ninety turns: a part, pauses of so many minutes with a part behind each, and a rewind to the first.
async fn play(agent: &mut Agent, metered: &Metered, pauses: &[u64; 5]) {
    metered::play(agent, 20).await;
    let fork = agent.history.clone();
    for pause in pauses {
        NOW.fetch_add(pause * MINUTE, Ordering::SeqCst);
        // What is to be kept for a day is.
        if *pause > 60 && agent.dialect != Dialect::Responses {
            metered.forget();
        }
        metered::play(agent, 10).await;
    }
    agent.history = fork;
    agent.user("b400");
    metered::play(agent, 20).await;
}

/// A request that comes once and offers no tools.
async fn title(agent: &Agent) {
    let mut title = agent.clone();
    title.tools.clear();
    title.history.clear();
    title.user("Write a title for this conversation.");
    let answer = title.ask().await;
    assert!(answer.status == 200 && answer.whole, "{}", answer.bytes);
}

/// Plays everything, and compares all accounts of it.
async fn agree(pauses: &[u64; 5]) {
    let logged = Logged::default();
    // While there is one subscriber alone, whatever thread meets an event first decides whether it is wanted, and the
    // threads of other tests have none.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::fmt().json().with_writer(logged.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let (claude, gpt) = (Metered::start(true).await, Metered::start(true).await);
    let mut paid = 0.0;
    let (mut told, mut counted) = ((0, 0, 0.0), Counted::default());
    // A proxy has one upstream.
    for (metered, (model, prices), dialects) in [
        (&claude, CLAUDE, &[Dialect::Messages, Dialect::Chat][..]),
        (&gpt, GPT, &[Dialect::Responses][..]),
    ] {
        let proxy = Proxy::wired(
            metered.host.addr,
            |config| config.budget.ceiling = CEILING,
            |app| app.clock = || NOW.fetch_add(1, Ordering::SeqCst),
        )
        .await;
        for (at, dialect) in dialects.iter().enumerate() {
            let mut agent = metered::agent(&proxy, *dialect, at == 0);
            agent.session = format!("{model}-{dialect:?}");
            agent.fields.push(("model", json!(model)));
            agent.fields.push(match dialect {
                Dialect::Responses => ("prompt_cache_retention", json!("24h")),
                Dialect::Chat | Dialect::Messages => {
                    ("cache_control", json!({"type": "ephemeral", "ttl": "1h"}))
                }
            });
            title(&agent).await;
            play(&mut agent, metered, pauses).await;
            let mut watched = agent.clone();
            watched.session = format!("{model}-{dialect:?}-watched");
            watched
                .headers
                .push(("x-plimsoll-mode", "observe".to_owned()));
            watched.history.clear();
            watched.user("go");
            metered::play(&mut watched, 10).await;
        }
        let one = console(&proxy).await;
        told = (told.0 + one.0, told.1 + one.1, told.2 + one.2);
        let account = metered.counted();
        paid += charged(&account, prices);
        counted.input += account.input;
        counted.cached += account.cached;
        counted.written += account.written;
        counted.output += account.output;
        let text = proxy.app.metrics_text();
        let metric = |name: &str| value(&text, name);
        let tokens = |kind: &str| {
            let name = format!("plimsoll_ledger_tokens_total{{side=\"sent\",type=\"{kind}\"}}");
            metric(&name) as usize
        };
        assert_eq!(tokens("input"), account.input, "{model}");
        assert_eq!(tokens("cache_read"), account.cached, "{model}");
        assert_eq!(tokens("output"), account.output, "{model}");
        if model == CLAUDE.0 {
            assert_eq!(tokens("cache_write"), account.written, "{model}");
        }
        let sent = metric("plimsoll_ledger_usd_total{side=\"sent\"}");
        near(sent, charged(&account, prices), model);
        near(closing_paid(&text), charged(&account, prices), model);
        causes(&text, pauses.contains(&70) && model == CLAUDE.0);
    }
    let turns = logged.turns();
    assert_eq!(turns.len(), 3 * (1 + 90 + 10));
    near(sum(&turns, "cost_usd"), paid, "the log");
    near(told.2, paid, "the console");
    assert_eq!(
        (told.0, told.1),
        (counted.input as u64, counted.cached as u64)
    );
}

/// What the closing lines of `run` say was paid, for managed and for watched requests.
fn closing_paid(metrics: &str) -> f64 {
    let told = closing::lines(metrics).join("\n");
    let parts = told
        .split(" paid")
        .filter_map(|before| before.rsplit_once('$'));
    let amounts = parts.filter_map(|(_, amount)| amount.parse::<f64>().ok());
    amounts.sum()
}

/// To a tenth of a cent.
#[track_caller]
fn near(found: f64, expect: f64, what: &str) {
    assert!(
        (found - expect).abs() < 0.001,
        "{what}: {found}, not {expect}"
    );
}

/// The agent changes nothing but its history, by a rewind.
fn causes(shown: &str, pauses: bool) {
    for cause in [
        "client_system",
        "client_tools",
        "model",
        "effort",
        "provider",
    ] {
        let name = format!("plimsoll_cache_missed_tokens_total{{cause=\"{cause}\"}}");
        assert_eq!(value(shown, &name), 0.0, "{cause}");
    }
    let expired = value(
        shown,
        "plimsoll_cache_missed_tokens_total{cause=\"expired\"}",
    );
    assert_eq!(expired > 0.0, pauses);
}

#[tokio::test]
async fn all_accounts_of_three_hundred_turns_are_the_providers() {
    agree(&[0; 5]).await;
    agree(&[4, 6, 20, 50, 70]).await;
}
