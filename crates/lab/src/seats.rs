//! Who makes the views that are compared, how deep each goes, and the search for one size, because a
//! policy that evicts less always looks better. Plays sessions by the code that serves; never judges
//! what a view is worth.

use std::collections::{HashMap, HashSet};

use plimsoll_core::commit::{self, Floor};
use plimsoll_core::policy::{Ladder, Policy};
use serde_json::{Value, json};

use super::contender::{Contender, summary};
use super::player::Player;
use super::sample::Drawn;
use super::standin::{self, TRUNCATED, Truncation};
use super::{Lab, ReplayError, Watch, across, drive, json};

/// Which size the views are to have on the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// What each policy makes it.
    Nothing,
    /// The least that all of the policies reach.
    Least,
    /// So many tokens.
    Tokens(u64),
}

/// Who makes a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maker {
    /// Policies of the lab's.
    Policies(Ladder),
    /// Nobody: the newest messages alone.
    Truncated,
}

/// How deep it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// As the lab plays it.
    Own,
    /// Down to a share of the ceiling.
    Floor(f64),
    /// Under a ceiling that is a share of the lab's, where a policy knows no floor.
    Ceiling(f64),
}

#[derive(Clone, Debug)]
pub struct Seat {
    /// Who.
    pub maker: Maker,
    /// How deep.
    pub depth: Depth,
}

impl Seat {
    /// The view's name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.maker {
            Maker::Policies(ladder) => ladder.to_string(),
            Maker::Truncated => TRUNCATED.to_owned(),
        }
    }

    /// The depths between which its size is looked for; none where nothing is evicted.
    fn range(&self) -> Option<(f64, f64)> {
        match &self.maker {
            Maker::Policies(ladder) if ladder.main() == Policy::None => None,
            Maker::Policies(ladder) if knows_no_floor(ladder) => Some((0.3, 2.0)),
            Maker::Policies(_) | Maker::Truncated => Some((0.1, 1.0)),
        }
    }

    fn at(&self, share: f64) -> Self {
        let depth = match &self.maker {
            Maker::Policies(ladder) if knows_no_floor(ladder) => Depth::Ceiling(share),
            Maker::Policies(_) | Maker::Truncated => Depth::Floor(share),
        };
        Self {
            depth,
            maker: self.maker.clone(),
        }
    }

    /// How deep it goes, for the record.
    #[must_use]
    pub fn setting(&self, lab: &Lab) -> Value {
        match self.depth {
            Depth::Own => json!({ "floor": json::floor(lab.options.floor) }),
            Depth::Floor(share) => json!({ "floor": share }),
            Depth::Ceiling(share) => json!({ "budget": share }),
        }
    }
}

/// Whether the size of a ladder's views follows from its ceiling alone.
fn knows_no_floor(ladder: &Ladder) -> bool {
    matches!(
        ladder.main(),
        Policy::Compaction | Policy::KeepRecent | Policy::ThreeTier
    )
}

/// The answers before which each of some seats had left something out, and met the ceiling: what leaves
/// more in view always looks better.
///
/// # Errors
/// [`ReplayError`] where the session can't be played.
pub fn fair(lab: &Lab, session: &Drawn, seats: &[Seat]) -> Result<HashSet<usize>, ReplayError> {
    let whole = session.everywhere();
    let evicting = seats.iter().filter(|seat| seat.range().is_some());
    let evicting: Vec<Seat> = evicting.cloned().collect();
    let mut met: HashMap<usize, usize> = HashMap::new();
    play(lab, &whole, &evicting, &mut |shown| {
        let history = whole.history(shown.at);
        let size = tokens(lab, &shown.messages);
        let is_met = size < history && size <= u64::from(ceiling(lab));
        *met.entry(shown.at).or_default() += usize::from(is_met);
    })?;
    let all = |(at, count): (usize, usize)| (count == evicting.len()).then_some(at);
    Ok(met.into_iter().filter_map(all).collect())
}

/// The policies of a lab as it plays them, and plain truncation.
#[must_use]
pub fn all(lab: &Lab) -> Vec<Seat> {
    let makers = lab.options.policies.iter().cloned().map(Maker::Policies);
    let makers = makers.chain(std::iter::once(Maker::Truncated));
    let depth = Depth::Own;
    makers.map(|maker| Seat { maker, depth }).collect()
}

/// Rounds of the search, each of which plays all sessions once for all policies.
const ROUNDS: usize = 8;
/// How near a mean size is near enough.
const NEAR: f64 = 0.005;

