//! The list of sessions: reads what is asked, filters, sorts, and shows rows. Owns the parameters, the
//! cursors and the fields of a row. Never reads a record by itself.

use std::cmp::Ordering;

use plimsoll_core::policy::Zone;
use plimsoll_model::{Digest, Need, RowSizes, SessionRow, TenantId, hours};
use plimsoll_proxy::pipeline::App;
use plimsoll_proxy::record::lossy;
use serde_json::{Map, Value, json};

use super::error::ConsoleError;
use super::query::Query;
use super::{known, money};

/// How many rows a page has if nothing is asked, and at most.
const ROWS: usize = 100;
const MOST_ROWS: usize = 1000;
/// The most rows that are filtered or sorted.
pub const MOST_SORTED: usize = 100_000;
/// After how long without a turn it is not said of a session when it reaches its ceiling, in milliseconds.
const RESTING_MS: u64 = 24 * hours::HOUR_MS;

/// What the list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// The time of the newest turn.
    Last,
    /// The view over the ceiling.
    Fill,
    /// The number of turns.
    Turn,
    /// The number of passes.
    Passes,
    /// The cached share.
    Cached,
    /// What was saved.
    Saved,
    /// How many turns it has to the next pass.
    Next,
    /// The name of the model.
    Model,
}

/// Which zone is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneAsk {
    In(Zone),
    Over,
}

/// A page that was asked for.
#[derive(Clone, Debug)]
pub struct ListAsk {
    /// Text that a row must have.
    pub text: Option<String>,
    zone: Option<ZoneAsk>,
    tenant: Option<String>,
    model: Option<String>,
    unmanaged: bool,
    loss: bool,
    /// The session whose tree is asked for; an empty name asks for sessions without a parent.
    parent: Option<String>,
    /// The profile in whose split a session has a place.
    split: Option<String>,
    sort: (SortKey, bool),
    /// Whether titles, findings and sparks are filled in.
    pub spark: bool,
    /// Behind which row the page begins.
    pub behind: Option<(u64, Digest)>,
    /// Behind which place an earlier search for the text has stopped.
    pub older: Option<(u64, Digest)>,
    /// How many rows at most.
    pub limit: usize,
    /// Whether `before` was given, as by older readers.
    pub plain: bool,
    /// When it was asked, in milliseconds since 1970.
    now: u64,
}

