//! Finds out whether an upstream's error says that the prompt was too long, and how long it may be.
//!
//! Owns the form of the patterns. Never looks at more than the codes and messages of an error,
//! because the rest of a body may quote what a user wrote.

use serde_json::Value;

use super::error::ModelsError;

/// An upstream's answer that the prompt is longer than the model's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLengthError {
    /// The window in tokens, if the error names it.
    pub window: Option<u32>,
}

/// How many bytes of an error are read. Errors are short.
const TEXT_MAX: usize = 16 * 1024;

/// The codes and the patterns of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow {
    codes: Vec<String>,
    patterns: Vec<Pattern>,
}

/// Literal text in lower case, with placeholders for numbers.
#[derive(Clone, Debug)]
struct Pattern {
    first: String,
    rest: Vec<(Placeholder, String)>,
}

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    /// `{n}`: a number that says nothing about the window.
    Any,
    /// `{window}`: the window.
    Window,
}

impl Overflow {
    pub(super) fn new(codes: Vec<String>, patterns: &[String]) -> Result<Self, ModelsError> {
        let patterns = patterns.iter().map(|text| Pattern::parse(text));
        Ok(Self {
            codes,
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn before(mut self, mut later: Self) -> Self {
        self.codes.append(&mut later.codes);
        self.patterns.append(&mut later.patterns);
        self
    }

    /// See `Models::context_length_error`.
    pub(super) fn read(&self, status: u16, body: &str) -> Option<ContextLengthError> {
        // Providers use these statuses for it. A 429 that names tokens is a rate limit.
        if !matches!(status, 400 | 413 | 422) {
            return None;
        }
        let said = ErrorTexts::of(body);
        let by_code = said.codes.iter().any(|code| self.codes.contains(code));
        let by_text = said.texts.iter().filter_map(|text| self.find(text));
        // An error may say in one text that it is too long, and in another by how much.
        let by_text = by_text.reduce(|first, second| ContextLengthError {
            window: first.window.or(second.window),
        });
        let found = by_text.or(by_code.then_some(ContextLengthError { window: None }));
        found.map(|error| ContextLengthError {
            window: error.window.or(said.window),
        })
    }

    /// What the first matching pattern says. `None` if no pattern matches.
    fn find(&self, text: &str) -> Option<ContextLengthError> {
        self.patterns.iter().find_map(|pattern| pattern.find(text))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ModelsError> {
        let refused = || ModelsError::Pattern(text.to_owned());
        let mut pieces = text.split('{');
        let first = pieces.next().unwrap_or_default().to_lowercase();
        // A pattern that begins with a placeholder would be tried at every place of a text.
        if first.is_empty() {
            return Err(refused());
        }
        let mut rest = Vec::new();
        for piece in pieces {
            if rest
                .last()
                .is_some_and(|(_, literal): &(Placeholder, String)| literal.is_empty())
            {
                return Err(refused());
            }
            let (name, literal) = piece.split_once('}').ok_or_else(refused)?;
            let slot = match name {
                "n" => Placeholder::Any,
                "window" => Placeholder::Window,
                _ => return Err(refused()),
            };
            rest.push((slot, literal.to_lowercase()));
        }
        Ok(Self { first, rest })
    }

    /// What the pattern says of the window. `None` if it does not match.
    fn find(&self, text: &str) -> Option<ContextLengthError> {
        let starts = text.match_indices(&self.first);
        starts
            .into_iter()
            .find_map(|(at, first)| self.rest_of(text.get(at + first.len()..)?))
    }

    fn rest_of(&self, mut text: &str) -> Option<ContextLengthError> {
        let mut window = None;
        for (slot, literal) in &self.rest {
            let (digits, after) = number(text)?;
            if *slot == Placeholder::Window {
                window = digits.parse().ok().filter(|window| *window > 0);
            }
            text = after.strip_prefix(literal.as_str())?;
        }
        Some(ContextLengthError { window })
    }
}

/// The digits of the number with which `text` starts, without separators, and the text after it. A
/// comma or underscore belongs to the number only if three digits follow.
fn number(text: &str) -> Option<(String, &str)> {
    let mut digits = String::new();
    let mut rest = text;
    loop {
        let end = rest
            .find(|sign: char| !sign.is_ascii_digit())
            .unwrap_or(rest.len());
        digits.push_str(rest.get(..end)?);
        rest = rest.get(end..)?;
        let group = rest.strip_prefix([',', '_']).filter(|group| {
            let size = group.bytes().take_while(u8::is_ascii_digit).count();
            size == 3 && !digits.is_empty()
        });
        match group {
            Some(group) => rest = group,
            None => return (!digits.is_empty()).then_some((digits, rest)),
        }
    }
}

/// The texts of an error: its codes as they are, its messages in lower case.
#[derive(Default)]
struct ErrorTexts {
    codes: Vec<String>,
    texts: Vec<String>,
    /// The size of the context where it has a place of its own: llama.cpp's `n_ctx`.
    window: Option<u32>,
}

impl ErrorTexts {
    fn of(body: &str) -> Self {
        let mut said = Self::default();
        match serde_json::from_str(body) {
            Ok(value) => said.take(&value, 0),
            Err(_) => said.text(body),
        }
        said
    }

    /// Collects texts from the places where providers put codes and messages: in the error object,
    /// which may stand alone, under `error`, in a list, or as JSON text in another error's message.
    fn take(&mut self, value: &Value, depth: u8) {
        // Gateways put a provider's error into their own once or twice, with up to four levels
        // each.
        if depth > 12 {
            return;
        }
        match value {
            Value::String(text) => match serde_json::from_str(text) {
                Ok(inner @ Value::Object(_)) => self.take(&inner, depth + 1),
                Ok(_) | Err(_) => self.text(text),
            },
            Value::Array(list) => list
                .iter()
                .take(4)
                .for_each(|inner| self.take(inner, depth + 1)),
            Value::Object(object) => {
                let window = object.get("n_ctx").and_then(Value::as_u64);
                let window = window.and_then(|window| u32::try_from(window).ok());
                self.window = self.window.or(window.filter(|window| *window > 0));
                for key in ["code", "type"] {
                    self.codes
                        .extend(object.get(key).and_then(Value::as_str).map(str::to_owned));
                }
                for key in ["error", "message", "msg", "detail", "metadata", "raw"] {
                    object
                        .get(key)
                        .into_iter()
                        .for_each(|inner| self.take(inner, depth + 1));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        let end = (0..=TEXT_MAX.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at));
        self.texts.push(
            text.get(..end.unwrap_or_default())
                .unwrap_or_default()
                .to_lowercase(),
        );
    }
}
