//! Finds results that agents send as user messages, because they write their calls as text. A
//! message is one if it begins as the operator, or the profile that was chosen, says. In an agent that
//! nobody named, the answer before it must hold a call as that agent writes it, and all fixed parts of
//! the message must be where that agent puts them; else it is the user's. Never edits a message.

use std::hash::{Hash, Hasher as _};
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use plimsoll_model::raw::Object;
use plimsoll_model::{Role, Shape, label_set};
use plimsoll_wire::request::Request;
use regex::Regex;
use twox_hash::XxHash3_64;

use super::memo::{Front, Reader};

/// Bytes of a pattern's match that stay in view, before the text that replaces the rest.
const FRONT: usize = 200;

label_set!(
    /// Agents whose results are recognised by how they begin.
    TextProfile {
        /// <https://github.com/huggingface/smolagents/blob/main/src/smolagents/memory.py>
        Smolagents => "smolagents",
        /// Before version 2: <https://github.com/SWE-agent/mini-swe-agent>
        MiniSweAgent => "mini-swe-agent",
        /// DSPy modules that send each observation as a message of its own.
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

    /// How an answer looks that holds a call, and the whole forms of results, if it is known by its sentence.
    /// In each form of smolagents' the code agent's, because the sentence is that agent's.
    const fn syntax(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Smolagents => Some((
                r"<code>|```(?:python|py)\s|Calling tools:\n\[\{",
                &[
                    r"(?s)\AObservation:\nExecution logs:\n.*Last output from code snippet:\n",
                    r"(?s)\AObservation:\nExecution logs:\n.*\nError:\n.*\nNow let's retry: [^\n]*\s*\z",
                    r"(?s)\A(?:Call id: [^\n]{0,80}\n)?Error:\n.*\nNow let's retry: [^\n]*\s*\z",
                ],
            )),
            Self::MiniSweAgent => Some((
                r"(?s)```(?:bash|mswea_bash_command)\s*\n.*?\n```",
                &[
                    r"(?s)\A<returncode>-?\d+</returncode>\s*<(?:output|warning|output_head)>.*</(?:output|output_tail|warning)>\s*\z",
                    r"(?s)\AObservation: \{'(?:output|returncode)': .*\}\s*\z",
                    r"(?s)\AThe last command <command>.*</command> timed out and has been killed\..*interactive input\.\s*\z",
                    r"\APlease always provide EXACTLY ONE action in triple backticks, found \d+ actions\.",
                ],
            )),
            Self::Dspy => None,
        }
    }

    /// Its syntax, compiled once.
    fn compiled_syntax(self) -> Option<&'static Syntax> {
        static ALL: LazyLock<Vec<Option<Syntax>>> = LazyLock::new(|| {
            let one = |profile: TextProfile| {
                let (call, results) = profile.syntax()?;
                let results = results.iter().map(|form| Regex::new(form).ok());
                Some(Syntax {
                    call: Regex::new(call).ok()?,
                    results: results.collect::<Option<_>>()?,
                })
            };
            TextProfile::ALL.into_iter().map(one).collect()
        });
        ALL.get(self as usize)?.as_ref()
    }

    /// The sentence of its system message that no other program has.
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

    /// Searches for that sentence. Made once, because every request is searched.
    fn finder(self) -> Option<&'static Finder<'static>> {
        static ALL: LazyLock<Vec<Option<Finder<'static>>>> = LazyLock::new(|| {
            let one = |profile: TextProfile| profile.sentence().map(Finder::new);
            TextProfile::ALL.into_iter().map(one).collect()
        });
        ALL.get(self as usize)?.as_ref()
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

/// How an agent writes calls and results.
#[derive(Debug)]
struct Syntax {
    call: Regex,
    results: Vec<Regex>,
}

/// smolagents joins what its user wants next to the result before it.
const NEXT_TASK: &str = "\nNew task:\n";

/// How the operator has user messages recognised as results.
#[derive(Clone, Debug, Default)]
pub struct TextResults {
    /// How results begin, in addition to the patterns of a profile.
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

/// What users say in several languages. None of it is the result of a call.
const ORDINARY: [&str; 16] = [
    "Please fix the test that fails.",
    "Why does it return null here?",
    "Können Sie das noch einmal prüfen?",
    "Peux-tu ajouter un test ?",
    "puoi spiegarmi questo passo?",
    "ok, now run it again",
    "thanks, that works",
    "fn main() { println!(\"{}\", 1); }",
    "¿Qué hace esta función?",
    "请把这个函数改成异步的。",
    "このエラーを直してください。",
    "Проверь, пожалуйста, журнал.",
    "/home/me/project/src/main.rs",
    "42",
    "- first the tests\n- then the docs",
    "@src/lib.rs look at this",
];
/// A pattern that matches so many of these matches users.
const SEVERAL: usize = 4;

/// Reads a pattern that must match at the start of a message.
///
/// # Errors
/// What is wrong with it, and what to write.
pub fn pattern(text: &str) -> Result<Regex, String> {
    let read = Regex::new(text).map_err(|error| format!("{text:?} is no pattern: {error}"))?;
    if !text.starts_with('^') {
        return Err(format!(
            "{text:?} must begin with ^: a result is known by how it begins; in any case of letters \
             write ^(?i)"
        ));
    }
    let ordinary = ORDINARY.iter().filter(|said| read.is_match(said));
    if read.is_match("") || ordinary.count() >= SEVERAL {
        return Err(format!(
            "{text:?} makes results of what users say; write the words that only results begin with, \
             like ^Observation:"
        ));
    }
    Ok(read)
}

/// How the results of one request begin, by message.
pub type Fronts = Vec<Front>;

/// Patterns, and the key that identifies them.
struct Patterns<'p> {
    all: Vec<&'p Regex>,
    name: u64,
}

