//! A client, an upstream and the proxy's own request half in one process, without a socket: turns
//! go through the same code as real ones, and every hop's body is held to the laws that hold
//! always. A test only says what is said.

mod binder;
mod judge;
mod pointed;
mod recalled;
mod wire;

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use plimsoll_model::{
    Digest, ItemNo, Marks, RecallCall, RecordId, Shape, TenantId, TurnRecord, blob_id,
};
use plimsoll_tokens::{Counter, Encoding, Family, Models};
use plimsoll_wire::Dialect;
use plimsoll_wire::answer::{Answer, Call, join};
use serde_json::{Value, json};

use super::say::{Labels, Say, filled, gist, hops, unhidden};
use crate::commit::Floor;
use crate::policy::Order;
use crate::session::align::align;
use crate::session::chain;
use crate::session::path::Path;
use crate::session::transcript::Transcript;
use crate::turn::ending::{Ending, Stands, record};
use crate::turn::hidden::{Keep, settle};
use crate::turn::memo::{Memo, Reader};
use crate::turn::needed::judge;
use crate::turn::settings::{Guidance, ProtectRecent, Settings, Terms};
use crate::turn::state::{HopContext, Prepared, TurnState};
use crate::turn::{Asks, Classes, NamedAsk, Overrides, PinAsk, ToolClasses};

static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::load);
static MEMO: LazyLock<Memo> = LazyLock::new(Memo::default);
static CLASSES: LazyLock<Classes> =
    LazyLock::new(|| Classes::new(&ToolClasses::default()).unwrap());
const TENANT: TenantId = TenantId(Digest([7; 32]));

pub use binder::Binder;

/// A hop as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its messages as sent, those of other dialects as the chat messages that say the same.
    pub messages: Vec<String>,
    /// Its messages as sent, byte for byte.
    elements: Vec<String>,
    /// What they show.
    pub gist: Vec<String>,
    /// Whether a pass stood before it.
    pub passed: bool,
    /// Whether it was over its ceiling, reported as such.
    pub exceeded: bool,
}

/// A session.
#[derive(Clone)]
pub struct Sim {
    /// The wire format that client and upstream speak.
    pub dialect: Dialect,
    /// The client's messages as it would send them now.
    pub messages: Vec<String>,
    /// What the proxy remembers.
    pub path: Arc<Path>,
    pub settings: Settings,
    pub family: Family,
    /// All hops sent so far.
    pub sent: Vec<Sent>,
    /// Whether the client sends tools with its requests.
    pub tools: bool,
    /// Whether the client drops reasoning when it resends an answer.
    pub drops_reasoning: bool,
    /// Whether every hop is also prepared from decoded records.
    pub thorough: bool,
    /// Whether what came before the first `start` is prologue.
    pub prologue: bool,
    pub labels: Labels,
    /// What the next turn is asked to pin.
    pub pins: Vec<PinAsk>,
    /// What is asked to be evicted, until a pass has judged it.
    pub evictions: Vec<NamedAsk>,
    /// What is asked to be brought back, until something was tried.
    pub recalls: Vec<NamedAsk>,
    /// Everything that was in view once and is not any longer.
    gone: HashSet<String>,
    /// Whether the client changed its history since the last hop.
    edited: bool,
    /// The path as it was last aligned.
    aligned: Path,
    /// The transcript of the last hop.
    transcript: Transcript,
    /// What was recalled so far: the item and its text.
    brought: Vec<(ItemNo, String)>,
    /// Whether the last hop brought something back and kept its budget.
    room: bool,
    /// Whether the client's last message is the model's.
    spoke: bool,
    /// The tools and the guidance of the last hop.
    front: Option<Front>,
    /// What judges the hops in place of the laws, if the upstream binds thoughts.
    pub binder: Option<Binder>,
    /// Whether turns go past the proxy.
    pub direct: bool,
    /// Whether only the upstream can read its thoughts.
    pub sealed: bool,
    /// What those remember who judge its views.
    judging: Arc<Memo>,
}

/// The tools array as sent, and the guided system message with the place of the client's.
type Front = (Option<Bytes>, Option<(Option<usize>, Bytes)>);

