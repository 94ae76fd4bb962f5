//! One played day has one set of figures: what `run` says at its end, what its console and its metrics said before it,
//! and what `replay` says of the same session later. Owns the two commands. Never looks into the proxy.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Stdio};

use plimsoll_core::policy::Ladder;
use plimsoll_scripted::Provider;
use serde_json::Value;
use tempfile::TempDir;

use super::console_figures::{Case, MODEL, cases, near, play, provider, read};
use super::metered::{self, Counted};
use super::process::plimsoll;
use super::run::made;
use super::support::{client, soon};

/// The steps in tokens in which the provider caches.
const STEP: usize = 128;

/// What an agent's terminal has when `run` ends.
struct Run {
    child: Child,
    said: BufReader<ChildStderr>,
    directory: TempDir,
}

impl Run {
    /// Starts `run` with an agent that says where it was sent to, and ends when it is told.
    fn start(upstream: &Provider, ceiling: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script =
            "echo $OPENAI_BASE_URL >at.new; mv at.new at; while [ ! -e done ]; do sleep 0.02; done";
        let mut child = plimsoll(directory.path())
            .env("XDG_STATE_HOME", directory.path())
            .env("PLIMSOLL__DELIMITER__ENABLED", "false")
            .env("PLIMSOLL__RECALL__ENABLED", "false")
            .args(["run", "--upstream", &upstream.base_url])
            .args(["--budget", &ceiling.to_string()])
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self {
            child,
            said,
            directory,
        }
    }

    /// The address of its console and its metrics.
    fn admin(&mut self) -> String {
        let mut line = String::new();
        while !line.contains("console at ") {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0);
        }
        line.trim().rsplit(' ').next().unwrap().to_owned()
    }

    /// Where the agent was sent to.
    async fn base(&self) -> String {
        let at = self.directory.path().join("at");
        made(&at).await;
        let said = std::fs::read_to_string(at).unwrap();
        said.trim().strip_suffix("/v1").unwrap().to_owned()
    }

    /// Ends the agent, and gives what is said then.
    fn ended(mut self) -> String {
        std::fs::write(self.directory.path().join("done"), "").unwrap();
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success());
        said
    }
}

/// What a proxy says of all that went through it.
struct Told {
    metrics: BTreeMap<&'static str, Counted>,
    saved: f64,
    overview: Value,
    spent: Value,
}

impl Told {
    async fn read(admin: &str) -> Self {
        let page = async |path: &str| {
            let answer = client().get(format!("{admin}{path}")).send();
            soon(answer).await.unwrap().text().await.unwrap()
        };
        let json = async |path: &str| -> Value { serde_json::from_str(&page(path).await).unwrap() };
        let metrics = page("/metrics").await;
        let sides = ["sent", "client"].map(|side| (side, metered::side(&metrics, side, 0)));
        Self {
            metrics: sides.into(),
            saved: metered::value(&metrics, "plimsoll_saved_usd{part=\"net\"}"),
            overview: json("/api/overview").await,
            spent: json("/api/spend?bounds=0").await["total"].take(),
        }
    }
}

/// What `replay` says of a session with these policies: the JSON of each.
fn replayed(session: &str, ceiling: u32) -> [Value; 2] {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("session.jsonl"), session).unwrap();
    let output = plimsoll(directory.path())
        .args(["replay", "session.jsonl", "--json", "figures.json"])
        .args(["--policies", &format!("none,{}", Ladder::default())])
        .args(["--annotate", "none", "--prices", MODEL])
        .args(["--budget", &ceiling.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let figures = std::fs::read(directory.path().join("figures.json")).unwrap();
    let mut figures: Value = serde_json::from_slice(&figures).unwrap();
    [0, 1].map(|at| figures["policies"][at].take())
}

/// What `run` says at its end, what its console and its metrics say before it, and what `replay` says of the same
/// session later, is one.
#[tokio::test]
async fn run_and_replay_say_of_a_session_what_console_and_metrics_say() {
    for Case { path, ceiling } in cases() {
        let (recording, trace, file) = read(&path);
        let provider = provider(&recording, STEP).await;
        let mut run = Run::start(&provider, ceiling);
        play(&run.base().await, &recording, &trace).await;
        let admin = run.admin();
        let told = Told::read(&admin).await;
        let said = run.ended();
        let [none, ours] = replayed(&file, ceiling);
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
        let read = |of: &Value| number(of, "cached_share") * number(of, "tokens_sent");
        let requests = number(&ours, "requests");
        let (sent, whole) = (number(&ours, "tokens_sent"), number(&none, "tokens_sent"));
        let saved = number(&none, "usd") - number(&ours, "usd");

        let tokens = format!(
            "plimsoll: {requests} requests; {whole} tokens asked for, {sent} sent in {} passes, {:.0} % of them",
            ours["passes"],
            100.0 * number(&ours, "cached_share"),
        );
        assert!(said.contains(&tokens), "{tokens}: {said}");
        let money = said
            .lines()
            .find_map(|line| line.split_once(" paid in place of "))
            .unwrap();
        let amount = |text: &str| -> f64 {
            let text = text.rsplit_once('$').unwrap().1;
            text.split([' ', ':']).next().unwrap().parse().unwrap()
        };
        let (client, net) = money.1.split_once(": ").unwrap();
        let net = net.split_once(" saved").unwrap().0;
        let (paid, client, net) = (amount(money.0), amount(client), amount(net));
        for (found, expect, what) in [(net, saved, "saved"), (client - paid, saved, "paid")] {
            // Of dollars three digits are said, of cents four.
            assert!(
                (found - expect).abs() < 0.0011,
                "{what}: {found}, not {expect}: {said}"
            );
        }

        for (found, expect, what) in [
            (told.metrics["sent"].input as f64, sent, "sent"),
            (told.metrics["sent"].cached as f64, read(&ours), "cached"),
            (told.metrics["client"].input as f64, whole, "whole"),
            (number(&told.overview, "prompt"), sent, "overview"),
            (number(&told.spent, "sent"), sent, "day"),
        ] {
            near(found, expect, what);
        }
        // Where a request's prefix ends with a step, nothing tells that the provider reads in steps: then the whole
        // request is taken to be read to its last token.
        let most = STEP as f64 * number(&ours, "passes");
        let apart = told.metrics["client"].cached as f64 - read(&none);
        assert!((0.0..=most).contains(&apart), "{apart} tokens");
        let net = number(&told.overview["saved"]["usd"], "net");
        near(net, told.saved, "overview");
        assert!((saved - net).abs() <= 1.25e-6 * most, "{net}, not {saved}");
        let day = number(&told.spent, "saved");
        assert!((day - net).abs() <= 1e-6 * net, "{day}, not {net}");
    }
}
