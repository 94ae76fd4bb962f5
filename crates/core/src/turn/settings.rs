//! The operator's settings of turns, validated, and the terms that one request gets from them.
//! Never reads a file, a variable or a header.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{
    Choice, EditKind, Edits, Given, Guide, HiddenTool, ReasoningBack, Shape, share_tokens,
};
use plimsoll_tokens::{CacheModel, Family};
use plimsoll_wire::Dialect;
use plimsoll_wire::request::Request;

use super::cache_settings::{CacheSettings, Diagnose, SetBreakpoints, Uncached};
use super::classes::Classes;
use super::compaction::CompactionSettings;
use super::content::ContentSettings;
use super::filter::RungTable;
use super::keep::KeepSettings;
use super::memo::Reader;
use super::overrides::{AskedBudget, MIN_CEILING, Mode, Overrides};
use super::pins::PinAsk;
use super::text_results::{Fronts, TextProfile, TextResults};
use crate::commit::{self, Floor};
use crate::intercept::delimiter::Protocol;
use crate::policy::{self, AdmitSettings, Ladder, Order, Partitions, Policy};
use crate::render::tools::{self, Injected};

/// The operator's settings of turns: those without a profile, or those of one profile.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The ceiling, the floor and the rules of eviction.
    pub budget: Budget,
    /// The hidden tool that marks episodes.
    pub delimiter: DelimiterSettings,
    /// The hidden tool that brings back what was evicted.
    pub recall: RecallSettings,
    /// What becomes of an agent's request for a summary.
    pub compaction: CompactionSettings,
    /// What is done for the provider's cache.
    pub cache: CacheSettings,
    /// Classes of tools.
    pub classes: Classes,
    /// How user messages are recognised as results.
    pub texts: Arc<TextResults>,
    /// What of the client's content is stored.
    pub content: ContentSettings,
    /// How the model's window is parted.
    pub partitions: Partitions,
}

/// The ceiling, the floor and the rules of eviction.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// The mode of requests that name none.
    pub mode: Mode,
    /// The token budget that a request to the upstream may not exceed; at least [`MIN_CEILING`]. If
    /// the model's window is smaller, that is the ceiling.
    pub ceiling: u32,
    /// The size down to which a pass evicts.
    pub floor: Floor,
    /// The lowest floor that `auto` may choose, as a fraction of the ceiling in (0, 1].
    pub min_floor: f64,
    /// The newest tokens, which a pass takes last.
    pub protect_recent: ProtectRecent,
    /// Length of an implicit episode, in tokens.
    pub implicit_tokens: u32,
    /// What happens if the budget can't be met.
    pub unmet: Unmet,
    /// Whether the open episode is never touched, as the paper has it.
    pub strict_active: bool,
    /// What becomes of thoughts that something changed before.
    pub thoughts: Thoughts,
    /// What such a thought was still worth, as a share of the price at which it was thought; at least 0.
    pub thought_value: f64,
    /// The policies of requests that name none, in order.
    pub ladder: Ladder,
    /// The order in which `cwl` evicts.
    pub order: Order,
    /// Which new results `admit` clips.
    pub admit: AdmitSettings,
    /// What a result says, in lower case, that refers to an earlier one for what is unchanged.
    pub unchanged: Arc<[String]>,
    /// What passes take last.
    pub keep: KeepSettings,
    /// What single rungs may touch, and how far down they evict.
    pub rungs: RungTable,
    /// When the hidden tools are offered.
    pub offer: Offer,
    /// The share of the ceiling, in 0..=1, above which a view brings the guidance in. At 1 the
    /// first pass brings it, and at 0 the first request.
    pub guide_at: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            mode: Mode::Manage,
            ceiling: 80_000,
            floor: Floor::Auto,
            min_floor: 0.5,
            protect_recent: ProtectRecent::Auto,
            implicit_tokens: 8_000,
            unmet: Unmet::Surface,
            strict_active: false,
            thoughts: Thoughts::default(),
            thought_value: 0.25,
            ladder: Ladder::default(),
            order: Order::Levels,
            admit: AdmitSettings::default(),
            unchanged: policy::SAID_UNCHANGED.map(str::to_owned).into(),
            keep: KeepSettings::default(),
            rungs: RungTable::default(),
            offer: Offer::Start,
            guide_at: 1.0,
        }
    }
}

