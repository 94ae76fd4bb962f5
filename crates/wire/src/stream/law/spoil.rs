//! How answers are spoilt: bytes flipped, put in, cut and doubled, and words put in the place of
//! others, as servers that are broken, odd or hostile would.

use bytes::Bytes;
use proptest::prelude::*;

/// What is put in.
const PIECES: [&str; 34] = [
    "\n",
    "\r",
    "\n\n",
    "\r\n\r\n",
    "data: ",
    "data: {}\n\n",
    ": c\n\n",
    "event: x\n",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "NaN",
    "null",
    "0",
    "\u{feff}",
    "\u{e4}",
    "\\u0064",
    "\"\"",
    "\"index\":1,",
    "\"name\":\"delimiter\",",
    "\"name\":\"read\",",
    "\"id\":\"x\",",
    "\"message\":{},",
    "\"delta\":{},",
    "\"error\":{},",
    "\"finish_reason\":\"stop\",",
    "\"type\":\"text\",",
    "\"arguments\":",
    "\"server_label\":\"s\",",
];

/// Words, and what stands in their place.
const WORDS: [(&str, &str); 46] = [
    ("\"delta\"", "\"message\""),
    ("\"message\"", "\"delta\""),
    ("\"index\":0", "\"index\":1"),
    ("\"index\":0", "\"index\":\"0\""),
    ("\"index\":0,", ""),
    ("\"index\":1", "\"index\":0"),
    ("\"output_index\":", "\"index\":"),
    ("delimiter", "\\u0064elimiter"),
    ("recall", "reca\\u006cl"),
    ("\"name\"", "\"Name\""),
    ("\"name\"", "\"n\\u0061me\""),
    ("\"name\"", "\"x\":0,\"name\""),
    ("\"name\":", "\"name\":\"x\",\"name\":"),
    (
        "\"name\":\"delimiter\"",
        "\"name\":\"delimiter\",\"name\":\"x\"",
    ),
    ("\"name\":\"delimiter\"", "\"name\":[\"delimiter\"]"),
    ("\"tool_calls\":[", "\"tool_calls\":"),
    ("\"tool_calls\"", "\"Tool_Calls\""),
    ("\"tool_calls\":[{", "\"tool_calls\":[null,{"),
    ("\"tool_calls\":[{", "\"tool_calls\":[],\"tool_calls\":[{"),
    ("\"function\"", "\"custom\""),
    ("\"function\"", "\"Function\""),
    ("\"function\":{", "\"function\":{},\"function\":{"),
    (
        "\"tool_calls\":[{\"index\":0,\"function\":",
        "\"function_call\":",
    ),
    ("\"function_call\"", "\"custom_tool_call\""),
    ("\"type\":\"function_call\"", "\"type\":\"tool_use\""),
    ("\"type\":\"tool_use\"", "\"type\":\"server_tool_use\""),
    ("\"type\":\"tool_use\"", "\"Type\":\"tool_use\""),
    ("\"type\":", "\"x\":"),
    ("\"type\":", "\"type\":null,\"type\":"),
    ("\"content_block\"", "\"message\""),
    ("\"content_block\"", "\"Content_Block\""),
    ("\"content_block_start\"", "\"content_block_stop\""),
    ("\"content_block_start\"", "\"ping\""),
    ("\"content\":[", "\"content\":"),
    ("\"item\"", "\"response\""),
    ("\"item\"", "\"Item\""),
    ("\"output\":[", "\"Output\":["),
    (".added\"", ".done\""),
    (".done\"", ".added\""),
    ("\"choices\":[", "\"choices\":"),
    ("\"choices\":[", "\"choices\":[{\"index\":0,\"delta\":{}},"),
    ("\"id\"", "\"call_id\""),
    ("data: ", "data:"),
    ("data: ", "data: \u{feff}"),
    ("data: {", "data: {\"x\":NaN,"),
    ("\n\n", "}\n\n"),
];

/// One way of spoiling.
#[derive(Debug, Clone)]
enum Edit {
    Flip(prop::sample::Index, u8),
    Insert(prop::sample::Index, &'static str),
    Cut(prop::sample::Index, usize),
    Double(prop::sample::Index, usize),
    Word(usize, Option<usize>),
}

/// Some edits of a turn's hops.
#[derive(Debug, Clone)]
pub(super) struct Spoiling(Vec<Edit>);

/// One to three edits.
pub(super) fn any() -> impl Strategy<Value = Spoiling> {
    let index = || any_index();
    let edit = prop_oneof![
        2 => (index(), any_byte()).prop_map(|(at, byte)| Edit::Flip(at, byte)),
        3 => (index(), prop::sample::select(PIECES.to_vec())).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        2 => (index(), 1_usize..40).prop_map(|(at, length)| Edit::Cut(at, length)),
        1 => (index(), 1_usize..400).prop_map(|(at, length)| Edit::Double(at, length)),
        4 => (0..WORDS.len(), prop::option::of(0_usize..4)).prop_map(|(word, nth)| Edit::Word(word, nth)),
    ];
    prop::collection::vec(edit, 1..4).prop_map(Spoiling)
}

fn any_index() -> impl Strategy<Value = prop::sample::Index> {
    proptest::arbitrary::any::<prop::sample::Index>()
}

fn any_byte() -> impl Strategy<Value = u8> {
    proptest::arbitrary::any::<u8>()
}

impl Spoiling {
    /// Each word in the place of each other, everywhere and once.
    pub(super) fn words() -> impl Iterator<Item = Self> {
        let places = [None, Some(0), Some(1), Some(2)];
        (0..WORDS.len()).flat_map(move |word| {
            places
                .into_iter()
                .map(move |nth| Self(vec![Edit::Word(word, nth)]))
        })
    }

    /// The hops, spoilt one and all.
    pub(super) fn over(&self, hops: &[Bytes]) -> Vec<Bytes> {
        hops.iter().map(|hop| self.spoil(hop)).collect()
    }

    fn spoil(&self, hop: &Bytes) -> Bytes {
        let mut bytes = hop.to_vec();
        for edit in &self.0 {
            let place = |at: &prop::sample::Index| at.index(bytes.len() + 1);
            match edit {
                Edit::Flip(at, byte) => {
                    let at = place(at);
                    if let Some(old) = bytes.get_mut(at) {
                        *old = *byte;
                    }
                }
                Edit::Insert(at, piece) => {
                    let at = place(at);
                    bytes.splice(at..at, piece.bytes());
                }
                Edit::Cut(at, length) => {
                    let at = place(at);
                    bytes.drain(at..bytes.len().min(at + length));
                }
                Edit::Double(at, length) => {
                    let at = place(at);
                    let end = bytes.len().min(at + length);
                    let again = bytes[at..end].to_vec();
                    bytes.splice(end..end, again);
                }
                Edit::Word(word, nth) => {
                    let (from, to) = WORDS[*word];
                    bytes = worded(&bytes, from, to, *nth);
                }
            }
        }
        Bytes::from(bytes)
    }
}

/// The bytes with a word in the place of another: everywhere, or once.
fn worded(bytes: &[u8], from: &str, to: &str, nth: Option<usize>) -> Vec<u8> {
    let mut written = Vec::with_capacity(bytes.len());
    let mut done = 0;
    for (number, at) in memchr::memmem::find_iter(bytes, from.as_bytes()).enumerate() {
        if nth.is_none_or(|nth| nth == number) {
            written.extend_from_slice(&bytes[done..at]);
            written.extend_from_slice(to.as_bytes());
            done = at + from.len();
        }
    }
    written.extend_from_slice(&bytes[done..]);
    written
}
