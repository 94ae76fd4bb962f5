//! The tree below a session: its sub-agents and branches, and theirs, with the sums over all of it. Owns which rows
//! belong to it. Reads rows alone, and never a record.

use std::collections::{HashMap, HashSet};

use memchr::memmem::Finder;
use plimsoll_proxy::pipeline::App;
use serde_json::{Value, json};

use super::error::ConsoleError;
use super::known;
use super::rows::{self, ListedRow};
use super::totals::Totals;

/// How the field is written that a row has if it names a parent.
const PARENT: &str = "parent";

/// A session with all that descends from it.
#[derive(Default)]
pub struct Tree {
    /// The rows of the root: none where only its children are known, and two where it was first watched and then
    /// managed.
    root: Vec<ListedRow>,
    /// The rows below it.
    pub below: Vec<ListedRow>,
}

impl Tree {
    /// Reads the tree of a session. A name that no row has, as itself or as a parent, has
    /// an empty one.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn read(app: &App, name: &str) -> Result<Self, ConsoleError> {
        let mut tree = Self::default();
        let mut children: HashMap<String, Vec<ListedRow>> = HashMap::new();
        for one in family(app, name)? {
            if one.row.session == name {
                tree.root.push(one);
            } else if let Some(parent) = one.row.parent.clone() {
                children.entry(parent).or_default().push(one);
            }
        }
        // Clients name their parents themselves, so two sessions may name each other. What was taken out is not
        // found again.
        let mut parents = vec![name.to_owned()];
        while let Some(parent) = parents.pop() {
            for one in children.remove(&parent).into_iter().flatten() {
                parents.push(one.row.session.clone());
                tree.below.push(one);
            }
        }
        // In the list's own order, in which texts are searched.
        tree.below
            .sort_by_key(|one| std::cmp::Reverse(rows::place(&one.row)));
        Ok(tree)
    }

    /// The sums over the root and all below it.
    #[must_use]
    pub fn sums(&self) -> Value {
        let mut totals = Totals::default();
        let mut sessions = HashSet::new();
        for one in self.root.iter().chain(&self.below) {
            totals.add(&one.row);
            if !one.row.branch {
                sessions.insert(&one.row.session);
            }
        }
        let mut shown = totals.shown();
        shown.insert("sessions".to_owned(), sessions.len().into());
        for (name, count) in [
            ("passes", totals.passes),
            ("hops", totals.hops),
            ("recalls", totals.recalls),
        ] {
            shown.insert(name.to_owned(), json!(count));
        }
        Value::Object(shown)
    }
}

/// The rows that name a parent, and those of the session itself, as they were written.
fn family(app: &App, name: &str) -> Result<Vec<ListedRow>, ConsoleError> {
    let wanted = [Finder::new(PARENT), Finder::new(name)];
    let has = |row: &[u8]| wanted.iter().any(|text| text.find(row).is_some());
    let mut family = Vec::new();
    for watched in [false, true] {
        known::each_page(known::store(app, watched), None, &has, &mut |page| {
            family.extend(page.into_iter().map(|row| ListedRow {
                row,
                watched,
                item: None,
            }));
            Ok(family.len() < rows::MOST_SORTED)
        })?;
    }
    Ok(family)
}