impl ListAsk {
    /// Reads the parameters.
    ///
    /// # Errors
    /// What is allowed, in a sentence.
    pub fn read(query: &str) -> Result<Self, ConsoleError> {
        let mut query = Query::read(query)?;
        let zone = query.word("zone", &["green", "yellow", "red", "over"])?;
        let zone = zone.map(|zone| match zone.as_str() {
            "green" => ZoneAsk::In(Zone::Green),
            "yellow" => ZoneAsk::In(Zone::Yellow),
            "red" => ZoneAsk::In(Zone::Red),
            _ => ZoneAsk::Over,
        });
        let sort = query.take("sort").unwrap_or_else(|| "last".to_owned());
        let (turned, key) = match sort.strip_prefix('-') {
            Some(key) => (true, key),
            None => (false, sort.as_str()),
        };
        let key = match key {
            "last" => SortKey::Last,
            "fill" => SortKey::Fill,
            "turn" => SortKey::Turn,
            "passes" => SortKey::Passes,
            "cached" => SortKey::Cached,
            "saved" => SortKey::Saved,
            "next" => SortKey::Next,
            "model" => SortKey::Model,
            _ => {
                let message = "`sort` is one of last, fill, turn, passes, cached, saved, next and model, with `-` in front to turn it round";
                return Err(ConsoleError::parameter(message));
            }
        };
        let (cursor, before) = (query.take("cursor"), query.take("before"));
        let plain = before.is_some();
        let behind = cursor.or(before);
        let behind = behind.map(|text| parse_cursor(&text)).transpose()?;
        let older = query.take("older");
        let older = older.map(|text| parse_cursor(&text)).transpose()?;
        let text = query.take("q").map(|text| text.to_lowercase());
        if older.is_some() && text.is_none() {
            let message = "`older` goes on with the search for `q`: give both";
            return Err(ConsoleError::parameter(message));
        }
        let ask = Self {
            text,
            older,
            zone,
            tenant: query.take("tenant"),
            model: query.take("model"),
            unmanaged: query.word("unmanaged", &["1"])?.is_some(),
            loss: query.word("loss", &["1"])?.is_some(),
            parent: query
                .take("parent")
                .map(|parent| match parent.as_str() {
                    "none" => Ok(String::new()),
                    name => known::read_name(name),
                })
                .transpose()?,
            split: query.take("split"),
            sort: (key, turned),
            spark: query.word("spark", &["1"])?.is_some(),
            behind,
            limit: query.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS),
            plain,
            now: App::system_clock(),
        };
        query.end("the list")?;
        Ok(ask)
    }

    /// Whether only the list's own order is asked for, so that a page can be read alone.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.zone.is_none()
            && self.text.is_none()
            && self.tenant.is_none()
            && self.model.is_none()
            && self.parent.is_none()
            && self.split.is_none()
            && !self.unmanaged
            && !self.loss
            && self.is_by_place()
    }

    /// Whether the rows stand in the list's own order, so that a page can begin behind a row that has moved.
    #[must_use]
    pub fn is_by_place(&self) -> bool {
        self.sort == (SortKey::Last, false)
    }

    /// The session whose tree is asked for.
    #[must_use]
    pub fn root(&self) -> Option<&str> {
        self.parent.as_deref().filter(|parent| !parent.is_empty())
    }

    /// Whether a row fits, its text left out. Rows of a tree are chosen before.
    #[must_use]
    pub fn fits(&self, row: &SessionRow) -> bool {
        let zone = self.zone.is_none_or(|asked| match asked {
            ZoneAsk::In(zone) => zone_of(row) == zone,
            ZoneAsk::Over => row.sums.over > 0,
        });
        let orphans = self.parent.as_deref() == Some("");
        let tenant = self.tenant.as_ref();
        let split = row.split.as_ref().map(|split| &split.profile);
        zone && tenant.is_none_or(|tenant| row.tenant.hex().starts_with(tenant.as_str()))
            && self.model.as_ref().is_none_or(|model| row.model == *model)
            && self.split.as_ref().is_none_or(|asked| split == Some(asked))
            && (!orphans || row.parent.is_none())
            && (!self.unmanaged || is_watched(row))
            && (!self.loss || saved(row).is_some_and(|saved| saved < 0.0))
    }

    /// The order of two rows. Those of which the figure is not known come last.
    #[must_use]
    pub fn order(&self, one: &SessionRow, other: &SessionRow) -> Ordering {
        let (key, turned) = self.sort;
        let figure = |row: &SessionRow| match key {
            SortKey::Last => Some(lossy(row.ended)),
            SortKey::Fill => Some(lossy(size_sent(&row.sizes)) / lossy(row.sizes.ceiling.max(1))),
            SortKey::Turn => Some(f64::from(row.turn)),
            SortKey::Passes => Some(f64::from(row.sums.passes)),
            SortKey::Cached => {
                let (prompt, cached) = sent(row);
                (prompt > 0).then(|| lossy(cached) / lossy(prompt))
            }
            SortKey::Saved => saved(row),
            // The fewest turns come first.
            SortKey::Next => turns_to_pass(row, self.now).map(|turns| -lossy(turns)),
            SortKey::Model => None,
        };
        let order = match key {
            SortKey::Model => one.model.cmp(&other.model),
            _ => match (figure(one), figure(other)) {
                (Some(one), Some(other)) => other.total_cmp(&one),
                // What is not known stays at the end, whichever way round.
                (Some(_), None) => return Ordering::Less,
                (None, Some(_)) => return Ordering::Greater,
                (None, None) => Ordering::Equal,
            },
        };
        let order = if turned { order.reverse() } else { order };
        order.then_with(|| place(other).cmp(&place(one)))
    }
}

/// Where a row stands in the store's list, which is also its cursor.
#[must_use]
pub fn place(row: &SessionRow) -> (u64, Digest) {
    let session = SessionRow::identity(TenantId(row.tenant), &row.session);
    (row.ended, session)
}

/// The cursor of the page behind a row.
#[must_use]
pub fn cursor(row: &SessionRow) -> String {
    cursor_of(place(row))
}

/// The cursor of a place in the list.
#[must_use]
pub fn cursor_of((at, session): (u64, Digest)) -> String {
    format!("{at}-{}", session.hex())
}

fn parse_cursor(text: &str) -> Result<(u64, Digest), ConsoleError> {
    let place = text
        .split_once('-')
        .and_then(|(at, session)| Some((at.parse().ok()?, Digest::parse_hex(session)?)));
    let message = || format!("`{text}` is not the `next` or `older` of an earlier page");
    place.ok_or_else(|| ConsoleError::new(400, "bad_cursor", message()))
}

/// Whether the session is only watched.
#[must_use]
pub const fn is_watched(row: &SessionRow) -> bool {
    row.sizes.watched
}

/// What was sent of a session's prompts, and what of that came from the provider's cache. Accounts of
/// watched turns say beside it what managing would have sent.
#[must_use]
pub const fn sent(row: &SessionRow) -> (u64, u64) {
    if is_watched(row) {
        row.sums.account.client
    } else {
        row.sums.account.sent
    }
}

