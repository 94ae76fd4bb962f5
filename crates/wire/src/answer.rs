//! What one hop said, once it has ended: its text, reasoning and calls, and what follows from them.
//! It knows neither streams nor wire formats: a streamed and an unstreamed hop that say the same
//! give the same [`Answer`].

use bytes::Bytes;
use plimsoll_model::Usage;

/// What one hop said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text, decoded; empty if there was none.
    pub text: String,
    /// The refusal, decoded; empty if there was none.
    pub refusal: String,
    /// Reasoning under the field names it came with, in order of appearance. The only empty field
    /// that is kept is a `reasoning_content` that the provider sent as an empty string: DeepSeek
    /// refuses a call without the field (<https://api-docs.deepseek.com/guides/thinking_mode>). The
    /// providers that refuse an empty field never send one.
    pub reasoning: Vec<(String, Reasoning)>,
    /// The speech as a JSON object: whole, or from a stream its id alone.
    pub audio: Option<Bytes>,
    /// The tokens of its text and of its refusal, each as a JSON array, if an unstreamed answer has them in its `logprobs`.
    pub tokens: [Option<Bytes>; 2],
    /// Annotations of its text and images beside it, if an unstreamed answer of a format has them whose clients read the
    /// texts of several hops as one.
    pub beside: [Vec<Bytes>; 2],
    /// The calls in the order in which they were begun. If the hop was cut, incomplete hidden calls
    /// are left out.
    pub calls: Vec<Call>,
    /// The finish reason as sent; `None` if the stream ended without one.
    pub finish: Option<String>,
    /// The last usage that the hop reported.
    pub usage: Option<Usage>,
    /// Whether the upstream came to its end: it sent a finish reason or `[DONE]`, and no error
    /// event.
    pub complete: bool,
    /// The data of the error event that the upstream sent.
    pub error: Option<Bytes>,
    /// The response's id.
    pub id: Option<String>,
    /// The response's creation time, in seconds.
    pub created: Option<u64>,
    /// The model that answered, by its own name.
    pub model: Option<String>,
    /// The blocks of the message, in wire order; empty in a format whose messages have none.
    pub blocks: Vec<Block>,
    /// The id of what the provider keeps for the next request of the turn, such as a container.
    pub handle: Option<String>,
    /// What the provider says of why its cache missed, in its own word.
    pub diagnosis: Option<String>,
    /// Whether it said more than is kept. What is here of its text, its calls and its blocks is then a part that nobody
    /// may rely on: the turn ends with it, and is not recorded.
    pub forgotten: bool,
}

/// One whole block of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its kind.
    pub kind: BlockKind,
    /// The block as it is sent back upstream.
    pub raw: Bytes,
}

/// The kind of a block of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// Reasoning, in whatever form.
    Reasoning,
    /// Text, or a refusal.
    Text,
    /// The call at this index of the answer's calls.
    Call(usize),
    /// Anything else, such as a deed of a server's own tool.
    Other,
}

/// Reasoning in one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reasoning {
    /// A string field, its pieces joined, decoded.
    Text(String),
    /// An array field as raw JSON, the elements of all its pieces in order.
    Items(Bytes),
    /// A part of the content as raw JSON, which stands before the text.
    Part(Bytes),
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The id as the upstream issued it; empty if it issued none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them, decoded from the wire but not parsed.
    pub arguments: String,
    /// The call's `type`; `function` if the upstream left it out.
    pub kind: String,
    /// Fields of the call that this code does not know, such as `extra_content`, as raw JSON.
    pub extra: Vec<(String, Bytes)>,
    /// Whether the proxy answers it and the client never sees it.
    pub hidden: bool,
    /// Whether the model finished it: the hop came to its own end, another call was begun, or the
    /// arguments are whole JSON.
    pub complete: bool,
}

/// What follows from an answer for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No hidden call: the turn ends.
    Done,
    /// Hidden calls and no others: the turn needs another hop.
    HiddenOnly,
    /// Hidden and visible calls: the turn ends, the hidden ones are recorded and answered.
    Mixed,
    /// The token limit or a filter ended it: the turn ends with that reason. Complete hidden calls
    /// are still there.
    Cut,
    /// An error event, or the stream broke off: nothing that looks like a regular end may follow.
    Broken,
}

impl Answer {
    /// What follows from it. The calls decide; of the finish reasons only those count that say that
    /// the model was cut off.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.complete {
            return Verdict::Broken;
        }
        if self.finish.as_deref().is_some_and(is_cut) {
            return Verdict::Cut;
        }
        let hidden = self.calls.iter().filter(|call| call.hidden).count();
        match (hidden, self.calls.len() - hidden) {
            (0, _) => Verdict::Done,
            (_, 0) => Verdict::HiddenOnly,
            _ => Verdict::Mixed,
        }
    }

    /// About how many bytes it says, for whoever asks whether to read them takes long.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.arguments.len());
        let blocks = self.blocks.iter().map(|block| block.raw.len());
        self.text.len() + calls.chain(blocks).sum::<usize>()
    }

    /// The place of a call among the answer's blocks, and their number; `None` if there are no
    /// blocks.
    #[must_use]
    pub fn block_of(&self, call: usize) -> Option<(u32, u32)> {
        let mut blocks = self.blocks.iter();
        let at = blocks.position(|block| block.kind == BlockKind::Call(call))?;
        Some((
            u32::try_from(at).ok()?,
            u32::try_from(self.blocks.len()).ok()?,
        ))
    }

    /// The hidden calls, each with its place among the message's calls.
    pub fn hidden_calls(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.hidden)
    }

    /// The visible calls, each with its place among the message's calls.
    pub fn visible_calls(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.calls
            .iter()
            .enumerate()
            .filter(|(_, call)| !call.hidden)
    }
}

