//! Finds what a recall names in histories that the client has dropped. What the client still sends comes first: nothing of
//! it is looked for here. Never cuts a document to size.

use std::fmt::Write as _;

use plimsoll_model::ItemNo;

use super::document::Document;
use super::find::names;
use super::{NotRecalled, Recalls, in_view};
use crate::intercept::recall::RecallAsk;
use crate::turn::dropped::DroppedItem;

/// How many items of a path are named.
const MOST_OF_A_PATH: usize = 32;

impl<'a> Recalls<'a> {
    /// What an id or a path stands for in the dropped histories. `None` if it stands for nothing there.
    pub(super) fn dropped(&self, ask: &RecallAsk) -> Option<Result<Document, NotRecalled>> {
        let mut found = self.state.dropped.find(&ask.id);
        let mut older = String::new();
        if found.is_empty() {
            found = self.reads_before(&ask.id);
            // The newest read of a file shows its present state; a search looks through all of them.
            let newest = ask.search.as_ref().map_or(1, |_| found.len());
            let others = found.drain(found.len().min(newest)..);
            let others: Vec<&str> = others.map(|(_, item)| &*item.id).collect();
            if !others.is_empty() {
                older = format!(", as {} was before it", others.join(", "));
            }
        }
        let (first, _) = found.first()?;
        if let (1, Some(standing)) = (found.len(), self.brought(*first)) {
            return Some(Err(in_view(format!("{} {standing}", ask.id))));
        }
        let head = format!("recalled {}, of the history before this one{older}", ask.id);
        let mut document = Document::headed(head);
        let alone = found.len() == 1;
        for (no, item) in found {
            if alone {
                document.call(&item.call);
            } else {
                document.line();
                let _ = write!(document.text, "[{}] ", item.id);
                if !item.call.is_empty() {
                    let _ = writeln!(document.text, "{}", item.call);
                }
            }
            document.push(no, &item.original);
            document.pictures.extend(item.pictures.iter().cloned());
        }
        Some(Ok(document))
    }

    /// What the dropped histories have of a path, the newest first.
    fn reads_before(&self, path: &str) -> Vec<(ItemNo, &DroppedItem)> {
        let calls = self.state.dropped.iter().rev();
        let named = calls.filter(|(_, item)| names(&item.call, path));
        named.take(MOST_OF_A_PATH).collect()
    }

    /// The ids of what the dropped histories have of a path, for a result that says what is in view; empty if there are
    /// none.
    pub(super) fn also_before(&self, path: &str) -> String {
        let reads = self.reads_before(path);
        let ids: Vec<&str> = reads.iter().map(|(_, item)| &*item.id).collect();
        match ids.is_empty() {
            true => String::new(),
            false => format!("; the history before has {}", ids.join(", ")),
        }
    }
}
