//! What a person asks of a session's view: a pass out of turn, that single items leave it, or that
//! originals come back. Owns what is refused at once, told from records alone, and what each ask costs. Never
//! moves a mark: the session's next turns do, and what their passes may not touch then stays.

use std::collections::HashSet;

use plimsoll_core::policy::{EvictionSettings, Order};
use plimsoll_core::turn::{Ask, NamedAsk, NoExchange, Overrides, PinAsk, may_speak};
use plimsoll_model::{ExplicitKind, ItemNo, MESSAGE_TOKENS, Mark};
use serde_json::{Value, json};

use super::error::ConsoleError;
use super::known::Known;
use super::rows;
use super::story::{Story, StoryItem, StoryRole};
use super::turns::{ratio, scaled};
use super::{Answer, Console};

/// An item of fewer tokens is no longer than the line that would stand in its place.
const SMALL: u32 = 48;
/// When something happens that was asked for now.
const NEXT_REQUEST: &str = "the session's next request";
/// When a pass comes that nobody asks for.
const NEXT_PASS: &str =
    "the next pass, which comes by itself when the view would exceed its budget";

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct EvictBody {
    now: bool,
    items: Option<Vec<String>>,
}

impl Console {
    /// Asks for a pass down to the floor with the session's next request, or for the eviction of items and
    /// episodes.
    ///
    /// # Errors
    /// As [`Self::session`], for what is not understood, and if nothing may be evicted.
    pub fn evict(&self, name: &str, body: &[u8]) -> Answer {
        let ask: EvictBody = serde_json::from_slice(body).map_err(|error| {
            let message = format!(
                "send a body like {{\"now\": true}} or {{\"items\": [\"Read:12\"], \"now\": false}}: {error}"
            );
            ConsoleError::new(400, "bad_body", message)
        })?;
        let known = self.read(name)?;
        match ask.items {
            None => self.evict_to_floor(&known, ask.now),
            Some(items) => self.evict_items(&known, &items, ask.now),
        }
    }

    /// Asks for a pass down to the floor if it is to happen `now`. Else only says what it would cost.
    fn evict_to_floor(&self, known: &Known, now: bool) -> Answer {
        let sizes = &known.row.sizes;
        let above = sizes.tokens_out.saturating_sub(sizes.floor);
        if rows::is_watched(&known.row) || above == 0 {
            let message = "the view is not above its floor: a pass would take nothing out";
            return Err(ConsoleError::new(409, "nothing_evictable", message));
        }
        if now {
            self.note(known, vec![Ask::Pass])?;
        }
        let from = if now { NEXT_REQUEST } else { NEXT_PASS };
        Ok(self.waits(known, from, above, sizes.floor))
    }

    /// Asks for the eviction of items: in the next pass, or in one that is made for it.
    fn evict_items(&self, known: &Known, names: &[String], now: bool) -> Answer {
        if names.is_empty() {
            let message = "name what is to be evicted: ids like \"Read:12\", or an episode";
            return Err(ConsoleError::new(400, "bad_body", message));
        }
        let story = Story::of(&known.path);
        let rules = Rules::of(self, known, &story)?;
        let mut goes: HashSet<ItemNo> = HashSet::new();
        let mut asks = Vec::new();
        for name in names {
            let items = rules
                .judge(name)
                .map_err(|why| why.refused(name, "evicted"))?;
            goes.extend(items.iter().map(|item| item.no));
            let name = name.clone();
            asks.push(Ask::Evict(NamedAsk { name, now }));
        }
        self.note(known, asks)?;
        let (tokens, after) = rules.sizes(&goes);
        let from = if now { NEXT_REQUEST } else { NEXT_PASS };
        Ok(self.waits(known, from, tokens, after))
    }

