//! What a finding is worth: views of one moment that differ in nothing but in what stands for one exploration, the results of
//! which were evicted although the answer needs some of them. Owns the choice of the exploration and the forms that stand for
//! it, which but for the whole one are filled up to one size as far as other evicted results go; never asks a model.

mod explored;
mod fill;
mod finding;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use plimsoll_core::policy::Policy;
use plimsoll_core::session::tombstone;
use plimsoll_scripted::plan::TOOL;
use serde_json::{Value, json};

use self::explored::{Explored, Read, Step, read, runs, stub_id, texts};
use self::fill::fill;
use self::finding::{Exploration, finding};
use super::anchors::Needs;
use super::sample::{self, Choice, Drawn};
use super::seats::{self, Depth, Maker, Seat};
use super::views::{self, ViewLine, Views, Writer, WrittenView};
use super::{Lab, ReplayError, Source, Watch};

/// Tokens of a tombstone without its description, and of its call.
const EXCHANGE: u64 = 60;

/// What stands for an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing.
    Nothing,
    /// What the policy leaves: the calls, and a line or some lines for each result.
    Stubs,
    /// Its tombstone, with what the scripted model says, which is nothing about it.
    Scripted,
    /// Its tombstone, with what a reader of it would write down ([`finding`]).
    Finding,
    /// Its tombstone, with what is needed of it later.
    Foreseen,
    /// What the policy leaves, and what a reader of it would write down.
    StubsAndFinding,
    /// All of it.
    Whole,
}

impl Form {
    const WORDS: [(&'static str, Self); 7] = [
        ("nothing", Self::Nothing),
        ("stubs", Self::Stubs),
        ("scripted", Self::Scripted),
        ("finding", Self::Finding),
        ("foreseen", Self::Foreseen),
        ("stubs+finding", Self::StubsAndFinding),
        ("whole", Self::Whole),
    ];
}

/// Writes the views of each form, at turns whose answer needs what was evicted of an exploration. The first policy of the
/// lab that evicts makes the view that they begin with.
///
/// # Errors
/// [`ReplayError`] where a session can't be read or played.
pub fn write(
    lab: &Lab,
    sources: &[Source],
    choice: &Choice,
    watch: &dyn Watch,
) -> Result<Views, ReplayError> {
    let seat = seat(lab);
    let fair = |session: &Drawn| moments(lab, session, &seat);
    let drawn = sample::draw(lab, sources, choice, &fair, watch)?;
    let kinds = Form::WORDS.map(|(word, _)| (word.to_owned(), setting(&seat, lab)));
    views::gather(
        lab,
        &drawn,
        &kinds,
        &|session| lines(lab, session, &seat),
        watch,
    )
}

fn seat(lab: &Lab) -> Seat {
    let mut policies = lab.options.policies.iter();
    let first = policies.find(|ladder| ladder.main() != Policy::None);
    Seat {
        maker: Maker::Policies(first.cloned().unwrap_or_default()),
        depth: Depth::Own,
    }
}

fn setting(seat: &Seat, lab: &Lab) -> Value {
    json!({"policy": seat.name(), "depth": seat.setting(lab)})
}

/// The answers at which a comparison can be made.
fn moments(lab: &Lab, session: &Drawn, seat: &Seat) -> Result<HashSet<usize>, ReplayError> {
    let needs = Needs::of(&session.trace);
    let explored = Explored::of(session);
    let all = session.everywhere();
    let mut found = HashSet::new();
    seats::play(lab, &all, std::slice::from_ref(seat), &mut |shown| {
        if Moment::find(&needs, &explored, shown.at, &shown.messages).is_some() {
            found.insert(shown.at);
        }
    })?;
    Ok(found)
}

fn lines(lab: &Lab, session: &Drawn, seat: &Seat) -> Result<Vec<ViewLine>, ReplayError> {
    let mut writer = Writer::new(lab, session);
    let explored = Explored::of(session);
    let setting = setting(seat, lab);
    let mut lines = Vec::new();
    seats::play(lab, session, std::slice::from_ref(seat), &mut |shown| {
        let moment = Moment::find(&writer.needs, &explored, shown.at, &shown.messages);
        let Some(moment) = moment else { return };
        let views = moment.views(lab, &writer.needs, &explored);
        for (kind, ((word, _), messages)) in Form::WORDS.iter().zip(&views).enumerate() {
            lines.extend(writer.line(&WrittenView {
                at: shown.at,
                block: shown.block,
                kind: (kind, word),
                setting: &setting,
                messages,
            }));
        }
    })?;
    Ok(lines)
}

/// One exploration, or a run of its steps, whose results a view does not show whole though an answer needs some of them.
struct Moment<'a> {
    /// The answer.
    at: usize,
    name: &'a str,
    /// Where it stands among the session's messages.
    run: Range<usize>,
    ids: BTreeSet<String>,
    /// The view, and which of its messages are of the run.
    view: &'a [Vec<u8>],
    own: Vec<bool>,
}

