//! The laws over random conversations: whatever is said, under whatever budget, each hop of
//! [`Sim`] judges its own body, and here the conversations are made.

use plimsoll_model::Globs;
use plimsoll_model::ReasoningBack;
use plimsoll_wire::Dialect;
use proptest::prelude::*;
use serde_json::Value;

use super::say::{Say, act, again, bring, call, done, end, expl, hop, same, text, think, unhidden};
use super::sim::Sim;
use super::terminals::Terminals;
use crate::commit::Floor;
use crate::policy::{Ladder, Order, Policy, Rung, When};
use crate::turn::settings::{Guidance, Offer, ProtectRecent};
use crate::turn::{NamedAsk, PinAsk, RungSettings};

/// A piece of a turn before it is known what is open.
#[derive(Clone, Debug)]
pub enum Piece {
    Text(u32),
    Think(u32),
    Call(usize, u32),
    /// A call whose result is that of an earlier one.
    Again(usize, usize),
    /// The newest call once more, with the same result.
    Same,
    /// A call that shows the last lines of a terminal: how many were written since, and how many it shows.
    Screen(usize, u32, u32),
    /// Whatever is due: an end where something is open, else a start.
    Mark,
    /// A call of `delimiter` out of place, which is refused.
    Wrong(u8),
    /// A call of `recall` for one of the ids that there are, and for which part of it.
    Recall(prop::sample::Index, u8),
    Hop,
}

/// What happens in a conversation.
#[derive(Clone, Debug)]
pub enum Event {
    User(u32),
    Turn(Vec<Piece>),
    /// The next turn is asked to pin one of the ids that there are, or to lift its pin.
    Pin(prop::sample::Index, bool),
    /// One of the ids that there are is asked to be evicted, in a pass of its own or in the next.
    Evict(prop::sample::Index, bool),
    /// One of the ids that there are is asked to be brought back.
    Bring(prop::sample::Index),
    /// The client blanks the result at this place.
    Blank(prop::sample::Index),
    /// A turn that is cut at the hop cap, with text or with the proxy's own line.
    Capped(u8, bool),
    /// The client drops the assistant message at this place, and its results.
    Drop(prop::sample::Index),
    /// The client rewrites the text of the assistant message at this place.
    Reword(prop::sample::Index),
}

const TOOLS: [&str; 5] = ["grep", "read", "bash", "edit", "odd"];

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        2 => (1_u32..60).prop_map(Piece::Text),
        2 => (1_u32..80).prop_map(Piece::Think),
        8 => (0..TOOLS.len(), 1_u32..400).prop_map(|(tool, size)| Piece::Call(tool, size)),
        2 => (0..TOOLS.len(), 0_usize..9).prop_map(|(tool, back)| Piece::Again(tool, back)),
        2 => Just(Piece::Same),
        4 => (0_usize..2, 0_u32..15, 5_u32..60)
            .prop_map(|(tool, adds, height)| Piece::Screen(tool, adds, height)),
        5 => Just(Piece::Mark),
        1 => (0_u8..4).prop_map(Piece::Wrong),
        2 => (any::<prop::sample::Index>(), 0_u8..8).prop_map(|(id, part)| Piece::Recall(id, part)),
        1 => Just(Piece::Hop),
    ]
}

pub fn turn() -> impl Strategy<Value = Event> {
    event(false)
}

impl Event {
    /// Whether the client changes its history.
    pub fn is_edit(&self) -> bool {
        matches!(self, Self::Blank(_) | Self::Drop(_) | Self::Reword(_))
    }
}