    /// Asks for originals to be brought back at the tail of the view: with the next pass, or with the next
    /// request if it is to happen now.
    ///
    /// # Errors
    /// As [`Self::session`], for what is not understood, and if nothing can be brought back.
    pub fn recall(&self, name: &str, body: &[u8]) -> Answer {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RecallBody {
            items: Vec<String>,
            #[serde(default)]
            now: bool,
        }
        let ask: RecallBody = serde_json::from_slice(body).map_err(|error| {
            let message =
                format!("send a body like {{\"items\": [\"Read:12\"], \"now\": true}}: {error}");
            ConsoleError::new(400, "bad_body", message)
        })?;
        if ask.items.is_empty() {
            let message = "name what is to come back: ids like \"Read:12\", or an episode";
            return Err(ConsoleError::new(400, "bad_body", message));
        }
        let known = self.read(name)?;
        self.may_recall(&known)?;
        let story = Story::of(&known.path);
        let (mut asks, mut tokens) = (Vec::new(), 0_u64);
        for name in ask.items {
            tokens += gone(&story, &name).map_err(|why| why.refused(&name, "recalled"))?;
            asks.push(Ask::Bring(NamedAsk { name, now: ask.now }));
        }
        self.note(&known, asks)?;
        // A turn recalls at most a quarter of the ceiling.
        let tokens = tokens.min(known.row.sizes.ceiling / 4);
        let prices = self.app.models.family(&known.row.model).prices;
        let units = plimsoll_proxy::record::lossy(tokens) * prices.write;
        let usd = plimsoll_tokens::Cost::usd(units, &prices);
        let from = if ask.now {
            NEXT_REQUEST
        } else {
            "the turn of the next pass"
        };
        Ok(json!({
            "session": known.row.session,
            "from": from,
            "tokens": tokens,
            "cost": {"tokens": tokens, "units": units, "usd": usd},
        }))
    }

    /// Takes back evictions and recalls that wait. Returns what still waits.
    ///
    /// # Errors
    /// As [`Self::session`], and for what is not understood.
    pub fn withdraw(&self, name: &str, body: &[u8]) -> Answer {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct WithdrawBody {
            items: Vec<String>,
        }
        let ask: WithdrawBody = serde_json::from_slice(body).map_err(|error| {
            let message = format!("send a body like {{\"items\": [\"Read:12\"]}}: {error}");
            ConsoleError::new(400, "bad_body", message)
        })?;
        let known = self.read(name)?;
        let session = known.row.of_session();
        self.app.asked.withdraw(session, &known.path, &ask.items);
        Ok(self.waiting(&known))
    }

    /// Asks for pins: ids as `recall` takes them, such as `read:12`, or `none`, which lifts all. Whether they name
    /// anything is known only when the turn comes.
    ///
    /// # Errors
    /// As [`Self::session`], and for what is not understood.
    pub fn pin(&self, name: &str, body: &[u8]) -> Answer {
        self.note_pins(name, body, PinAsk::read)
    }

    /// Asks for pins to be lifted.
    ///
    /// # Errors
    /// As [`Self::pin`].
    pub fn unpin(&self, name: &str, body: &[u8]) -> Answer {
        self.note_pins(name, body, PinAsk::read_lifted)
    }

    fn note_pins(
        &self,
        name: &str,
        body: &[u8],
        read: impl FnOnce(&str) -> Result<Vec<PinAsk>, String>,
    ) -> Answer {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct PinBody {
            ids: Vec<String>,
        }
        let pins = serde_json::from_slice::<PinBody>(body)
            .map_err(|error| format!("send a body like {{\"ids\": [\"read:12\"]}}: {error}"))
            .and_then(|PinBody { ids }| {
                read(&ids.join(" ")).map_err(|allowed| format!("`ids` {allowed}"))
            })
            .map_err(|message| ConsoleError::new(400, "bad_body", message))?;
        let known = self.read(name)?;
        self.note(&known, pins.into_iter().map(Ask::Pin).collect())?;
        Ok(json!({"session": known.row.session, "from": "the session's next turn"}))
    }

    /// Whether an exchange that its model did not have may stand in a session.
    fn may_recall(&self, known: &Known) -> Result<(), ConsoleError> {
        let refused = |message: String| Err(ConsoleError::new(409, "not_recallable", message));
        if rows::is_watched(&known.row) {
            return refused("this session is only observed: it is sent as it comes".to_owned());
        }
        if known
            .path
            .newest()
            .is_none_or(|record| record.recall.is_none())
        {
            let why = "the model is not offered `recall` in this session: nothing can come back";
            return refused(why.to_owned());
        }
        let family = self.app.models.family(&known.row.model);
        let live = self.app.bodies.get(&known.identity());
        let request = live.and_then(|live| live.dialect.decode(live.body).ok());
        let sound = match &request {
            Some(request) => may_speak(request, family),
            None if family.reasoning_back.demands() => Err(NoExchange::Demanded),
            None => Ok(()),
        };
        match sound {
            Ok(()) => Ok(()),
            Err(why) => refused(format!(
                "nothing can be recalled for the model here: {why}. Copy the line that has the model recall it"
            )),
        }
    }