impl<'a> Moment<'a> {
    /// Finds the run that holds most of what the answer needs and the view lacks; of several the newest.
    fn find(
        needs: &Needs,
        explored: &'a Explored<'_>,
        at: usize,
        view: &'a [Vec<u8>],
    ) -> Option<Self> {
        let ask = needs.asks.get(at)?;
        if ask.strings.is_empty() && ask.lines.is_empty() {
            return None;
        }
        let held = needs.contents(view);
        let strings = ask
            .strings
            .iter()
            .filter(|one| !held.strings.contains(*one));
        let lines = ask.lines.iter().filter(|one| !held.lines.contains(*one));
        let (strings, lines): (HashSet<u32>, HashSet<u32>) =
            (strings.copied().collect(), lines.copied().collect());
        if strings.is_empty() && lines.is_empty() {
            return None;
        }
        let messages: Vec<Read> = view
            .iter()
            .map(|one| read(one).unwrap_or_default())
            .collect();
        let shown = texts(&messages);
        let mut best: Option<(usize, &str, Vec<&Step>)> = None;
        for (name, steps) in &explored.all {
            let before = steps.iter().filter(|step| step.at.end <= at);
            for run in runs(before, |step| explored.is_gone(step, &shown)) {
                let messages = run.iter().flat_map(|step| explored.raw(step.at.clone()));
                let own = needs.contents(messages.map(|one| &one.raw));
                let missed = own.strings.intersection(&strings).count()
                    + own.lines.intersection(&lines).count();
                let least = best.as_ref().map_or(1, |(most, _, _)| *most);
                if missed >= least {
                    best = Some((missed, name.as_str(), run));
                }
            }
        }
        let (_, name, run) = best?;
        let (first, last) = (run.first()?, run.last()?);
        let ids: BTreeSet<String> = run
            .iter()
            .flat_map(|step| step.ids.iter().cloned())
            .collect();
        let own = messages.iter().map(|one| {
            let answers = one.answers.as_ref().is_some_and(|id| ids.contains(id));
            answers || one.calls.iter().any(|id| ids.contains(id))
        });
        let own: Vec<bool> = own.collect();
        // What left without a trace has no place in the view where something could stand for it.
        own.contains(&true).then_some(Self {
            at,
            name,
            run: first.at.start..last.at.end,
            ids,
            view,
            own,
        })
    }

    /// The view with each form in the place of the run, in the order of [`Form::WORDS`]. All but the whole one are brought
    /// to the size of the largest of them with lines of other results that were evicted.
    fn views(&self, lab: &Lab, needs: &Needs, explored: &Explored<'_>) -> Vec<Vec<Vec<u8>>> {
        let forms = Form::WORDS.map(|(_, form)| (form, self.form(form, lab, needs, explored)));
        let equal = forms.iter().filter(|(form, _)| *form != Form::Whole);
        let target = equal.map(|(_, view)| seats::tokens(lab, view)).max();
        let target = target.unwrap_or_default();
        let originals = explored.originals(self.at);
        let level = |(form, mut view): (Form, Vec<Vec<u8>>)| {
            if form != Form::Whole {
                fill(lab, &mut view, &originals, &self.ids, target);
            }
            view
        };
        forms.into_iter().map(level).collect()
    }

