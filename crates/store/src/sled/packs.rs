//! How links lie in the engine: up to eight of them in one value. The engine keeps some hundred bytes
//! in memory for each page, in the cache or not, and a page has at most sixteen entries. With a link
//! for each entry there would be six times as many pages of links. Owns the tree `packs`. Never looks at
//! the blobs that links lead to.
//!
//! A pack is `key ‖ turn (u32, big-endian) ‖ id ‖ day (u16, big-endian)` for each of its
//! links, in their order. The day is that on which the link was last written, counted from 1970.
//! Its own key is as short as tells it from all links before it. The key of the first pack is one
//! zero.
//!
//! A pack that is full is split: the upper half is written first. If the lower half is lost to a
//! kill, the links of the upper half stand in both, and so a pack counts only up to the key of the
//! next one.

use std::collections::{HashMap, HashSet};
use std::iter::Peekable;
use std::ops::Bound;
use std::path::Path;

use ::sled::IVec;
use plimsoll_model::Digest;

use super::super::batch::{Link, MEMBERS, Member, Take};
use super::super::error::StoreError;
use super::trees::{Trees, guarded};

/// How many links a pack has at most. A pack is written anew for each link, so with sixteen of them
/// the log was twice as long, and resident memory no less.
pub(super) const PACK_LINKS: usize = 8;
const KEY_BYTES: usize = 68;
const ENTRY_BYTES: usize = KEY_BYTES + 2;
/// The key of the first pack. No link is before it.
const FIRST_PACK: [u8; 1] = [0];

/// A link as it stands in a pack.
type Entry = [u8; ENTRY_BYTES];

/// What was done to put a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutLink {
    /// It was not stored.
    pub(super) new: bool,
    /// It was written, perhaps only with a later day.
    pub(super) wrote: bool,
}

/// Links that stand together.
pub(super) struct Pack {
    pub(super) key: IVec,
    value: IVec,
    /// How many of the entries count.
    count: usize,
}

impl Pack {
    fn new((key, value): (IVec, IVec), next: Option<&[u8]>) -> Self {
        let entries = value.as_chunks::<ENTRY_BYTES>().0;
        let before = |next: &[u8]| entries.partition_point(|entry| &entry[..] < next);
        let count = next.map_or(entries.len(), before);
        Self { key, value, count }
    }

    fn entries(&self) -> &[Entry] {
        let entries = self.value.as_chunks::<ENTRY_BYTES>().0;
        entries.get(..self.count).unwrap_or(entries)
    }

    /// How many links it has.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Its links, each with its day.
    pub(super) fn links(&self) -> impl Iterator<Item = (Link, u16)> {
        self.entries().iter().filter_map(parse_entry)
    }
}

/// In which packs the links of a group were found to belong, so that putting them needs no second
/// look.
#[derive(Default)]
pub(super) struct Places {
    packs: HashMap<[u8; KEY_BYTES], Pack>,
    /// The keys of packs that were written since.
    written: HashSet<IVec>,
}

impl Places {
    /// The pack of a link, if it was looked for and is still as it was found.
    fn take(&mut self, link: &[u8; KEY_BYTES]) -> Option<Pack> {
        let pack = self.packs.remove(link)?;
        (!self.written.contains(&pack.key)).then_some(pack)
    }
}

/// Packs in their order.
pub(super) struct Packs(Peekable<::sled::Iter>);

impl Iterator for Packs {
    type Item = Result<Pack, ::sled::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.0.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        // An error is met again with the next pack.
        let next = self.0.peek().and_then(|next| next.as_ref().ok());
        Some(Ok(Pack::new(entry, next.map(|(key, _)| &**key))))
    }
}

impl Trees {
    /// All packs behind a key, or all of them.
    pub(super) fn packs_after(&self, last: Option<&[u8]>) -> Packs {
        let start = last.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (start, Bound::Unbounded);
        Packs(self.packs.range::<&[u8], _>(range).peekable())
    }

    /// The pack in which a link stands, or would stand. `None` if there is no pack before it. Its end
    /// is not cut off: after a kill it may repeat what the next pack has (see [`Trees::cut`]). This
    /// link never stands there, because its pack would be the next one.
    fn pack_of(&self, link: &[u8]) -> Result<Option<Pack>, ::sled::Error> {
        let found = self.packs.range(..=link).next_back().transpose()?;
        Ok(found.map(|found| Pack::new(found, None)))
    }

