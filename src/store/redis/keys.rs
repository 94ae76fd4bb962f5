//! What stands where in Redis: the names of keys, the form of values and members, and the commands
//! that write and read them. Never sends anything.
//!
//! A blob is a string: `kind (1) ‖ stored form` (see [`super::super::codec`]). The links of a key are
//! a sorted set in which all scores are 0, so that its order is that of the members' bytes: `turn
//! (u32, big-endian) ‖ id (32)`. Every name ends with a digest, so that a cluster spreads them.

use std::time::Duration;

use bytes::Bytes;
use redis::Cmd;

use crate::model::Digest;

use super::super::batch::{Batch, BatchKind, Link, MEMBERS};
use super::super::codec::{self, CodecError, Encoder};

/// How many bytes a member takes.
const MEMBER_BYTES: usize = 36;

/// The names of keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// How long something is kept. `None` for as long as the server has room.
pub(super) type Age = Option<Duration>;

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    fn name(&self, kind: &str, digest: &Digest) -> Vec<u8> {
        [
            self.prefix.as_bytes(),
            kind.as_bytes(),
            digest.as_bytes().as_slice(),
        ]
        .concat()
    }

    /// The name of a blob.
    pub(super) fn blob(&self, id: &Digest) -> Vec<u8> {
        self.name(":b:", id)
    }

    /// The name of a set of links.
    pub(super) fn links(&self, key: &Digest) -> Vec<u8> {
        self.name(":l:", key)
    }

    /// Reads a blob.
    pub(super) fn read_blob(&self, id: &Digest) -> Cmd {
        let mut command = redis::cmd("GET");
        command.arg(self.blob(id));
        command
    }

    /// Asks whether a blob is stored.
    pub(super) fn has_blob(&self, id: &Digest) -> Cmd {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.blob(id));
        command
    }

    /// Reads the first members of a set, behind `from` of them.
    pub(super) fn read_links(&self, key: &Digest, from: usize) -> Cmd {
        let mut command = redis::cmd("ZRANGE");
        command
            .arg(self.links(key))
            .arg(from)
            .arg(from + MEMBERS - 1);
        command
    }

    /// Reads all members of the set with this name.
    pub(super) fn read_set(name: &[u8]) -> Cmd {
        let mut command = redis::cmd("ZRANGE");
        command.arg(name).arg(0).arg(-1);
        command
    }

    /// The pattern of the names of all sets of links.
    pub(super) fn all_links(&self) -> Vec<u8> {
        // A prefix holds no character that means something in a pattern.
        format!("{}:l:*", self.prefix).into_bytes()
    }

    /// Writes a batch: blobs before links, so that a server that stops in between has no link
    /// without its blob. Everything that it names lives for `age` from now on.
    pub(super) fn write(
        &self,
        batch: &Batch,
        age: Age,
        encoder: &mut Encoder,
    ) -> Result<Vec<Cmd>, CodecError> {
        let age = age.map(|age| age.as_secs().max(1));
        let mut commands = Vec::new();
        for (id, value) in &batch.blobs {
            let stored = encoder.encode(value)?;
            let value = [&[byte_of(batch.kind)], stored.as_slice()].concat();
            let mut command = redis::cmd("SET");
            command.arg(self.blob(id)).arg(value);
            if let Some(age) = age {
                command.arg("EX").arg(age);
            }
            commands.push(command);
        }
        let lives = |name: Vec<u8>| {
            age.map(|age| {
                let mut command = redis::cmd("EXPIRE");
                command.arg(name).arg(age);
                command
            })
        };
        for id in &batch.renewed {
            commands.extend(lives(self.blob(id)));
        }
        for link in &batch.links {
            let mut command = redis::cmd("ZADD");
            command.arg(self.links(&link.key)).arg(0).arg(&member(link));
            commands.push(command);
            commands.extend(lives(self.links(&link.key)));
        }
        Ok(commands)
    }
}

fn byte_of(kind: BatchKind) -> u8 {
    match kind {
        BatchKind::Records => 0,
        BatchKind::Content => 1,
    }
}

/// The value of a blob. An unknown kind is an unknown version.
pub(super) fn blob_value(stored: &[u8]) -> Result<(BatchKind, Bytes), CodecError> {
    let (kind, stored) = stored.split_first().ok_or(CodecError::Damaged)?;
    let kind = match kind {
        0 => BatchKind::Records,
        1 => BatchKind::Content,
        _ => return Err(CodecError::Damaged),
    };
    Ok((kind, codec::decode(stored)?))
}

fn member(link: &Link) -> [u8; MEMBER_BYTES] {
    let mut out = [0; MEMBER_BYTES];
    let (turn, id) = out.split_at_mut(4);
    turn.copy_from_slice(&link.turn.to_be_bytes());
    id.copy_from_slice(link.id.as_bytes());
    out
}

/// The turn and the id in a member. `None` if somebody else wrote it.
pub(super) fn parse_member(member: &[u8]) -> Option<(u32, Digest)> {
    let (turn, id) = member.split_first_chunk::<4>()?;
    Some((
        u32::from_be_bytes(*turn),
        Digest(<[u8; 32]>::try_from(id).ok()?),
    ))
}