pub fn event(edits: bool) -> impl Strategy<Value = Event> {
    let edit = u32::from(edits);
    prop_oneof![
        3 => (1_u32..60).prop_map(Event::User),
        20 => prop::collection::vec(piece(), 1..7).prop_map(Event::Turn),
        1 => (1_u8..4, any::<bool>()).prop_map(|(hops, said)| Event::Capped(hops, said)),
        1 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(id, set)| Event::Pin(id, set)),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(id, now)| Event::Evict(id, now)),
        2 => any::<prop::sample::Index>().prop_map(Event::Bring),
        edit => any::<prop::sample::Index>().prop_map(Event::Blank),
        edit => any::<prop::sample::Index>().prop_map(Event::Drop),
        edit => any::<prop::sample::Index>().prop_map(Event::Reword),
    ]
}

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct SessionTerms {
    ceiling: u32,
    floor: Option<f64>,
    recent: u32,
    implicit: u32,
    strict: bool,
    prologue: bool,
    reasoning_back: bool,
    drops_reasoning: bool,
    guidance: bool,
    auto_close: bool,
    recall: bool,
    levels: bool,
    ladder: Ladder,
    keeps: bool,
    /// The only tool that `cwl` may touch, and a floor of its own.
    filter: Option<(usize, f64)>,
    offer: Offer,
    guide_at: f64,
}

impl SessionTerms {
    /// A session that never needs a pass.
    pub fn endless() -> Self {
        Self {
            ceiling: 1_000_000,
            floor: None,
            recent: 0,
            implicit: 300,
            strict: false,
            prologue: false,
            reasoning_back: false,
            drops_reasoning: false,
            guidance: false,
            auto_close: false,
            recall: true,
            levels: false,
            ladder: Ladder::default(),
            keeps: false,
            filter: None,
            offer: Offer::Start,
            guide_at: 0.0,
        }
    }

    /// This run without `recall`.
    pub fn without_recall(self) -> Self {
        Self {
            recall: false,
            ..self
        }
    }

    /// One of short spans, whose new results are clipped.
    pub fn short_spans(ceiling: u32) -> Self {
        Self {
            ceiling,
            implicit: 50,
            levels: true,
            ladder: ladder(&[false, true]),
            ..Self::endless().without_recall()
        }
    }

    /// One that needs many, with `recall`.
    pub fn tight(ceiling: u32) -> Self {
        Self {
            ceiling,
            levels: ceiling.is_multiple_of(2),
            ..Self::endless()
        }
    }
}

pub fn terms() -> impl Strategy<Value = SessionTerms> {
    let budget = (700_u32..5000, prop::option::of(0.2_f64..0.95), 0_u32..700);
    let flags = any::<[bool; 13]>();
    let guide = (
        prop::sample::select(&[Offer::Start, Offer::Line][..]),
        prop::sample::select(&[0.0, 0.0, 0.4, 1.0, 1.0][..]),
    );
    let filter = prop::option::weighted(0.2, (0..TOOLS.len(), 0.2_f64..1.0));
    let all = (budget, 50_u32..1200, flags, filter, guide);
    all.prop_map(
        |((ceiling, floor, recent), implicit, flags, filter, (offer, guide_at))| SessionTerms {
            ceiling,
            floor,
            recent,
            implicit,
            strict: flags[0],
            prologue: flags[7],
            reasoning_back: flags[1],
            drops_reasoning: flags[2] && !flags[1],
            guidance: flags[3],
            auto_close: flags[4],
            recall: flags[6],
            levels: flags[5],
            ladder: ladder(&flags[8..]),
            keeps: flags[11],
            filter,
            offer,
            guide_at,
        },
    )
}

/// The episode graph, with some of the rungs for new results before it.
/// The ladder of the entering policies that are wanted, before `cwl`; the fifth says whether that runs at user
/// messages, too.
fn ladder(wanted: &[bool]) -> Ladder {
    let entering = [Policy::Repeat, Policy::Admit, Policy::LoopGuard];
    let wants = |at: usize| wanted.get(at).is_some_and(|wanted| *wanted);
    let entering = (0..).zip(entering).filter(|(at, _)| wants(*at));
    let rungs = entering.map(|(_, policy)| policy);
    let rungs = rungs.chain([Policy::Keep, Policy::Cwl]).map(Rung::new);
    let moments = [When::User, When::Forecast]
        .into_iter()
        .filter(|_| wants(4));
    let moments = moments.map(|when| Rung {
        policy: Policy::Cwl,
        when,
    });
    Ladder::new(rungs.chain(moments).collect()).unwrap()
}