impl Budget {
    /// This ceiling with the published terms (paper 000 §4.4): the order of Algorithm 1 and no
    /// other policy, the floor at the ceiling, no protected tail, and guidance from the first request.
    #[must_use]
    pub fn as_published(self) -> Self {
        Self {
            ladder: Ladder::from(Policy::Cwl),
            order: Order::Paper,
            floor: Floor::Ceiling,
            protect_recent: ProtectRecent::Tokens(0),
            guide_at: 0.0,
            ..self
        }
    }
}

/// When the hidden tools come into the tools array. The guidance, which asks the model to use them,
/// comes separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// From the first request with tools, so that the array never changes.
    #[default]
    Start,
    /// With the guidance. Until then the client's requests are sent unchanged.
    Line,
}

impl Offer {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("start", Self::Start), ("line", Self::Line)];
}

/// How much of the tail a pass takes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectRecent {
    /// The smaller of 8,000 tokens and a fifth of the ceiling.
    Auto,
    /// So many tokens.
    Tokens(u32),
}

impl ProtectRecent {
    /// The number of tokens under `ceiling`, never more than the ceiling itself.
    #[must_use]
    pub fn tokens(self, ceiling: u32) -> u32 {
        match self {
            Self::Auto => (ceiling / 5).min(8_000),
            Self::Tokens(tokens) => tokens.min(ceiling),
        }
    }
}

/// What becomes of a thought once something before it has changed, for models that bind thoughts to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thoughts {
    /// It stays until the upstream refuses such a thought; then it and all others like it are left out.
    /// Upstreams that don't check let their model go on reading it.
    #[default]
    KeepUntilRefused,
    /// It is left out at once.
    Strip,
}

impl Thoughts {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("keep_until_refused", Self::KeepUntilRefused),
        ("strip", Self::Strip),
    ];
}

/// What happens if the budget can't be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// Send the request and report it.
    Surface,
    /// Refuse the request.
    Refuse,
}

/// The hidden tool that marks episodes, and the hops that hidden calls need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelimiterSettings {
    /// Whether the tool is injected.
    pub enabled: bool,
    /// Whether a start closes the open episode.
    pub auto_close: bool,
    /// Upstream calls in one turn, at least 1.
    pub hops: u32,
    /// The block that is appended to the system message.
    pub guidance: Guidance,
    /// Whether results may carry a reminder.
    pub nudge: bool,
}

impl Default for DelimiterSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            auto_close: false,
            hops: 8,
            guidance: Guidance::Standard,
            nudge: true,
        }
    }
}

/// The hidden tool that brings back what was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallSettings {
    /// Whether the tool is injected.
    pub enabled: bool,
    /// Whether it also brings back what was evicted before the client dropped its history.
    pub dropped: bool,
}

impl Default for RecallSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            dropped: true,
        }
    }
}

/// The block that explains `delimiter` to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guidance {
    /// The built-in block.
    Standard,
    /// None. Nothing of the client's is changed.
    Off,
    /// The operator's text.
    Text(String),
}

/// Why a request's terms can't be met.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TermsError {
    /// A share of a window that is not known.
    #[error("the window of model {model:?} is not known: give the budget in tokens")]
    Window {
        /// The model.
        model: String,
    },
    /// A share of the window that is too small.
    #[error("{asked} tokens are too few: give a budget of at least {MIN_CEILING}")]
    TooSmall {
        /// The tokens of the share.
        asked: u32,
    },
}

