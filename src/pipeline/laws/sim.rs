//! A client, an upstream and the proxy's own request half in one process, without a socket: turns
//! go through the same code as real ones, and every hop's body is held to the laws that hold
//! always. A test only says what is said.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use plimsoll_scripted::size::Sizer;
use plimsoll_scripted::validate;
use serde_json::{Value, json};

use super::say::{Labels, Say, filled, gist, hops, raw_messages};
use crate::commit::Floor;
use crate::dialect::chat::request::Request;
use crate::intercept::{Answer, join};
use crate::model::{Digest, ItemKind, Mark, Marks, RecordId, Shape, TenantId, TurnRecord};
use crate::pipeline::Overrides;
use crate::pipeline::finish::{Ending, record};
use crate::pipeline::hidden::{Keep, settle};
use crate::pipeline::hop::{Prepared, State, Tools};
use crate::pipeline::known::Memo;
use crate::pipeline::settings::{Classes, Guidance, ProtectRecent, Settings, Terms, ToolClasses};
use crate::policy::Protection;
use crate::session::align::align;
use crate::session::chain;
use crate::session::graph::Kind;
use crate::session::path::Path;
use crate::session::transcript::Transcript;
use crate::session::view;
use crate::store::blob_id;
use crate::tokens::{Counter, Encoding, Family, Models};

static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::load);
static MEMO: LazyLock<Memo> = LazyLock::new(Memo::default);
static CLASSES: LazyLock<Classes> =
    LazyLock::new(|| Classes::new(&ToolClasses::default()).unwrap());
static SIZER: LazyLock<Sizer> = LazyLock::new(|| {
    Sizer::new(Arc::new(|text: &str| {
        COUNTER.count(Encoding::O200k, text) as usize
    }))
});

const TENANT: TenantId = TenantId(Digest([7; 32]));

