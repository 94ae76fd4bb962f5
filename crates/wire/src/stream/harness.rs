//! Plays turns through a stream's machine as a driver does, with their bytes cut into reads in any
//! way, and holds goldens. For the tests of every dialect; never knows what a stream says.

use std::fmt::Write as _;

use bytes::Bytes;
use plimsoll_model::raw;
use proptest::prelude::*;

use super::unary::TurnEnd;
use super::{Machine, MachineSettings, Spec, StreamError};
use crate::answer::{Answer, Verdict};

/// What is said where a turn ends at the hop cap with nothing else said.
pub(crate) const LINE: &str = "the model only annotated";

/// A turn to be played: its hops, and how they are to be read.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) name: &'a str,
    pub(crate) config: &'a MachineSettings,
    pub(crate) spec: &'a Spec,
    pub(crate) hops: &'a [Bytes],
}

/// What came of a turn: the client's bytes and each hop's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) client: Vec<u8>,
    pub(crate) answers: Vec<Answer>,
    /// Whether the machine met what it must not hand on, and so the client got no more.
    pub(crate) withheld: bool,
}

/// How a turn ended: at the hop cap, with this line, if it was closed there.
pub(crate) fn end_of(closed: Option<Option<&str>>) -> TurnEnd<'_> {
    closed.map_or(TurnEnd::Upstream, |line| TurnEnd::HopCap { line })
}

/// The line that a turn ends with at the hop cap, where nothing was said.
pub(crate) fn line(answers: &[Answer]) -> Option<&'static str> {
    let mute = answers.iter().all(|answer| answer.text.is_empty());
    mute.then_some(LINE)
}

impl Turn<'_> {
    /// Plays the hops as they are.
    pub(crate) fn play(&self) -> Seen {
        self.play_in(|_, hop| vec![hop.clone()])
    }

    /// Plays the hops; `pieces` cuts each hop's bytes into reads.
    pub(crate) fn play_in(&self, pieces: impl Fn(usize, &Bytes) -> Vec<Bytes>) -> Seen {
        let name = self.name;
        let mut machine = Machine::new(self.config.clone(), self.spec);
        let mut out = Vec::new();
        let mut answers: Vec<Answer> = Vec::new();
        for (number, hop) in self.hops.iter().enumerate() {
            for piece in pieces(number, hop) {
                let (held, before) = (machine.format.finish_seen(), out.len());
                let pushed = machine.push(piece, &mut out);
                let late = held && out.len() != before;
                assert!(!late, "{name}: said something after the end");
                assert_eq!(machine.spoken(), !out.is_empty(), "{name}");
                if pushed == Err(StreamError::Withheld) {
                    break;
                }
                pushed.unwrap();
            }
            let said = machine.said();
            let answer = machine.end_hop(&mut out);
            if machine.withheld() {
                break;
            }
            if let (Some(said), true) = (said, answer.error.is_none()) {
                assert_eq!(said.blocks, answer.blocks, "{name}: said early");
            }
            let verdict = answer.verdict();
            let told = answer.error.is_some();
            answers.push(answer);
            match verdict {
                Verdict::HiddenOnly if number + 1 < self.hops.len() => {
                    machine.next_hop(&mut out);
                    continue;
                }
                Verdict::HiddenOnly => machine.close(line(&answers), &mut out),
                Verdict::Done | Verdict::Mixed | Verdict::Cut => machine.release(&mut out),
                Verdict::Broken if told => machine.release(&mut out),
                Verdict::Broken => machine.fail(br#"{"message":"upstream cut"}"#, &mut out),
            }
            break;
        }
        Seen {
            client: out.concat(),
            answers,
            withheld: machine.withheld(),
        }
    }

    /// Plays the turn with one of its hops cut at these places, in order.
    pub(crate) fn play_cut(&self, hop: usize, places: &[usize]) -> Seen {
        self.play_in(|number, bytes| {
            if number != hop {
                return vec![bytes.clone()];
            }
            let mut edges = vec![0];
            edges.extend(places);
            edges.push(bytes.len());
            // Copies, because a real read shares no memory with the next one.
            let pairs = edges.windows(2);
            pairs
                .map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]))
                .collect()
        })
    }

    /// Reading byte by byte changes nothing.
    pub(crate) fn holds_byte_by_byte(&self) {
        let bytes = |_: usize, hop: &Bytes| hop.chunks(1).map(Bytes::copy_from_slice).collect();
        assert_eq!(self.play_in(bytes), self.play(), "{}", self.name);
    }

    /// One cut at any of these places of each hop changes nothing. `places` gives them by the
    /// hop's length.
    pub(crate) fn holds_cut<I>(&self, places: impl Fn(usize) -> I)
    where
        I: Iterator<Item = usize>,
    {
        let (name, want) = (self.name, self.play());
        for (number, hop) in self.hops.iter().enumerate() {
            for at in places(hop.len()) {
                let seen = self.play_cut(number, &[at]);
                assert_eq!(seen, want, "{name}: hop {number} at {at}");
            }
        }
    }

    /// Two cuts at any two of these places of each hop change nothing.
    pub(crate) fn holds_cut_twice<I>(&self, places: impl Fn(usize) -> I)
    where
        I: Iterator<Item = usize>,
    {
        let (name, want) = (self.name, self.play());
        for (number, hop) in self.hops.iter().enumerate() {
            for first in places(hop.len()) {
                for second in places(hop.len()).filter(|second| *second >= first) {
                    let seen = self.play_cut(number, &[first, second]);
                    assert_eq!(seen, want, "{name}: hop {number} at {first}, {second}");
                }
            }
        }
    }
}

