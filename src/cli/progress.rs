//! How far a replay is, on a terminal: what is done, what is being played, and about how long the rest
//! takes. Owns this line and when it is written. Never measures a session, and writes nothing of it where
//! stderr is no terminal.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plimsoll_lab::agents::RecordedUsage;
use plimsoll_lab::{Playing, Trace, Watch};

use super::output::harmless_word;

/// Cells of the bar, and of a session's name at most: with the words beside them that is 80.
const BAR: usize = 10;
const NAME: usize = 16;
/// What is written more often than this nobody reads.
const PAUSE: Duration = Duration::from_millis(100);
/// Nothing is foretold from less than this.
const GROUND: Duration = Duration::from_secs(2);
const GROUND_SHARE: f64 = 0.02;

/// Writes to stderr what was skipped, and on a terminal the progress.
pub struct ProgressBar {
    terminal: bool,
    far: Mutex<Far>,
    /// Conversations whose usage was recorded, and its sum.
    usage: Mutex<(usize, RecordedUsage)>,
}

/// How far it is.
struct Far {
    began: Instant,
    written: Option<Instant>,
    files: usize,
    of: usize,
    /// The files that were begun, by their places among all.
    begun: BTreeMap<usize, Begun>,
}

/// A file that was begun.
struct Begun {
    name: String,
    weight: f64,
    part: f64,
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            far: Mutex::new(Far {
                began: Instant::now(),
                written: None,
                files: 0,
                of: 0,
                begun: BTreeMap::new(),
            }),
            usage: Mutex::default(),
        }
    }
}

impl ProgressBar {
    /// Removes the line.
    pub fn clear(&self) {
        if self.terminal {
            self.say("\r\x1b[2K");
        }
    }

    /// Removes the line, and says what the sessions took when they were recorded, if that is known.
    pub fn end(&self) {
        self.clear();
        let (count, usage) = *self.usage.lock();
        if count > 0 {
            let RecordedUsage {
                input,
                cached,
                output,
                hour_write: _,
            } = usage;
            let share = 100.0 * cached as f64 / input.max(1) as f64;
            self.say(&format!(
                "providers reported for {count} of the conversations: {input} tokens of input, {share:.0} % of them cached, and {output} of output\n"
            ));
        }
    }

    fn say(&self, text: &str) {
        // A stderr that is gone is no reason to stop.
        let _unsaid = std::io::stderr().lock().write_all(text.as_bytes());
    }

    fn write(&self, far: &mut Far) {
        far.written = Some(Instant::now());
        let line = far.line(far.began.elapsed());
        self.say(&format!("\r\x1b[2K{line}"));
    }
}

impl Watch for ProgressBar {
    fn read(&self, trace: &Trace) {
        if let Some(usage) = trace.usage {
            let mut sum = self.usage.lock();
            *sum = (sum.0 + 1, sum.1.plus(usage));
        }
        let Some(first) = trace.skipped.first() else {
            return;
        };
        let (name, count) = (harmless_word(&trace.name), trace.skipped.len());
        let clear = if self.terminal { "\r\x1b[2K" } else { "" };
        self.say(&format!(
            "{clear}{name}: {count} lines are not chat messages and were skipped; the first is line {first}\n"
        ));
    }

    fn plays(&self, playing: &Playing<'_>) {
        if !self.terminal {
            return;
        }
        let mut far = self.far.lock();
        far.plays(playing);
        if far.written.is_none_or(|written| written.elapsed() >= PAUSE) {
            self.write(&mut far);
        }
    }

    fn done(&self, files: usize, of: usize) {
        if !self.terminal {
            return;
        }
        let mut far = self.far.lock();
        if files == 0 {
            // What was done before, such as reading the sizes, says nothing about what comes now.
            far.began = Instant::now();
            far.begun.clear();
        }
        (far.files, far.of) = (files, of);
        self.write(&mut far);
    }
}

