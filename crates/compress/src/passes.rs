//! Which results are replaced: the rows are taken one by one, as they came to be, and whenever they exceed the budget a
//! pass replaces the oldest results down to the floor. So what a longer list has replaced begins with what a
//! shorter one had, although nothing was remembered. Pure. Never looks at a text.
//!
//! What is replaced is one number: how many results, from the oldest on, the passes have gone through. Where it was
//! remembered for the beginning of a list, the passes go on from there. That matters only where rows came in further
//! up, as the users' do that a guardrail holds back at first.

/// A result that has fewer tokens stays: its stub would free next to nothing.
const LEAST_TOKENS: u32 = 200;
/// A pass needs this part of the budget to be there to free. Without it each new result would be replaced by itself
/// where what can't be replaced is above the budget, and each time the cache would miss.
const WORTH: u64 = 10;
/// This part of the budget, in the newest results, is never replaced.
const RECENT: u64 = 10;

/// The size of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSize {
    /// A result: its tokens, and whether it is one that can be replaced.
    Tool(u32, bool),
    /// What the model said.
    Assistant(u32),
    /// Anything else.
    Other(u32),
}

/// When passes happen and how deep they go, in tokens.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// More than this makes a pass.
    pub tokens: u64,
    /// Down to which it replaces.
    pub floor: u64,
}

/// How many tokens a result frees; none if it stays.
pub fn freed(tokens: u32, replaceable: bool) -> u64 {
    let stays = !replaceable || tokens < LEAST_TOKENS;
    let shown = shown_most(tokens);
    u64::from(if stays {
        0
    } else {
        tokens.saturating_sub(shown)
    })
}

/// About how many tokens stand in place of a result.
pub fn shown_most(tokens: u32) -> u32 {
    if tokens < 1_000 { 60 } else { 200 }
}

/// How many results the passes have gone through at the end of these rows. `known` is how many of the results were
/// remembered, and through how many of those the passes had gone.
pub fn passed(rows: &[RowSize], budget: Budget, known: Option<(usize, usize)>) -> usize {
    let (remembered, through) = known.unwrap_or_default();
    let mut state = State {
        through,
        ..State::default()
    };
    for row in rows {
        state.add(*row, budget);
        if state.results.len() >= remembered {
            state.pass(budget);
        }
    }
    state.through
}

/// The rows so far.
#[derive(Default)]
struct State {
    /// What each result frees, and its tokens.
    results: Vec<(u64, u64)>,
    /// The tokens of all rows as they are shown.
    total: u64,
    /// How many results the passes have gone through.
    through: usize,
    /// How many may be replaced, and what those free that are not.
    open: usize,
    frees: u64,
    /// The tokens of the results behind those.
    recent: u64,
    /// How many results the model has answered, as far as that shows.
    answered: Option<usize>,
}

impl State {
    fn add(&mut self, row: RowSize, budget: Budget) {
        match row {
            RowSize::Other(tokens) => self.total += u64::from(tokens),
            RowSize::Assistant(tokens) => {
                self.total += u64::from(tokens);
                self.answered = Some(self.results.len());
            }
            RowSize::Tool(tokens, replaceable) => {
                let (frees, tokens) = (freed(tokens, replaceable), u64::from(tokens));
                let gone = self.results.len() < self.through;
                self.total += if gone { tokens - frees } else { tokens };
                self.recent += tokens;
                self.results.push((frees, tokens));
            }
        }
        // Where no row of the model's is among them, nobody knows whether it has read the newest result.
        let read = self.results.len().saturating_sub(1);
        let read = self.answered.unwrap_or(read);
        while self.open < read && self.recent > budget.tokens / RECENT {
            let (frees, tokens) = self.results.get(self.open).copied().unwrap_or_default();
            self.recent -= tokens;
            self.frees += if self.open < self.through { 0 } else { frees };
            self.open += 1;
        }
    }

    fn pass(&mut self, budget: Budget) {
        if self.total <= budget.tokens || self.frees < budget.tokens / WORTH {
            return;
        }
        while self.through < self.open && self.total > budget.floor {
            let frees = self.results.get(self.through).map_or(0, |one| one.0);
            self.total -= frees;
            self.frees -= frees;
            self.through += 1;
        }
    }
}
