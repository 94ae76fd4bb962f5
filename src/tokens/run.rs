//! Counts a single piece by BPE, in bounded time for pieces that repeat one byte.
//!
//! Owns the shortening of long runs. It never cuts a text into pieces and never remembers them.
//!
//! Why a run may be shortened: a token sequence is the BPE encoding of its text exactly if each
//! two neighbours are the encoding of their own joined text (the theorem that the `bpe` crate
//! is built on). So where an encoding holds two equal tokens `T T` side by side, any number of
//! further `T` between them gives another encoding, one token longer each. A run of `n` bytes
//! is counted as a run that is some `T`s shorter, plus one for each `T` taken out. Whether the
//! shorter encoding does hold `T T` inside the run is looked up, not assumed; where it does
//! not, the piece is counted as it is.
//!
//! What this does not cure: a piece made of different runs of fewer than four tokens each, such
//! as a hundred dashes, an equals sign and so on without a blank between. It is counted as
//! `bpe-openai` counts it: in linear time, but at about 4 MB/s.

use std::sync::OnceLock;

use bpe_openai::Tokenizer;

/// Runs below this are cheap enough as they are.
const RUN_MIN: usize = 256;
/// A probe long enough that the inner tokens of its encoding have settled.
const PROBE: usize = 1024;

/// The token that a long run of one byte settles on.
#[derive(Clone, Copy)]
struct Unit {
    token: u32,
    len: usize,
}

/// The settled tokens of the 128 ASCII bytes, each found when it is first needed.
pub(super) struct Units([OnceLock<Option<Unit>>; 128]);

impl Units {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    fn of(&self, tokenizer: &Tokenizer, byte: u8) -> Option<Unit> {
        *self.0.get(usize::from(byte))?.get_or_init(|| {
            let tokens = tokenizer.bpe.encode_via_backtracking(&[byte; PROBE]);
            let settled = tokens.windows(2).find(|pair| pair.first() == pair.last());
            let token = *settled?.first()?;
            Some(Unit {
                token,
                len: tokenizer.bpe.token_len(token),
            })
        })
    }
}

/// A run in a shortened piece.
struct Shortened {
    start: usize,
    end: usize,
    token: u32,
}

/// The number of tokens of one piece.
pub(super) fn count(tokenizer: &Tokenizer, units: &Units, piece: &[u8]) -> u32 {
    let tokens = if piece.len() < RUN_MIN {
        tokenizer.bpe.count(piece)
    } else {
        shortened(tokenizer, units, piece).unwrap_or_else(|| tokenizer.bpe.count(piece))
    };
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The count by way of a shorter piece; `None` if there is no long run or it does not settle.
fn shortened(tokenizer: &Tokenizer, units: &Units, piece: &[u8]) -> Option<usize> {
    let mut short = Vec::new();
    let mut runs = Vec::new();
    let mut removed = 0;
    for run in piece.chunk_by(|left, right| left == right) {
        let start = short.len();
        let byte = *run.first()?;
        let unit = if run.len() < RUN_MIN {
            None
        } else {
            units.of(tokenizer, byte)
        };
        // Three units leave room for two that no neighbour of the run has touched.
        let Some((unit, spare)) =
            unit.and_then(|unit| Some((unit, run.len().checked_sub(3 * unit.len)? / unit.len)))
        else {
            short.extend_from_slice(run);
            continue;
        };
        removed += spare;
        short.resize(start + run.len() - spare * unit.len, byte);
        runs.push(Shortened {
            start,
            end: short.len(),
            token: unit.token,
        });
    }
    if removed == 0 {
        return None;
    }
    let tokens = tokenizer.bpe.encode_via_backtracking(&short);
    settles(tokenizer, &tokens, &runs).then_some(tokens.len() + removed)
}

/// Whether each run holds its token twice in a row, wholly inside.
fn settles(tokenizer: &Tokenizer, tokens: &[u32], runs: &[Shortened]) -> bool {
    let mut open = runs.iter().peekable();
    let mut before = None;
    let mut at = 0;
    for token in tokens {
        let end = at + tokenizer.bpe.token_len(*token);
        let Some(run) = open.peek() else { return true };
        if before.is_some_and(|(previous, start)| previous == *token && start >= run.start)
            && *token == run.token
            && end <= run.end
        {
            open.next();
        } else if end > run.end {
            return false;
        }
        before = Some((*token, at));
        at = end;
    }
    open.peek().is_none()
}