/// Whether a finish reason says that the model was cut off.
pub(super) fn is_cut(finish: &str) -> bool {
    matches!(finish, "length" | "model_length" | "content_filter")
}

/// The newlines to put between two hops' texts so that exactly one blank line stands there, the
/// newlines of the texts themselves included. None if a side is empty, or if the later text has
/// nothing but newlines so far.
///
/// A stream can't take back newlines that it has passed on, so it puts the missing ones behind the
/// later text's own newlines, which gives the same text.
#[must_use]
pub fn seam(earlier: &str, later: &str) -> &'static str {
    let leading = leading_newlines(later);
    if earlier.is_empty() || leading == later.len() {
        return "";
    }
    newlines(missing_newlines(earlier, leading))
}

/// How many newlines the seam lacks if the later text opens with this many.
pub(super) fn missing_newlines(earlier: &str, leading: usize) -> usize {
    let trailing = earlier
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'\n')
        .count();
    2_usize.saturating_sub(trailing).saturating_sub(leading)
}

fn leading_newlines(text: &str) -> usize {
    text.bytes().take_while(|byte| *byte == b'\n').count()
}

fn newlines(count: usize) -> &'static str {
    match count {
        0 => "",
        1 => "\n",
        _ => "\n\n",
    }
}

/// The texts of a turn's hops as the client gets them, and the place where the last hop's own text
/// begins. Everything before that is what earlier hops handed out, the seam included.
#[must_use]
pub fn join<'a>(texts: impl IntoIterator<Item = &'a str>) -> (String, usize) {
    let mut joined = String::new();
    let mut last = 0;
    for text in texts {
        joined.push_str(seam(&joined, text));
        last = joined.len();
        joined.push_str(text);
    }
    (joined, last)
}

/// The texts of a turn's hops in a format that keeps them apart, and the place where the last
/// begins.
#[must_use]
pub fn concat<'a>(texts: impl IntoIterator<Item = &'a str>) -> (String, usize) {
    let mut joined = String::new();
    let mut last = 0;
    for text in texts {
        last = joined.len();
        joined.push_str(text);
    }
    (joined, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_blank_line_at_the_seam() {
        let cases = [
            ("a", "b", "\n\n"),
            ("a\n", "b", "\n"),
            ("a", "\nb", "\n"),
            ("a\n", "\nb", ""),
            ("a\n\n", "b", ""),
            ("a\n\n\n", "\nb", ""),
            ("a", "\n\nb", ""),
            ("", "b", ""),
            ("a", "", ""),
            ("a", "\n", ""),
            ("a", " b", "\n\n"),
        ];
        for (earlier, later, want) in cases {
            assert_eq!(seam(earlier, later), want, "{earlier:?} + {later:?}");
        }
    }

    #[test]
    fn joining_tells_where_the_last_text_begins() {
        assert_eq!(join(["a", "", "b"]), ("a\n\nb".to_owned(), 3));
        assert_eq!(join(["a", "b", ""]), ("a\n\nb".to_owned(), 4));
        assert_eq!(join(["", "b\n", "c"]), ("b\n\nc".to_owned(), 3));
        assert_eq!(join([]), (String::new(), 0));
    }

    fn call(hidden: bool) -> Call {
        Call {
            id: "c\"1".to_owned(),
            name: "read".to_owned(),
            arguments: "{\"p\":\"\u{e4}\\n\"}".to_owned(),
            kind: "function".to_owned(),
            extra: vec![(
                "extra_content".to_owned(),
                Bytes::from_static(br#"{"g": 1e3}"#),
            )],
            hidden,
            complete: true,
        }
    }

    #[test]
    fn the_calls_decide_not_the_reason() {
        let verdict = |calls: &[bool], finish: &str| {
            let calls = calls.iter().map(|hidden| call(*hidden)).collect();
            let finish = Some(finish.to_owned());
            Answer {
                calls,
                finish,
                complete: true,
                ..Answer::default()
            }
            .verdict()
        };
        assert_eq!(verdict(&[], "stop"), Verdict::Done);
        assert_eq!(verdict(&[false], "stop"), Verdict::Done);
        assert_eq!(verdict(&[true], "stop"), Verdict::HiddenOnly);
        assert_eq!(verdict(&[true, true], "tool_calls"), Verdict::HiddenOnly);
        assert_eq!(verdict(&[true, false], "stop"), Verdict::Mixed);
        assert_eq!(verdict(&[true], "length"), Verdict::Cut);
        assert_eq!(verdict(&[], "content_filter"), Verdict::Cut);
        assert_eq!(
            Answer {
                calls: vec![call(true)],
                ..Answer::default()
            }
            .verdict(),
            Verdict::Broken
        );
    }
}
