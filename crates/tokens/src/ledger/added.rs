//! Where in a request the tokens stand that the proxy added, as far as it is known. Never prices any.

use super::{LedgerCall, RequestSizes, scaled, wide};

/// What the proxy added to a request, in the provider's tokens: how much of it stands within the first so many
/// tokens of the request. Between the places that are known it is taken to be spread evenly.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// Tokens of the request, and how many of them are added. Both ascend.
    known: [(u64, u64); 3],
}

impl Added {
    /// What a call added to the client's request.
    pub(super) fn of(call: &LedgerCall, client: RequestSizes, ratio: f64) -> Self {
        let all = call.whole.saturating_sub(client.tokens);
        let held = match client.breaks() || call.asked.breaks() {
            // What was sent before is no measure of what stands where.
            true => call.front,
            false => call.asked.held.saturating_sub(client.held).max(call.front),
        };
        let (front, held) = (call.front.min(all), held.min(all));
        let due = call.asked.held.max(front);
        let known = [
            (front, front),
            (due, held),
            (call.asked.tokens.max(due), all),
        ];
        Self {
            known: known.map(|(place, sum)| (scaled(place, ratio), scaled(sum, ratio))),
        }
    }

    /// Those within the first `tokens` of the request.
    pub(super) fn within(&self, tokens: u64) -> u64 {
        let mut below = (0, 0);
        for (place, sum) in self.known {
            if tokens < place {
                let share = wide(tokens - below.0) / wide(place - below.0);
                return below.1 + scaled(sum - below.1, share);
            }
            below = (place, sum);
        }
        below.1
    }

    pub(super) fn all(&self) -> u64 {
        let [.., (_, all)] = self.known;
        all
    }
}