pub fn session(terms: &SessionTerms) -> Sim {
    let mut sim = Sim::new();
    sim.thorough = true;
    sim.prologue = terms.prologue;
    sim.drops_reasoning = terms.drops_reasoning;
    if terms.reasoning_back {
        sim.family.reasoning_back = ReasoningBack::Calls;
    }
    let budget = &mut sim.settings.budget;
    budget.ceiling = terms.ceiling;
    budget.floor = terms.floor.map_or(Floor::Ceiling, Floor::Fraction);
    budget.protect_recent = ProtectRecent::Tokens(terms.recent);
    budget.implicit_tokens = terms.implicit;
    budget.strict_active = terms.strict;
    budget.ladder = terms.ladder.clone();
    if terms.keeps {
        budget.keep.tools = Globs::new(&["grep".to_owned()]).unwrap();
        budget.keep.newest = 3;
    }
    if let Some((tool, floor)) = terms.filter {
        let of = RungSettings {
            tools: Globs::new(&[TOOLS[tool].to_owned()]).unwrap(),
            floor: Some(floor),
            ..RungSettings::default()
        };
        budget.rungs.insert(Policy::Cwl, of);
    }
    // So that pins loosen now and then.
    budget.keep.share = 0.2;
    budget.admit.limits.tokens = 100;
    budget.admit.reads = terms.recall;
    (budget.offer, budget.guide_at) = (terms.offer, terms.guide_at);
    if terms.levels {
        budget.order = Order::Levels;
        sim.labels.rich = true;
    }
    sim.settings.delimiter.auto_close = terms.auto_close;
    sim.settings.recall.enabled = terms.recall;
    if terms.guidance {
        sim.settings.delimiter.guidance = Guidance::Standard;
    }
    sim
}

/// Turns pieces into what a model that knows the protocol says.
#[derive(Default)]
struct Script {
    auto_close: bool,
    open: Option<bool>,
    closed: Vec<String>,
    begun: usize,
    terminals: Terminals,
}

impl Script {
    fn said(&mut self, pieces: &[Piece], ids: &[String]) -> Vec<Say> {
        let mut said: Vec<Say> = Vec::new();
        let mut thought = false;
        for piece in pieces {
            match piece {
                Piece::Text(tokens) => said.push(text(*tokens)),
                Piece::Think(_) if thought => {}
                Piece::Think(tokens) => {
                    thought = true;
                    said.push(think(*tokens));
                }
                Piece::Call(tool, size) => said.push(call(TOOLS[*tool], *size)),
                Piece::Again(tool, back) => said.push(again(TOOLS[*tool], *back)),
                Piece::Same => said.push(same()),
                Piece::Screen(tool, adds, height) => {
                    let tool = ["bash", "odd"][*tool];
                    said.push(bring(tool, &self.terminals.shown(tool, *adds, *height)));
                }
                Piece::Mark => said.push(self.mark()),
                Piece::Wrong(which) => said.push(wrong(*which)),
                Piece::Recall(id, part) if !ids.is_empty() => {
                    said.push(recalled(&ids[id.index(ids.len())], *part));
                }
                Piece::Recall(..) => {}
                Piece::Hop => {
                    let hidden = last_hop(&said)
                        .iter()
                        .any(|say| matches!(say, Say::Delimit(_) | Say::Recall(_)));
                    let visible = last_hop(&said).iter().any(Say::is_call);
                    if hidden && !visible {
                        said.push(hop());
                        thought = false;
                    }
                }
            }
        }
        if said.iter().all(|say| matches!(say, Say::Think(_))) {
            said.push(text(1));
        }
        said
    }

    fn mark(&mut self) -> Say {
        let closes = self.auto_close && self.begun % 4 == 1;
        if closes && self.open.take() == Some(true) {
            self.closed.push(format!("e{}", self.begun));
        }
        match self.open.take() {
            Some(true) => {
                self.closed.push(format!("e{}", self.begun));
                end(&format!(
                    "learned-{} {}",
                    self.begun,
                    "much ".repeat(self.begun % 40)
                ))
            }
            Some(false) => done(),
            None => {
                self.begun += 1;
                let name = format!("e{}", self.begun);
                let explores = !self.begun.is_multiple_of(3);
                self.open = Some(explores);
                if explores {
                    return expl(&name);
                }
                let step = self.begun % 2 + 1;
                let names = self.closed.iter().rev().step_by(step).take(2);
                act(&name, &names.map(String::as_str).collect::<Vec<_>>())
            }
        }
    }
}

