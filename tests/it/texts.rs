//! What the proxy says, held to what it is: the settings and flags that its messages and documents
//! name exist, and figures that documents repeat are those of the code. Judges text, runs nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use plimsoll::cli::Cli;

/// Endings of file names, which look like keys behind the name of a section.
const FILES: [&str; 4] = ["toml", "json", "rs", "md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "tests" | "laws") {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The sources of what is shipped.
fn shipped(found: &mut Vec<PathBuf>) {
    for folder in ["src", "crates"] {
        sources(&root().join(folder), found);
    }
}

/// The texts in quotes of a source, up to the tests that stand in it.
fn quoted(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let (mut texts, mut rest) = (Vec::new(), source);
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let found = &rest[at..];
        if found.starts_with("//") {
            rest = found.split_once('\n').map_or("", |(_, rest)| rest);
        } else if found.starts_with("'\"'") || found.starts_with("'\\\"'") {
            rest = found.split_once("\"'").unwrap().1;
        } else if let Some(body) = found.strip_prefix('"') {
            let end = ending(body);
            texts.push(body[..end].to_owned());
            rest = &body[end + 1..];
        } else {
            rest = &found[1..];
        }
    }
    texts
}

/// Where a text in quotes ends.
fn ending(body: &str) -> usize {
    let mut escaped = false;
    for (at, next) in body.char_indices() {
        match next {
            '"' if !escaped => return at,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    body.len() - 1
}

/// Every setting, as `section.key`; and the sections.
fn settings() -> (BTreeSet<String>, BTreeSet<String>) {
    let shipped: toml::Table = read("config/plimsoll.toml").parse().unwrap();
    let mut settings = BTreeSet::new();
    for (section, keys) in &shipped {
        for key in keys.as_table().unwrap().keys() {
            settings.insert(format!("{section}.{key}"));
        }
    }
    (
        settings,
        shipped.into_iter().map(|(name, _)| name).collect(),
    )
}

/// Words of a text that look like a setting, such as `server.listen`.
fn named(text: &str, sections: &BTreeSet<String>) -> Vec<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || "_.-/$".contains(c);
    let words = text.split(|c: char| !word(c));
    let like = |found: &str| {
        let found = found.trim_end_matches(['.', '-']);
        let (section, key) = found.split_once('.')?;
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let looks = is_key && sections.contains(section) && !FILES.contains(&key);
        looks.then(|| found.to_owned())
    };
    words.filter_map(like).collect()
}

/// What stands between backticks in the documents, which is meant word by word, with the document of each.
fn spans() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for page in crate::words::pages() {
        let text = fs::read_to_string(&page).unwrap();
        let spans = text.split('`').skip(1).step_by(2).map(str::to_owned);
        found.extend(spans.map(|span| (page.display().to_string(), span)));
    }
    found
}

