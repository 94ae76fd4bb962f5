//! What of a request stood in the request before it, on both sides of the proxy: what a provider that
//! caches prefixes may have of it. Never reads what a provider reports.

use super::{State, Tools};
use crate::commit::{self, Warmth};
use crate::model::{EditKind, Edits, Role, TurnRecord};
use crate::session::view::View;
use crate::tokens::CacheModel;
use crate::tokens::ledger::{LedgerTerms, RequestSizes};
use memchr::memmem;

/// The field that a breakpoint of the provider's cache is.
const MARKER: &[u8] = b"cache_control";

impl State {
    /// The client's own request.
    #[must_use]
    pub fn client_asked(&self) -> RequestSizes {
        let same = self.same_client();
        RequestSizes {
            tokens: self.client_tokens,
            before: self.client_held,
            held: if same { self.client_held } else { 0 },
        }
    }

    /// The client's own request, sent in place of a view: where the view before was another one, the
    /// provider has nothing of it.
    #[must_use]
    pub fn own_asked(&self) -> RequestSizes {
        let own = self.client_asked();
        let alike = self.marks.is_empty() && !self.injected.any();
        RequestSizes {
            held: if alike { own.held } else { 0 },
            ..own
        }
    }

    /// Tokens of a view before the first answer in it.
    #[must_use]
    pub fn before_answers(&self) -> u64 {
        let said = self.shapes.iter();
        let before = said.take_while(|shape| shape.role != Role::Assistant);
        self.fixed + before.map(|shape| u64::from(shape.tokens())).sum::<u64>()
    }

    /// Whether the client sets breakpoints of the provider's cache itself.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        memmem::find(&self.request.body, MARKER).is_some()
    }

    /// What both sides of the turn have in common.
    #[must_use]
    pub fn ledger_terms(&self, tools: &Tools<'_>) -> LedgerTerms {
        let warmth = Warmth {
            now: tools.now,
            last: self.path.newest().map(|record| record.ended),
            ttl: self.terms.cache_ttl(tools.family),
            changed: false,
        };
        let client_caches = match tools.family.cache {
            CacheModel::Breakpoints { implicit, .. } => implicit || self.is_marked(),
            CacheModel::Automatic { .. } | CacheModel::None => true,
        };
        LedgerTerms {
            warm: !commit::is_cold(&warmth),
            seen: self
                .path
                .entries
                .iter()
                .rev()
                .any(|entry| entry.has_cached()),
            client_caches,
            view_caches: client_caches || self.terms.breakpoints(tools.family).is_some(),
            ratio: self.ratio(),
            ..LedgerTerms::of(tools.family)
        }
    }

    /// A view of this size, whose pass kept so many tokens at its front, where it had one.
    pub(super) fn asked(&self, tokens: u64, cut: Option<u64>) -> RequestSizes {
        let before = match self.pending.last() {
            Some(hop) => hop.estimate,
            None => self.path.newest().map_or(0, last),
        };
        let goes_on = !self.pending.is_empty() || self.goes_on();
        let held = if goes_on { before } else { 0 };
        RequestSizes {
            tokens,
            before,
            held: held.min(tokens).min(cut.unwrap_or(u64::MAX)),
        }
    }

    /// Whether the first view of the turn begins as the last one of the turn before: nothing at the
    /// front has changed since, and the model is the same.
    fn goes_on(&self) -> bool {
        let prologue = self.path.newest().map(|record| record.prologue);
        self.same_client() && !self.shows_otherwise() && prologue == Some(self.prologue)
    }

    /// Whether the client's request goes on from the one before: it has changed no history, and neither
    /// model, system text nor tools. What we changed at the front ourselves hides what it did there.
    fn same_client(&self) -> bool {
        let Some(newest) = self.path.newest() else {
            return false;
        };
        let markers: Edits = [EditKind::Breakpoints].into_iter().collect();
        let ours = newest.guide != self.guide
            || newest.injected != self.injected.delimiter
            || newest.recall != self.injected.recall
            || newest.without.without(markers) != self.terms.without.without(markers);
        let front = ours || newest.prologue == self.prologue;
        front && newest.model == self.request.model && !self.path.aligned
    }

    /// Tokens at the front of a view that a pass left as they were.
    pub(super) fn cut(&self, before: &View, after: &View) -> u64 {
        let entries = after.transcript().entries.iter().zip(before.sizes());
        let same = entries.take_while(|(entry, _)| before.shown_of(entry) == after.shown_of(entry));
        self.fixed + same.map(|(_, size)| u64::from(*size)).sum::<u64>()
    }

    /// How much of the client's request stood in its request before, by its messages: what came before
    /// the answer that it goes on from.
    pub(super) fn count_held(&self, tools: u64) -> u64 {
        let Some(newest) = self.path.entries.last() else {
            return 0;
        };
        let before = self.shapes.iter().take(newest.position as usize);
        tools + before.map(|shape| u64::from(shape.tokens())).sum::<u64>()
    }
}

/// The size of the last request of a turn.
fn last(record: &TurnRecord) -> u64 {
    record.hops.last().map_or(0, |hop| hop.estimate)
}
