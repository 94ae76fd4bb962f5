//! Terminals on which lines are written, and what a client sees of each. Never says anything itself.

use std::collections::BTreeMap;

use super::say::filled;

/// The lines of each terminal, by its tool.
#[derive(Default)]
pub struct Terminals {
    lines: BTreeMap<String, Vec<String>>,
    written: usize,
}

impl Terminals {
    /// What a terminal shows of its last lines once some more were written: it ends with its last line, with
    /// a line break, or with a prompt, on which the next ones are written.
    pub fn shown(&mut self, tool: &str, adds: u32, height: u32) -> String {
        let lines = self.lines.entry(tool.to_owned()).or_default();
        for _ in 0..adds {
            self.written += 1;
            lines.push(filled(&format!("screen{}", self.written), 11));
        }
        let from = lines.len().saturating_sub(height as usize);
        let shown = lines[from..].join("\n");
        let end = ["", "\n", "\n$ "][adds as usize % 3];
        if let Some(last) = lines.last_mut().filter(|_| end == "\n$ ") {
            last.push_str("\n$ written");
        }
        format!("{shown}{end}")
    }
}
