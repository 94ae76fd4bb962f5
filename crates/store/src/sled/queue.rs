//! What waits for the committer: the batches of each owner in the order in which they were handed
//! over, and the owners in turn. Owns how a long batch is cut into pieces, and that it succeeds or
//! fails as one. Never writes anything, and bounds nothing: the overlay does.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use plimsoll_model::{Digest, Turns};

use super::super::batch::Batch;
use super::super::error::StoreError;
use super::super::ticket::{Acknowledge, Ticket};
use super::writes::blob_operations;

/// How many operations a group has, and one piece more at most. Each group waits for the disk once, and whoever comes
/// meanwhile waits for the whole group.
const GROUP_OPERATIONS: usize = 128;
/// How many operations an owner's turn has, and a piece of a batch: several owners then share a group.
const TURN_OPERATIONS: usize = GROUP_OPERATIONS / 4;

/// A piece of a batch on its way to disk. Most batches are one piece.
pub(super) struct Piece {
    pub(super) batch: Batch,
    pub(super) end: PieceEnd,
}

/// What becomes of a piece.
pub(super) struct PieceEnd {
    /// Why a piece of the same batch failed.
    failed: Arc<OnceLock<StoreError>>,
    /// The other end of the batch's ticket, if this is its last piece.
    last: Option<Acknowledge>,
}

/// The end of the queue at which batches are handed over.
pub(super) struct Queue(Arc<Line>);

/// The committer's end. When it goes, so does everything that waits, and the tickets say so.
pub(super) struct Pieces(Arc<Line>);

struct Line {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

/// What waits, while nothing comes or goes.
pub(super) struct Open<'a> {
    waiting: MutexGuard<'a, Waiting>,
    came: &'a Condvar,
}

/// What waits, each piece with its number, and whether more may come.
struct Waiting {
    owned: Turns<Digest, (u64, Piece)>,
    /// What has no owner.
    common: VecDeque<(u64, Piece)>,
    /// How many pieces were handed over.
    count: u64,
    closed: bool,
}

/// Why there is no piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nothing {
    /// None has come in time.
    Yet,
    /// None will come, because the queue was closed.
    More,
}

/// Makes a queue.
pub(super) fn queue() -> (Queue, Pieces) {
    let line = Arc::new(Line {
        waiting: Mutex::new(Waiting::empty()),
        came: Condvar::new(),
    });
    (Queue(Arc::clone(&line)), Pieces(line))
}

/// The pieces of a batch, and its ticket. A batch that fits into a turn is one piece, and so is one of no
/// owner, because nobody passes between its pieces.
pub(super) fn pieces(batch: Batch) -> (Vec<Piece>, Ticket) {
    let (acknowledge, ticket) = Ticket::waiting();
    let cut = match batch.owner {
        Some(_) => batch.pieces(TURN_OPERATIONS, blob_operations),
        None => vec![batch],
    };
    let failed = Arc::new(OnceLock::new());
    let piece = |batch: Batch| Piece {
        batch,
        end: PieceEnd {
            failed: Arc::clone(&failed),
            last: None,
        },
    };
    let mut pieces: Vec<Piece> = cut.into_iter().map(piece).collect();
    if let Some(piece) = pieces.last_mut() {
        piece.end.last = Some(acknowledge);
    }
    (pieces, ticket)
}

/// The batches of some pieces, and their ends.
pub(super) fn taken_apart(pieces: Vec<Piece>) -> (Vec<Batch>, Vec<PieceEnd>) {
    let pieces = pieces.into_iter();
    pieces.map(|piece| (piece.batch, piece.end)).unzip()
}

impl PieceEnd {
    /// Whether the batch ends with this piece.
    pub(super) fn is_last(&self) -> bool {
        self.last.is_some()
    }

    /// Why an earlier piece of the batch failed. The rest of it must not be written then: a row would
    /// stand for a record that is not there.
    pub(super) fn failed(&self) -> Option<&StoreError> {
        self.failed.get()
    }

    /// Ends the piece, and with the last one the batch. A batch that fails is counted once, before
    /// whoever waits for it learns of it.
    pub(super) fn send(self, outcome: Result<(), StoreError>, count: &AtomicU64) {
        if let Err(error) = outcome
            && self.failed.set(error).is_ok()
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(acknowledge) = self.last {
            let failed = self.failed.get().cloned();
            acknowledge.send(failed.map_or(Ok(()), Err));
        }
    }
}