/// All places of short streams; of longer ones a grid that still meets each frame several times.
/// The strides are odd, so that the grid drifts over the frames.
pub(crate) fn grid(length: usize, parts: usize) -> impl Iterator<Item = usize> {
    let stride = if length <= 200 {
        1
    } else {
        (length / parts) | 1
    };
    (0..=length).step_by(stride)
}

/// The lines of what a client got that say something, for a golden.
pub(crate) fn lines(client: &[u8]) -> String {
    let text = String::from_utf8_lossy(client);
    let mut lines = String::new();
    for line in text
        .split_inclusive('\n')
        .filter(|line| !line.trim().is_empty())
    {
        write!(lines, "{}", line.replace('\r', "\\r")).unwrap();
    }
    lines
}

/// Holds a golden. On a difference the whole new text is printed, to be read and put in the file's
/// place.
pub(crate) fn golden(seen: &str, want: &str) {
    if seen != want {
        println!("<<<<\n{seen}>>>>");
    }
    assert!(
        seen == want,
        "goldens differ; the new text is printed above"
    );
}

/// Texts of what is hard to quote, to cut, or to tell from a hidden name.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a",
        "\n",
        "\"",
        "\\",
        "é",
        "😀",
        "delimiter",
        " b",
        "\u{1}",
        "}",
    ]);
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

/// The arguments of a call, as text.
pub(crate) fn arguments() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("{{\"a\":{}}}", raw::quote(&text)))
}

/// A text in pieces of at most so many characters.
pub(crate) fn pieces(text: &str, size: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let pieces = chars.chunks(size);
    pieces.map(|piece| piece.iter().collect()).collect()
}

/// One thing that a random hop says. A format's writer writes those that the format has.
#[derive(Debug, Clone)]
pub(crate) enum Saying {
    Text(String),
    Reasoning(String),
    /// Reasoning that only the provider can read.
    Sealed,
    Comment,
    Ping,
    /// An event of a type that nobody knows.
    Unknown,
    Call {
        name: &'static str,
        arguments: String,
    },
}

impl Saying {
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(
            self,
            Self::Call {
                name: "delimiter" | "recall",
                ..
            }
        )
    }

    pub(crate) fn is_visible_call(&self) -> bool {
        matches!(self, Self::Call { .. }) && !self.is_hidden()
    }
}

fn call(names: Vec<&'static str>) -> impl Strategy<Value = Saying> {
    (prop::sample::select(names), arguments())
        .prop_map(|(name, arguments)| Saying::Call { name, arguments })
}

/// Hops of hidden calls, then a last hop of anything, each in some style. `quiet` is what a hop
/// says besides calls.
pub(crate) fn hops<S: std::fmt::Debug + Clone>(
    style: BoxedStrategy<S>,
    quiet: BoxedStrategy<Saying>,
) -> impl Strategy<Value = Vec<(S, Vec<Saying>)>> {
    let hidden = || call(vec!["delimiter", "recall"]);
    let visible = call(vec!["read", "del", "recal", "delimiters", "x"]);
    let early = prop::collection::vec(prop_oneof![quiet.clone(), hidden()], 0..5);
    let early = (early, hidden()).prop_map(|(mut said, last)| {
        said.push(last);
        said
    });
    let last = prop::collection::vec(prop_oneof![3 => quiet, 1 => hidden(), 2 => visible], 0..7);
    let early = prop::collection::vec((style.clone(), early), 0..3);
    (early, (style, last)).prop_map(|(mut hops, last)| {
        hops.push(last);
        hops
    })
}

/// A hop in reads that are cut at these places.
pub(crate) fn cut_at(cuts: &[prop::sample::Index], hop: &Bytes) -> Vec<Bytes> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(hop.len() + 1)).collect();
    places.extend([0, hop.len()]);
    places.sort_unstable();
    let pairs = places.windows(2);
    pairs
        .map(|pair| Bytes::copy_from_slice(&hop[pair[0]..pair[1]]))
        .collect()
}
