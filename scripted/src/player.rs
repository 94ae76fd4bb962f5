//! The provider's side of a recorded session: which recorded answer a request asks for.
//!
//! Owns the sessions that can be played and the checks that need a plan and a request at once.
//! It finds its place in each request anew, from the turn's header and the trailing messages, so
//! that retries, duplicates and restarts change nothing. It never remembers a conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::plan::{Hop, Plan, TOOL};
use crate::rng::Rng;
use crate::script::{Fault, Reply, RequestView, Script, Style};
use crate::thoughts;
use crate::trace::Recording;
use crate::violation::Violation;

/// The header by which the client tells `<session>:<turn>`; a proxy passes it on.
pub const TURN_HEADER: &str = "x-scripted-turn";

/// A session with the answers that its model gives.
#[derive(Debug)]
pub struct Session {
    /// The recording.
    pub recording: Recording,
    seed: u64,
    asked: Mutex<Asked>,
}

/// The answers, and the turn from which on they are annotated; none before that is known.
#[derive(Debug)]
struct Asked {
    first: Option<usize>,
    plan: Arc<Plan>,
    /// The first turn whose request asked the model to annotate.
    heard: Option<usize>,
}

impl Session {
    /// A recorded session, annotated by a seed.
    #[must_use]
    pub fn new(recording: Recording, seed: u64) -> Arc<Self> {
        let plan = Plan::annotated(&recording, seed);
        Self::of(recording, seed, Some(0), plan)
    }

    /// A recorded session whose model annotates once it is asked to.
    #[must_use]
    pub fn waiting(recording: Recording, seed: u64) -> Arc<Self> {
        let plan = Plan::plain(&recording);
        Self::of(recording, seed, None, plan)
    }

    fn of(recording: Recording, seed: u64, first: Option<usize>, plan: Plan) -> Arc<Self> {
        let plan = Arc::new(plan);
        Arc::new(Self {
            recording,
            seed,
            asked: Mutex::new(Asked {
                first,
                plan,
                heard: None,
            }),
        })
    }

    /// The answers, as far as it is known when the model is asked to annotate.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&locked(&self.asked).plan)
    }

    /// What the client says before the answer of a turn, without the name of the hidden tool, which nobody may
    /// take for a leak.
    fn said(&self, turn: usize) -> String {
        let turn = self.recording.turns.get(turn);
        let before = turn.map_or(&[][..], |turn| &turn.before);
        let said: Vec<&str> = before.iter().map(|message| message.raw.as_str()).collect();
        said.join("\n").replace(TOOL, "marks")
    }

    /// The turn from which on the model was asked to annotate; none before it was.
    #[must_use]
    pub fn first_asked(&self) -> Option<usize> {
        locked(&self.asked).heard
    }

    /// Notes that the model is asked to annotate in a turn.
    pub fn asked(&self, turn: usize) {
        let mut asked = locked(&self.asked);
        asked.heard.get_or_insert(turn);
        if asked.first.is_none() {
            asked.first = Some(turn);
            asked.plan = Arc::new(Plan::annotated_from(&self.recording, self.seed, turn, 0));
        }
    }
}

/// Which answer is given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The session's id.
    pub session: String,
    /// The turn, from 0.
    pub turn: usize,
    /// The hop within the turn, from 0.
    pub hop: usize,
    /// How often this hop was asked for before.
    pub attempt: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            session,
            turn,
            hop,
            attempt,
        } = self;
        write!(f, "{session} turn {turn} hop {hop} attempt {attempt}")
    }
}

/// Chooses the shape of an answer.
pub type StyleFn = Box<dyn Fn(&Place) -> Style + Send + Sync>;
/// Chooses what goes wrong with an answer.
pub type FaultFn = Box<dyn Fn(&Place) -> Option<Fault> + Send + Sync>;

/// Plays the provider's side of any number of sessions.
pub struct Player {
    sessions: HashMap<String, Arc<Session>>,
    style: StyleFn,
    fault: FaultFn,
    /// A seed, and how many tokens are thought before each answer that was recorded without.
    thinks: Option<(u64, usize)>,
    attempts: Mutex<HashMap<(String, usize, usize), usize>>,
    violations: Mutex<Vec<Violation>>,
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player")
            .field("sessions", &self.sessions.keys())
            .finish_non_exhaustive()
    }
}

