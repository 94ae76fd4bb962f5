//! What the later hops of a turn are sent otherwise than the first: the rest of the token limit, and what
//! the provider keeps for the turn. Which members hold for which hops is the format's to say. Never reads
//! a body.

use plimsoll_wire::request::LaterHop;

use super::TurnState;

/// What a turn knows for its later hops.
#[derive(Clone, Debug, Default)]
pub struct LaterHops {
    /// The handle that the newest answer gave.
    pub handle: Option<String>,
    /// Whether they get the client's token limit whole, because the upstream refused a part of it.
    whole_limit: bool,
}

impl TurnState {
    /// What the next hop is sent if it is not the first.
    pub(super) fn later_hop(&self) -> Option<LaterHop> {
        (self.settled() > 0).then(|| LaterHop {
            limit: self.remaining_limit().filter(|_| !self.later.whole_limit),
            handle: self.later.handle.clone(),
        })
    }

    /// Gives later hops the client's token limit whole. Says whether that changes the next one.
    pub fn lift_limit(&mut self) -> bool {
        let own = self.request.limit.map(|limit| limit.tokens);
        let changes = self.remaining_limit().is_some_and(|left| Some(left) != own);
        !std::mem::replace(&mut self.later.whole_limit, true) && changes
    }

    /// Gives up the exchanges of this turn, because the upstream refuses what stands behind them. The
    /// client has seen nothing of them.
    pub fn give_up_hops(&mut self) {
        self.pending.clear();
        self.asks.brought = false;
        self.later = LaterHops::default();
    }

    /// The client's token limit, less what the turn has used.
    fn remaining_limit(&self) -> Option<u64> {
        let used = self.pending.iter().filter_map(|hop| hop.usage);
        let used: u64 = used.map(|usage| usage.completion).sum();
        self.request.limit_left(used).filter(|_| used > 0)
    }
}
