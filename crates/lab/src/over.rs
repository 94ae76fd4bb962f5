//! Requests that were sent above the ceiling, and what of them could not have gone. Owns that split. Never
//! decides what goes.

use std::sync::Arc;

use plimsoll_model::{Role, Shape};

/// A request above the ceiling, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The request, from 1. Each hop above the ceiling has its own.
    pub request: usize,
    /// All that was sent.
    pub sent: u64,
    /// What no pass may take: tools, system and user text, and the newest answer with all behind it.
    pub kept: u64,
    /// The thoughts that were sent, those of the newest answer included.
    pub thoughts: u64,
}

/// Tokens of the users' text, and of the newest answer with what is behind it and is not theirs.
#[must_use]
pub fn kept(shapes: &[Arc<Shape>]) -> u64 {
    let newest = shapes.iter().rposition(|one| one.role == Role::Assistant);
    let stays = |(at, shape): &(usize, &Arc<Shape>)| {
        shape.role == Role::User || newest.is_some_and(|newest| *at >= newest)
    };
    let stay = shapes.iter().enumerate().filter(stays);
    stay.map(|(_, shape)| u64::from(shape.tokens())).sum()
}
