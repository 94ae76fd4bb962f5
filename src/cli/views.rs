//! The flags of `plimsoll replay --views`. Owns what they mean; never plays anything.

use std::path::PathBuf;

use clap::Args;

use crate::replay::sample::Choice;
use crate::replay::views::Match;
use crate::turn::tokens;

/// Which views are written.
#[derive(Debug, Args)]
pub struct ViewsArgs {
    /// Write what each policy sends at some turns, and the recorded answer, for a model to judge
    /// (docs/quality.md). Takes one ceiling.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "explain"])]
    pub views: Option<PathBuf>,
    /// Bring the views to one mean size: so many tokens, or the least that any policy has.
    #[arg(long, value_name = "TOKENS", requires = "views", num_args = 0..=1,
          default_missing_value = "least", value_parser = size)]
    match_size: Option<Match>,
    /// Turns that are drawn.
    #[arg(long, default_value_t = 120, value_name = "COUNT", requires = "views")]
    turns: usize,
    /// Of these, turns that follow each other.
    #[arg(long, default_value_t = 2, value_name = "COUNT", requires = "views")]
    run: usize,
    /// Draws other turns.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", requires = "views")]
    seed: u64,
    /// The longest history that a turn may have, in tokens [default: four times the ceiling].
    #[arg(long, value_name = "TOKENS", requires = "views", value_parser = history)]
    longest: Option<u32>,
}

impl ViewsArgs {
    /// The turns that are asked for under a ceiling.
    #[must_use]
    pub fn choice(&self, ceiling: u32) -> Choice {
        Choice {
            turns: self.turns,
            run: self.run,
            seed: self.seed,
            longest: u64::from(self.longest.unwrap_or(ceiling.saturating_mul(4))),
        }
    }

    /// The size that is asked for.
    #[must_use]
    pub fn size(&self) -> Match {
        self.match_size.unwrap_or(Match::Nothing)
    }
}

fn size(text: &str) -> Result<Match, String> {
    if text == "least" {
        return Ok(Match::Least);
    }
    history(text).map(|tokens| Match::Tokens(u64::from(tokens)))
}

fn history(text: &str) -> Result<u32, String> {
    tokens(text).ok_or_else(|| "give tokens, like 5000 or 5k".to_owned())
}