impl Sim {
    /// A session with a system and a user message, under a ceiling that it never meets.
    pub fn new() -> Self {
        let mut settings = Settings {
            classes: CLASSES.clone(),
            ..Settings::default()
        };
        settings.budget.ceiling = 1_000_000;
        settings.budget.floor = Floor::Ceiling;
        settings.budget.protect_recent = ProtectRecent::Tokens(0);
        // The published order, of which each step can be told by what it takes.
        settings.budget.order = Order::Paper;
        // What is told of late guidance is told by tests of its own.
        settings.budget.guide_at = 0.0;
        settings.delimiter.guidance = Guidance::Off;
        settings.delimiter.nudge = false;
        settings.recall.enabled = false;
        let mut sim = Self {
            dialect: Dialect::Chat,
            messages: vec![json!({"role": "system", "content": filled("system1", 20)}).to_string()],
            path: Arc::default(),
            settings,
            family: Models::builtin().family("gpt-4o").clone(),
            sent: Vec::new(),
            tools: true,
            drops_reasoning: false,
            thorough: false,
            prologue: false,
            labels: Labels::default(),
            pins: Vec::new(),
            evictions: Vec::new(),
            recalls: Vec::new(),
            gone: HashSet::new(),
            edited: false,
            aligned: Path::default(),
            transcript: Transcript::default(),
            brought: Vec::new(),
            room: false,
            spoke: false,
            front: None,
            binder: None,
            direct: false,
            sealed: false,
            judging: Arc::default(),
        };
        sim.user(10);
        sim
    }

    /// A session that evicts in the finer order.
    pub fn finer() -> Self {
        let mut sim = Self::new();
        sim.settings.budget.order = Order::Levels;
        sim
    }

    pub fn user(&mut self, tokens: u32) {
        self.spoke = false;
        let label = self.labels.next("user");
        self.messages
            .push(json!({"role": "user", "content": filled(&label, tokens)}).to_string());
    }

    /// One message of the client's, whatever it is.
    pub fn push(&mut self, message: &Value) {
        self.spoke = false;
        self.messages.push(message.to_string());
    }

    /// One turn: what the model says, hop by hop, and the results that the client adds.
    pub fn turn(&mut self, said: impl IntoIterator<Item = Say>) {
        self.run(said.into_iter().collect(), None);
    }

    /// A turn that is cut at the hop cap: all its hops only annotate, and the proxy's line ends it
    /// where none of them spoke.
    pub fn capped(&mut self, said: impl IntoIterator<Item = Say>, line: Option<&str>) {
        self.run(said.into_iter().collect(), Some(line));
    }

    fn run(&mut self, mut said: Vec<Say>, mut closed: Option<Option<&str>>) {
        if self.direct {
            return self.past_the_proxy(said);
        }
        // Neighbouring answers are one message to these, and no client asks for a second.
        if self.dialect != Dialect::Chat && std::mem::take(&mut self.spoke) {
            self.user(2);
        }
        let mut state = self.state(&self.path, self.path.marks.clone());
        let mut answers: Vec<Answer> = Vec::new();
        let mut prepared = self.hop(&mut state);
        if state.bring_back(&prepared, &self.tools()).is_some() {
            let brought = state.pending[0].clone();
            state.pending.clear();
            self.recalled(&state, &prepared, &brought, false);
            state.pending.push(brought);
            prepared = self.hop(&mut state);
        }
        self.recalls.clone_from(&state.asks.recalls);
        if state.guide.is_waiting() && !state.injected.any() {
            // Nobody calls what nobody offers.
            unhidden(&mut said);
            closed = None;
        }
        let hops = match closed {
            None => hops(&said),
            Some(_) => {
                let hops = said.split(|say| *say == Say::Hop);
                hops.map(<[Say]>::to_vec).collect()
            }
        };
        for (at, hop) in hops.iter().enumerate() {
            if at > 0 {
                prepared = self.hop(&mut state);
            }
            let (answer, results) = self.said(hop);
            answers.push(answer);
            let answer = &answers[at];
            let last = at + 1 == hops.len();
            let keep = match last && closed.is_none() {
                true => Keep::HiddenCalls,
                false => Keep::Message,
            };
            let (hop, counted) = settle(&state, &prepared, answer, keep, &self.reader());
            self.judged(&state, &prepared, (answer, &counted.recalls));
            self.recalled(&state, &prepared, &hop, last);
            if last {
                let ending = Ending {
                    texts: answers.iter().map(|answer| answer.text.as_str()).collect(),
                    skips: false,
                    answer,
                    last: hop,
                    line: closed.flatten(),
                    now: 1_000_000,
                };
                let transcript = prepared.view.transcript();
                let made = record(&state, transcript, ending, Stands::default());
                self.remember(made);
                self.resend(&answers, closed.flatten(), &results);
            } else {
                state.pending.push(hop);
            }
        }
        if state.asks.judged {
            self.evictions.clear();
        }
    }

