//! Tells that an upstream may cut prompts without a word: what it reports of them stays at one number, while its client
//! brings more with every turn. Pure. Never says what a window is, and never learns anything.

use plimsoll_model::{Role, Usage};
use plimsoll_tokens::calibrate::{MAX_RATIO, MIN_RATIO};

use super::Mode;
use super::state::{Prepared, TurnState};
use crate::session::path::{PathEntry, REPORTS};

/// Reports that differ by more than one part in this many are not the same number.
const TOLERANCE: u64 = 100;
/// How many times running a report that follows the prompt would have left that number. So many steps have one turn more.
const STEPS: usize = 2;
/// By which share steps may differ and still be alike.
const ALIKE: f64 = 0.1;

/// A turn's first prompt.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    /// What was sent, as counted.
    sent: u64,
    /// What the upstream reported.
    reported: u64,
    /// What the client had brought since the turn before, as counted. Thoughts and texts of the model are no part of it,
    /// because many servers drop those that are old.
    brought: u64,
}

/// Whether a report is this number.
#[must_use]
pub fn stays(reported: u64, number: u64) -> bool {
    reported.abs_diff(number) <= number / TOLERANCE
}

/// The number at which reports stay, the newest of which is the answer's to the hop in hand. `None` if they don't, or if
/// that hop is not the first that the upstream answered.
#[must_use]
pub fn seen(state: &TurnState, prepared: &Prepared, usage: Usage) -> Option<u64> {
    let first = state.pending.iter().all(|hop| hop.usage.is_none());
    // A watched turn was not sent what was counted of it.
    if !first || state.terms.mode != Mode::Manage {
        return None;
    }
    let (sent, mut end) = (prepared.estimate, state.shapes.len());
    let mut brought = |from: usize| -> u64 {
        let new = state.shapes.get(from..end).unwrap_or_default().iter();
        end = from.saturating_sub(1);
        let clients = new.filter(|shape| shape.role != Role::Assistant);
        clients.map(|shape| u64::from(shape.tokens())).sum()
    };
    let mut prompts = vec![Prompt {
        sent,
        reported: usage.prompt,
        brought: 0,
    }];
    for entry in state.path.entries.iter().rev().take(REPORTS) {
        let same = entry.record.model == state.request.model;
        let Some((sent, reported)) = first_prompt(entry).filter(|_| same) else {
            break;
        };
        if let Some(newer) = prompts.last_mut() {
            newer.brought = brought(entry.position as usize + 1);
        }
        prompts.push(Prompt {
            sent,
            reported,
            brought: 0,
        });
    }
    stuck(&prompts)
}

/// What was sent first in a turn, and what was reported of that.
fn first_prompt(entry: &PathEntry) -> Option<(u64, u64)> {
    let watched = entry.record.facts.watched;
    let hops = entry.record.hops.iter();
    let mut told = hops.filter_map(|hop| Some((hop.estimate, hop.usage?.prompt)));
    told.next().filter(|_| !watched)
}

/// The number at which the reports of these prompts stay, newest first.
fn stuck(prompts: &[Prompt]) -> Option<u64> {
    let newest = prompts.first().map(|newest| newest.reported);
    let newest = newest.filter(|reported| *reported > 0)?;
    let mut most = newest;
    let mut steps = Vec::new();
    for pair in prompts.windows(2) {
        let [newer, older] = pair else { break };
        // A pass, a fork or a client that drops its past makes prompts shorter, and begins anew.
        if !stays(older.reported, newest) || older.sent > newer.sent {
            break;
        }
        most = most.max(older.reported);
        let grown = newer.sent - older.sent;
        // So much more would show, even if the upstream counts as few tokens as any does.
        if wide(grown.min(newer.brought)) * MIN_RATIO > wide(newest) / wide(TOLERANCE) {
            steps.push(wide(grown));
        }
    }
    (steps.len() >= STEPS && !is_each_step(&steps, wide(newest))).then_some(most)
}

/// Whether the number may be that of each step alone: some servers report only what their cache did not hold, and a
/// client may bring as much with each turn as with the one before.
fn is_each_step(steps: &[f64], number: f64) -> bool {
    let least = steps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = steps.iter().copied().fold(0.0, f64::max);
    let alike = most <= least * (1.0 + ALIKE);
    alike && number >= least * MIN_RATIO && number <= most * MAX_RATIO
}

#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^52"
)]
const fn wide(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompts of these sizes and reports, oldest first, each of which the client made longer by all that it grew.
    fn number(turns: &[(u64, u64)]) -> Option<u64> {
        let mut before = 0;
        let prompts = turns.iter().map(|(sent, reported)| {
            let brought = sent.saturating_sub(before);
            before = *sent;
            Prompt {
                sent: *sent,
                reported: *reported,
                brought,
            }
        });
        let mut prompts: Vec<Prompt> = prompts.collect();
        prompts.reverse();
        stuck(&prompts)
    }

    #[test]
    fn a_number_that_stays_three_turns_running_while_prompts_grow_is_found() {
        for (what, turns, found) in [
            (
                "cut",
                &[
                    (7_000, 7_000),
                    (8_300, 8_192),
                    (9_100, 8_192),
                    (9_900, 8_190),
                ][..],
                Some(8_192),
            ),
            (
                "cut from the first on",
                &[(20_000, 4_096), (20_400, 4_096), (21_700, 4_096)],
                Some(4_096),
            ),
            (
                "to half, with another message at its front",
                &[(5_000, 2_050), (5_900, 2_051), (6_100, 2_050)],
                Some(2_051),
            ),
            ("twice", &[(8_300, 8_192), (9_100, 8_192)], None),
            (
                "twice, and a step that would hardly show",
                &[(8_300, 8_192), (9_100, 8_192), (9_150, 8_192)],
                None,
            ),
            (
                "the same, and one more",
                &[
                    (8_300, 8_192),
                    (9_100, 8_192),
                    (9_150, 8_192),
                    (9_900, 8_192),
                ],
                Some(8_192),
            ),
            (
                "small steps, all told",
                &[(8_100, 8_150), (8_120, 8_170), (8_140, 8_190)],
                None,
            ),
            (
                "a pass between",
                &[(9_900, 8_192), (7_900, 8_192), (8_700, 8_192)],
                None,
            ),
            (
                "reports that follow",
                &[(8_100, 8_100), (8_200, 8_200), (8_300, 8_300)],
                None,
            ),
            (
                "reports that rise and fall",
                &[(9_000, 4_000), (10_000, 3_100), (11_000, 4_090)],
                None,
            ),
            (
                "what is new, alone",
                &[(9_000, 2_048), (11_000, 2_048), (13_000, 2_050)],
                None,
            ),
            (
                "as much as is new, by chance once",
                &[(9_000, 2_048), (11_000, 2_048), (12_000, 2_050)],
                Some(2_050),
            ),
            ("nothing", &[(9_000, 0), (10_000, 0), (11_000, 0)], None),
        ] {
            assert_eq!(number(turns), found, "{what}");
        }
    }

    #[test]
    fn what_the_model_said_is_no_growth() {
        let prompts = [10_000, 9_000, 8_000].map(|sent| Prompt {
            sent,
            reported: 8_192,
            brought: 60,
        });
        assert_eq!(stuck(&prompts), None);
    }
}
