//! How much one line of a log says about what went wrong. Never looks at the lines around it.

use std::borrow::Cow;

/// A line is read up to this byte.
const READ: usize = 1000;

/// What a line of a log says, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// How the command ended.
    Exit,
    /// A total of what ran.
    Summary,
    /// The first line of a traceback.
    Trace,
    Error,
    Warning,
}

/// Texts that occur in every line that says something. Lines without them are not read.
pub const SIGNS: [&str; 28] = [
    "rror",
    "RROR",
    "ail",
    "AIL",
    "arning",
    "WARN",
    "[warn",
    "anic",
    "raceback",
    "xception",
    "atal",
    "FATAL",
    "xit",
    "eturn",
    "ERR!",
    "ass",
    "E  ",
    "not ok",
    "✗",
    "✕",
    "✖",
    "No such file",
    "ot found",
    "denied",
    "core dumped",
    "undefined reference",
    "aborting",
    "*** ",
];

/// Texts that make a line an error wherever they stand.
const PHRASES: [&str; 9] = [
    "No such file or directory",
    "command not found",
    "ermission denied",
    "core dumped",
    "egmentation fault",
    "undefined reference",
    "could not compile",
    "Exception in thread",
    "ERR!",
];

/// Texts that begin a line about something that went well.
const FINE: [&str; 10] = [
    "ok  \t",
    "--- PASS",
    "=== RUN",
    "=== PAUSE",
    "=== CONT",
    "=== NAME",
    "PASS ",
    "(pass)",
    "✓",
    "✔",
];

/// Reads one line. `None` if it says nothing about what went wrong.
pub fn severity(line: &str) -> Option<Severity> {
    let line = line.get(..line.floor_char_boundary(READ)).unwrap_or(line);
    let line = colourless(line);
    let text = line.trim();
    if is_exit(text) {
        return Some(Severity::Exit);
    }
    if is_fine(text) || is_passed(text) || is_frame(text) {
        return None;
    }
    if is_summary(text) {
        return Some(Severity::Summary);
    }
    if is_trace(text) {
        return Some(Severity::Trace);
    }
    let marked = line.starts_with("E  ")
        || text.starts_with("not ok")
        || text.starts_with(['✗', '✕', '✖'])
        || PHRASES.iter().any(|phrase| has(text, phrase));
    if marked {
        return Some(Severity::Error);
    }
    words(text).filter_map(Word::severity).min()
}

/// Whether a text holds another.
fn has(text: &str, part: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

/// A line without the sequences that set colours.
fn colourless(line: &str) -> Cow<'_, str> {
    if !has(line, "\u{1b}[") {
        return Cow::Borrowed(line);
    }
    let mut pieces = line.split("\u{1b}[");
    let mut out = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        let body = |c: char| !('@'..='~').contains(&c);
        let rest = piece.trim_start_matches(body);
        out.extend(rest.chars().skip(1));
    }
    Cow::Owned(out)
}

/// Whether a line tells how a command ended: its code, or the signal that ended it.
pub fn is_exit(text: &str) -> bool {
    let signs = [
        "xit code",
        "xit status",
        "xited with",
        "eturncode",
        "xit_code",
        "xitCode",
        "eturn code",
    ];
    let told = |sign: &&str| {
        text.split_once(*sign).is_some_and(|(_, rest)| {
            let near = rest.get(..rest.floor_char_boundary(24)).unwrap_or(rest);
            let code =
                near.trim_start_matches(|c: char| " :=>\"'(".contains(c) || c.is_alphabetic());
            code.starts_with(|c: char| c.is_ascii_digit() || c == '-') || near.contains("signal")
        })
    };
    let hint = has(text, "xit") || has(text, "eturn");
    hint && text.len() <= READ && signs.iter().any(told)
}

/// Whether a line begins as one about a test that runs or passes.
pub fn is_fine(text: &str) -> bool {
    FINE.iter().any(|start| text.starts_with(start))
}

/// Whether a line is source that a compiler or a test runner shows: `12 | code`.
fn is_frame(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < text.len() && rest.trim_start().starts_with('|')
}

/// Whether a line names a test that passed.
fn is_passed(text: &str) -> bool {
    text.starts_with("test ") && text.ends_with("... ok")
        || has(text, " PASSED ")
        || text.ends_with(" PASSED")
}

/// Whether a line is a total, such as `3 failed, 5 passed` or `test result: ok`.
fn is_summary(text: &str) -> bool {
    let starts = [
        "test result:",
        "Tests:",
        "Test Suites:",
        "BUILD ",
        "FAILED (",
        "make: ***",
    ];
    if starts.iter().any(|start| text.starts_with(start)) {
        return true;
    }
    if text.len() > 200 {
        return false;
    }
    if has(text, "aborting due to") || (text.starts_with("Ran ") && has(text, " test")) {
        return true;
    }
    let ends = [
        "passed", "failed", "passing", "failing", "pass", "fail", "errors", "error",
    ];
    let total = |word: &Word<'_>| word.number.is_some() && ends.contains(&word.text);
    words(text).any(|word| total(&word))
}

