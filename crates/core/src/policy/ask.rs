//! The question that a policy answers: which policy, which order, over which view, and how much has
//! to go. Also the levels by which an answer counts what it evicts. Never answers it.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_model::{Globs, ReasoningBack, Words, label_set};

use super::protect::{ItemSet, Protection, Rules};
use crate::clip::ClipLimits;
use crate::session::graph::EpisodeKind;
use crate::session::index::{EpisodeIndex, ItemIndex};
use crate::session::measure::Measure;
use crate::session::view::View;

/// A text that is decoded once for all who ask for it.
pub type Text<'a> = Rc<Cow<'a, str>>;

label_set!(
    /// A policy by name, baselines first.
    #[derive(Default, Hash, PartialOrd, Ord)]
    Policy {
        /// Nothing is ever evicted.
        None => "none",
        /// A new result over a limit is clipped by its shape.
        Admit => "admit",
        /// A line below a new result says that the same call brings the same result again and again.
        LoopGuard => "loop-guard",
        /// What the settings name is taken last by the policies behind this one.
        Keep => "keep",
        /// A new result that is still shown in full further up becomes a pointer to it, and so do those of its lines that
        /// an earlier one shows.
        Repeat => "repeat",
        /// Calls with their results go, oldest first.
        Recency => "recency",
        /// Whole assistant turns are folded, oldest first, into a line for each span of them that names
        /// what went (paper 003, baselines).
        OldestTurn => "oldest-turn",
        /// Results of tools go, largest first (paper 003, baselines).
        ToolPrune => "tool-prune",
        /// Results of search and shell tools are masked first, their ends left; then results go, oldest
        /// first (paper 003, baselines).
        ToolMaskPrune => "tool-mask-prune",
        /// Half by results of tools, half by folding whole turns (paper 003, baselines).
        Hybrid => "hybrid",
        /// Of the results before the last two user turns all but the newest 40,000 tokens go, if that
        /// frees more than 20,000 (paper 001, tier 2).
        ThreeTier => "three-tier",
        /// All results but the newest three go, as providers' own clearing does it.
        KeepRecent => "keep-recent",
        /// All but the newest 8,000 tokens goes, for a summary that a model would have to write:
        /// for replays only.
        Compaction => "compaction",
        /// The published order (paper 000, Algorithm 1) under the published terms: the floor is the
        /// ceiling, and no tail is protected.
        CwlPaper => "cwl-paper",
        /// The episode graph in levels.
        #[default]
        Cwl => "cwl",
    }
);

impl Policy {
    /// Those that a request may ask for: all that need no model.
    pub const SERVED: &'static [Self] = &[
        Self::Repeat,
        Self::Admit,
        Self::LoopGuard,
        Self::Keep,
        Self::Cwl,
        Self::CwlPaper,
        Self::None,
        Self::Recency,
        Self::OldestTurn,
        Self::ToolPrune,
        Self::ToolMaskPrune,
        Self::Hybrid,
        Self::ThreeTier,
        Self::KeepRecent,
    ];
}

/// In which order `cwl` evicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Results of all eligible episodes before any call, text or episode; large ones keep the lines
    /// whose strings occur nowhere else for a while.
    #[default]
    Levels,
    /// Episode by episode, as published (paper 000, Algorithm 1).
    Paper,
}

impl Order {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("levels", Self::Levels), ("paper", Self::Paper)];
}

/// Settings of the eviction order.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionSettings {
    /// The order of `cwl`.
    pub order: Order,
    /// Raw tokens at the tail that a pass takes last.
    pub protect_recent: u32,
    /// Whether nothing inside an open episode is ever evicted, as in the paper, in the finer order
    /// too.
    pub strict_active: bool,
    /// Whether everything before the first `start` is prologue, which the published order never
    /// evicts (paper 000 §4.3). Set if the model knew `delimiter` from the first request on.
    pub prologue_until_start: bool,
    /// Which thoughts must come back to the provider.
    pub reasoning_back: ReasoningBack,
    /// Result size in tokens above which a tool that no list names counts as bulk.
    pub bulk_above: u32,
    /// Which new results `admit` clips.
    pub admit: AdmitSettings,
    /// What a result says, in lower case, that refers to an earlier one for what is unchanged.
    pub unchanged: Arc<[String]>,
    /// What passes take last, with the tail of recent tokens.
    pub held: ItemSet,
    /// What the policy may not touch at all, because its filter leaves it out.
    pub spared: ItemSet,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        Self {
            order: Order::Levels,
            protect_recent: 8000,
            strict_active: false,
            prologue_until_start: false,
            reasoning_back: ReasoningBack::None,
            bulk_above: 2000,
            admit: AdmitSettings::default(),
            unchanged: Arc::default(),
            held: ItemSet::default(),
            spared: ItemSet::default(),
        }
    }
}

