//! A session as the console knows it: its row, and its path with all reports. Owns what is kept of
//! sessions that were read. Never reads content.

use std::sync::{Arc, OnceLock};

use plimsoll_core::session::path::Path;
use plimsoll_model::caches::{Bounded, Shared, bounded};
use plimsoll_model::{CacheName, Digest, Parent, RecordId, SessionRow, TenantId};
use plimsoll_proxy::history::{self, Reads};
use plimsoll_proxy::pipeline::App;
use plimsoll_store::Store;
use plimsoll_wire::Dialect;

use super::error::ConsoleError;
use super::needed::NeededLater;

/// What a title takes that is learned after its session was weighed.
const TITLE_BYTES: usize = 256;

/// A session that was read.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its row in the list.
    pub row: SessionRow,
    /// Its turns.
    pub path: Arc<Path>,
    /// Whether its records are in memory alone, because it is only watched.
    pub watched: bool,
    /// What of it was needed later, once somebody has asked. None without its texts.
    pub needed: OnceLock<Option<Arc<NeededLater>>>,
    /// Its title, once somebody has asked, if its texts are stored.
    pub title: OnceLock<Option<String>>,
    /// The lines of its items, once somebody has searched for one, if its texts are stored.
    pub labels: OnceLock<Option<Arc<str>>>,
    /// What it weighed when it was kept. The cache counts on a weight that does not change.
    weight: usize,
}

impl Shared for Known {
    fn weight(&self) -> usize {
        self.weight
    }
}

/// Sessions that were read lately.
pub type KnownSessions = Bounded<Digest, Arc<Known>>;

/// Room for sessions within their share of `all`, the memory of all caches.
#[must_use]
pub fn room(all: usize) -> KnownSessions {
    bounded(CacheName::Console, all)
}

impl Known {
    /// By which [`plimsoll_proxy::pipeline::Bodies`] knows it.
    #[must_use]
    pub fn identity(&self) -> Digest {
        SessionRow::identity(TenantId(self.row.tenant), &self.row.session)
    }

    /// The wire format of its newest turn.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        let newest = self.path.newest();
        let dialect = newest.and_then(|record| record.facts.dialect.clone());
        match dialect.as_deref() {
            Some("responses") => Dialect::Responses,
            Some("messages") => Dialect::Messages,
            _ => Dialect::Chat,
        }
    }

    /// The store that has its records.
    #[must_use]
    pub fn store<'a>(&self, app: &'a App) -> &'a Store {
        store(app, self.watched)
    }
}

/// The store of records, or that of sessions which are only watched.
pub fn store(app: &App, watched: bool) -> &Store {
    if watched { &app.watched } else { &app.store }
}

/// All rows of a store that have a text somewhere, newest first, until `each` says that it has enough.
/// Rows without it are not read.
pub fn each_row(
    store: &Store,
    text: &str,
    each: &mut dyn FnMut(SessionRow) -> bool,
) -> Result<(), ConsoleError> {
    let has = |row: &[u8]| memchr::memmem::find(row, text.as_bytes()).is_some();
    each_page(store, None, &has, &mut |rows| {
        Ok(rows.into_iter().all(&mut *each))
    })
}

/// The rows of a store behind a place of the list, newest first, until `each` says that it has enough.
pub fn each_behind(
    store: &Store,
    behind: Option<(u64, Digest)>,
    each: &mut dyn FnMut(SessionRow) -> bool,
) -> Result<(), ConsoleError> {
    each_page(store, behind, &|_| true, &mut |rows| {
        Ok(rows.into_iter().all(&mut *each))
    })
}

/// The rows of a store behind a place of the list, or all, whose bytes `has` takes, as they were written. They come newest
/// first and page by page, until `each` says that it has enough. Others are not read.
pub fn each_page(
    store: &Store,
    behind: Option<(u64, Digest)>,
    has: &dyn Fn(&[u8]) -> bool,
    each: &mut dyn FnMut(Vec<SessionRow>) -> Result<bool, ConsoleError>,
) -> Result<(), ConsoleError> {
    store.each_page_behind(behind, |page| {
        let wanted = page.iter().filter(|listed| has(&listed.row));
        // What can't be read is left out.
        let rows = wanted.filter_map(|listed| rmp_serde::from_slice(&listed.row).ok());
        each(rows.collect())
    })
}