/// Whether a line begins a traceback.
fn is_trace(text: &str) -> bool {
    has(text, "Traceback (most recent call last)")
        || has(text, "' panicked at ")
        || has(text, "(main) panicked at ")
        || text.starts_with("panic: ")
}

/// A word with what stands around it.
struct Word<'a> {
    text: &'a str,
    before: Option<u8>,
    after: Option<u8>,
    /// The number before it, such as the 3 of `3 failed`.
    number: Option<&'a str>,
}

/// The words of a line: letters, digits and underscores.
fn words(line: &str) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    let mut last: Option<(&str, usize)> = None;
    std::iter::from_fn(move || {
        let bytes = line.as_bytes();
        let part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        at += bytes.get(at..)?.iter().position(part)?;
        let rest = bytes.get(at..)?;
        let len = rest
            .iter()
            .position(|byte| !part(byte))
            .unwrap_or(rest.len());
        let text = line.get(at..at.saturating_add(len))?;
        let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied();
        let digits = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let number = last
            .filter(|(_, end)| end.saturating_add(1) == at && before == Some(b' '))
            .map(|(word, _)| word)
            .filter(digits);
        at = at.saturating_add(len);
        last = Some((text, at));
        Some(Word {
            text,
            before,
            after: bytes.get(at).copied(),
            number,
        })
    })
}

impl Word<'_> {
    fn severity(self) -> Option<Severity> {
        // `error.rs`, `-error-` and `x.error` are names.
        let name = |byte: Option<u8>| matches!(byte, Some(b'.' | b'/' | b'-' | b'\\' | b'$'));
        let closed = matches!(self.after, None | Some(b':' | b']' | b'!' | b')' | b'['));
        // `"failed to open"` is a text in a source; `"error"` may be the level of an entry.
        let quoted = matches!(self.before, Some(b'"' | b'`')) && self.after != Some(b'"');
        // `errors=errors` is an argument.
        let argument = self.before == Some(b'=') || self.after == Some(b'=');
        if self.number == Some("0") || quoted || argument {
            return None;
        }
        let camel = ["Error", "Exception", "Failure"];
        if closed && camel.iter().any(|end| self.text.ends_with(end)) {
            return Some(Severity::Error);
        }
        if closed && self.text.ends_with("Warning") {
            return Some(Severity::Warning);
        }
        if name(self.before)
            || self.after == Some(b'(')
            || (name(self.after) && self.after != Some(b'.'))
        {
            return None;
        }
        match self.text {
            "error" | "Error" | "ERROR" | "errors" | "Errors" | "ERRORS" | "FAIL" | "FAILED"
            | "Failed" | "failed" | "FAILURES" | "failures" | "failure" | "Failure" | "fatal"
            | "Fatal" | "FATAL" | "panicked" | "PANIC" => Some(Severity::Error),
            "panic" | "fail" if self.after == Some(b':') || self.before == Some(b'(') => {
                Some(Severity::Error)
            }
            "warning" | "Warning" | "WARNING" | "WARN" | "warn" | "warnings" => {
                Some(Severity::Warning)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let (exit, summary, trace) = (Severity::Exit, Severity::Summary, Severity::Trace);
        for (line, want) in [
            ("Exit code 1", Some(exit)),
            ("exit code: -9", Some(exit)),
            ("<returncode>1</returncode>", Some(exit)),
            ("Process exited with status 2", Some(exit)),
            ("make[1]: exited with signal 9", Some(exit)),
            ("test result: FAILED. 3 passed; 1 failed", Some(summary)),
            ("=== 3 failed, 5 passed in 0.2s ===", Some(summary)),
            (" 0 fail", Some(summary)),
            ("Traceback (most recent call last):", Some(trace)),
            ("thread 'main' panicked at src/a.rs:1:2:", Some(trace)),
            ("error[E0308]: mismatched types", Some(Severity::Error)),
            ("\u{1b}[31merror\u{1b}[0m: no", Some(Severity::Error)),
            ("npm ERR! code 1", Some(Severity::Error)),
            ("E       assert 1 == 2", Some(Severity::Error)),
            ("ValueError: no", Some(Severity::Error)),
            ("src/a.c:1:2: warning: x", Some(Severity::Warning)),
            ("test error_is_shown ... ok", None),
            ("   Compiling thiserror v1.0", None),
            ("   Compiling error-chain v1.0", None),
            ("--- PASS: TestError (0.0s)", None),
            ("throw new Error('x')", None),
            ("    return fmt.Errorf(\"failed to open: %w\", err)", None),
            ("{\"level\":\"error\"}", Some(Severity::Error)),
            ("12 |     throw error: x", None),
            ("all is well", None),
            ("ok  \texample.com/failed\t0.1s", None),
            ("FAIL\texample.com/pkg\t0.1s", Some(Severity::Error)),
            ("drop(names, errors=errors)", None),
        ] {
            assert_eq!(severity(line), want, "{line}");
            let signs = SIGNS.iter().any(|sign| line.contains(sign));
            assert!(signs || want.is_none(), "{line} has no sign");
        }
    }
}
