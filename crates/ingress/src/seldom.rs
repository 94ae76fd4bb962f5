//! A line of the log that would come too often: when it is written, and how many it stands for. Owns that
//! count. Never writes the line.

use std::time::Duration;

use tokio::time::Instant;

/// How often the line is written at most.
const INTERVAL: Duration = Duration::from_secs(30);

/// What is said only now and then.
#[derive(Default)]
pub(super) struct Seldom {
    said: Option<Instant>,
    since: u64,
}

impl Seldom {
    /// Counts an occasion. Returns how many there were since the last line, if a line is due now.
    pub(super) fn note(&mut self) -> Option<u64> {
        self.since += 1;
        if self.said.is_some_and(|said| said.elapsed() < INTERVAL) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.since))
    }
}
