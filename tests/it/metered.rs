//! A provider that counts in all three dialects, by the formula that the proxy's sizes follow and with
//! a cache that holds every prefix; and a session of forty turns that is played against it. Asserts
//! only that answers are whole.

use std::sync::{Arc, Mutex};

use plimsoll::tokens::{Counter, Encoding};
use plimsoll_scripted::cache::PrefixCache;
use plimsoll_scripted::size::{CountFn, Outline, Sizer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::dialects::{Agent, Call, Dialect, Provider, Reply, Sent, Told, call, says};
use super::support::Proxy;

pub const TURNS: usize = 40;
pub const CEILING: u32 = 6_000;

/// Counts as the proxy does.
pub fn counter() -> CountFn {
    let counter = Counter::load();
    Arc::new(move |text: &str| counter.count(Encoding::O200k, text) as usize)
}

/// What a provider counted of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    pub input: usize,
    pub cached: usize,
    pub output: usize,
    pub requests: usize,
}

/// Counts requests and what is said to them.
struct Meter {
    count: CountFn,
    sizer: Sizer,
    cache: Mutex<PrefixCache>,
    sum: Mutex<Counted>,
}

impl Meter {
    fn read(&self, sent: &Sent, reply: &Reply) -> Told {
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
        sum.cached += cached;
        sum.output += output;
        sum.requests += 1;
        Told {
            input,
            cached,
            output,
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

/// The messages of a request as Chat Completions would have them.
fn messages(sent: &Sent) -> Vec<Value> {
    let body = &sent.body;
    let list = |name: &str| body[name].as_array().cloned().unwrap_or_default();
    let told = body.get("system").or(body.get("instructions"));
    let told = told.filter(|text| !text.is_null());
    let told = told.map(|text| json!({"role": "system", "content": text}));
    let mut all: Vec<Value> = told.into_iter().collect();
    match sent.dialect() {
        Dialect::Chat => return list("messages"),
        Dialect::Messages => {
            for message in list("messages") {
                match message["content"].as_array() {
                    Some(blocks) => blocks.iter().for_each(|one| put(&mut all, &message, one)),
                    None => all.push(message),
                }
            }
        }
        Dialect::Responses => list("input")
            .iter()
            .for_each(|item| put(&mut all, item, item)),
    }
    all
}

/// Puts a block of a message, or an item, behind those before it. What stands side by side may be of
/// several answers, because what stood between them is gone: each says by a number which one it is of.
fn put(all: &mut Vec<Value>, message: &Value, part: &Value) {
    let text = |name: &str| part[name].as_str().map(str::to_owned);
    let kind = text("type").unwrap_or_default();
    if kind == "function_call_output" || kind == "tool_result" {
        let content = if part["output"].is_null() {
            &part["content"]
        } else {
            &part["output"]
        };
        all.push(json!({"role": "tool", "content": content}));
    } else if kind == "function_call" || kind == "tool_use" {
        let id = text("call_id").or(text("id")).unwrap_or_default();
        let turn = number(&id).map(|n| n - usize::from(id.starts_with('b')));
        let turn = json!(turn);
        if all
            .last()
            .is_none_or(|last| last["turn"] != turn || turn.is_null())
        {
            all.push(json!({"role": "assistant", "turn": turn, "tool_calls": []}));
        }
        let arguments = text("arguments").unwrap_or_else(|| part["input"].to_string());
        let call = json!({"function": {"name": part["name"], "arguments": arguments}});
        let calls = all.last_mut().unwrap()["tool_calls"].as_array_mut();
        calls.unwrap().push(call);
    } else {
        let content = if part["content"].is_null() {
            json!([part])
        } else {
            part["content"].clone()
        };
        let mut own = json!({"role": message["role"], "content": content});
        if message["role"] == "assistant" {
            own["turn"] = json!(number(&content.to_string()));
            own["tool_calls"] = json!([]);
        }
        all.push(own);
    }
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
            sum: Mutex::default(),
        });
        let own = Arc::clone(&meter);
        let host = Provider::telling(move |_, sent| {
            let asked = marks && sent.tools().iter().any(|tool| tool == "delimiter");
            let reply = model(&sent.key(), asked);
            let told = own.read(sent, &reply);
            (reply, told)
        })
        .await;
        Self { host, meter }
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

/// The same session without a proxy.
pub async fn direct(dialect: Dialect, stream: bool) -> Counted {
    let metered = Metered::start(false).await;
    let proxy = Proxy::before(metered.host.addr).await;
    let mut agent = agent(&proxy, dialect, stream);
    let path = agent.url.find("/v1/").unwrap();
    agent.url = format!("http://{}{}", metered.host.addr, &agent.url[path..]);
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
        output: tokens(shown, side, "output"),
        requests,
    }
}
