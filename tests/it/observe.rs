//! The mode `observe`: the client's bytes go up, and what the session would have come to as a managed
//! one is told, pass by pass, beside what it did come to. Both are held to a provider's own counts: the
//! one to those of this session, the other to those of the same session managed.

use std::time::Duration;

use plimsoll::cli::closing;
use plimsoll_core::turn::Mode;
use serde_json::{Value, json};

use super::console::got;
use super::dialects::{DIALECTS, Dialect};
use super::metered::{CEILING, Counted, Metered, TURNS, agent, direct, play, side, value};
use super::support::{Proxy, client, soon};

async fn proxy(metered: &Metered, mode: Mode, guide_at: f64) -> Proxy {
    Proxy::with(metered.host.addr, |config| {
        config.budget.ceiling = CEILING;
        config.budget.guide_at = guide_at;
        config.budget.mode = mode;
    })
    .await
}

/// The same session, managed: what the provider counted, and the metrics.
async fn managed(dialect: Dialect, stream: bool, guide_at: f64) -> (Counted, String) {
    let metered = Metered::start(false).await;
    let proxy = proxy(&metered, Mode::Manage, guide_at).await;
    play(&mut agent(&proxy, dialect, stream), TURNS).await;
    (metered.counted(), proxy.app.metrics_text())
}

#[track_caller]
fn close(found: f64, expect: f64) {
    assert!((found - expect).abs() < 1e-9, "{found}, not {expect}");
}

#[track_caller]
fn near(found: f64, expect: f64, share: f64) {
    let off = (found - expect).abs();
    assert!(off <= expect.abs() * share, "{found}, not {expect}");
}

const PARTS: [&str; 4] = ["net", "evicted", "rewritten", "hidden"];

fn saved(shown: &str, series: &str, part: &str) -> f64 {
    value(shown, &format!("plimsoll_{series}{{part=\"{part}\"}}"))
}

#[tokio::test]
async fn what_is_projected_is_what_managing_comes_to() {
    for dialect in DIALECTS {
        for (stream, guide_at) in [(false, 0.0), (true, 0.5)] {
            let case = format!("{dialect:?} stream {stream}");
            let metered = Metered::start(false).await;
            let proxy = proxy(&metered, Mode::Observe, guide_at).await;
            let mut agent = agent(&proxy, dialect, stream);
            for _ in 0..TURNS {
                let sent = agent.body();
                play(&mut agent, 1).await;
                assert_eq!(metered.host.newest().bytes, sent.as_bytes(), "{case}");
            }
            let shown = proxy.app.metrics_text();
            let counted = metered.counted();
            assert_eq!(counted, direct(dialect, stream).await, "{case}");
            assert_eq!(side(&shown, "sent", TURNS), counted, "{case}");
            assert_eq!(side(&shown, "client", TURNS), counted, "{case}");
            let (would, other) = managed(dialect, stream, guide_at).await;
            assert!(would.input < counted.input / 2, "{case}: {would:?}");
            let projected = side(&shown, "projected", would.requests);
            // The users' turns that Messages needs between two answers, whose results are gone, are
            // made when a view is, and not counted before: nine tokens each.
            let exact = dialect != Dialect::Messages;
            if exact {
                assert_eq!(projected, would, "{case}");
            } else {
                assert_eq!(projected.output, would.output, "{case}");
                near(projected.input as f64, would.input as f64, 0.002);
                near(projected.cached as f64, would.cached as f64, 0.002);
            }
            for part in PARTS {
                close(saved(&shown, "saved_usd", part), 0.0);
                let would = saved(&other, "saved_usd", part);
                let told = saved(&shown, "projected_saved_usd", part);
                if exact {
                    close(told, would);
                } else {
                    near(told, would, 0.01);
                }
                assert!(would != 0.0, "{case}: {part}");
            }
            let turns = TURNS as f64;
            close(
                value(&shown, "plimsoll_projections_total{outcome=\"whole\"}"),
                turns,
            );
            let told = closing::lines(&shown).join("\n");
            assert!(told.contains("would have"), "{told}");
            assert!(!told.contains(" saved ("), "{told}");
        }
    }
}

/// The console tells a watched session by what was sent, and says beside it what managing would have come to.
#[tokio::test]
async fn the_console_shows_what_was_sent_and_what_would_have_been() {
    let metered = Metered::start(false).await;
    let proxy = proxy(&metered, Mode::Observe, 0.5).await;
    play(&mut agent(&proxy, Dialect::Chat, true), TURNS).await;
    let shown = proxy.app.metrics_text();
    let counted = metered.counted();
    let list = got(&proxy, "sessions?spark=1").await;
    let row = &list["sessions"][0];
    assert_eq!(row["mode"], "observe");
    assert_eq!(row["saved"], Value::Null, "nothing was managed");
    assert_eq!(row["prompt"], counted.input);
    assert_eq!(row["cached"], counted.cached);
    let (input, view) = (row["in"].as_u64().unwrap(), row["out"].as_u64().unwrap());
    assert!(
        view <= u64::from(CEILING) && view < input,
        "{view} of {input}"
    );
    assert_eq!(row["zone"], "red", "what was sent is over budget");
    assert_eq!(row["spark"].as_array().unwrap().last(), Some(&row["in"]));
    let money = &row["projected"]["usd"];
    let part = |name: &str| money[name].as_f64().unwrap();
    close(part("net"), saved(&shown, "projected_saved_usd", "net"));
    close(part("whole") - part("paid"), part("net"));
    assert!(part("net") != 0.0 && row["passes"] != 0, "{row}");
    let over = got(&proxy, "overview").await;
    assert_eq!(
        (&over["saved"]["usd"], &over["saved"]["turns"]),
        (&Value::Null, &json!(0))
    );
    assert_eq!(
        (&over["turns"], &over["over"], &over["unpriced"]),
        (&json!(0), &json!(0), &json!(0))
    );
    let observed = &over["observed"];
    assert_eq!(
        (&observed["sessions"], &observed["turns"]),
        (&json!(1), &json!(TURNS))
    );
    close(
        observed["projected"]["usd"]["net"].as_f64().unwrap(),
        part("net"),
    );
    assert_eq!(over["prompt"], counted.input);
    assert_eq!(over["whole_prompt"], counted.input);
    // A managed session tells nothing of the kind.
    let metered = Metered::start(false).await;
    let proxy = self::proxy(&metered, Mode::Manage, 0.5).await;
    play(&mut agent(&proxy, Dialect::Chat, true), TURNS).await;
    let list = got(&proxy, "sessions").await;
    let row = &list["sessions"][0];
    assert_eq!(
        (&row["mode"], &row["projected"]),
        (&json!("manage"), &Value::Null)
    );
    assert!(row["saved"]["usd"]["net"].is_number());
    assert_eq!(got(&proxy, "overview").await["observed"]["sessions"], 0);
}

