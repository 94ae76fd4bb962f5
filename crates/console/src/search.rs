//! Finds sessions of the list by a text: in their names and models first, then in their titles, findings
//! and items. Owns how far it looks, since the texts of many sessions take long to read. Never looks at
//! texts that may not be shown.

use std::time::{Duration, Instant};

use plimsoll_model::SessionRow;
use plimsoll_proxy::pipeline::ShownContent;

use super::content;
use super::known::{self, Known};
use super::story::Story;
use super::{Console, finding};

/// Of how many of the newest sessions titles, findings and items are searched.
const MOST_SEARCHED: usize = 500;
/// How long titles, findings and items are searched. What was read once is kept, so that a second search
/// gets further.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a session has the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In what its row shows.
    InRow,
    /// In an item, whose line this is.
    InItem(String),
}

/// A search that is under way.
pub struct Search<'a> {
    console: &'a Console,
    text: &'a str,
    looked: usize,
    until: Instant,
    /// How many sessions it did not look into any more. None if no texts may be shown.
    pub skipped: Option<usize>,
}

impl<'a> Search<'a> {
    /// A search for a text, which is in lower case.
    pub fn new(console: &'a Console, text: &'a str) -> Self {
        let shows = console.app.serving.shown != ShownContent::Off;
        Self {
            console,
            text,
            looked: 0,
            until: Instant::now() + PATIENCE,
            skipped: shows.then_some(0),
        }
    }

    fn has(&self, text: &str) -> bool {
        text.to_lowercase().contains(self.text)
    }

    /// Where a session has the text, if it was found.
    pub fn find(&mut self, row: &SessionRow, watched: bool) -> Option<Found> {
        if self.has(&row.session) || self.has(&row.model) {
            return Some(Found::InRow);
        }
        let skipped = self.skipped.as_mut()?;
        if self.looked == MOST_SEARCHED || Instant::now() > self.until {
            *skipped += 1;
            return None;
        }
        self.looked += 1;
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
        content::log_look(&known, "an item that was searched for");
        Some(Found::InItem(line))
    }

    /// The line of the first item that has the text.
    fn line(&self, known: &std::sync::Arc<Known>) -> Option<String> {
        let labels = self.console.labels(known)?;
        let found = labels.lines().find(|line| self.has(line));
        found.map(str::to_owned)
    }
}