    /// Notes asks for the next turns that go on from what was read.
    fn note(&self, known: &Known, asks: Vec<Ask>) -> Result<(), ConsoleError> {
        let session = known.row.of_session();
        let noted = self.app.asked.ask(session, &known.path, asks);
        noted.map_err(|error| ConsoleError::new(429, "too_many_asks", error.to_string()))
    }

    /// What an ask takes out of the view, and what doing it at once costs: at worst the provider reads `after`
    /// tokens anew, in place of reading them from its cache.
    fn waits(&self, known: &Known, from: &str, tokens: u64, after: u64) -> Value {
        let prices = self.app.models.family(&known.row.model).prices;
        let units = plimsoll_proxy::record::lossy(after) * (prices.write - prices.read);
        let usd = plimsoll_tokens::Cost::usd(units, &prices);
        json!({
            "session": known.row.session,
            "from": from,
            "tokens": tokens,
            "cost": {"tokens": after, "units": units, "usd": usd},
        })
    }

    /// What waits for the next turns that go on from what was read.
    pub(super) fn waiting(&self, known: &Known) -> Value {
        let asks = self.app.asked.of(known.row.of_session(), &known.path);
        let evictions = asks.evictions.iter().map(|ask| ask.name.as_str());
        let recalls = asks.recalls.iter().map(|ask| ask.name.as_str());
        json!({
            "pins": asks.pins.len(),
            "evict": asks.pass,
            "evictions": evictions.collect::<Vec<&str>>(),
            "recalls": recalls.collect::<Vec<&str>>(),
        })
    }
}

/// Why something named may not be evicted.
enum Held {
    Unknown,
    Because(String),
}

impl Held {
    fn because(why: impl Into<String>) -> Self {
        Self::Because(why.into())
    }

    /// `done` is what can't be done with it.
    fn refused(self, name: &str, done: &str) -> ConsoleError {
        match self {
            Self::Unknown => {
                let message = format!("no item or episode of this session is named {name}");
                ConsoleError::new(404, "unknown_item", message)
            }
            Self::Because(why) => {
                let code = match done {
                    "recalled" => "not_recallable",
                    _ => "not_evictable",
                };
                ConsoleError::new(409, code, format!("{name} can't be {done}: {why}"))
            }
        }
    }
}

/// Tokens of the original of an item that is gone, or of those of an episode.
fn gone(story: &Story, name: &str) -> Result<u64, Held> {
    let Some(item) = story.find(name) else {
        let at = story.episodes.iter().position(|one| one.name == name);
        let at = at.ok_or(Held::Unknown)?;
        let items = story.items.iter().filter(|item| item.episode == Some(at));
        let items = items.filter(|item| item.role != StoryRole::Hidden);
        let mut gone = items
            .filter(|item| item.mark_at(u32::MAX) != Mark::Live)
            .peekable();
        if gone.peek().is_none() {
            return Err(Held::because("all of it stands in view"));
        }
        return Ok(gone.map(|item| u64::from(item.tokens.unwrap_or(0))).sum());
    };
    match (item.role, item.mark_at(u32::MAX)) {
        (StoryRole::User | StoryRole::System, _) => Err(Held::because("it always stands in view")),
        (StoryRole::Hidden, _) => Err(Held::because(
            "it holds nothing of its own: recall the item that it brought back",
        )),
        (StoryRole::Assistant | StoryRole::Call, Mark::Live) => {
            Err(Held::because("it stands in view as it came"))
        }
        (StoryRole::Assistant | StoryRole::Call, _) => Ok(u64::from(item.tokens.unwrap_or(0))),
    }
}

/// What decides whether an item may be evicted, as far as records tell.
struct Rules<'a> {
    known: &'a Known,
    story: &'a Story,
    settings: EvictionSettings,
    /// The first number of the protected tail.
    tail: ItemNo,
    /// Ids that wait to be pinned.
    pins: Vec<String>,
}

impl<'a> Rules<'a> {
    fn of(console: &Console, known: &'a Known, story: &'a Story) -> Result<Self, ConsoleError> {
        if rows::is_watched(&known.row) {
            let message = "this session is only observed: it is sent as it comes";
            return Err(ConsoleError::new(409, "nothing_evictable", message));
        }
        let (app, row) = (&console.app, &known.row);
        let profile = row.profile.as_deref();
        let terms = app
            .settings
            .terms(profile, &Overrides::default(), None, &row.model);
        let family = app.models.family(&row.model);
        let settings = terms.map(|terms| terms.eviction(family, known.dialect()));
        let settings = settings.unwrap_or_default();
        let pins = app.asked.of(row.of_session(), &known.path).pins.into_iter();
        let pins = pins.filter_map(|pin| match pin {
            PinAsk::Set(id) => Some(id),
            PinAsk::Newest | PinAsk::Lift(_) | PinAsk::LiftAll => None,
        });
        Ok(Self {
            tail: tail(story, settings.protect_recent),
            known,
            story,
            settings,
            pins: pins.collect(),
        })
    }