/// The terms under which one request is served. Made for each request and never remembered.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The mode.
    pub mode: Mode,
    /// The ceiling in tokens: the budget, or the model's window if that is smaller.
    pub ceiling: u32,
    /// Whether the window is the ceiling.
    pub windowed: bool,
    /// The prompt size that the model takes, if that is known.
    pub window: Option<u32>,
    /// How the window is parted, if it is.
    pub partitions: Option<Partitions>,
    /// How deep a pass goes.
    pub commit: commit::FloorSettings,
    /// What happens if the ceiling can't be met.
    pub unmet: Unmet,
    /// Raw tokens after which an implicit episode is cut.
    pub implicit_tokens: u32,
    /// What of the client's content is stored.
    pub content: ContentSettings,
    /// Whether the caller may refer to this response by its id later.
    pub refers: bool,
    /// Whether `delimiter` is injected.
    pub inject: bool,
    /// Whether `recall` is injected.
    pub recall: bool,
    /// Whether `recall` also brings back what was evicted before the client dropped its history.
    pub dropped: bool,
    /// What becomes of an agent's request for a summary.
    pub compaction: CompactionSettings,
    /// The protocol of `delimiter`.
    pub protocol: Protocol,
    /// Upstream calls in one turn.
    pub hops: usize,
    /// Whether results may carry a reminder.
    pub nudge: bool,
    /// The policies, in order.
    pub ladder: Ladder,
    /// Where breakpoints are set.
    pub breakpoints: SetBreakpoints,
    /// When a pass happens below the ceiling, where the provider caches nothing.
    pub uncached: Uncached,
    /// Whether the upstream is the vendor of the request's dialect.
    pub vendor: bool,
    /// At how many tokens the upstream is known to cut prompts without a word.
    pub cut: Option<u32>,
    /// Whether the upstream may be asked why its cache missed.
    pub diagnoses: bool,
    /// Edits that its views do without, because the upstream refuses them.
    pub without: Edits,
    /// What becomes of thoughts that something changed before.
    pub thoughts: Thoughts,
    /// What such a thought was still worth, as a share of the price at which it was thought.
    pub thought_value: f64,
    guidance: Guidance,
    /// When the hidden tools are offered.
    pub offer: Offer,
    guide_at: f64,
    /// Whether the request asks for the guidance.
    pub guide_now: bool,
    /// What the request asks to pin.
    pub pins: Vec<PinAsk>,
    texts: Arc<TextResults>,
    /// What the request is served under.
    pub choice: Choice,
    /// Whether everything before the first `start` is prologue, because the model knew `delimiter`
    /// from the first request on. Only the published order uses this.
    pub prologue_until_start: bool,
    order: Order,
    admit: AdmitSettings,
    unchanged: Arc<[String]>,
    /// What passes take last.
    pub keep: KeepSettings,
    /// What single rungs may touch, and how far down they evict.
    pub rungs: RungTable,
    protect_recent: u32,
    strict_active: bool,
}