/// Which new results are clipped, and to what size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitSettings {
    /// The largest size of a result that is shown whole.
    pub limits: ClipLimits,
    /// Whether results of reads are clipped too. Of what a model reads it needs the lines that it
    /// edits.
    pub reads: bool,
    /// Tools whose results are never clipped.
    pub except: Globs,
}

impl Default for AdmitSettings {
    fn default() -> Self {
        Self {
            // Paper 002 clips strings over 4,000 tokens.
            limits: ClipLimits {
                tokens: 4_000,
                lines: 0,
                bytes: 0,
            },
            reads: false,
            except: Globs::default(),
        }
    }
}

/// How much a pass has to evict, in raw tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The size of what is sent beside the transcript: tools and guidance.
    pub fixed: u64,
    /// The size that may not be exceeded.
    pub ceiling: u64,
    /// The size down to which a pass evicts.
    pub floor: u64,
    /// The model's window, if it is known.
    pub window: Option<u64>,
}

/// The question that a policy answers.
#[derive(Clone, Copy)]
pub struct PolicyAsk<'a> {
    /// The view as it is now.
    pub view: &'a View,
    /// Settings of the order.
    pub config: &'a EvictionSettings,
    /// How the proxy's own texts are made and counted.
    pub measure: Measure<'a>,
    /// How much has to go.
    pub target: Target,
    /// The original text of an item: a result's or a message's text, or a call's arguments. `None`
    /// if it has none or can't be edited.
    pub originals: &'a dyn Fn(ItemIndex) -> Option<Text<'a>>,
    /// The strings of an original, which are read only once. Those of a call are the strings of its
    /// arguments' texts, as [`crate::session::stub::words`] joins them. `None` if an item has none.
    pub words: &'a dyn Fn(ItemIndex) -> Option<Arc<Words>>,
}

impl PolicyAsk<'_> {
    /// What a pass under an order of these rules may not touch at first: the newest message, the last `recent` raw
    /// tokens of what is shown, what is held, and what the policy's filter leaves out.
    pub(super) fn protection(&self, recent: u32, rules: Rules) -> Protection {
        let protection = Protection::new(self.view.marked(), recent);
        let EvictionSettings { held, spared, .. } = self.config;
        let protection = protection.holding(held).sparing(spared);
        match rules {
            Rules::Strict => protection.under(rules).behind(self.prologue()),
            // The paper's rule: nothing of an open episode goes.
            Rules::Parts if self.config.strict_active => protection.under(Rules::Strict),
            Rules::Parts | Rules::Off => protection.under(rules),
        }
    }

    /// Whether any of that may go before a budget is reported unmet.
    pub(super) fn spares(&self, recent: u32) -> bool {
        recent > 0 || !self.config.held.is_empty()
    }

    /// The first episode after the prologue (§4.3, prologue protection), which under the published order
    /// ends at the first `start`; without a `start` all episodes are prologue. If the model did not know
    /// `delimiter` from the first request on, what it did before is unannotated work, and no episode is
    /// prologue.
    fn prologue(&self) -> EpisodeIndex {
        if !self.config.prologue_until_start {
            return EpisodeIndex(0);
        }
        let mut episodes = self.view.transcript().graph.episodes.indexed();
        let first = episodes.find(|(_, episode)| episode.kind != EpisodeKind::Implicit);
        first.map_or(EpisodeIndex(usize::MAX), |(at, _)| at)
    }
}

label_set!(
    /// The level at which something was evicted (paper 000 §4.4; the finer ones are of design §5).
    #[derive(PartialOrd, Ord, Hash)]
    Level {
        /// A new result of which a pointer to the same text further up is left.
        Repeat => "repeat",
        /// A new result that was clipped by its shape.
        Clip => "clip",
        /// A new result that got a line about a loop.
        Loop => "loop",
        /// A new result that got a line about what it refers to.
        Refers => "refers",
        /// What an operator asked to have evicted.
        Asked => "asked",
        /// Reasoning traces of an expl.
        Reasoning => "reasoning",
        /// A result that occurs again later; a stub is left.
        Superseded => "superseded",
        /// A result, or the text of an episode without calls; a stub is left.
        Stub => "stub",
        /// A result; some lines of it are left.
        Skeleton => "skeleton",
        /// Long strings in a call's arguments.
        Arguments => "arguments",
        /// Calls and results of search and listing tools.
        Bulk => "bulk",
        /// All other calls and results.
        Intermediate => "intermediate",
        /// The whole episode.
        Episode => "episode",
        /// Calls and results inside the open episode.
        Open => "open",
        /// Tombstones merged into the ledger.
        Ledger => "ledger",
    }
);
