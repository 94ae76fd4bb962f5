//! The channel from the driver of a stream to its client, bounded by bytes. Owns the room in it and
//! copies what waits. Never looks into a frame.
//!
//! A queue of tokio's keeps room for 32 frames whether any waits or not, and a stream of which each frame
//! is read at once lasts as long as the others. This one holds what waits and nothing else.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, TryAcquireError};

/// How many bytes may wait for a slow client before the upstream is no longer read. A longer frame
/// waits alone.
const WAITING_BYTES: u32 = 32 << 10;

/// How many bytes of frames the client's side takes at once. A longer frame is taken alone. The server
/// queues 16 pieces for a client that doesn't read.
const PIECE_BYTES: usize = 4 << 10;

/// The memory that a frame takes besides its bytes.
const FRAME_OVERHEAD: u32 = 64;

/// A queue that has grown to more places than this is given up once it is empty.
const KEPT_PLACES: usize = 8;

/// The client closed the connection.
pub(super) struct ClientGone;

/// The driver's end. The queue has no bound of its own: a frame enters only after it got room. The
/// one exception is the error that ends a stream.
pub(super) struct Sender(Arc<Shared>);

/// The client's end.
pub(super) struct Receiver(Arc<Shared>);

/// What both ends share.
struct Shared {
    queue: Mutex<Queue>,
    /// The room that is left. Closed once the client has gone.
    room: Semaphore,
    /// Told once the client has gone.
    gone: Notify,
}

struct Queue {
    frames: VecDeque<BytesMut>,
    /// The error behind them, which ends the stream.
    error: Option<io::Error>,
    senders: usize,
    /// The client's side, if it waits.
    reader: Option<Waker>,
}

/// The room that a frame takes until the client's side takes it.
fn room(frame: &[u8]) -> u32 {
    let length = u32::try_from(frame.len()).unwrap_or(WAITING_BYTES);
    length.saturating_add(FRAME_OVERHEAD).min(WAITING_BYTES)
}

/// Takes the first frames as one piece. Returns it and the room that they took.
///
/// Only frames that wait already are joined: to wait for more would delay the first.
fn piece(frames: &mut VecDeque<BytesMut>) -> (Bytes, usize) {
    let (mut joined, mut length, mut taken) = (0, 0, 0);
    for frame in frames.iter() {
        if length > 0 && length + frame.len() > PIECE_BYTES {
            break;
        }
        joined += 1;
        length += frame.len();
        taken += room(frame) as usize;
    }
    let mut taking = frames.drain(..joined);
    let first = taking.next().unwrap_or_default();
    if joined <= 1 {
        return (first.freeze(), taken);
    }
    // Allocated at its exact size: spare capacity would stay in memory while a slow client doesn't read.
    let mut piece = BytesMut::with_capacity(length);
    piece.extend_from_slice(&first);
    taking.for_each(|frame| piece.extend_from_slice(&frame));
    (piece.freeze(), taken)
}