impl Terms {
    /// The terms of a request to a model. `window` is the prompt size that the model takes, if that
    /// is known: no ceiling is higher, not even one that the request asks for.
    ///
    /// # Errors
    /// [`TermsError`] where its budget can't be read against its model.
    pub fn of(
        settings: &Settings,
        overrides: &Overrides,
        window: Option<u32>,
        model: &str,
    ) -> Result<Self, TermsError> {
        let mut budget = Cow::Borrowed(&settings.budget);
        let asked = overrides.ladder.as_ref();
        let ladder = asked.unwrap_or(&budget.ladder).clone();
        if ladder.has(Policy::CwlPaper) {
            budget = Cow::Owned(budget.into_owned().as_published());
        }
        let wanted = match overrides.budget {
            Some(AskedBudget::Tokens(tokens)) => tokens,
            Some(AskedBudget::WindowShare(share)) => share_of(share, window, model)?,
            None => budget.ceiling,
        };
        // No model reads more than its window, and none of its reserve is lent.
        let partitions = Some(settings.partitions).filter(Partitions::is_on);
        let room = |window| partitions.map_or(window, |parted| parted.room(window));
        let ceiling = window.map_or(wanted, |window| wanted.min(room(window)));
        let delimiter = &settings.delimiter;
        Ok(Self {
            mode: overrides.mode.unwrap_or(budget.mode),
            ceiling,
            windowed: ceiling < wanted,
            window,
            commit: commit::FloorSettings {
                floor: budget.floor,
                min_floor: budget.min_floor,
            },
            partitions,
            unmet: budget.unmet,
            implicit_tokens: budget.implicit_tokens,
            content: settings.content,
            refers: true,
            inject: delimiter.enabled,
            recall: overrides.recall.unwrap_or(settings.recall.enabled),
            dropped: settings.recall.dropped,
            compaction: settings.compaction.clone(),
            protocol: Protocol {
                auto_close: delimiter.auto_close,
            },
            hops: delimiter.hops as usize,
            nudge: delimiter.nudge,
            breakpoints: settings.cache.breakpoints,
            uncached: settings.cache.none,
            vendor: false,
            cut: None,
            diagnoses: settings.cache.diagnose == Diagnose::AfterMiss,
            without: Edits::default(),
            thoughts: budget.thoughts,
            thought_value: budget.thought_value,
            guidance: delimiter.guidance.clone(),
            offer: budget.offer,
            guide_at: budget.guide_at,
            guide_now: overrides.guide,
            pins: overrides.pins.clone(),
            texts: settings.texts.clone(),
            choice: Choice::default(),
            protect_recent: budget.protect_recent.tokens(ceiling),
            strict_active: budget.strict_active,
            ladder,
            order: budget.order,
            admit: budget.admit.clone(),
            unchanged: budget.unchanged.clone(),
            keep: budget.keep.clone(),
            rungs: budget.rungs.clone(),
            prologue_until_start: false,
        })
    }

    /// Excludes some edits from views.
    pub fn go_without(&mut self, edits: Edits) {
        self.without = self.without.or(edits);
        if self.without.has(EditKind::Breakpoints) {
            self.breakpoints = SetBreakpoints::Off;
        }
    }

    /// The eviction order's settings for a model.
    #[must_use]
    pub fn eviction(&self, family: &Family, dialect: Dialect) -> policy::EvictionSettings {
        policy::EvictionSettings {
            order: self.order,
            protect_recent: self.protect_recent,
            strict_active: self.strict_active,
            prologue_until_start: self.prologue_until_start,
            reasoning_back: match family.reasoning_back {
                // Where a thought must stay with what follows it, and where a provider has refused to miss one.
                _ if dialect.keeps_reasoning() || self.without.has(EditKind::Reasoning) => {
                    ReasoningBack::Calls
                }
                back => back,
            },
            admit: self.admit.clone(),
            unchanged: self.unchanged.clone(),
            ..policy::EvictionSettings::default()
        }
    }

    /// How the results of a request begin that came as text.
    #[must_use]
    pub fn fronts(&self, reader: &Reader<'_>, request: &Request, shapes: &[Arc<Shape>]) -> Fronts {
        let agent = self.choice.profile.as_deref().and_then(TextProfile::named);
        self.texts.find(agent, reader, request, shapes)
    }

    /// Whether tools may be injected. A client can continue a response that the provider `stored`
    /// by its id alone. If we can't add the messages that it leaves out, the provider would miss
    /// the results of hidden calls.
    #[must_use]
    pub fn may_inject(&self, stored: bool) -> bool {
        !stored || self.keeps(stored).1
    }

    /// Whether `recall` brings back what was evicted before the client dropped its history.
    #[must_use]
    pub fn recalls_dropped(&self) -> bool {
        self.recall && self.dropped && self.mode == Mode::Manage
    }

