//! The console: what a person sees of sessions in a browser, and the API that it is written against
//! (`docs/console/openapi.json`). It reads `store`, `history` and what `pipeline` holds, and nothing of a
//! turn waits for it. Owns the answers; `ingress` owns the paths and the rules of the listener. Never
//! edits a record.
//!
//! `known` reads a session, `story` tells its items and episodes from records alone, and `content`
//! brings texts where they may be shown. `rows`, `session`, `turns`, `items`, `spend` and `overview`
//! make the answers, `totals` adds up rows, `tree` finds what descends from a session, `search` finds sessions by a text, `looks` tells the log who sees content, `asks` notes what a person asks of a view, `failures` lists requests that failed, `events` is the stream of what
//! happens, and `assets` holds the page itself.
//!
//! [`inspect`] shows the same sessions as text, for the commands.

mod asks;
pub mod assets;
mod build;
mod content;
mod error;
mod events;
mod failures;
pub mod inspect;
mod items;
mod known;
mod lab;
mod looks;
mod money;
mod needed;
mod overview;
mod query;
mod rows;
mod search;
mod session;
mod spend;
mod story;
mod title;
mod totals;
mod tree;
mod turns;

use std::sync::{Arc, OnceLock};

use plimsoll_core::session::path::Path;
use plimsoll_model::{Digest, SessionRow, TenantId};
use plimsoll_proxy::pipeline::{App, ShownContent};
use serde_json::{Value, json};

pub use error::ConsoleError;
pub use events::EventStream;
pub use looks::Viewer;
pub use query::Query;

use content::TextSource;
use inspect::Branch;
use known::{Known, KnownSessions};
use looks::Looks;
use needed::NeededLater;
use rows::{ListAsk, ListedRow, RowExtras};
use search::{Found, Search};
use story::Story;
use tree::Tree;

/// How many sizes a spark has.
const SPARK: usize = 48;

/// The console of one process.
pub struct Console {
    app: Arc<App>,
    /// Proves that a request comes from the page that this process served.
    token: String,
    began: u64,
    agents: OnceLock<String>,
    known: KnownSessions,
    looks: Looks,
}

type Answer = Result<Value, ConsoleError>;

