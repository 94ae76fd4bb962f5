//! The ledger against the provider: what it says was sent is what the provider received, to the token,
//! and what it says the client's own requests would have been is what a second session without a proxy
//! was. Header, log and the closing lines of `run` say the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::cli::closing;
use plimsoll_model::Usage;
use plimsoll_scripted::size::{CountFn, Sizer};
use plimsoll_scripted::{Call, Options, Provider, Reply, Script};
use plimsoll_tokens::{self, Models};
use serde_json::json;

use super::agent::{Agent, bash, explore, last_key, learned};
use super::dialects::DIALECTS;
use super::metered::{self, CEILING, Counted, Metered, TURNS, counter, result, side, value};
use super::process::Process;
use super::support::{Proxy, client, soon};

const CHAT: &str = "/v1/chat/completions";
const MODEL: &str = "gpt-5";

/// What the model says at a place. Hidden calls come beside visible ones, and alone at every sixth.
fn said(turn: usize, hidden: bool) -> Reply {
    let next = bash(&format!("b{}", turn + 1));
    let start = explore(&format!("s{turn}"), &format!("part-{turn}"));
    let end = learned(&format!("e{turn}"), "what was read in this part");
    let calls = match (hidden, turn % 6) {
        (true, 0) => vec![start],
        (true, 3) => vec![end, start_over(turn), next],
        (true, 5) => vec![end, next],
        _ => vec![next],
    };
    let reply = Reply::calls(calls);
    if turn.is_multiple_of(2) && !turn.is_multiple_of(6) {
        return reply.saying(format!("Step {turn} is next."));
    }
    reply
}

fn start_over(turn: usize) -> Call {
    explore(&format!("o{turn}"), &format!("more-{turn}"))
}

/// The model, and the tokens that it wrote.
fn model(hidden: bool, count: &CountFn) -> (Script, Arc<AtomicUsize>) {
    let (count, wrote) = (Arc::clone(count), Arc::new(AtomicUsize::new(0)));
    let sum = Arc::clone(&wrote);
    let script = Script::ask(move |view| {
        let key = last_key(view.messages());
        let place = |prefix| {
            key.strip_prefix(prefix)
                .and_then(|n| n.parse::<usize>().ok())
        };
        let asked = hidden && view.asks("delimiter");
        let reply = match (place("b"), place("s")) {
            (Some(turn), _) => said(turn, asked),
            (_, Some(turn)) => Reply::calls(vec![bash(&format!("b{}", turn + 1))]),
            _ => said(0, asked),
        };
        let calls = reply.calls.iter();
        let calls = calls.map(|call| count(&call.name) + count(&call.arguments));
        sum.fetch_add(count(&reply.text) + calls.sum::<usize>(), Ordering::SeqCst);
        reply
    });
    (script, wrote)
}

async fn provider(hidden: bool, factor: f64) -> (Provider, Arc<AtomicUsize>) {
    let count = counter();
    let (script, wrote) = model(hidden, &count);
    let options = Options {
        count,
        usage_factor: factor,
        ..Options::default()
    };
    (Provider::start(script, options).await.unwrap(), wrote)
}

fn counted(provider: &Provider, wrote: &AtomicUsize) -> Counted {
    let sizer = Sizer::new(counter());
    let chats = provider.chats();
    let input = chats.iter().map(|one| sizer.request(&one.body)).sum();
    Counted {
        input,
        cached: chats.iter().map(|one| one.cached).sum(),
        written: 0,
        output: wrote.load(Ordering::SeqCst),
        requests: chats.len(),
    }
}

/// Plays the session; returns the size of the view that each turn's header tells.
async fn play(agent: &mut Agent) -> Vec<usize> {
    let mut told = Vec::new();
    for _ in 0..TURNS {
        let answer = agent.turn().await;
        told.extend(answer.header("x-plimsoll-context-tokens").parse::<usize>());
        for call in &answer.heard.calls {
            agent.result(&call.id, &result(&call.id));
        }
    }
    told
}

fn agent(proxy: &Proxy, stream: bool) -> Agent {
    Agent::new(proxy, stream)
        .field("model", json!(MODEL))
        .field(
            "stream_options",
            if stream {
                json!({"include_usage": true})
            } else {
                json!(null)
            },
        )
        .told("go")
}