#[test]
fn quoted_texts_are_found() {
    let source = r#"let a = "one \" two"; // "no"
        let b = ('"', "three.");"#;
    assert_eq!(quoted(source), [r#"one \" two"#, "three."]);
}

#[test]
fn every_setting_that_a_text_names_exists() {
    let (settings, sections) = settings();
    let mut texts = Vec::new();
    let mut files = Vec::new();
    shipped(&mut files);
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let quoted = quoted(&source).into_iter();
        texts.extend(quoted.map(|text| (file.display().to_string(), text)));
    }
    texts.extend(spans());
    let mut seen = BTreeSet::new();
    for (file, text) in texts {
        for name in named(&text, &sections) {
            assert!(
                settings.contains(&name),
                "{file}: no setting {name}: {text}"
            );
            seen.insert(name);
        }
    }
    assert!(seen.len() > 20, "texts name settings: {seen:?}");
}

/// Advice to raise something is of use where there is something to raise.
#[test]
fn what_a_text_says_to_raise_can_be_raised() {
    let (settings, _) = settings();
    let mut files = Vec::new();
    shipped(&mut files);
    let mut seen = 0;
    for file in files {
        for text in quoted(&fs::read_to_string(&file).unwrap()) {
            for advice in text.split("raise ").skip(1) {
                let what = advice.split([' ', ';', ',']).next().unwrap();
                let is_budget = advice.starts_with("the budget");
                // What is put in stands in the source as a text of its own, and is held there.
                let known =
                    settings.contains(what) || what.starts_with("--") || what.starts_with('{');
                let known = known || is_budget;
                assert!(known, "{}: {text}", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 3, "{seen}");
}

#[test]
fn every_flag_that_a_text_names_exists() {
    let commands = Cli::command();
    let mut all = vec![&commands];
    let mut at = 0;
    while let Some(command) = all.get(at).copied() {
        all.extend(command.get_subcommands());
        at += 1;
    }
    let flags: BTreeSet<String> = all
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| argument.get_long().map(str::to_owned))
        .collect();
    let mut files = Vec::new();
    shipped(&mut files);
    let mut seen = BTreeSet::new();
    for file in files {
        for text in quoted(&fs::read_to_string(&file).unwrap()) {
            // The command of an agent has flags of the agent's.
            if ["claude ", "pi "]
                .iter()
                .any(|agent| text.starts_with(agent))
            {
                continue;
            }
            for (at, found) in text.match_indices("--") {
                let before = text[..at].chars().next_back();
                if before.is_some_and(|before| !before.is_whitespace() && before != '`') {
                    continue;
                }
                let found = &text[at + found.len()..];
                let name = |c: char| c.is_ascii_lowercase() || c == '-';
                let end = found.find(|c| !name(c)).unwrap_or(found.len());
                let flag = &found[..end];
                // The head line of a file in a diff.
                let diff = ["git", "cc"].contains(&flag);
                if !diff && flag.starts_with(|c: char| c.is_ascii_lowercase()) {
                    assert!(flags.contains(flag), "{}: --{flag}: {text}", file.display());
                    seen.insert(flag.to_owned());
                }
            }
        }
    }
    assert!(seen.len() > 5, "texts name flags: {seen:?}");
}

/// Where a document says that a source stands: behind the name of its crate, or from the root of the repository.
fn source(named: &str) -> Option<PathBuf> {
    let file = named.ends_with(".rs") && !named.contains(['*', ' ']);
    let (first, rest) = named.split_once('/').filter(|_| file)?;
    let crates = root().join("crates").join(first);
    if crates.is_dir() {
        return Some(crates.join("src").join(rest));
    }
    match first {
        "cli" | "config" => Some(root().join("src").join(named)),
        "crates" | "src" | "tests" | "scripted" | "benches" | "fuzz" => Some(root().join(named)),
        _ => None,
    }
}

#[test]
fn every_source_that_a_document_names_exists() {
    let mut seen = 0;
    for (page, span) in spans() {
        let Some(path) = source(&span) else { continue };
        assert!(path.exists(), "{page}: {}", path.display());
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}

/// The figure of a constant.
fn constant(path: &str, name: &str) -> String {
    let source = read(path);
    let line = source
        .lines()
        .find(|line| line.contains(&format!("const {name}: ")));
    let (_, figure) = line.unwrap().rsplit_once("= ").unwrap();
    figure.trim_end_matches(';').to_owned()
}

#[test]
fn figures_in_documents_are_those_of_the_code() {
    assert_eq!(
        constant("crates/core/src/policy/order.rs", "HELD_PART"),
        "12"
    );
    for page in ["docs/build/architecture.md", "docs/evidence/papers.md"] {
        let words: Vec<String> = read(page).split_whitespace().map(str::to_owned).collect();
        let text = words.join(" ");
        assert!(text.contains("more than a twelfth of the room"), "{page}");
    }
    // A tenth, in words, wherever the floor is described.
    assert_eq!(
        constant("crates/core/src/commit/mod.rs", "AUTO_SLACK"),
        "1.1"
    );
    let commit = read("crates/core/src/commit/mod.rs");
    assert!(commit.contains("within a tenth of the cost at the lowest"));
}

#[test]
fn the_edges_table_lists_every_dialect() {
    use plimsoll_wire::Dialect;
    let table = read("crates/ingress/src/lib.rs");
    for path in [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
    ] {
        assert!(Dialect::of_path(path).is_some(), "{path}");
        let end = path.strip_prefix("/v1").unwrap();
        assert!(
            table.contains(&format!("{end}`")),
            "{path} is not in the table"
        );
    }
}
