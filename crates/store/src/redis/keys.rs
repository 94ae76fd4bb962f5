//! What stands where in Redis: the names of keys, the form of values and members, and the commands
//! that write and read them. Never sends anything.
//!
//! | name | what it is |
//! |---|---|
//! | `prefix:b:id` | a blob: `kind (1) ‖ stored form` (see [`super::super::codec`]) |
//! | `prefix:l:key` | the links of a key: a sorted set in which all scores are 0, so that its order is that of the members' bytes, `turn (u32, big-endian) ‖ id (32)` |
//! | `prefix:r:session` | the row of a session: a sorted set of one member, `row ‖ 0 ‖ 0 ‖ id (32)`, by its time. In the row each byte 0 is followed by a byte 255, so that members are sorted as rows are |
//! | `prefix:k` | a set of the names of the keys under which something is sealed (see [`super::super::sealing`]) |
//! | `prefix:t` | the mark of the tenant key under which sessions are found (see [`super::super::key_mark`]) |
//! | `prefix:s:part` | a part of the list: a sorted set of the sessions whose digest begins with `part`, by the time of the row |
//!
//! Ids, keys and sessions are digests in 32 bytes, so that a cluster spreads the names.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_model::Digest;
use redis::Cmd;

use super::super::batch::{Batch, BatchKind, Link, Listed, Take};
use super::super::codec::{self, CodecError, Encoder};
use super::super::key_mark::KeyMark;
use super::super::sealing::{KeyName, Seals};

/// How many bytes a member takes.
const MEMBER_BYTES: usize = 36;