    fn form(&self, form: Form, lab: &Lab, needs: &Needs, explored: &Explored<'_>) -> Vec<Vec<u8>> {
        let exploration = Exploration {
            messages: explored.messages,
            run: self.run.clone(),
            at: self.at,
        };
        let own = self.view.iter().zip(&self.own).filter(|(_, own)| **own);
        let stubs: Vec<Vec<u8>> = own.map(|(message, _)| message.clone()).collect();
        // What stands for the exploration may be as long as what the policy leaves of it.
        let room = seats::tokens(lab, &stubs).saturating_sub(EXCHANGE);
        let written = |foreseen: bool, room: u64| {
            let fits = |text: &str| seats::text_tokens(lab, text) <= room;
            finding(&exploration, needs, foreseen, &fits)
        };
        let stands: Vec<Vec<u8>> = match form {
            Form::Nothing => Vec::new(),
            Form::Stubs => stubs,
            Form::Scripted => self.tombstone(lab, &self.scripted(explored), explored),
            Form::Finding => self.tombstone(lab, &written(false, room), explored),
            Form::Foreseen => self.tombstone(lab, &written(true, room), explored),
            Form::StubsAndFinding => {
                let ended = self.ended(&written(false, 0));
                stubs.into_iter().chain(ended).collect()
            }
            Form::Whole => {
                let whole = explored.raw(self.run.clone()).iter();
                whole.map(|one| one.raw.to_vec()).collect()
            }
        };
        let first = self.own.iter().position(|own| *own).unwrap_or_default();
        let (before, behind) = self.view.split_at(first.min(self.view.len()));
        let others = self.own.iter().skip(first);
        let behind = behind.iter().zip(others).filter(|(_, own)| !**own);
        let behind = behind.map(|(message, _)| message.clone());
        before.iter().cloned().chain(stands).chain(behind).collect()
    }

    /// What the scripted model says of the exploration; it says the same kind of thing of all.
    fn scripted(&self, explored: &Explored<'_>) -> String {
        let of = |(calls, _): &&(Vec<String>, String)| calls.iter().any(|id| self.ids.contains(id));
        let mut all = explored.scripted.iter();
        let found = all.clone().find(of).or_else(|| all.next_back());
        let text = found.map(|(_, text)| text.clone());
        text.unwrap_or_else(|| "looked around before the next change".to_owned())
    }

    /// A start whose result is the tombstone of an exploration with a description, as a view shows one.
    fn tombstone(&self, lab: &Lab, description: &str, explored: &Explored<'_>) -> Vec<Vec<u8>> {
        let raw: Vec<Vec<u8>> = explored
            .raw(self.run.clone())
            .iter()
            .map(|one| one.raw.to_vec())
            .collect();
        let tokens = u32::try_from(seats::tokens(lab, &raw)).unwrap_or(u32::MAX);
        let mut named: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let results = self.view.iter().zip(&self.own).filter(|(_, own)| **own);
        for id in results.filter_map(|(raw, _)| stub_id(&read(raw)?.text?)) {
            named.entry(id.0).or_default().push(id.1);
        }
        let by_tool = named.iter().map(|(tool, ids)| (tool.as_str(), ids.clone()));
        let count = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let line = tombstone::evicted_line(count, tokens, &by_tool.collect());
        let told = tombstone::told(self.name, Some(description), &line);
        let start = json!({"action": "start", "type": "expl", "name": self.name});
        exchange(&start, &told).to_vec()
    }

    /// An end with a description, as it stands behind the calls of an exploration.
    fn ended(&self, description: &str) -> [Vec<u8>; 2] {
        let end = json!({"action": "end", "description": description});
        exchange(&end, &format!("closed expl \"{}\"", self.name))
    }
}

fn exchange(arguments: &Value, result: &str) -> [Vec<u8>; 2] {
    let id = "call_delimiter";
    let call = json!({"id": id, "type": "function",
        "function": {"name": TOOL, "arguments": arguments.to_string()}});
    [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": id, "content": result}),
    ]
    .map(|message| message.to_string().into_bytes())
}

#[cfg(test)]
mod tests;
