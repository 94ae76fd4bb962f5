//! What operators look at, asked of a real Prometheus: every panel of the dashboard over a scripted
//! hour, and every rule with its fault and without one. The figures are a real proxy's. Where there
//! is no Prometheus it says so and passes; in CI that is a failure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::hour::Hour;
use super::support::{client, soon};

/// What Prometheus puts beside a scraped series' own labels.
const TARGET: &str = r#"instance="plimsoll:9187",job="plimsoll""#;
const HOUR: u64 = 3_600;

pub fn deployed(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("deploy").join(name)
}

pub fn text(name: &str) -> String {
    fs::read_to_string(deployed(name)).unwrap()
}

/// Whether a program of Prometheus' is on the path. CI has to have it. Elsewhere than on Linux the
/// proxy knows too little of its process for all panels.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    let found = found && cfg!(target_os = "linux");
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(found || !ci, "{program} is not installed; .ci/run does it");
    if !found {
        eprintln!("skipped: there is no {program} here; Debian's package is `prometheus`");
    }
    found
}

/// Runs a program to its end, which has to be a good one.
#[track_caller]
pub fn run(program: &str, arguments: &[&Path]) {
    let ended = Command::new(program).args(arguments).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(ended.status.success(), "{arguments:?}\n{said}");
}

/// Series and their values, as they were scraped at one time.
pub type Scrape = BTreeMap<String, String>;

/// What `/metrics` showed, as Prometheus keeps it.
fn scrape(shown: &str) -> Scrape {
    let lines = shown.lines().filter(|line| !line.starts_with('#'));
    let mut series: Scrape = lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let named = match name.strip_suffix('}') {
                Some(labelled) => format!("{labelled},{TARGET}}}"),
                None => format!("{name}{{{TARGET}}}"),
            };
            (named, value.to_owned())
        })
        .collect();
    series.insert(format!("up{{{TARGET}}}"), "1".to_owned());
    series
}

/// Scrapes of a proxy that works, and of what happens to it after that.
pub struct Scrapes {
    pub calm: Vec<Scrape>,
    pub eventful: Vec<Scrape>,
}

pub async fn scrapes() -> Scrapes {
    let hour = Hour::begin().await;
    let mut shown = vec![hour.shown().await];
    let mut look = async |hour: &Hour| shown.push(hour.shown().await);
    for stream in [false, true] {
        hour.work(stream, &mut look).await;
    }
    let calm = std::mem::take(&mut shown);
    let mut look = async |hour: &Hour| shown.push(hour.shown().await);
    let agent = hour.work(true, &mut look).await;
    hour.events(agent, &mut look).await;
    Scrapes {
        calm: calm.iter().map(|shown| scrape(shown)).collect(),
        eventful: shown.iter().map(|shown| scrape(shown)).collect(),
    }
}

/// `steps` scrapes, so that those there are fill the time evenly.
pub fn spread(scrapes: &[Scrape], steps: usize) -> impl Iterator<Item = &Scrape> {
    (0..steps).map(move |step| &scrapes[step * scrapes.len() / steps])
}

/// The address that a Prometheus says it listens on. The rest of its log is read and dropped, so
/// that it never waits for a reader.
fn listening(log: ChildStderr) -> SocketAddr {
    let mut lines = BufReader::new(log).lines().map_while(Result::ok);
    let mut said = Vec::new();
    let address = lines.by_ref().find_map(|line| {
        let is_bound = line.contains("\"Listening on\"");
        let address = line.rsplit_once("address=").filter(|_| is_bound);
        let address = address.and_then(|(_, address)| address.trim().parse().ok());
        said.push(line);
        address
    });
    std::thread::spawn(move || lines.for_each(drop));
    address.unwrap_or_else(|| panic!("Prometheus never listened:\n{}", said.join("\n")))
}

