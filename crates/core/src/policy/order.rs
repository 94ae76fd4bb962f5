//! The order of eviction, as data: what a pass of each policy takes first, what next, and what last. Who wants another
//! order changes a row here; `run` takes the steps, and `docs/build/order.md` is printed from them. Never takes one.

use super::ask::{Level, Policy};
use super::protect::Rules;
use super::protect::Tier::{self, Depended, Free, Kept, Open};
use Takes::{
    AllTombstones, Calls, EachEpisode, Episodes, Folds, LastResort, Middles, Pairs, Results, Steps,
    Stubs, Texts, Thoughts, Tombstones, TurnFolds, Turns,
};
use Until::{Answers, Ceiling, Floor, Half, Removal};

#[cfg(test)]
mod tests;

/// If a pass leaves more than one part in this many of the room between floor and ceiling filled,
/// it goes on to what open work needs. A higher number keeps less of that.
pub(super) const HELD_PART: u64 = 12;

/// If a pass has to take what no other does, it makes room for so many answers: one that stops at the ceiling is followed
/// by another at the next answer, and each rewrites the cached prefix.
pub(super) const ANSWERS: u64 = 8;

/// Closed work that nothing in view needs. The cost of the ledger is known only once it is written, so these steps
/// repeat until the target is met or nothing moves.
const FREE: [Step; 5] = [
    Step::new(Free, Thoughts(Reach::BehindTheCut), Floor),
    Step::new(Free, Results(&STAGES), Floor),
    Step::new(Free, Episodes, Removal),
    Step::new(Free, Texts, Removal),
    Step::new(Free, Tombstones, Removal),
];

/// All work, open work behind what is free: what the open episode did lasts without its results, so those go before
/// what it declared that it depends on.
const WORK: [Step; 5] = [
    Step::new(Free, Steps(&FREE), Removal).again(Again::Moves),
    Step::new(Open, Results(&[Stage::Superseded, Stage::Effects]), Floor).due(Due::FallsShort),
    Step::new(Depended, Results(&STAGES), Floor).due(Due::FallsShort),
    Step::new(Open, Results(&STAGES), Floor).due(Due::FallsShort),
    Step::new(Open, Calls, Removal).due(Due::FallsShort),
];

/// What an act in view depends on: its start and its description stay.
const DEPENDED: [Step; 2] = [
    Step::new(Depended, Results(&STAGES), Floor),
    Step::new(Depended, Calls, Floor),
];

/// What goes only where all else is too little.
const LAST: [Step; 6] = [
    Step::new(Depended, Steps(&DEPENDED), Floor).due(Due::FallsShort),
    // What results of these calls pointed to was held by them alone.
    ALL_WORK.due(Due::FreedPointers),
    Step::new(Depended, Folds, Floor).due(Due::FallsShort),
    Step::new(Free, Thoughts(Reach::All), Answers).due(Due::Unmet),
    Step::new(Free, AllTombstones, Answers).due(Due::Unmet),
    Step::new(Open, LastResort, Answers).due(Due::Unmet),
];

/// All of it, once more where that frees what results pointed to.
const ALL_WORK: Step = Step::new(Free, Steps(&WORK), Floor).again(Again::FreesPointers);

/// The levels by which results go, in order. A level goes through all episodes before the next one begins.
pub(super) const STAGES: [Stage; 5] = [
    Stage::Superseded,
    Stage::Effects,
    Stage::Skeletons,
    Stage::Stubs,
    Stage::Arguments,
];

/// The levels by which calls go with their results.
pub(super) const CALLS: [Level; 2] = [Level::Bulk, Level::Intermediate];

/// Line 7 of Algorithm 1: the levels of the published order, from the least to the most destructive.
const ALGORITHM_1: [Level; 4] = [
    Level::Reasoning,
    Level::Bulk,
    Level::Intermediate,
    Level::Episode,
];

/// Episode by episode, as published.
const PAPER: Step = Step::new(Free, EachEpisode(&ALGORITHM_1), Floor).again(Again::FreesPointers);