    /// A turn that client and upstream have without the proxy.
    fn past_the_proxy(&mut self, mut said: Vec<Say>) {
        unhidden(&mut said);
        let body = self.body();
        if let Some(binder) = &mut self.binder {
            binder.judge(&body, !self.edited);
        }
        let (answer, results) = self.said(&said);
        self.resend(&[answer], None, &results);
    }

    /// What the upstream answers to the newest request, and the results of its visible calls.
    fn said(&mut self, hop: &[Say]) -> (Answer, Vec<(String, String)>) {
        let (mut answer, results) = self.labels.answer(hop);
        if let Some(binder) = &mut self.binder {
            binder.answered(&answer);
        }
        wire::fill(self.dialect, &mut answer, self.sealed);
        (answer, results)
    }

    fn remember(&mut self, record: TurnRecord) {
        let bytes = rmp_serde::to_vec_named(&record).unwrap();
        let id = RecordId(blob_id(&bytes));
        self.path = Arc::new(self.path.extend(id, Arc::new(record)));
    }

    /// What the client makes of a turn.
    fn resend(&mut self, answers: &[Answer], line: Option<&str>, results: &[(String, String)]) {
        let texts = answers.iter().map(|answer| answer.text.as_str());
        let (text, _) = join(texts.chain(line));
        let mut last = answers.last().cloned().unwrap_or_default();
        last.text = text;
        last.calls.retain(|call| !call.hidden);
        if self.drops_reasoning {
            last.reasoning.clear();
        }
        if last.text.is_empty() && last.calls.is_empty() {
            return;
        }
        let message = match self.dialect {
            Dialect::Chat => Dialect::Chat.message_of(&last),
            // What was handed out comes back in as many blocks.
            dialect => dialect.said(answers, line),
        };
        self.messages
            .push(String::from_utf8(message.to_vec()).unwrap());
        // A model may call once more what it called before.
        for call in &last.calls {
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            self.gone
                .remove(arguments["label"].as_str().unwrap_or_default());
        }
        // A client may bring in once more what it brought in before.
        for (_, result) in results {
            let label = result.split_whitespace().next().unwrap_or_default();
            self.gone.remove(&format!("={label}"));
        }
        self.messages.extend(wire::results(self.dialect, results));
        self.spoke = results.is_empty();
    }

    pub fn body(&self) -> Bytes {
        wire::body(self.dialect, &self.messages, self.tools)
    }

