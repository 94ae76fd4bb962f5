//! Where log lines go and what they look like: stderr, as text or JSON. Owns the subscriber and the
//! panic hook. Never decides what is logged, and never waits for a reader.

use std::any::Any;
use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_proxy::record;
use tracing_subscriber::EnvFilter;

use super::lines::Lines;
use super::output::harmless;
use crate::config::{LogFormat, LogSection};

/// How long the last lines of a process may take to be written.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The log of the process. Dropping it waits a moment for the last lines.
#[must_use]
pub struct Logs(Lines);

impl Drop for Logs {
    fn drop(&mut self) {
        self.0.flush(LAST_LINES);
    }
}

/// Sets up logging for the process.
///
/// # Errors
/// If the level can't be read, or logging was set up before.
pub fn start(log: &LogSection) -> anyhow::Result<Logs> {
    let filter = EnvFilter::builder()
        .parse(&log.level)
        .context("can't read log.level")?;
    let queue = Lines::start(stderr(), record::log_lines_lost).context("can't start logging")?;
    let writer = queue.clone();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // The subscriber would report its own problems on stderr, and panic if stderr is gone.
        .log_internal_errors(false)
        .with_writer(move || writer.clone());
    let started = match log.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("can't start logging: {error}"))?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        panicked(place.as_deref().unwrap_or_default(), panic.payload());
    }));
    Ok(Logs(queue))
}

/// Writes something to stderr that is not a line of the log. Waits only a moment for it.
pub fn say(text: &str) {
    // If there is no thread for it, it is not said. The exit code still tells.
    if let Ok(lines) = Lines::start(stderr(), |_| {}) {
        // An error may quote what others wrote.
        lines.put(format!("{}\n", harmless(text)).as_bytes());
        lines.flush(LAST_LINES);
    }
}

/// A handle of stderr without the lock that all others share, because a write may be stuck for
/// ever.
fn stderr() -> Box<dyn Write + Send> {
    match std::io::stderr().as_fd().try_clone_to_owned() {
        Ok(handle) => Box::new(File::from(handle)),
        Err(_) => Box::new(std::io::sink()),
    }
}

/// Logs a panic. A message that was formatted at run time may quote a client, so only the place of
/// such a panic is logged.
fn panicked(place: &str, payload: &(dyn Any + Send)) {
    let said = payload.downcast_ref::<&'static str>();
    tracing::error!(
        place,
        said,
        "a part of the proxy panicked; report this as a bug"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Collects what the subscriber writes.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_one_line_without_what_it_may_quote() {
        for (payload, told) in [
            (Box::new("out of luck") as Box<dyn Any + Send>, true),
            (Box::new("said by a client".to_owned()), false),
            (Box::new(7), false),
        ] {
            let sink = Sink::default();
            let writer = sink.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
            tracing::subscriber::with_default(subscriber.finish(), || {
                panicked("src/x.rs:1:2", payload.as_ref());
            });
            let line = String::from_utf8(sink.0.lock().clone()).unwrap();
            assert_eq!(line.lines().count(), 1, "{line}");
            assert!(line.contains("src/x.rs:1:2"), "{line}");
            assert_eq!(line.contains("out of luck"), told, "{line}");
            assert!(!line.contains("client"), "{line}");
        }
    }
}