// What our order is measured against.
const RECENCY: [Step; 1] = [Step::new(Free, Pairs, Floor)];
const OLDEST_TURN: [Step; 1] = [Step::new(Free, TurnFolds, Floor)];
const TOOL_PRUNE: [Step; 1] = [Step::new(Free, Stubs(Pick::Largest), Floor)];
/// "first masks low-signal tool spans and then prunes remaining tool outputs when additional
/// budget is needed" (paper 003, baselines).
const TOOL_MASK_PRUNE: [Step; 2] = [
    Step::new(Free, Middles, Floor),
    Step::new(Free, Stubs(Pick::Oldest), Floor),
];
/// "combines chronological turn folding with tool-output pruning" (paper 003, baselines).
const HYBRID: [Step; 2] = [
    Step::new(Free, Stubs(Pick::Largest), Half),
    Step::new(Free, TurnFolds, Floor),
];
const THREE_TIER: [Step; 1] = [Step::new(Free, Takes::ThreeTier, Until::Nothing)];
const KEEP_RECENT: [Step; 1] = [Step::new(Free, Stubs(Pick::AllButNewest), Until::Nothing)];
const COMPACTION: [Step; 1] = [Step::new(Free, Turns, Until::Nothing)];

impl Table {
    /// The order of a policy. One that evicts nothing in passes has no steps.
    pub const fn of(policy: Policy) -> Self {
        match policy {
            Policy::Cwl => Self {
                rules: Rules::Parts,
                tail: Tail::Recent,
                rounds: rounds(ALL_WORK, Due::Unmet),
                last: &LAST,
            },
            Policy::CwlPaper => Self {
                rules: Rules::Strict,
                tail: Tail::Recent,
                rounds: rounds(PAPER, Due::UnmetByTail),
                last: &[],
            },
            Policy::Recency => Self::baseline(Tail::Recent, &RECENCY),
            Policy::OldestTurn => Self::baseline(Tail::Recent, &OLDEST_TURN),
            Policy::ToolPrune => Self::baseline(Tail::Recent, &TOOL_PRUNE),
            Policy::ToolMaskPrune => Self::baseline(Tail::Recent, &TOOL_MASK_PRUNE),
            Policy::Hybrid => Self::baseline(Tail::Recent, &HYBRID),
            Policy::ThreeTier => Self::baseline(Tail::None, &THREE_TIER),
            Policy::KeepRecent => Self::baseline(Tail::None, &KEEP_RECENT),
            Policy::Compaction => Self::baseline(Tail::Verbatim, &COMPACTION),
            Policy::None | Policy::Repeat | Policy::Admit | Policy::LoopGuard | Policy::Keep => {
                Self::baseline(Tail::None, &[])
            }
        }
    }

    const fn baseline(tail: Tail, steps: &'static [Step]) -> Self {
        let all = Step::new(Free, Steps(steps), Ceiling);
        Self {
            rules: Rules::Off,
            tail,
            rounds: rounds(all.again(Again::FreesPointers), Due::UnmetByTail),
            last: &[],
        }
    }
}

/// A step, and the same once more with what is protected by its place or because somebody asked to keep it.
const fn rounds(all: Step, due: Due) -> [Step; 2] {
    let kept = Step {
        tier: Kept,
        due,
        ..all
    };
    [all, kept]
}

/// The order of one policy.
pub(super) struct Table {
    /// Which rules of episodes hold.
    pub rules: Rules,
    /// What is protected at the tail in the first round.
    pub tail: Tail,
    /// What is taken first, and the same once more for what the tail protected.
    pub rounds: [Step; 2],
    /// What is taken behind these.
    pub last: &'static [Step],
}

/// One step of an order. It is over as soon as the view is small enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Whose items it takes. From then on those of all tiers behind it may go too.
    pub tier: Tier,
    /// What it takes of them.
    pub takes: Takes,
    /// The size at which it stops.
    pub until: Until,
    /// When it is taken.
    pub due: Due,
    /// When it is taken again.
    pub again: Again,
}

