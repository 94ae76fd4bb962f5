//! Views that no policy of the proxy makes and that a comparison wants beside theirs: the newest
//! messages alone, and the summary that `compaction` would have had a model write, told from what the
//! session said itself. Owns those two; never calls a model.

use plimsoll_model::Role;
use serde_json::{Value, json};

use super::message_text::{self, TextPart};

/// The name of the view that holds the newest messages alone.
pub const TRUNCATED: &str = "truncated";
/// Characters of an answer's first line, and of a call, that a summary tells.
const SAID: usize = 160;
const CALLED: usize = 100;

/// One message of a session as a view is cut from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Who speaks.
    pub role: Role,
    /// Its tokens.
    pub tokens: u64,
}

/// System messages, and the newest of the others: over the ceiling the oldest go, down to the floor.
#[derive(Clone, Debug)]
pub struct Truncation {
    ceiling: u64,
    floor: u64,
    from: usize,
}

impl Truncation {
    /// Nothing is cut yet.
    #[must_use]
    pub fn new(ceiling: u64, floor: u64) -> Self {
        let from = 0;
        Self {
            ceiling,
            floor,
            from,
        }
    }

    /// The messages that stand before an answer, by number.
    pub fn view(&mut self, before: &[Size]) -> Vec<usize> {
        if self.size(before) > self.ceiling {
            while self.from + 1 < before.len() && self.size(before) > self.floor {
                self.from += 1;
            }
            // A result never stands without its call: forward to the next message, else back.
            let is_result = |at: &usize| before.get(*at).is_some_and(|one| one.role == Role::Tool);
            let next = (self.from..before.len()).find(|at| !is_result(at));
            let last = (0..self.from).rev().find(|at| !is_result(at));
            self.from = next.or(last).unwrap_or(self.from);
        }
        let kept = before.iter().enumerate();
        let kept = kept.filter(|(at, one)| *at >= self.from || one.role == Role::System);
        kept.map(|(at, _)| at).collect()
    }

    fn size(&self, before: &[Size]) -> u64 {
        let kept = before.iter().enumerate();
        let kept = kept.filter(|(at, one)| *at >= self.from || one.role == Role::System);
        kept.map(|(_, one)| one.tokens).sum()
    }
}

/// A summary of messages: the first line of what each answer says, and what it calls on what; the
/// newest of it that fits. `size` tells the tokens of a text.
#[must_use]
pub fn summary<'a>(
    messages: impl Iterator<Item = &'a [u8]>,
    most: u64,
    size: &dyn Fn(&str) -> u64,
) -> Vec<u8> {
    let mut lines = Vec::new();
    for bytes in messages {
        let Ok(message) = serde_json::from_slice::<Value>(bytes) else {
            continue;
        };
        if message.get("role").and_then(Value::as_str) != Some("assistant") {
            continue;
        }
        message_text::texts(bytes, &mut |part: TextPart, text: &str| {
            let first = text.trim().lines().next().unwrap_or_default();
            if part == TextPart::Text && !first.is_empty() {
                lines.push(cut(first, SAID));
            }
        });
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let word = |field: &str| {
                let of = call
                    .get("function")
                    .and_then(|function| function.get(field));
                of.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let arguments = cut(&word("arguments"), CALLED);
            lines.push(format!("- {} {arguments}", word("name")));
        }
    }
    let mut kept = String::new();
    for line in lines.iter().rev() {
        let longer = format!("{line}\n{kept}");
        if size(&longer) > most {
            break;
        }
        kept = longer;
    }
    let text = format!("Summary of the work so far:\n{kept}");
    json!({"role": "user", "content": text})
        .to_string()
        .into_bytes()
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(roles: &str) -> Vec<Size> {
        let one = |c: char| Size {
            role: match c {
                's' => Role::System,
                'u' => Role::User,
                'a' => Role::Assistant,
                _ => Role::Tool,
            },
            tokens: 10,
        };
        roles.chars().map(one).collect()
    }

    #[test]
    fn the_newest_messages_stay_and_no_result_without_its_call() {
        for (roles, expect) in [
            ("suatat", vec![0, 1, 2, 3, 4, 5]),
            // Down to 50: from the second call on, not from its result.
            ("suatatat", vec![0, 4, 5, 6, 7]),
            ("suattttt", vec![0, 2, 3, 4, 5, 6, 7]),
        ] {
            let found = Truncation::new(60, 50).view(&sizes(roles));
            assert_eq!(found, expect, "{roles}");
        }
    }

    #[test]
    fn a_cut_stays_until_the_ceiling_is_met_again() {
        let mut cut = Truncation::new(60, 40);
        let first = cut.view(&sizes("suatata"));
        assert_eq!(first, [0, 4, 5, 6]);
        assert_eq!(cut.view(&sizes("suatatat")), [0, 4, 5, 6, 7]);
    }

    #[test]
    fn a_summary_tells_the_newest_that_fits() {
        let messages = [
            json!({"role": "user", "content": "the task"}),
            json!({"role": "assistant", "content": "I look first.\nThen more.", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{\"path\":\"a.rs\"}"}}]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "secret content"}),
        ];
        let bytes: Vec<Vec<u8>> = messages
            .iter()
            .map(|m| m.to_string().into_bytes())
            .collect();
        let told = |most| {
            let all = bytes.iter().map(Vec::as_slice);
            let made = summary(all, most, &|text| text.len() as u64);
            let value: Value = serde_json::from_slice(&made).unwrap();
            value["content"].as_str().unwrap().to_owned()
        };
        let whole = "Summary of the work so far:\nI look first.\n- Read {\"path\":\"a.rs\"}\n";
        assert_eq!(told(1000), whole);
        assert_eq!(
            told(30),
            "Summary of the work so far:\n- Read {\"path\":\"a.rs\"}\n"
        );
    }
}