impl Queue {
    /// What waits. `None` once the queue is closed.
    pub(super) fn open(&self) -> Option<Open<'_>> {
        let waiting = self.0.waiting.lock();
        let came = &self.0.came;
        (!waiting.closed).then_some(Open { waiting, came })
    }

    /// Closes the queue. The committer still gets what waits. Returns false if it was closed before.
    pub(super) fn close(&self) -> bool {
        let before = std::mem::replace(&mut self.0.waiting.lock().closed, true);
        self.0.came.notify_one();
        !before
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.close();
    }
}

impl Open<'_> {
    /// Hands over the pieces of a batch, in their order.
    pub(super) fn put(mut self, pieces: Vec<Piece>) {
        pieces.into_iter().for_each(|piece| self.waiting.put(piece));
        drop(self.waiting);
        self.came.notify_one();
    }
}

impl Pieces {
    /// The next piece, without waiting for one.
    fn take(&self) -> Option<Piece> {
        self.0.waiting.lock().take()
    }

    /// The next piece. Waits so long for one.
    pub(super) fn wait(&self, patience: Duration) -> Result<Piece, Nothing> {
        let mut waiting = self.0.waiting.lock();
        let nothing = |waiting: &mut Waiting| waiting.is_empty() && !waiting.closed;
        self.0.came.wait_while_for(&mut waiting, nothing, patience);
        let why = if waiting.closed {
            Nothing::More
        } else {
            Nothing::Yet
        };
        waiting.take().ok_or(why)
    }

    /// A group that begins with a piece. Others that wait are added until it has [`GROUP_OPERATIONS`].
    pub(super) fn group(&self, first: Piece) -> Vec<Piece> {
        let mut operations = first.batch.operations();
        let mut group = vec![first];
        while operations < GROUP_OPERATIONS {
            let Some(next) = self.take() else { break };
            operations += next.batch.operations();
            group.push(next);
        }
        group
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        let gone = std::mem::replace(&mut *waiting, Waiting::empty());
        waiting.closed = true;
        drop(waiting);
        // Whoever waits for one of these learns of it without the lock.
        drop(gone);
    }
}

