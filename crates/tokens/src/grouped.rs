//! Byte pair encoding over groups of equal tokens, so that a run of one byte costs only a few
//! merges, however long it is.
//!
//! Owns the merging. Never decides for which texts it is worth it.
//!
//! Encoding repeatedly merges the two neighbours that make the earliest token, and of several such
//! pairs the leftmost, until none merge. A merged token is later than both its parts, so a merge
//! never makes an earlier merge possible. In a group of `n` equal tokens that merge with each
//! other, the pairs are therefore merged from the left, one after the other. That can be done at
//! once: it gives `n / 2` of the new token, and one of the old if `n` is odd. Between groups, one
//! pair is merged at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::merge::{Merges, NONE};

/// Equal tokens side by side. A group is named by its start in the text, counted from 1. 0 means
/// none.
#[derive(Clone, Copy, Default)]
struct Group {
    token: u32,
    /// How many tokens it has. 0 if the group is gone.
    count: u32,
    before: u32,
    next: u32,
    /// What two of its own tokens merge into.
    inner: u32,
    /// What its first token and the last of the group before it merge into.
    seam: u32,
}

/// The tokens of a text as groups of equal ones, from left to right. Neighbours differ.
pub(super) fn encode(merges: &Merges, text: &[u8]) -> Vec<(u32, u32)> {
    let mut work = Merging::new(merges, text);
    while let Some(Reverse(due)) = work.due.pop() {
        let (merged, at) = ((due >> 33) as u32, (due >> 1) as u32);
        if due & 1 == INNER {
            work.merge_inner(at, merged);
        } else {
            work.merge_seam(at, merged);
        }
    }
    work.tokens()
}

/// The lowest bit of an entry in `due`. A seam's pair begins before the group by which it is named.
const SEAM: u64 = 0;
const INNER: u64 = 1;

struct Merging<'a> {
    merges: &'a Merges,
    /// The groups by their start. A place that was never written is never read.
    groups: Vec<Group>,
    /// Merges by token and then by place. An entry that no longer holds when its turn comes is
    /// skipped.
    due: BinaryHeap<Reverse<u64>>,
}

impl<'a> Merging<'a> {
    fn new(merges: &'a Merges, text: &[u8]) -> Self {
        let mut groups = vec![Group::default(); text.len() + 1];
        let mut due = Vec::new();
        let (mut at, mut before) = (1, 0);
        let mut token_before = NONE;
        // Each run of one byte is one group, so a long run costs no more than a short one.
        for run in text.chunk_by(|left, right| left == right) {
            let count = run.len() as u32;
            let token = run.first().map_or(NONE, |byte| merges.byte(*byte));
            let inner = if count > 1 {
                merges.of(token, token)
            } else {
                NONE
            };
            let seam = if before > 0 {
                merges.of(token_before, token)
            } else {
                NONE
            };
            due.extend(entry(seam, at, SEAM));
            due.extend(entry(inner, at, INNER));
            if let Some(group) = groups.get_mut(at as usize) {
                *group = Group {
                    token,
                    count,
                    before,
                    next: at + count,
                    inner,
                    seam,
                };
            }
            (before, token_before) = (at, token);
            at += count;
        }
        // Only now it is known which group is the last.
        if let Some(last) = groups.get_mut(before as usize) {
            last.next = 0;
        }
        Self {
            merges,
            groups,
            due: BinaryHeap::from(due),
        }
    }

    fn tokens(&self) -> Vec<(u32, u32)> {
        let mut tokens = Vec::new();
        let mut at = u32::from(self.groups.len() > 1);
        while at > 0 {
            let group = self.at(at);
            tokens.push((group.token, group.count));
            at = group.next;
        }
        tokens
    }

    #[inline]
    fn at(&self, at: u32) -> Group {
        self.groups.get(at as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn change(&mut self, at: u32, change: impl FnOnce(&mut Group)) {
        // What stands before the first group and behind the last has no links to mend.
        if at > 0
            && let Some(group) = self.groups.get_mut(at as usize)
        {
            change(group);
        }
    }

    fn merge_inner(&mut self, at: u32, merged: u32) {
        let group = self.at(at);
        if group.count < 2 || group.inner != merged {
            return;
        }
        // An odd token has no partner. It follows the merged ones as a group of its own.
        let mut next = group.next;
        let pairs = group.count / 2;
        if group.count % 2 == 1 {
            let rest = at + pairs * self.length(merged);
            self.put(rest, group.token, 1, at, next);
            self.offer_seam(next);
            next = rest;
        }
        self.place(at, merged, pairs, group.before, next);
    }

    fn merge_seam(&mut self, at: u32, merged: u32) {
        let right = self.at(at);
        if right.count == 0 || right.seam != merged {
            return;
        }
        // The groups on both sides lose one token each. Either may be empty afterwards.
        let left = self.at(right.before);
        let mut before = left.before;
        if left.count > 1 {
            before = right.before;
            self.change(before, |left| left.count -= 1);
        }
        self.change(at, |right| right.count = 0);
        let start = at - self.length(left.token);
        let mut next = right.next;
        if right.count > 1 {
            let rest = at + self.length(right.token);
            self.put(rest, right.token, right.count - 1, start, next);
            self.offer_inner(rest);
            next = rest;
        }
        self.place(start, merged, 1, before, next);
    }

    /// Puts tokens between two groups. A neighbour of the same token takes them in.
    fn place(&mut self, mut at: u32, token: u32, mut count: u32, mut before: u32, mut next: u32) {
        let right = self.at(next);
        if next > 0 && right.token == token {
            count += right.count;
            self.change(next, |right| right.count = 0);
            next = right.next;
        }
        let left = self.at(before);
        if before > 0 && left.token == token {
            count += left.count;
            self.change(at, |taken| taken.count = 0);
            (at, before) = (before, left.before);
        }
        self.put(at, token, count, before, next);
        self.offer_seam(at);
        self.offer_inner(at);
        self.offer_seam(next);
    }

    fn put(&mut self, at: u32, token: u32, count: u32, before: u32, next: u32) {
        self.change(at, |group| {
            *group = Group {
                token,
                count,
                before,
                next,
                inner: NONE,
                seam: NONE,
            };
        });
        self.change(before, |left| left.next = at);
        self.change(next, |right| right.before = at);
    }

    fn offer_inner(&mut self, at: u32) {
        let group = self.at(at);
        if group.count > 1 {
            let inner = self.merges.of(group.token, group.token);
            self.change(at, |group| group.inner = inner);
            self.due.extend(entry(inner, at, INNER));
        }
    }

    /// Finds what a group and the one before it merge into, after either has changed.
    fn offer_seam(&mut self, at: u32) {
        let group = self.at(at);
        if at > 0 && group.before > 0 {
            let seam = self.merges.of(self.at(group.before).token, group.token);
            self.change(at, |group| group.seam = seam);
            self.due.extend(entry(seam, at, SEAM));
        }
    }

    fn length(&self, token: u32) -> u32 {
        self.merges.length(token) as u32
    }
}

/// An entry in `due`: the earliest token first, and then the leftmost place.
#[inline]
fn entry(merged: u32, at: u32, kind: u64) -> Option<Reverse<u64>> {
    (merged != NONE).then(|| Reverse(u64::from(merged) << 33 | u64::from(at) << 1 | kind))
}