impl Player {
    /// A player of some sessions, in the default style and without faults.
    pub fn new(sessions: impl IntoIterator<Item = Arc<Session>>) -> Self {
        let by_id = |session: Arc<Session>| (session.recording.id.clone(), session);
        Self {
            sessions: sessions.into_iter().map(by_id).collect(),
            style: Box::new(|_| Style::default()),
            fault: Box::new(|_| None),
            thinks: None,
            attempts: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// The same player with another choice of style.
    #[must_use]
    pub fn style(mut self, style: impl Fn(&Place) -> Style + Send + Sync + 'static) -> Self {
        self.style = Box::new(style);
        self
    }

    /// The same player with some style for each hop, of all that there are.
    #[must_use]
    pub fn any_style(self, seed: u64) -> Self {
        self.style(move |place| {
            let text = format!("{}:{}:{}", place.session, place.turn, place.hop);
            Style::any(&mut Rng::from_text(&text, seed))
        })
    }

    /// The same player with faults.
    #[must_use]
    pub fn fault(
        mut self,
        fault: impl Fn(&Place) -> Option<Fault> + Send + Sync + 'static,
    ) -> Self {
        self.fault = Box::new(fault);
        self
    }

    /// The same player with a thought of so many tokens before each answer, each another one, in words of what
    /// the client has just said.
    #[must_use]
    pub const fn thinking(mut self, seed: u64, tokens: usize) -> Self {
        self.thinks = Some((seed, tokens));
        self
    }

    /// The player as a script; it goes on answering for the caller's handle.
    #[must_use]
    pub fn script(self: &Arc<Self>) -> Script {
        let player = Arc::clone(self);
        Script::ask(move |request| player.reply(request))
    }

    /// What was found wrong with the requests so far. Rules: `hidden-exchange` (after a hop of
    /// annotations the next does not end with that message and its results) and `mixed-exchange`
    /// (after annotations beside visible calls the next turn's newest group is not that message,
    /// the hidden results in call order, then the client's), and `guide-lost` (the model was asked to
    /// annotate in an earlier turn, and is not any longer).
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        locked(&self.violations).clone()
    }

    /// Answers a request.
    pub fn reply(&self, request: &RequestView<'_>) -> Reply {
        let header = request.header(TURN_HEADER).unwrap_or_default();
        let found = header.rsplit_once(':').and_then(|(id, turn)| {
            let session = self.sessions.get(id)?;
            Some((session, turn.parse::<usize>().ok()?))
        });
        let Some((session, turn)) = found else {
            return unknown(header);
        };
        let annotates = request.asks(TOOL);
        if annotates {
            session.asked(turn);
        }
        let plan = session.plan();
        let hops = plan.hops(turn);
        let Some(last) = hops.last() else {
            return unknown(header);
        };
        let messages = request.messages();
        let number = if annotates {
            hop_of(hops, messages)
        } else {
            hops.len() - 1
        };
        let place = self.place(&session.recording.id, turn, number);
        if annotates {
            let found = check(&plan, turn, number, messages);
            let named = found
                .into_iter()
                .map(|(rule, text)| Violation::new(rule, &place, text));
            locked(&self.violations).extend(named);
        } else if session.first_asked().is_some_and(|first| first <= turn) {
            let text = "the model is not asked to annotate any longer";
            locked(&self.violations).push(Violation::new("guide-lost", &place, text));
        }
        let hop = hops.get(number).unwrap_or(last);
        Reply {
            text: hop.text.clone(),
            reasoning: match self.thinks {
                Some((seed, tokens)) if hop.reasoning.is_empty() => {
                    let name = format!("{}:{turn}:{number}", place.session);
                    thoughts::words_about(&session.said(turn), &name, seed, tokens)
                }
                Some(_) | None => hop.reasoning.clone(),
            },
            calls: if annotates { hop.all() } else { hop.visible() },
            style: (self.style)(&place),
            fault: (self.fault)(&place),
            ..Reply::default()
        }
    }

    fn place(&self, session: &str, turn: usize, hop: usize) -> Place {
        let mut attempts = locked(&self.attempts);
        let count = attempts.entry((session.to_owned(), turn, hop)).or_default();
        let attempt = *count;
        *count += 1;
        Place {
            session: session.to_owned(),
            turn,
            hop,
            attempt,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(header: &str) -> Reply {
    let text = format!("no session and turn {header:?}: send {TURN_HEADER}: <session>:<turn>");
    Reply::error(404, crate::send::error(&text))
}

/// The newest assistant message with what follows it.
struct Tail<'a> {
    message: &'a Value,
    after: &'a [Value],
}

fn tail(messages: &[Value]) -> Option<Tail<'_>> {
    let is_assistant = |message: &Value| text(message, "role") == "assistant";
    let at = messages.iter().rposition(is_assistant)?;
    let (message, after) = messages.get(at..)?.split_first()?;
    Some(Tail { message, after })
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn call_ids(message: &Value) -> Vec<&str> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    calls
        .into_iter()
        .flatten()
        .map(|call| text(call, "id"))
        .collect()
}

/// The hop that a request asks for: the one behind the annotations that it ends with.
fn hop_of(hops: &[Hop], messages: &[Value]) -> usize {
    let Some(tail) = tail(messages) else {
        return 0;
    };
    let ids = call_ids(tail.message);
    let only_results = tail
        .after
        .iter()
        .all(|message| text(message, "role") == "tool");
    let (_, alone) = hops.split_last().unwrap_or((&EMPTY, &[]));
    match alone.iter().position(|hop| hop.ids() == ids) {
        Some(number) if only_results => number + 1,
        Some(_) | None => 0,
    }
}

const EMPTY: Hop = Hop {
    text: String::new(),
    reasoning: String::new(),
    calls: Vec::new(),
};

type Found = Vec<(&'static str, String)>;

fn check(plan: &Plan, turn: usize, number: usize, messages: &[Value]) -> Found {
    let hops = plan.hops(turn);
    let tail = tail(messages);
    let mut found = Vec::new();
    match (
        number.checked_sub(1).and_then(|before| hops.get(before)),
        tail,
    ) {
        (Some(hop), Some(tail)) => {
            let faults = exchange(hop, &tail, hop.calls.len());
            found.extend(faults.into_iter().map(|fault| ("hidden-exchange", fault)));
        }
        (None, Some(tail)) => {
            found.extend(strays(hops, messages));
            let before = turn
                .checked_sub(1)
                .and_then(|before| plan.hops(before).last());
            if let Some(hop) = before.filter(|hop| !hop.hidden_ids().is_empty()) {
                let faults = exchange(hop, &tail, hop.calls.len());
                found.extend(faults.into_iter().map(|fault| ("mixed-exchange", fault)));
            }
        }
        (_, None) => {}
    }
    found
}

/// Annotations of this turn that are in the request, though not at its end.
fn strays(hops: &[Hop], messages: &[Value]) -> Option<(&'static str, String)> {
    let (_, alone) = hops.split_last()?;
    let ids: Vec<&str> = alone.iter().flat_map(Hop::ids).collect();
    let stray = messages
        .iter()
        .flat_map(|message| {
            let mut ids = call_ids(message);
            ids.push(text(message, "tool_call_id"));
            ids
        })
        .find(|id| ids.contains(id))?;
    let fault = format!("the call {stray} of this turn is in the request, but not at its end");
    Some(("hidden-exchange", fault))
}

/// Compares a group with the hop that was answered: the message with all of its calls, then the
/// hidden results in call order, then the visible ones.
fn exchange(hop: &Hop, tail: &Tail<'_>, count: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let want = hop.ids();
    let have = call_ids(tail.message);
    if want != have {
        faults.push(format!(
            "the newest message's calls are {have:?}, answered were {want:?}"
        ));
        return faults;
    }
    let calls = tail.message.get("tool_calls").and_then(Value::as_array);
    for (planned, call) in hop.calls.iter().zip(calls.into_iter().flatten()) {
        let function = call.get("function").unwrap_or(&Value::Null);
        let same = text(function, "name") == planned.call.name
            && text(function, "arguments") == planned.call.arguments;
        // What the client sees it may write anew; what it doesn't must come back as it was.
        if planned.hidden && !same {
            faults.push(format!("the call {} came back as {call}", planned.call.id));
        }
    }
    let alone = hop.hidden_ids().len() == count;
    if alone && text(tail.message, "content") != hop.text {
        let content = tail.message.get("content");
        faults.push(format!("the text {:?} came back as {content:?}", hop.text));
    }
    let results = tail.after.iter().take(count);
    let answered: Vec<&str> = results
        .clone()
        .map(|result| text(result, "tool_call_id"))
        .collect();
    let hidden = hop.hidden_ids();
    if !answered.starts_with(&hidden) || answered.len() != count {
        faults.push(format!(
            "the results are {answered:?}, wanted first are {hidden:?}"
        ));
    }
    let empty = results
        .take(hidden.len())
        .any(|result| text(result, "content").is_empty());
    if empty {
        faults.push("a hidden result is empty".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests;
