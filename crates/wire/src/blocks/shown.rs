//! Which blocks of a whole hop its client is shown. Owns the rule, which is that of the stream machine. Never reads a
//! block.

use bytes::Bytes;

use super::events::Visibility;
use crate::answer::{Answer, BlockKind, Verdict};

/// Those of an answer. `follows` says that the format refuses reasoning alone.
pub fn of_answer(answer: &Answer, follows: bool) -> Vec<Bytes> {
    let hidden = |call: usize| answer.calls.get(call).is_some_and(|call| call.hidden);
    let blocks = answer.blocks.iter().map(|block| {
        let visibility = match block.kind {
            BlockKind::Call(call) if hidden(call) => Visibility::Hidden,
            BlockKind::Reasoning if follows => Visibility::Follows,
            BlockKind::Call(_) | BlockKind::Reasoning | BlockKind::Text | BlockKind::Other => {
                Visibility::Shown
            }
        };
        (visibility, &block.raw)
    });
    of_blocks(blocks, answer.verdict())
}

/// Those of blocks that make up a hop with this verdict.
pub fn of_blocks<'a>(
    blocks: impl Iterator<Item = (Visibility, &'a Bytes)>,
    verdict: Verdict,
) -> Vec<Bytes> {
    let (mut shown, mut waiting) = (Vec::new(), Vec::new());
    for (visibility, block) in blocks {
        match visibility {
            Visibility::Hidden | Visibility::Open => {}
            Visibility::Follows => waiting.push(block.clone()),
            Visibility::Shown => {
                shown.append(&mut waiting);
                shown.push(block.clone());
            }
        }
    }
    match verdict {
        Verdict::Done | Verdict::Mixed | Verdict::Cut => shown.append(&mut waiting),
        Verdict::HiddenOnly | Verdict::Broken => {}
    }
    shown
}
