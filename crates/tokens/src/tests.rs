//! Holds the counter to `bpe-openai`, text for text, and to bounded work on hostile text.

use std::sync::LazyLock;

use bpe_openai::{Tokenizer, cl100k_base, o200k_base};
use proptest::prelude::*;

use super::{Counter, Encoding};

static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::load);

const ENCODINGS: [Encoding; 2] = [Encoding::O200k, Encoding::Cl100k];

fn oracle(encoding: Encoding) -> &'static Tokenizer {
    match encoding {
        Encoding::O200k => o200k_base(),
        Encoding::Cl100k => cl100k_base(),
    }
}

/// Counts twice, so that the second count is answered by the memo.
#[track_caller]
fn check(text: &str) {
    for encoding in ENCODINGS {
        let expected = u32::try_from(oracle(encoding).count(text)).unwrap();
        for round in ["first", "second"] {
            let counted = COUNTER.count(encoding, text);
            let shown: String = text.chars().take(200).collect();
            assert_eq!(
                counted, expected,
                "{encoding:?}, {round} count of {shown:?}"
            );
        }
    }
}

/// Deterministic noise for the long cases, where proptest's shrinking would only cost time.
fn noise(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 11).unwrap() % below
    }
}

#[test]
fn known_texts() {
    for text in [
        "",
        " ",
        "a",
        "hello world",
        "<|endoftext|> is <|im_start|>text",
        "don't DON'T we'll I'd you've 'quoted' 'seven 'tis x'ſ 'ſ '\u{212a} 'r\u{e9} 'lé",
        "fn main() {\n\t\tprintln!(\"{}\", 1_000_000);\n}\n\n\n",
        "a  b\u{a0}\u{a0} c\u{3000}d \u{2028}\n e",
        "x = 12345678901 // 0x1F\r\n\r\n/// docs//\n/path/to/file\n//",
        "    \n  \t \r\n   x   \n",
        "\u{feff}bom \u{200b}zero\u{200d}width \u{ad}soft",
        "e\u{301}\u{302} Å\u{30a} ﬁ ǅ ʰ ª º ١٢٣٤ Ⅷ ½ 四五",
        "\0\u{1}\u{7f}\u{80}\u{fffd}\u{ffff}\u{10ffff}\u{e000}",
        "ABCdefGHIjkl HTTPServer iPhone éA Éa AÉ aÉ 中A中a A中 a中'S",
        "👨‍👩‍👧 🇨🇭 👍🏽 ❤️ flags",
    ] {
        check(text);
    }
}

#[test]
fn every_pair_and_triple_of_telling_characters() {
    let alphabet: Vec<char> = "aA0 \t\n\r/-'sStrREeVvLlMmDd.\u{b}\u{7f}é中\u{301}\u{a0}😀\u{2028}"
        .chars()
        .collect();
    let mut text = String::new();
    for first in &alphabet {
        for second in &alphabet {
            for third in &alphabet {
                text.clear();
                text.extend([first, second, third]);
                check(&text);
            }
        }
    }
}

/// Text of characters in any order.
fn made(alphabet: &str, bytes: usize, random: &mut impl FnMut(usize) -> usize) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut text = String::new();
    while text.len() < bytes {
        text.push(alphabet[random(alphabet.len())]);
    }
    text.truncate(text.floor_char_boundary(bytes));
    text
}

/// Pieces as long as they are counted whole.
#[test]
fn hostile_texts() {
    let mut random = noise(42);
    for alphabet in [
        "a",
        "A",
        " ",
        "\t",
        "\n",
        "-",
        "=",
        "\u{3000}",
        "\u{301}",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        "abcdefghijklmnopqrstuvwxyz",
        "😀👍🏽‍🇨🇭",
        "的一是不了人我在有他这为之大来以个中上们",
        "\u{fffd}\u{0}\u{80}\u{ffff}\u{d7ff}\u{e000}",
        "\u{301}\u{302}e A",
        "-=",
        "-\n/",
        " \t\n",
        "\u{a0}\u{3000} \n",
    ] {
        check(&made(alphabet, 64 << 10, &mut random));
    }
    check(&format!("{}\n", "-".repeat(900)).repeat(20));
}

/// Words about the bounds of the memo's tables.
#[test]
fn words_of_telling_lengths() {
    let mut random = noise(11);
    for length in (1..=20).chain(126..=130).chain(4094..=4098) {
        for alphabet in ["abcdefghijklmnopqrstuvwxyz", "éαж", "-=+*", " \t"] {
            check(&made(alphabet, length, &mut random));
        }
    }
}

/// The crate panics on a megabyte of blanks.
#[test]
fn a_megabyte_of_anything_is_counted() {
    for (unit, per_token) in [(" ", 128), ("\t", 16), ("\n", 16), ("-", 64), ("a", 8)] {
        let count = COUNTER.count(Encoding::O200k, &unit.repeat(1 << 20));
        assert_eq!(count, (1 << 20) / per_token, "a megabyte of {unit:?}");
    }
    for text in ["😀", "中", "\u{fffd}", "\r\n", " \t", "Aa", "é ", "\u{301}"] {
        let repeats = (1 << 20) / text.len();
        assert!(COUNTER.count(Encoding::O200k, &text.repeat(repeats)) > 0);
    }
}

