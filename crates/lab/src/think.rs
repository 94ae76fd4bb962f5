//! Thoughts that the lab makes up for the answers of a session, to see what policies do where models
//! think much. Owns their sizes and their words. Never decides what becomes of a thought.

use bytes::Bytes;
use indexmap::IndexSet;
use plimsoll_core::turn::sizes::tokens;
use plimsoll_model::Role;
use plimsoll_model::raw::{self, Object};
use plimsoll_scripted::rng::Rng;
use plimsoll_tokens::{Counter, Encoding};
use plimsoll_wire::Dialect;
use plimsoll_wire::edit::AssistantEdit;

use super::message_text::{self, TextPart};
use super::trace::Trace;

/// Chooses sizes and words. Any value does; a fixed one makes every run equal.
const SEED: u64 = 1;
/// The largest thought that may be asked for, in tokens.
const MOST: u32 = 100_000;
/// Words of a session that thoughts are made of, at most.
const WORDS: usize = 4_096;
/// Letters of a word.
const LETTERS: std::ops::RangeInclusive<usize> = 2..=16;
/// Tokens of a word at most, so that a thought meets its size.
const WORD_TOKENS: u32 = 2;
/// Draws that don't fit before a thought is left a little short.
const MISSES: usize = 64;

/// How much every answer thinks, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// The mean.
    pub tokens: u32,
    /// How far sizes are from it at most. All sizes up to there are as likely.
    pub spread: u32,
}

impl Think {
    /// Reads `N` or `N,SPREAD`.
    ///
    /// # Errors
    /// What is allowed, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mean, spread) = text.split_once(',').unwrap_or((text, "0"));
        let size = |text| tokens(text, 0).ok();
        let think = size(mean)
            .zip(size(spread))
            .map(|(tokens, spread)| Self { tokens, spread })
            .filter(|think| think.tokens.saturating_add(think.spread) <= MOST);
        think.ok_or_else(|| {
            format!("give tokens as N or N,SPREAD, at most {MOST} together, like 800 or 800,200")
        })
    }

    /// The session with a thought for each of its answers, in place of what the model had thought. With no
    /// tokens it is as it was recorded.
    #[must_use]
    pub fn thought(self, trace: Trace, counter: &Counter, encoding: Encoding) -> Trace {
        if self.tokens == 0 && self.spread == 0 {
            return trace;
        }
        let words = Words::of(&trace, |text| counter.count(encoding, text));
        let mut trace = Trace {
            made_up: true,
            ..trace
        };
        let mut answers = trace
            .recording
            .turns
            .iter_mut()
            .map(|turn| &mut turn.answer);
        for (at, message) in trace.messages.iter_mut().enumerate() {
            if message.role != Role::Assistant {
                continue;
            }
            let mut rng = Rng::from_text(&format!("{} {at}", trace.name), SEED);
            let thought = words.thought(self.size(&mut rng), &mut rng);
            // Each message of the assistant's is an answer of the recording.
            let answer = answers.next();
            if let (Some(raw), Some(answer)) = (with_thought(&message.raw, &thought), answer) {
                message.raw = raw;
                answer.reasoning = thought;
            }
        }
        trace
    }

    fn size(self, rng: &mut Rng) -> u32 {
        let spread = self.spread as usize;
        let drawn = (self.tokens as usize + rng.below(2 * spread + 1)).saturating_sub(spread);
        u32::try_from(drawn).unwrap_or(MOST)
    }
}

/// The message with this thought and no other. None for a message that can't be read; a trace has none.
fn with_thought(message: &[u8], thought: &str) -> Option<Bytes> {
    let drop = AssistantEdit {
        drop_reasoning: true,
        ..AssistantEdit::default()
    };
    let without = Dialect::Chat.assistant(message, &drop)?;
    if thought.is_empty() {
        return Some(without);
    }
    let quoted = raw::quote(thought);
    let object = Object::parse(&without).ok()?;
    let edit = object.set("reasoning_content", quoted.as_bytes());
    Some(raw::splice(&without, &[edit]))
}

/// Words of a session with their tokens behind a space.
struct Words(Vec<(String, u32)>);

impl Words {
    /// Plain words only: a thought of them holds nothing that a policy looks for, and its tokens are the
    /// sum of theirs.
    fn of(trace: &Trace, count: impl Fn(&str) -> u32) -> Self {
        let mut found: IndexSet<String> = IndexSet::new();
        for message in &trace.messages {
            if found.len() >= WORDS {
                break;
            }
            message_text::texts(&message.raw, &mut |part: TextPart, text: &str| {
                if part == TextPart::Text {
                    let plain = text.split_whitespace().filter(|word| is_plain(word));
                    let room = WORDS.saturating_sub(found.len());
                    let new: Vec<&str> = plain
                        .filter(|word| !found.contains(*word))
                        .take(room)
                        .collect();
                    found.extend(new.into_iter().map(str::to_owned));
                }
            });
        }
        let sized = found.into_iter().map(|word| {
            let tokens = count(&format!(" {word}"));
            (word, tokens)
        });
        let mut words: Vec<(String, u32)> = sized
            .filter(|(_, tokens)| (1..=WORD_TOKENS).contains(tokens))
            .collect();
        if !words.iter().any(|(_, tokens)| *tokens == 1) {
            words.push(("so".to_owned(), 1));
        }
        Self(words)
    }

    /// A text of so many tokens.
    fn thought(&self, size: u32, rng: &mut Rng) -> String {
        let mut text = String::new();
        let (mut left, mut misses) = (size, 0);
        while left > 0 && misses < MISSES {
            match rng.pick(&self.0) {
                Some((word, tokens)) if *tokens <= left => {
                    if !text.is_empty() {
                        text.push(' ');
                    }
                    text.push_str(word);
                    left -= tokens;
                }
                Some(_) | None => misses += 1,
            }
        }
        text
    }
}

fn is_plain(word: &str) -> bool {
    let plain = |letter: char| letter.is_alphabetic() && !letter.is_uppercase();
    word.len() <= 4 * LETTERS.end()
        && LETTERS.contains(&word.chars().count())
        && word.chars().all(plain)
}

#[cfg(test)]
mod tests;
