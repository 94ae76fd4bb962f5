//! Token counting against plain `bpe-openai`, and hostile text against mixed text, as ratios of
//! interleaved medians of one run. Prints one line a ratio, with its goal; it never fails on
//! time, because machines differ.

#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]
#![allow(missing_docs, reason = "a bench has no public items")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_tokens::{Counter, Encoding};

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MEGABYTE: usize = 1_000_000;
const ROUNDS: usize = 15;

fn main() {
    let start = Instant::now();
    let counter = Counter::load();
    println!("load {:.0} ms", start.elapsed().as_secs_f64() * 1e3);

    let mixed = mixed();
    let plain_tokenizer = bpe_openai::o200k_base();
    let cold = timed(|| counter.count(Encoding::O200k, &mixed));
    let (plain, ours) = interleaved(
        || plain_tokenizer.count(mixed.as_str()) as u64,
        || u64::from(counter.count(Encoding::O200k, &mixed)),
    );
    println!(
        "mixed: plain bpe-openai {:.1} MB/s",
        speed(mixed.len(), plain)
    );
    println!(
        "mixed: ours {:.1} MB/s, first count {:.1} MB/s",
        speed(mixed.len(), ours),
        speed(mixed.len(), cold)
    );
    println!(
        "ratio mixed speed over plain bpe-openai: {:.2} (goal at least 1.5)",
        ratio(plain, ours)
    );
    println!(
        "ratio mixed speed over plain bpe-openai, first count: {:.2}",
        ratio(plain, cold)
    );

    let small = mixed.get(..2000).unwrap_or(&mixed);
    let (plain, ours) = interleaved(
        || (0..500).map(|_| plain_tokenizer.count(small) as u64).sum(),
        || {
            (0..500)
                .map(|_| u64::from(counter.count(Encoding::O200k, small)))
                .sum()
        },
    );
    println!(
        "ratio 2 KB text speed over plain bpe-openai: {:.2}",
        ratio(plain, ours)
    );

    for (name, text) in hostile() {
        let first = timed(|| Counter::load().count(Encoding::O200k, &text));
        let (base, attack) = interleaved(
            || u64::from(counter.count(Encoding::O200k, &mixed)),
            || u64::from(counter.count(Encoding::O200k, &text)),
        );
        let scale = mixed.len() as f64 / text.len() as f64;
        println!(
            "ratio hostile {name}: {:.2} times mixed, first count {:.2} (goal at most 12)",
            ratio(attack, base) * scale,
            ratio(first, base) * scale
        );
    }
    large(&counter, &mixed);
}

