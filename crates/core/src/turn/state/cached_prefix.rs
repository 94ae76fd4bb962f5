//! How much of a request the request before it had already, at its front: the part that a provider
//! that caches prefixes may have. It is told for the client's request and for ours. Never reads
//! what a provider reports.

use plimsoll_model::{CacheFacts, MissCause, Role, TurnRecord};
use plimsoll_tokens::ledger::{LedgerTerms, RequestSizes};
use plimsoll_tokens::{CacheModel, Family};

use super::{HopContext, Prepared, TurnState};
use crate::commit::{self, Warmth};
use crate::session::path::PathEntry;
use crate::session::view::View;
use crate::turn::Mode;

impl TurnState {
    /// The client's request.
    #[must_use]
    pub fn client_asked(&self) -> RequestSizes {
        let same = self.same_client();
        RequestSizes {
            tokens: self.client_tokens,
            before: self.client_held,
            held: if same { self.client_held } else { 0 },
        }
    }

    /// The client's request, sent instead of a view. If the view before differed from it, the
    /// provider has none of it.
    #[must_use]
    pub fn own_asked(&self) -> RequestSizes {
        let own = self.client_asked();
        let alike = self.marks.is_empty() && !self.injected.any();
        RequestSizes {
            held: if alike { own.held } else { 0 },
            ..own
        }
    }

    /// Tokens of a view before its first answer.
    #[must_use]
    pub fn before_answers(&self) -> u64 {
        let said = self.shapes.iter();
        let before = said.take_while(|shape| shape.role != Role::Assistant);
        self.fixed + before.map(|shape| u64::from(shape.tokens())).sum::<u64>()
    }

