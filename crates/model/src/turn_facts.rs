//! What a record says of its turn for those who look at it later: sizes, times, cost, and what a pass
//! left and held. Owns its form, which every later version must read. Never holds content, and
//! nothing of it decides what is sent.

use serde::{Deserialize, Serialize};

use super::{CacheFacts, ItemKind, ItemNo, NeededCounts};

/// What is shown of a turn. The names of its fields are short because each record has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnFacts {
    /// The client's request, in calibrated tokens.
    #[serde(rename = "in")]
    pub tokens_in: u64,
    /// The wire format, if it is not that of Chat Completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// The view that was sent last, in calibrated tokens.
    #[serde(rename = "out")]
    pub tokens_out: u64,
    /// The ceiling that held, in calibrated tokens.
    #[serde(rename = "tau")]
    pub ceiling: u64,
    /// The floor that held, in calibrated tokens.
    pub floor: u64,
    /// Tokens of tools and of guidance that is a message of its own, as counted.
    pub fixed: u64,
    /// Whether a hop was sent above the ceiling.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// Whether the turn was only watched.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// The proxy's own time until the record was made, in microseconds.
    #[serde(rename = "own")]
    pub own_us: u64,
    /// From the request's head to the first byte that the client could see, in microseconds.
    #[serde(rename = "first", skip_serializing_if = "Option::is_none")]
    pub first_us: Option<u64>,
    /// The upstream's id of each hop's request; empty where it gave none.
    #[serde(rename = "ids", skip_serializing_if = "Vec::is_empty")]
    pub request_ids: Vec<String>,
    /// The stage whose failure the turn survived.
    #[serde(rename = "failed", skip_serializing_if = "Option::is_none")]
    pub fail_open: Option<String>,
    /// At how many tokens the upstream was known to cut prompts without a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<u32>,
    /// What the turn cost. None if the provider did not report it. Of a watched turn it is what the turn would have
    /// cost as a managed one, so `whole` and `client` are what was really paid and sent.
    #[serde(rename = "cost", skip_serializing_if = "Option::is_none")]
    pub account: Option<TurnAccount>,
    /// What all turns of its branch before it came to.
    pub sums: TurnSums,
    /// The name of its branch. None for the turns with which the session began and those that went on from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What changed in the request, as far as the provider's cache depends on it.
    #[serde(rename = "cache", skip_serializing_if = "CacheFacts::is_empty")]
    pub cache: CacheFacts,
    /// What the answers needed of what had left the view.
    #[serde(skip_serializing_if = "NeededCounts::is_empty")]
    pub needed: NeededCounts,
    /// The items that the request added to those of the turn before, its answer included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemSize>,
    /// The tools of calls that no record names, because the client brought them along.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<(ItemNo, String)>,
}

/// An item with its size. A list and not a map: a turn has many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemSize(pub ItemNo, pub u8, pub u32);

impl ItemSize {
    /// The size of an item. A result has the number of its call.
    #[must_use]
    pub const fn new(no: ItemNo, kind: ItemKind, tokens: u32) -> Self {
        let kind = match kind {
            ItemKind::System => 0,
            ItemKind::User => 1,
            ItemKind::Text => 2,
            ItemKind::Reasoning => 3,
            ItemKind::Call => 4,
            ItemKind::Result => 5,
            ItemKind::Opaque => 6,
        };
        Self(no, kind, tokens)
    }

    /// What it is. What a later version knows reads as opaque.
    #[must_use]
    pub const fn kind(self) -> ItemKind {
        match self.1 {
            0 => ItemKind::System,
            1 => ItemKind::User,
            2 => ItemKind::Text,
            3 => ItemKind::Reasoning,
            4 => ItemKind::Call,
            5 => ItemKind::Result,
            _ => ItemKind::Opaque,
        }
    }
}

