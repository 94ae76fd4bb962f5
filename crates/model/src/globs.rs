//! Globs on names, compiled once. Compared by how they are written. Never reads a request.

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Globs on names. Names are compared in lower case.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    written: Vec<String>,
    set: GlobSet,
}

/// A glob that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("write {glob:?} as a glob on names, such as \"list_*\": {cause}")]
pub struct GlobError {
    /// The glob.
    pub glob: String,
    /// What is wrong with it.
    pub cause: String,
}

impl GlobError {
    fn new(glob: String, cause: &globset::Error) -> Self {
        Self {
            glob,
            cause: cause.to_string(),
        }
    }
}

impl Globs {
    /// Compiles a list.
    ///
    /// # Errors
    /// [`GlobError`] for the first glob that can't be read.
    pub fn new(written: &[String]) -> Result<Self, GlobError> {
        let mut set = GlobSetBuilder::new();
        for glob in written {
            let read = Glob::new(&glob.to_lowercase());
            set.add(read.map_err(|cause| GlobError::new(glob.clone(), &cause))?);
        }
        let set = set.build();
        let set = set.map_err(|cause| GlobError::new(written.join(" "), &cause))?;
        Ok(Self {
            written: written.to_vec(),
            set,
        })
    }

    /// Whether one of them matches a name.
    #[must_use]
    pub fn match_name(&self, name: &str) -> bool {
        !self.set.is_empty() && self.match_lower(&name.to_lowercase())
    }

    /// Whether one of them matches a name that is in lower case already.
    #[must_use]
    pub fn match_lower(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }
}

impl PartialEq for Globs {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for Globs {}
