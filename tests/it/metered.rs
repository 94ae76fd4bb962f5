//! A provider that counts in all three dialects, by the formula that the proxy's sizes follow and with
//! a cache that holds every prefix; and a session of forty turns that is played against it. Asserts
//! only that answers are whole.

use std::sync::{Arc, LazyLock, Mutex};

use plimsoll_scripted::cache::PrefixCache;
use plimsoll_scripted::size::{CountFn, Outline, Sizer};
use plimsoll_scripted::{Form, reads};
use plimsoll_tokens::{Counter, Encoding};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::dialects::{Agent, Call, Dialect, Provider, Reply, Sent, Told, call, says};
use super::support::Proxy;
use super::vendor::Vendor;

pub const TURNS: usize = 40;
pub const CEILING: u32 = 6_000;

/// Counts as the proxy does.
pub fn counter() -> CountFn {
    static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::load);
    let counter = &*COUNTER;
    Arc::new(move |text: &str| counter.count(Encoding::O200k, text) as usize)
}

/// What a provider counted of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    pub input: usize,
    pub cached: usize,
    /// Those of the input that were written to the cache for an hour.
    pub written: usize,
    pub output: usize,
    pub requests: usize,
}

/// Counts requests and what is said to them.
struct Meter {
    count: CountFn,
    sizer: Sizer,
    cache: Mutex<PrefixCache>,
    vendor: Mutex<Vendor>,
    sum: Mutex<Counted>,
}

impl Meter {
    fn read(&self, number: usize, sent: &Sent, reply: &Reply) -> Told {
        let texts: Vec<String> = messages(sent).iter().map(Value::to_string).collect();
        let tools = tools(sent);
        let outline = Outline {
            messages: texts.iter().map(String::as_str).collect(),
            tools: tools.as_deref(),
        };
        let own = tools.as_deref().map_or(0, |tools| self.sizer.text(tools));
        let texts = outline.messages.iter();
        let input = own + texts.map(|text| self.sizer.message(text)).sum::<usize>();
        let cached = self.cache.lock().unwrap().admit("k", &outline, &self.sizer);
        let Reply::Says(text, calls) = reply else {
            panic!("a reply that says nothing");
        };
        let calls = calls.iter();
        let calls = calls.map(|one| (self.count)(&one.name) + (self.count)(&one.arguments));
        let output = (self.count)(text) + calls.sum::<usize>();
        let mut sum = self.sum.lock().unwrap();
        sum.input += input;
        // A marker at the request's own level stands behind all of it.
        let marked = sent.body["cache_control"]["ttl"] == "1h";
        let written = if marked { input - cached } else { 0 };
        sum.cached += cached;
        sum.written += written;
        sum.output += output;
        sum.requests += 1;
        let (asked, said) = self.vendor.lock().unwrap().said(number, sent);
        Told {
            input,
            cached,
            written,
            output,
            asked,
            said,
        }
    }
}

/// The tools of a request, as they stand.
fn tools(sent: &Sent) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Body {
        tools: Option<Box<RawValue>>,
    }
    let body: Body = serde_json::from_slice(&sent.bytes).unwrap();
    body.tools.map(|tools| tools.get().to_owned())
}

/// The messages of a request as Chat Completions would have them. A number in each id and text says which answer it
/// is of.
fn messages(sent: &Sent) -> Vec<Value> {
    let form = match sent.dialect() {
        Dialect::Chat => Form::Chat,
        Dialect::Messages => Form::Messages,
        Dialect::Responses => Form::Responses,
    };
    let answer = |key: &str| {
        // Its agent numbers no items.
        let n = number(key).filter(|_| !key.contains('_'))?;
        Some(n - usize::from(key.starts_with('b')))
    };
    let all = reads::messages(form, &sent.body, &answer);
    all.into_iter()
        .map(|message| unmarked(message.said))
        .collect()
}

/// A message without markers of the cache, which are no part of a prefix: a text that has one is a block.
fn unmarked(mut said: Value) -> Value {
    let Some(blocks) = said["content"].as_array_mut() else {
        return said;
    };
    for block in blocks.iter_mut().filter_map(Value::as_object_mut) {
        block.remove("cache_control");
    }
    if let [block] = &blocks[..]
        && block["type"] == "text"
    {
        said["content"] = block["text"].clone();
    }
    said
}

/// The first number in a text.
fn number(text: &str) -> Option<usize> {
    let digits = text.split(|letter: char| !letter.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).next()
}

/// A provider, and what it has counted so far.
pub struct Metered {
    pub host: Provider,
    meter: Arc<Meter>,
}

