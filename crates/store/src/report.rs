//! What a store says about itself: what opening it found, what damage destroyed, and how it is now.
//! Owns the words. Never repairs anything.

use std::path::PathBuf;

/// What opening a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Where a corrupt store was moved. The open one has what could still be read of it.
    pub quarantined: Option<PathBuf>,
    /// What was wrong with that store.
    pub reason: Option<String>,
    /// Whether the last stop was clean. Also true for a new directory.
    pub clean: bool,
    /// How many blobs are stored. Each turn writes at least one.
    pub blobs: u64,
    /// How many links are stored.
    pub links: u64,
    /// How many entries were read to check the store after an unclean stop.
    pub checked: u64,
    /// What was acknowledged once and is lost.
    pub lost: Loss,
    /// Files and directories that others could read. They are closed now.
    pub closed: Vec<PathBuf>,
    /// Files and directories that others can still read, and why.
    pub open: Vec<(PathBuf, String)>,
}

impl OpenReport {
    /// What an operator must know of it, one sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(moved) = &self.quarantined {
            notes.push(format!(
                "the store was corrupt ({}): it was moved to {} and rebuilt from its copies; remove the old one by hand",
                self.reason.as_deref().unwrap_or("unknown"),
                moved.display()
            ));
        }
        if self.lost.records() > 0 {
            let Loss {
                writes,
                blobs,
                links,
            } = self.lost;
            notes.push(format!(
                "records are lost to damage: {writes} groups of writes left only a trace, and {blobs} blobs and {links} links of earlier groups are missing; restore a backup if they matter"
            ));
        }
        for (path, why) in &self.open {
            notes.push(format!("others may read {}: {why}", path.display()));
        }
        notes
    }
}

/// What damage destroyed that no copy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How many groups of writes left only a trace. A group that was not acknowledged yet when the
    /// machine lost power also leaves one.
    pub writes: u64,
    /// How many blobs are missing.
    pub blobs: u64,
    /// How many links are missing.
    pub links: u64,
}

impl Loss {
    /// How much is lost, as one number. It is 0 only if nothing is lost.
    #[must_use]
    pub fn records(self) -> u64 {
        let least = u64::from(self.links > 0);
        self.writes.max(self.blobs).max(least)
    }
}

/// The state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The store found corruption and answers only with errors until a restart.
    pub degraded: bool,
    /// How many blobs did not match their id when they were read. They were reported as absent.
    pub mismatched: u64,
    /// How many batches could not be written.
    pub failed: u64,
    /// How many batches wait to be written.
    pub waiting: usize,
    /// How many records were acknowledged and are lost.
    pub lost: u64,
    /// How often a damaged store was rebuilt.
    pub rebuilt: u64,
    /// How often files were removed or replaced while they were in use.
    pub wiped: u64,
    /// How many blobs were removed because they were too old, or erased.
    pub swept: u64,
    /// Nothing outlives the process although it should, because the disk refuses.
    pub memory_only: bool,
    /// The records are of another tenant key than that of the process.
    pub other_key: bool,
    /// How often a server of the store refused or did not answer.
    pub refused: u64,
    /// How many round trips to a server reads took, including those that failed.
    pub read_trips: u64,
    /// How many round trips to a server writes took.
    pub write_trips: u64,
    /// How many bytes of memory the store's own cache takes, where the store knows.
    pub cached: u64,
}