/// Behind a restart nothing is known of the session: the projection begins anew, and says so.
#[tokio::test]
async fn behind_a_restart_the_projection_begins_anew() {
    let metered = Metered::start(false).await;
    let first = proxy(&metered, Mode::Observe, 0.5).await;
    let mut agent = agent(&first, Dialect::Chat, true);
    play(&mut agent, TURNS / 2).await;
    let before = side(&first.app.metrics_text(), "projected", 0);
    let second = proxy(&metered, Mode::Observe, 0.5).await;
    agent.at(&second);
    play(&mut agent, TURNS / 2).await;
    let shown = second.app.metrics_text();
    let outcome = |name: &str| {
        value(
            &shown,
            &format!("plimsoll_projections_total{{outcome=\"{name}\"}}"),
        )
    };
    close(outcome("anew"), 1.0);
    close(outcome("whole"), TURNS as f64 / 2.0 - 1.0);
    let after = side(&shown, "projected", 0);
    // Each of the views keeps to the ceiling, however long the history that it was begun with.
    assert!(after.input <= TURNS / 2 * CEILING as usize, "{after:?}");
    assert!(
        before.input > 0 && after.cached > after.input / 2,
        "{after:?}"
    );
    let whole = side(&first.app.metrics_text(), "sent", 0).input + side(&shown, "sent", 0).input;
    assert_eq!(whole, metered.counted().input);
}

/// An answer that can't be read, and a client that leaves: bytes pass, and what is not known is said.
#[tokio::test]
async fn what_can_not_be_read_costs_the_projection_alone() {
    let upstream = super::support::Lenient::start(|number, _| {
        let mut response = axum::response::Response::new(axum::body::Body::from("\u{1}no json"));
        let headers = response.headers_mut();
        if number == 0 {
            headers.insert("content-encoding", "br".parse().unwrap());
        }
        response
    })
    .await;
    let proxy = Proxy::with(upstream.addr, |config| config.budget.mode = Mode::Observe).await;
    for _ in 0..2 {
        let agent = agent(&proxy, Dialect::Chat, true);
        let request = client()
            .post(&agent.url)
            .header("content-type", "application/json");
        let answer = soon(request.body(agent.body()).send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers().get("x-plimsoll-fail-open"), None);
        assert_eq!(soon(answer.bytes()).await.unwrap(), "\u{1}no json");
    }
    let shown = proxy.app.metrics_text();
    close(
        value(&shown, "plimsoll_projections_total{outcome=\"unread\"}"),
        2.0,
    );
    close(
        value(&shown, "plimsoll_fail_open_total{stage=\"intercept\"}"),
        0.0,
    );
}

#[tokio::test]
async fn a_client_that_leaves_is_counted_and_the_session_goes_on() {
    let begun = "data: {\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\
                 \"delta\":{\"role\":\"assistant\",\"content\":\"half\"},\"finish_reason\":null}]}\n\n";
    let upstream = super::support::Lenient::start(move |_, _| {
        let pieces = futures_util::stream::once(async move { Ok::<_, std::io::Error>(begun) });
        let never = futures_util::stream::pending();
        let pieces = futures_util::StreamExt::chain(pieces, never);
        axum::response::Response::builder()
            .header("content-type", "text/event-stream")
            .body(axum::body::Body::from_stream(pieces))
            .unwrap()
    })
    .await;
    let proxy = Proxy::with(upstream.addr, |config| config.budget.mode = Mode::Observe).await;
    let agent = agent(&proxy, Dialect::Chat, true);
    let request = client()
        .post(&agent.url)
        .header("content-type", "application/json");
    let mut answer = soon(request.body(agent.body()).send()).await.unwrap();
    let heard = soon(answer.chunk()).await.unwrap().unwrap();
    assert_eq!(heard, begun);
    drop(answer);
    soon(async {
        let aborted = "plimsoll_stream_aborts_total{phase=\"body\",side=\"client\"} 1";
        while !proxy.app.metrics_text().contains(aborted) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let shown = proxy.app.metrics_text();
    close(
        value(&shown, "plimsoll_projections_total{outcome=\"whole\"}"),
        1.0,
    );
    assert!(side(&shown, "sent", 0).input > 0, "{shown}");
}
