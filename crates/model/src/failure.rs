//! Tells from the text of a result whether its call failed. Never asks which tool it was.

/// Lines at either end of a result that are read for how a command ended.
const ENDS: usize = 12;
/// Bytes of a line that are read.
const LINE: usize = 300;

/// Whether a result says that its call failed.
#[must_use]
pub fn is_failure(text: &str) -> bool {
    let head = text.lines().take(ENDS);
    let tail = text.lines().rev().take(ENDS);
    head.chain(tail).any(says_failure)
}

fn says_failure(line: &str) -> bool {
    let line = line.trim();
    let line = line
        .get(..line.floor_char_boundary(LINE))
        .unwrap_or_default();
    let line = line.to_ascii_lowercase();
    let begins = [
        "traceback (most recent call last)",
        "error:",
        "fatal:",
        "panicked at",
        "command failed",
        "<tool_use_error>",
        "<error>",
    ];
    begins.iter().any(|begin| line.starts_with(begin))
        || exit_code(&line).is_some_and(|code| code != 0)
}

/// The exit code that a line tells.
fn exit_code(line: &str) -> Option<i32> {
    let told = [
        "exit code",
        "exit status",
        "exited with",
        "returncode",
        "return code",
        "exit_code",
    ];
    let at = told
        .iter()
        .find_map(|word| line.find(word).map(|at| at + word.len()))?;
    let rest = line.get(at..)?;
    let number = rest.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '-');
    // A number far from the word is about something else.
    if rest.len() - number.len() > 12 {
        return None;
    }
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '-');
    number.get(..end.unwrap_or(number.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_by_what_stands_at_the_ends() {
        for text in [
            "Exit code 1\nsrc/a.rs",
            "<returncode>2</returncode>\n<output>",
            "...\nTraceback (most recent call last):\n  File \"a.py\"",
            "building\nerror: could not compile `a`",
            "Process exited with code -9",
            "<tool_use_error>File has not been read</tool_use_error>",
        ] {
            assert!(is_failure(text), "{text}");
        }
        let deep = format!("{}error: x\n{}", "fine\n".repeat(30), "fine\n".repeat(30));
        for text in [
            "Exit code 0\nok",
            "<returncode>0</returncode>",
            "exit code\nis what 12 lines below is about",
            "fn error() {}",
            "",
            &deep,
        ] {
            assert!(!is_failure(text), "{text}");
        }
    }
}