/// The tables of a merge take many times their text, and the worst texts take many times as long as
/// the best: neither may grow with what a client sends.
#[test]
fn texts_of_any_size_are_counted_in_bounded_time_and_memory() {
    let limit = 4 << 20;
    for (unit, per_token) in [(" ", 128), ("a", 8), ("-", 64), ("=\u{301}", 1)] {
        let below = unit.repeat(limit / unit.len());
        let count = COUNTER.count(Encoding::O200k, &below);
        assert!(count as usize <= limit / per_token, "{unit:?}: {count}");
        let above = unit.repeat(16 * limit / unit.len());
        let more = COUNTER.count(Encoding::O200k, &above) - count;
        // Never less than there are, and no more than there are bytes.
        assert!(more as usize >= 15 * (count as usize), "{unit:?}: {more}");
        assert!(more as usize <= 15 * limit + 4, "{unit:?}: {more}");
    }
}

/// A piece that is cut into parts, within a token a part of what it would be whole.
#[test]
fn long_pieces_are_counted_in_parts() {
    let mut random = noise(5);
    for alphabet in ["abcdefghijklmnopqrstuvwxyz", "éαж", "-\n/"] {
        let piece = made(alphabet, 200_000, &mut random);
        let whole = o200k_base().count(piece.as_str());
        let parts = COUNTER.count(Encoding::O200k, &piece) as usize;
        assert!(parts.abs_diff(whole) <= 8, "{parts} of {whole}");
    }
}

#[test]
fn counts_agree_across_threads() {
    let text = include_str!("counter.rs");
    let alone = COUNTER.count(Encoding::O200k, text);
    let counts: Vec<u32> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| (0..20).map(|_| COUNTER.count(Encoding::O200k, text)).max()))
            .collect();
        handles
            .into_iter()
            .filter_map(|handle| handle.join().unwrap())
            .collect()
    });
    assert_eq!(counts, vec![alone; 12]);
}

/// Recorded sessions: those that come with the repository, and some of those beside it where they are at hand.
#[test]
fn recorded_sessions() {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/sessions");
    let beside = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/traces/sessions"
    );
    let files = |folder: &str| -> Option<Vec<std::path::PathBuf>> {
        let entries = std::fs::read_dir(folder).ok()?;
        let files = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files
            .filter(|file| file.extension() == Some("zst".as_ref()))
            .collect();
        files.sort();
        Some(files)
    };
    let mut all = files(here).unwrap();
    assert_eq!(all.len(), 3);
    match files(beside) {
        Some(files) => all.extend(files.into_iter().step_by(9)),
        None => {
            println!("skipped: all recorded sessions but three, because there are none at {beside}")
        }
    }
    for file in all {
        let packed = std::fs::read(file).unwrap();
        let text = String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
        for line in text.lines().skip(1).take(60) {
            check(line);
            if let Ok(serde_json::Value::Object(message)) = serde_json::from_str(line)
                && let Some(content) = message.get("content").and_then(|content| content.as_str())
            {
                check(content);
            }
        }
    }
}

fn code_like() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        "[a-zA-Z_]{1,12}",
        "[0-9]{1,12}",
        "[ \t]{1,20}",
        "(\r?\n){1,3}",
        "[-=*/#.,;:(){}\\[\\]<>|&^%$@!?~`'\"\\\\]{1,6}",
        Just("'s".to_owned()),
        Just("\"key\": ".to_owned()),
        Just("2026-11-21T12:01:11.123Z INFO ".to_owned()),
        Just("\\u00e9\\n".to_owned()),
        "[-=*#/]{1,400}",
    ];
    prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, fork: false, ..ProptestConfig::default() })]

    #[test]
    fn any_unicode_counts_as_the_oracle_says(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn any_printable_text_counts_as_the_oracle_says(text in "\\PC{0,120}") {
        check(&text);
    }

    #[test]
    fn ascii_among_wide_counts_as_the_oracle_says(text in "[ -~\\n\\t\u{a0}é中\u{301}ſK]{0,80}") {
        check(&text);
    }

    #[test]
    fn code_counts_as_the_oracle_says(text in code_like()) {
        check(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, fork: false, ..ProptestConfig::default() })]

    /// The memo is exact whatever was counted before: the same text in another order.
    #[test]
    fn order_of_counting_does_not_matter(texts in prop::collection::vec(code_like(), 1..6)) {
        let one_way: Vec<u32> = texts.iter().map(|text| COUNTER.count(Encoding::O200k, text)).collect();
        let fresh = Counter::load();
        let mut other_way: Vec<u32> =
            texts.iter().rev().map(|text| fresh.count(Encoding::O200k, text)).collect();
        other_way.reverse();
        prop_assert_eq!(one_way, other_way);
    }
}
