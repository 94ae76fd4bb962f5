//! Decides which names of models may be labels. Owns the list and what it admitted. A client can
//! send any name, and each new label is a time series for ever. So a name must be listed, or match
//! a listed glob and have been answered by an upstream. Never admits more than a fixed number by
//! globs. All other names become `other`.

use std::collections::HashSet;
use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use parking_lot::RwLock;

use super::error::MetricsError;

/// The label of a value that is not listed.
pub(super) const OTHER: &str = "other";

/// How many names globs may admit in the life of a process.
const ADMITTED_LIMIT: usize = 64;
/// A longer name is not that of a model.
const NAME_LIMIT: usize = 80;

/// The list, and the names that it has admitted so far.
#[derive(Debug)]
pub(super) struct ModelLabels {
    globs: GlobSet,
    /// The listed names without wildcards, and those that globs admitted.
    admitted: RwLock<HashSet<Arc<str>>>,
    limit: usize,
    other: Arc<str>,
}

impl ModelLabels {
    pub fn new<S: AsRef<str>>(list: &[S]) -> Result<Self, MetricsError> {
        let mut globs = GlobSetBuilder::new();
        let mut admitted = HashSet::new();
        for entry in list {
            let entry = entry.as_ref();
            // A name without wildcards is admitted at once, so that its series stand at zero from
            // the start.
            if entry.contains(['*', '?', '[', '{', '\\']) {
                let glob = Glob::new(entry).map_err(|source| MetricsError::Model {
                    glob: entry.to_owned(),
                    source,
                })?;
                globs.add(glob);
            } else {
                admitted.insert(Arc::from(entry));
            }
        }
        let globs = globs.build().map_err(|source| MetricsError::Model {
            glob: "the list as a whole".into(),
            source,
        })?;
        let limit = admitted.len() + ADMITTED_LIMIT;
        Ok(Self {
            globs,
            admitted: RwLock::new(admitted),
            limit,
            other: OTHER.into(),
        })
    }

    /// The labels that are known from the start: the listed names without wildcards, and `other`.
    pub fn listed(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.admitted.read().iter().cloned().collect();
        names.push(Arc::clone(&self.other));
        names
    }

    /// The label of a model. `answered` says that an upstream answered under this name. A name that
    /// only a client said is never admitted.
    pub fn label(&self, model: &str, answered: bool) -> Arc<str> {
        if let Some(known) = self.admitted.read().get(model) {
            return Arc::clone(known);
        }
        // The glob is matched before the lock is taken for writing, because most names match none.
        if !answered || model.len() > NAME_LIMIT || !self.matches(model) {
            return Arc::clone(&self.other);
        }
        let mut admitted = self.admitted.write();
        if admitted.len() >= self.limit && !admitted.contains(model) {
            return Arc::clone(&self.other);
        }
        let name: Arc<str> = model.into();
        admitted.insert(Arc::clone(&name));
        name
    }

    /// Matches the name, also without the prefix that routers put before it.
    fn matches(&self, model: &str) -> bool {
        let bare = model.rsplit_once('/').map_or(model, |(_, bare)| bare);
        self.globs.is_match(model) || self.globs.is_match(bare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_listed_or_matches_and_was_answered() {
        let models = ModelLabels::new(&["mine", "gpt-*", "o[134]*"]).unwrap();
        for (model, answered, expect) in [
            ("mine", false, "mine"),
            ("gpt-5", false, "other"),
            ("gpt-5", true, "gpt-5"),
            // Once admitted it stays, whatever this request came to.
            ("gpt-5", false, "gpt-5"),
            ("openai/gpt-5-mini", true, "openai/gpt-5-mini"),
            ("o3", true, "o3"),
            ("o2", true, "other"),
            ("mine2", true, "other"),
            ("", true, "other"),
        ] {
            assert_eq!(
                &*models.label(model, answered),
                expect,
                "{model} {answered}"
            );
        }
        let long = format!("gpt-{}", "9".repeat(NAME_LIMIT));
        assert_eq!(&*models.label(&long, true), OTHER);
    }

    #[test]
    fn globs_admit_only_so_many() {
        let models = ModelLabels::new(&["gpt-5", "gpt-*"]).unwrap();
        let labels: HashSet<Arc<str>> = (0..1_000)
            .map(|n| models.label(&format!("gpt-x{n}"), true))
            .collect();
        assert_eq!(labels.len(), ADMITTED_LIMIT + 1);
        assert_eq!(&*models.label("gpt-5", true), "gpt-5");
        assert_eq!(&*models.label("gpt-x0", true), "gpt-x0");
    }

    #[test]
    fn a_malformed_glob_is_named() {
        let error = ModelLabels::new(&["gpt-[5"]).unwrap_err();
        assert!(error.to_string().contains("gpt-[5"), "{error}");
    }
}
