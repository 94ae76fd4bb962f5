//! The channel from the driver of a stream to its client, bounded by bytes. Owns the room in it and
//! copies what waits. Never looks into a frame.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc};

/// How many bytes may wait for a slow client before the upstream is no longer read. A longer frame
/// waits alone.
const ROOM: u32 = 64 << 10;

/// How many bytes of frames the client's side takes at once. A longer frame is taken alone.
const PIECE: usize = 8 << 10;

/// The memory that a frame takes besides its bytes.
const BESIDE: u32 = 64;

/// The client closed the connection.
pub(super) struct ClientGone;

/// A frame, and the room that it takes until the client's side takes it.
type WaitingFrame = (Result<BytesMut, io::Error>, u32);

/// The driver's end. The queue has no bound of its own: a frame enters only after it got room. The
/// one exception is the error that ends a stream.
#[derive(Clone)]
pub(super) struct Sender {
    queue: mpsc::UnboundedSender<WaitingFrame>,
    room: Arc<Semaphore>,
}

/// The client's end.
pub(super) struct Receiver {
    queue: mpsc::UnboundedReceiver<WaitingFrame>,
    room: Arc<Semaphore>,
    /// A frame that did not fit into the piece before it.
    kept: Option<WaitingFrame>,
}

/// Makes a channel that is empty.
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
    /// Waits for room and hands a frame over.
    ///
    /// The frame is copied. It is a slice of a buffer of 8 KB or more, and the whole buffer would
    /// stay in memory while the slice waits.
    pub(super) async fn send(&self, frame: &[u8]) -> Result<(), ClientGone> {
        let length = u32::try_from(frame.len()).unwrap_or(ROOM);
        let takes = length.saturating_add(BESIDE).min(ROOM);
        let room = self
            .room
            .acquire_many(takes)
            .await
            .map_err(|_| ClientGone)?;
        room.forget();
        let frame = BytesMut::from(frame);
        self.queue.send((Ok(frame), takes)).map_err(|_| ClientGone)
    }

    /// Ends the stream with an error, after the frames that wait. A client that has gone does not
    /// need it.
    pub(super) fn fail(&self, error: io::Error) {
        let _gone = self.queue.send((Err(error), 0));
    }

    /// Returns once the client has gone.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }
}

impl Receiver {
    /// Takes the frames that wait as one piece, or the error that ends the stream. Taking them one
    /// by one would cost the server and the client more than the bytes do.
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
        // Only frames that wait already are joined: to wait for more would delay the first.
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
        // A driver that waits for room would otherwise wait for ever.
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
