//! Texts that no tool would write: odd ones, and random soups of the lines of all shapes. Owns the
//! checks that no text, however it is made, is clipped wrongly.
//!
//! `PLIMSOLL_SOUPS=20000 PLIMSOLL_SEED=7 cargo test --release --test clips soups` makes that many
//! soups, from that seed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_core::clip::ClipLimits;

use crate::{checked, has, keeps_what_is_vital, limits};

#[test]
fn odd_texts_are_clipped_without_harm() {
    let texts = [
        "ä".repeat(40_000),
        "a\r\n".repeat(20_000),
        "\n".repeat(50_000),
        "\u{1b}[31mred\u{1b}[0m ".repeat(5_000),
        "\0\0x\0\n".repeat(9_000),
        " ".repeat(100_000),
        "[… 3 lines left out]\n[clipped x:1, 9 tokens: 1 of 2 lines shown]\n".repeat(900),
        "[".repeat(50_000),
        "\"".repeat(50_001),
        format!("{}\nExit code 1", "x y ".repeat(20_000)),
        format!("a\n{}\r\nb", "日本語 ".repeat(9_000)),
        "@@ -1,99999 +1,99999 @@\n--- a\n+++ b\n-x\n".repeat(4_000),
        "🦀".repeat(9_000),
    ];
    for text in &texts {
        for size in [50, 100, 700, 4000] {
            checked(text, &limits(size));
            checked(
                text,
                &ClipLimits {
                    tokens: 0,
                    lines: size / 2,
                    bytes: 0,
                },
            );
            checked(
                text,
                &ClipLimits {
                    tokens: 0,
                    lines: 0,
                    bytes: size * 4,
                },
            );
            checked(
                text,
                &ClipLimits {
                    tokens: size,
                    lines: 20,
                    bytes: size * 3,
                },
            );
        }
    }
    let shown = checked(&texts[9], &limits(200)).unwrap().1;
    has(&shown, &["\nExit code 1", " bytes left out]"]);
}

/// A small generator of numbers, so that a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A text of up to 620 lines of several kinds, by the numbers below.
fn soup(random: &mut Random) -> String {
    let count = 20 + random.below(600);
    // Few kinds make texts with a shape; many make soups. Two shapes are rarely met by chance.
    let kinds: Vec<u64> = match random.below(16) {
        0 => vec![6],
        1 => vec![7, 8, 9, 9, 10, 10, 11, 11],
        _ => (0..1 + random.below(6)).map(|_| random.below(22)).collect(),
    };
    let end = ["\n", "\n", "\r\n"][random.below(3) as usize];
    let mut out = String::new();
    for n in 0..count {
        let m = random.below(1000);
        match kinds[random.below(kinds.len() as u64) as usize] {
            0 => {
                let _ = write!(out, "src/dir{}/file{}.rs:{n}:{m}: text", m % 5, m % 17);
            }
            1 => {
                let _ = write!(out, "src/dir{}/file{}.rs-{n}-context", m % 5, m % 17);
            }
            2 => out.push_str("--"),
            3 => {
                let _ = write!(out, "error: number {m}");
            }
            4 => {
                let _ = write!(out, "warning: {m}\n  --> a.rs");
            }
            5 => out
                .push_str("Traceback (most recent call last):\n  File \"x\"\n    y\nKeyError: 'z'"),
            6 => {
                let _ = write!(out, "{{\"a\":{m},\"b\":[1,\"}}\"]}}");
            }
            7 => {
                let _ = write!(out, "@@ -{m},{} +{m},{} @@", m % 9, m % 7);
            }
            8 => {
                let _ = write!(out, "diff --git a/f{m} b/f{m}\n--- a/f{m}\n+++ b/f{m}");
            }
            9 => {
                let _ = write!(out, "+added {m}");
            }
            10 => {
                let _ = write!(out, "-removed {m}");
            }
            11 => out.push_str(" same"),
            12 => {
                let _ = write!(out, "./a/b{}/c{m}.txt", m % 13);
            }
            13 => {
                let _ = write!(out, "│   ├── name{m}");
            }
            14 => {
                let _ = write!(
                    out,
                    "\u{1b}[3{}m{}\u{1b}[0m",
                    m % 8,
                    "wörd ".repeat(m as usize)
                );
            }
            15 => {}
            16 => {
                let _ = write!(out, "{m}:match {n}");
            }
            17 => {
                let _ = write!(out, "[… {m} lines left out]");
            }
            18 => {
                let _ = write!(out, "Exit code {m}");
            }
            19 => out.push_str(&"日本".repeat(m as usize % 50)),
            20 => {
                let _ = write!(
                    out,
                    "long/{}/path{}.go",
                    "x/".repeat(m as usize % 90),
                    m % 7
                );
            }
            _ => {
                let _ = write!(out, "A sentence with {m} words.");
            }
        }
        out.push_str(end);
    }
    if random.below(2) == 0 {
        out.truncate(out.trim_end().len());
    }
    if random.below(9) == 0 {
        out = out.replace('\n', " ");
    }
    out
}

#[test]
fn soups_of_lines_are_clipped_soundly() {
    let rounds = std::env::var("PLIMSOLL_SOUPS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(300);
    let seed = std::env::var("PLIMSOLL_SEED")
        .ok()
        .and_then(|it| it.parse().ok());
    let mut random = Random(seed.unwrap_or(0x9e37_79b9_7f4a_7c15));
    let mut shapes: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..rounds {
        let text = soup(&mut random);
        let size = 50 + u32::try_from(random.below(3950)).unwrap() / (1 + random.below(20) as u32);
        let limits = match random.below(4) {
            0 => ClipLimits {
                tokens: size,
                lines: size / 4,
                bytes: size * 3,
            },
            _ => limits(size),
        };
        if let Some((made, shown)) = checked(&text, &limits) {
            if limits.lines == 0 && size > 150 {
                keeps_what_is_vital(&text, size, &made, &shown);
            }
            *shapes.entry(format!("{:?}", made.shape)).or_default() += 1;
        }
    }
    println!("{shapes:?}");
    assert_eq!(shapes.len(), 4, "{shapes:?}");
}
