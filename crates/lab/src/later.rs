//! What of the evicted items of a session was needed later, one by one, and whether the view still had it.
//! Owns that judgement over a player's account; never plays anything.

use std::collections::{HashMap, HashSet};

use plimsoll_model::ItemNo;

use super::drive::PlayedSession;
use super::message_text::TextPart;
use super::player::Player;
use super::sent::Pool;
use super::shown::SentView;

/// How an evicted item was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Later {
    /// A call used this string of it, and the view had it.
    Held(String),
    /// A call used this string of it, and the view had it not.
    Missed {
        /// The string.
        string: String,
        /// Whether the view named something to bring it back by.
        named: bool,
    },
    /// Its call was made again.
    Again,
}

/// That an evicted item was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterNeed {
    /// The item.
    pub item: ItemNo,
    /// The request whose answer needed it, from 1.
    pub request: usize,
    /// How.
    pub how: Later,
}

/// Every need of an item that did not stand in the view as it came, in the order of the requests.
#[must_use]
pub fn needs(played: &PlayedSession<'_>, player: &Player<'_>) -> Vec<LaterNeed> {
    let gone = gone(player);
    let view = SentView {
        pool: &Pool::default(),
        ids: &[],
        transcript: &player.transcript,
    };
    let evicted = |message: usize, part: TextPart, request: usize| {
        let item = view.item(message, part)?;
        let since = gone.get(&item.no)?;
        (*since <= request).then_some(item.no)
    };
    let missed = player.misses.iter();
    let missed: HashSet<(usize, u32)> = missed.map(|miss| (miss.at, miss.string)).collect();
    let named = player.misses.iter().filter(|miss| miss.named);
    let named: HashSet<(usize, u32)> = named.map(|miss| (miss.at, miss.string)).collect();
    let mut found = Vec::new();
    for (at, request) in played.answers.iter().zip(1..) {
        let again = player.again.iter().filter(|(of, _)| *of == request);
        for (_, message) in again {
            found.extend(evicted(*message, TextPart::Text, request).map(|item| {
                let how = Later::Again;
                LaterNeed { item, request, how }
            }));
        }
        let strings = played.needs.asks.get(*at).map(|ask| &ask.strings);
        for number in strings.into_iter().flatten() {
            let string = played.needs.string(*number).to_owned();
            let how = if missed.contains(&(*at, *number)) {
                let named = named.contains(&(*at, *number));
                Later::Missed { string, named }
            } else {
                Later::Held(string)
            };
            let holders = played.needs.holders(*number, *at);
            let items = holders.filter_map(|(message, part)| evicted(message, part, request));
            found.extend(items.map(|item| LaterNeed {
                item,
                request,
                how: how.clone(),
            }));
        }
    }
    found
}

/// From which request on each item did not stand in the view as it came. Both count from 1.
fn gone(player: &Player<'_>) -> HashMap<ItemNo, usize> {
    let mut gone = HashMap::new();
    for entry in &player.path.entries {
        let moved = entry.record.hops.iter().flat_map(|hop| &hop.marks);
        for (item, _) in moved {
            gone.entry(*item).or_insert(entry.record.turn as usize);
        }
    }
    gone
}