/// Texts of many megabytes against mixed text of one, by the byte: what is linear has the same ratio
/// at every size, and what is bounded has a smaller one.
fn large(counter: &Counter, mixed: &str) {
    let base = timed(|| counter.count(Encoding::O200k, mixed));
    for (name, text) in hostile() {
        for megabytes in [8, 64] {
            let large = text.repeat(megabytes);
            let time = timed(|| counter.count(Encoding::O200k, &large));
            let scale = mixed.len() as f64 / large.len() as f64;
            println!(
                "ratio hostile {name} of {megabytes} MB: {:.2} times mixed",
                ratio(time, base) * scale
            );
        }
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// The medians of two pieces of work that take turns, so that a busy machine slows both.
fn interleaved(
    mut left: impl FnMut() -> u64,
    mut right: impl FnMut() -> u64,
) -> (Duration, Duration) {
    let mut times = [Vec::new(), Vec::new()];
    let [lefts, rights] = &mut times;
    for _ in 0..ROUNDS {
        lefts.push(timed(&mut left));
        rights.push(timed(&mut right));
    }
    let [left, right] = times.map(|mut times| {
        times.sort();
        times.get(ROUNDS / 2).copied().unwrap_or_default()
    });
    (left, right)
}

fn ratio(over: Duration, under: Duration) -> f64 {
    over.as_secs_f64() / under.as_secs_f64()
}

fn speed(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// A megabyte of agents' messages where recorded sessions are at hand, else of our own sources.
fn mixed() -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut files = listing(&format!("{root}/../shared/traces/sessions"));
    let share = MEGABYTE / files.len().max(1) + 1;
    let mut text = String::new();
    for file in &files {
        let packed = std::fs::read(file).unwrap_or_default();
        let lines = zstd::decode_all(packed.as_slice()).unwrap_or_default();
        text.push_str(&contents(&String::from_utf8_lossy(&lines), share));
    }
    if text.is_empty() {
        println!("no recorded sessions at hand: mixed text is made of sources");
        files = listing(&format!("{root}/src/tokens"));
        text = files
            .iter()
            .filter_map(|file| std::fs::read_to_string(file).ok())
            .collect();
        text = text.repeat(MEGABYTE / text.len().max(1) + 1);
    }
    let end = (0..=MEGABYTE.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}

/// The texts of a session's messages from its middle on, up to `most` bytes.
fn contents(lines: &str, most: usize) -> String {
    let messages: Vec<&str> = lines.lines().skip(1).collect();
    let mut text = String::new();
    for line in messages.iter().skip(messages.len() / 3) {
        let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        text.push_str(
            message
                .get("content")
                .and_then(|content| content.as_str())
                .unwrap_or(line),
        );
        if text.len() >= most {
            break;
        }
    }
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}

fn listing(folder: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// A megabyte each of what a tokeniser may choke on.
fn hostile() -> Vec<(&'static str, String)> {
    let mut texts: Vec<(&str, String)> = [
        ("letter a", "a"),
        ("letter A", "A"),
        ("spaces", " "),
        ("tabs", "\t"),
        ("newlines", "\n"),
        ("CR LF", "\r\n"),
        ("dashes", "-"),
        ("equals", "="),
        ("stars", "*"),
        ("slashes", "/"),
        ("hashes", "#"),
        ("dots", "."),
        ("zero bytes", "\0"),
        ("digits", "7"),
        ("emoji", "😀"),
        ("joined emoji", "👨‍👩‍👧"),
        ("no-break spaces", "\u{a0}"),
        ("ideographic spaces", "\u{3000}"),
        ("box drawing", "─"),
        ("replacement characters", "\u{fffd}"),
        ("private use", "\u{e000}\u{10fffd}"),
        ("noncharacters", "\u{ffff}\u{fdd0}"),
        ("combining marks", "\u{301}\u{302}"),
        ("space and tab", " \t"),
        ("case flips", "aB"),
        ("accent flips", "é\u{301}A "),
        ("Cyrillic words", "привет мир "),
        ("eleven tabs and a space", "\t\t\t\t\t\t\t\t\t\t\t "),
        ("eleven dots and a mark", "...........!"),
    ]
    .map(|(name, unit): (&str, &str)| (name, unit.repeat(MEGABYTE / unit.len())))
    .into();
    let dashes = |count| format!("{}\n", "-".repeat(count));
    texts.push(("900 dashes a line", dashes(900).repeat(MEGABYTE / 901)));
    let mut random = noise();
    let mut made = |alphabet: &str| {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut text = String::new();
        while text.len() < MEGABYTE {
            text.extend(alphabet.get(random(alphabet.len())));
        }
        text
    };
    texts.push(("random letters", made("abcdefghijklmnopqrstuvwxyz")));
    texts.push((
        "base64",
        made("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    ));
    texts.push(("hex", made("0123456789abcdef")));
    texts.push((
        "random punctuation",
        made("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"),
    ));
    texts.push(("dash or equals", made("-=")));
    texts.push(("random blanks", made(" \t")));
    texts.push((
        "random Chinese",
        made("的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"),
    ));
    texts.push(("random emoji", made("😀👍❤🚀🔥🎉😂🙏💯✨🤖👀🦀🐍")));
    let mut lines = String::new();
    while lines.len() < MEGABYTE {
        lines.push_str(&dashes(80 + random(400)));
    }
    texts.push(("dashes of any length a line", lines));
    texts.extend(joined(&mut random));
    texts.extend(unbroken(&mut random));
    texts
}

/// Runs in one unbroken piece, of all lengths, so that no memo knows them.
fn joined(random: &mut impl FnMut(usize) -> usize) -> Vec<(&'static str, String)> {
    let kinds = [
        ("dashes of any length joined by equals", "-", 100, "="),
        ("spaces of any length joined by tabs", " ", 60, "\t"),
        ("short runs of tabs joined by spaces", "\t", 10, " "),
        ("stars of any length joined by slashes", "*", 40, "/"),
    ];
    let made = kinds.map(|(name, unit, least, joint)| {
        let mut text = String::new();
        while text.len() < MEGABYTE {
            text.push_str(&unit.repeat(least + random(least * 3 / 2)));
            text.push_str(joint);
        }
        (name, text)
    });
    made.into()
}

/// Tokens of one kind in any order, without anything that would part them but for a blank where
/// a word has grown long enough.
fn unbroken(random: &mut impl FnMut(usize) -> usize) -> Vec<(&'static str, String)> {
    let bpe = &bpe_openai::o200k_base().bpe;
    let ids = 0..u32::try_from(bpe.num_tokens()).unwrap_or_default();
    let tokens: Vec<&str> = ids
        .filter_map(|id| std::str::from_utf8(bpe.token_bytes(id)).ok())
        .collect();
    let mut made = |kind: fn(char) -> bool, word: usize| {
        let fit: Vec<&&str> = tokens
            .iter()
            .filter(|token| token.chars().all(kind))
            .collect();
        let mut text = String::new();
        let mut start = 0;
        while text.len() < MEGABYTE {
            text.push_str(fit.get(random(fit.len())).map_or(" ", |token| token));
            if text.len() > start + word {
                text.push(' ');
                start = text.len();
            }
        }
        text
    };
    let endless = MEGABYTE;
    vec![
        ("tokens of blanks", made(char::is_whitespace, endless)),
        (
            "tokens of marks",
            made(|c| !c.is_alphanumeric() && !c.is_whitespace(), endless),
        ),
        (
            "tokens of small letters, joined",
            made(|c| c.is_ascii_lowercase(), endless),
        ),
        (
            "tokens of small letters, joined to short words",
            made(|c| c.is_ascii_lowercase(), 9),
        ),
        (
            "tokens of small letters, joined to long words",
            made(|c| c.is_ascii_lowercase(), 40),
        ),
        (
            "tokens of any letters, joined",
            made(|c| c.is_alphabetic() && !c.is_uppercase(), endless),
        ),
    ]
}

/// Repeatable noise below a bound.
fn noise() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    }
}
