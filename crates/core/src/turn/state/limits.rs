//! The ceiling and the floor of a hop's view, in counted tokens. Never decides a pass.

use plimsoll_model::{Role, Usage};
use plimsoll_tokens::calibrate;

use super::{HopContext, TurnState};
use crate::commit::{self, Growth};
use crate::policy::Target;
use crate::session::path::{PathEntry, REPORTS};
use crate::session::transcript::Transcript;
use crate::turn::silent_cut;

impl TurnState {
    /// The ratio of reported to counted tokens of the newest hop on the path with a report. Hops of
    /// this turn don't count, so that the first hop and its retry agree. Nor does the report of a prompt
    /// that the upstream cut: it says how much was left, and the ratio would call every view too small.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let newest = self.path.entries.iter().rev().take(REPORTS);
        let whole = |(reported, _): &(Usage, u64)| {
            let cut = self.terms.cut.map(u64::from);
            cut.is_none_or(|cut| !silent_cut::stays(reported.prompt, cut))
        };
        let mut told = newest.filter_map(PathEntry::told);
        let (reported, estimate) = told.find(whole).unwrap_or_default();
        calibrate::ratio(reported.prompt, estimate)
    }

    /// The ceiling and the floor in counted tokens. The ceiling is in the provider's tokens, which
    /// are the estimate times the ratio.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "token counts are far below 2^52 and the ratio is positive"
    )]
    pub(super) fn limits(
        &self,
        tools: &HopContext<'_>,
        transcript: &Transcript,
        ratio: f64,
        refused: Option<u64>,
    ) -> Target {
        let ceiling = match refused {
            // The refused size is in the provider's tokens, too.
            Some(size) => (size as f64 * 0.8 / ratio) as u64,
            None => (f64::from(self.terms.ceiling) / ratio) as u64,
        };
        let growth = self.growth(tools, transcript, ceiling);
        Target {
            fixed: self.fixed,
            ceiling,
            floor: commit::floor(self.terms.commit, &growth),
            window: self
                .terms
                .window
                .map(|size| (f64::from(size) / ratio) as u64),
        }
    }

    /// How fast the session grows, and what it pays, which decide how deep a pass goes and when one pays.
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts are far below 2^52"
    )]
    pub(super) fn growth(
        &self,
        tools: &HopContext<'_>,
        transcript: &Transcript,
        ceiling: u64,
    ) -> Growth {
        let turns = self.path.entries.len();
        let spoken: u64 = transcript
            .items
            .iter()
            .map(|item| u64::from(item.tokens))
            .sum();
        let per_turn = (turns >= commit::AUTO_TURNS).then(|| spoken as f64 / turns as f64);
        // Everything before the first answer stays in view in any case.
        let protected: u64 = transcript
            .entries
            .iter()
            .take_while(|entry| entry.role != Role::Assistant)
            .filter_map(|entry| transcript.items.get(entry.items.start))
            .map(|item| u64::from(item.tokens))
            .sum();
        Growth {
            ceiling,
            protected: protected + self.fixed,
            per_turn,
            read: tools.family.prices.read,
            write: self.write_price(tools.family),
            thoughts: self.stake(tools.family, transcript),
        }
    }
}