/// A Prometheus over data that it is given. It ends when it is dropped.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Prometheus {
    /// One whose data are these scrapes, `interval` seconds apart, the last of them at `end`.
    async fn with(scrapes: &[&Scrape], interval: u64, end: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (samples, data) = (
            directory.path().join("samples"),
            directory.path().join("data"),
        );
        let mut exposition = String::new();
        for (scrape, back) in scrapes.iter().zip((0..scrapes.len() as u64).rev()) {
            // Never when a panel asks, and never quite on time: as scrapes are.
            let (second, late) = (end - back * interval - 3, 400 + back * 37 % 200);
            let time = format!("{second}.{late}");
            for (name, value) in *scrape {
                writeln!(exposition, "{name} {value} {time}").unwrap();
            }
        }
        exposition.push_str("# EOF\n");
        fs::write(&samples, exposition).unwrap();
        let words = ["tsdb", "create-blocks-from", "openmetrics"].map(Path::new);
        run("promtool", &[words[0], words[1], words[2], &samples, &data]);
        let config = directory.path().join("prometheus.yml");
        fs::write(&config, "global: {}\n").unwrap();
        // It picks its port itself: one that was free a moment ago may be another test's by now.
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = child.stderr.take().unwrap();
        let at = tokio::task::spawn_blocking(|| listening(log))
            .await
            .unwrap();
        let running = Self {
            child,
            at,
            _directory: directory,
        };
        let ready = format!("http://{at}/-/ready");
        let is_ready = async || {
            let answer = client().get(&ready).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        soon(async {
            while !is_ready().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        running
    }

    /// How many numbers an expression gives over the hour before `end`.
    async fn numbers(&self, expression: &str, interval: u64, end: u64) -> usize {
        let (from, step) = ((end - HOUR).to_string(), interval.to_string());
        let end = end.to_string();
        let form = [
            ("query", expression),
            ("start", &from),
            ("end", &end),
            ("step", &step),
        ];
        let mut url =
            reqwest::Url::parse(&format!("http://{}/api/v1/query_range", self.at)).unwrap();
        url.query_pairs_mut().extend_pairs(form);
        let answer = soon(client().get(url).send()).await.unwrap();
        let answer = soon(answer.bytes()).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let series = answer["data"]["result"].as_array().unwrap().iter();
        let values = series.flat_map(|series| series["values"].as_array().unwrap());
        let number = |pair: &&Value| {
            let value: f64 = pair[1].as_str().unwrap().parse().unwrap();
            value.is_finite()
        };
        values.filter(number).count()
    }
}

/// The word behind a key of a file that is no JSON.
#[track_caller]
fn setting(file: &str, key: &str) -> String {
    let text = text(file);
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
    line.unwrap_or_else(|| panic!("no {key} in {file}"))
        .trim()
        .to_owned()
}

/// The seconds between two scrapes, which Grafana has to know, too.
fn interval() -> u64 {
    let scraped = setting("prometheus/prometheus.yml", "scrape_interval:");
    let told = setting(
        "grafana/provisioning/datasources/prometheus.yaml",
        "timeInterval:",
    );
    assert_eq!(told, scraped);
    scraped.strip_suffix('s').unwrap().parse().unwrap()
}

/// Prometheus writes the bounds of buckets in its own way from version 3 on, `1.0` for `1`: whoever
/// names one has to take both.
#[track_caller]
pub fn bounds(expression: &str) {
    assert!(!expression.contains("le=\""), "{expression}");
}

/// The choices of a dashboard's variables: everything, and the one instance that there is.
const CHOICES: [[&str; 2]; 2] = [[".+", ".+"], ["plimsoll", "plimsoll:9187"]];

/// A panel's expression as Grafana sends it for the default range.
fn filled(expression: &str, interval: u64, [job, instance]: [&str; 2]) -> String {
    let filled = expression
        .replace("$job", job)
        .replace("$instance", instance)
        .replace("$__rate_interval", &format!("{}s", 4 * interval))
        .replace("$__interval", &format!("{interval}s"))
        .replace("$__range", &format!("{HOUR}s"));
    assert!(!filled.contains('$'), "{expression}");
    bounds(expression);
    filled
}

/// The panels' expressions, with the panels' titles.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&text("grafana/dashboards/plimsoll.json")).unwrap();
    assert_eq!(dashboard["time"]["from"], "now-1h");
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let panels = panels.filter(|panel| panel["type"] != "row");
    let asks = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} asks nothing");
        let expressions = targets
            .iter()
            .map(|target| target["expr"].as_str().unwrap());
        expressions.map(move |expression| (title.clone(), expression.to_owned()))
    });
    asks.collect()
}

#[tokio::test]
async fn every_panel_shows_something_after_an_hour() {
    if !(has("prometheus") && has("promtool")) {
        return;
    }
    let interval = interval();
    let Scrapes { calm, eventful } = scrapes().await;
    let all = [calm, eventful].concat();
    let steps = usize::try_from(HOUR / interval).unwrap() + 1;
    let hour: Vec<&Scrape> = spread(&all, steps).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let end = now.as_secs() / 60 * 60;
    let prometheus = Prometheus::with(&hour, interval, end).await;
    let mut empty = Vec::new();
    for (title, expression) in panels() {
        for choice in CHOICES {
            let asked = filled(&expression, interval, choice);
            if prometheus.numbers(&asked, interval, end).await == 0 {
                empty.push(format!("{title}: {asked}"));
            }
        }
    }
    assert!(empty.is_empty(), "\n{}", empty.join("\n"));
}