/// How many rows a store has, counted up to a limit.
pub fn count_rows(store: &Store, most: usize) -> Result<usize, ConsoleError> {
    let mut count = 0;
    store.each_page(|page| {
        count += page.len();
        Ok::<_, ConsoleError>(count < most)
    })?;
    Ok(count.min(most))
}

/// A session's name as rows have it.
///
/// # Errors
/// What a name is, if it is none.
pub fn read_name(name: &str) -> Result<String, ConsoleError> {
    let is_name = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let message = "a session is named as in the header x-plimsoll-session: 16 hexadecimal digits";
    is_name
        .then(|| name.to_ascii_lowercase())
        .ok_or_else(|| ConsoleError::parameter(message))
}

/// The session of a name, which is hashed with its tenant, so that no two tenants have the same. The managed one, if the
/// session was also watched.
pub fn find_row(app: &App, name: &str) -> Result<(SessionRow, bool), ConsoleError> {
    let name = read_name(name)?;
    for watched in [false, true] {
        let mut found = None;
        each_row(store(app, watched), &name, &mut |row| {
            found = Some(row).filter(|row| row.session == name);
            found.is_none()
        })?;
        if let Some(row) = found {
            return Ok((row, watched));
        }
    }
    Err(ConsoleError::unknown_session(&name))
}

/// Reads the session of a row, or takes it from what was read before.
pub fn read(
    app: &App,
    kept: &KnownSessions,
    row: SessionRow,
    watched: bool,
) -> Result<Arc<Known>, ConsoleError> {
    let key = SessionRow::identity(TenantId(row.tenant), &row.session);
    let before = kept.get(&key);
    let record = row.record;
    if let Some(known) = before.as_ref().filter(|known| {
        let newest = known.path.entries.last();
        newest.is_some_and(|newest| newest.id == record)
    }) {
        return Ok(Arc::clone(known));
    }
    let unwatched = |_, _| {};
    let reads = Reads::new(store(app, watched), &unwatched);
    let mut path = match before {
        Some(known) => longer(&reads, &known.path, record)?,
        None => None,
    };
    if path.is_none() {
        path = history::load(&reads, record)?;
    }
    let Some(path) = path else {
        let message = format!("session {} is not whole: a record is missing", row.session);
        return Err(ConsoleError::new(404, "unknown_session", message));
    };
    let known = Known {
        row,
        path: Arc::new(path),
        watched,
        needed: OnceLock::new(),
        title: OnceLock::new(),
        labels: OnceLock::new(),
        weight: 0,
    };
    Ok(keep(app, kept, &known))
}

/// Keeps a session for the next request, with the weight that it has now. One that has learned something since
/// it was kept is kept again.
pub fn keep(app: &App, kept: &KnownSessions, known: &Known) -> Arc<Known> {
    let needed = known.needed.get().and_then(Option::as_deref);
    let needed = needed.map_or(0, NeededLater::weight);
    let labels = known.labels.get().and_then(Option::as_deref);
    let labels = labels.map_or(0, str::len);
    let own = size_of::<Known>() + TITLE_BYTES;
    let known = Arc::new(Known {
        weight: known.path.weight() + needed + labels + own,
        ..known.clone()
    });
    kept.insert(known.identity(), Arc::clone(&known));
    app.live.set_read_weight(kept.weight());
    known
}

/// The path with one more turn, if that is all that is new.
fn longer(reads: &Reads<'_>, path: &Path, id: RecordId) -> Result<Option<Path>, ConsoleError> {
    let Some(newest) = path.entries.last() else {
        return Ok(None);
    };
    if newest.id == id {
        return Ok(Some(path.clone()));
    }
    let Some(record) = history::record(reads, id)? else {
        return Ok(None);
    };
    let goes_on = record.parent == Parent::Record(newest.id);
    Ok(goes_on.then(|| path.extend(id, Arc::new(record))))
}