/// Sets each seat's depth so that the views have one mean size: by halves, the nearest that was seen
/// being kept, because a size doesn't follow a floor smoothly.
///
/// # Errors
/// [`ReplayError`] where a session can't be played.
pub fn search(
    lab: &Lab,
    drawn: &[Drawn],
    seats: &mut [Seat],
    size: Match,
    watch: &dyn Watch,
) -> Result<(), ReplayError> {
    let first = sizes(lab, drawn, seats, watch)?;
    let target = match size {
        Match::Tokens(tokens) => tokens as f64,
        Match::Nothing | Match::Least => least(lab, drawn, seats, &first, watch)?,
    };
    let far = |size: f64| (size - target).abs();
    let mut best: Vec<(f64, Seat)> = Vec::new();
    best.extend(
        first
            .iter()
            .map(|size| far(*size))
            .zip(seats.iter().cloned()),
    );
    let mut ranges: Vec<(f64, f64)> = Vec::new();
    ranges.extend(seats.iter().map(|seat| seat.range().unwrap_or_default()));
    for _ in 0..ROUNDS {
        let near = |(at, _): &(usize, &(f64, Seat))| {
            let seat = seats.get(*at);
            seat.is_some_and(|seat| seat.range().is_some())
        };
        let open = best.iter().enumerate().filter(near);
        let open = open.filter(|(_, (far, _))| *far > NEAR * target);
        let open: Vec<usize> = open.map(|(at, _)| at).collect();
        let middles = open.iter().map(|at| {
            let (low, high) = ranges.get(*at).copied().unwrap_or_default();
            f64::midpoint(low, high)
        });
        let middles: Vec<f64> = middles.collect();
        let tried = open.iter().zip(&middles);
        let tried = tried.filter_map(|(at, middle)| seats.get(*at).map(|seat| seat.at(*middle)));
        let tried: Vec<Seat> = tried.collect();
        if tried.is_empty() {
            break;
        }
        let found = sizes(lab, drawn, &tried, watch)?;
        for (((at, seat), size), middle) in open.iter().zip(&tried).zip(found).zip(middles) {
            if let Some((low, high)) = ranges.get_mut(*at) {
                *(if size > target { high } else { low }) = middle;
            }
            if let Some(best) = best.get_mut(*at)
                && far(size) < best.0
            {
                *best = (far(size), seat.clone());
            }
        }
    }
    for (seat, (_, found)) in seats.iter_mut().zip(best) {
        *seat = found;
    }
    Ok(())
}

/// The least mean size that every seat can come down to: what may never go keeps some above the others.
fn least(
    lab: &Lab,
    drawn: &[Drawn],
    seats: &[Seat],
    first: &[f64],
    watch: &dyn Watch,
) -> Result<f64, ReplayError> {
    let evicting = seats.iter().zip(first);
    let evicting = evicting.filter_map(|(seat, size)| Some((seat.at(seat.range()?.0), *size)));
    let (deepest, sent): (Vec<Seat>, Vec<f64>) = evicting.unzip();
    let lows = sizes(lab, drawn, &deepest, watch)?;
    let sent = sent.into_iter().fold(f64::INFINITY, f64::min);
    Ok(lows.into_iter().fold(sent, f64::max))
}

/// The mean size of each seat's views.
fn sizes(
    lab: &Lab,
    drawn: &[Drawn],
    seats: &[Seat],
    watch: &dyn Watch,
) -> Result<Vec<f64>, ReplayError> {
    let order: Vec<usize> = (0..drawn.len()).collect();
    let one = |at: usize| {
        let session = drawn.get(at)?;
        let mut sums = vec![0; seats.len()];
        let played = play(lab, session, seats, &mut |shown| {
            if let Some(sum) = sums.get_mut(shown.seat) {
                *sum += tokens(lab, &shown.messages);
            }
        });
        Some(played.map(|()| sums))
    };
    let mut sums = vec![0_u64; seats.len()];
    for one in across(lab.options.threads, &order, &one, watch)
        .into_iter()
        .flatten()
    {
        for (sum, own) in sums.iter_mut().zip(one?) {
            *sum += own;
        }
    }
    let turns: usize = drawn.iter().map(|session| session.turns.len()).sum();
    Ok(sums
        .iter()
        .map(|sum| *sum as f64 / turns.max(1) as f64)
        .collect())
}

/// One view as it was sent.
pub struct SeatView {
    /// Whose, by number.
    pub seat: usize,
    /// The answer, by its place among the messages.
    pub at: usize,
    /// The block that it was drawn in.
    pub block: usize,
    /// What was sent.
    pub messages: Vec<Vec<u8>>,
}

