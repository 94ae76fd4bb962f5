//! Where recorded sessions come from: files of our own form, and what agents keep. Owns the finding
//! of them. Never changes one.

use std::path::{Path, PathBuf};

use super::agents::{self, Form};
use super::trace::{self, Found, Trace, TraceError};

/// The name of opencode's database in its directory.
const DATABASE: &str = "opencode.db";

/// Something that is read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file: a recording, or a session of an agent's.
    File(PathBuf),
    /// A file beside an agent's sessions. If it is none of them, there is nothing to read.
    Kept(PathBuf),
    /// A session in opencode's database.
    Stored {
        /// The database.
        database: PathBuf,
        /// The session's id.
        session: String,
        /// How long its texts are.
        bytes: u64,
    },
}

impl Source {
    /// How much there is to read, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File(file) | Self::Kept(file) => {
                std::fs::metadata(file).map_or(0, |data| data.len())
            }
            Self::Stored { bytes, .. } => *bytes,
        }
    }

    /// The conversations. A recording of our own form is one; what an agent keeps may be several, or
    /// none if nothing was answered.
    ///
    /// # Errors
    /// [`TraceError`] if it can't be read, or is a recording without an answer.
    pub fn read(&self) -> Result<Vec<Trace>, TraceError> {
        match self {
            Self::File(file) => {
                let text = trace::text(file)?;
                match Form::of(&text) {
                    Some(form) => Ok(form.read(&trace::stem(file), &text)),
                    None => Ok(vec![trace::of_text(file, &text)?]),
                }
            }
            Self::Kept(file) => {
                let text = trace::text(file)?;
                let form = Form::of(&text);
                Ok(form.map_or_else(Vec::new, |form| form.read(&trace::stem(file), &text)))
            }
            Self::Stored {
                database, session, ..
            } => {
                let failed = |cause| failed(database, cause);
                let (read, bad) = agents::read_database(database, session).map_err(failed)?;
                let mut traces = agents::traces(session, read);
                if let Some(first) = traces.first_mut() {
                    first.skipped = (1..=bad).collect();
                }
                Ok(traces)
            }
        }
    }
}

fn failed(database: &Path, cause: agents::OpencodeError) -> TraceError {
    TraceError::Database {
        path: database.display().to_string(),
        cause,
    }
}

/// What there is to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// In the order in which it is read.
    pub found: Vec<Source>,
    /// What was passed over, and why, a line each.
    pub skipped: Vec<String>,
}

/// What an agent keeps in a place.
///
/// # Errors
/// As [`find`].
pub fn kept(place: &Path) -> Result<Sources, TraceError> {
    let Sources { found, skipped } = find(&[place.to_owned()])?;
    let kept = found.into_iter().map(|source| match source {
        Source::File(file) => Source::Kept(file),
        other @ (Source::Kept(_) | Source::Stored { .. }) => other,
    });
    Ok(Sources {
        found: kept.collect(),
        skipped,
    })
}

/// What was named: each file itself, of a directory all recordings in it and below it by name, and
/// of a database all its sessions.
///
/// # Errors
/// [`TraceError`] where something can't be read, or a directory holds nothing.
pub fn find(named: &[PathBuf]) -> Result<Sources, TraceError> {
    let mut sources = Sources::default();
    for path in named {
        let inside = path.join(DATABASE);
        let database = [path, &inside]
            .into_iter()
            .find(|file| agents::is_database(file));
        if let Some(database) = database {
            let sessions = agents::sessions(database).map_err(|cause| failed(database, cause))?;
            let stored = |(session, bytes)| Source::Stored {
                database: database.clone(),
                session,
                bytes,
            };
            sources.found.extend(sessions.into_iter().map(stored));
        }
        if database != Some(path) {
            match trace::files(std::slice::from_ref(path)) {
                Ok(Found { files, skipped }) => {
                    sources.found.extend(files.into_iter().map(Source::File));
                    sources.skipped.extend(skipped);
                }
                Err(TraceError::Nothing(_)) if database.is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(sources)
}