/// A recall of all of it, of some lines, or of what matches.
fn recalled(id: &str, part: u8) -> Say {
    let mut arguments = serde_json::json!({"id": id});
    match part {
        5 => arguments["lines"] = Value::from("1-2"),
        6 => arguments["search"] = Value::from("go"),
        7 => arguments["lines"] = Value::from("2-"),
        _ => {}
    }
    Say::Recall(arguments)
}

fn last_hop(said: &[Say]) -> &[Say] {
    said.rsplit(|say| *say == Say::Hop)
        .next()
        .unwrap_or_default()
}

fn wrong(which: u8) -> Say {
    match which {
        0 => act("x", &["nobody"]),
        1 => Say::Delimit(Value::from(7)),
        2 => Say::Delimit(serde_json::json!({"action": "begin"})),
        _ => Say::Delimit(serde_json::json!({"action": "end", "name": "nobody"})),
    }
}

pub fn play(terms: &SessionTerms, events: &[Event]) -> Sim {
    play_in(Dialect::Chat, terms, events)
}

pub fn play_in(dialect: Dialect, terms: &SessionTerms, events: &[Event]) -> Sim {
    let mut sim = session(terms);
    sim.dialect = dialect;
    play_on(sim, terms, events)
}

pub fn play_on(mut sim: Sim, terms: &SessionTerms, events: &[Event]) -> Sim {
    let mut script = Script {
        auto_close: terms.auto_close,
        ..Script::default()
    };
    for event in events {
        match event {
            Event::User(tokens) => sim.user(*tokens),
            Event::Turn(pieces) => {
                let ids = if terms.recall { sim.ids() } else { Vec::new() };
                let mut said = script.said(pieces, &ids);
                if !sim.tools {
                    unhidden(&mut said);
                }
                sim.turn(said);
                sim.pins.clear();
            }
            Event::Pin(place, set) => {
                let ids = sim.calls();
                if !ids.is_empty() {
                    let id = place.get(&ids).clone();
                    sim.pins.push(if *set {
                        PinAsk::Set(id)
                    } else {
                        PinAsk::Lift(id)
                    });
                }
            }
            Event::Evict(place, now) => {
                let ids = [sim.calls(), sim.ids()].concat();
                if !ids.is_empty() {
                    let (name, now) = (place.get(&ids).clone(), *now);
                    sim.evictions.push(NamedAsk { name, now });
                }
            }
            Event::Bring(place) => {
                let ids = sim.ids();
                let name = place.get(&ids).clone();
                sim.recalls.push(NamedAsk { name, now: true });
            }
            Event::Blank(place) => edit(&mut sim, place, "tool", |messages, at| {
                let mut message: Value = serde_json::from_str(&messages[at]).unwrap();
                message["content"] = Value::from("cleared");
                messages[at] = message.to_string();
            }),
            Event::Capped(..) if !sim.tools => sim.turn([text(4)]),
            Event::Capped(hops, said) => {
                let mut all = Vec::new();
                for _ in 0..*hops {
                    all.extend(said.then(|| text(4)));
                    all.extend([script.mark(), hop()]);
                }
                all.pop();
                sim.capped(all, (!said).then_some("line9 only annotated"));
            }
            Event::Reword(place) => edit(&mut sim, place, "assistant", |messages, at| {
                let mut message: Value = serde_json::from_str(&messages[at]).unwrap();
                if message["content"].is_string() {
                    message["content"] = Value::from("in other words");
                    messages[at] = message.to_string();
                }
            }),
            Event::Drop(place) => edit(&mut sim, place, "assistant", |messages, at| {
                messages.remove(at);
                while messages
                    .get(at)
                    .is_some_and(|next| next.contains(r#""role":"tool""#))
                {
                    messages.remove(at);
                }
            }),
        }
    }
    sim
}

/// Lets the client change one of its messages of a role.
fn edit(
    sim: &mut Sim,
    place: &prop::sample::Index,
    role: &str,
    change: impl FnOnce(&mut Vec<String>, usize),
) {
    let role = format!(r#""role":"{role}""#);
    let found: Vec<usize> = (0..sim.messages.len())
        .filter(|at| sim.messages[*at].contains(&role))
        .collect();
    if !found.is_empty() {
        change(&mut sim.messages, found[place.index(found.len())]);
        sim.align();
    }
}

/// A third of the cases that are asked for: each is a whole session, judged hop by hop.
pub fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig {
        cases: asked.cases / 3,
        failure_persistence: None,
        ..asked
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_laws_hold_over_any_conversation(
        terms in terms(),
        events in prop::collection::vec(event(false), 1..40),
    ) {
        play(&terms, &events);
    }

    #[test]
    fn every_policy_sends_what_a_provider_accepts(
        terms in terms(),
        policy in prop::sample::select(&Policy::ALL[..]),
        events in prop::collection::vec(event(true), 1..40),
    ) {
        let ladder = Ladder::from(policy);
        let terms = SessionTerms { ladder, ..terms };
        play(&terms, &events);
    }

    #[test]
    fn the_laws_hold_where_the_client_edits_its_history(
        terms in terms(),
        events in prop::collection::vec(event(true), 1..40),
    ) {
        play(&terms, &events);
    }

    /// The turn that brought tools and guidance in may be dropped, and leave nothing but that it did.
    #[test]
    fn what_was_brought_in_stays_without_the_turn_that_did(
        place in any::<prop::sample::Index>(),
        drops in any::<bool>(),
    ) {
        let terms = SessionTerms {
            ceiling: 1985,
            implicit: 50,
            guidance: true,
            recall: false,
            levels: true,
            offer: Offer::Line,
            guide_at: 1.0,
            ..SessionTerms::endless()
        };
        let turn = |piece| Event::Turn(vec![piece]);
        let edit = if drops { Event::Drop(place) } else { Event::Reword(place) };
        let calls = [turn(Piece::Call(0, 52)), turn(Piece::Call(3, 228))];
        let events = calls.into_iter().chain([turn(Piece::Text(1)), edit, turn(Piece::Hop)]);
        play(&terms, &events.collect::<Vec<_>>());
    }
}

/// Fewer: the order of eviction knows no dialect, and the conversations of chat try it.
pub fn fewer() -> ProptestConfig {
    let all = config();
    ProptestConfig {
        cases: all.cases / 3,
        ..all
    }
}

proptest! {
    #![proptest_config(fewer())]

    /// A client without tools may have a history with calls all the same.
    #[test]
    fn the_laws_hold_without_tools(
        dialect in prop::sample::select(&[Dialect::Chat, Dialect::Responses, Dialect::Messages][..]),
        terms in terms(),
        edits in any::<bool>(),
        calls in any::<bool>(),
        mut events in prop::collection::vec(event(true), 1..40),
    ) {
        let edits = edits && dialect == Dialect::Chat;
        let drops_reasoning = terms.drops_reasoning && dialect == Dialect::Chat;
        let terms = SessionTerms { recall: false, drops_reasoning, ..terms };
        events.retain(|event| edits || !event.is_edit());
        for event in &mut events {
            if let Event::Turn(pieces) = event
                && !calls
            {
                pieces.retain(|piece| !matches!(piece, Piece::Call(..)));
            }
        }
        let mut sim = session(&terms);
        (sim.dialect, sim.tools) = (dialect, false);
        play_on(sim, &terms, &events);
    }

    /// What is recalled is held to its original in chat alone.
    #[test]
    fn the_laws_hold_in_the_other_dialects(
        dialect in prop::sample::select(&[Dialect::Responses, Dialect::Messages][..]),
        terms in terms(),
        events in prop::collection::vec(event(false), 1..40),
    ) {
        let terms = SessionTerms { recall: false, drops_reasoning: false, ..terms };
        play_in(dialect, &terms, &events);
    }
}