/// What a session saved, in dollars if they are known, else in units. None if nothing is recorded, or
/// the session is only watched.
fn saved(row: &SessionRow) -> Option<f64> {
    let sums = &row.sums;
    let known = sums.accounts > 0 && !is_watched(row);
    known.then(|| sums.account.net() * sums.account.usd.unwrap_or(1.0))
}

/// The size of what was sent last: the view, or the client's own request if that was only watched.
const fn size_sent(sizes: &RowSizes) -> u64 {
    if sizes.watched {
        sizes.tokens_in
    } else {
        sizes.tokens_out
    }
}

/// About how many turns a session has until its view reaches the ceiling, if it goes on as in its last turns. None if it
/// does not grow, or nobody has asked anything for a day.
fn turns_to_pass(row: &SessionRow, now: u64) -> Option<u64> {
    let sizes = &row.sizes;
    let goes_on = now.saturating_sub(row.ended) < RESTING_MS;
    let grows = sizes.growth > 0 && sizes.tokens_out > 0 && sizes.ceiling > 0;
    let left = sizes.ceiling.saturating_sub(sizes.tokens_out);
    (goes_on && grows).then(|| left.div_ceil(u64::from(sizes.growth)))
}

/// How full the ceiling is with what was sent last.
#[must_use]
pub fn zone_of(row: &SessionRow) -> Zone {
    Zone::of_ceiling(size_sent(&row.sizes), row.sizes.ceiling)
}

/// A row that is to be shown.
pub struct ListedRow {
    /// The row.
    pub row: SessionRow,
    /// Whether its records are in memory alone, because it is only watched.
    pub watched: bool,
    /// The line of an item by which it was found.
    pub item: Option<String>,
}

/// What is shown of a session beside its row.
#[derive(Clone, Debug, Default)]
pub struct RowExtras {
    /// Whether its newest request is in memory and may be shown.
    pub live: bool,
    /// The beginning of its first user text.
    pub title: Option<String>,
    /// Its newest finding, with its episode.
    pub finding: Option<(String, String)>,
    /// The sizes of up to 48 views.
    pub spark: Vec<u64>,
    /// The line of an item by which it was found.
    pub item: Option<String>,
}

/// A row as JSON.
#[must_use]
pub fn shown(row: &SessionRow, extras: &RowExtras) -> Value {
    let finding = extras.finding.as_ref();
    let finding = finding.map(|(episode, text)| json!({"episode": episode, "text": text}));
    let split = row.split.as_ref();
    let split = split.map(|drawn| json!({"profile": drawn.profile, "arm": drawn.arm().name()}));
    let mode = match is_watched(row) {
        true => "observe",
        false => "manage",
    };
    let more = json!({
        "title": extras.title,
        "finding": finding,
        "item": extras.item,
        "mode": mode,
        "profile": row.profile,
        "split": split,
        "live": extras.live,
        "zone": zone_of(row).name(),
        "turns_to_pass": turns_to_pass(row, App::system_clock()),
        "agent": row.agent,
        "spark": extras.spark,
    });
    let parts = [base(row), more, sums(row)].into_iter();
    let fields = parts.filter_map(|part| match part {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    Value::Object(fields.flatten().collect())
}

fn base(row: &SessionRow) -> Value {
    json!({
        "session": row.session,
        "tenant": row.tenant.hex(),
        "record": row.record.0.hex(),
        "turn": row.turn,
        "began": row.began,
        "ended": row.ended,
        "model": row.model,
        "parent": row.parent,
        "branch": row.branch,
        "content": row.content,
        "client_tokens": row.client_tokens,
        "view_tokens": row.view_tokens,
        "in": row.sizes.tokens_in,
        "out": row.sizes.tokens_out,
        "budget": row.sizes.ceiling,
        "floor": row.sizes.floor,
    })
}

fn sums(row: &SessionRow) -> Value {
    let sums = &row.sums;
    let needed = Need::ALL.map(|how| (how.name().to_owned(), json!(sums.needed.of(how))));
    let needed: Map<String, Value> = needed.into_iter().collect();
    let sent = (sums.accounts > 0).then(|| sent(row));
    let account = money::of_sums(sums);
    // Nothing was saved where nothing was managed.
    let (saved, projected) = if is_watched(row) {
        (None, account)
    } else {
        (account, None)
    };
    json!({
        "turns": sums.turns,
        "passes": sums.passes,
        "hops": sums.hops,
        "recalls": sums.recalls,
        "over": sums.over,
        "needed": needed,
        "prompt": sent.map(|sent| sent.0),
        "cached": sent.map(|sent| sent.1),
        "saved": saved,
        "projected": projected,
    })
}
