//! A provider that binds each thought to everything before it. Knows what every thought was made behind, and
//! refuses a request that has one elsewhere. Shares no code with the proxy.
//!
//! The rule is that of `platform.claude.com/docs/en/build-with-claude/preserved-thinking`: a thought is valid
//! behind the very tools, system text and messages that were before it, thoughts left out; and of the thoughts
//! that followed one from the other, the first and the last may be missing, and none between.

use std::collections::{HashMap, HashSet};

use plimsoll_wire::answer::{Answer, Reasoning};
use serde_json::Value;

/// A thought by its text.
type Thought = String;

/// What it remembers.
#[derive(Clone, Debug, Default)]
pub struct Binder {
    /// The newest request: what stands before its answer, and its newest thought.
    newest: (String, Option<Thought>),
    /// What each thought was made behind, and the thought before it.
    made: HashMap<Thought, (String, Option<Thought>)>,
    /// The thoughts of the newest request.
    shown: Vec<Thought>,
    /// What stands in its front, and its messages without thoughts.
    said: (String, Vec<String>),
    /// Thoughts that a request had once, and a later one had not.
    left: HashSet<Thought>,
    /// How many requests had thoughts.
    pub thoughtful: usize,
}

impl Binder {
    /// Judges a request. `goes_on` says that neither a pass nor an edit of the client's is between it and the one
    /// before it.
    #[track_caller]
    pub fn judge(&mut self, body: &[u8], goes_on: bool) {
        let body: Value = serde_json::from_slice(body).unwrap();
        let mut prefix = format!("{}|{}", body["tools"], body["system"]);
        let mut said = (prefix.clone(), Vec::new());
        let mut shown: Vec<Thought> = Vec::new();
        for message in body["messages"].as_array().unwrap() {
            let (rest, thoughts) = apart(message);
            for thought in thoughts {
                let (place, before) = &self.made[&thought];
                assert_eq!(
                    *place, prefix,
                    "{thought} is not behind what it was made behind"
                );
                if let Some(last) = shown.last() {
                    assert_eq!(
                        before.as_ref(),
                        Some(last),
                        "before {thought} one is missing"
                    );
                }
                assert!(!self.left.contains(&thought), "{thought} is back");
                shown.push(thought);
            }
            prefix.push_str(&rest.to_string());
            said.1.push(rest.to_string());
        }
        // Without thoughts nothing is lost by a change.
        if goes_on && !self.shown.is_empty() && !shown.is_empty() {
            assert_eq!(self.said.0, said.0, "the front changed without a pass");
            let before = self.said.1.as_slice();
            assert_eq!(
                said.1.get(..before.len()),
                Some(before),
                "a message changed without a pass"
            );
        }
        self.said = said;
        let left = self.shown.iter().filter(|thought| !shown.contains(thought));
        self.left.extend(left.cloned());
        self.thoughtful += usize::from(!shown.is_empty());
        self.newest = (prefix, shown.last().cloned());
        self.shown = shown;
    }

    /// Notes what the model thought in its answer to the newest request.
    pub fn answered(&mut self, answer: &Answer) {
        for (_, reasoning) in &answer.reasoning {
            if let Reasoning::Text(text) = reasoning {
                self.made.insert(text.clone(), self.newest.clone());
                self.newest.1 = Some(text.clone());
            }
        }
    }

    /// The thoughts of the newest request.
    pub fn shown(&self) -> &[Thought] {
        &self.shown
    }
}

/// A message without its thoughts, and these.
fn apart(message: &Value) -> (Value, Vec<Thought>) {
    let mut rest = message.clone();
    let mut thoughts = Vec::new();
    let mut take = |text: &Value| thoughts.extend(text.as_str().map(str::to_owned));
    if let Some(text) = rest.as_object_mut().unwrap().remove("reasoning_content") {
        take(&text);
    }
    if let Some(blocks) = rest["content"].as_array_mut() {
        blocks.retain(|block| {
            if block["type"] == "thinking" {
                let sealed = block["thinking"] == "";
                take(&block[if sealed { "signature" } else { "thinking" }]);
            }
            block["type"] != "thinking"
        });
        // Where a breakpoint stands makes no difference.
        for block in blocks {
            block.as_object_mut().unwrap().remove("cache_control");
        }
    }
    (rest, thoughts)
}