impl Console {
    /// The console of an application.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
        let mut random = [0_u8; 16];
        let source = rustls::crypto::ring::default_provider().secure_random;
        // A token that can be foreseen would be worse than none: without one nothing is accepted.
        let made = source.fill(&mut random).is_ok();
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            token: if made { token } else { String::new() },
            began: App::system_clock(),
            agents: OnceLock::new(),
            known: known::room(app.serving.cache_memory),
            looks: Looks::default(),
            app,
        }
    }

    /// Forgets the sessions that were read lately. They are read again when somebody asks.
    pub fn forget(&self) {
        self.known.clear();
    }

    /// Notes where agents connect.
    pub fn serves(&self, agents: String) {
        let _ = self.agents.set(agents);
    }

    /// The token of this process.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Whether a request has the token.
    #[must_use]
    pub fn admits(&self, token: Option<&str>) -> bool {
        !self.token.is_empty() && token == Some(self.token.as_str())
    }

    /// The figures over all sessions.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn overview(&self) -> Answer {
        overview::overview(self)
    }

    /// What sessions cost and saved between the times that are asked.
    ///
    /// # Errors
    /// As [`Self::sessions`].
    pub fn spend(&self, query: Query) -> Answer {
        spend::spend(&self.app, self.began, query)
    }

    /// A page of the requests that failed.
    ///
    /// # Errors
    /// What is not understood, or that the store does not answer.
    pub fn failures(&self, viewer: Viewer, query: &str) -> Answer {
        failures::page(self, viewer, query)
    }

    /// A page of the list.
    ///
    /// # Errors
    /// What is not understood, or that the store does not answer.
    pub fn sessions(&self, viewer: Viewer, query: &str) -> Answer {
        let ask = ListAsk::read(query)?;
        if ask.is_plain() {
            return self.plain_page(&ask);
        }
        let text = ask.text.as_deref();
        let mut search = text.map(|text| Search::new(self, viewer, text, ask.older));
        let mut rows = Vec::new();
        let mut take = |row: SessionRow, watched: bool| {
            let found = match &mut search {
                _ if !ask.fits(&row) => None,
                None => Some(Found::InRow),
                Some(search) => search.find(&row, watched),
            };
            if let Some(found) = found {
                let item = match found {
                    Found::InRow => None,
                    Found::InItem(line) => Some(line),
                };
                rows.push(ListedRow { row, watched, item });
            }
        };
        let tree = ask.root().map(|root| Tree::read(&self.app, root));
        let tree = tree.transpose()?;
        let sums = tree.as_ref().map(Tree::sums);
        match tree {
            Some(tree) => tree
                .below
                .into_iter()
                .for_each(|one| take(one.row, one.watched)),
            None => self.each_session(ask.older, &mut take)?,
        }
        rows.sort_by(|one, other| ask.order(&one.row, &other.row));
        let total = rows.len();
        let from = match ask.behind {
            None => 0,
            Some(behind) => {
                let place = |one: &ListedRow| rows::place(&one.row);
                // A session that went on since then may be skipped, and none comes twice.
                match ask.is_by_place() {
                    true => rows.partition_point(|one| place(one) >= behind),
                    false => {
                        // Wherever that row stands now.
                        let at = rows.iter().position(|one| place(one).1 == behind.1);
                        at.map_or(total, |at| at + 1)
                    }
                }
            }
        };
        let page = rows.get(from..).unwrap_or_default();
        let page = page.get(..ask.limit.min(page.len())).unwrap_or_default();
        let more = from + page.len() < total;
        let next = page
            .last()
            .filter(|_| more)
            .map(|one| rows::cursor(&one.row));
        let total = ask.behind.is_none().then_some(total);
        let searched = search.map(|search| (search.skipped, search.older()));
        let mut page = self.page(&ask, page, (next, total), searched.unwrap_or_default());
        if let Some(sums) = sums
            && let Some(tree) = page.get_mut("tree")
        {
            *tree = sums;
        }
        Ok(page)
    }

    /// The rows of the list behind a place, in its own order and up to a limit, and whether their sessions are only
    /// watched.
    fn each_session(
        &self,
        behind: Option<(u64, Digest)>,
        take: &mut dyn FnMut(SessionRow, bool),
    ) -> Result<(), ConsoleError> {
        let (mut seen, mut watched) = (0_usize, Vec::new());
        known::each_behind(&self.app.watched, behind, &mut |row| {
            watched.push(row);
            watched.len() < rows::MOST_SORTED
        })?;
        let mut watched = watched.into_iter().peekable();
        known::each_behind(&self.app.store, behind, &mut |row| {
            let place = rows::place(&row);
            while let Some(newer) = watched.next_if(|one| rows::place(one) > place) {
                seen += 1;
                take(newer, true);
            }
            seen += 1;
            take(row, false);
            seen < rows::MOST_SORTED
        })?;
        let left = rows::MOST_SORTED.saturating_sub(seen);
        watched.take(left).for_each(|row| take(row, true));
        Ok(())
    }

    /// A page in the list's own order, which needs no other row.
    fn plain_page(&self, ask: &ListAsk) -> Answer {
        let mut rows = Vec::new();
        for (store, watched) in [(&self.app.store, false), (&self.app.watched, true)] {
            let page = store.sessions(ask.behind, ask.limit)?;
            // What a newer version wrote in another form is left out.
            let read = page.iter();
            let read = read.filter_map(|listed| rmp_serde::from_slice(&listed.row).ok());
            rows.extend(read.map(|row: SessionRow| ListedRow {
                row,
                watched,
                item: None,
            }));
        }
        rows.sort_by_key(|one| std::cmp::Reverse(rows::place(&one.row)));
        rows.truncate(ask.limit);
        let full = rows.len() == ask.limit;
        let next = rows
            .last()
            .filter(|_| full)
            .map(|one| rows::cursor(&one.row));
        let total = (!ask.plain && ask.behind.is_none()).then(|| self.count());
        let total = total.transpose()?;
        Ok(self.page(ask, &rows, (next, total), (None, None)))
    }

    /// How many sessions there are.
    fn count(&self) -> Result<usize, ConsoleError> {
        let mut count = 0;
        for store in [&self.app.store, &self.app.watched] {
            count += known::count_rows(store, rows::MOST_SORTED)?;
        }
        Ok(count)
    }

    fn page(
        &self,
        ask: &ListAsk,
        rows: &[ListedRow],
        (next, total): (Option<String>, Option<usize>),
        (unsearched, older): (Option<usize>, Option<String>),
    ) -> Value {
        let shown = rows.iter().map(|one| {
            let mut extras = self.extras(&one.row, one.watched, ask.spark);
            extras.item.clone_from(&one.item);
            rows::shown(&one.row, &extras)
        });
        let shown: Vec<Value> = shown.collect();
        json!({
            "sessions": shown,
            "next": next,
            "total": total,
            "unsearched": unsearched,
            "older": older,
            "tree": Value::Null,
        })
    }

    /// What is shown of a session beside its row. A session that can't be read has none.
    fn extras(&self, row: &SessionRow, watched: bool, whole: bool) -> RowExtras {
        let identity = SessionRow::identity(TenantId(row.tenant), &row.session);
        let live = self.app.bodies.get(&identity);
        let mut extras = RowExtras {
            live: live.is_some_and(|live| live.record == row.record),
            ..RowExtras::default()
        };
        if !whole {
            return extras;
        }
        let Ok(known) = known::read(&self.app, &self.known, row.clone(), watched) else {
            return extras;
        };
        extras.spark = spark(&known.path);
        if self.app.serving.shown != ShownContent::Off {
            extras.finding = finding(&Story::of(&known.path));
            extras.title = self.title(&known);
        }
        extras
    }

    fn read(&self, name: &str) -> Result<Arc<Known>, ConsoleError> {
        let (row, watched) = known::find_row(&self.app, name)?;
        known::read(&self.app, &self.known, row, watched)
    }

    /// A session.
    ///
    /// # Errors
    /// If it is not known, or the store does not answer.
    pub fn session(&self, viewer: Viewer, name: &str, query: Query) -> Answer {
        query.end("a session")?;
        let known = self.read(name)?;
        let story = Story::of(&known.path);
        let shows = self.app.serving.shown != ShownContent::Off;
        let needed = self.needed(&known);
        let passes = session::passes(&known.path).map(|place| {
            let turn = place.entry.record.turn;
            let lost = needed.as_ref();
            let lost = lost.map(|needed| needed.lost_of(&place.moved(), turn));
            session::pass(&place, lost)
        });
        let passes: Vec<Value> = passes.collect();
        let extras = self.extras(&known.row, known.watched, true);
        if extras.title.is_some() || extras.finding.is_some() {
            self.looked(viewer, &known);
        }
        let pinned = known.path.pins.items().iter();
        let pinned = pinned.filter_map(|no| Some(story.numbered(*no)?.id.clone()));
        let tree = self.tree(&known)?;
        let sums = (!tree.below.is_empty()).then(|| tree.sums());
        Ok(json!({
            "row": rows::shown(&known.row, &extras),
            "children": self.children(&known.row.session, &tree),
            "tree": sums,
            "episodes": session::episodes(&story, shows),
            "passes": passes,
            "parts": session::parts(&story, &known.path),
            "pins": pinned.collect::<Vec<String>>(),
            "waiting": self.waiting(&known),
            "content": TextSource::of(&self.app, &known).name(),
        }))
    }

    /// What descends from a session.
    fn tree(&self, known: &Known) -> Result<Tree, ConsoleError> {
        Tree::read(&self.app, &known.row.session)
    }

    /// The sub-agents and branches of a session itself.
    fn children(&self, session: &str, tree: &Tree) -> Vec<Value> {
        let own = |one: &&ListedRow| one.row.parent.as_deref() == Some(session);
        let children = tree.below.iter().filter(own);
        let shown = children.map(|one| {
            let extras = self.extras(&one.row, one.watched, false);
            rows::shown(&one.row, &extras)
        });
        shown.collect()
    }

    /// Its turns as columns.
    ///
    /// # Errors
    /// As [`Self::session`], and for what is not understood.
    pub fn turns(&self, name: &str, mut query: Query) -> Answer {
        let (from, to) = (query.turn("from")?, query.turn("to")?);
        query.end("turns")?;
        let known = self.read(name)?;
        turns::columns(&known.path, from, to)
    }

    /// What its client changed lately of what the provider had cached.
    ///
    /// # Errors
    /// As [`Self::turns`], and if texts may not be shown.
    pub fn changes(&self, viewer: Viewer, name: &str, query: Query) -> Answer {
        query.end("changes")?;
        let known = self.read(name)?;
        let changes = content::changes(&self.app, &known)?;
        self.looked(viewer, &known);
        Ok(changes)
    }

    /// A page of its items.
    ///
    /// # Errors
    /// As [`Self::turns`].
    pub fn items(&self, viewer: Viewer, name: &str, mut query: Query) -> Answer {
        let turn = query.turn("turn")?;
        let limit = query.number("limit", 1, items::MOST_ITEMS)?;
        let from = query.cursor()?.unwrap_or(0);
        query.end("items")?;
        let known = self.read(name)?;
        let story = Story::of(&known.path);
        let needed = self.needed(&known);
        let asked = (turn, from, limit.unwrap_or(items::ITEMS));
        let page = items::page(&self.app, &known, &story, needed.as_deref(), asked)?;
        self.looked(viewer, &known);
        Ok(page)
    }

    /// One of its items at a turn.
    ///
    /// # Errors
    /// As [`Self::turns`], and if there is no such item or turn.
    pub fn item(&self, viewer: Viewer, name: &str, item: &str, mut query: Query) -> Answer {
        let turn = query.turn("turn")?;
        query.end("an item")?;
        let known = self.read(name)?;
        let story = Story::of(&known.path);
        let needed = self.needed(&known);
        let found = items::detail(&self.app, &known, &story, needed.as_deref(), (item, turn))?;
        self.looked(viewer, &known);
        Ok(found)
    }

    /// The pass of a turn.
    ///
    /// # Errors
    /// As [`Self::turns`], and if no pass ran before that turn.
    pub fn pass(&self, viewer: Viewer, name: &str, turn: &str) -> Answer {
        let number = turn.parse::<u32>().ok().filter(|turn| *turn > 0);
        let number = number.ok_or_else(|| ConsoleError::parameter("a turn is a number from 1"))?;
        let known = self.read(name)?;
        let story = Story::of(&known.path);
        let needed = self.needed(&known);
        let pass = items::pass(&self.app, &known, &story, needed.as_deref(), number)?;
        self.looked(viewer, &known);
        Ok(pass)
    }

    /// A session built from parts of this one.
    ///
    /// # Errors
    /// As [`Self::session`], for what is not understood, and if its texts may not be shown or are gone.
    pub fn build(&self, viewer: Viewer, name: &str, body: &[u8]) -> Answer {
        let ask = serde_json::from_slice(body).map_err(|error| {
            let message = format!(
                "send what to take, like {{\"format\": \"chat\", \"turns\": [[1, 4]]}}: {error}"
            );
            ConsoleError::new(400, "bad_body", message)
        })?;
        let known = self.read(name)?;
        let built = build::build(&self.app, &known, &Story::of(&known.path), &ask)?;
        self.looked(viewer, &known);
        Ok(built)
    }

    /// A session as lines of JSON, as `plimsoll export` writes it. It has the texts that are stored, where they may be
    /// shown.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub fn export(&self, viewer: Viewer, name: &str) -> Result<String, ConsoleError> {
        let known = self.read(name)?;
        let shows = self.app.serving.shown != ShownContent::Off;
        let unknown = || ConsoleError::unknown_session(name);
        let branch = Branch::of(&known.path).ok_or_else(unknown)?;
        let exported = inspect::written(known.store(&self.app), &branch, &known.path, shows)?;
        if exported.content {
            self.looked(viewer, &known);
        }
        Ok(exported.text)
    }

    /// Notes that somebody looks at a session's texts, if there are any.
    fn looked(&self, viewer: Viewer, known: &Known) {
        if TextSource::of(&self.app, known).has_texts() {
            self.looks.note(&known.row.session, viewer);
        }
    }

    /// What of a session was needed later. None without its texts.
    fn needed(&self, known: &Arc<Known>) -> Option<Arc<NeededLater>> {
        let is_new = known.needed.get().is_none();
        let find = || {
            let found = lab::needed(&self.app, known).ok().flatten();
            found.map(Arc::new)
        };
        let needed = known.needed.get_or_init(find).clone();
        if is_new {
            self.weigh_again(known);
        }
        needed
    }

    /// Weighs a session again that has learned something, but does not bring it back: meanwhile it may have
    /// been erased.
    fn weigh_again(&self, known: &Arc<Known>) {
        let kept = self.known.get(&known.identity());
        if kept.is_some_and(|kept| Arc::ptr_eq(&kept, known)) {
            known::keep(&self.app, &self.known, known);
        }
    }

    /// The lines of a session's items, each once. None without its texts.
    fn labels(&self, known: &Arc<Known>) -> Option<Arc<str>> {
        let source = TextSource::of(&self.app, known);
        // As with the title.
        let kept = known.labels.get().filter(|_| source == TextSource::Stored);
        if let Some(labels) = kept {
            return labels.clone();
        }
        let labels = content::look(&self.app, known, None, content::labels).ok()?;
        let labels: Option<Arc<str>> = labels.map(Arc::from);
        if source == TextSource::Stored && known.labels.set(labels.clone()).is_ok() {
            self.weigh_again(known);
        }
        labels
    }

    /// The beginning of a session's first user text. None without its texts.
    fn title(&self, known: &Known) -> Option<String> {
        let source = TextSource::of(&self.app, known);
        // Reading all texts of a long session takes long. What is in memory alone may leave it, and is not to
        // be shown then.
        let kept = known.title.get().filter(|_| source == TextSource::Stored);
        if let Some(title) = kept {
            return title.clone();
        }
        let title = content::look(&self.app, known, None, content::title).ok()?;
        let title = title.flatten();
        if source == TextSource::Stored {
            known.title.get_or_init(|| title.clone());
        }
        title
    }

    /// This session under other lines, as lines of JSON that `each` takes until it has enough.
    ///
    /// # Errors
    /// As [`Self::build`], and without the lab.
    pub fn what_if(
        &self,
        viewer: Viewer,
        name: &str,
        body: &[u8],
        each: &mut dyn FnMut(&Value) -> bool,
    ) -> Result<(), ConsoleError> {
        let ask = serde_json::from_slice(body).map_err(|error| {
            let message =
                format!("send what to try, like {{\"budgets\": [20000, 40000]}}: {error}");
            ConsoleError::new(400, "bad_body", message)
        })?;
        let known = self.read(name)?;
        self.looked(viewer, &known);
        lab::what_if(&self.app, &known, &ask, each)
    }

    /// The row and the turn of a record, for an event.
    fn told(&self, session: &str, watched: bool) -> Option<(Arc<Known>, Value)> {
        let (row, found) = known::find_row(&self.app, session).ok()?;
        let known = known::read(&self.app, &self.known, row, found || watched).ok()?;
        let extras = self.extras(&known.row, known.watched, false);
        let row = rows::shown(&known.row, &extras);
        Some((known, row))
    }
}

/// Up to 48 sizes of what was sent at even distances, the newest last.
fn spark(path: &Path) -> Vec<u64> {
    let entries = &path.entries;
    let step = entries.len().div_ceil(SPARK).max(1);
    let skipped = (entries.len() + step - 1) % step;
    let sizes = entries.iter().skip(skipped).step_by(step).map(|entry| {
        let facts = &entry.record.facts;
        match facts.watched {
            true => facts.tokens_in,
            false => facts.tokens_out,
        }
    });
    sizes.collect()
}

/// The newest finding, with its episode.
fn finding(story: &Story) -> Option<(String, String)> {
    let mut episodes = story.episodes.iter().rev();
    episodes.find_map(|one| Some((one.name.clone(), one.finding.clone()?)))
}