    /// The items that a name stands for, if a pass may take them.
    fn judge(&self, name: &str) -> Result<Vec<&'a StoryItem>, Held> {
        if let Some(item) = self.story.find(name) {
            self.item(item)?;
            return Ok(vec![item]);
        }
        let episodes = &self.story.episodes;
        let at = episodes.iter().position(|episode| episode.name == name);
        self.episode(at.ok_or(Held::Unknown)?)
    }

    fn item(&self, item: &'a StoryItem) -> Result<(), Held> {
        let why = match (item.role, item.mark_at(u32::MAX)) {
            (StoryRole::User, _) => "what a user says always stays in view",
            (StoryRole::System, _) => "system text always stays in view",
            (StoryRole::Hidden, _) if !item.recalled => {
                "a mark of the model's goes with the whole of its episode"
            }
            (_, Mark::Removed) => "nothing of it is left in view",
            (_, Mark::Masked | Mark::Tombstone | Mark::Trimmed) => {
                "only a line of it is left in view, which goes with the whole of its episode"
            }
            (StoryRole::Assistant, _) => return self.text(item),
            (StoryRole::Call | StoryRole::Hidden, Mark::Live | Mark::Clipped) => {
                return self.call(item);
            }
        };
        Err(Held::because(why))
    }

    fn call(&self, item: &'a StoryItem) -> Result<(), Held> {
        self.free(item)?;
        if let Some(pointer) = self.pointer(item) {
            return Err(Held::because(format!(
                "{pointer} says the same and points to it: evict that first"
            )));
        }
        let strict = self.settings.strict_active || self.settings.order == Order::Paper;
        match self.episode_of(item) {
            Some((_, episode)) if strict && episode.end.is_none() => Err(Held::because(format!(
                "its episode \"{}\" is open, of which budget.strict_active keeps everything",
                episode.name
            ))),
            _ if item.size_at(u32::MAX).is_some_and(|size| size < SMALL) => Err(Held::because(
                "it is no longer than the line that would stand in its place",
            )),
            Some((at, _)) => self.is_independent(at),
            None => Ok(()),
        }
    }

    /// A text goes alone only if it stands in an unmarked span without calls.
    fn text(&self, item: &'a StoryItem) -> Result<(), Held> {
        self.free(item)?;
        let of_user = |one: &&StoryItem| one.role == StoryRole::User;
        let items = self.story.items.iter();
        let mut before = items.clone().filter(of_user).filter(|one| one.no < item.no);
        let after = items.clone().filter(of_user).find(|one| one.no > item.no);
        let from = before.next_back().map_or(ItemNo(0), |one| one.no);
        let to = after.map_or(ItemNo(u32::MAX), |one| one.no);
        let within = |one: &StoryItem| one.no > from && one.no < to;
        let called = |one: &StoryItem| matches!(one.role, StoryRole::Call | StoryRole::Hidden);
        let is_text = item.id.starts_with("text:");
        let mut span = items.filter(|one| within(one));
        if !is_text || item.episode.is_some() || span.any(called) {
            return Err(Held::because(
                "it tells what its calls were about, and goes with the whole of its episode",
            ));
        }
        if item.size_at(u32::MAX).is_some_and(|size| size < SMALL) {
            let why = "it is no longer than the line that would stand in its place";
            return Err(Held::because(why));
        }
        Ok(())
    }

    /// Whether no place and no pin holds an item.
    fn free(&self, item: &StoryItem) -> Result<(), Held> {
        let asked = self.pins.iter().any(|id| id.eq_ignore_ascii_case(&item.id));
        if asked || self.known.path.pins.items().contains(&item.no) {
            return Err(Held::because("it is pinned: unpin it first"));
        }
        if item.turn >= self.known.row.turn {
            let why = "no answer has followed it yet: ask again after the next turn";
            return Err(Held::because(why));
        }
        if item.no >= self.tail {
            return Err(Held::because(format!(
                "it belongs to the newest {} tokens, which passes take last",
                self.settings.protect_recent
            )));
        }
        Ok(())
    }

    fn episode(&self, at: usize) -> Result<Vec<&'a StoryItem>, Held> {
        let Some(episode) = self.story.episodes.get(at) else {
            return Err(Held::Unknown);
        };
        if episode.end.is_none() {
            return Err(Held::because("it is open"));
        }
        self.is_independent(at)?;
        let items = self.story.items.iter();
        // Its tombstone stands for what is gone.
        let left =
            |item: &&StoryItem| !matches!(item.mark_at(u32::MAX), Mark::Removed | Mark::Tombstone);
        let items: Vec<&StoryItem> = items
            .filter(|item| item.episode == Some(at))
            .filter(left)
            .collect();
        for item in &items {
            self.free(item).map_err(|why| match why {
                Held::Unknown => Held::Unknown,
                Held::Because(why) => Held::because(format!("of {}: {why}", item.id)),
            })?;
        }
        if items.is_empty() {
            return Err(Held::because("nothing of it is left in view"));
        }
        Ok(items)
    }

    /// Whether no act in view builds on an episode.
    fn is_independent(&self, at: usize) -> Result<(), Held> {
        let Some(episode) = self.story.episodes.get(at) else {
            return Ok(());
        };
        let stands = |act: usize| {
            let open = self
                .story
                .episodes
                .get(act)
                .is_some_and(|act| act.end.is_none());
            let mut items = self.story.items.iter();
            let shown = |item: &StoryItem| {
                item.episode == Some(act)
                    && !item.id.starts_with("reasoning:")
                    && item.mark_at(u32::MAX) != Mark::Removed
            };
            open || items.any(shown)
        };
        let episodes = self.story.episodes.iter().enumerate();
        let mut acts = episodes
            .filter(|(_, act)| act.kind == ExplicitKind::Act && act.deps.contains(&episode.name));
        match acts.find(|(act, _)| stands(*act)) {
            Some((_, act)) => Err(Held::because(format!(
                "the act \"{}\", which is in view, builds on \"{}\"",
                act.name, episode.name
            ))),
            None => Ok(()),
        }
    }

    fn episode_of(&self, item: &StoryItem) -> Option<(usize, &'a super::story::StoryEpisode)> {
        let at = item.episode?;
        Some((at, self.story.episodes.get(at)?))
    }

    /// The id of an item in view whose result points to this one's.
    fn pointer(&self, item: &StoryItem) -> Option<&'a str> {
        let marks = &self.known.path.marks;
        let mut kept = marks.iter_kept();
        let points = |(no, kept): &(ItemNo, &std::sync::Arc<plimsoll_model::Kept>)| {
            kept.same == Some(item.no) && marks.get(*no) == Mark::Clipped
        };
        let (no, _) = kept.find(points)?;
        Some(self.story.numbered(no)?.id.as_str())
    }

    /// Tokens that items have in view, and tokens of what else stands behind the first of them.
    fn sizes(&self, goes: &HashSet<ItemNo>) -> (u64, u64) {
        let first = goes.iter().min().copied().unwrap_or(ItemNo(u32::MAX));
        let (mut tokens, mut after) = (0_u64, 0_u64);
        for item in self.story.items.iter().filter(|item| item.no >= first) {
            let size = u64::from(item.size_at(u32::MAX).unwrap_or(0));
            if goes.contains(&item.no) {
                tokens += size;
            } else {
                after += size;
            }
        }
        let ratio = self.known.path.entries.last().map_or(1.0, ratio);
        (scaled(tokens, ratio), scaled(after, ratio))
    }
}

/// The number of the first of the newest items that take no more than `recent` tokens.
fn tail(story: &Story, recent: u32) -> ItemNo {
    let mut left = recent;
    let mut first = ItemNo(u32::MAX);
    let mut items: Vec<&StoryItem> = story.items.iter().collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.no));
    for item in items {
        let size = match item.mark_at(u32::MAX) {
            Mark::Live | Mark::Clipped | Mark::Masked => item.tokens,
            Mark::Tombstone | Mark::Trimmed | Mark::Removed => item.size_at(u32::MAX),
        };
        let messages = match item.role {
            // A call has a result.
            StoryRole::Call | StoryRole::Hidden => 2 * MESSAGE_TOKENS,
            StoryRole::System | StoryRole::User | StoryRole::Assistant => MESSAGE_TOKENS,
        };
        let size = size.unwrap_or(0) + messages;
        if size > left {
            break;
        }
        left -= size;
        first = item.no;
    }
    first
}
