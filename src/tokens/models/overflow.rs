//! Reads an upstream's error for whether the prompt was too long, and for how long it may be.
//!
//! Owns the patterns' form. It looks at an error's own codes and messages only, never at the
//! rest of a body, which may echo what a user wrote.

use serde_json::Value;

use super::ModelsError;

/// An upstream's answer that the prompt is longer than the model's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLengthError {
    /// The window in tokens, where the error says it.
    pub window: Option<u32>,
}

/// Errors are short; more of one is not read.
const TEXT_MAX: usize = 16 * 1024;

/// The codes and patterns of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Overflow {
    codes: Vec<String>,
    patterns: Vec<Pattern>,
}

/// Literal text in lower case with placeholders for numbers.
#[derive(Clone, Debug)]
struct Pattern {
    first: String,
    rest: Vec<(Slot, String)>,
}

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// `{n}`: a number that says nothing of the window.
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

    /// See [`super::Models::context_length_error`].
    pub(super) fn read(&self, status: u16, body: &str) -> Option<ContextLengthError> {
        // Providers answer so with these; a 429 that names tokens is a rate limit.
        if !matches!(status, 400 | 413 | 422) {
            return None;
        }
        let said = Said::of(body);
        let by_code = said.codes.iter().any(|code| self.codes.contains(code));
        let windows = said.texts.iter().filter_map(|text| self.window(text));
        let by_text = windows.reduce(|first, second| first.or(second));
        match by_text {
            Some(window) => Some(ContextLengthError { window }),
            None => by_code.then_some(ContextLengthError { window: None }),
        }
    }

    /// The window by the first pattern that matches; the outer `None` if none does.
    fn window(&self, text: &str) -> Option<Option<u32>> {
        self.patterns.iter().find_map(|pattern| pattern.find(text))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, ModelsError> {
        let refused = || ModelsError::Pattern(text.to_owned());
        let mut pieces = text.split('{');
        let first = pieces.next().unwrap_or_default().to_lowercase();
        if first.is_empty() {
            return Err(refused());
        }
        let mut rest = Vec::new();
        for piece in pieces {
            if rest
                .last()
                .is_some_and(|(_, literal): &(Slot, String)| literal.is_empty())
            {
                return Err(refused());
            }
            let (name, literal) = piece.split_once('}').ok_or_else(refused)?;
            let slot = match name {
                "n" => Slot::Any,
                "window" => Slot::Window,
                _ => return Err(refused()),
            };
            rest.push((slot, literal.to_lowercase()));
        }
        Ok(Self { first, rest })
    }

    /// What the pattern says of the window where it matches; the outer `None` if it does not.
    fn find(&self, text: &str) -> Option<Option<u32>> {
        let starts = text.match_indices(&self.first);
        starts
            .into_iter()
            .find_map(|(at, first)| self.rest_of(text.get(at + first.len()..)?))
    }

    fn rest_of(&self, mut text: &str) -> Option<Option<u32>> {
        let mut window = None;
        for (slot, literal) in &self.rest {
            let (digits, after) = number(text)?;
            if *slot == Slot::Window {
                window = digits.parse().ok().filter(|window| *window > 0);
            }
            text = after.strip_prefix(literal.as_str())?;
        }
        Some(window)
    }
}

/// The digits of the number that `text` starts with, thousands separators left out, and what
/// follows it. A comma or full stop belongs to the number only if three digits follow.
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

/// What an error body says: its codes as they are, its texts in lower case.
#[derive(Default)]
struct Said {
    codes: Vec<String>,
    texts: Vec<String>,
}

impl Said {
    fn of(body: &str) -> Self {
        let mut said = Self::default();
        match serde_json::from_str(body) {
            Ok(value) => said.take(&value, 0),
            Err(_) => said.text(body),
        }
        said
    }

    /// Collects from the places where providers put codes and messages: the error object, alone,
    /// under `error`, in a list of one, or as JSON text within another's message.
    fn take(&mut self, value: &Value, depth: u8) {
        // Gateways nest a provider's error in their own once or twice, at up to four steps each.
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
