//! Token counting: speed on mixed text beside plain `bpe-openai`, what a turn's new text takes, and what ten megabytes
//! of hostile text take, with its goal. Prints a line each; it never fails on time, because machines differ.

#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]
#![allow(missing_docs, reason = "a bench has no public items")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_tokens::{Counter, Encoding};

/// The proxy's own.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MEGABYTE: usize = 1_000_000;
const HOSTILE: usize = 10 * MEGABYTE;
/// As much of a text is counted token by token.
const EXACT: usize = 4 << 20;
/// What a turn adds.
const TURN: usize = 20_000;
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
        "mixed: plain bpe-openai {:.1} MB/s, ours {:.1} MB/s, first count {:.1} MB/s",
        speed(mixed.len(), plain),
        speed(mixed.len(), ours),
        speed(mixed.len(), cold)
    );
    // Of a counter that has met what was before, and not this.
    let counter = Counter::load();
    let turns = parts(&mixed, TURN).into_iter();
    let turns = turns.map(|turn| timed(|| counter.count(Encoding::O200k, turn)));
    let turn = median(turns.collect());
    println!("a turn's 20 KB: {:.3} ms", turn.as_secs_f64() * 1e3);

    for (name, text) in hostile() {
        resident();
        let (before, _) = resident();
        let time = timed(|| {
            let parts = parts(&text, EXACT).into_iter();
            parts
                .map(|part| u64::from(counter.count(Encoding::O200k, part)))
                .sum::<u64>()
        });
        println!(
            "10 MB of {name}: {:.2} s, {:.0} MB (goal at most 5 s, 200 MB)",
            time.as_secs_f64(),
            resident().1 - before
        );
    }
}

/// A text in parts of at most so many bytes.
fn parts(mut text: &str, most: usize) -> Vec<&str> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let (part, rest) = text.split_at(text.floor_char_boundary(most));
        found.push(part);
        text = rest;
    }
    found
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
    let [left, right] = times.map(median);
    (left, right)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Resident memory in MB: now, and at its highest since this was last asked, where the system tells.
fn resident() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
            .map_or(0.0, |kib| kib * 1024.0 / 1e6)
    };
    let told = (field("VmRSS:"), field("VmHWM:"));
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    told
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

/// Ten megabytes each of what a tokeniser may choke on.
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
    .map(|(name, unit): (&str, &str)| (name, unit.repeat(HOSTILE / unit.len())))
    .into();
    let dashes = |count| format!("{}\n", "-".repeat(count));
    texts.push(("900 dashes a line", dashes(900).repeat(HOSTILE / 901)));
    let mut random = noise();
    let mut made = |alphabet: &str| {
        let alphabet: Vec<char> = alphabet.chars().collect();
        let mut text = String::new();
        while text.len() < HOSTILE {
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
    while lines.len() < HOSTILE {
        lines.push_str(&dashes(80 + random(400)));
    }
    texts.push(("dashes of any length a line", lines));
    texts.push(("random bytes as UTF-8", {
        let bytes: Vec<u8> = (0..HOSTILE).map(|_| random(256) as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }));
    texts.push(("any characters", {
        let codes = (0..HOSTILE / 4).map(|_| random(0x11_0000) as u32);
        codes.filter_map(char::from_u32).collect()
    }));
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
        while text.len() < HOSTILE {
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
        while text.len() < HOSTILE {
            text.push_str(fit.get(random(fit.len())).map_or(" ", |token| token));
            if text.len() > start + word {
                text.push(' ');
                start = text.len();
            }
        }
        text
    };
    let endless = HOSTILE;
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
