//! What `setup` did to a file, noted so that it can be taken back. Owns the form of the note, and
//! how a file becomes what it was. Never keeps a whole file, and never touches one but its own.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::format::{Format, FormatError};
use super::{files, plan::Plan};
use crate::cli::agents::{Agent, Environment};

/// One file as `setup` changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The file, behind all links.
    pub file: PathBuf,
    /// Whether the file was there before.
    pub existed: bool,
    /// The directories that were made for it, the outermost first.
    pub directories: Vec<PathBuf>,
    /// The digest of what was written.
    written: String,
    /// The digest of what was there before.
    original: String,
    /// Where the two differ: from which byte on, for how many bytes of what was written, and what
    /// stood there before.
    at: usize,
    length: usize,
    removed: String,
    /// The setting: its path, what it became, what it was, and how many tables were made for it.
    path: Vec<String>,
    value: String,
    before: Option<String>,
    made: usize,
}

/// A file without what `setup` put into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Its text. `None` if the file is not to be there.
    pub text: Option<String>,
    /// What it holds at the place of the setting, if somebody has put something else there.
    pub others: Option<String>,
}

impl Record {
    /// Notes a change, before it is made.
    #[must_use]
    pub fn new(file: &Path, before: Option<&str>, after: &str, plan: &Plan) -> Self {
        let original = before.unwrap_or_default();
        let (at, length, removed) = difference(original, after);
        Self {
            file: file.to_owned(),
            existed: before.is_some(),
            directories: Vec::new(),
            written: digest(after),
            original: digest(original),
            at,
            length,
            removed: removed.to_owned(),
            path: plan.path.clone(),
            value: plan.value.clone(),
            before: None,
            made: 0,
        }
    }

    /// Adds what the setting was, for a file that changes later.
    #[must_use]
    pub fn with_setting(self, before: Option<String>, made: usize) -> Self {
        Self {
            before,
            made,
            ..self
        }
    }

    /// The text of the file as it was, or as it would be now if `setup` had not been.
    ///
    /// # Errors
    /// If the file was changed so that this can't be told.
    pub fn take_back(&self, format: Format, now: Option<&str>) -> Result<TakenBack, FormatError> {
        let unchanged = |text: Option<String>| TakenBack { text, others: None };
        let Some(text) = now else {
            // Who removed the file has removed the setting with it.
            return Ok(unchanged(None));
        };
        if digest(text) == self.written
            && let Some(original) = self.undone(text)
        {
            return Ok(unchanged(self.existed.then_some(original)));
        }
        if digest(text) == self.original {
            return Ok(unchanged(self.existed.then(|| text.to_owned())));
        }
        self.without_the_setting(format, text)
    }

    fn undone(&self, text: &str) -> Option<String> {
        let before = text.get(..self.at)?;
        let behind = text.get(self.at.checked_add(self.length)?..)?;
        let original = [before, &self.removed, behind].concat();
        (digest(&original) == self.original).then_some(original)
    }

    /// A file that somebody has changed since: the setting alone is taken out.
    fn without_the_setting(&self, format: Format, text: &str) -> Result<TakenBack, FormatError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let others = match format.get(text, &path)? {
            Some(value) if value == self.value => None,
            other => Some(other.unwrap_or_default()),
        };
        if others.is_some() {
            return Ok(TakenBack {
                text: Some(text.to_owned()),
                others,
            });
        }
        let text = match &self.before {
            Some(before) => format.set(text, &path, before)?.text,
            None => format.remove(text, &path, self.made)?,
        };
        let nothing = !self.existed && format.is_empty(&text);
        Ok(TakenBack {
            text: (!nothing).then_some(text),
            others: None,
        })
    }

    /// Where the note about a file is kept. `None` if no variable says where.
    fn place(agent: Agent, file: &Path, environment: &Environment) -> Option<PathBuf> {
        let name = blake3::hash(file.as_os_str().as_encoded_bytes()).to_hex();
        let name = format!("{}-{}.json", agent.program(), name.get(..16)?);
        Some(environment.state()?.join("setup").join(name))
    }

    /// The note about a file, if there is one.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn load(
        agent: Agent,
        file: &Path,
        environment: &Environment,
    ) -> anyhow::Result<Option<Self>> {
        let place = Self::place(agent, file, environment).with_context(no_home)?;
        let Some(text) = files::read(&place)? else {
            return Ok(None);
        };
        let read = serde_json::from_str(&text);
        read.with_context(|| format!("can't read {}", place.display()))
            .map(Some)
    }

    /// Keeps the note, for the owner alone.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn keep(&self, agent: Agent, environment: &Environment) -> anyhow::Result<()> {
        let place = Self::place(agent, &self.file, environment).with_context(no_home)?;
        files::make_directories(&place)?;
        files::replace(&place, &(serde_json::to_string_pretty(self)? + "\n"))
    }

    /// Forgets the note.
    ///
    /// # Errors
    /// If it can't be removed.
    pub fn forget(&self, agent: Agent, environment: &Environment) -> anyhow::Result<()> {
        let place = Self::place(agent, &self.file, environment).with_context(no_home)?;
        // The directory of the notes goes with the last of them.
        let directory = place.parent().map(Path::to_owned);
        files::remove(&place, directory.as_slice())
    }
}

fn no_home() -> &'static str {
    "what setup changes is noted below the home directory, and none is known: set HOME"
}

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// From where on a text differs from what it was, for how long, and what stood there.
fn difference<'a>(before: &'a str, after: &str) -> (usize, usize, &'a str) {
    let same = before.bytes().zip(after.bytes());
    let mut start = same.take_while(|(one, other)| one == other).count();
    while !(before.is_char_boundary(start) && after.is_char_boundary(start)) {
        start -= 1;
    }
    let (before, after) = (before.get(start..), after.get(start..));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let same = before.bytes().rev().zip(after.bytes().rev());
    let mut end = same.take_while(|(one, other)| one == other).count();
    while !before.is_char_boundary(before.len() - end) || !after.is_char_boundary(after.len() - end)
    {
        end -= 1;
    }
    let removed = before.get(..before.len() - end).unwrap_or_default();
    (start, after.len() - end, removed)
}
