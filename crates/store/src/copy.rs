//! Copies everything from one store to another, whatever kinds they are. Owns what is skipped and
//! what is compared at the end. Never removes anything, and never writes to the source.
//!
//! A copy that was stopped is begun again: what the target has is not written twice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use plimsoll_model::Digest;

use super::batch::Link;
use super::error::StoreError;
use super::ticket::Ticket;
use super::{MEMBERS, Store, Take};

/// How many batches may be on their way to the target.
const ON_THE_WAY: usize = 16;
/// How many bytes of them, unless a single batch has more.
const BYTES_ON_THE_WAY: usize = 16 << 20;

/// Members of a set: turn and id.
type Members = Vec<(u32, Digest)>;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Blobs that were written.
    pub blobs: u64,
    /// Blobs that the target had.
    pub there: u64,
    /// Links.
    pub links: u64,
    /// Rows of the list of sessions.
    pub rows: u64,
}

/// What the target lacks although it was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Blobs.
    pub blobs: u64,
    /// Links.
    pub links: u64,
    /// Rows of the list of sessions.
    pub rows: u64,
}

impl Lacking {
    /// Whether it lacks anything.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// Copies everything that `from` holds, and waits until it is durable in `to`. Tells `told` from time
/// to time how far it is.
///
/// # Errors
/// Any error of either store. What was copied by then stays.
pub fn copy(from: &Store, to: &Store, told: &mut dyn FnMut(Copied)) -> Result<Copied, StoreError> {
    let mut copied = Copied::default();
    let mut on_the_way: VecDeque<(Ticket, usize)> = VecDeque::new();
    from.each(&mut |mut batch| {
        let ids: Vec<Digest> = batch.blobs.iter().map(|(id, _)| *id).collect();
        let mut there = to.blobs(&ids)?.into_iter().map(|blob| blob.is_some());
        batch.blobs.retain(|_| !there.next().unwrap_or(false));
        copied.blobs += batch.blobs.len() as u64;
        copied.there += (ids.len() - batch.blobs.len()) as u64;
        copied.links += batch.links.len() as u64;
        copied.rows += u64::from(batch.listed.is_some());
        // Blobs that are there are named again, so that they live as long as what is written now.
        batch.renewed = ids;
        // The queue of a store takes more than this.
        let size = batch.size();
        let bytes =
            |way: &VecDeque<(Ticket, usize)>| way.iter().map(|(_, size)| size).sum::<usize>();
        while on_the_way.len() >= ON_THE_WAY || bytes(&on_the_way) + size > BYTES_ON_THE_WAY {
            if on_the_way.is_empty() {
                break;
            }
            wait_for_first(&mut on_the_way)?;
        }
        on_the_way.push_back((to.commit(batch), size));
        told(copied);
        Ok(())
    })?;
    while !on_the_way.is_empty() {
        wait_for_first(&mut on_the_way)?;
    }
    Ok(copied)
}

fn wait_for_first(on_the_way: &mut VecDeque<(Ticket, usize)>) -> Result<(), StoreError> {
    let first = on_the_way.pop_front();
    first.map_or(Ok(()), |(ticket, _)| ticket.wait())
}

/// Compares a copy with its source: every blob byte for byte, every link that leads to something,
/// and the time of each session's row, which may be later in the copy.
///
/// # Errors
/// Any error of either store.
pub fn lacking(from: &Store, to: &Store) -> Result<Lacking, StoreError> {
    // Something may be handed over twice, and counts once.
    let (mut blobs, mut links) = (HashSet::new(), HashSet::new());
    from.each(&mut |batch| {
        let ids: Vec<Digest> = batch.blobs.iter().map(|(id, _)| *id).collect();
        let copies = to.blobs(&ids)?.into_iter().zip(&batch.blobs);
        let differ = copies.filter(|(copy, (_, value))| copy.as_ref() != Some(value));
        blobs.extend(differ.map(|(_, (id, _))| *id));
        let keys: BTreeSet<Digest> = batch.links.iter().map(|link| link.key).collect();
        let keys: Vec<Digest> = keys.into_iter().collect();
        let read = from
            .links(&keys, Take::ALL)?
            .into_iter()
            .zip(to.links(&keys, Take::ALL)?);
        let sets: BTreeMap<Digest, (Members, Members)> = keys.into_iter().zip(read).collect();
        let is_lacking = |link: &&Link| {
            let member = (link.turn, link.id);
            // What leads to nothing is not shown by either. Of a set that is larger than what is
            // read, the copy may show others.
            sets.get(&link.key).is_some_and(|(set, copy)| {
                set.contains(&member) && copy.len() < MEMBERS && !copy.contains(&member)
            })
        };
        links.extend(batch.links.iter().filter(is_lacking).copied());
        Ok(())
    })?;
    let copies = times(to)?;
    let later = |session: &Digest, at: u64| copies.get(session).is_some_and(|copy| *copy >= at);
    let rows = times(from)?;
    let differ = rows.iter().filter(|(session, at)| !later(session, **at));
    Ok(Lacking {
        blobs: blobs.len() as u64,
        links: links.len() as u64,
        rows: differ.count() as u64,
    })
}

/// The time of each session's row.
fn times(store: &Store) -> Result<HashMap<Digest, u64>, StoreError> {
    let mut times = HashMap::new();
    store.each_page(|page| {
        times.extend(page.iter().map(|row| (row.session, row.at)));
        Ok::<_, StoreError>(true)
    })?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::batch::{Batch, BatchKind, Listed};
    use super::super::memory::Memory;
    use super::super::redis;
    use super::super::tests::{noise, open, wait};
    use super::*;
    use plimsoll_model::blob_id;

    fn turn(number: u64) -> Batch {
        let bytes = noise(number, 700);
        let id = blob_id(&bytes);
        let session = blob_id(&(number % 7).to_le_bytes());
        Batch {
            links: vec![Link {
                key: session,
                id,
                turn: number as u32,
            }],
            listed: Some(Listed {
                session,
                at: number,
                id,
                row: Bytes::from(format!("turn {number}")),
            }),
            blobs: vec![(id, bytes)],
            ..Batch::default()
        }
    }

    fn said(number: u64) -> Batch {
        let bytes = noise(number + 1_000, 300_000);
        Batch {
            blobs: vec![(blob_id(&bytes), bytes)],
            kind: BatchKind::Content,
            ..Batch::default()
        }
    }

    #[test]
    fn a_copy_of_any_kind_holds_all_and_is_not_made_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut stores = vec![Store::Memory(Memory::default()), open(dir.path()).store];
        stores.extend(redis::tests::fresh().map(|new| Store::open(&new).unwrap().store));
        // From the first to the second and so on, and back to a new one.
        stores.push(Store::Memory(Memory::default()));
        for number in 0..40 {
            wait(stores[0].commit(turn(number))).unwrap();
        }
        for number in 0..8 {
            wait(stores[0].commit(said(number))).unwrap();
        }
        for pair in stores.windows(2) {
            let (from, to) = (&pair[0], &pair[1]);
            assert_eq!(
                lacking(from, to).unwrap(),
                Lacking {
                    blobs: 48,
                    links: 40,
                    rows: 7
                }
            );
            // As if an earlier copy had been stopped.
            wait(to.commit(turn(3))).unwrap();
            let mut told = 0;
            let copied = copy(from, to, &mut |_| told += 1).unwrap();
            assert_eq!((copied.blobs, copied.there), (47, 1));
            assert!(told > 1);
            assert!(!lacking(from, to).unwrap().any());
            let again = copy(from, to, &mut |_| {}).unwrap();
            assert_eq!((again.blobs, again.there), (0, 48));
            assert_eq!(
                from.sessions(None, 99).unwrap(),
                to.sessions(None, 99).unwrap()
            );
        }
        let kinds = |store: &Store| {
            let mut kinds = std::collections::BTreeMap::new();
            let each = &mut |batch: Batch| {
                kinds.extend(
                    batch
                        .blobs
                        .iter()
                        .map(|(id, _)| (*id, batch.kind == BatchKind::Content)),
                );
                Ok(())
            };
            store.each(each).unwrap();
            kinds
        };
        assert_eq!(kinds(stores.last().unwrap()), kinds(&stores[0]));
    }

    #[test]
    fn a_copy_that_lacks_something_or_holds_it_damaged_is_told() {
        let from = Store::Memory(Memory::default());
        let to = Store::Memory(Memory::default());
        for number in 0..3 {
            wait(from.commit(turn(number))).unwrap();
        }
        copy(&from, &to, &mut |_| {}).unwrap();
        wait(from.commit(turn(7))).unwrap();
        let found = lacking(&from, &to).unwrap();
        assert_eq!((found.blobs, found.links, found.rows), (1, 1, 1));
        assert!(found.any());
    }
}
