//! What the console says was saved, needed later and held, on recorded sessions that are played live: it is
//! what the ledger says of them, and what the lab finds out when it plays the same sessions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use plimsoll::config::Config;
use plimsoll_core::policy::{Ladder, Policy};
use plimsoll_lab::{
    Annotate, Lab, Later, LaterNeed, Options, Outcome, Played, Pricing, Trace, trace,
};
use plimsoll_scripted::trace::{Answer, Recording};
use plimsoll_scripted::{Call, Options as ProviderOptions, Provider, Reply, Script};
use plimsoll_tokens::Models;
use serde_json::{Value, json};

use super::console::{got, posted_raw};
use super::metered::{self, counter};
use super::support::{Proxy, client, soon};

pub const MODEL: &str = "gpt-5";

/// A recorded session and the ceiling that it is played under.
pub struct Case {
    pub path: PathBuf,
    pub ceiling: u32,
}

/// The session of the demo, and some others where they are.
pub fn cases() -> Vec<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let traces = root.join("../shared/traces/sessions");
    let mut all = vec![(root.join("assets/demo/session.jsonl.zst"), 40_000)];
    for (name, ceiling) in [
        ("entire-cli-5fd287cac2", 9_000),
        ("oh-my-posh-139a05cee7", 12_000),
    ] {
        all.push((traces.join(format!("{name}.jsonl.zst")), ceiling));
    }
    all.retain(|(path, _)| path.exists());
    let case = |(path, ceiling)| Case { path, ceiling };
    all.into_iter().map(case).collect()
}

