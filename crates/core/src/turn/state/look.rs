//! A turn as somebody looks at it: its items with their texts, and what its view shows in their place.
//! Prepares nothing and sends nothing. Never moves a mark.

use std::sync::Arc;

use plimsoll_model::{ItemKind, Mark, Marks};
use plimsoll_wire::Dialect;

use super::{HopContext, TurnState};
use crate::session::index::ItemIndex;
use crate::session::transcript::Transcript;
use crate::session::view::View;
use crate::turn::memo::Decoded;
use crate::turn::originals::Originals;

/// A turn that somebody looks at.
pub struct Look<'a> {
    originals: Originals<'a>,
    view: &'a View,
}

impl TurnState {
    /// The originals of a transcript of this turn.
    pub(in crate::turn) fn originals<'a>(
        &'a self,
        transcript: &'a Transcript,
        decoded: Option<&'a Decoded<'a>>,
    ) -> Originals<'a> {
        Originals {
            request: &self.request,
            shapes: &self.shapes,
            path: &self.path,
            pending: &self.pending,
            transcript,
            calls: &self.calls,
            decoded,
        }
    }

    /// Looks at the turn under the marks that it has now.
    pub fn look_at<T>(&self, tools: &HopContext<'_>, look: impl FnOnce(&Look<'_>) -> T) -> T {
        let transcript = Arc::new(self.transcript(tools));
        let decoded = Decoded::default();
        let written = self.written(tools, &transcript, &decoded);
        let view = written.view(&transcript, &self.marks);
        look(&Look {
            originals: self.originals(&transcript, None),
            view: &view,
        })
    }

    /// Looks at the turn under several sets of marks, one after the other. Its texts are read once.
    pub fn look_under(
        &self,
        tools: &HopContext<'_>,
        markings: impl Iterator<Item = Arc<Marks>>,
        each: &mut dyn FnMut(&Look<'_>),
    ) {
        let transcript = Arc::new(self.transcript(tools));
        let decoded = Decoded::default();
        let written = self.written(tools, &transcript, &decoded);
        for marks in markings {
            let view = written.view(&transcript, &marks);
            each(&Look {
                originals: self.originals(&transcript, None),
                view: &view,
            });
        }
    }
}

impl Look<'_> {
    /// The tools array as the client sent it, and its wire format.
    #[must_use]
    pub fn tools(&self) -> Option<(Dialect, String)> {
        let request = self.originals.request;
        let tools = request.tools_bytes()?;
        Some((request.dialect, String::from_utf8_lossy(tools).into_owned()))
    }

    /// The transcript.
    #[must_use]
    pub fn transcript(&self) -> &Transcript {
        self.view.transcript()
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> &View {
        self.view
    }

    /// The original of an item: the result of a call, else its own text.
    #[must_use]
    pub fn original(&self, index: ItemIndex) -> Option<String> {
        let whole = self.originals.whole(index);
        whole.map(std::borrow::Cow::into_owned)
    }

    /// A call's name and arguments as the model wrote them.
    #[must_use]
    pub fn call(&self, index: ItemIndex) -> Option<String> {
        let item = self.transcript().items.get(index)?;
        (item.kind == ItemKind::Call).then(|| self.originals.call(index))?
    }

    /// What the view shows in place of an item's text. None if it shows the item as it came, or nothing.
    #[must_use]
    pub fn shown(&self, index: ItemIndex) -> Option<String> {
        let item = self.transcript().items.get(index)?;
        if self.view.marks().get(item.no) == Mark::Live {
            return None;
        }
        let notes = self.view.notes();
        let result = notes.results.get(&index).map(|note| note.text());
        let arguments = notes.arguments.get(&index).map(|note| note.text());
        match (arguments, result) {
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => Some(one.to_owned()),
            (Some(arguments), Some(result)) => Some(format!("{arguments}\n{result}")),
        }
    }
}