    pub fn reader(&self) -> Reader<'static> {
        MEMO.reader(&COUNTER, Encoding::O200k, TENANT, self.dialect)
    }

    /// The state of a turn that stands on a path.
    pub fn state(&self, path: &Arc<Path>, marks: Marks) -> TurnState {
        let request = self.dialect.decode(self.body()).unwrap();
        let shapes: Vec<Arc<Shape>> = (0..request.messages.len())
            .map(|at| self.reader().shape(request.message(at)).unwrap())
            .collect();
        let overrides = Overrides {
            pins: self.pins.clone(),
            ..Overrides::default()
        };
        let heads = chain::heads(TENANT, &shapes);
        let mut terms = Terms::of(&self.settings, &overrides, None, "gpt-4o").unwrap();
        terms.prologue_until_start = self.prologue;
        let mut state = TurnState::new(request, shapes, heads, path.clone(), terms, &self.reader());
        state.marks = Arc::new(marks);
        state.ask(Asks {
            evictions: self.evictions.clone(),
            recalls: self.recalls.clone(),
            ..Asks::default()
        });
        state.strip_if_asked(&self.family);
        state.inject(&self.tools()).unwrap();
        state
    }

    /// What is remembered between requests changes no judgement of a view.
    fn judged(&self, state: &TurnState, prepared: &Prepared, said: (&Answer, &[RecallCall])) {
        let judge = |memo: &Memo, said| {
            let reader = memo.reader(&COUNTER, Encoding::O200k, TENANT, self.dialect);
            judge(state, prepared, said, reader, &self.settings.classes)
        };
        let judged = judge(&self.judging, said);
        let kept = judged
            .kept
            .map_or([1.0; 2], |kept| [kept.strings, kept.lines]);
        assert!(
            kept.iter().all(|share| (0.0..=1.0).contains(share)),
            "{kept:?}"
        );
        // A call that uses all strings of the session.
        let mut all = said.0.clone();
        all.calls = vec![Call {
            id: "all".to_owned(),
            name: "all".to_owned(),
            arguments: self.messages.join("\n"),
            kind: "function".to_owned(),
            extra: Vec::new(),
            hidden: false,
            complete: true,
        }];
        let all = (&all, &[][..]);
        assert_eq!(judge(&self.judging, all), judge(&Memo::default(), all));
    }

    pub fn tools(&self) -> HopContext<'_> {
        HopContext {
            reader: self.reader(),
            classes: &self.settings.classes,
            family: &self.family,
            now: 1_000_000,
        }
    }

    /// Prepares one hop and holds it to the laws.
    pub fn hop(&mut self, state: &mut TurnState) -> Prepared {
        let before = state.marks.clone();
        let pending = state.pending.clone();
        let (guide, injected, judged) = (state.guide, state.injected.clone(), state.asks.judged);
        let prepared = state.prepare(&self.tools(), None).unwrap();
        if self.thorough {
            let path = Arc::new(self.decoded());
            let mut again = self.state(&path, Marks::clone(&before));
            (again.pending, again.asks.judged) = (pending, judged);
            // An earlier hop of the turn may have brought the guidance in.
            (again.guide, again.injected) = (guide, injected);
            again.add(&self.tools()).unwrap();
            let again = again.prepare(&self.tools(), None).unwrap();
            assert_eq!(
                again.body.to_bytes(),
                prepared.body.to_bytes(),
                "the same view has the same bytes"
            );
        }
        match &mut self.binder {
            Some(binder) => {
                let goes_on = !std::mem::take(&mut self.edited) && prepared.pass.is_none();
                binder.judge(&prepared.body.to_bytes(), goes_on);
            }
            None => self.judge(state, &prepared, &before),
        }
        prepared
    }

    /// What the next request would be sent as, without sending it.
    pub fn look(&self) -> (Sent, Prepared) {
        let mut sim = self.clone();
        let mut state = sim.state(&sim.path, sim.path.marks.clone());
        let prepared = sim.hop(&mut state);
        (sim.sent.pop().unwrap(), prepared)
    }

    /// What the next request shows under other marks.
    pub fn shown(&self, marks: &Marks) -> Sent {
        let mut sim = self.clone();
        let mut path = Path::clone(&self.path);
        path.marks = marks.clone();
        sim.path = Arc::new(path);
        // No record has these marks, and the view of the last hop had others.
        (sim.thorough, sim.edited) = (false, true);
        sim.look().0
    }

    /// The client changed its history: what anchors tie is kept, and the next request may break
    /// the prefix.
    pub fn align(&mut self) {
        let request = self.dialect.decode(self.body()).unwrap();
        let shapes: Vec<Arc<Shape>> = (0..request.messages.len())
            .map(|at| self.reader().shape(request.message(at)).unwrap())
            .collect();
        self.path = Arc::new(align(&self.path, &shapes));
        self.aligned = Path::clone(&self.path);
        self.edited = true;
        self.forgive_untied();
    }

    /// A message that no anchor ties is a new one, with whatever the client put into it.
    fn forgive_untied(&mut self) {
        let mut tied = false;
        for (at, message) in self.messages.iter().enumerate() {
            if message.contains(r#""role":"assistant""#) {
                let entries = self.path.entries.iter();
                tied = entries
                    .into_iter()
                    .any(|entry| entry.position as usize == at);
            }
            if !tied {
                for label in gist(std::slice::from_ref(message)) {
                    self.gone.remove(&label);
                }
            }
        }
    }

    /// The client's own messages have no reasoning any more.
    pub fn forget_reasoning(&mut self) {
        for message in &mut self.messages {
            let mut new: Value = serde_json::from_str(message).unwrap();
            if new
                .as_object_mut()
                .unwrap()
                .remove("reasoning_content")
                .is_some()
            {
                *message = new.to_string();
            }
        }
        self.edited = true;
    }

    /// The next request after a change that no anchor ties, prepared without being judged.
    pub fn changed(&self) -> (TurnState, Prepared) {
        let mut state = self.state(&self.path, self.path.marks.clone());
        let prepared = state.prepare(&self.tools(), None).unwrap();
        (state, prepared)
    }

    /// The path folded anew from what a store would give back: a snapshot, then records.
    fn decoded(&self) -> Path {
        let snapshot = rmp_serde::to_vec_named(&self.aligned.snapshot()).unwrap();
        let snapshot = rmp_serde::from_slice(&snapshot).unwrap();
        let records = self
            .aligned
            .entries
            .iter()
            .map(|entry| Arc::new(stored(&entry.record)));
        let mut folded = Path::from_snapshot(&snapshot, records.collect());
        for entry in &self.path.entries[self.aligned.entries.len()..] {
            folded.push(entry.id, Arc::new(stored(&entry.record)));
        }
        assert_eq!(folded.snapshot(), self.path.snapshot());
        folded
    }

    /// The least size that the next request can have with its budget met.
    pub fn least(&self) -> u64 {
        let (_, mut prepared) = self.look();
        let mut low = self.clone();
        loop {
            low.ceiling(prepared.estimate - 1);
            let (_, next) = low.look();
            if next.pinned.is_some() {
                return prepared.estimate;
            }
            prepared = next;
        }
    }

    /// Another ceiling from here on, under which the ledger may have another length.
    pub fn lift(&mut self) {
        self.ceiling(1_000_000);
        self.edited = true;
    }

    pub fn ceiling(&mut self, ceiling: u64) {
        self.settings.budget.ceiling = u32::try_from(ceiling).unwrap();
    }
}

