//! The recorded session that the demo plays, and what its scripted model answers. Owns the bundled
//! recording and the place in it. Never measures anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use plimsoll_scripted::plan::Hop;
use plimsoll_scripted::size::CountFn;
use plimsoll_scripted::trace::{Answer, Recording};
use plimsoll_scripted::{Call, Reply, RequestView, Script, Session as Played, Style};

/// One recorded coding session. Its source and its licence stand beside it.
static BUNDLED: &[u8] = include_bytes!("../../../assets/demo/session.jsonl.zst");

/// Where the session comes from, for the headline.
pub const SOURCE: &str = "a coding session recorded in github.com/entireio/cli";

/// Decides where the scripted model annotates. Any value works, and a fixed one makes all runs
/// equal.
const SEED: u64 = 1;

/// How many bytes of text or arguments are streamed at a time. That is a few tokens, as providers
/// send them.
const PIECE: usize = 48;

/// A session with the model's annotations.
pub struct Session {
    /// What was recorded.
    pub recording: Recording,
    /// The answers of a model that marks its work once it is asked to.
    played: Arc<Played>,
}

impl Session {
    /// Unpacks the bundled session.
    ///
    /// # Errors
    /// If the bundled bytes are damaged, which means that the build is broken.
    pub fn bundled() -> anyhow::Result<Self> {
        let text = zstd::decode_all(BUNDLED).context("can't unpack the bundled session")?;
        let text = String::from_utf8(text).context("the bundled session is no text")?;
        let recording = Recording::parse(&text).context("can't read the bundled session")?;
        let played = Played::waiting(recording.clone(), SEED);
        Ok(Self { recording, played })
    }

    /// What the agent must have seen of a turn that was played.
    #[must_use]
    pub fn visible(&self, turn: usize) -> Answer {
        self.played.plan().visible(turn, true)
    }

    /// How many upstream requests a turn took.
    #[must_use]
    pub fn hops(&self, turn: usize) -> usize {
        self.played.plan().hops(turn).len()
    }

    /// How many episodes the model opened in the first turns.
    #[must_use]
    pub fn episodes(&self, turns: usize) -> usize {
        let plan = self.played.plan();
        let opened = plan.episodes.iter();
        opened.filter(|episode| episode.start.0 < turns).count()
    }

    /// Answers each request with the next hop of the turn at which the cue is.
    pub fn script(self: &Arc<Self>, cue: &Arc<Cue>, count: &CountFn) -> Script {
        let (session, cue, count) = (Arc::clone(self), Arc::clone(cue), Arc::clone(count));
        Script::ask(move |request| {
            let turn = cue.turn.load(Ordering::Acquire);
            if request.asks(plimsoll_scripted::plan::TOOL) {
                session.played.asked(turn);
            }
            let plan = session.played.plan();
            let number = cue.hop.fetch_add(1, Ordering::AcqRel);
            let reply = reply(plan.hops(turn), number, request);
            cue.output
                .fetch_add(output(&reply, &count), Ordering::AcqRel);
            reply
        })
    }
}

/// The answer to a request. A model that is not asked to annotate says what was recorded, which is
/// the turn's last hop without annotations.
fn reply(hops: &[Hop], number: usize, request: &RequestView<'_>) -> Reply {
    let annotates = request.asks(plimsoll_scripted::plan::TOOL);
    let asked = hops.get(number).filter(|_| annotates);
    let Some(hop) = asked.or(hops.last()) else {
        return Reply::text("the session is over");
    };
    Reply {
        text: hop.text.clone(),
        reasoning: hop.reasoning.clone(),
        calls: if annotates { hop.all() } else { hop.visible() },
        style: Style {
            text: PIECE,
            arguments: Some(PIECE),
            ..Style::default()
        },
        ..Reply::default()
    }
}

/// The output tokens of a reply, as the provider bills them.
fn output(reply: &Reply, count: &CountFn) -> usize {
    count(&reply.text) + count(&reply.reasoning) + call_tokens(&reply.calls, count)
}

/// The output tokens of a recorded answer without anything added to it.
pub fn recorded_output(answer: &Answer, count: &CountFn) -> usize {
    count(&answer.text) + count(&answer.reasoning) + call_tokens(&answer.calls, count)
}

fn call_tokens(calls: &[Call], count: &CountFn) -> usize {
    let sizes = calls
        .iter()
        .map(|call| count(&call.name) + count(&call.arguments));
    sizes.sum()
}

/// Where the session is. The agent plays one turn at a time, so this is all that the provider needs
/// to find the right answer.
#[derive(Debug, Default)]
pub struct Cue {
    turn: AtomicUsize,
    hop: AtomicUsize,
    output: AtomicUsize,
}

impl Cue {
    /// Begins a turn.
    pub fn begin(&self, turn: usize) {
        self.turn.store(turn, Ordering::Release);
        self.hop.store(0, Ordering::Release);
        self.output.store(0, Ordering::Release);
    }

    /// How many output tokens the provider has sent since the turn began.
    #[must_use]
    pub fn output(&self) -> usize {
        self.output.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_session_is_long_enough_and_annotated() {
        let session = Session::bundled().unwrap();
        let turns = session.recording.turns.len();
        assert!(turns > 100, "{turns}");
        assert_eq!(session.hops(0), 1, "nobody asked yet");
        session.played.asked(0);
        assert!(session.episodes(turns) > 20);
        let hops: usize = (0..turns).map(|turn| session.hops(turn)).sum();
        assert!(hops > turns, "some annotations stand alone");
    }
}