    /// This pack, up to where the next one begins.
    fn cut(&self, pack: Pack) -> Result<Pack, ::sled::Error> {
        let next = self.packs.get_gt(&pack.key)?;
        let next = next.as_ref().map(|(key, _)| &**key);
        Ok(Pack::new((pack.key, pack.value), next))
    }

    /// Writes a link, or its day if that is later.
    pub(super) fn put_link(
        &self,
        path: &Path,
        (link, day): (&Link, u16),
        places: &mut Places,
    ) -> Result<PutLink, StoreError> {
        let key = link_key(link);
        guarded(path, || {
            let entry = entry(&key, day);
            let put = |new| PutLink { new, wrote: true };
            let found = match places.take(&key) {
                Some(pack) => Some(pack),
                None => self.pack_of(&key)?,
            };
            let Some(mut pack) = found else {
                self.packs.insert(FIRST_PACK, &entry[..])?;
                return Ok(put(true));
            };
            // Only a full pack is split. If it repeats what the next pack has, its upper half would be
            // put over that one. A shorter pack may keep what it repeats, because readers cut it off.
            if pack.len() >= PACK_LINKS {
                pack = self.cut(pack)?;
            }
            let mut entries = pack.entries().to_vec();
            let place = entries.binary_search_by(|entry| entry[..KEY_BYTES].cmp(&key));
            match place {
                Ok(at) => match entries.get_mut(at) {
                    Some(known) if parse_day(&known[KEY_BYTES..]) < day => *known = entry,
                    _ => return Ok(PutLink::default()),
                },
                Err(at) => entries.insert(at, entry),
            }
            if entries.len() > PACK_LINKS {
                let upper = entries.split_off(entries.len() / 2);
                if let (Some(last), Some(first)) = (entries.last(), upper.first()) {
                    let key = shortest_between(last, first);
                    self.packs.insert(key, upper.as_flattened())?;
                }
            }
            self.packs.insert(&pack.key, entries.as_flattened())?;
            // What is looked for after this is found as it is.
            if !places.packs.is_empty() {
                places.written.insert(pack.key);
            }
            Ok(put(place.is_err()))
        })
    }

    /// Some members of a key's set whose blob is `stored`, in the order in which they are looked at. Reads no
    /// further than it has to, because what many sessions said alike fills many packs.
    pub(super) fn links(
        &self,
        path: &Path,
        key: &Digest,
        take: Take,
        stored: impl Fn(&Digest) -> Result<bool, StoreError>,
    ) -> Result<Vec<Member>, StoreError> {
        let (mut members, mut looked) = (Vec::new(), 0);
        let mut packs = guarded(path, || self.packs_of(key, take))?;
        while members.len() < take.most()
            && let Some(pack) = guarded(path, || packs.next().transpose())?
        {
            let those = pack.links().filter(|(link, _)| link.key == *key);
            let those: Vec<Member> = those.map(|(link, _)| (link.turn, link.id)).collect();
            for member in take.in_order(those.into_iter()) {
                if members.len() >= take.most() || looked >= MEMBERS {
                    return Ok(members);
                }
                looked += 1;
                if stored(&member.1)? {
                    members.push(member);
                }
            }
        }
        Ok(members)
    }

