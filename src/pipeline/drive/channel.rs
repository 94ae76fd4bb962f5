//! The way from the driver of a stream to its client, bounded by bytes. Owns the room in it; never
//! looks at a frame.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};

use super::Gone;

/// Bytes that may wait for a slow client before the upstream is no longer read. A longer frame
/// waits alone.
const ROOM: u32 = 64 << 10;

/// What a frame takes beside its bytes.
const FRAME: u32 = 64;

/// A frame, and the room that it takes until the client's side has it.
type Waiting = (Result<Bytes, io::Error>, u32);

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
    };
    (sender, receiver)
}

impl Sender {
    /// Hands a frame over, once there is room for it.
    pub(super) async fn send(&self, frame: Bytes) -> Result<(), Gone> {
        let length = u32::try_from(frame.len()).unwrap_or(ROOM);
        let takes = length.saturating_add(FRAME).min(ROOM);
        let room = self.room.acquire_many(takes).await.map_err(|_| Gone)?;
        room.forget();
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
    /// The next frame, or the error that ends the stream.
    pub(super) async fn recv(&mut self) -> Option<Result<Bytes, io::Error>> {
        let (frame, took) = self.queue.recv().await?;
        self.room.add_permits(took as usize);
        Some(frame)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A driver that waits for room would else wait for ever.
        self.room.close();
    }
}