/// What one turn cost, in units of one plain input token, as `tokens::ledger` computed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnAccount {
    /// What the upstream calls cost.
    pub paid: f64,
    /// What the client's own request would have cost.
    pub whole: f64,
    /// What was not paid for tokens that are out of the view.
    #[serde(rename = "gone")]
    pub evicted: f64,
    /// What was paid to write again what the provider held.
    #[serde(rename = "again")]
    pub rewritten: f64,
    /// What was paid for the hidden tools.
    #[serde(rename = "hid")]
    pub annotated: f64,
    /// What was not paid because the proxy set breakpoints where the client sets none.
    #[serde(rename = "marked", skip_serializing_if = "is_nothing")]
    pub breakpoints: f64,
    /// What no cause explains; no part of what was saved.
    #[serde(rename = "odd", skip_serializing_if = "is_nothing")]
    pub unexplained: f64,
    /// What of the whole sum was paid for calls that only hidden calls answered.
    #[serde(rename = "hops", skip_serializing_if = "is_nothing")]
    pub hidden: f64,
    /// What of it was paid for a request that offers no tools.
    #[serde(skip_serializing_if = "is_nothing")]
    pub aside: f64,
    /// The price of a unit in US dollars, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Prompt tokens of all calls, and those of them from the cache.
    #[serde(rename = "read")]
    pub sent: (u64, u64),
    /// Prompt tokens of the client's own request, and those of them from the cache.
    #[serde(rename = "own")]
    pub client: (u64, u64),
}

impl TurnAccount {
    /// What was saved. Negative if more was paid.
    #[must_use]
    pub fn net(&self) -> f64 {
        self.evicted + self.breakpoints - self.rewritten - self.annotated
    }

    /// Adds the money and the tokens of another account at the same price of a unit.
    pub fn add(&mut self, one: &Self) {
        self.paid += one.paid;
        self.whole += one.whole;
        self.evicted += one.evicted;
        self.rewritten += one.rewritten;
        self.annotated += one.annotated;
        self.breakpoints += one.breakpoints;
        self.unexplained += one.unexplained;
        self.hidden += one.hidden;
        self.aside += one.aside;
        self.sent = (self.sent.0 + one.sent.0, self.sent.1 + one.sent.1);
        self.client = (self.client.0 + one.client.0, self.client.1 + one.client.1);
    }

    /// This account in dollars. Without a price its money is 0 and means nothing.
    #[must_use]
    pub fn in_dollars(&self) -> Self {
        let usd = self.usd.unwrap_or_default();
        Self {
            paid: self.paid * usd,
            whole: self.whole * usd,
            evicted: self.evicted * usd,
            rewritten: self.rewritten * usd,
            annotated: self.annotated * usd,
            breakpoints: self.breakpoints * usd,
            unexplained: self.unexplained * usd,
            hidden: self.hidden * usd,
            aside: self.aside * usd,
            usd: self.usd.map(|_| 1.0),
            ..*self
        }
    }
}

/// What several turns came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnSums {
    /// How many turns, those without an account included.
    pub turns: u32,
    /// Turns above the ceiling.
    pub over: u32,
    /// Passes.
    pub passes: u32,
    /// Hidden hops.
    pub hops: u32,
    /// Recalls that brought something back.
    pub recalls: u32,
    /// What answers needed of what had left their views.
    #[serde(skip_serializing_if = "NeededCounts::is_empty")]
    pub needed: NeededCounts,
    /// Turns with an account.
    pub accounts: u32,
    /// The sum of their accounts. If they had different prices it is in dollars, at a price of 1.
    #[serde(rename = "cost")]
    pub account: TurnAccount,
    /// Whether they had different prices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
}

impl TurnSums {
    /// Adds what a turn cost.
    pub fn add(&mut self, one: &TurnAccount) {
        if self.accounts == 0 {
            self.account.usd = one.usd;
        } else if self.account.usd != one.usd && !self.mixed {
            // Tokens of unlike prices don't add up; dollars do.
            self.account = self.account.in_dollars();
            self.mixed = true;
        }
        let one = if self.mixed { one.in_dollars() } else { *one };
        let usd = self.account.usd.and(one.usd);
        self.account.add(&one);
        self.account.usd = usd;
        self.accounts += 1;
    }
}