impl<'p> Patterns<'p> {
    fn of(all: impl IntoIterator<Item = &'p Regex>) -> Self {
        let all: Vec<&Regex> = all.into_iter().collect();
        let mut hasher = XxHash3_64::new();
        all.iter().for_each(|one| one.as_str().hash(&mut hasher));
        let name = hasher.finish();
        Self { all, name }
    }

    /// The beginning of a text, if a pattern matches it.
    fn front(&self, text: &str) -> Front {
        let found = self.all.iter().filter_map(|one| one.find(text));
        let found = found.into_iter().find(|found| found.start() == 0)?;
        let front = found.as_str().trim_end();
        let end = front.floor_char_boundary(FRONT);
        Some(Arc::from(front.get(..end)?))
    }
}

impl TextResults {
    /// The messages of a request that are results. A result directly follows an answer, so the
    /// user's first question never is one. Messages that came before are not read again.
    #[must_use]
    pub fn find(
        &self,
        asked: Option<TextProfile>,
        reader: &Reader<'_>,
        request: &Request,
        shapes: &[Arc<Shape>],
    ) -> Fronts {
        let chosen = asked.or(self.profile);
        let found = match chosen {
            Some(_) => None,
            None => recognised(reader, request, shapes),
        };
        if chosen.or(found).is_none() && self.patterns.is_empty() {
            return Vec::new();
        }
        let named = chosen.map_or(&[][..], TextProfile::compiled);
        let patterns = Patterns::of(self.patterns.iter().chain(named));
        let whole = found.and_then(WholeForm::of);
        let at = |(index, _)| {
            front(&patterns, reader, request, shapes, index)
                .or_else(|| whole.as_ref()?.front(reader, request, shapes, index))
        };
        shapes.iter().enumerate().map(at).collect()
    }
}

/// The agent whose sentence is in the system message, if the first message after an answer begins
/// as its results do.
fn recognised(
    reader: &Reader<'_>,
    request: &Request,
    shapes: &[Arc<Shape>],
) -> Option<TextProfile> {
    let first = shapes.iter().position(|one| one.role == Role::Assistant)? + 1;
    let system = shapes.iter().take_while(|one| one.role == Role::System);
    let system = system.count();
    let says = |finder: &Finder<'_>| {
        let mut leading = (0..system).map(|at| request.message(at));
        leading.any(|message| finder.find(message).is_some())
    };
    TextProfile::ALL.into_iter().find(|profile| {
        let begins = || {
            let patterns = Patterns::of(profile.compiled());
            front(&patterns, reader, request, shapes, first).is_some()
        };
        profile.finder().is_some_and(says) && begins()
    })
}

/// What an agent that was recognised by itself is held to.
struct WholeForm {
    begins: Patterns<'static>,
    calls: Patterns<'static>,
    results: Patterns<'static>,
}

impl WholeForm {
    fn of(profile: TextProfile) -> Option<Self> {
        let syntax = profile.compiled_syntax()?;
        Some(Self {
            begins: Patterns::of(profile.compiled()),
            calls: Patterns::of([&syntax.call]),
            results: Patterns::of(&syntax.results),
        })
    }

    /// The beginning of a user message, if it has the form of a result and the answer before it holds a
    /// call. Both are read once.
    fn front(
        &self,
        reader: &Reader<'_>,
        request: &Request,
        shapes: &[Arc<Shape>],
        at: usize,
    ) -> Front {
        let begins = front(&self.begins, reader, request, shapes, at)?;
        let bytes = request.message(at);
        let is_whole = || {
            let text = request.dialect.text(bytes)?;
            let fits = self.results.all.iter().any(|form| form.is_match(&text));
            (fits && !text.contains(NEXT_TASK)).then(|| Arc::from(""))
        };
        reader.front(self.results.name, bytes, is_whole)?;
        let answer = request.message(at.checked_sub(1)?);
        let calls = || {
            let said = request.dialect.texts(answer).concat();
            let calls = self.calls.all.iter().any(|call| call.is_match(&said));
            calls.then(|| Arc::from(""))
        };
        reader.front(self.calls.name, answer, calls)?;
        Some(begins)
    }
}

/// The beginning of a user message after an answer, if it is a result.
fn front(
    patterns: &Patterns<'_>,
    reader: &Reader<'_>,
    request: &Request,
    shapes: &[Arc<Shape>],
    at: usize,
) -> Front {
    let role = |at: usize| shapes.get(at).map(|one| one.role);
    let spoken = at.checked_sub(1).and_then(role) == Some(Role::Assistant);
    if role(at) != Some(Role::User) || !spoken {
        return None;
    }
    let bytes = request.message(at);
    reader.front(patterns.name, bytes, || {
        // A result that is only a part of a message has no content of its own that could be
        // replaced.
        Object::parse(bytes).ok()?.present("content")?;
        patterns.front(&request.dialect.text(bytes)?)
    })
}

#[cfg(test)]
mod tests;
