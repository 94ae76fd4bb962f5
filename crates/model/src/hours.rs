//! What a session's turns came to by the hour, which its row keeps. Owns its form, which every later version must read, and
//! which hours become days. Never knows a time zone: whoever shows days puts hours together.

use serde::{Deserialize, Serialize};

use super::{TurnAccount, TurnSums};

/// An hour, in milliseconds.
pub const HOUR_MS: u64 = 60 * 60 * 1000;
/// For how many days before the newest turn hours stand by themselves.
const DAYS_OF_HOURS: u32 = 7;
/// For how many days before the newest turn days stand by themselves.
const DAYS: u32 = 60;

/// What the turns of an hour came to. A session that runs for weeks has the whole days (UTC) of more than a week ago in one
/// entry each, and what is older than sixty days in the entry of hour 0: so a row has 250 of them at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HourSums {
    /// When it began, in hours since 1970.
    #[serde(rename = "h")]
    pub hour: u32,
    /// The model that the last of these turns asked. None if it is the row's.
    #[serde(rename = "m", skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many turns, those without an account included.
    #[serde(rename = "t")]
    pub turns: u32,
    /// What was paid, in US dollars. This and what follows is 0 where no price is known.
    #[serde(rename = "p", skip_serializing_if = "is_nothing")]
    pub paid: f32,
    /// What the client's own requests would have cost, in US dollars.
    #[serde(rename = "w", skip_serializing_if = "is_nothing")]
    pub whole: f32,
    /// What was saved, in US dollars.
    #[serde(rename = "s", skip_serializing_if = "is_nothing")]
    pub saved: f32,
    /// What of it was paid for calls that only hidden calls answered, in US dollars.
    #[serde(rename = "x", skip_serializing_if = "is_nothing")]
    pub hidden: f32,
    /// What of it was paid for requests that offer no tools, in US dollars.
    #[serde(rename = "a", skip_serializing_if = "is_nothing")]
    pub aside: f32,
    /// Prompt tokens of all calls.
    #[serde(rename = "i", skip_serializing_if = "is_none")]
    pub sent: u64,
    /// Prompt tokens of the client's own requests.
    #[serde(rename = "c", skip_serializing_if = "is_none")]
    pub client: u64,
}

impl HourSums {
    /// What came between two states of a row's sums. Once a price is not known, the sums have no dollars any more, so what
    /// comes from then on has none either.
    #[must_use]
    pub fn between(hour: u32, before: &TurnSums, after: &TurnSums) -> Self {
        let (from, mut to) = (before.account.in_dollars(), after.account.in_dollars());
        if to.usd.is_none() {
            to = TurnAccount {
                sent: to.sent,
                client: to.client,
                ..from
            };
        }
        Self {
            hour,
            model: None,
            turns: after.turns.saturating_sub(before.turns),
            paid: narrow(to.paid - from.paid),
            whole: narrow(to.whole - from.whole),
            saved: narrow(to.net() - from.net()),
            hidden: narrow(to.hidden - from.hidden),
            aside: narrow(to.aside - from.aside),
            sent: to.sent.0.saturating_sub(from.sent.0),
            client: to.client.0.saturating_sub(from.client.0),
        }
    }

    /// Adds what came after it in the same hour or day.
    pub fn join(&mut self, later: Self) {
        self.model = later.model;
        self.turns += later.turns;
        self.paid += later.paid;
        self.whole += later.whole;
        self.saved += later.saved;
        self.hidden += later.hidden;
        self.aside += later.aside;
        self.sent += later.sent;
        self.client += later.client;
    }
}

/// The hour of a time, which is in milliseconds since 1970.
#[must_use]
pub fn hour(at: u64) -> u32 {
    u32::try_from(at / HOUR_MS).unwrap_or(u32::MAX)
}

/// The entry in which an hour counts, seen from the hour of the newest turn.
#[must_use]
pub fn entry_of(hour: u32, newest: u32) -> u32 {
    let day = hour / 24;
    match (newest / 24).saturating_sub(day) {
        days if days < DAYS_OF_HOURS => hour,
        days if days < DAYS => day * 24,
        _ => 0,
    }
}

/// The middle of what an entry stands for, in milliseconds since 1970, seen from the hour of the newest turn. By it an
/// entry falls into the day that has most of it, in every zone.
#[must_use]
pub fn middle(hour: u32, newest: u32) -> u64 {
    let is_hour = (newest / 24).saturating_sub(hour / 24) < DAYS_OF_HOURS;
    let half = if is_hour { HOUR_MS / 2 } else { 12 * HOUR_MS };
    u64::from(hour) * HOUR_MS + half
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "dollars of an hour need no more than seven digits"
)]
fn narrow(dollars: f64) -> f32 {
    dollars as f32
}

fn is_nothing(amount: &f32) -> bool {
    *amount == 0.0
}

fn is_none(amount: &u64) -> bool {
    *amount == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_become_days_after_a_week_and_one_entry_after_sixty_days() {
        let newest = 490_000;
        let first = newest / 24 * 24;
        assert_eq!(entry_of(newest, newest), newest);
        assert_eq!(entry_of(first - 6 * 24, newest), first - 6 * 24);
        assert_eq!(entry_of(first - 6 * 24 - 1, newest), first - 7 * 24);
        assert_eq!(entry_of(first - 59 * 24 + 5, newest), first - 59 * 24);
        assert_eq!(entry_of(first - 59 * 24 - 1, newest), 0);
        // A clock that went back makes no entry of its own kind.
        assert_eq!(entry_of(newest + 3, newest), newest + 3);
        let entries = (0..=newest).map(|hour| entry_of(hour, newest));
        let entries: std::collections::BTreeSet<u32> = entries.collect();
        assert!(entries.len() <= 250, "{}", entries.len());
    }
}