/// Plays a session for some seats and shows what each of them sent at the turns that were drawn.
///
/// # Errors
/// [`ReplayError`] where it can't be played.
pub fn play(
    lab: &Lab,
    session: &Drawn,
    seats: &[Seat],
    each: &mut dyn FnMut(SeatView),
) -> Result<(), ReplayError> {
    let mut contenders = Vec::new();
    let mut seated = Vec::new();
    let mut cuts = Vec::new();
    for (number, seat) in seats.iter().enumerate() {
        match &seat.maker {
            Maker::Policies(ladder) => {
                contenders.push(contender(lab, ladder.clone(), seat.depth)?);
                seated.push(number);
            }
            Maker::Truncated => cuts.push((number, truncation(lab, seat.depth))),
        }
    }
    let block = |at: usize| {
        let drawn = session.turns.iter().find(|(own, _)| *own == at);
        drawn.map(|(_, block)| *block)
    };
    let raw = &session.trace.messages;
    let before = |at: usize| raw.get(..at).unwrap_or_default();
    drive::watched(
        lab,
        &session.trace,
        &contenders,
        None,
        &mut |at, players| {
            for (seat, cut) in &mut cuts {
                let kept = cut.view(session.sizes.get(..at).unwrap_or_default());
                if let Some(block) = block(at) {
                    let messages = kept.iter().filter_map(|at| raw.get(*at));
                    let messages = messages.map(|message| message.raw.to_vec()).collect();
                    each(SeatView {
                        seat: *seat,
                        at,
                        block,
                        messages,
                    });
                }
            }
            let Some(block) = block(at) else { return };
            for (player, seat) in players.iter().zip(&seated) {
                let history: Vec<&[u8]> = before(at).iter().map(|one| one.raw.as_ref()).collect();
                each(SeatView {
                    seat: *seat,
                    at,
                    block,
                    messages: sent(lab, player, &history),
                });
            }
        },
    )?;
    Ok(())
}

fn contender(lab: &Lab, ladder: Ladder, depth: Depth) -> Result<Contender, ReplayError> {
    let options = &lab.options;
    let ceiling = ceiling(lab);
    Ok(match depth {
        Depth::Own => Contender::new(ladder, ceiling, options.floor, options)?,
        Depth::Floor(share) => {
            let floor = Floor::Fraction(share);
            let mut contender = Contender::new(ladder, ceiling, floor, options)?;
            // The published order has a floor of its own.
            contender.terms.commit.floor = floor;
            contender
        }
        Depth::Ceiling(share) => {
            Contender::new(ladder, part(ceiling, share), options.floor, options)?
        }
    })
}

fn truncation(lab: &Lab, depth: Depth) -> Truncation {
    let ceiling = ceiling(lab);
    let floor = match (depth, lab.options.floor) {
        (Depth::Floor(share), _) | (Depth::Own | Depth::Ceiling(_), Floor::Fraction(share)) => {
            share
        }
        (Depth::Own | Depth::Ceiling(_), Floor::Auto) => commit::AUTO_DEFAULT,
        (Depth::Own | Depth::Ceiling(_), Floor::Ceiling) => 1.0,
    };
    Truncation::new(u64::from(ceiling), u64::from(part(ceiling, floor)))
}

/// The one ceiling of a lab that writes views.
#[must_use]
pub fn ceiling(lab: &Lab) -> u32 {
    lab.options.ceilings.first().copied().unwrap_or_default()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares are between 0 and 2, and budgets far below 2^31"
)]
fn part(ceiling: u32, share: f64) -> u32 {
    (f64::from(ceiling) * share) as u32
}

/// What a player sent last, with the summary that its policy has a model write.
fn sent(lab: &Lab, player: &Player<'_>, history: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = player.sent.messages().map(<[u8]>::to_vec).collect();
    let contender = player.contender;
    let most = u64::from(summary(&contender.ladder, contender.ceiling));
    if most == 0 || player.passes.is_empty() {
        return messages;
    }
    let shown: HashSet<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let gone = history.iter().copied().filter(|one| !shown.contains(one));
    let same = |(own, other): &(&Vec<u8>, &&[u8])| own.as_slice() == **other;
    let kept = messages.iter().zip(history).take_while(same).count();
    let summary = standin::summary(gone, most, &|text| text_tokens(lab, text));
    messages.insert(kept, summary);
    messages
}

/// Tokens of a text as a message.
#[must_use]
pub fn text_tokens(lab: &Lab, text: &str) -> u64 {
    let message = json!({"role": "user", "content": text}).to_string();
    tokens(lab, &[message.into_bytes()])
}

/// Tokens of some messages.
#[must_use]
pub fn tokens(lab: &Lab, messages: &[Vec<u8>]) -> u64 {
    let reader = drive::reader(lab);
    let shapes = messages.iter().filter_map(|one| reader.shape(one).ok());
    shapes.map(|shape| u64::from(shape.tokens())).sum()
}