/// The same session without a proxy.
async fn direct(stream: bool) -> Counted {
    let (host, wrote) = provider(false, 1.0).await;
    let proxy = Proxy::before(host.address).await;
    let mut direct = agent(&proxy, stream);
    direct.url = format!("{}/chat/completions", host.base_url);
    play(&mut direct).await;
    counted(&host, &wrote)
}

/// What so many tokens cost.
fn usd(counted: &Counted) -> f64 {
    let usage = Usage {
        prompt: counted.input as u64,
        cached: counted.cached as u64,
        completion: counted.output as u64,
        ..Usage::default()
    };
    let prices = Models::builtin().family(MODEL).prices;
    plimsoll_tokens::cost(&usage, &prices).total() * prices.usd_per_mtok.unwrap() / 1e6
}

#[track_caller]
fn close(found: f64, expect: f64) {
    assert!((found - expect).abs() < 1e-9, "{found}, not {expect}");
}

/// Passes and hidden hops happened, each estimate was exact, and money follows from the counts.
#[track_caller]
fn agrees(shown: &str, sent: &Counted, whole: &Counted) {
    let requests = sent.requests;
    assert!(
        value(shown, "plimsoll_passes_total{trigger=\"budget\"}") >= 3.0,
        "{shown}"
    );
    assert!(requests >= TURNS + 4, "{requests}");
    let ratio = |end: &str| value(shown, &format!("plimsoll_token_estimate_ratio_{end}"));
    close(ratio("sum"), requests as f64);
    close(ratio("count"), requests as f64);
    let (paid, own) = (usd(sent), usd(whole));
    close(
        value(shown, "plimsoll_ledger_usd_total{side=\"sent\"}"),
        paid,
    );
    close(
        value(shown, "plimsoll_ledger_usd_total{side=\"client\"}"),
        own,
    );
    let part = |part: &str| value(shown, &format!("plimsoll_saved_usd{{part=\"{part}\"}}"));
    close(part("net"), own - paid);
    close(
        part("evicted") - part("rewritten") - part("hidden"),
        own - paid,
    );
    for name in ["evicted", "rewritten", "hidden"] {
        assert!(part(name) > 0.0, "{name}");
    }
    let kinds = ["input", "cache_read", "cache_write", "output"];
    let kinds = kinds.map(|kind| {
        value(
            shown,
            &format!("plimsoll_cost_usd_total{{kind=\"{kind}\"}}"),
        )
    });
    close(kinds.iter().sum(), paid);
    let told = closing::lines(shown).join("\n");
    let word = if own < paid { "lost" } else { "saved" };
    for expect in [
        format!("{} tokens asked for, {} sent", whole.input, sent.input),
        format!(
            "${paid:.4} paid in place of ${own:.4}: ${:.4} {word}",
            (own - paid).abs()
        ),
    ] {
        assert!(told.contains(&expect), "{expect:?} not in {told}");
    }
}

#[tokio::test]
async fn both_sides_of_the_ledger_are_the_providers_own_counts() {
    for (stream, guide_at) in [(false, 0.0), (true, 0.0), (true, 0.5)] {
        let (host, wrote) = provider(true, 1.0).await;
        let proxy = Proxy::with(host.address, |config| {
            config.budget.ceiling = CEILING;
            config.budget.guide_at = guide_at;
        })
        .await;
        let mut agent = agent(&proxy, stream);
        let told = play(&mut agent).await;
        let shown = proxy.app.metrics_text();
        let (sent, whole) = (counted(&host, &wrote), direct(stream).await);
        assert_eq!(whole.requests, TURNS);
        assert_eq!(side(&shown, "sent", sent.requests), sent, "stream {stream}");
        assert_eq!(side(&shown, "client", TURNS), whole, "stream {stream}");
        agrees(&shown, &sent, &whole);
        // The header tells the size of one of the turn's requests.
        let sizes: Vec<usize> = host.chats().iter().map(|one| one.size).collect();
        assert_eq!(told.len(), TURNS);
        assert!(
            told.iter().all(|told| sizes.contains(told)),
            "{told:?} {sizes:?}"
        );
    }
}

