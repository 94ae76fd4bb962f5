//! Lines on their way to a writer that may be slow, full or gone: a bounded queue and a thread
//! behind it. Owns the queue, and counts the lines that it loses. Never blocks the caller and never
//! fails.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How many bytes may wait. What comes on top of them is lost.
const ROOM: usize = 1 << 20;
/// A queue that was longer than this gives its memory back after it was written.
const KEPT: usize = 64 << 10;
/// The pause after a writer took nothing.
const PAUSE: Duration = Duration::from_millis(10);

/// Where lines are put. Clones share one queue.
#[derive(Clone)]
pub struct Lines(Arc<SharedQueue>);

struct SharedQueue {
    queue: Mutex<Queue>,
    /// Signals that something waits.
    waits: Condvar,
    /// Signals that nothing waits any more.
    idle: Condvar,
    /// Is told how many lines were lost.
    lost: fn(u64),
}

#[derive(Default)]
struct Queue {
    waiting: Vec<u8>,
    /// Whether the thread holds lines that are not written yet.
    writing: bool,
}

impl Lines {
    /// Starts the thread that writes. It ends only with the process, because it may be stuck in a
    /// write.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(writer: impl Write + Send + 'static, lost: fn(u64)) -> io::Result<Self> {
        let shared = Arc::new(SharedQueue {
            queue: Mutex::default(),
            waits: Condvar::new(),
            idle: Condvar::new(),
            lost,
        });
        let writing = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writing.write(writer))?;
        Ok(Self(shared))
    }

    /// Puts whole lines behind those that wait, or loses them.
    pub fn put(&self, lines: &[u8]) {
        let mut queue = self.0.queue.lock();
        if queue.waiting.len() + lines.len() > ROOM {
            drop(queue);
            (self.0.lost)(count(lines));
            return;
        }
        queue.waiting.extend_from_slice(lines);
        drop(queue);
        self.0.waits.notify_one();
    }

    /// Waits until all lines were written or lost, but no longer than `wait`.
    pub fn flush(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut queue = self.0.queue.lock();
        while queue.writing || !queue.waiting.is_empty() {
            if self.0.idle.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }
}

impl SharedQueue {
    fn write(&self, mut writer: impl Write) {
        let mut lines = Vec::new();
        loop {
            self.next(&mut lines);
            let written = write_all(&mut writer, &lines);
            let unsaid = lines.get(written..).unwrap_or_default();
            if !unsaid.is_empty() {
                (self.lost)(count(unsaid));
            }
        }
    }

    /// Waits for lines and takes all of them.
    fn next(&self, lines: &mut Vec<u8>) {
        lines.clear();
        lines.shrink_to(KEPT);
        let mut queue = self.queue.lock();
        queue.writing = false;
        while queue.waiting.is_empty() {
            self.idle.notify_all();
            self.waits.wait(&mut queue);
        }
        queue.writing = true;
        std::mem::swap(&mut queue.waiting, lines);
    }
}

/// A subscriber writes line by line.
impl Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.put(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes until a failure. Returns how many bytes were written. A terminal or pipe that another
/// process made non-blocking is tried again, and new lines wait in the queue meanwhile.
fn write_all(writer: &mut impl Write, lines: &[u8]) -> usize {
    let mut written = 0;
    while let Some(rest) = lines.get(written..).filter(|rest| !rest.is_empty()) {
        match writer.write(rest) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(_) => break,
        }
    }
    written
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Writes what it is allowed to, call by call: so many bytes, or a failure.
    struct Doled {
        calls: Receiver<Result<usize, ErrorKind>>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Doled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.calls.recv() {
                Ok(Ok(most)) => {
                    let taken = &bytes[..most.min(bytes.len())];
                    self.written.send(taken.to_vec()).unwrap();
                    Ok(taken.len())
                }
                Ok(Err(kind)) => Err(kind.into()),
                Err(_) => Err(ErrorKind::BrokenPipe.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn doled() -> (Sender<Result<usize, ErrorKind>>, Receiver<Vec<u8>>, Doled) {
        let (call, calls) = channel();
        let (written, seen) = channel();
        (call, seen, Doled { calls, written })
    }

    #[test]
    fn lines_arrive_whole_and_in_order_through_short_and_refused_writes() {
        let (call, seen, writer) = doled();
        let lines = Lines::start(writer, |_| panic!("nothing is lost")).unwrap();
        lines.put(b"one\n");
        for step in [
            Ok(2),
            Err(ErrorKind::WouldBlock),
            Err(ErrorKind::Interrupted),
            Ok(9),
        ] {
            call.send(step).unwrap();
        }
        lines.flush(SOON);
        lines.put(b"two\n");
        call.send(Ok(9)).unwrap();
        lines.flush(SOON);
        assert_eq!(seen.try_iter().collect::<Vec<_>>().concat(), b"one\ntwo\n");
    }

    #[test]
    fn a_stuck_writer_blocks_nobody_and_what_has_no_room_is_counted() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let (call, seen, writer) = doled();
        let lines = Lines::start(writer, |count| {
            LOST.fetch_add(count, Ordering::Relaxed);
        })
        .unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..3_000 {
            lines.put(&line);
        }
        lines.flush(Duration::from_millis(1));
        let lost = LOST.load(Ordering::Relaxed);
        // One queue's worth is in hand at most, and one waits.
        assert!((952..=1_976).contains(&lost), "{lost}");
        for _ in 0..2 {
            let _enough = call.send(Ok(usize::MAX));
        }
        drop(call);
        lines.flush(SOON);
        let kept: usize = seen.try_iter().map(|bytes| bytes.len()).sum();
        let lost = LOST.load(Ordering::Relaxed);
        assert_eq!(kept as u64 + lost * 1024, 3_000 * 1024);
    }

    #[test]
    fn a_broken_writer_loses_what_it_did_not_take() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let (call, _seen, writer) = doled();
        let lines = Lines::start(writer, |count| {
            LOST.fetch_add(count, Ordering::Relaxed);
        })
        .unwrap();
        call.send(Ok(5)).unwrap();
        call.send(Err(ErrorKind::StorageFull)).unwrap();
        lines.put(b"one\ntwo\nthree\n");
        lines.flush(SOON);
        assert_eq!(LOST.load(Ordering::Relaxed), 2);
        drop(call);
        lines.put(b"four\n");
        lines.flush(SOON);
        assert_eq!(LOST.load(Ordering::Relaxed), 3);
    }
}