fn is_label(label: &str) -> bool {
    !label.starts_with('~') && !label.starts_with('+')
}

pub fn count(text: &str) -> u32 {
    COUNTER.count(Encoding::O200k, text)
}

/// A record after a trip through its encoding.
fn stored(record: &TurnRecord) -> TurnRecord {
    rmp_serde::from_slice(&rmp_serde::to_vec_named(record).unwrap()).unwrap()
}

/// Holds what leaves the view, step by step, to what is expected.
#[track_caller]
pub fn check(sim: &Sim, expect: &[&[&str]]) {
    let got = steps(sim);
    let got: Vec<Vec<&str>> = got
        .iter()
        .map(|step| step.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(got, expect);
}

/// What leaves the view, step by step, as the ceiling is lowered each time by the least that
/// forces one more eviction; ends where the budget can't be met.
fn steps(sim: &Sim) -> Vec<Vec<String>> {
    let mut steps = Vec::new();
    let (mut last, mut prepared) = sim.look();
    let mut low = sim.clone();
    loop {
        low.ceiling(prepared.estimate - 1);
        let (sent, next) = low.look();
        let left = last
            .gist
            .iter()
            .filter(|label| is_label(label) && !sent.gist.contains(label));
        let left: Vec<String> = left.cloned().collect();
        if !left.is_empty() {
            steps.push(left);
        }
        if next.pinned.is_some() {
            return steps;
        }
        (last, prepared) = (sent, next);
    }
}