/// The same in all dialects, by a provider that counts in each.
#[tokio::test]
async fn both_sides_are_told_to_the_token_in_every_dialect() {
    for dialect in DIALECTS {
        for (stream, guide_at) in [(false, 0.0), (true, 0.0), (true, 0.5)] {
            let metered = Metered::start(true).await;
            let proxy = Proxy::with(metered.host.addr, |config| {
                config.budget.ceiling = CEILING;
                config.budget.guide_at = guide_at;
            })
            .await;
            metered::play(&mut metered::agent(&proxy, dialect, stream), TURNS).await;
            let shown = proxy.app.metrics_text();
            let (sent, whole) = (metered.counted(), metered::direct(dialect, stream).await);
            let case = format!("{dialect:?} stream {stream}");
            assert!(
                sent.requests >= TURNS + 4 && whole.requests == TURNS,
                "{case}"
            );
            assert_eq!(side(&shown, "sent", sent.requests), sent, "{case}");
            assert_eq!(side(&shown, "client", TURNS), whole, "{case}");
        }
    }
}

/// Where one model has a price and another none, dollars are of the one, and what they leave out is
/// said beside them.
#[tokio::test]
async fn of_prices_that_are_known_in_part_each_part_is_told() {
    let (host, _wrote) = provider(false, 1.0).await;
    let proxy = Proxy::before(host.address).await;
    let mut agent = agent(&proxy, true);
    for model in [MODEL, "house-1"] {
        agent = agent.field("model", json!(model));
        for _ in 0..3 {
            for call in agent.turn().await.heard.calls {
                agent.result(&call.id, &result(&call.id));
            }
        }
    }
    let shown = proxy.app.metrics_text();
    let unit = Models::builtin().family(MODEL).prices.usd_per_mtok.unwrap() / 1e6;
    for side in ["sent", "client"] {
        let of = |series: &str| {
            value(
                &shown,
                &format!("plimsoll_ledger_{series}_total{{side=\"{side}\"}}"),
            )
        };
        let (all, left_out) = (of("units"), of("unpriced_units"));
        assert!(
            left_out > 0.0 && left_out < all,
            "{side}: {left_out} of {all}"
        );
        close(of("usd"), (all - left_out) * unit);
    }
    let told = closing::lines(&shown);
    let last = told.last().unwrap();
    assert!(
        last.contains("the price of some models is not known"),
        "{told:?}"
    );
}

/// A provider that reports no prompts: then both sides are what the model's cache would hold.
#[tokio::test]
async fn what_is_not_reported_is_counted() {
    let (host, wrote) = provider(true, 0.0).await;
    let proxy = Proxy::with(host.address, |config| config.budget.ceiling = CEILING).await;
    play(&mut agent(&proxy, true)).await;
    let shown = proxy.app.metrics_text();
    for (name, counted) in [
        ("sent", counted(&host, &wrote)),
        ("client", direct(true).await),
    ] {
        let found = side(&shown, name, counted.requests);
        assert_eq!(
            (found.input, found.output),
            (counted.input, counted.output),
            "{name}"
        );
        // Its cache holds prefixes in steps, where the scripted one holds all of them.
        let less = counted.cached - found.cached;
        assert!(less <= 128 * counted.requests, "{name}: {less}");
    }
}

/// Each turn's line says what the turn saved, and all of them what the metrics say.
#[tokio::test]
async fn the_lines_of_the_log_add_up_to_the_metrics() {
    let (host, _wrote) = provider(true, 1.0).await;
    let directory = tempfile::tempdir().unwrap();
    let ceiling = CEILING.to_string();
    let process = Process::start(
        directory.path(),
        host.address,
        &["--budget", &ceiling],
        &[
            ("PLIMSOLL__LOG__FORMAT", "json"),
            ("PLIMSOLL__LOG__LEVEL", "info"),
        ],
    );
    let proxy = Proxy::before(host.address).await;
    let mut agent = agent(&proxy, true);
    agent.url = process.url(CHAT);
    play(&mut agent).await;
    let shown = soon(client().get(process.admin_url("/metrics")).send())
        .await
        .unwrap();
    let shown = soon(shown.text()).await.unwrap();
    process.signal("-TERM");
    let (_, log) = process.end().await;
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let turns: Vec<_> = lines.filter(|line| line["message"] == "turn").collect();
    assert_eq!(turns.len(), TURNS);
    let sum = |field: &str| {
        turns
            .iter()
            .map(|turn| turn[field].as_f64().unwrap())
            .sum::<f64>()
    };
    close(
        sum("saved_usd"),
        value(&shown, "plimsoll_saved_usd{part=\"net\"}"),
    );
    close(
        sum("evicted_usd"),
        value(&shown, "plimsoll_saved_usd{part=\"evicted\"}"),
    );
    close(
        sum("cost_usd"),
        value(&shown, "plimsoll_ledger_usd_total{side=\"sent\"}"),
    );
    assert!(sum("saved_usd") != 0.0);
}