impl Step {
    const fn new(tier: Tier, takes: Takes, until: Until) -> Self {
        Self {
            tier,
            takes,
            until,
            due: Due::Always,
            again: Again::Never,
        }
    }

    const fn due(self, due: Due) -> Self {
        Self { due, ..self }
    }

    const fn again(self, again: Again) -> Self {
        Self { again, ..self }
    }
}

/// What is protected at the tail, in tokens.
#[derive(Clone, Copy)]
pub(super) enum Tail {
    /// As much as the settings say.
    Recent,
    /// What a summary leaves word for word.
    Verbatim,
    /// Nothing.
    None,
}

/// What a step takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// What these steps take.
    Steps(&'static [Step]),
    /// Thoughts: of free work first, then of the rest where the rules let them go; each oldest first.
    Thoughts(Reach),
    /// Results, by these levels; of acts before exploration, each oldest first.
    Results(&'static [Stage]),
    /// Calls with their results, oldest first.
    Calls,
    /// Calls with their results, then episodes whole; acts before exploration, each oldest first.
    Episodes,
    /// Texts of spans without calls; a line is left of each.
    Texts,
    /// Tombstones, into the ledger, as far as they take more than their share.
    Tombstones,
    /// Tombstones, whatever room they take.
    AllTombstones,
    /// Whole episodes but for their description, where a thought must stay with each of their marks.
    Folds,
    /// All but what no pass may touch, message by message.
    LastResort,
    /// The oldest act, or else the oldest exploration, by these levels; then the next (Algorithm 1).
    EachEpisode(&'static [Level]),
    /// Pairs of calls and results, oldest first.
    Pairs,
    /// Results; a line is left of each.
    Stubs(Pick),
    /// What stands between the ends of results of search and shell tools, oldest first.
    Middles,
    /// Whole turns, oldest first; a line is left for each span of them.
    TurnFolds,
    /// Whole turns, oldest first.
    Turns,
    /// Results before the last two turns of the user, all but the newest 40,000 tokens of them.
    ThreeTier,
}

/// Which thoughts a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those behind the message that the pass is expected to edit first, whatever else goes. Those before it only
    /// if thoughts alone meet the target: else they would break more of the cached prefix than the pass has to.
    BehindTheCut,
    /// All of them.
    All,
}

/// A level of results.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Results that occur again later.
    Superseded,
    /// Results of commands and writes, whose effects last without them.
    Effects,
    /// Large results; some lines are left.
    Skeletons,
    /// All other results.
    Stubs,
    /// Long strings in the arguments of calls. What a model wrote it often writes again, so they go
    /// only to meet the ceiling.
    Arguments,
}

/// Which results a step takes, and in which order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    /// All, oldest first.
    Oldest,
    /// All, largest first.
    Largest,
    /// All but the newest three, oldest first.
    AllButNewest,
}

/// The size at which a step stops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The floor of the pass.
    Floor,
    /// The size down to which whole items go. It is above the floor by half of the results
    /// that are protected only now, because the next pass can strip those: a message with many
    /// large reads would otherwise drive everything before it out of view.
    Removal,
    /// The ceiling, less the room that some answers of the newest's size take.
    Answers,
    /// The ceiling.
    Ceiling,
    /// Half of the way to the floor.
    Half,
    /// It takes all that it finds.
    Nothing,
}

/// When a step is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// In each pass.
    Always,
    /// If the view would reach the ceiling again too soon. Such a pass rewrites the cached
    /// prefix for a few turns only, and the next passes would do the same as long as the same work
    /// is held. If the floor equals the ceiling this is [`Due::Unmet`].
    FallsShort,
    /// If the view would reach the ceiling again too soon and had pointers: what they pointed to may go now.
    FreedPointers,
    /// If the view is above the ceiling.
    Unmet,
    /// If the view is above the ceiling, and the tail or something that is kept was protected.
    UnmetByTail,
}

/// When a step is taken again, if it leaves the view too large.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Never.
    Never,
    /// As long as anything moves.
    Moves,
    /// As long as anything moves and there were pointers: a result to which another one pointed may go once that is
    /// gone, which may have been later in the order.
    FreesPointers,
}
