//! What the stages of a turn report about hidden calls and the guidance, in closed sets of words.
//! Never counts any of it.

use super::label_set;

label_set!(
    /// Why the guidance came into a conversation that did not have it from the first request.
    #[derive(Hash)]
    GuideReason {
        /// With its first pass.
        Pass => "pass",
        /// Its view exceeded a share of the ceiling.
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
    /// The outcome of a `recall` call.
    RecallOutcome {
        /// All that was asked for came back.
        Ok => "ok",
        /// A part of what was asked for came back.
        Partial => "partial",
        /// The call could not be read.
        Refused => "refused",
        /// It repeats an earlier call of the turn.
        Repeated => "repeated",
        /// What it asks for is in view already.
        InView => "in_view",
        /// The searched text does not occur.
        NoMatch => "no_match",
        /// The turn has no room left for recalls.
        Full => "full",
        /// The id is unknown.
        Unknown => "unknown",
        /// What it asks for is no longer in the history.
        Gone => "gone",
    }
);

/// One `recall` call and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallCall {
    /// Whether something was brought back, or why not.
    pub outcome: RecallOutcome,
    /// Tokens brought back.
    pub tokens: u64,
}