/// A hop as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its messages as sent.
    pub messages: Vec<String>,
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
    /// The client's messages as it would send them now.
    pub messages: Vec<String>,
    /// What the proxy remembers.
    pub path: Arc<Path>,
    pub settings: Settings,
    pub family: Family,
    /// All hops sent so far.
    pub sent: Vec<Sent>,
    /// Whether the client drops reasoning when it resends an answer.
    pub drops_reasoning: bool,
    /// Whether every hop is also prepared from decoded records.
    pub thorough: bool,
    pub labels: Labels,
    /// Everything that was in view once and is not any longer.
    gone: HashSet<String>,
    /// Whether the client changed its history since the last hop.
    edited: bool,
    /// The path as it was last aligned.
    aligned: Path,
    /// The transcript of the last hop.
    transcript: Transcript,
}

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
        settings.delimiter.guidance = Guidance::Off;
        settings.delimiter.nudge = false;
        let mut sim = Self {
            messages: vec![json!({"role": "system", "content": filled("system1", 20)}).to_string()],
            path: Arc::default(),
            settings,
            family: Models::builtin().family("gpt-4o").clone(),
            sent: Vec::new(),
            drops_reasoning: false,
            thorough: false,
            labels: Labels::default(),
            gone: HashSet::new(),
            edited: false,
            aligned: Path::default(),
            transcript: Transcript::default(),
        };
        sim.user(10);
        sim
    }

    pub fn user(&mut self, tokens: u32) {
        let label = self.labels.next("user");
        self.messages
            .push(json!({"role": "user", "content": filled(&label, tokens)}).to_string());
    }

    /// One message of the client's, whatever it is.
    pub fn push(&mut self, message: &Value) {
        self.messages.push(message.to_string());
    }

    /// One turn: what the model says, hop by hop, and the results that the client adds.
    pub fn turn(&mut self, said: impl IntoIterator<Item = Say>) {
        let said: Vec<Say> = said.into_iter().collect();
        self.run(&hops(&said), None);
    }

    /// A turn that is cut at the hop cap: all its hops only annotate, and the proxy's line ends it
    /// where none of them spoke.
    pub fn capped(&mut self, said: impl IntoIterator<Item = Say>, line: Option<&str>) {
        let said: Vec<Say> = said.into_iter().collect();
        let hops: Vec<Vec<Say>> = said
            .split(|say| *say == Say::Hop)
            .map(<[Say]>::to_vec)
            .collect();
        self.run(&hops, Some(line));
    }

    fn run(&mut self, hops: &[Vec<Say>], closed: Option<Option<&str>>) {
        let mut state = self.state(&self.path, self.path.marks.clone());
        let mut answers: Vec<Answer> = Vec::new();
        for (at, hop) in hops.iter().enumerate() {
            let prepared = self.hop(&mut state);
            let (answer, results) = self.labels.answer(hop);
            answers.push(answer);
            let answer = &answers[at];
            let last = at + 1 == hops.len();
            let keep = match last && closed.is_none() {
                true => Keep::HiddenCalls,
                false => Keep::Message,
            };
            let (hop, _) = settle(&state, &prepared, answer, keep, &reader());
            if last {
                let ending = Ending {
                    texts: answers.iter().map(|answer| answer.text.as_str()).collect(),
                    answer,
                    last: hop,
                    line: closed.flatten(),
                    now: 1_000_000,
                };
                let (base, first) = (prepared.transcript.base, prepared.transcript.first_item);
                self.remember(record(&state, base, first, ending));
                self.resend(&answers, closed.flatten(), &results);
            } else {
                state.pending.push(hop);
            }
        }
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
        self.messages
            .push(String::from_utf8(last.message().to_vec()).unwrap());
        for (id, result) in results {
            self.push(&json!({"role": "tool", "tool_call_id": id, "content": result}));
        }
    }

    pub fn body(&self) -> Bytes {
        let tools: Vec<Value> = ["grep", "read", "bash", "edit", "odd"]
            .iter()
            .map(|name| json!({"type": "function", "function": {"name": name}}))
            .collect();
        let tools = Value::from(tools);
        let messages = self.messages.join(",");
        Bytes::from(format!(
            r#"{{"model":"gpt-4o","messages":[{messages}],"tools":{tools}}}"#
        ))
    }

    /// The state of a turn that stands on a path.
    pub fn state(&self, path: &Arc<Path>, marks: Marks) -> State {
        let request = Request::decode(self.body()).unwrap();
        let shapes: Vec<Arc<Shape>> = (0..request.messages.len())
            .map(|at| reader().shape(request.message(at)).unwrap())
            .collect();
        let overrides = Overrides::default();
        let heads = chain::heads(TENANT, &shapes);
        let terms = Terms::of(&self.settings, &overrides, &self.family, "gpt-4o").unwrap();
        let mut state = State::new(request, shapes, heads, path.clone(), terms);
        state.marks = marks;
        state.inject(&self.tools()).unwrap();
        state
    }

    pub fn tools(&self) -> Tools<'_> {
        Tools {
            reader: reader(),
            classes: &self.settings.classes,
            family: &self.family,
            now: 1_000_000,
        }
    }

    /// Prepares one hop and holds it to the laws.
    pub fn hop(&mut self, state: &mut State) -> Prepared {
        let before = state.marks.clone();
        let pending = state.pending.clone();
        let prepared = state.prepare(&self.tools(), None).unwrap();
        if self.thorough {
            let path = Arc::new(self.decoded());
            let mut again = self.state(&path, before.clone());
            again.pending = pending;
            let again = again.prepare(&self.tools(), None).unwrap();
            assert_eq!(
                again.body.to_bytes(),
                prepared.body.to_bytes(),
                "the same view has the same bytes"
            );
        }
        self.judge(state, &prepared, &before);
        prepared
    }

    /// What the next request would be sent as, without sending it.
    pub fn look(&self) -> (Sent, Prepared) {
        let mut sim = self.clone();
        let mut state = sim.state(&sim.path, sim.path.marks.clone());
        let prepared = sim.hop(&mut state);
        (sim.sent.pop().unwrap(), prepared)
    }

    fn judge(&mut self, state: &State, prepared: &Prepared, before: &Marks) {
        let body = prepared.body.to_bytes();
        let messages = raw_messages(&body);
        let gist = gist(&messages);
        let context = || {
            format!(
                "{gist:#?}\nbefore: {:#?}",
                self.sent.last().map(|s| &s.gist)
            )
        };
        if let Err(refusal) = validate::request(&body) {
            panic!("{}\n{}", refusal.message, context());
        }
        assert_eq!(
            SIZER.request(&body) as u64,
            prepared.estimate,
            "{}",
            context()
        );
        let users = |messages: &[String]| -> Vec<String> {
            let user = |message: &&String| message.contains(r#""role":"user""#);
            messages.iter().filter(user).cloned().collect()
        };
        assert_eq!(users(&messages), users(&self.messages), "user text changed");
        for (item, mark) in before.iter() {
            assert!(
                state.marks.get(item) >= mark,
                "the mark of {item} moved left"
            );
        }
        if prepared.pass.is_none() {
            assert_eq!(*before, state.marks);
        }
        if let Some(last) = self
            .sent
            .last()
            .filter(|_| prepared.pass.is_none() && !self.edited)
        {
            for (at, message) in last.messages.iter().enumerate() {
                assert_eq!(
                    messages.get(at),
                    Some(message),
                    "message {at} changed without a pass"
                );
            }
        }
        let ceiling = u64::from(state.terms.ceiling);
        assert!(
            prepared.estimate <= ceiling || prepared.pinned.is_some(),
            "{} of {ceiling} and not reported: {}",
            prepared.estimate,
            context()
        );
        if let Some((_, proposal)) = &prepared.pass {
            assert_eq!(
                proposal.size, prepared.estimate,
                "the pass counted otherwise"
            );
        }
        open_goes_last(state, prepared, before);
        self.descriptions(state, prepared, &messages);
        self.resurrections(&gist);
        if self.edited {
            self.transcript = Transcript::default();
        }
        appended(&self.transcript, &prepared.transcript);
        to_the_floor(state, prepared, before);
        self.transcript = prepared.transcript.clone();
        self.sent.push(Sent {
            messages,
            gist,
            passed: prepared.pass.is_some(),
            exceeded: prepared.pinned.is_some(),
        });
        self.edited = false;
    }

    /// What left the view never comes back.
    fn resurrections(&mut self, gist: &[String]) {
        let now: BTreeSet<&String> = gist.iter().filter(|label| is_label(label)).collect();
        for label in &now {
            assert!(!self.gone.contains(*label), "{label} came back: {gist:#?}");
        }
        let last = self.sent.last().map(|sent| sent.gist.as_slice());
        for label in last
            .unwrap_or_default()
            .iter()
            .filter(|label| is_label(label))
        {
            if !now.contains(label) {
                self.gone.insert(label.clone());
            }
        }
    }

    /// Every closed expl's description, or its line in the ledger, is in every later request.
    fn descriptions(&self, state: &State, prepared: &Prepared, messages: &[String]) {
        let tombstone = prepared.transcript.graph.episodes.iter().any(|episode| {
            let carrier = episode.carrier.map(|at| prepared.transcript.items[at].no);
            carrier.is_some_and(|no| state.marks.get(no) == Mark::Folded)
        });
        if !tombstone && !self.aligned.entries.is_empty() {
            // The client dropped the message that held the ledger.
            return;
        }
        let ledger = messages
            .iter()
            .any(|message| message.contains("ledger of evicted"));
        let counted = ledger
            && messages
                .iter()
                .any(|message| message.contains(" earlier\""));
        for episode in &prepared.transcript.graph.episodes {
            let Some(description) = &episode.description else {
                continue;
            };
            let line: String = description.chars().take(80).collect();
            let found = messages.iter().any(|message| {
                message.contains(description) || (ledger && message.contains(&line))
            });
            assert!(
                found || counted,
                "the description of {} is lost",
                episode.name
            );
        }
    }

    /// The client changed its history: what anchors tie is kept, and the next request may break
    /// the prefix.
    pub fn align(&mut self) {
        let request = Request::decode(self.body()).unwrap();
        let shapes: Vec<Arc<Shape>> = (0..request.messages.len())
            .map(|at| reader().shape(request.message(at)).unwrap())
            .collect();
        self.path = Arc::new(align(&self.path, &shapes));
        self.aligned = Path::clone(&self.path);
        self.edited = true;
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
    pub fn changed(&self) -> (State, Prepared) {
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

    pub fn ceiling(&mut self, ceiling: u64) {
        self.settings.budget.ceiling = u32::try_from(ceiling).unwrap();
    }
}

fn is_label(label: &str) -> bool {
    !label.starts_with('~') && !label.starts_with('+')
}

pub fn reader() -> crate::pipeline::known::Reader<'static> {
    MEMO.reader(&COUNTER, Encoding::O200k, TENANT)
}

pub fn count(text: &str) -> u32 {
    COUNTER.count(Encoding::O200k, text)
}

/// A record after a trip through its encoding.
fn stored(record: &TurnRecord) -> TurnRecord {
    rmp_serde::from_slice(&rmp_serde::to_vec_named(record).unwrap()).unwrap()
}

/// Messages that were added changed no number and no segment of what stood there, whether the
/// client resends reasoning or not.
fn appended(before: &Transcript, now: &Transcript) {
    let numbers = |transcript: &Transcript| -> Vec<_> {
        let items = transcript.items.iter();
        let lasting = items.filter(|item| item.kind != ItemKind::Reasoning);
        lasting
            .map(|item| (item.no, item.kind, item.tokens))
            .collect()
    };
    let (old, new) = (numbers(before), numbers(now));
    assert_eq!(new.get(..old.len()), Some(old.as_slice()), "numbers moved");
    let segments = |transcript: &Transcript| -> Vec<_> {
        let closed = transcript
            .graph
            .episodes
            .iter()
            .filter(|episode| episode.closed);
        let items = |episode: &crate::session::graph::Episode| -> Vec<u32> {
            let items = episode.items.iter().map(|item| &transcript.items[*item]);
            let lasting = items.filter(|item| item.kind != ItemKind::Reasoning);
            lasting.map(|item| item.no).collect()
        };
        closed
            .map(|episode| (episode.name.clone(), episode.kind, items(episode)))
            .collect()
    };
    let (old, new) = (segments(before), segments(now));
    assert_eq!(
        new.get(..old.len()),
        Some(old.as_slice()),
        "a segment changed"
    );
}

/// A pass that stops above the floor leaves nothing that it could have evicted.
fn to_the_floor(state: &State, prepared: &Prepared, before: &Marks) {
    let transcript = &prepared.transcript;
    if prepared.pass.is_none() || prepared.estimate <= prepared.floor {
        return;
    }
    let recent = state.terms.policy(&Family::default()).protect_recent;
    let protection = Protection::new(transcript, before, recent);
    let removed = |episode: &crate::session::graph::Episode| {
        view::is_removed(transcript, &state.marks, episode)
    };
    for episode in transcript
        .graph
        .episodes
        .iter()
        .filter(|episode| episode.closed)
    {
        let depended = episode
            .dependents
            .iter()
            .any(|act| !removed(&transcript.graph.episodes[*act]));
        let protected = episode
            .items
            .iter()
            .any(|item| protection.covers(transcript, *item));
        assert!(
            depended || protected || episode.carrier.is_none() || removed(episode),
            "{:?} {:?} stands although the floor was not met",
            episode.kind,
            episode.name,
        );
    }
}

/// Nothing of the open episode goes while a closed one still shows a call that could go.
fn open_goes_last(state: &State, prepared: &Prepared, before: &Marks) {
    let transcript = &prepared.transcript;
    let Some(current) = transcript.graph.current() else {
        return;
    };
    let newest = transcript
        .entries
        .iter()
        .rfind(|entry| entry.role == crate::model::Role::Assistant)
        .map_or(0, |entry| entry.items.start);
    let moved = |item: &&usize| {
        let no = transcript.items[**item].no;
        state.marks.get(no) > before.get(no)
    };
    let Some(hit) = transcript.graph.episodes[current].items.iter().find(moved) else {
        return;
    };
    for episode in transcript
        .graph
        .episodes
        .iter()
        .filter(|episode| episode.closed)
    {
        let blocked = episode.dependents.iter().any(|act| {
            let start = transcript.graph.episodes[*act].carrier.unwrap();
            state.marks.get(transcript.items[start].no) < Mark::Removed
        });
        for item in episode.items.iter().filter(|_| !blocked) {
            let shown = &transcript.items[*item];
            let loose = shown.delimiter.is_none()
                && shown.kind == ItemKind::Call
                && shown.pair.is_some_and(|pair| pair < newest);
            assert!(
                !loose || state.marks.get(shown.no) >= Mark::Folded,
                "item {} of the open episode went before {} of {:?} {:?}",
                transcript.items[*hit].no,
                shown.no,
                episode.kind == Kind::Implicit,
                episode.name,
            );
        }
    }
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