/// The names of keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// How many parts the list of sessions has, so that a cluster can spread it.
pub(super) const PARTS: u8 = 16;

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

    /// The name of the row of a session.
    pub(super) fn row(&self, session: &Digest) -> Vec<u8> {
        self.name(":r:", session)
    }

    /// The name of a part of the list.
    pub(super) fn part(&self, part: u8) -> Vec<u8> {
        format!("{}:s:{part:x}", self.prefix).into_bytes()
    }

    fn seals(&self) -> String {
        format!("{}:k", self.prefix)
    }

    /// Notes that something is sealed under a key.
    pub(super) fn note_seal(&self, name: &KeyName) -> Cmd {
        let mut command = redis::cmd("SADD");
        command.arg(self.seals()).arg(name.bytes());
        command
    }

    /// Reads the names of keys under which something is sealed.
    pub(super) fn read_seals(&self) -> Cmd {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(self.seals());
        command
    }

    /// The name of the mark of the tenant key.
    pub(super) fn mark(&self) -> String {
        format!("{}:t", self.prefix)
    }

    /// Writes that mark.
    pub(super) fn write_mark(&self, mark: &KeyMark) -> Cmd {
        let mut command = redis::cmd("SET");
        command.arg(self.mark()).arg(mark.to_string());
        command
    }

    /// Reads that mark.
    pub(super) fn read_mark(&self) -> Cmd {
        let mut command = redis::cmd("GET");
        command.arg(self.mark());
        command
    }

    /// Counts the sessions in each part of the list.
    pub(super) fn count_rows(&self) -> Vec<Cmd> {
        let count = |part| {
            let mut command = redis::cmd("ZCARD");
            command.arg(self.part(part));
            command
        };
        (0..PARTS).map(count).collect()
    }

    /// The digest in the name of a key of this kind.
    pub(super) fn digest_in(&self, kind: char, name: &[u8]) -> Option<Digest> {
        let prefix = format!("{}:{kind}:", self.prefix);
        let digest = name.strip_prefix(prefix.as_bytes())?;
        Some(Digest(<[u8; 32]>::try_from(digest).ok()?))
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

    /// Reads so many members of a set, behind the first `from` of them, or before the last `from` of them.
    pub(super) fn read_links(&self, key: &Digest, take: Take, from: usize, count: usize) -> Cmd {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.links(key));
        match take {
            Take::First(_) => command.arg(from).arg(from + count - 1),
            // A place before the end is told by its distance from it.
            Take::Last(_) => command
                .arg(format!("-{}", from + count))
                .arg(format!("-{}", from + 1)),
        };
        command
    }

    /// Reads all members of the set with this name.
    pub(super) fn read_set(name: &[u8]) -> Cmd {
        let mut command = redis::cmd("ZRANGE");
        command.arg(name).arg(0).arg(-1);
        command
    }

    /// Reads the value with this name.
    pub(super) fn read_value(name: &[u8]) -> Cmd {
        let mut command = redis::cmd("GET");
        command.arg(name);
        command
    }

    /// Reads the row with this name.
    pub(super) fn read_row_named(name: &[u8]) -> Cmd {
        let mut command = redis::cmd("ZRANGE");
        command.arg(name).arg(-1).arg(-1).arg("WITHSCORES");
        command
    }

    /// Reads the row of a session.
    pub(super) fn read_row(&self, session: &Digest) -> Cmd {
        Self::read_row_named(&self.row(session))
    }

    /// Reads a part of the list from a time down, behind `from` sessions of it.
    pub(super) fn read_part(&self, part: u8, time: Option<u64>, from: usize, most: usize) -> Cmd {
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(self.part(part));
        match time {
            Some(time) => command.arg(time),
            None => command.arg("+inf"),
        };
        command
            .arg("-inf")
            .arg("WITHSCORES")
            .arg("LIMIT")
            .arg(from)
            .arg(most);
        command
    }

    /// The pattern of the names of all keys of this kind.
    pub(super) fn all(&self, kind: char) -> Vec<u8> {
        // A prefix holds no character that means something in a pattern.
        format!("{}:{kind}:*", self.prefix).into_bytes()
    }

    /// Removes a blob.
    pub(super) fn remove_blob(&self, id: &Digest) -> Cmd {
        let mut command = redis::cmd("UNLINK");
        command.arg(self.blob(id));
        command
    }

    /// Removes the row of a session, but not from the list.
    pub(super) fn remove_row(&self, session: &Digest) -> Cmd {
        let mut command = redis::cmd("UNLINK");
        command.arg(self.row(session));
        command
    }

    /// Removes a session from the list.
    pub(super) fn unlist(&self, session: &Digest) -> Cmd {
        let mut listed = redis::cmd("ZREM");
        listed
            .arg(self.part(part_of(session)))
            .arg(session.as_bytes());
        listed
    }

    /// Writes a link, which changes nothing if it is there.
    pub(super) fn write_link(&self, link: &Link) -> Cmd {
        let mut command = redis::cmd("ZADD");
        command.arg(self.links(&link.key)).arg(0).arg(&member(link));
        command
    }

    /// Removes a link.
    pub(super) fn remove_link(&self, link: &Link) -> Cmd {
        let mut command = redis::cmd("ZREM");
        command.arg(self.links(&link.key)).arg(&member(link));
        command
    }

    /// Writes a row, unless the session has a newer one. Whoever does the same in whatever order
    /// comes to the same.
    fn write_row(&self, listed: &Listed, age: Option<u64>) -> Vec<Cmd> {
        let name = self.row(&listed.session);
        let mut put = redis::cmd("ZADD");
        put.arg(&name)
            .arg("GT")
            .arg(listed.at)
            .arg(row_member(listed));
        // The last has the latest time, and of several the greatest bytes.
        let mut trim = redis::cmd("ZREMRANGEBYRANK");
        trim.arg(&name).arg(0).arg(-2);
        let part = self.part(part_of(&listed.session));
        let mut list = redis::cmd("ZADD");
        list.arg(&part)
            .arg("GT")
            .arg(listed.at)
            .arg(listed.session.as_bytes());
        let mut commands = vec![put, trim, list];
        commands.push(lives(name, age));
        commands
    }

    /// Writes a batch: blobs before links, so that one server that stops in between has no link
    /// without its blob. Between those of a cluster there is no order, and readers leave such links
    /// out. Everything that it names lives for `age` from now on.
    pub(super) fn write(
        &self,
        batch: &Batch,
        age: Age,
        encoder: &mut Encoder,
    ) -> Result<Vec<Cmd>, CodecError> {
        let age = age.map(|age| age.as_secs().max(1));
        let mut commands = Vec::new();
        for (id, value) in &batch.blobs {
            let stored = encoder.encode(id, value)?;
            let value = [&[byte_of(batch.kind)], stored.as_slice()].concat();
            let mut command = redis::cmd("SET");
            command.arg(self.blob(id)).arg(value);
            if let Some(age) = age {
                command.arg("EX").arg(age);
            }
            commands.push(command);
        }
        for id in &batch.renewed {
            commands.push(lives(self.blob(id), age));
        }
        for link in &batch.links {
            commands.push(self.write_link(link));
            commands.push(lives(self.links(&link.key), age));
        }
        if let Some(listed) = &batch.listed {
            commands.extend(self.write_row(listed, age));
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

/// The value of the blob with this id. An unknown kind is an unknown version.
pub(super) fn blob_value(
    seals: &Seals,
    id: &Digest,
    stored: &[u8],
) -> Result<(BatchKind, Bytes), CodecError> {
    let (kind, stored) = stored.split_first().ok_or(CodecError::Damaged)?;
    let kind = match kind {
        0 => BatchKind::Records,
        1 => BatchKind::Content,
        kind => return Err(CodecError::Version(*kind)),
    };
    Ok((kind, codec::decode(seals, id, stored)?))
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

/// Lets what has this name live for so many seconds from now on, or for ever. It may have been
/// written under another age.
fn lives(name: Vec<u8>, age: Option<u64>) -> Cmd {
    let mut command = redis::cmd(if age.is_some() { "EXPIRE" } else { "PERSIST" });
    command.arg(name);
    if let Some(age) = age {
        command.arg(age);
    }
    command
}

/// The part of the list that has a session.
fn part_of(session: &Digest) -> u8 {
    session.as_bytes().first().map_or(0, |byte| byte / PARTS)
}

fn row_member(listed: &Listed) -> Vec<u8> {
    let mut member = Vec::with_capacity(listed.row.len() + 2 + 32);
    for byte in &listed.row {
        member.push(*byte);
        if *byte == 0 {
            member.push(255);
        }
    }
    member.extend_from_slice(&[0, 0]);
    member.extend_from_slice(listed.id.as_bytes());
    member
}

/// The row in a member. `None` if somebody else wrote it.
pub(super) fn parse_row(session: Digest, at: u64, member: &[u8]) -> Option<Listed> {
    let (rest, id) = member.split_last_chunk::<32>()?;
    let escaped = rest.strip_suffix(&[0, 0])?;
    let mut row = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        row.push(*byte);
        if *byte == 0 && bytes.next() != Some(&255) {
            return None;
        }
    }
    Some(Listed {
        session,
        at,
        id: Digest(*id),
        row: row.into(),
    })
}