fn is_nothing(amount: &f64) -> bool {
    *amount == 0.0
}

/// What a pass did, beside the marks that it moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassFacts {
    /// What started it.
    #[serde(rename = "why")]
    pub trigger: String,
    /// The view without it, in calibrated tokens.
    pub before: u64,
    /// The view with it.
    pub after: u64,
    /// The floor that it aimed at.
    pub floor: u64,
    /// How much at the front of the view it left as it was.
    pub cut: u64,
    /// The largest episodes that stayed: name, tokens, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<(String, u32, Held)>,
}

/// Why a pass left an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// It is open.
    Open,
    /// Work in view depends on it.
    Needed,
    /// It is among the newest tokens.
    Recent,
    /// Something of it is pinned, or kept by a rule.
    Kept,
    /// The floor was reached before it.
    Floor,
    /// Nothing of it may go.
    Protected,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn account() -> TurnAccount {
        TurnAccount {
            paid: 1_200.5,
            whole: 4_100.25,
            evicted: 3_100.0,
            rewritten: 150.25,
            annotated: 50.0,
            breakpoints: 0.0,
            unexplained: 0.0,
            hidden: 0.0,
            aside: 0.0,
            usd: Some(1.25e-6),
            sent: (30_356, 22_000),
            client: (90_000, 88_064),
        }
    }

    pub(crate) fn sums() -> TurnSums {
        TurnSums {
            turns: 3,
            over: 1,
            passes: 2,
            hops: 4,
            recalls: 1,
            needed: NeededCounts {
                held: 7,
                missed: 2,
                read_again: 1,
                asked_again: 0,
                recalled: 1,
            },
            accounts: 3,
            account: account(),
            mixed: true,
        }
    }

    /// Facts with everything that there is.
    pub(crate) fn facts() -> TurnFacts {
        TurnFacts {
            tokens_in: 165_705,
            dialect: Some("responses".to_owned()),
            tokens_out: 30_356,
            ceiling: 40_000,
            floor: 22_399,
            fixed: 741,
            over: true,
            watched: true,
            own_us: 6_080,
            first_us: Some(11_600),
            request_ids: vec!["req_1".to_owned()],
            fail_open: Some("record".to_owned()),
            cut: None,
            account: Some(account()),
            sums: sums(),
            branch: None,
            cache: CacheFacts::default(),
            needed: NeededCounts::default(),
            items: vec![
                ItemSize(ItemNo(12), 1, 39),
                ItemSize(ItemNo(14), 4, 62),
                ItemSize(ItemNo(14), 5, 4_700),
            ],
            tools: vec![(ItemNo(9), "read".to_owned())],
        }
    }

    #[test]
    fn accounts_of_unlike_prices_add_up_in_dollars() {
        let one = TurnAccount {
            usd: Some(2.0),
            ..account()
        };
        let other = TurnAccount {
            usd: Some(0.5),
            ..account()
        };
        let mut same = TurnSums::default();
        same.add(&one);
        same.add(&one);
        assert_eq!(
            (same.account.paid, same.account.usd, same.mixed),
            (2_401.0, Some(2.0), false)
        );
        let mut mixed = TurnSums::default();
        mixed.add(&one);
        mixed.add(&other);
        assert_eq!(
            (mixed.account.paid, mixed.account.usd, mixed.mixed),
            (3_001.25, Some(1.0), true)
        );
        mixed.add(&TurnAccount {
            usd: None,
            ..account()
        });
        assert_eq!((mixed.account.usd, mixed.accounts), (None, 3));
        assert_eq!(mixed.account.sent, (91_068, 66_000));
    }
}
