//! The stream of a turn whose client reads the answer as one text, because it asked for JSON: two pieces of JSON in a
//! row are none. Keeps what the upstream sends until the turn has ended, and says which hops the client is then shown.
//! It never reads a frame.

use bytes::{Bytes, BytesMut};
use plimsoll_model::Usage;
use plimsoll_model::room::Room;

use super::answer::Answer;
use super::stream::{Machine, MachineSettings, Spec};

/// The first of a turn's hops that such a client is shown: the last one that says something. Those behind it, which
/// say nothing, are shown too, for their calls and for how the answer ends.
#[must_use]
pub fn first_shown(answers: &[Answer]) -> usize {
    answers.iter().rposition(says).unwrap_or(0)
}

/// Whether an answer says what the client reads as its text.
fn says(answer: &Answer) -> bool {
    // What said more than is kept has said something.
    let said = !answer.text.trim().is_empty() || !answer.refusal.is_empty();
    said || answer.audio.is_some() || answer.forgotten
}

/// What the upstream sent of the hops that may be shown.
#[derive(Debug)]
pub struct OneText {
    settings: MachineSettings,
    spec: Spec,
    hops: Vec<Hop>,
    /// Usage of the hops that are not shown.
    skipped: Vec<Usage>,
}

#[derive(Debug, Default)]
struct Hop {
    /// What came of its body, copied: a read is a slice of a buffer that may be many times as long.
    body: BytesMut,
    /// Whether its body has ended.
    ended: bool,
    usage: Option<Usage>,
}

impl OneText {
    /// At the start of a turn's first hop. `None` if the turn's hops are shown as they come.
    pub fn new(settings: &MachineSettings, spec: &Spec) -> Option<Box<Self>> {
        let kept = || Self {
            settings: MachineSettings {
                // What is kept has its room already.
                room: Room::default(),
                ..settings.clone()
            },
            spec: Spec {
                one_text: false,
                ..spec.clone()
            },
            hops: vec![Hop::default()],
            skipped: Vec::new(),
        };
        spec.one_text.then(|| Box::new(kept()))
    }

    /// How many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.hops.iter().map(|hop| hop.body.len()).sum()
    }

    /// Keeps one read of the upstream's body.
    pub fn keep(&mut self, read: &Bytes) {
        if let Some(hop) = self.hops.last_mut() {
            hop.body.extend_from_slice(read);
        }
    }

    /// The body of the hop in hand has ended.
    pub fn end_hop(&mut self, answer: &Answer) {
        let Some(mut hop) = self.hops.pop() else {
            return;
        };
        // The hops before one that says something are not shown, but were paid for.
        if says(answer) {
            let usage = self.hops.drain(..).filter_map(|hop| hop.usage);
            self.skipped.extend(usage);
        }
        hop.ended = true;
        hop.usage = answer.usage;
        self.hops.push(hop);
    }

    /// Another hop follows.
    pub fn next_hop(&mut self) {
        self.hops.push(Hop::default());
    }

    /// A machine that has heard the hops that are shown, and has handed them to the client but for the end.
    pub fn told(self, out: &mut Vec<Bytes>) -> Machine {
        let mut machine = self.silent();
        for (number, hop) in self.hops.into_iter().enumerate() {
            if number > 0 {
                machine.next_hop(out);
            }
            // It was read before, so it can be read.
            let _ = machine.push(hop.body.freeze(), out);
            if hop.ended {
                machine.end_hop(out);
            }
        }
        machine
    }

    /// A machine that has told the client nothing.
    pub fn silent(&self) -> Machine {
        let mut machine = Machine::new(self.settings.clone(), &self.spec);
        machine.count(&self.skipped);
        machine
    }
}