/// Makes a channel that is empty.
pub(super) fn channel() -> (Sender, Receiver) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            frames: VecDeque::new(),
            error: None,
            senders: 1,
            reader: None,
        }),
        room: Semaphore::new(WAITING_BYTES as usize),
        gone: Notify::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl Shared {
    /// Changes the queue and wakes the client's side.
    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let reader = {
            let mut queue = self.queue.lock();
            change(&mut queue);
            queue.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Sender {
    /// Waits for room and hands a frame over.
    pub(super) async fn send(&self, frame: &[u8]) -> Result<(), ClientGone> {
        let room = self.0.room.acquire_many(room(frame)).await;
        self.push(room.map_err(|_| ClientGone)?, frame);
        Ok(())
    }

    /// Hands a frame over if there is room for it. A client that doesn't read what waits misses it.
    pub(super) fn offer(&self, frame: &[u8]) -> Result<(), ClientGone> {
        match self.0.room.try_acquire_many(room(frame)) {
            Ok(room) => self.push(room, frame),
            Err(TryAcquireError::NoPermits) => {}
            Err(TryAcquireError::Closed) => return Err(ClientGone),
        }
        Ok(())
    }

    /// Puts a frame behind those that wait. Its room is given back when it is read.
    ///
    /// The frame is copied. It is a slice of a buffer of 8 KB or more, and the whole buffer would
    /// stay in memory while the slice waits.
    fn push(&self, room: SemaphorePermit<'_>, frame: &[u8]) {
        room.forget();
        let frame = BytesMut::from(frame);
        self.0.change(|queue| queue.frames.push_back(frame));
    }

    /// Ends the stream with an error, after the frames that wait. A client that has gone does not
    /// need it.
    pub(super) fn fail(&self, error: io::Error) {
        self.0.change(|queue| queue.error = Some(error));
    }

    /// Returns once the client has gone.
    pub(super) async fn closed(&self) {
        // Registers first, so that the end is not missed.
        let gone = self.0.gone.notified();
        if !self.0.room.is_closed() {
            gone.await;
        }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        self.0.queue.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.change(|queue| queue.senders -= 1);
    }
}

impl Receiver {
    /// Takes the frames that wait as one piece, or the error that ends the stream. Taking them one
    /// by one would cost the server and the client more than the bytes do.
    pub(super) async fn recv(&mut self) -> Option<Result<Bytes, io::Error>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, io::Error>>> {
        let mut queue = self.0.queue.lock();
        if queue.frames.is_empty() {
            if let Some(error) = queue.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if queue.senders == 0 {
                return Poll::Ready(None);
            }
            queue.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (piece, taken) = piece(&mut queue.frames);
        if queue.frames.is_empty() && queue.frames.capacity() > KEPT_PLACES {
            queue.frames = VecDeque::new();
        }
        drop(queue);
        self.0.room.add_permits(taken);
        Poll::Ready(Some(Ok(piece)))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A driver that waits for room would otherwise wait for ever.
        self.0.room.close();
        self.0.gone.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_keeps_nothing_of_the_read_that_it_came_with() {
        let (sender, mut receiver) = channel();
        let read = Bytes::from(vec![b'x'; 1 << 20]);
        let frame = read.slice(..300);
        assert!(sender.send(&frame).await.is_ok());
        drop(frame);
        assert!(read.is_unique());
        assert_eq!(receiver.recv().await.unwrap().unwrap(), "x".repeat(300));
    }

    #[tokio::test]
    async fn what_waits_comes_in_order_and_the_error_behind_it() {
        let (sender, mut receiver) = channel();
        let sizes = [
            1,
            300,
            PIECE_BYTES - 301,
            1,
            PIECE_BYTES,
            2 * PIECE_BYTES,
            7,
        ];
        let mut all = Vec::new();
        for (frame, &size) in (b'a'..).zip(&sizes) {
            let frame = vec![frame; size];
            assert!(sender.send(&frame).await.is_ok());
            all.extend(frame);
        }
        sender.fail(io::Error::other("cut"));
        let (mut got, mut pieces) = (Vec::new(), Vec::new());
        while let Ok(piece) = receiver.recv().await.unwrap() {
            pieces.push(piece.len());
            got.extend_from_slice(&piece);
        }
        assert_eq!(pieces, [PIECE_BYTES, 1, PIECE_BYTES, 2 * PIECE_BYTES, 7]);
        assert_eq!(got, all);
        drop(sender);
        assert!(receiver.recv().await.is_none());
        // What was taken has given its room back.
        assert_eq!(receiver.0.room.available_permits(), WAITING_BYTES as usize);
    }

    #[tokio::test]
    async fn a_client_that_leaves_is_noticed_by_whoever_waits_and_by_whoever_comes_later() {
        let (sender, receiver) = channel();
        let full = vec![b'x'; WAITING_BYTES as usize];
        assert!(sender.send(&full).await.is_ok());
        let other = sender.clone();
        let closed = tokio::spawn(async move { other.closed().await });
        let waits = tokio::spawn(async move { (sender.send(b"more").await.is_err(), sender) });
        tokio::task::yield_now().await;
        assert!(!closed.is_finished() && !waits.is_finished());
        drop(receiver);
        closed.await.unwrap();
        let (gone, sender) = waits.await.unwrap();
        assert!(gone && sender.send(b"more").await.is_err());
        sender.closed().await;
    }

    #[tokio::test]
    async fn what_is_offered_waits_for_no_room() {
        let (sender, mut receiver) = channel();
        let full = vec![b'x'; WAITING_BYTES as usize];
        assert!(sender.send(&full).await.is_ok());
        assert!(sender.offer(b"missed").is_ok());
        assert_eq!(receiver.recv().await.unwrap().unwrap(), full);
        assert!(sender.offer(b"heard").is_ok());
        assert_eq!(receiver.recv().await.unwrap().unwrap(), "heard");
        drop(receiver);
        assert!(sender.offer(b"gone").is_err());
    }

    #[tokio::test]
    async fn a_client_that_waits_hears_of_a_frame_and_of_the_end() {
        let (sender, mut receiver) = channel();
        let reads = tokio::spawn(async move {
            let first = receiver.recv().await;
            (first, receiver.recv().await)
        });
        tokio::task::yield_now().await;
        let other = sender.clone();
        assert!(other.send(b"one").await.is_ok());
        drop(sender);
        tokio::task::yield_now().await;
        assert!(!reads.is_finished());
        drop(other);
        let (first, last) = reads.await.unwrap();
        assert_eq!(first.unwrap().unwrap(), "one");
        assert!(last.is_none());
    }

    #[tokio::test]
    async fn room_for_many_frames_is_given_back_when_they_are_read() {
        let (sender, mut receiver) = channel();
        for _ in 0..100 {
            assert!(sender.send(b"x").await.is_ok());
        }
        assert_eq!(receiver.recv().await.unwrap().unwrap().len(), 100);
        assert!(receiver.0.queue.lock().frames.capacity() <= KEPT_PLACES);
    }
}
