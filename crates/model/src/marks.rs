//! The marks of a path: how each item is shown, by item number, and what a pass chose to leave of
//! it. A mark only ever moves right. This is the only place that moves one, and the only place that
//! knows how marks are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ItemNo;
use super::weight::{list, shared};

/// How an item is shown. A mark only ever moves right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// As it was said.
    #[default]
    Live,
    /// A call: only some lines of its result are shown, or a pointer to the same text, or to its first
    /// lines with the other ones.
    Clipped,
    /// A call: its result is a stub. A text: it is one line. A `delimiter` call: its result says
    /// what is gone of its episode.
    Masked,
    /// A call: its result is the tombstone of its episode.
    Tombstone,
    /// A call: its arguments are cut. Its result may be a stub, a tombstone or whole.
    Trimmed,
    /// Not shown.
    Removed,
}

/// A mark as records store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StoredMark {
    /// [`Mark::Live`].
    Live,
    /// [`Mark::Clipped`].
    Clipped,
    /// [`Mark::Masked`].
    Masked,
    /// [`Mark::Trimmed`] if trimmed arguments of the item are kept, else [`Mark::Tombstone`].
    Folded,
    /// [`Mark::Removed`].
    Removed,
}

impl From<Mark> for StoredMark {
    fn from(mark: Mark) -> Self {
        match mark {
            Mark::Live => Self::Live,
            Mark::Clipped => Self::Clipped,
            Mark::Masked => Self::Masked,
            Mark::Tombstone | Mark::Trimmed => Self::Folded,
            Mark::Removed => Self::Removed,
        }
    }
}

impl From<StoredMark> for Mark {
    /// Reads `Folded` as a tombstone. [`Marks::keep`] finds those that are trimmed calls.
    fn from(mark: StoredMark) -> Self {
        match mark {
            StoredMark::Live => Self::Live,
            StoredMark::Clipped => Self::Clipped,
            StoredMark::Masked => Self::Masked,
            StoredMark::Folded => Self::Tombstone,
            StoredMark::Removed => Self::Removed,
        }
    }
}

/// What a pass chose to keep of a call and its result, as byte spans of the originals. The choice
/// depends on what else was in view at the time, so it is stored with the mark. The text is not
/// stored, because the client resends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kept {
    /// The length of the original result in bytes; none if the result stays whole. If the length
    /// differs now, the client has edited its copy, and the spans mean nothing.
    pub of: Option<u32>,
    /// Runs of whole lines of the result that stay. An empty one parts two runs that another result shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<(u32, u32)>,
    /// Whether long strings of the call's arguments are cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trimmed: bool,
    /// The call to whose result this one points, which is shown in full. It is the same text, or, if lines or the length
    /// are known, it has all runs of lines that don't stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<ItemNo>,
    /// The shape by which the result was clipped when it came in; none if a pass chose the lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<ResultShape>,
    /// The line below the result that names what it refers to, as it was first sent: what it names may have left the
    /// client's history since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refers: Option<String>,
    /// How many times running the call had brought this result, if a line below it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl Kept {
    /// A whole result of so many bytes, which only gets lines below it: one run, without a length of its own.
    #[must_use]
    pub fn whole(length: u32) -> Self {
        Self {
            lines: vec![(0, length)],
            ..Self::default()
        }
    }

    /// Whether a result under this mark is shown as a rung for new results left it, and no pass since:
    /// then the model never saw more of it.
    #[must_use]
    pub fn is_entered(&self, mark: Mark) -> bool {
        let entered = self.same.is_some() || self.shape.is_some() || self.has_lines_below();
        entered && mark == Mark::Clipped
    }

    /// Whether a line of ours stands below the result.
    #[must_use]
    pub fn has_lines_below(&self) -> bool {
        self.refers.is_some() || self.times.is_some()
    }
}

/// How a result is built, by which its clip chooses what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultShape {
    /// Matches of a search, each with its file and line.
    Search,
    /// Output of a build, of tests or of a shell.
    Log,
    /// JSON with many items, or JSON lines.
    Json,
    /// Anything else.
    Plain,
}

/// Marks by item number. An item without a mark is live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    marks: Vec<Mark>,
    kept: BTreeMap<ItemNo, Arc<Kept>>,
    /// Bytes of memory that all of `kept` takes.
    weight: usize,
}

/// Bytes of a map entry: nodes are at worst half full.
const PLACE: usize = 32;

impl Marks {
    /// The mark of an item.
    #[must_use]
    pub fn get(&self, item: ItemNo) -> Mark {
        self.marks.get(item.0 as usize).copied().unwrap_or_default()
    }

    /// What is kept of an item that is shown in part.
    #[must_use]
    pub fn kept(&self, item: ItemNo) -> Option<&Arc<Kept>> {
        self.kept.get(&item)
    }