    /// The packs in which links of a key stand, from the end at which those that are wanted do.
    fn packs_of<'a>(
        &'a self,
        key: &'a Digest,
        take: Take,
    ) -> Result<Box<dyn Iterator<Item = Result<Pack, ::sled::Error>> + 'a>, ::sled::Error> {
        let of = key.as_bytes();
        // Behind all links of the key.
        let end = [&of[..], &[u8::MAX; ENTRY_BYTES]].concat();
        if let Take::Last(_) = take {
            let mut end = Some(IVec::from(&end[..]));
            return Ok(Box::new(std::iter::from_fn(move || {
                let pack = self.last_before(&end.take()?).transpose()?;
                // In front of a pack that begins before the key there are links of other keys.
                let first = pack.as_ref().ok().map(|pack| &pack.key);
                end = first.filter(|first| first.starts_with(of)).cloned();
                Some(pack)
            })));
        }
        let before = self.packs.range(..=&of[..]).next_back().transpose()?;
        let start = before.map_or_else(|| IVec::from(&FIRST_PACK), |(key, _)| key);
        // The last of them is not cut off. What it may repeat of the next one are links of other keys.
        let range = self.packs.range(&start[..]..&end[..]);
        Ok(Box::new(Packs(range.peekable())))
    }

    /// The last pack whose key is before `end`, up to there.
    fn last_before(&self, end: &[u8]) -> Result<Option<Pack>, ::sled::Error> {
        let mut last = self.packs.get_lt(end)?;
        // It may be split meanwhile. Its upper half is written first, so whoever finds the lower half alone finds
        // the upper one by looking again.
        while let Some((key, value)) = last {
            last = self.packs.get_gt(&key)?.filter(|(next, _)| **next < *end);
            if last.is_none() {
                return Ok(Some(Pack::new((key, value), Some(end))));
            }
        }
        Ok(None)
    }

    /// Hands over the turn and the id of every link.
    pub(super) fn each_member(
        &self,
        path: &Path,
        mut each: impl FnMut((u32, Digest)),
    ) -> Result<(), StoreError> {
        guarded(path, || {
            for pack in self.packs_after(None) {
                let pack = pack?;
                let links = pack.links();
                links.for_each(|(link, _)| each((link.turn, link.id)));
            }
            Ok(())
        })
    }

    /// The day of a link, if it is stored. Notes in which pack it belongs.
    pub(super) fn link_day(
        &self,
        path: &Path,
        link: &Link,
        places: &mut Places,
    ) -> Result<Option<u16>, StoreError> {
        let key = link_key(link);
        guarded(path, || {
            let Some(pack) = self.pack_of(&key)? else {
                return Ok(None);
            };
            let entries = pack.entries();
            let at = entries.binary_search_by(|entry| entry[..KEY_BYTES].cmp(&key));
            let found = at.ok().and_then(|at| entries.get(at));
            let day = found.map(|entry| parse_day(&entry[KEY_BYTES..]));
            places.packs.insert(key, pack);
            Ok(day)
        })
    }
}

/// All links of a value, whether or not they count.
pub(super) fn parse_pack(value: &[u8]) -> impl Iterator<Item = (Link, u16)> {
    value
        .as_chunks::<ENTRY_BYTES>()
        .0
        .iter()
        .filter_map(parse_entry)
}

fn parse_link(key: &[u8]) -> Option<Link> {
    let (of, rest) = key.split_first_chunk::<32>()?;
    let (turn, rest) = rest.split_first_chunk::<4>()?;
    let id = <[u8; 32]>::try_from(rest).ok()?;
    Some(Link {
        key: Digest(*of),
        id: Digest(id),
        turn: u32::from_be_bytes(*turn),
    })
}

/// A day as it stands behind a link.
fn parse_day(bytes: &[u8]) -> u16 {
    bytes.try_into().map_or(0, u16::from_be_bytes)
}

fn parse_entry(entry: &Entry) -> Option<(Link, u16)> {
    let (key, day) = entry.split_at(KEY_BYTES);
    Some((parse_link(key)?, parse_day(day)))
}

fn link_key(link: &Link) -> [u8; KEY_BYTES] {
    let mut out = [0; KEY_BYTES];
    let (key, rest) = out.split_at_mut(32);
    let (turn, id) = rest.split_at_mut(4);
    key.copy_from_slice(link.key.as_bytes());
    turn.copy_from_slice(&link.turn.to_be_bytes());
    id.copy_from_slice(link.id.as_bytes());
    out
}

fn entry(key: &[u8; KEY_BYTES], day: u16) -> Entry {
    let mut out = [0; ENTRY_BYTES];
    let (front, back) = out.split_at_mut(KEY_BYTES);
    front.copy_from_slice(key);
    back.copy_from_slice(&day.to_be_bytes());
    out
}

/// The shortest key behind `last` that is not behind `first`.
fn shortest_between<'a>(last: &Entry, first: &'a Entry) -> &'a [u8] {
    let pairs = first.iter().zip(last);
    let alike = pairs.take_while(|(first, last)| first == last).count();
    first.get(..=alike).unwrap_or(first)
}

#[cfg(test)]
mod tests;
