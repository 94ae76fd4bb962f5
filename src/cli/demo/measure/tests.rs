//! Tests of `measure`.

use plimsoll_scripted::{Heard, Options, Provider, Reply, Script};

use super::*;

const USER: &str = r#"{"role":"user","content":"find the anchor"}"#;

fn bytes() -> CountFn {
    std::sync::Arc::new(|text: &str| text.len())
}

fn body(messages: &[&str]) -> String {
    format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","))
}

/// What a provider notes of a request with these messages.
async fn received(bodies: &[String]) -> Vec<Received> {
    let options = Options {
        count: bytes(),
        ..Options::default()
    };
    let script = Script::ask(|_| Reply::text("aye"));
    let provider = Provider::start(script, options).await.unwrap();
    let http = crate::cli::health::client().unwrap();
    for body in bodies {
        let url = format!("{}/chat/completions", provider.base_url);
        let sent = http.post(url).body(body.clone()).send().await.unwrap();
        sent.bytes().await.unwrap();
    }
    provider.take()
}

/// A turn in which the agent said `body`, and the provider received `requests`.
fn play(
    meter: &mut DemoMeter,
    body: String,
    requests: &[Received],
    change: impl FnOnce(&mut TurnResult),
) {
    let mut told = TurnResult {
        body,
        heard: Heard {
            text: "aye".to_owned(),
            ..Heard::default()
        },
        exceeded: false,
        fail_open: None,
        overhead: None,
    };
    change(&mut told);
    let expected = Answer {
        text: "aye".to_owned(),
        ..Answer::default()
    };
    meter.turn(&TurnFacts {
        told: &told,
        received: requests,
        expected: &expected,
        hops: 1,
        output: 3,
    });
}

#[tokio::test]
async fn every_broken_promise_is_a_fault() {
    let asked = body(&[USER]);
    let good = received(std::slice::from_ref(&asked)).await;
    let other = received(&[body(&[r#"{"role":"user","content":"another"}"#])]).await;
    let refused = received(&[body(&[USER, r#"{"role":"tool","content":"orphan"}"#])]).await;
    let nothing = |_: &mut TurnResult| {};
    type Change = fn(&mut TurnResult);
    let table: [(&[Received], u32, Change, &[&str]); 8] = [
        (&good, 1_000, nothing, &[]),
        (
            &good,
            10,
            nothing,
            &["19 tokens passed the budget of 10 unreported"],
        ),
        (&good, 10, |told| told.exceeded = true, &[]),
        (&other, 1_000, nothing, &["user's messages were changed"]),
        (&refused, 1_000, nothing, &["the provider refused"]),
        (&[], 1_000, nothing, &["took 0 requests"]),
        (
            &good,
            1_000,
            |told| told.heard.text.clear(),
            &["heard something else"],
        ),
        (
            &good,
            1_000,
            |told| told.fail_open = Some("store".to_owned()),
            &["failed open at store"],
        ),
    ];
    for (requests, ceiling, change, expect) in table {
        let mut meter = DemoMeter::new(ceiling, Prices::default(), bytes());
        play(&mut meter, asked.clone(), requests, change);
        let faults = &meter.figures().faults;
        assert_eq!(faults.len(), expect.len(), "{faults:?}");
        for (fault, words) in faults.iter().zip(expect) {
            assert!(
                fault.starts_with("turn 1: ") && fault.contains(words),
                "{fault}"
            );
        }
    }
}

#[tokio::test]
async fn a_rewritten_prefix_is_a_pass_and_is_paid_for() {
    let answer = r#"{"role":"assistant","content":"aye"}"#;
    let stub = r#"{"role":"assistant","content":"."}"#;
    let bodies = [
        body(&[USER]),
        body(&[USER, answer, USER]),
        body(&[USER, stub, USER]),
    ];
    let requests = received(&bodies).await;
    let whole = [
        body(&[USER]),
        body(&[USER, answer, USER]),
        body(&[USER, answer, USER, USER]),
    ];
    let prices = Prices {
        usd_per_mtok: Some(1e6),
        ..Prices::default()
    };
    let mut meter = DemoMeter::new(1_000, prices, bytes());
    for (request, body) in requests.iter().zip(whole) {
        // The turn's users differ from the request's in the last: only sums are looked at.
        play(&mut meter, body, std::slice::from_ref(request), |_| {});
    }
    let figures = meter.figures();
    let passed: Vec<bool> = figures.samples.iter().map(|sample| sample.passed).collect();
    assert_eq!((passed, figures.breaks), (vec![false, false, true], 1));
    // 19 a user, 7 an answer, 5 a stub; the third request finds the first user cached only.
    let (sent, whole) = (figures.sent, figures.whole);
    assert_eq!((sent.input, sent.cached), (19 + 45 + 43, 19 + 19));
    assert_eq!((whole.input, whole.cached), (19 + 45 + 64, 19 + 45));
    let paid = |input: f64, cached: f64| input - cached + cached * 0.1 + 9.0 * 5.0;
    assert!((sent.usd - paid(107.0, 38.0)).abs() < 1e-9, "{sent:?}");
    assert!((whole.usd - paid(128.0, 64.0)).abs() < 1e-9, "{whole:?}");
}