    /// Whether the client sets breakpoints of the provider's cache itself.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.request.cached_for.longest.is_some()
    }

    /// How many breakpoints the request may have. None if the proxy sets none of its own, as where the client says that it
    /// decides alone.
    pub(super) fn sets_breakpoints(&self, family: &Family) -> Option<usize> {
        let most = self.terms.breakpoints(family, self.request.dialect);
        most.filter(|_| !self.request.caches_alone)
    }

    /// What it costs to write what is new to the cache, in plain tokens.
    pub(super) fn write_price(&self, family: &Family) -> f64 {
        match self.request.cached_for.ends_hourly() {
            true => family.prices.hour_write,
            false => family.prices.write,
        }
    }

    /// Tokens that a view has in addition before its first message: hidden tools, and guidance.
    #[must_use]
    pub fn added_in_front(&self) -> u64 {
        let tools = self.fixed.saturating_sub(self.client_tools);
        tools + self.spoken().saturating_sub(self.client_spoken)
    }

    /// Whether a view of this size, which has `whole` tokens without any eviction, shows the conversation otherwise
    /// than the client has it.
    #[must_use]
    pub fn is_edited(&self, size: u64, whole: u64) -> bool {
        let learned = !self.terms.without.shown().is_empty();
        learned || !self.marks.is_empty() || whole > size
    }

    /// What is known of the provider's cache. What a request asked to keep is kept for that long, though later ones
    /// ask for less.
    pub(super) fn warmth(&self, tools: &HopContext<'_>, changed: bool) -> Warmth {
        let last = self.path.newest().map(|record| record.ended);
        let usual = self.terms.cache_ttl(tools.family);
        // A clock that was ahead says nothing of what is kept now.
        let past = self.path.entries.iter();
        let past = past.filter(|entry| entry.record.ended <= tools.now);
        let until = past.filter_map(PathEntry::cached_until);
        let asked = until.max().unwrap_or(0).saturating_sub(last.unwrap_or(0));
        Warmth {
            now: tools.now,
            last,
            ttl: match tools.family.cache {
                CacheModel::None => usual,
                CacheModel::Automatic { .. } | CacheModel::Breakpoints { .. } => usual.max(asked),
            },
            changed,
        }
    }

    /// What the request has in common with the one before it, as far as its provider's cache depends on that.
    #[must_use]
    pub fn cache_facts(&self, tools: &HopContext<'_>, prepared: &Prepared) -> CacheFacts {
        let facts = CacheFacts {
            front: self.front,
            head: self.heads.last().map_or(0, |head| head.0.mark()),
            left: self.left_cached(tools.family),
            ..CacheFacts::default()
        };
        let Some(newest) = self.path.newest() else {
            return facts;
        };
        let warmth = self.warmth(tools, false);
        if commit::is_cold(&warmth) {
            let idle = tools.now.saturating_sub(newest.ended) / 1_000;
            let seconds = |seconds: u64| u32::try_from(seconds).unwrap_or(u32::MAX);
            return CacheFacts {
                cause: Some(MissCause::Expired),
                idle: (seconds(idle), seconds(warmth.ttl / 1_000)),
                ..facts
            };
        }
        let front = newest.facts.cache.front;
        let (system, set, effort) = self.front;
        let differs =
            |of: fn((u32, u32, u32)) -> u32, now: u32| front != (0, 0, 0) && of(front) != now;
        // A watched client's own bytes are sent, so nothing of ours changes what stands in the cache.
        let managed = self.terms.mode == Mode::Manage && self.is_managed();
        let guided = (prepared.guided.is_some() && !self.guide.among)
            || newest.injected != self.injected.delimiter
            || newest.recall != self.injected.recall;
        let whole = newest.facts.fail_open.is_some();
        let passed = prepared.pass.is_some() || self.shows_otherwise() || whole;
        let edited = self.path.aligned || prepared.view.transcript().changed;
        // What stands first in a prompt ends all that follows.
        let causes = [
            (newest.model != self.request.model, MissCause::Model),
            (differs(|front| front.1, set), MissCause::ClientTools),
            (differs(|front| front.0, system), MissCause::ClientSystem),
            (differs(|front| front.2, effort), MissCause::Effort),
            (managed && guided, MissCause::Guidance),
            (edited, MissCause::ClientHistory),
            (managed && passed, MissCause::Pass),
        ];
        let cause = causes.into_iter().find(|(holds, _)| *holds);
        let cause = cause.map(|(_, cause)| cause);
        let message = (cause == Some(MissCause::ClientHistory)).then(|| self.first_changed());
        CacheFacts {
            cause,
            message,
            ..facts
        }
    }

    /// The index of the first message that the client may have changed since the newest turn. Each record marks the messages
    /// before its answer, so those between two records that differ are not told apart.
    fn first_changed(&self) -> u32 {
        let system = self.shapes.iter();
        let system = system.take_while(|shape| shape.role == Role::System);
        let mut from = u32::try_from(system.count()).unwrap_or(u32::MAX);
        for entry in &self.path.entries {
            let head = self.heads.get(entry.position as usize);
            let then = entry.record.facts.cache.head;
            if then != 0 && head.is_none_or(|head| head.0.mark() != then) {
                break;
            }
            from = entry.position;
        }
        from
    }

    /// How many tokens the turn before left in the provider's cache, as that reported; 0 if it has not been seen to cache.
    fn left_cached(&self, family: &Family) -> u64 {
        let entries = &self.path.entries;
        if self.terms.mode != Mode::Manage {
            let newest = entries.last().and_then(PathEntry::watched);
            return newest.map_or(0, |usage| match family.cache {
                // What was written is not told, so only what was read before counts.
                CacheModel::Breakpoints { .. } => usage.cached,
                _ if usage.cached == 0 => 0,
                CacheModel::Automatic { .. } | CacheModel::None => usage.prompt,
            });
        }
        let told = entries.last().and_then(PathEntry::told);
        let Some((usage, _)) = told.filter(|_| entries.iter().rev().any(PathEntry::caches)) else {
            return 0;
        };
        match family.cache {
            // What stands behind the last breakpoint is not kept.
            CacheModel::Breakpoints { .. } => usage.cached + usage.cache_write,
            CacheModel::Automatic { .. } | CacheModel::None => usage.prompt,
        }
    }

    /// What the ledger needs to know of both requests.
    #[must_use]
    pub fn ledger_terms(&self, tools: &HopContext<'_>) -> LedgerTerms {
        let warmth = self.warmth(tools, false);
        let client_caches = match tools.family.cache {
            CacheModel::Breakpoints { implicit, .. } => implicit || self.is_marked(),
            CacheModel::Automatic { .. } | CacheModel::None => true,
        };
        let ours = self.sets_breakpoints(tools.family).is_some();
        LedgerTerms {
            warm: !commit::is_cold(&warmth),
            seen: self
                .path
                .entries
                .iter()
                .rev()
                .any(|entry| entry.has_cached()),
            client_caches,
            view_caches: client_caches || ours,
            hourly: self.request.cached_for.ends_hourly(),
            ratio: self.ratio(),
            ..LedgerTerms::of(tools.family)
        }
    }

    /// A view of this size. `cut` is the number of tokens at its front that its pass kept, if it
    /// had one.
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

    /// Whether the first view of the turn begins as the last view of the turn before: the model is
    /// the same, and nothing at the front has changed.
    fn goes_on(&self) -> bool {
        let prologue = self.path.newest().map(|record| record.prologue);
        self.same_client() && !self.shows_otherwise() && prologue == Some(self.prologue)
    }

    /// Whether the client's request continues the one before: it changed no history, model, system
    /// text or tools. If we changed the front ourselves, we can't tell whether the client did.
    fn same_client(&self) -> bool {
        let Some(newest) = self.path.newest() else {
            return false;
        };
        // At the end it changes nothing in front.
        let ours = (newest.guide != self.guide && !self.guide.among)
            || newest.injected != self.injected.delimiter
            || newest.recall != self.injected.recall
            || newest.without.shown() != self.terms.without.shown();
        let front = ours || newest.prologue == self.prologue;
        front && newest.model == self.request.model && !self.path.aligned
    }

    /// Tokens at the front of a view that a pass left unchanged.
    pub(super) fn cut(&self, before: &View, after: &View) -> u64 {
        let entries = after.transcript().entries.iter().zip(before.sizes());
        let same = entries.take_while(|(entry, _)| before.shown_of(entry) == after.shown_of(entry));
        self.fixed + same.map(|(_, size)| u64::from(*size)).sum::<u64>()
    }

    /// What the provider reads of each message of the client's, in tokens.
    pub(super) fn read_sizes(&self, family: &Family) -> Vec<u64> {
        let said = self
            .shapes
            .iter()
            .map(|shape| (shape.role, !shape.calls.is_empty()));
        let dropped = family.reasoning_read.dropped(&said.collect::<Vec<_>>());
        let sizes = self.shapes.iter().zip(dropped).map(|(shape, drops)| {
            u64::from(shape.tokens() - if drops { shape.reasoning } else { 0 })
        });
        sizes.collect()
    }

    /// Tokens of the client's messages that its previous request had: those before the answer that it continues.
    pub(super) fn held_before(&self, sizes: &[u64]) -> u64 {
        let newest = self.path.entries.last();
        let before = newest.map_or(0, |newest| newest.position as usize);
        sizes.iter().take(before).sum()
    }
}

/// The size of the last request of a turn.
fn last(record: &TurnRecord) -> u64 {
    record.hops.last().map_or(0, |hop| hop.estimate)
}
