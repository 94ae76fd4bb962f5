//! What a session's records tell without any content: its items with their sizes and marks, and its
//! episodes. Owns how records are read for that.

use std::collections::BTreeMap;

use plimsoll_core::session::path::{ASSISTANT_ITEMS, Path};
use plimsoll_model::{
    Effect, ExplicitKind, HiddenCall, HiddenTool, ItemKind, ItemNo, Mark, StoredHop, TurnRecord,
};

/// Whose an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoryRole {
    /// System text.
    System,
    /// User text.
    User,
    /// Text or reasoning of the model.
    Assistant,
    /// A call of a tool of the client's, with its result.
    Call,
    /// A call of a hidden tool, with its result.
    Hidden,
}

impl StoryRole {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Call => "call",
            Self::Hidden => "hidden",
        }
    }
}

/// An item.
#[derive(Clone, Debug)]
pub struct StoryItem {
    /// Its number.
    pub no: ItemNo,
    /// Its id, as the view shows it.
    pub id: String,
    /// Whose it is.
    pub role: StoryRole,
    /// The tool of a call.
    pub tool: Option<String>,
    /// The turn that brought it.
    pub turn: u32,
    /// Its episode, by place.
    pub episode: Option<usize>,
    /// Its size as it came, result included.
    pub tokens: Option<u32>,
    /// From which turn on it had which mark.
    pub marks: Vec<(u32, Mark)>,
    /// Its size in the view from a turn on.
    pub sizes: Vec<(u32, u32)>,
    /// Whether it brought originals back.
    pub recalled: bool,
}

impl StoryItem {
    /// Its mark at a turn.
    #[must_use]
    pub fn mark_at(&self, turn: u32) -> Mark {
        let before = self.marks.iter().rev().find(|(at, _)| *at <= turn);
        before.map_or(Mark::Live, |(_, mark)| *mark)
    }

    /// Notes its size from a turn on.
    fn resize(&mut self, turn: u32, tokens: u32) {
        self.sizes.retain(|(at, _)| *at != turn);
        self.sizes.push((turn, tokens));
    }

    /// Its size in the view at a turn.
    #[must_use]
    pub fn size_at(&self, turn: u32) -> Option<u32> {
        let before = self.sizes.iter().rev().find(|(at, _)| *at <= turn);
        before.map(|(_, size)| *size)
    }
}

/// An episode that the model marked.
#[derive(Clone, Debug)]
pub struct StoryEpisode {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ExplicitKind,
    /// The names of the explorations that it builds on.
    pub deps: Vec<String>,
    /// The turn in which it began.
    pub start: u32,
    /// The turn in which it ended.
    pub end: Option<u32>,
    /// What was learned.
    pub finding: Option<String>,
}

/// What a session's records tell.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// Its items in order.
    pub items: Vec<StoryItem>,
    /// Its episodes in order.
    pub episodes: Vec<StoryEpisode>,
    /// The items by number.
    places: BTreeMap<ItemNo, usize>,
    open: Option<usize>,
}

/// The word of a mark.
#[must_use]
pub const fn mark_name(mark: Mark) -> &'static str {
    match mark {
        Mark::Live => "live",
        Mark::Clipped => "clipped",
        Mark::Masked => "masked",
        Mark::Tombstone => "tombstone",
        Mark::Trimmed => "trimmed",
        Mark::Removed => "removed",
    }
}