/// The message of an answer, as agents keep it.
fn kept(answer: &Answer) -> Value {
    let call = |call: &Call| {
        json!({"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}})
    };
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.calls.is_empty() {
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    message
}

/// A recorded session as a strict provider takes it, without its reasoning and its times; as a file too.
pub fn read(path: &Path) -> (Recording, Trace, String) {
    let bytes = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    let recording = Recording::parse(&String::from_utf8(bytes).unwrap()).unwrap();
    let tools = recording.tools.as_deref().unwrap_or("[]");
    let tools: Value = serde_json::from_str(tools).unwrap();
    let meta = json!({"_meta": {"id": recording.id, "model": MODEL, "tools": tools}});
    let mut lines = vec![meta.to_string()];
    for turn in &recording.turns {
        lines.extend(turn.before.iter().map(|message| message.raw.clone()));
        lines.push(kept(&turn.answer).to_string());
    }
    let trace = trace::parse("recorded", &lines.join("\n")).unwrap();
    (recording, trace, lines.join("\n"))
}

/// A provider that gives a recording's answers, and caches prefixes in such steps.
pub async fn provider(recording: &Recording, cache_step: usize) -> Provider {
    let turns = recording.turns.iter();
    let answers: Vec<Answer> = turns.map(|turn| turn.answer.clone()).collect();
    let script = Script::ask(move |view| {
        let turn: usize = view.header("x-test-turn").unwrap().parse().unwrap();
        let answer = &answers[turn];
        Reply {
            text: answer.text.clone(),
            calls: answer.calls.clone(),
            ..Reply::default()
        }
    });
    let options = ProviderOptions {
        count: counter(),
        cache_step,
        ..ProviderOptions::default()
    };
    Provider::start(script, options).await.unwrap()
}

/// Plays a session through the proxy at `base`, as an agent does that resends what it has; the session's id.
pub async fn play(base: &str, recording: &Recording, trace: &Trace) -> String {
    let mut session = String::new();
    let tools = trace.tools.as_deref().unwrap();
    let mut history: Vec<String> = Vec::new();
    for (at, turn) in recording.turns.iter().enumerate() {
        history.extend(turn.before.iter().map(|message| message.raw.clone()));
        let body = format!(
            r#"{{"model":"{MODEL}","tools":{tools},"messages":[{}]}}"#,
            history.join(",")
        );
        let request = client()
            .post(format!("{base}/v1/chat/completions"))
            .header("authorization", "Bearer k")
            .header("content-type", "application/json")
            .header("x-test-turn", at.to_string())
            .body(body);
        let response = soon(request.send()).await.unwrap();
        let status = response.status();
        let named = response.headers().get("x-plimsoll-session").cloned();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "turn {at}: {text}");
        session = named.unwrap().to_str().unwrap().to_owned();
        history.push(kept(&turn.answer).to_string());
    }
    session
}

/// A session that was played live.
struct Live {
    proxy: Proxy,
    session: String,
    _provider: Provider,
}

impl Live {
    async fn play(recording: &Recording, trace: &Trace, ceiling: u32) -> Self {
        let provider = provider(recording, 1).await;
        let proxy = Proxy::with(provider.address, |config: &mut Config| {
            config.budget.ceiling = ceiling;
            config.delimiter.enabled = false;
            config.recall.enabled = false;
        })
        .await;
        let session = play(&proxy.url(""), recording, trace).await;
        Self {
            proxy,
            session,
            _provider: provider,
        }
    }

    async fn of(&self, rest: &str) -> Value {
        got(&self.proxy, &format!("sessions/{}{rest}", self.session)).await
    }
}

/// The lab under the settings of the live session: nobody marks episodes, and the cache is that of the
/// scripted provider, which holds every prefix.
fn lab(ceiling: u32, ladder: Ladder) -> Lab {
    let family = Models::builtin().family(MODEL).clone();
    let pricing = Pricing {
        family,
        ..Pricing::default()
    };
    let options = Options {
        policies: vec![ladder],
        ceilings: vec![ceiling],
        annotate: Annotate::None,
        pricing,
        threads: 1,
        ..Options::default()
    };
    Lab::new(options).unwrap()
}

#[track_caller]
pub fn near(found: f64, expect: f64, what: &str) {
    let most = 1e-9 * expect.abs().max(1.0);
    assert!(
        (found - expect).abs() <= most,
        "{what}: {found}, not {expect}"
    );
}

fn column(columns: &Value, name: &str) -> Vec<u64> {
    let column = columns[name].as_array().unwrap().iter();
    column.map(|one| one.as_u64().unwrap()).collect()
}

/// What was saved, by turn, session and process, is what the lab finds out.
#[tokio::test]
async fn what_is_saved_is_what_the_ledger_and_the_lab_say() {
    for Case { path, ceiling } in cases() {
        let (recording, trace, _) = read(&path);
        let live = Live::play(&recording, &trace, ceiling).await;
        let lab_run = lab(ceiling, Ladder::default()).session(&trace).unwrap();
        let lab_none = lab(ceiling, Ladder::from(Policy::None))
            .session(&trace)
            .unwrap();
        let (run, none) = (&lab_run.policies[0].runs[0], lab_none.policies[0].outcome());
        let (series, outcome) = (&run.series, &run.outcome);
        assert!(outcome.passes > 1, "{outcome:?}");

        let turns = live.of("/turns").await;
        let columns = &turns["columns"];
        let clients: Vec<u64> = series.iter().map(|point| point.client).collect();
        let sent: Vec<u64> = series.iter().map(|point| point.sent).collect();
        assert_eq!(column(columns, "in"), clients);
        assert_eq!(column(columns, "out"), sent);
        let passed: Vec<u64> = series.iter().map(|point| u64::from(point.passed)).collect();
        assert_eq!(column(columns, "passes"), passed);
        let over = columns["over"].as_array().unwrap();
        let over = over.iter().filter(|over| **over == true).count();
        assert_eq!(over as u64, outcome.over);

        let whole = live.of("").await;
        for pass in whole["passes"].as_array().unwrap() {
            let turn = usize::try_from(pass["turn"].as_u64().unwrap()).unwrap();
            assert_eq!(pass["after"].as_u64(), Some(sent[turn - 1]), "{pass}");
        }
        let row = &whole["row"];
        assert_eq!(row["passes"].as_u64(), Some(outcome.passes));
        assert_eq!(row["prompt"].as_u64(), Some(outcome.sent));
        assert_eq!(row["cached"].as_u64(), Some(outcome.cached));
        let units = |part: &str| row["saved"]["units"][part].as_f64().unwrap();
        near(units("net"), none.cost - outcome.cost, "net");
        near(
            units("whole") - units("paid"),
            units("net"),
            "whole less paid",
        );
        near(
            units("not_sent") - units("rewrites") - units("hidden"),
            units("net"),
            "the parts",
        );
        // Nobody marked anything, so hidden tools cost nothing.
        near(units("hidden"), 0.0, "hidden");

        agrees_with_the_ledger(&live, &whole, (outcome, &none)).await;
    }
}

/// The overview, the row and the metrics of the process say the same of its only session.
async fn agrees_with_the_ledger(live: &Live, whole: &Value, (run, none): (&Outcome, &Outcome)) {
    let overview = got(&live.proxy, "overview").await;
    let metrics = format!("http://{}/metrics", live.proxy.admin);
    let metrics = soon(client().get(metrics).send()).await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for (field, name) in [
        ("net", "plimsoll_saved_usd{part=\"net\"}"),
        ("not_sent", "plimsoll_saved_usd{part=\"evicted\"}"),
        ("rewrites", "plimsoll_saved_usd{part=\"rewritten\"}"),
        ("hidden", "plimsoll_saved_usd{part=\"hidden\"}"),
        ("whole", "plimsoll_ledger_usd_total{side=\"client\"}"),
        ("paid", "plimsoll_ledger_usd_total{side=\"sent\"}"),
    ] {
        let told = metered::value(&metrics, name);
        near(
            whole["row"]["saved"]["usd"][field].as_f64().unwrap(),
            told,
            name,
        );
        near(
            overview["saved"]["usd"][field].as_f64().unwrap(),
            told,
            name,
        );
    }
    let spent = got(&live.proxy, "spend?bounds=0").await;
    for (field, name) in [
        ("saved", "plimsoll_saved_usd{part=\"net\"}"),
        ("whole", "plimsoll_ledger_usd_total{side=\"client\"}"),
        ("paid", "plimsoll_ledger_usd_total{side=\"sent\"}"),
    ] {
        let told = metered::value(&metrics, name);
        for sums in [&spent["total"], &spent["bars"][0], &spent["by"]["model"][0]] {
            let found = sums[field].as_f64().unwrap();
            // A row keeps the dollars of an hour in seven digits.
            assert!(
                (found - told).abs() <= 1e-6 * told.abs(),
                "{name}: {found}, not {told}"
            );
        }
    }
    let counted = |side: &str| metered::side(&metrics, side, 0);
    let (sent, client) = (counted("sent"), counted("client"));
    for (field, ledger, lab) in [
        ("prompt", sent.input, run.sent),
        ("cached", sent.cached, run.cached),
        ("whole_prompt", client.input, none.sent),
        ("whole_cached", client.cached, none.cached),
    ] {
        let told = overview[field].as_u64();
        assert_eq!((told, told), (Some(ledger as u64), Some(lab)), "{field}");
    }
}

/// How bad a need is, as the console orders them, and its word there.
fn rank(how: &Later) -> (u8, &'static str) {
    match how {
        Later::Held(_) => (0, "in view"),
        Later::Again => (1, "again"),
        Later::Missed { .. } => (2, "missed"),
    }
}

/// For each item the worst need of some requests, of equals the first.
fn worst(
    needs: &[LaterNeed],
    requests: RangeInclusive<usize>,
) -> BTreeMap<u64, (&'static str, u64, Option<String>)> {
    let mut found: BTreeMap<u64, &LaterNeed> = BTreeMap::new();
    for need in needs.iter().filter(|need| requests.contains(&need.request)) {
        let own = found.entry(need.item.0.into()).or_insert(need);
        if rank(&need.how).0 > rank(&own.how).0 {
            *own = need;
        }
    }
    let told = found.into_iter().map(|(item, need)| {
        let word = match &need.how {
            Later::Held(string) | Later::Missed { string, .. } => Some(string.clone()),
            Later::Again => None,
        };
        (item, (rank(&need.how).1, need.request as u64, word))
    });
    told.collect()
}

/// What was needed later, and whether the view had it, item by item, is what the lab finds out.
#[tokio::test]
async fn what_was_needed_later_is_what_the_lab_says() {
    let mut words = BTreeMap::new();
    for Case { path, ceiling } in cases() {
        let (recording, trace, _) = read(&path);
        let live = Live::play(&recording, &trace, ceiling).await;
        let needs = lab(ceiling, Ladder::default()).needed(&trace).unwrap();
        // The newest answer of a live session is seen with the request that brings it back.
        let last = recording.turns.len() - 1;
        let expect = worst(&needs, 0..=last);
        let page = live.of("/items?limit=5000").await;
        assert_eq!(
            (&page["needed"], &page["next"]),
            (&json!(true), &Value::Null)
        );
        let mut found = BTreeMap::new();
        for item in page["items"].as_array().unwrap() {
            let need = &item["needed"];
            if let Some(how) = need["how"].as_str() {
                let how = match how {
                    "read again" | "asked again" => "again",
                    "in view" => "in view",
                    "missed" => "missed",
                    other => panic!("{other}"),
                };
                *words.entry(how).or_insert(0) += 1;
                let word = need["word"].as_str().map(str::to_owned);
                let turn = need["turn"].as_u64().unwrap();
                found.insert(item["no"].as_u64().unwrap(), (how, turn, word));
            }
        }
        assert_eq!(found, expect, "{}", path.display());
        // A pass counts what it took and the view had not when it was needed after it.
        let whole = live.of("").await;
        for pass in whole["passes"].as_array().unwrap() {
            let detail = live.of(&format!("/passes/{}", pass["turn"])).await;
            let turn = usize::try_from(pass["turn"].as_u64().unwrap()).unwrap();
            let since = worst(&needs, turn..=last);
            for one in detail["moves"].as_array().unwrap() {
                let need = since.get(&one["no"].as_u64().unwrap());
                let expect = need.map_or(Value::Null, |(_, turn, _)| json!(turn));
                assert_eq!(one["needed"]["turn"], expect, "{pass}: {one}");
            }
            let moves = detail["moves"].as_array().unwrap().iter();
            let lost = moves.filter(|one| {
                let need = since.get(&one["no"].as_u64().unwrap());
                need.is_some_and(|(how, ..)| *how != "in view")
            });
            assert_eq!(pass["needed"].as_u64(), Some(lost.count() as u64), "{pass}");
        }
    }
    let all: Vec<&str> = words.keys().copied().collect();
    assert!(
        all.contains(&"in view") && all.contains(&"missed"),
        "{words:?}"
    );
}

/// What other lines would have come to is what the lab finds out of the same session.
#[tokio::test]
async fn what_if_is_what_the_lab_says() {
    let Case { path, ceiling } = cases().swap_remove(0);
    let (recording, trace, _) = read(&path);
    let live = Live::play(&recording, &trace, ceiling).await;
    let taus = [ceiling, ceiling * 2];
    let ask = json!({"budgets": taus, "policies": ["none", "cwl"]});
    let (status, lines) = posted_raw(
        &live.proxy,
        &format!("sessions/{}/whatif", live.session),
        &ask,
    )
    .await;
    assert_eq!(status, 200, "{lines}");
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let points: Vec<Value> = lines
        .filter(|line: &Value| line["budget"].is_u64())
        .collect();
    assert_eq!(points.len(), 4);
    // The newest answer has not come back yet, so nothing is known to have asked for it.
    let mut before = trace;
    before.messages.pop();
    before.recording.turns.pop();
    for point in points {
        let ladder: Ladder = point["policy"].as_str().unwrap().parse().unwrap();
        let options = Options {
            policies: vec![ladder],
            ceilings: vec![u32::try_from(point["budget"].as_u64().unwrap()).unwrap()],
            pricing: Pricing::named(MODEL).unwrap(),
            threads: 1,
            ..Options::default()
        };
        let played = Lab::new(options).unwrap().session(&before).unwrap();
        let outcome = played.policies.iter().map(Played::outcome).next().unwrap();
        for (field, expect) in [
            ("requests", outcome.requests + outcome.extra),
            ("peak", outcome.peak),
            ("passes", outcome.passes),
            ("over", outcome.over),
            ("again", outcome.refetches),
        ] {
            assert_eq!(point[field].as_u64(), Some(expect), "{field}: {point}");
        }
        for (field, expect) in [
            ("units", outcome.cost),
            ("cached", outcome.cached_share()),
            ("visible", outcome.visible.kept()),
            ("recoverable", outcome.recoverable.kept()),
        ] {
            near(point[field].as_f64().unwrap(), expect, field);
        }
    }
}
