//! Whole messages of a corpus, and the ways in which they are spoilt: bytes flipped, put in, cut,
//! doubled and taken from other messages. Owns no law: what must hold of them the targets say.

use std::path::{Path, PathBuf};
use std::{fs, io};

use bolero::TypeGenerator;

/// What is put in where a message is spoilt: what frames and JSON are made of.
const PIECES: [&[u8]; 24] = [
    b"\n",
    b"\r",
    b"\n\n",
    b"\r\n\r\n",
    b"data: ",
    b"data: {}\n\n",
    b"event: x\n",
    b": c\n\n",
    b"\"",
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"-1e999",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\"type\":\"tool_use\",",
    b"\"name\":\"delimiter\",",
];

/// The whole messages of one target.
#[derive(Debug)]
pub struct Corpus(Vec<(PathBuf, Vec<u8>)>);

impl Corpus {
    /// Reads the messages of some folders, named from `corpus` on.
    ///
    /// # Errors
    /// If there is no such folder, or one can't be read.
    pub fn read(folders: &[&str]) -> io::Result<Self> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let mut messages = Vec::new();
        for folder in folders {
            for entry in fs::read_dir(corpus.join(folder))? {
                let path = entry?.path();
                if path.is_file() {
                    messages.push((path.clone(), fs::read(path)?));
                }
            }
        }
        messages.sort();
        Ok(Self(messages))
    }

    /// All messages as they are, each with its file.
    pub fn messages(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        let all = self.0.iter();
        all.map(|(path, bytes)| (path.as_path(), bytes.as_slice()))
    }

    /// The message with this number, counted round and round.
    fn message(&self, number: u8) -> &[u8] {
        let message = self.0.get(usize::from(number) % self.0.len().max(1));
        message.map_or(&[], |(_, bytes)| bytes)
    }
}

/// One way of spoiling. Places are shares of the message, so that they mean something whatever
/// its length.
#[derive(Clone, Debug, TypeGenerator)]
enum Edit {
    Flip {
        at: u16,
        bits: u8,
    },
    Put {
        at: u16,
        piece: u8,
    },
    Bytes {
        at: u16,
        bytes: Vec<u8>,
    },
    Cut {
        at: u16,
        length: u16,
    },
    Double {
        at: u16,
        length: u8,
    },
    End {
        at: u16,
    },
    Graft {
        at: u16,
        from: u8,
        begin: u16,
        length: u16,
    },
}

/// A message of a corpus and what is done to it, and where it is cut into reads.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Spoilt {
    base: u8,
    edits: Vec<Edit>,
    cuts: [u16; 2],
}

/// A place in a message of this length.
fn place(at: u16, length: usize) -> usize {
    (usize::from(at) * (length + 1)) >> 16
}

impl Spoilt {
    /// The bytes. At most eight edits are made, so that something of the message is left.
    #[must_use]
    pub fn of(&self, corpus: &Corpus) -> Vec<u8> {
        let mut bytes = corpus.message(self.base).to_vec();
        for edit in self.edits.iter().take(8) {
            edit.make(&mut bytes, corpus);
        }
        bytes
    }

    /// Two places in order at which a message of this length is cut into reads.
    #[must_use]
    pub fn cuts(&self, length: usize) -> [usize; 2] {
        let mut cuts = self.cuts.map(|at| place(at, length));
        cuts.sort_unstable();
        cuts
    }
}

impl Edit {
    fn make(&self, bytes: &mut Vec<u8>, corpus: &Corpus) {
        let length = bytes.len();
        let span = |at, wide: usize| {
            let at = place(at, length);
            at..(at + wide).min(length)
        };
        match self {
            Self::Flip { at, bits } => {
                if let Some(byte) = bytes.get_mut(place(*at, length)) {
                    *byte ^= bits;
                }
            }
            Self::Put { at, piece } => {
                let piece = PIECES.get(usize::from(*piece) % PIECES.len());
                let piece = piece.copied().unwrap_or_default();
                bytes.splice(span(*at, 0), piece.iter().copied());
            }
            Self::Bytes { at, bytes: new } => {
                bytes.splice(span(*at, 0), new.iter().copied());
            }
            Self::Cut { at, length: wide } => {
                bytes.drain(span(*at, usize::from(*wide) % 300));
            }
            Self::Double { at, length: wide } => {
                let span = span(*at, usize::from(*wide));
                let twice = bytes.get(span.clone()).unwrap_or_default().to_vec();
                bytes.splice(span.start..span.start, twice);
            }
            Self::End { at } => bytes.truncate(place(*at, length)),
            Self::Graft {
                at,
                from,
                begin,
                length: wide,
            } => {
                let other = corpus.message(*from);
                let begin = place(*begin, other.len());
                let rest = other.get(begin..).unwrap_or_default();
                let part = rest.iter().take(usize::from(*wide) % 600);
                bytes.splice(span(*at, 0), part.copied());
            }
        }
    }
}