/// A call of an answer: the client's, or a hidden one.
enum Said<'a> {
    Visible(&'a str),
    Hidden(&'a HiddenCall),
}

impl Story {
    /// Reads a path.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let mut story = Self::default();
        for entry in &path.entries {
            let record = &entry.record;
            story.sizes(record);
            story.brought(record);
            story.said(record);
            for hop in &record.hops {
                story.moved(record.turn, hop);
            }
        }
        story
    }

    /// An item by its number or its id.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&StoryItem> {
        let number = name.rsplit(':').next()?.parse().ok().map(ItemNo)?;
        let item = self.items.get(*self.places.get(&number)?)?;
        (!name.contains(':') || item.id.eq_ignore_ascii_case(name)).then_some(item)
    }

    /// An item by its number.
    #[must_use]
    pub fn numbered(&self, no: ItemNo) -> Option<&StoryItem> {
        self.items.get(*self.places.get(&no)?)
    }

    fn push(&mut self, item: StoryItem) {
        // A client that edits its history may have a number read twice. The first stands.
        if !self.places.contains_key(&item.no) {
            self.places.insert(item.no, self.items.len());
            self.items.push(item);
        }
    }

    /// Takes in the sizes that a record tells of the answer before it and of results.
    fn sizes(&mut self, record: &TurnRecord) {
        for size in &record.facts.items {
            let (no, tokens) = (size.0, size.2);
            let Some(item) = self.places.get(&no).and_then(|at| self.items.get_mut(*at)) else {
                continue;
            };
            match size.kind() {
                ItemKind::Result => {
                    let whole = item.tokens.map_or(tokens, |own| own + tokens);
                    item.tokens = Some(whole);
                    item.resize(record.turn, whole);
                }
                ItemKind::Call | ItemKind::Text | ItemKind::Reasoning => {
                    item.tokens = Some(tokens);
                    if item.sizes.is_empty() {
                        item.resize(record.turn, tokens);
                    }
                }
                ItemKind::System | ItemKind::User | ItemKind::Opaque => {}
            }
        }
    }

    /// Adds what the client brought with a turn.
    fn brought(&mut self, record: &TurnRecord) {
        let turn = record.turn;
        let facts = &record.facts;
        let tool = |no| {
            let mut tools = facts.tools.iter();
            tools
                .find(|(of, _)| *of == no)
                .map(|(_, name)| name.as_str())
        };
        for size in &facts.items {
            let (no, tokens) = (size.0, Some(size.2));
            if size.kind() != ItemKind::Result && self.places.contains_key(&no) {
                continue;
            }
            let (kind, role) = match size.kind() {
                ItemKind::System => ("system", StoryRole::System),
                ItemKind::User => ("user", StoryRole::User),
                ItemKind::Text => ("text", StoryRole::Assistant),
                ItemKind::Reasoning => ("reasoning", StoryRole::Assistant),
                ItemKind::Opaque => ("item", StoryRole::User),
                ItemKind::Call => (tool(no).unwrap_or("call"), StoryRole::Call),
                ItemKind::Result => {
                    self.result(no, turn, size.2);
                    continue;
                }
            };
            let mut new = item(no, kind, role, turn, tokens);
            new.tool = (role == StoryRole::Call).then(|| kind.to_owned());
            if role != StoryRole::System && role != StoryRole::User {
                new.episode = self.open;
            }
            self.push(new);
        }
    }

    /// Adds the result of a call that came with the same turn.
    fn result(&mut self, no: ItemNo, turn: u32, tokens: u32) {
        let at = self.places.get(&no);
        let Some(item) = at.and_then(|at| self.items.get_mut(*at)) else {
            return;
        };
        if item.turn == turn {
            let whole = item.tokens.map_or(tokens, |own| own + tokens);
            item.tokens = Some(whole);
            item.sizes = vec![(turn, whole)];
        }
    }

    /// Adds what the model said in a turn.
    fn said(&mut self, record: &TurnRecord) {
        let turn = record.turn;
        let mut first = record.first_item;
        for hop in &record.hops {
            let mut calls: Vec<Said<'_>> = Vec::new();
            if hop.message.is_none() {
                calls.extend(record.calls.iter().map(|(_, name)| Said::Visible(name)));
            }
            for call in &hop.calls {
                let place = (call.place as usize).min(calls.len());
                let hidden_alone = hop.message.is_some();
                if hidden_alone {
                    calls.push(Said::Hidden(call));
                } else {
                    calls.insert(place, Said::Hidden(call));
                }
            }
            let before = self.open;
            let mut opened = None;
            let mut placed = Vec::new();
            for (place, call) in (0..).zip(&calls) {
                let no = first.plus(ASSISTANT_ITEMS + place);
                let (item, opens) = self.call(no, turn, call);
                opened = opens.or(opened);
                placed.push(item);
            }
            let spoken = [(0, "reasoning", hop.reasoning), (1, "text", hop.text)];
            for (place, kind, tokens) in spoken.into_iter().filter(|(_, _, tokens)| *tokens > 0) {
                let no = first.plus(place);
                let mut new = item(no, kind, StoryRole::Assistant, turn, Some(tokens));
                new.episode = opened.or(before);
                self.push(new);
            }
            for item in placed {
                self.push(item);
            }
            first = first.plus(ASSISTANT_ITEMS + u32::try_from(calls.len()).unwrap_or(0));
        }
    }

    /// A call, and the episode that it opens.
    fn call(&mut self, no: ItemNo, turn: u32, call: &Said<'_>) -> (StoryItem, Option<usize>) {
        let hidden = match call {
            Said::Visible(name) => {
                let mut new = item(no, name, StoryRole::Call, turn, None);
                new.tool = Some((*name).to_owned());
                new.episode = self.open;
                return (new, None);
            }
            Said::Hidden(hidden) => hidden,
        };
        let tool = match hidden.tool {
            HiddenTool::Delimiter => "delimiter",
            HiddenTool::Recall => "recall",
        };
        let tokens = hidden.tokens + hidden.result_tokens;
        let mut new = item(no, tool, StoryRole::Hidden, turn, Some(tokens));
        new.tool = Some(tool.to_owned());
        new.episode = self.open;
        let mut opened = None;
        match &hidden.effect {
            Effect::Started {
                name,
                kind,
                dependencies,
            } => {
                self.close(turn, None);
                self.episodes.push(StoryEpisode {
                    name: name.clone(),
                    kind: *kind,
                    deps: dependencies.clone(),
                    start: turn,
                    end: None,
                    finding: None,
                });
                self.open = Some(self.episodes.len() - 1);
                (new.episode, opened) = (self.open, self.open);
            }
            Effect::Ended { description, .. } => self.close(turn, description.clone()),
            Effect::Recalled { .. } => new.recalled = true,
            Effect::Refused => {}
        }
        (new, opened)
    }

    fn close(&mut self, turn: u32, finding: Option<String>) {
        let open = self.open.take();
        if let Some(episode) = open.and_then(|at| self.episodes.get_mut(at)) {
            (episode.end, episode.finding) = (Some(turn), finding);
        }
    }

    /// Takes in the marks that a hop moved.
    fn moved(&mut self, turn: u32, hop: &StoredHop) {
        for (at, (no, mark)) in hop.marks.iter().enumerate() {
            let place = self.places.get(no);
            let Some(item) = place.and_then(|place| self.items.get_mut(*place)) else {
                continue;
            };
            let trimmed = hop.kept.iter().any(|(of, kept)| of == no && kept.trimmed);
            let mark = match Mark::from(*mark) {
                Mark::Tombstone if trimmed => Mark::Trimmed,
                mark => mark,
            };
            item.marks.push((turn, mark));
            if let Some(left) = hop.left.get(at) {
                item.resize(turn, *left);
            } else if mark == Mark::Removed {
                item.resize(turn, 0);
            }
        }
    }
}

fn item(no: ItemNo, kind: &str, role: StoryRole, turn: u32, tokens: Option<u32>) -> StoryItem {
    StoryItem {
        no,
        id: format!("{kind}:{no}"),
        role,
        tool: None,
        turn,
        episode: None,
        tokens,
        marks: Vec::new(),
        sizes: tokens
            .map(|tokens| vec![(turn, tokens)])
            .unwrap_or_default(),
        recalled: false,
    }
}
