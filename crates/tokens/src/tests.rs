//! Holds the counter to `tiktoken-rs`, text for text, and to bounded work on hostile text.

use std::sync::LazyLock;

use proptest::prelude::*;
use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use super::{Counter, Encoding};

static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::load);

const ENCODINGS: [Encoding; 2] = [Encoding::O200k, Encoding::Cl100k];

fn oracle(encoding: Encoding) -> &'static CoreBPE {
    match encoding {
        Encoding::O200k => o200k_base_singleton(),
        Encoding::Cl100k => cl100k_base_singleton(),
    }
}

/// Counts twice, so that the second count is answered by the memo.
#[track_caller]
fn check(text: &str) {
    for encoding in ENCODINGS {
        let expected = u32::try_from(oracle(encoding).encode_ordinary(text).len()).unwrap();
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

#[test]
fn runs_of_one_byte_at_every_kind_of_length() {
    // Short runs too: of zero bytes they differ in nothing but their length.
    let lengths = (1..=40)
        .chain(250..=270)
        .chain(318..=322)
        .chain([447, 511, 512, 513, 1000, 4095, 4096, 4097]);
    for length in lengths {
        for unit in [
            "-", "=", "*", "/", "#", "\t", "\n", "a", "A", "_", ".", "0", "~", "x", "\0",
        ] {
            let run = unit.repeat(length);
            for text in [
                run.clone(),
                format!(" {run}"),
                format!("x{run}y"),
                format!("({run})\n\n"),
            ] {
                check(&text);
            }
        }
    }
}

#[test]
fn runs_beside_runs() {
    let mut random = noise(7);
    for _ in 0..150 {
        let mut text = String::new();
        for _ in 0..1 + random(6) {
            let unit = ["-", "=", "*", "/", "#", "+", "─", "\\", "|", "!"][random(10)];
            text.push_str(&unit.repeat(random(900)));
        }
        check(&text);
    }
    // White space makes pieces too, shorter ones for the oracle's sake.
    for _ in 0..150 {
        let mut text = String::new();
        for _ in 0..1 + random(12) {
            let unit = [" ", " ", "\t", "\n", "\r\n", "\u{b}", "\u{a0}", "\u{3000}"][random(8)];
            let most = [2, 5, 20, 90, 300][random(5)];
            text.push_str(&unit.repeat(random(most)));
        }
        check(&text);
    }
}

#[test]
fn hostile_texts() {
    let mut random = noise(42);
    let mut made = |alphabet: &str, bytes: usize| {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut text = String::new();
        while text.len() < bytes {
            text.push(alphabet[random(alphabet.len())]);
        }
        text
    };
    let base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // The oracle overflows its stack on longer white space and is slow on the rest.
    for text in [
        "a".repeat(40_000),
        " ".repeat(8_000),
        "\t".repeat(8_000),
        "\n".repeat(8_000),
        "-".repeat(40_000),
        format!("{}\n", "-".repeat(900)).repeat(20),
        made(base64, 40_000),
        made("abcdefghijklmnopqrstuvwxyz", 20_000),
        made("😀👍🏽‍🇨🇭", 20_000),
        made("的一是不了人我在有他这为之大来以个中上们", 20_000),
        made("\u{fffd}\u{0}\u{80}\u{ffff}\u{d7ff}\u{e000}", 20_000),
        made("\u{301}\u{302}e A", 20_000),
        made("-=", 10_000),
        made(" \t\n", 6_000),
        made("\u{a0}\u{3000} \n", 6_000),
    ] {
        check(&text);
    }
}

/// What the oracle cannot say because it overflows its stack: counts of long white space follow
/// from the shorter ones, and a megabyte of anything is counted at all.
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
    let letters: String = (0..200_000)
        .map(|_| char::from(b'a' + u8::try_from(random(26)).unwrap()))
        .collect();
    let whole = bpe_openai::o200k_base().bpe.count(letters.as_bytes());
    let parts = COUNTER.count(Encoding::O200k, &letters) as usize;
    assert!(parts.abs_diff(whole) <= 4, "{parts} of {whole}");
    assert_eq!(
        COUNTER.count(Encoding::O200k, &letters[..65_536]) as usize,
        bpe_openai::o200k_base()
            .bpe
            .count(&letters.as_bytes()[..65_536])
    );
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

fn runs_among_marks() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec![
        "-", "=", "*", "/", "#", "_", ".", "~", "!", "+", "─", ">",
    ]);
    let part = prop_oneof![
        (unit.clone(), 1..40_usize).prop_map(|(unit, count)| unit.repeat(count)),
        (unit, 40..300_usize).prop_map(|(unit, count)| unit.repeat(count)),
        "[-=*/#_.~!+>|\\\\]{1,90}",
        "[─—é中]{1,9}",
    ];
    prop::collection::vec(part, 1..14).prop_map(|parts| parts.concat())
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

/// The vocabulary's tokens that are text of one kind.
fn tokens_of(kind: fn(char) -> bool) -> Vec<&'static str> {
    let bpe = &bpe_openai::o200k_base().bpe;
    let ids = 0..u32::try_from(bpe.num_tokens()).unwrap();
    ids.filter_map(|id| std::str::from_utf8(bpe.token_bytes(id)).ok())
        .filter(|token| token.chars().all(kind))
        .collect()
}

static SMALL: LazyLock<Vec<&str>> = LazyLock::new(|| tokens_of(|c| c.is_ascii_lowercase()));
static LETTERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| tokens_of(|c| c.is_alphabetic() && !c.is_uppercase()));
static MARKS: LazyLock<Vec<&str>> =
    LazyLock::new(|| tokens_of(|c| !c.is_alphanumeric() && !c.is_whitespace()));

/// Words joined from tokens, with nothing or something between the words.
fn joined_tokens() -> impl Strategy<Value = String> {
    let tokens = prop_oneof![Just(&SMALL), Just(&LETTERS), Just(&MARKS)];
    let word = (
        tokens,
        prop::collection::vec(any::<prop::sample::Index>(), 1..24),
    );
    let word = word.prop_map(|(tokens, picks)| {
        let word: String = picks.iter().map(|pick| *pick.get(tokens)).collect();
        word
    });
    let between = prop::sample::select(vec!["", " ", "\n", "7"]);
    prop::collection::vec((word, between), 1..8).prop_map(|parts| {
        parts
            .into_iter()
            .flat_map(|(word, between)| [word, between.to_owned()])
            .collect()
    })
}

/// Words of every length about the bounds of the memo's tables and of a token's key.
#[test]
fn joined_tokens_at_telling_lengths() {
    let mut random = noise(11);
    let lengths = (1..=20)
        .chain(126..=130)
        .chain([300, 4094, 4095, 4096, 4097, 4098]);
    for length in lengths {
        for tokens in [&SMALL, &LETTERS, &MARKS] {
            let mut text = String::new();
            while text.len() < length {
                text.push_str(tokens[random(tokens.len())]);
            }
            let end = (0..=length).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap());
            check(&text);
            check(&format!(" {text}"));
        }
    }
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

    /// Pieces of several stretches, some of them long, with what is between them.
    #[test]
    fn runs_among_marks_count_as_the_oracle_says(text in runs_among_marks()) {
        check(&text);
    }

    #[test]
    fn joined_tokens_count_as_the_oracle_says(text in joined_tokens()) {
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
