//! One session, without a proxy and with one, and what the second must be beside the first. All that
//! is wrong with it is told at once.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll::config::Backend;
use plimsoll_core::turn::Offer;
use plimsoll_scripted::rules::Mismatch;
use plimsoll_scripted::{Form, Reads, Rule, Rules};
use serde_json::Value;

use super::agent::{Agent, Heard};
use super::host::Host;
use super::script::{LAST, Quirks, goes_on, output};
use crate::agent::total;
use crate::support::{Proxy, soon};

/// The budget of a session: some five results.
const CEILING: u32 = 4_000;
/// How often an agent asks again when it is refused.
const TRIES: usize = 8;
/// Refusals for a rule and model at most.
const REFUSALS: usize = 2;
/// The turn in which a session goes on with another model, where it does.
const SWITCH: usize = LAST / 2 + 2;
/// How long the store is waited for, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session under some rules.
#[derive(Clone)]
pub struct Case {
    form: Form,
    model: &'static str,
    rules: Vec<Rule>,
    quirks: Quirks,
    streamed: bool,
    restarted: bool,
    /// The model that it goes on with from the middle, and the rules of that.
    switched: Option<(&'static str, Vec<Rule>)>,
    /// The turn before which the proxy is restarted.
    half: usize,
    /// When the hidden tools are offered, and asked for.
    guide: (Offer, f64),
    ceiling: u32,
}

/// What the client saw of an answer: its text without white space, its calls.
type Seen = (String, Vec<(String, Value)>);

/// What came of a session.
#[derive(Default)]
struct Played {
    seen: Vec<Seen>,
    /// Answers that the client's own bytes were sent for, by the stage that failed.
    open: Vec<String>,
    /// Answers that were over the budget.
    exceeded: usize,
    /// Refusals when the proxy was restarted.
    before: BTreeMap<String, usize>,
    /// Answers that told a size.
    told: usize,
    passes: f64,
    learned: f64,
    faults: Vec<String>,
}

impl Case {
    pub fn new(form: Form, model: &'static str, rule: Rule) -> Self {
        Self {
            form,
            model,
            rules: vec![rule],
            quirks: Quirks::PLAIN,
            streamed: false,
            restarted: false,
            switched: None,
            half: LAST / 2,
            guide: (Offer::Start, 0.0),
            ceiling: CEILING,
        }
    }

    /// One without a rule, whose hidden tools are offered and asked for otherwise.
    pub fn guided(form: Form, model: &'static str, guide: (Offer, f64)) -> Self {
        Self {
            rules: Vec::new(),
            guide,
            ..Self::new(form, model, Rule::StrictNames)
        }
    }

    /// The same under another budget.
    pub const fn budget(mut self, ceiling: u32) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// The same, restarted before a turn.
    pub fn restarted_at(mut self, turn: usize) -> Self {
        (self.restarted, self.half) = (true, turn);
        self
    }

