//! Makes the bytes of a hop whose view is decided. Never decides what the view shows.

use plimsoll_model::{EditKind, HiddenCall, Rope};
use plimsoll_wire::Dialect;
use plimsoll_wire::request::{Rewrite, UpstreamView};
use plimsoll_wire::stream::UsageWish;

use super::{HopContext, MiddleError, Planned, Prepared, TurnState};
use crate::render::{self, Breakpoints};
use crate::session::view::View;

impl TurnState {
    /// Makes the bytes of a hop that was planned.
    ///
    /// # Errors
    /// [`MiddleError::Render`] where its view can't be turned into bytes.
    pub fn render(&self, planned: Planned) -> Result<Prepared, MiddleError> {
        let Planned(prepared) = planned;
        let input = self.render_input(&prepared.view, prepared.breakpoints);
        let view = render::messages(&input)?;
        let mut edits = prepared.edits;
        if view.marked {
            edits.put(EditKind::Breakpoints);
        }
        if self.asks_usage() {
            edits.put(EditKind::Usage);
        }
        let body = self.body(view);
        Ok(Prepared {
            body,
            edits,
            ..prepared
        })
    }

    /// The first message of a view whose bytes have another size than the view says, with what is shown of it and
    /// both sizes. None in a view as it should be.
    #[must_use]
    pub fn miscounted(&self, tools: &HopContext<'_>, view: &View) -> Option<String> {
        let size = |bytes: &[u8]| Some(tools.reader.shape(bytes).ok()?.tokens());
        let input = self.render_input(view, None);
        let (at, said, sent) = render::miscounted(&input, &size)?;
        let entry = view.transcript().entries.get(at)?;
        Some(format!(
            "{at}: {said} said, {sent} sent, {:?} of {entry:?}",
            view.shown_of(entry)
        ))
    }

    /// The tokens of a hidden call of a turn as it is sent.
    pub(super) fn hidden_size(
        &self,
        tools: &HopContext<'_>,
        step: usize,
        call: &HiddenCall,
    ) -> u32 {
        let entry = self.path.entries.get(step);
        let names = entry.and_then(|entry| render::renamed(&entry.record, call, &self.injected));
        // A replay may leave out what hidden calls cost.
        let names = names.filter(|_| call.tokens > 0);
        let size = |name| tools.reader.count(name);
        names.map_or(call.tokens, |(then, now)| {
            (call.tokens + size(now)).saturating_sub(size(then))
        })
    }

    pub(super) fn render_input<'a>(
        &'a self,
        view: &'a View,
        breakpoints: Option<Breakpoints>,
    ) -> render::RenderInput<'a> {
        render::RenderInput {
            request: &self.request,
            path: &self.path,
            pending: &self.pending,
            view,
            injected: &self.injected,
            guidance: self.guidance.clone(),
            among: self.among.as_ref().map(|among| &*among.message),
            tools: self.tools.clone(),
            breakpoints,
        }
    }

    /// What the client's stream is to have of usage. If the upstream is not asked for any, what it sends is its own.
    #[must_use]
    pub fn usage_wish(&self) -> UsageWish {
        match self.request.usage_wish {
            UsageWish::Added if self.terms.without.has(EditKind::Usage) => UsageWish::Refused,
            wish => wish,
        }
    }

    fn asks_usage(&self) -> bool {
        let asks = self.request.dialect == Dialect::Chat && self.request.stream;
        asks && self.usage_wish() == UsageWish::Added
    }

    fn body(&self, view: UpstreamView) -> Rope {
        self.request.with(Rewrite {
            view,
            tools: self.tools.clone(),
            ask_usage: self.asks_usage(),
            compared: self.compared(),
            later: self.later_hop(),
        })
    }
}
