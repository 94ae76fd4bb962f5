//! The figures of a run, and the table that they make. Owns the arithmetic; never measures.

use crate::probe::Round;

/// One turn of the long conversation.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    /// Requests that the provider received for it.
    pub requests: usize,
    /// Their sizes in tokens, together.
    pub tokens: u64,
    /// The largest of them.
    pub peak: usize,
    /// Tokens of them that the provider's ideal prefix cache held.
    pub cached: u64,
    /// Requests that did not extend the one before.
    pub breaks: usize,
    /// The client's body in bytes.
    pub body: usize,
    /// What the proxy says that it took before the first byte, in milliseconds.
    pub overhead: f64,
    /// Resident memory of the proxy after it, in KiB.
    pub resident: u64,
}

/// A checkpoint: the turn before which probes were sent, and what they took.
pub struct Checkpoint {
    /// The turn, from 0.
    pub turn: usize,
    /// The probes.
    pub rounds: Vec<Round>,
}

/// What a run came to.
#[derive(Default)]
pub struct Report {
    /// The turns in order.
    pub turns: Vec<Sample>,
    /// The checkpoints in order.
    pub checkpoints: Vec<Checkpoint>,
}

const MIB: f64 = 1024.0;

impl Report {
    /// The tokens of all requests.
    pub fn tokens(&self) -> u64 {
        self.turns.iter().map(|turn| turn.tokens).sum()
    }

    /// The largest request.
    pub fn peak(&self) -> usize {
        self.turns.iter().map(|turn| turn.peak).max().unwrap_or(0)
    }

    /// All requests of the conversation that reached the provider.
    pub fn requests(&self) -> usize {
        self.turns.iter().map(|turn| turn.requests).sum()
    }

    /// The share of the tokens that an ideal prefix cache held.
    pub fn cached_share(&self) -> f64 {
        let cached: u64 = self.turns.iter().map(|turn| turn.cached).sum();
        cached as f64 / self.tokens().max(1) as f64
    }

    /// Requests that did not extend the one before.
    pub fn breaks(&self) -> usize {
        self.turns.iter().map(|turn| turn.breaks).sum()
    }

    /// Turns of each tenth of the run: from, to.
    fn tenths(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let turns = self.turns.len();
        (0..10).map(move |tenth| (turns * tenth / 10, turns * (tenth + 1) / 10))
    }

    fn rounds(&self, from: usize, to: usize) -> Vec<Round> {
        let within = |at: &&Checkpoint| (from..to).contains(&at.turn);
        let checkpoints = self.checkpoints.iter().filter(within);
        checkpoints
            .flat_map(|at| at.rounds.iter().copied())
            .collect()
    }

    /// The medians of what was added to the probes between two turns, in milliseconds: by the
    /// proxy of the long session, and by the one that serves probes only.
    fn probes(&self, from: usize, to: usize) -> (f64, f64) {
        let rounds = self.rounds(from, to);
        let of = |pick: fn(&Round) -> f64| median(rounds.iter().map(pick).collect());
        (of(Round::added), of(Round::control_added))
    }

    /// The table of tenths, in Markdown.
    pub fn table(&self) -> String {
        let mut out = String::from(
            "| tenth | turns | requests | M tokens | largest | body MiB | resident MiB | probe ms | control ms | overhead ms | per MiB of body |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for (tenth, (from, to)) in self.tenths().enumerate() {
            let Some(turns) = self.turns.get(from..to).filter(|turns| !turns.is_empty()) else {
                continue;
            };
            let of = |pick: fn(&Sample) -> f64| median(turns.iter().map(pick).collect());
            let requests: usize = turns.iter().map(|turn| turn.requests).sum();
            let tokens: u64 = turns.iter().map(|turn| turn.tokens).sum();
            let peak = turns.iter().map(|turn| turn.peak).max().unwrap_or(0);
            let body = of(|turn| turn.body as f64) / MIB / MIB;
            let overhead = of(|turn| turn.overhead);
            let (added, control) = self.probes(from, to);
            out.push_str(&format!(
                "| {} | {} | {requests} | {:.1} | {peak} | {body:.2} | {:.0} | {added:.2} | {control:.2} | {overhead:.2} | {:.2} |\n",
                tenth + 1,
                turns.len(),
                tokens as f64 / 1e6,
                of(|turn| turn.resident as f64) / MIB,
                overhead / body,
            ));
        }
        out
    }

    /// What was added to the probes in the last tenth against the first: by the proxy of the long
    /// session, and by the one that serves probes only.
    pub fn probe_ratios(&self) -> (f64, f64) {
        let turns = self.turns.len();
        let first = self.probes(0, turns / 10);
        let last = self.probes(turns * 9 / 10, turns);
        (last.0 / first.0, last.1 / first.1)
    }

    /// Resident memory from a share of the turns on: the least and the most in MiB, and the slope of
    /// a straight line through it in MiB per 1,000 turns.
    pub fn memory(&self, from: f64) -> (f64, f64, f64) {
        let first = (self.turns.len() as f64 * from) as usize;
        let later = self.turns.get(first..).unwrap_or_default();
        let points: Vec<(f64, f64)> = later
            .iter()
            .enumerate()
            .map(|(at, turn)| (at as f64, turn.resident as f64 / MIB))
            .collect();
        let least = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        (least, most, slope(&points) * 1e3)
    }
}

fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len().max(1) as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let (x, y) = (x / count, y / count);
    let (above, below) = points.iter().fold((0.0, 0.0), |sum, point| {
        let from = point.0 - x;
        (sum.0 + from * (point.1 - y), sum.1 + from * from)
    });
    if below > 0.0 { above / below } else { 0.0 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
