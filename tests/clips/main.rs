//! Clips of tool results, from outside: each is written, and read back by a strict reader that shares
//! no code with the clip. Owns what holds for every clip, and the limits themselves.
//!
//! `PLIMSOLL_CLIPS=all cargo test --release --test clips -- --nocapture` clips all large results of
//! the recorded sessions that are beside the repository; without the variable a spread of them is clipped. Those of the
//! sessions that come with it are clipped always.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a clip that is not as expected has failed its test, and its figures are printed"
)]

mod reader;
mod recorded;
mod shapes;
mod soups;

use plimsoll_core::clip::{Clip, ClipLimits, clip, written};
use plimsoll_model::ResultShape;

use reader::{lines, read, tokens};

/// A limit of tokens alone.
pub fn limits(tokens: u32) -> ClipLimits {
    ClipLimits {
        tokens,
        lines: 0,
        bytes: 0,
    }
}

/// Clips a text and checks all that holds for every clip.
pub fn checked(text: &str, limits: &ClipLimits) -> Option<(Clip, String)> {
    let made = clip(text, limits, &tokens);
    assert_eq!(made, clip(text, limits, &tokens), "not the same twice");
    let made = made?;
    let shown = written("bash:12", "8.1k", made.shape, &made.spans, text);
    read(text, &made, &shown);
    assert!(shown.len() < text.len() || limits.lines > 0, "not smaller");
    if limits.tokens > 0 {
        let (size, most) = (tokens(&shown), limits.tokens * 115 / 100);
        assert!(
            size <= most,
            "{size} > {most}: {:?}\n{shown:.2000}",
            made.shape
        );
    }
    if limits.lines > 0 {
        assert!(
            lines(&shown) <= limits.lines as usize * 115 / 100 + 1,
            "{}",
            lines(&shown)
        );
    }
    if limits.bytes > 0 {
        assert!(shown.len() <= limits.bytes as usize * 115 / 100);
    }
    Some((made, shown))
}

/// Checks that a text is clipped as one of this shape. Gives the clip as it is written.
#[track_caller]
pub fn shaped(text: &str, tokens: u32, shape: ResultShape) -> String {
    let (made, shown) = checked(text, &limits(tokens)).unwrap();
    assert_eq!(made.shape, shape, "{shown}");
    shown
}

/// Checks that a clip shows all of these.
#[track_caller]
pub fn has(shown: &str, wanted: &[&str]) {
    for want in wanted {
        assert!(shown.contains(want), "no {want:?} in:\n{shown}");
    }
}

/// Lines that no log may lose.
fn is_vital(line: &str) -> bool {
    let starts = [
        "error:",
        "error[",
        "FAILED ",
        "E   ",
        "--- FAIL",
        "npm ERR!",
        "panic:",
        "Traceback (most",
        "Exit code ",
        "<returncode>",
    ];
    starts.iter().any(|start| line.starts_with(start))
}

/// Checks that a log keeps every vital line, if these alone are well below the limit.
pub fn keeps_what_is_vital(text: &str, size: u32, made: &Clip, shown: &str) {
    let vital: Vec<&str> = text.lines().filter(|line| is_vital(line)).collect();
    // Each may need a marker before it, and the clip's own first line is always there.
    let bytes: usize = vital.iter().map(|line| line.len() + 30).sum::<usize>() + 100;
    // A long line is cut, whatever it says.
    let long = vital.iter().any(|line| line.len() > 300);
    if made.shape != ResultShape::Log || bytes >= size as usize * 2 || long {
        return;
    }
    let lost = vital.iter().find(|line| !shown.contains(**line));
    assert_eq!(lost, None, "at {size}\n{shown}");
}

#[test]
fn what_is_within_the_limits_is_left_alone() {
    let text = "a b c\n".repeat(100);
    for (size, lines, bytes) in [
        (0, 0, 0),
        (301, 0, 0),
        (0, 100, 0),
        (0, 0, 600),
        (301, 100, 600),
    ] {
        assert_eq!(
            clip(
                &text,
                &ClipLimits {
                    tokens: size,
                    lines,
                    bytes
                },
                &tokens
            ),
            None
        );
    }
    assert_eq!(clip("", &limits(50), &tokens), None);
    // A text a little over its limit would hardly shrink.
    assert_eq!(
        clip(
            &text,
            &ClipLimits {
                tokens: 0,
                lines: 95,
                bytes: 0
            },
            &tokens
        ),
        None
    );
}