impl Waiting {
    fn empty() -> Self {
        Self {
            owned: Turns::new(TURN_OPERATIONS),
            common: VecDeque::new(),
            count: 0,
            closed: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.common.is_empty() && self.owned.is_empty()
    }

    fn put(&mut self, piece: Piece) {
        self.count += 1;
        match piece.batch.owner {
            Some(owner) => {
                let operations = piece.batch.operations();
                self.owned.put(owner, operations, (self.count, piece));
            }
            None => self.common.push_back((self.count, piece)),
        }
    }

    /// Takes the next piece of the owner whose turn it is. What has no owner is taken once nothing is
    /// left that was handed over before it. Until then others, handed over later, have their turns.
    fn take(&mut self) -> Option<Piece> {
        let common = self.common.front().map(|(number, _)| *number);
        let before = |common| self.owned.firsts().any(|(number, _)| *number < common);
        let next = if common.is_none_or(before) {
            self.owned.take()
        } else {
            self.common.pop_front()
        };
        next.map(|(_, piece)| piece)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use plimsoll_model::blob_id;

    use super::*;

    /// A batch that takes a whole turn, and its name.
    fn put(queue: &Queue, owner: Option<u8>, name: u8) -> Ticket {
        let name = Bytes::from(vec![name]);
        let id = blob_id(&name);
        let batch = Batch {
            blobs: vec![(id, name)],
            renewed: vec![id; TURN_OPERATIONS - 1],
            owner: owner.map(|owner| blob_id(&[owner])),
            ..Batch::default()
        };
        let (pieces, ticket) = pieces(batch);
        queue.open().unwrap().put(pieces);
        ticket
    }

    fn name(piece: &Piece) -> u8 {
        piece.batch.blobs[0].1[0]
    }

    fn all(pieces: &Pieces) -> Vec<u8> {
        std::iter::from_fn(|| pieces.take().as_ref().map(name)).collect()
    }

    fn operations(pieces: &[Piece]) -> Vec<usize> {
        let pieces = pieces.iter();
        pieces.map(|piece| piece.batch.operations()).collect()
    }

    #[test]
    fn owners_take_turns_and_what_has_none_waits_for_all_before_it() {
        let (queue, pieces) = queue();
        let owners = [
            Some(1),
            Some(1),
            Some(1),
            None,
            Some(2),
            Some(1),
            None,
            Some(3),
        ];
        for (name, owner) in (0..).zip(owners) {
            drop(put(&queue, owner, name));
        }
        assert_eq!(all(&pieces), [0, 4, 7, 1, 2, 3, 5, 6]);
    }

    #[test]
    fn a_queue_that_is_closed_hands_out_what_waits() {
        let (queue, pieces) = queue();
        let wait = |seconds| pieces.wait(Duration::from_secs(seconds));
        assert_eq!(wait(0).err(), Some(Nothing::Yet));
        drop(put(&queue, Some(1), 7));
        assert!(queue.close() && !queue.close() && queue.open().is_none());
        assert_eq!(wait(60).ok().as_ref().map(name), Some(7));
        assert_eq!(wait(60).err(), Some(Nothing::More));
    }

    #[test]
    fn what_waits_for_a_committer_that_went_is_refused() {
        let (queue, pieces) = queue();
        let tickets = [put(&queue, Some(1), 0), put(&queue, None, 1)];
        drop(pieces);
        assert!(queue.open().is_none());
        for ticket in tickets {
            assert_eq!(ticket.wait(), Err(StoreError::Closed));
        }
    }

    #[test]
    fn whoever_comes_while_batches_of_others_are_written_waits_for_few_operations() {
        // One owner with a long batch, and four owners with many short ones.
        for (owners, length) in [(1, 8_000), (4, 100), (4, 20)] {
            let (queue, pieces) = queue();
            for number in 0..8_000 / length {
                let batch = Batch {
                    renewed: vec![blob_id(b"x"); length],
                    owner: Some(blob_id(&[(number % owners) as u8])),
                    ..Batch::default()
                };
                let (cut, _ticket) = super::pieces(batch);
                queue.open().unwrap().put(cut);
            }
            let group = pieces.group(pieces.take().unwrap());
            let first: usize = operations(&group).iter().sum();
            assert!((128..160).contains(&first), "{length}");
            drop(put(&queue, Some(9), 7));
            let mut before = 0;
            loop {
                let group = pieces.group(pieces.take().unwrap());
                before += operations(&group).iter().sum::<usize>();
                if group.iter().any(|piece| !piece.batch.blobs.is_empty()) {
                    break;
                }
            }
            assert!(before < 320, "{before} operations for {owners} of {length}");
        }
    }

    #[test]
    fn a_batch_ends_with_its_last_piece_and_fails_with_any() {
        let long = || Batch {
            renewed: vec![blob_id(b"x"); 4 * TURN_OPERATIONS + 1],
            owner: Some(blob_id(b"o")),
            ..Batch::default()
        };
        let (pieces, ticket) = super::pieces(long());
        let last: Vec<bool> = pieces.iter().map(|piece| piece.end.is_last()).collect();
        assert_eq!(last, [false, false, false, false, true]);
        let (turn, rest) = (TURN_OPERATIONS, 1);
        assert_eq!(operations(&pieces), [turn, turn, turn, turn, rest]);
        let count = AtomicU64::new(0);
        let ends = pieces.into_iter().map(|piece| piece.end);
        ends.for_each(|end| end.send(Ok(()), &count));
        assert_eq!((ticket.wait(), count.load(Ordering::Relaxed)), (Ok(()), 0));

        let (pieces, ticket) = super::pieces(long());
        let mut ends = pieces.into_iter().map(|piece| piece.end);
        let first = ends.next().unwrap();
        first.send(Err(StoreError::Busy), &count);
        let second = ends.next().unwrap();
        assert_eq!(second.failed(), Some(&StoreError::Busy));
        second.send(Err(StoreError::Degraded), &count);
        ends.for_each(|end| end.send(Ok(()), &count));
        assert_eq!(
            ticket.wait(),
            Err(StoreError::Busy),
            "the first one says why"
        );
        assert_eq!(count.load(Ordering::Relaxed), 1, "the batch counts once");

        // What has no owner is not cut, and neither is what fits into a turn.
        let common = Batch {
            owner: None,
            ..long()
        };
        let mut short = long();
        short.renewed.truncate(TURN_OPERATIONS);
        for whole in [common, short] {
            let whole_operations = whole.operations();
            let (pieces, _) = super::pieces(whole);
            assert_eq!(operations(&pieces), [whole_operations]);
        }
    }
}
