//! Whether the provider is asked why its cache missed, and what it is to compare the request with. Never reads
//! what it says.

use plimsoll_model::EditKind;
use plimsoll_wire::diagnosis::Compared;
use plimsoll_wire::stream::WhoAsked;

use super::TurnState;
use crate::session::path::PathEntry;

/// For how many turns after one that missed the provider is asked. The first only gives it something to compare
/// with; those after it tell, should the cache miss again.
const ASKED_TURNS: usize = 8;

impl TurnState {
    /// What the hop in hand is to be compared with. `None` if the provider is not asked.
    #[must_use]
    pub fn compared(&self) -> Option<Compared> {
        if !self.wants_diagnosis() {
            return None;
        }
        let known = self.answered.as_deref().and_then(Compared::with);
        match self.request.dialect.opts_in() {
            true => Some(known.unwrap_or(Compared(None))),
            false => known,
        }
    }

    /// Who asks the provider, if anybody does.
    #[must_use]
    pub fn who_asks(&self) -> WhoAsked {
        match self.compared() {
            _ if self.request.diagnosed => WhoAsked::Client,
            Some(_) => WhoAsked::Proxy,
            None => WhoAsked::Nobody,
        }
    }

    /// The id of the newest answer, if the next request may be compared with that. `missed` says whether this turn's
    /// first call missed.
    #[must_use]
    pub fn comparable(&self, missed: bool) -> Option<String> {
        let compares = missed && !self.request.dialect.opts_in() && self.may_diagnose();
        let wanted = compares || self.wants_diagnosis();
        self.answered.clone().filter(|_| wanted)
    }

    fn may_diagnose(&self) -> bool {
        let refused = self.terms.without.has(EditKind::Diagnosis);
        self.terms.diagnoses && !refused && !self.request.diagnosed
    }

    fn wants_diagnosis(&self) -> bool {
        let mut newest = self.path.entries.iter().rev().take(ASKED_TURNS);
        self.may_diagnose() && newest.any(|entry| PathEntry::missed(entry).is_some())
    }
}
