//! What a turn's own stages tell of hidden calls and of the guidance, in closed sets of words. Never
//! counts any of it.

use super::label_set;

label_set!(
    /// Why the guidance came into a conversation that was offered the hidden tools before, or had
    /// none.
    #[derive(Hash)]
    GuideReason {
        /// With its first pass.
        Pass => "pass",
        /// Its view passed the mark below the ceiling.
        Mark => "mark",
        /// A request asked for it.
        Asked => "asked",
    }
);

label_set!(
    /// What a `delimiter` call asks for.
    DelimiterAction {
        /// To open an episode.
        Start => "start",
        /// To close it.
        End => "end",
        /// Neither.
        Other => "other",
    }
);

label_set!(
    /// What came of a `recall` call.
    RecallOutcome {
        /// All that was asked for came back.
        Ok => "ok",
        /// A part of it did.
        Partial => "partial",
        /// The call could not be read.
        Refused => "refused",
        /// The same call stands before it in the turn.
        Repeated => "repeated",
        /// It is in view already.
        InView => "in_view",
        /// Nothing in it is what was searched for.
        NoMatch => "no_match",
        /// The turn has no room left for it.
        Full => "full",
        /// Nothing is known by the name.
        Unknown => "unknown",
        /// It is not in the history any more.
        Gone => "gone",
    }
);

/// One `recall` call and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallCall {
    /// Whether something was brought back, or why not.
    pub outcome: RecallOutcome,
    /// Tokens brought back.
    pub tokens: u64,
}