    /// The same under another rule, too.
    pub fn and(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    pub const fn quirks(mut self, quirks: Quirks) -> Self {
        self.quirks = quirks;
        self
    }

    pub fn switched(mut self, model: &'static str, rules: impl Into<Vec<Rule>>) -> Self {
        self.switched = Some((model, rules.into()));
        self
    }

    pub const fn streamed(mut self, streamed: bool) -> Self {
        self.streamed = streamed;
        self
    }

    pub const fn restarted(mut self, restarted: bool) -> Self {
        self.restarted = restarted;
        self
    }

    /// Turns at most: a session that needs more has lost its way.
    const fn turns(&self) -> usize {
        2 * self.quirks.last
    }

    /// Whether requests are refused at random, so that an agent asks again.
    fn random(&self) -> bool {
        let random = |rule: &Rule| matches!(rule, Rule::Random { .. });
        self.rules.iter().any(random)
    }

    /// By how much a size may be off where the provider drops without a word what lost its place: a turn later its
    /// report corrects what is told.
    fn lost(&self, size: usize) -> usize {
        let drops = self.rules.contains(&Rule::Bound(Mismatch::Drop));
        if drops { size / 16 } else { 0 }
    }

    /// Plays the session both ways.
    pub async fn play(self) {
        let host = self.host().await;
        let mut direct = Played::default();
        let mut agent = self.agent();
        agent.at(host.addr);
        let stopped = self
            .go(&mut agent, &mut direct, 0..self.turns(), None)
            .await;
        assert_eq!(
            (stopped, &direct.faults),
            (true, &Vec::new()),
            "without a proxy"
        );
        assert!(direct.seen.len() > 36);
        if !self.random() {
            assert_eq!(host.refusals(), [], "without a proxy");
        }

        let host = self.host().await;
        let mut played = self.proxied(&host).await;
        self.compare(&direct, &mut played);
        self.judge(&host, &mut played);
        let faults = played.faults;
        assert!(
            faults.is_empty(),
            "{:?} {:?} streamed {} restarted {}: {faults:#?}",
            self.form,
            self.rules,
            self.streamed,
            self.restarted
        );
    }

    async fn host(&self) -> Host {
        let rules = match &self.switched {
            None => Rules::new(self.rules.clone()),
            Some((model, rules)) => Rules::default()
                .of(self.model, self.rules.clone())
                .of(model, rules.clone()),
        };
        let rules = rules.of(self.model, [Rule::Reads(reads(self.model))]);
        Host::start(self.form, rules, self.quirks).await
    }

    fn agent(&self) -> Agent {
        let mut agent = Agent::new(self.form, self.streamed, self.model, self.ceiling);
        agent.user("go");
        agent
    }

    async fn proxied(&self, host: &Host) -> Played {
        let (mut played, mut agent) = (Played::default(), self.agent());
        let directory = tempfile::tempdir().unwrap();
        let half = if self.restarted {
            self.half
        } else {
            self.turns()
        };
        for turns in [0..half, half..self.turns()] {
            let proxy = Proxy::with(host.addr, |config| {
                config.store.backend = Backend::Sled;
                config.store.path = directory.path().to_owned();
                // What a slow disk does is judged elsewhere.
                config.store.wait = PATIENCE;
                config.store.read_wait = PATIENCE;
                (config.budget.offer, config.budget.guide_at) = self.guide;
            })
            .await;
            agent.at(proxy.addr);
            let stopped = self.go(&mut agent, &mut played, turns, Some(host)).await;
            played.passes += total(&proxy, "plimsoll_passes_total").await;
            played.learned += total(&proxy, "plimsoll_rules_learned_total").await;
            proxy.stop.cancel();
            soon(proxy.ended).await.unwrap();
            proxy.app.store.close().unwrap();
            if stopped {
                break;
            }
            played.before = counted(host);
        }
        played
    }

    /// Takes so many turns; true if there is nothing more to say, or it can't go on.
    async fn go(
        &self,
        agent: &mut Agent,
        played: &mut Played,
        turns: std::ops::Range<usize>,
        host: Option<&Host>,
    ) -> bool {
        for turn in turns {
            if turn == SWITCH
                && let Some((model, _)) = &self.switched
            {
                agent.switch(model);
            }
            let before = host.map_or(0, |host| host.requests().len());
            let mut heard = agent.ask().await;
            for _ in 1..TRIES {
                if heard.status == 200 || !self.random() {
                    break;
                }
                heard = agent.ask().await;
            }
            if let Some(host) = host {
                self.measure(turn, &heard, &host.sizes(before), played);
            }
            let whole = self.look(turn, &heard, played);
            agent.keep(&heard);
            if !whole {
                return true;
            }
            for (id, ..) in &heard.calls {
                agent.result(id, &output(id, self.quirks));
            }
            if heard.calls.is_empty() {
                let Some(words) = goes_on(&heard.text, self.quirks) else {
                    return true;
                };
                agent.user(&words);
            }
        }
        false
    }

    /// Notes an answer; false if the session ends with it.
    fn look(&self, turn: usize, heard: &Heard, played: &mut Played) -> bool {
        let mut fault = |text: String| played.faults.push(format!("turn {turn}: {text}"));
        for hidden in ["delimiter", "\"recall\"", "hid_"] {
            if heard.bytes.to_lowercase().contains(hidden) {
                fault(format!("{hidden} at the client"));
            }
        }
        if heard.status != 200 || (heard.text.is_empty() && heard.calls.is_empty()) {
            fault(format!("{} {:.300}", heard.status, heard.bytes));
            return false;
        }
        let sent: u64 = heard
            .header("x-plimsoll-context-tokens")
            .parse()
            .unwrap_or(0);
        let open = heard.header("x-plimsoll-fail-open");
        if !open.is_empty() {
            played.open.push(open.to_owned());
        } else if heard.header("x-plimsoll-budget") == "exceeded" {
            played.exceeded += 1;
        } else if sent > u64::from(self.ceiling) {
            fault(format!("{sent} tokens are said to keep the budget"));
        }
        let calls = heard.calls.iter().map(|(_, name, arguments)| {
            let arguments = serde_json::from_str(arguments).unwrap_or_default();
            (name.clone(), arguments)
        });
        let text = heard.text.split_whitespace().collect();
        played.seen.push((text, calls.collect()));
        true
    }

    /// What the header tells is what the provider counted of one of the turn's requests: the last one, or with a
    /// stream the one whose answer began it. None is over a budget that is said to be kept.
    fn measure(&self, turn: usize, heard: &Heard, counted: &[(usize, usize)], played: &mut Played) {
        let Ok(told) = heard.header("x-plimsoll-context-tokens").parse::<usize>() else {
            return;
        };
        played.told += 1;
        // Until another model has reported something, what is told goes by the reports of the one before it.
        if self.switched.is_some() && turn == SWITCH {
            return;
        }
        let last = counted.len().saturating_sub(1);
        let begins = &counted[if self.streamed { 0 } else { last }..];
        let is_told = |(own, slack): &(usize, usize)| own.abs_diff(told) <= slack + self.lost(*own);
        if !begins.iter().any(is_told) {
            let fault = format!("turn {turn}: {told} tokens are told, and {counted:?} counted");
            played.faults.push(fault);
        }
        let is_over =
            |(own, slack): &(usize, usize)| own - slack - self.lost(*own) > self.ceiling as usize;
        let kept = heard.header("x-plimsoll-budget") != "exceeded";
        if kept && counted.last().is_some_and(is_over) {
            let fault = format!("turn {turn}: {counted:?} tokens are over the budget");
            played.faults.push(fault);
        }
    }

    fn compare(&self, direct: &Played, played: &mut Played) {
        let pairs = direct.seen.iter().zip(&played.seen);
        let other = pairs.enumerate().find(|(_, (a, b))| a != b);
        if let Some((turn, (a, b))) = other {
            let fault = format!("turn {turn} is {b:?}, and without a proxy {a:?}");
            played.faults.push(fault);
        }
        if direct.seen.len() != played.seen.len() {
            let (a, b) = (direct.seen.len(), played.seen.len());
            played
                .faults
                .push(format!("{b} turns, and {a} without a proxy"));
        }
    }

    fn judge(&self, host: &Host, played: &mut Played) {
        let mut fault = |text: String| played.faults.push(text);
        let (told, open) = (played.told, played.open.len());
        if told + open < played.seen.len() {
            fault(format!("{told} sizes told of {} turns", played.seen.len()));
        }
        if played.passes < 3.0 {
            fault(format!("{} passes", played.passes));
        }
        if self.random() {
            let nameless = |rule: &Rule| matches!(rule, Rule::Random { named: false, .. });
            if self.rules.iter().any(nameless) && played.learned > 0.0 {
                fault(format!("{} rules learned of chance", played.learned));
            }
            return;
        }
        let words = host.refusals().into_iter().next();
        if self.rules.is_empty() {
            let fronts = host.fronts();
            let want = match self.guide {
                (_, 0.0) => vec![(true, true)],
                (Offer::Start, _) => vec![(true, false), (true, true)],
                (Offer::Line, _) => vec![(false, false), (true, true)],
            };
            if fronts != want {
                fault(format!("in front stood {fronts:?}, and not {want:?}"));
            }
        }
        // One refusal in words that no other has is enough.
        let bound = |rule: &Rule| matches!(rule, Rule::Bound(_));
        let most = if self.rules.iter().any(bound) {
            1
        } else {
            REFUSALS
        };
        for (model, refusals) in counted(host) {
            if refusals > most {
                fault(format!("{refusals} refusals of {model}: {words:?}"));
            }
            let before = played.before.get(&model).copied().unwrap_or(0);
            if before > 0 && refusals > before {
                let after = refusals - before;
                fault(format!("{after} refusals of {model} behind the restart"));
            }
        }
        if played.open.len() > REFUSALS {
            fault(format!(
                "turns as the client's own: {}",
                played.open.join(", ")
            ));
        }
        if played.exceeded > REFUSALS {
            fault(format!("{} turns over the budget", played.exceeded));
        }
    }
}

/// How often each model has refused.
fn counted(host: &Host) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (model, _) in host.refusals() {
        *counts.entry(model).or_default() += 1;
    }
    counts
}

/// Which thoughts a model reads, as its provider says.
pub fn reads(model: &str) -> Reads {
    match model {
        _ if model.contains("deepseek") => Reads::Calls,
        _ if model.contains("claude-sonnet-4") => Reads::Turn,
        _ => Reads::All,
    }
}
