//! Agents that write their calls as text and send results as user messages: by which of these a
//! message is a result. Nothing is one unless the operator or the request chose a profile, or all that
//! is fixed of an agent stands where that agent puts it. Never edits a message.

use std::sync::{Arc, LazyLock};

use memchr::memmem;
use regex::Regex;

use crate::dialect::request::Request;
use crate::model::raw::Object;
use crate::model::{Role, Shape, label_set};

/// Bytes that stay of what a pattern matched, in front of what stands for the rest.
const FRONT: usize = 200;

label_set!(
    /// Agents whose results are known by how they begin.
    TextProfile {
        /// <https://github.com/huggingface/smolagents/blob/main/src/smolagents/memory.py>
        Smolagents => "smolagents",
        /// Before version 2: <https://github.com/SWE-agent/mini-swe-agent>
        MiniSweAgent => "mini-swe-agent",
        /// Those of modules that hand on each observation as a message of its own.
        Dspy => "dspy",
    }
);

impl TextProfile {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        (Self::Smolagents.name(), Self::Smolagents),
        (Self::MiniSweAgent.name(), Self::MiniSweAgent),
        (Self::Dspy.name(), Self::Dspy),
    ];

    /// The profile of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words.find(|(word, _)| *word == name).map(|(_, one)| *one)
    }

    /// How its results begin.
    const fn patterns(self) -> &'static [&'static str] {
        match self {
            Self::Smolagents => &[r"^Observation:", r"^(?:Call id: [^\n]{0,80}\n)?Error:\n"],
            Self::MiniSweAgent => &[
                r"^<returncode>-?\d+</returncode>",
                r"^Observation:",
                r"^The last command <command>",
                r"^Please always provide EXACTLY ONE action in triple backticks",
            ],
            Self::Dspy => &[r"^\[\[ ## observation(?:_\d+)? ## \]\]"],
        }
    }

    /// What of its system message no other program has.
    const fn sentence(self) -> Option<&'static str> {
        match self {
            Self::Smolagents => Some(
                "You are an expert assistant who can solve any task using code blobs. You will be given a task to solve as best you can.",
            ),
            Self::MiniSweAgent => Some(
                "Your response must contain exactly ONE bash code block with ONE command (or commands connected with && or ||).",
            ),
            Self::Dspy => None,
        }
    }

    /// Its patterns, compiled once.
    fn compiled(self) -> &'static [Regex] {
        static ALL: LazyLock<Vec<Vec<Regex>>> = LazyLock::new(|| {
            let one = |profile: TextProfile| {
                let patterns = profile.patterns().iter();
                patterns
                    .filter_map(|pattern| Regex::new(pattern).ok())
                    .collect()
            };
            TextProfile::ALL.into_iter().map(one).collect()
        });
        ALL.get(self as usize).map_or(&[], Vec::as_slice)
    }
}

/// By what a user message is a result, as the operator has it.
#[derive(Clone, Debug, Default)]
pub struct TextResults {
    /// How results begin, beside what a profile says.
    pub patterns: Vec<Regex>,
    /// The profile of requests that name none.
    pub profile: Option<TextProfile>,
}

impl PartialEq for TextResults {
    fn eq(&self, other: &Self) -> bool {
        let texts =
            |one: &Self| -> Vec<String> { one.patterns.iter().map(ToString::to_string).collect() };
        self.profile == other.profile && texts(self) == texts(other)
    }
}

/// Reads a pattern that holds at the start of a message.
///
/// # Errors
/// What is wrong with it.
pub fn pattern(text: &str) -> Result<Regex, String> {
    let read = Regex::new(text).map_err(|error| format!("{text:?} is no pattern: {error}"))?;
    match (text.starts_with('^'), read.is_match("")) {
        (true, false) => Ok(read),
        (false, _) => Err(format!(
            "{text:?} must begin with ^: a result is known by how it begins"
        )),
        (true, true) => Err(format!("{text:?} would make a result of every message")),
    }
}

/// What the results of one request begin with, by the index of their messages.
pub type Fronts = Vec<Option<Arc<str>>>;

impl TextResults {
    /// The messages of a request that are results. None is that no answer stands directly before, so
    /// what the user asked for at first never is.
    #[must_use]
    pub fn find(
        &self,
        asked: Option<TextProfile>,
        request: &Request,
        shapes: &[Arc<Shape>],
    ) -> Fronts {
        let chosen = asked.or(self.profile);
        let profile = chosen.or_else(|| recognised(request, shapes));
        if profile.is_none() && self.patterns.is_empty() {
            return Vec::new();
        }
        let known = profile.map_or(&[][..], TextProfile::compiled);
        let patterns: Vec<&Regex> = self.patterns.iter().chain(known).collect();
        let at = |(index, _)| front(&patterns, request, shapes, index);
        shapes.iter().enumerate().map(at).collect()
    }
}

/// The agent whose own sentence stands in the system message, and whose first message behind an answer
/// begins as its results do.
fn recognised(request: &Request, shapes: &[Arc<Shape>]) -> Option<TextProfile> {
    let first = shapes.iter().position(|one| one.role == Role::Assistant)? + 1;
    let system = shapes.iter().take_while(|one| one.role == Role::System);
    let system = system.count();
    let says = |sentence: &str| {
        let finder = memmem::Finder::new(sentence);
        (0..system).any(|at| finder.find(request.message(at)).is_some())
    };
    TextProfile::ALL.into_iter().find(|profile| {
        let patterns: Vec<&Regex> = profile.compiled().iter().collect();
        profile.sentence().is_some_and(says) && front(&patterns, request, shapes, first).is_some()
    })
}

/// What a user's message behind an answer begins with, where it is a result.
fn front(
    patterns: &[&Regex],
    request: &Request,
    shapes: &[Arc<Shape>],
    at: usize,
) -> Option<Arc<str>> {
    let role = |at: usize| shapes.get(at).map(|one| one.role);
    let spoken = at.checked_sub(1).and_then(role) == Some(Role::Assistant);
    if role(at) != Some(Role::User) || !spoken {
        return None;
    }
    // One that is a part of a message has no content of its own that could be replaced.
    let bytes = request.message(at);
    Object::parse(bytes).ok()?.present("content")?;
    let text = request.dialect.text(bytes)?;
    let found = patterns.iter().filter_map(|one| one.find(&text));
    let found = found.into_iter().find(|found| found.start() == 0)?;
    let front = found.as_str().trim_end();
    let end = front.floor_char_boundary(FRONT);
    Some(Arc::from(front.get(..end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_of_ours_is_one() {
        for profile in TextProfile::ALL {
            assert_eq!(profile.compiled().len(), profile.patterns().len());
            for one in profile.patterns() {
                pattern(one).unwrap();
            }
        }
        for bad in ["Observation:", "^", "^(", "^.*"] {
            assert!(pattern(bad).is_err(), "{bad}");
        }
    }
}