    /// Moves a mark right. A mark that is further right already stays.
    pub fn raise(&mut self, item: ItemNo, mark: Mark) {
        let at = item.0 as usize;
        if at >= self.marks.len() {
            self.marks.resize(at + 1, Mark::Live);
        }
        if let Some(slot) = self.marks.get_mut(at) {
            *slot = mark.max(*slot);
        }
        // Nothing is shown of it any more.
        if mark == Mark::Removed {
            self.drop_kept(item);
        }
    }

    fn drop_kept(&mut self, item: ItemNo) {
        if let Some(kept) = self.kept.remove(&item) {
            self.weight = self.weight.saturating_sub(weight(&kept));
        }
    }

    /// Sets what is kept of an item. Of a removed item nothing is.
    pub fn keep(&mut self, item: ItemNo, kept: Arc<Kept>) {
        if self.get(item) == Mark::Removed {
            return;
        }
        self.drop_kept(item);
        // Records don't distinguish a trimmed call with a tombstone from other trimmed calls.
        // Replicas have to agree, so marks don't either: `session::marked` does, by the transcript.
        if kept.trimmed
            && let Some(mark @ Mark::Tombstone) = self.marks.get_mut(item.0 as usize)
        {
            *mark = Mark::Trimmed;
        }
        if *kept != Kept::default() {
            self.weight += weight(&kept);
            self.kept.insert(item, kept);
        }
    }

    /// Applies the moves of a pass, as proposed or as recorded.
    pub fn apply<M: Copy + Into<Mark>>(&mut self, moves: &[(ItemNo, M)], kept: &[(ItemNo, Kept)]) {
        for (item, mark) in moves {
            self.raise(*item, (*mark).into());
        }
        for (item, kept) in kept {
            self.keep(*item, Arc::new(kept.clone()));
        }
    }

    /// All marks that are not live, in item order.
    pub fn iter(&self) -> impl Iterator<Item = (ItemNo, Mark)> + '_ {
        self.marks
            .iter()
            .zip((0..).map(ItemNo))
            .filter(|(mark, _)| **mark != Mark::Live)
            .map(|(mark, item)| (item, *mark))
    }

    /// The items that are not live, with their marks as records store them.
    pub fn stored(&self) -> impl Iterator<Item = (ItemNo, StoredMark)> + '_ {
        self.iter().map(|(item, mark)| (item, mark.into()))
    }

    /// What is kept of the items that are shown in part, in item order.
    pub fn iter_kept(&self) -> impl Iterator<Item = (ItemNo, &Arc<Kept>)> + '_ {
        self.kept.iter().map(|(item, kept)| (*item, kept))
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn weight(&self) -> usize {
        list(&self.marks) + self.weight
    }

    /// Whether nothing was ever evicted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

/// Bytes of memory of what is kept of an item, with its map entry.
fn weight(kept: &Kept) -> usize {
    shared::<Kept>() + kept.owned() + PLACE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pass's moves and the same moves out of a record come to the same marks, and go into the
    /// next record as they stood in the first.
    #[test]
    fn recorded_moves_come_to_the_marks_that_they_were_made_of() {
        let cut = Kept {
            trimmed: true,
            ..Kept::default()
        };
        let stub = Kept {
            of: Some(9),
            ..Kept::default()
        };
        let made = [
            (ItemNo(1), Mark::Clipped),
            (ItemNo(2), Mark::Masked),
            (ItemNo(3), Mark::Tombstone),
            (ItemNo(4), Mark::Tombstone),
            (ItemNo(5), Mark::Trimmed),
            (ItemNo(6), Mark::Removed),
        ];
        let kept = [(ItemNo(4), stub), (ItemNo(5), cut)];
        let mut marks = Marks::default();
        marks.apply(&made, &kept);
        let record: Vec<(ItemNo, StoredMark)> = marks.stored().collect();
        let folded = |item: &&(ItemNo, StoredMark)| item.1 == StoredMark::Folded;
        let folded: Vec<u32> = record
            .iter()
            .filter(folded)
            .map(|(item, _)| item.0)
            .collect();
        assert_eq!(folded, [3, 4, 5]);
        let mut read = Marks::default();
        read.apply(&record, &kept);
        assert_eq!(read, marks);
        assert_eq!(read.iter().collect::<Vec<_>>(), made);
    }

    /// Neither the marks nor a record tell a tombstone whose call is trimmed from a trimmed call.
    #[test]
    fn a_tombstone_whose_call_is_trimmed_is_a_trimmed_call() {
        let cut = Kept {
            trimmed: true,
            ..Kept::default()
        };
        let mut marks = Marks::default();
        marks.apply(&[(ItemNo(0), Mark::Tombstone)], &[(ItemNo(0), cut)]);
        assert_eq!(marks.get(ItemNo(0)), Mark::Trimmed);
    }
}