    /// Whether a turn's content is stored, and whether it may be referred to. `asked` says whether
    /// the client asks for that.
    #[must_use]
    pub fn keeps(&self, asked: bool) -> (bool, bool) {
        self.content.keeps(asked && self.refers)
    }

    /// The guidance block for the injected tools; none if the operator turned it off, the upstream refuses it, or it is
    /// not given yet.
    #[must_use]
    pub fn guidance(&self, injected: &Injected, given: Given) -> Option<String> {
        let delimiter = injected.name(HiddenTool::Delimiter)?;
        if self.without.has(EditKind::Guidance) {
            return None;
        }
        let serial = match given {
            Given::No => return None,
            Given::Parallel => false,
            Given::Serial => true,
        };
        let custom = match &self.guidance {
            Guidance::Off => return None,
            Guidance::Standard => None,
            Guidance::Text(text) => Some(text.as_str()),
        };
        let recall = injected.name(HiddenTool::Recall);
        Some(tools::guidance(custom, delimiter, recall, serial))
    }

    /// What a conversation is told of its hidden tools in its first request. If guidance is off,
    /// there is nothing to wait for.
    #[must_use]
    pub fn first_guide(&self, one_call: bool) -> Guide {
        let waited =
            self.inject && self.guidance != Guidance::Off && self.guide_at > 0.0 && !self.guide_now;
        let given = if waited { Given::No } else { given(one_call) };
        Guide {
            waited,
            given,
            among: false,
        }
    }

    /// The size of a view above which it brings the guidance in, in the same tokens as `ceiling`;
    /// none if the first pass does.
    #[must_use]
    pub fn guide_above(&self, ceiling: u64) -> Option<u64> {
        (self.guide_at < 1.0).then(|| share_tokens(ceiling, self.guide_at))
    }

    /// How many breakpoints a request may have, the client's counted and without the one that its provider sets by
    /// itself. None if the proxy sets none.
    ///
    /// Where a provider sets one itself, only the vendor is known to take more, and a message that is written otherwise
    /// may end thoughts that are bound to it.
    #[must_use]
    pub fn breakpoints(&self, family: &Family, dialect: Dialect) -> Option<usize> {
        let CacheModel::Breakpoints { max, implicit, .. } = family.cache else {
            return None;
        };
        let takes = match dialect {
            Dialect::Messages => !implicit,
            Dialect::Chat | Dialect::Responses => {
                implicit && self.vendor && family.reasoning_back != ReasoningBack::Bound
            }
        };
        let set = self.breakpoints == SetBreakpoints::Auto && takes;
        let max = usize::try_from(max).ok().filter(|_| set)?;
        Some(max.saturating_sub(usize::from(implicit)))
    }

    /// How long the provider keeps a prefix, in milliseconds.
    #[must_use]
    pub fn cache_ttl(&self, family: &Family) -> u64 {
        let ttl = match family.cache {
            CacheModel::Automatic { ttl, .. } | CacheModel::Breakpoints { ttl, .. } => ttl,
            // Without a cache every pass is free. By default an hour still keeps passes rare.
            CacheModel::None => match self.uncached {
                Uncached::Wait => Duration::from_secs(3600),
                Uncached::Pass => Duration::ZERO,
            },
        };
        u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The guidance for a client that allows several calls a message, or one.
#[must_use]
pub fn given(one_call: bool) -> Given {
    if one_call {
        Given::Serial
    } else {
        Given::Parallel
    }
}

fn share_of(share: f64, window: Option<u32>, model: &str) -> Result<u32, TermsError> {
    let window = window.ok_or_else(|| TermsError::Window {
        model: model.to_owned(),
    })?;
    let asked = share_tokens(window.into(), share);
    let asked = u32::try_from(asked).unwrap_or(u32::MAX);
    if asked < MIN_CEILING {
        Err(TermsError::TooSmall { asked })
    } else {
        Ok(asked)
    }
}

#[cfg(test)]
mod tests;