impl Far {
    fn plays(&mut self, playing: &Playing<'_>) {
        let begun = self.begun.entry(playing.source).or_insert_with(|| Begun {
            name: String::new(),
            weight: playing.weight,
            part: 0.0,
        });
        begun.part = playing.part;
        if begun.name != playing.name {
            playing.name.clone_into(&mut begun.name);
        }
    }

    /// The share of all that is played, by bytes.
    fn share(&self) -> f64 {
        let begun = self.begun.values();
        begun.map(|file| file.weight * file.part).sum()
    }

    /// The line, after so long.
    fn line(&self, elapsed: Duration) -> String {
        let share = if self.begun.is_empty() {
            self.files as f64 / self.of.max(1) as f64
        } else {
            self.share()
        };
        let full = |at: usize| (at as f64 + 0.5) / BAR as f64 <= share;
        let mut line: String = (0..BAR)
            .map(|at| if full(at) { '█' } else { '░' })
            .collect();
        line.push_str(&format!(" {}/{} sessions", self.files, self.of));
        let Some(playing) = self.begun.values().find(|file| file.part < 1.0) else {
            return line;
        };
        let name = harmless_word(&playing.name);
        let name: String = name.chars().take(NAME).collect();
        line.push_str(&format!(", playing {name} {:.0} %", 100.0 * playing.part));
        if share >= GROUND_SHARE && elapsed >= GROUND {
            line.push_str(", ");
            line.push_str(&about(elapsed.mul_f64((1.0 - share).max(0.0) / share)));
        }
        line
    }
}

/// A time that is left, as roughly as it is known.
fn about(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..60 => format!("about {} s left", seconds.div_ceil(5).max(1) * 5),
        seconds @ 60..3_600 => format!("about {} min left", seconds.div_ceil(60)),
        seconds => format!("about {} h left", seconds.div_ceil(3_600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(files: usize, of: usize, begun: &[(&str, f64, f64)]) -> Far {
        let mut far = Far {
            began: Instant::now(),
            written: None,
            files,
            of,
            begun: BTreeMap::new(),
        };
        for (source, (name, weight, part)) in begun.iter().enumerate() {
            far.plays(&Playing {
                source,
                name,
                weight: *weight,
                part: *part,
            });
        }
        far
    }

    #[test]
    fn the_line_says_what_is_done_what_is_played_and_how_long_it_takes() {
        let line = |far: &Far, seconds| far.line(Duration::from_secs(seconds));
        // Reading comes first, and nothing is played then.
        assert_eq!(line(&far(1, 4, &[]), 9), "███░░░░░░░ 1/4 sessions");
        let some = [("one", 0.5, 1.0), ("two", 0.25, 0.4), ("three", 0.125, 0.0)];
        assert_eq!(
            line(&far(1, 4, &some), 30),
            "██████░░░░ 1/4 sessions, playing two 40 %, about 20 s left"
        );
        // Of less than two seconds nothing follows.
        assert_eq!(
            line(&far(1, 4, &some), 1),
            "██████░░░░ 1/4 sessions, playing two 40 %"
        );
        assert_eq!(
            line(&far(4, 4, &[("one", 1.0, 1.0)]), 30),
            "██████████ 4/4 sessions"
        );
    }

    #[test]
    fn the_line_fits_a_terminal_and_a_name_is_cut() {
        let name = "a name that nobody ends, and that goes on";
        let far = far(999, 1_000, &[(name, 1.0, 0.999)]);
        for seconds in [1, 59, 3_000_000, 30_000_000] {
            let line = far.line(Duration::from_secs(seconds));
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn what_is_left_is_told_roughly() {
        for (seconds, words) in [
            (0, "about 5 s left"),
            (41, "about 45 s left"),
            (61, "about 2 min left"),
            (7_200, "about 2 h left"),
        ] {
            assert_eq!(about(Duration::from_secs(seconds)), words);
        }
    }
}