impl Metered {
    /// One whose model marks its work where it is asked to, or never.
    pub async fn start(marks: bool) -> Self {
        let meter = Arc::new(Meter {
            count: counter(),
            sizer: Sizer::new(counter()),
            cache: Mutex::default(),
            vendor: Mutex::default(),
            sum: Mutex::default(),
        });
        let own = Arc::clone(&meter);
        let host = Provider::telling(move |number, sent| {
            let asked = marks && sent.tools().iter().any(|tool| tool == "delimiter");
            let reply = model(&sent.key(), asked);
            let told = own.read(number, sent, &reply);
            (reply, told)
        })
        .await;
        Self { host, meter }
    }

    /// Drops all that is cached.
    pub fn forget(&self) {
        *self.meter.cache.lock().unwrap() = PrefixCache::default();
    }

    pub fn counted(&self) -> Counted {
        *self.meter.sum.lock().unwrap()
    }
}

fn bash(turn: usize) -> Call {
    let id = format!("b{turn}");
    call(&id, "bash", format!(r#"{{"c":"run {id}"}}"#))
}

fn marks(id: String, arguments: Value) -> Call {
    call(&id, "delimiter", arguments)
}

/// What the model says. Hidden calls come beside visible ones, and alone at every sixth.
fn model(key: &str, asked: bool) -> Reply {
    let place = |prefix| {
        key.strip_prefix(prefix)
            .and_then(|n| n.parse::<usize>().ok())
    };
    if let Some(turn) = place("s") {
        return says("", vec![bash(turn + 1)]);
    }
    let turn = place("b").unwrap_or(0);
    let next = bash(turn + 1);
    let start = |id: &str| {
        let name = format!("part-{id}{turn}");
        marks(
            format!("{id}{turn}"),
            json!({"action": "start", "name": name, "type": "expl"}),
        )
    };
    let end = || {
        marks(
            format!("e{turn}"),
            json!({"action": "end", "description": "what was read here"}),
        )
    };
    let calls = match (asked, turn % 6) {
        (true, 0) => vec![start("s")],
        (true, 3) => vec![end(), start("o"), next],
        (true, 5) => vec![end(), next],
        _ => vec![next],
    };
    let speaks = turn.is_multiple_of(2) && !turn.is_multiple_of(6);
    says(
        &if speaks {
            format!("Step {turn} is next.")
        } else {
            String::new()
        },
        calls,
    )
}

/// What a call brings.
pub fn result(id: &str) -> String {
    let lines =
        (0..24).map(|line| format!("{id} line {line}: src/part_{id}/file_{line}.rs has it\n"));
    lines.collect()
}

pub fn agent(proxy: &Proxy, dialect: Dialect, stream: bool) -> Agent {
    let mut agent = Agent::new(proxy, dialect, stream, "metered");
    agent.user("go");
    agent
}

/// Plays so many turns of the session.
pub async fn play(agent: &mut Agent, turns: usize) {
    for _ in 0..turns {
        let answer = agent.ask().await;
        assert!(
            answer.status == 200 && answer.whole,
            "{} {}",
            answer.status,
            answer.bytes
        );
        agent.keep(&answer);
        for call in &answer.calls {
            agent.result(&call.id, &result(&call.id));
        }
    }
}

/// An agent without a proxy, and the provider that it asks.
pub async fn alone(dialect: Dialect, stream: bool) -> (Metered, Agent) {
    let metered = Metered::start(false).await;
    let proxy = Proxy::before(metered.host.addr).await;
    let mut agent = agent(&proxy, dialect, stream);
    let path = agent.url.find("/v1/").unwrap();
    agent.url = format!("http://{}{}", metered.host.addr, &agent.url[path..]);
    (metered, agent)
}

/// The same session without a proxy.
pub async fn direct(dialect: Dialect, stream: bool) -> Counted {
    let (metered, mut agent) = alone(dialect, stream).await;
    play(&mut agent, TURNS).await;
    metered.counted()
}

#[track_caller]
pub fn value(shown: &str, name: &str) -> f64 {
    let line = shown
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts"
)]
fn tokens(shown: &str, side: &str, kind: &str) -> usize {
    let name = format!("plimsoll_ledger_tokens_total{{side=\"{side}\",type=\"{kind}\"}}");
    value(shown, &name) as usize
}

/// What the ledger says of a side.
pub fn side(shown: &str, side: &str, requests: usize) -> Counted {
    Counted {
        input: tokens(shown, side, "input"),
        cached: tokens(shown, side, "cache_read"),
        // What a provider does not report is worked out from prices, and compared by whoever has it reported.
        written: 0,
        output: tokens(shown, side, "output"),
        requests,
    }
}
