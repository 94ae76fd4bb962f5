//! The flags of `plimsoll replay --views` and `--cut-points`. Owns what they mean; never plays anything.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use plimsoll_core::turn::sizes::SizeError;
use plimsoll_lab::sample::{Choice, Place};
use plimsoll_lab::views::Match;
use serde_json::Value;

use super::lab::count;

/// At which turns policies are looked at, and what is made of their views.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("looked").args(["views", "cut_points"]).multiple(true)))]
pub struct ViewsArgs {
    /// Cut each conversation once, before a request above the budget, and say whether what each policy
    /// still shows there holds what the recorded future needs (docs/evidence/quality.md). With --views, write
    /// the views at these points. Takes one budget.
    #[arg(long, conflicts_with_all = ["json", "html", "explain"])]
    pub cut_points: bool,
    /// Of the future, the answers that count [default: all].
    #[arg(long, value_name = "COUNT", requires = "cut_points", value_parser = clap::value_parser!(u32).range(1..))]
    horizon: Option<u32>,
    /// Write what each policy sends at some turns, and the recorded answer, for a model to judge
    /// (docs/evidence/quality.md). Takes one budget.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "html", "explain"])]
    pub views: Option<PathBuf>,
    /// Write what stands for one evicted exploration in several forms in place of what each policy sends, at turns whose
    /// answer needs some of it: nothing, stubs, a finding, the whole (docs/evidence/quality.md). The first policy makes the views.
    #[arg(long, requires = "views", conflicts_with_all = ["cut_points", "match_size"])]
    pub worth: bool,
    /// Bring the views to one mean size: so many tokens, or the least that all of them reach.
    #[arg(long, value_name = "TOKENS", requires = "looked", num_args = 0..=1,
          default_missing_value = "least", value_parser = size)]
    match_size: Option<Match>,
    /// Turns that are drawn.
    #[arg(
        long,
        default_value_t = 120,
        value_name = "COUNT",
        requires = "views",
        conflicts_with = "cut_points"
    )]
    turns: usize,
    /// Of these, turns that follow each other.
    #[arg(
        long,
        default_value_t = 2,
        value_name = "COUNT",
        requires = "views",
        conflicts_with = "cut_points"
    )]
    run: usize,
    /// Draws other turns.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", requires = "looked")]
    seed: u64,
    /// The longest history that a turn may have, in tokens [default: four times the budget].
    #[arg(long, value_name = "TOKENS", requires = "looked", value_parser = count)]
    longest: Option<u32>,
    /// Take the turns of views that were written before, in place of a draw.
    #[arg(
        long,
        value_name = "FILE",
        requires = "views",
        conflicts_with = "cut_points"
    )]
    like: Option<PathBuf>,
}

impl ViewsArgs {
    /// The turns that are asked for under a budget.
    ///
    /// # Errors
    /// If the file that names them can't be read.
    pub fn choice(&self, ceiling: u32) -> anyhow::Result<Choice> {
        Ok(Choice {
            like: self.like.as_deref().map(places).transpose()?,
            turns: self.turns,
            run: self.run,
            seed: self.seed,
            longest: u64::from(self.longest.unwrap_or(ceiling.saturating_mul(4))),
        })
    }

    /// One turn of each conversation under a budget. The longest history is that of the session, if nothing is said.
    #[must_use]
    pub fn cuts(&self) -> Choice {
        Choice {
            like: None,
            turns: usize::MAX,
            run: 1,
            seed: self.seed,
            longest: self.longest.map_or(u64::MAX, u64::from),
        }
    }

    /// How many answers of the future count.
    #[must_use]
    pub fn horizon(&self) -> usize {
        self.horizon.map_or(usize::MAX, |answers| answers as usize)
    }

    /// The size that is asked for.
    #[must_use]
    pub fn size(&self) -> Match {
        self.match_size.unwrap_or(Match::Nothing)
    }
}

/// The turns of a file of views, each once.
fn places(file: &Path) -> anyhow::Result<Vec<Place>> {
    let named = || format!("can't read {}", file.display());
    let text = std::fs::read_to_string(file).with_context(named)?;
    let mut places: Vec<Place> = Vec::new();
    for line in text.lines() {
        let view: Value = serde_json::from_str(line).with_context(named)?;
        let number = |field: &str| view.get(field).and_then(Value::as_u64);
        let session = view.get("session").and_then(Value::as_str);
        let (Some(session), Some(turn), Some(block)) = (session, number("turn"), number("block"))
        else {
            anyhow::bail!("{} holds no views", file.display());
        };
        let place = Place {
            session: session.to_owned(),
            turn: usize::try_from(turn)?,
            block: usize::try_from(block)?,
        };
        if places.last() != Some(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

fn size(text: &str) -> Result<Match, SizeError> {
    if text == "least" {
        return Ok(Match::Least);
    }
    count(text).map(|tokens| Match::Tokens(u64::from(tokens)))
}
