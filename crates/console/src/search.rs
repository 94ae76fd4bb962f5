//! Finds sessions of the list by a text: in their names and models first, then in their titles, findings
//! and items. Owns how far one search looks, since the texts of many sessions take long to read, and where the next
//! one goes on. Never looks at texts that may not be shown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::{Digest, SessionRow};
use plimsoll_proxy::pipeline::ShownContent;

use super::known::{self, Known};
use super::looks::Viewer;
use super::story::Story;
use super::{Console, finding, rows};

/// Of how many sessions one search reads titles, findings and items.
const MOST_SEARCHED: usize = 500;
/// How long one search reads them. What was read once is kept, so that a second search gets further.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a session has the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In what its row shows.
    InRow,
    /// In an item, whose line this is.
    InItem(String),
}

/// A search that is under way. It is asked of sessions in the order of the list.
pub struct Search<'a> {
    console: &'a Console,
    viewer: Viewer,
    text: &'a str,
    /// Behind which place of the list it goes on. What rows themselves show was told by the search that stopped there.
    behind: Option<(u64, Digest)>,
    looked: usize,
    /// Since when it reads texts.
    since: Option<Instant>,
    /// The place of the last session whose texts it has read.
    reached: Option<(u64, Digest)>,
    /// How many sessions it did not look into any more. None if no texts may be shown.
    pub skipped: Option<usize>,
}

impl<'a> Search<'a> {
    /// A search for a text, which is in lower case.
    pub fn new(
        console: &'a Console,
        viewer: Viewer,
        text: &'a str,
        behind: Option<(u64, Digest)>,
    ) -> Self {
        // Whoever has a session's whole name looks for nothing else.
        let shows =
            console.app.serving.shown != ShownContent::Off && known::read_name(text).is_err();
        Self {
            console,
            viewer,
            text,
            behind,
            looked: 0,
            since: None,
            reached: None,
            skipped: shows.then_some(0),
        }
    }

    /// Where the next search goes on. None if all texts were searched.
    pub fn older(&self) -> Option<String> {
        let left = self.skipped.is_some_and(|skipped| skipped > 0);
        self.reached.filter(|_| left).map(rows::cursor_of)
    }

    fn has(&self, text: &str) -> bool {
        text.to_lowercase().contains(self.text)
    }

    /// Where a session has the text, if it was found.
    pub fn find(&mut self, row: &SessionRow, watched: bool) -> Option<Found> {
        let place = rows::place(row);
        if self.behind.is_some_and(|behind| place >= behind) {
            return None;
        }
        if self.has(&row.session) || self.has(&row.model) {
            return self.behind.is_none().then_some(Found::InRow);
        }
        let skipped = self.skipped.as_mut()?;
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.looked == MOST_SEARCHED || (self.looked > 0 && since.elapsed() > PATIENCE) {
            *skipped += 1;
            return None;
        }
        self.looked += 1;
        self.reached = Some(place);
        let console = self.console;
        let known = known::read(&console.app, &console.known, row.clone(), watched).ok()?;
        let finding = finding(&Story::of(&known.path));
        let title = console.title(&known);
        if title.is_some_and(|title| self.has(&title))
            || finding.is_some_and(|(episode, text)| self.has(&episode) || self.has(&text))
        {
            return Some(Found::InRow);
        }
        let line = self.line(&known)?;
        console.looked(self.viewer, &known);
        Some(Found::InItem(line))
    }

    /// The line of the first item that has the text.
    fn line(&self, known: &Arc<Known>) -> Option<String> {
        let labels = self.console.labels(known)?;
        let found = labels.lines().find(|line| self.has(line));
        found.map(str::to_owned)
    }
}
