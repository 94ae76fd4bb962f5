//! The explorations of a session as they follow from its tools, and which of their results a view does not show whole. Owns
//! what is read of a message for that; never changes one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plimsoll_model::Role;
use plimsoll_scripted::plan::{Kind, Plan};
use serde_json::Value;

use crate::sample::Drawn;
use crate::trace::TraceMessage;

/// An answer with calls, and its results.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Where it stands among the messages.
    pub(super) at: Range<usize>,
    pub(super) ids: BTreeSet<String>,
}

/// The explorations of a session, as they follow from its tools.
pub(super) struct Explored<'a> {
    pub(super) messages: &'a [TraceMessage],
    /// The same as far as they are looked at.
    read: Vec<Read>,
    /// By name, with its steps.
    pub(super) all: Vec<(String, Vec<Step>)>,
    /// What the scripted model says of some calls.
    pub(super) scripted: Vec<(Vec<String>, String)>,
}

impl<'a> Explored<'a> {
    pub(super) fn of(session: &'a Drawn) -> Self {
        let messages = session.trace.messages.as_slice();
        let read = messages
            .iter()
            .map(|one| read(&one.raw).unwrap_or_default());
        let read: Vec<Read> = read.collect();
        let steps = steps(messages, &read);
        let looked = Plan::inferred(&session.trace.recording).episodes;
        let looked = looked.into_iter().filter(|one| one.kind == Kind::Expl);
        let all = looked.map(|one| {
            let calls: BTreeSet<String> = one.calls.into_iter().collect();
            let own = steps.iter().filter(|step| step.ids.is_subset(&calls));
            (one.name, own.cloned().collect())
        });
        let marked = Plan::annotated(&session.trace.recording, 1).episodes;
        let marked = marked.into_iter();
        let scripted = marked.filter_map(|one| Some((one.calls, one.description?)));
        Self {
            messages,
            all: all.collect(),
            read,
            scripted: scripted.collect(),
        }
    }

    pub(super) fn raw(&self, at: Range<usize>) -> &'a [TraceMessage] {
        self.messages.get(at).unwrap_or_default()
    }

    /// The texts of the results before a message, by call.
    pub(super) fn originals(&self, before: usize) -> BTreeMap<&str, &str> {
        texts(self.read.get(..before).unwrap_or_default())
    }

    /// Whether a view shows none of a step's results whole.
    pub(super) fn is_gone(&self, step: &Step, shown: &BTreeMap<&str, &str>) -> bool {
        let results = self.read.get(step.at.start + 1..step.at.end);
        let results = results.unwrap_or_default();
        let is_whole = |one: &Read| match (&one.answers, &one.text) {
            (Some(id), Some(text)) => shown.get(id.as_str()) == Some(&text.as_str()),
            // Nobody can tell.
            _ => true,
        };
        !results.is_empty() && !results.iter().any(is_whole)
    }
}

/// The texts of results, by call.
pub(super) fn texts(messages: &[Read]) -> BTreeMap<&str, &str> {
    let all = messages.iter();
    let all = all.filter_map(|one| Some((one.answers.as_deref()?, one.text.as_deref()?)));
    all.collect()
}

/// The answers of a session that call something, with their results.
fn steps(messages: &[TraceMessage], read: &[Read]) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    for (at, (message, read)) in messages.iter().zip(read).enumerate() {
        match message.role {
            Role::Assistant => {
                if !read.calls.is_empty() {
                    let (at, ids) = (at..at + 1, read.calls.clone());
                    found.push(Step { at, ids });
                }
            }
            Role::Tool => {
                let step = found.last_mut().filter(|step| step.at.end == at);
                if let Some(step) = step {
                    step.at.end = at + 1;
                }
            }
            Role::System | Role::User | Role::Other => {}
        }
    }
    found
}

/// A message as far as it is looked at here.
#[derive(Default)]
pub(super) struct Read {
    /// The ids of its calls.
    pub(super) calls: BTreeSet<String>,
    /// The call that it answers.
    pub(super) answers: Option<String>,
    /// Its text, if that is one string.
    pub(super) text: Option<String>,
}

pub(super) fn read(raw: &[u8]) -> Option<Read> {
    let message: Value = serde_json::from_slice(raw).ok()?;
    let text = |field: &str| {
        message
            .get(field)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let ids = calls.into_iter().flatten();
    let ids = ids.filter_map(|call| call.get("id")?.as_str().map(str::to_owned));
    Some(Read {
        calls: ids.collect(),
        answers: text("tool_call_id"),
        text: text("content"),
    })
}

/// Neighbours of which all are gone.
pub(super) fn runs<'a>(
    steps: impl Iterator<Item = &'a Step>,
    is_gone: impl Fn(&Step) -> bool,
) -> Vec<Vec<&'a Step>> {
    let mut found: Vec<Vec<&Step>> = Vec::new();
    for step in steps.filter(|step| is_gone(step)) {
        let last = found.last_mut();
        let next_to =
            |run: &&mut Vec<&Step>| run.last().is_some_and(|last| last.at.end == step.at.start);
        match last.filter(next_to) {
            Some(run) => run.push(step),
            None => found.push(vec![step]),
        }
    }
    found
}

/// What a result was called whose text a stub or a skeleton replaces, such as `read` and 12.
pub(super) fn stub_id(text: &str) -> Option<(String, u32)> {
    let rest = text
        .strip_prefix("[evicted ")
        .or_else(|| text.strip_prefix("[clipped "))?;
    let (tool, number) = rest.split_once(',')?.0.rsplit_once(':')?;
    Some((tool.to_owned(), number.parse().ok()?))
}
