//! The way from the driver of a stream to its client, bounded by bytes. Owns the room in it, and
//! copies what waits there; never looks into a frame.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc};

use super::Gone;

/// Bytes that may wait for a slow client before the upstream is no longer read. A longer frame
/// waits alone.
const ROOM: u32 = 64 << 10;

/// The most bytes of frames that the client's side takes at once. A longer frame comes alone.
const PIECE: usize = 8 << 10;

/// What a frame takes beside its bytes.
const BESIDE: u32 = 64;

/// A frame, and the room that it takes until the client's side has it.
type Waiting = (Result<BytesMut, io::Error>, u32);

/// The driver's end. The queue itself has no bound: nothing is put in without room for it, but for
/// the one error that ends a stream.
#[derive(Clone)]
pub(super) struct Sender {
    queue: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
}

/// The client's end.
pub(super) struct Receiver {
    queue: mpsc::UnboundedReceiver<Waiting>,
    room: Arc<Semaphore>,
    /// What was taken off the queue and did not fit into the piece before it.
    kept: Option<Waiting>,
}

/// A way with all its room free.
pub(super) fn channel() -> (Sender, Receiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let sender = Sender {
        queue: sender,
        room: Arc::clone(&room),
    };
    let receiver = Receiver {
        queue: receiver,
        room,
        kept: None,
    };
    (sender, receiver)
}

impl Sender {
    /// Hands a frame over, once there is room for it.
    ///
    /// It is copied: a frame is a slice of one read of the upstream, for which the connection takes
    /// 8 KB and more, and while a slice waits here all of that stays in memory.
    pub(super) async fn send(&self, frame: &[u8]) -> Result<(), Gone> {
        let length = u32::try_from(frame.len()).unwrap_or(ROOM);
        let takes = length.saturating_add(BESIDE).min(ROOM);
        let room = self.room.acquire_many(takes).await.map_err(|_| Gone)?;
        room.forget();
        let frame = BytesMut::from(frame);
        self.queue.send((Ok(frame), takes)).map_err(|_| Gone)
    }

    /// Breaks the stream behind what was handed over. A client that has gone has its own end.
    pub(super) fn fail(&self, error: io::Error) {
        let _gone = self.queue.send((Err(error), 0));
    }

    /// Returns once the client has gone.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }
}

impl Receiver {
    /// The frames that wait, as one piece, or the error that ends the stream. One at a time they
    /// would cost the server's side and the client more than their bytes do.
    pub(super) async fn recv(&mut self) -> Option<Result<Bytes, io::Error>> {
        let (first, took) = match self.kept.take() {
            Some(kept) => kept,
            None => self.queue.recv().await?,
        };
        self.room.add_permits(took as usize);
        let mut piece = match first {
            Ok(frame) => frame,
            Err(error) => return Some(Err(error)),
        };
        while let Ok((next, took)) = self.queue.try_recv() {
            match next {
                Ok(frame) if piece.len() + frame.len() <= PIECE => {
                    self.room.add_permits(took as usize);
                    piece.extend_from_slice(&frame);
                }
                next => {
                    self.kept = Some((next, took));
                    break;
                }
            }
        }
        Some(Ok(piece.freeze()))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A driver that waits for room would else wait for ever.
        self.room.close();
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
        let sizes = [1, 300, PIECE - 301, 1, PIECE, 2 * PIECE, 7];
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
        assert_eq!(pieces, [PIECE, 1, PIECE, 2 * PIECE, 7]);
        assert_eq!(got, all);
        drop(sender);
        assert!(receiver.recv().await.is_none());
        // What was taken has given its room back.
        assert_eq!(receiver.room.available_permits(), ROOM as usize);
    }
}
