//! `plimsoll demo` as a newcomer runs it, but without a terminal: it ends by itself, says that the
//! line was held. The figures and pictures of the README and of the measured runs are held to that run, and drawn from it.

mod curve;
mod figures;
mod turns;

use std::process::{Command, Output};

/// The page that has the demo's figures in full.
const MEASURED: &str = "docs/evidence/measured.md";

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("demo").args(arguments);
    // A fresh system has no certificates, and nothing here is encrypted.
    for certificates in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        command.env(certificates, "/nonexistent");
    }
    command.output().unwrap()
}

/// A file of the repository.
fn file(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// The table of the measured runs says what the demo measures, and the pictures are of such a run.
fn hold_table(text: &str, pictures: [&str; 2]) {
    let page = file(MEASURED);
    let rows = page
        .lines()
        .skip_while(|line| *line != "| | sent whole | with plimsoll |");
    let mut told = 0;
    for row in rows.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(cells[0]));
        let line = line.unwrap_or_else(|| panic!("no {:?} in\n{text}", cells[0]));
        let (_, figures) = line.split_once(cells[0]).unwrap();
        let figures = figures.split_whitespace().collect::<Vec<_>>().join(" ");
        let expect = format!("{} {}", cells[1], cells[2]);
        assert!(
            figures.starts_with(&expect),
            "{MEASURED} has {expect}, the demo {figures}"
        );
        told += 1;
    }
    assert!(told >= 6, "{told} rows");
    for (name, picture) in ["docs/demo.svg", "docs/curve.svg"].iter().zip(pictures) {
        if std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some() {
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
            std::fs::write(root.join(name), picture).unwrap();
        }
        assert!(
            file(name) == picture,
            "{name} is of another run: `just pictures` draws it anew"
        );
    }
}

/// A page without its line breaks.
fn joined(name: &str) -> String {
    let page = file(name);
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The README without its line breaks, up to the table of agents.
fn opening() -> String {
    let readme = joined("README.md");
    readme.split_once("## Works with").unwrap().0.to_owned()
}

/// The whole per cent that the demo says were saved.
fn saved(text: &str) -> String {
    let (_, after) = text.split_once("  saved ").unwrap();
    let (_, share) = after.split_once('(').unwrap();
    let (whole, _) = share.split_once('.').unwrap();
    format!("{whole} %")
}

/// The whole per cent of what calls needed of evicted work and was in view.
fn in_view(text: &str) -> String {
    let number = |text: &str| text.replace(',', "").parse::<usize>().unwrap();
    let (_, after) = text.split_once("  Of ").unwrap();
    let (needed, after) = after.split_once(" uses of names").unwrap();
    let (_, after) = after.split_once("evicted work, ").unwrap();
    let (held, _) = after.split_once(" found").unwrap();
    format!("{} %", number(held) * 100 / number(needed))
}

/// What the README, and the page of measured runs, say of this run, made from its output.
fn sentences(text: &str, [picture, curve]: [&str; 2]) -> [Vec<String>; 2] {
    let label = |picture: &str, part: &str| {
        let line = picture.lines().find(|line| line.contains(part));
        let line = line.unwrap_or_else(|| panic!("no {part:?} in the picture"));
        let (label, _) = line.rsplit_once("</text>").unwrap();
        label.rsplit_once('>').unwrap().1.to_owned()
    };
    let (saved, in_view) = (saved(text), in_view(text));
    let worst = label(curve, " % at ").replace('-', "");
    let worst = format!("{} %", worst.split_once('.').unwrap().0);
    let pays = label(curve, "pays from");
    let pays = pays
        .trim_start_matches("pays from ")
        .trim_end_matches(" on");
    let largest = label(picture, " → 39");
    let (seen, sent) = largest.split_once(" → ").unwrap();
    assert!(sent.starts_with("39."), "{sent}");
    let (whole, managed) = row(text, "requests");
    let readme = vec![
        format!(
            "What the agent sees grows to {seen} tokens; what the model is sent stays under 40k"
        ),
        format!("| this session, at 40,000 | {saved} less | {in_view} |"),
        format!("not below {pays}: at 40,000, this one cost up to {worst} more until then"),
    ];
    let page = vec![
        format!(
            "This session costs up to {worst} more at first, pays from {pays} on, and saves {saved} in the end"
        ),
        format!("of {whole} turns through the real proxy over HTTP, at a budget of 40,000 tokens"),
        format!("The saving of {saved} is net."),
        format!("the {} extra requests", managed - whole),
        format!("was in view there, and {in_view} at 40,000."),
    ];
    [readme, page]
}

/// The opening without figures that are typed or named, or of another run.
fn typed(opening: &str) -> String {
    let mut text = opening.to_owned();
    for named in [
        "Rust 1.95",
        "| a short one, which never reaches the budget | 0.7 % more | 100 % |",
    ] {
        assert!(text.contains(named), "the README no longer says {named:?}");
        text = text.replace(named, "");
    }
    // How long the first two commands take was measured once, and no test measures it again.
    text = without(&text, "compiles for ", " on two cores");
    text = without(&text, "The second takes ", " on two cores");
    without(&text, "at the default budget of ", " % |")
}

/// A text without the few words that stand between two others.
fn without(text: &str, from: &str, to: &str) -> String {
    let (before, after) = text.split_once(from).expect(from);
    let (between, after) = after.split_once(to).expect(to);
    assert!(between.len() < 40, "{from}{between}");
    format!("{before}{after}")
}

/// Every figure of the README's opening is one that this run measured, and so are those of the page of measured
/// runs that are made from one.
fn hold_figures(text: &str, pictures: [&str; 2]) {
    let (opening, page) = (opening(), joined(MEASURED));
    let mut rest = typed(&opening);
    let [readme, measured] = sentences(text, pictures);
    for sentence in readme {
        assert!(
            opening.contains(&sentence),
            "the README does not say: {sentence}"
        );
        rest = rest.replace(&sentence, "");
    }
    for sentence in measured {
        assert!(
            page.contains(&sentence),
            "{MEASURED} does not say: {sentence}"
        );
    }
    let left = rest.find(|c: char| c.is_ascii_digit());
    let left = left.map(|at| rest[at..].chars().take(60).collect::<String>());
    assert_eq!(left, None, "nothing holds this figure of the README");
}

/// The numbers of a row of the table: sent whole, and with plimsoll.
fn row(text: &str, name: &str) -> (usize, usize) {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .unwrap_or_else(|| panic!("no row {name:?} in\n{text}"));
    let mut numbers = line
        .split_whitespace()
        .map(|word| word.replace(',', "").parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn the_demo_holds_the_line_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let measured = directory.path().join("figures.json");
    let budget = figures::BUDGET.to_string();
    let file = measured.to_str().unwrap();
    let output = demo(&["--budget", &budget, "--figures", file]);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(!text.contains('\u{1b}'), "no terminal, no escapes: {text}");

    let cut = |name| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split("budget").next().unwrap().to_owned()
    };
    let (whole, sent) = row(&cut("largest request"), "largest request");
    assert!(whole > 100_000 && sent <= 40_000, "{text}");
    let progress = text.lines().filter(|line| line.starts_with("turn "));
    assert!(progress.count() > 10, "{text}");
    assert!(
        text.contains("✓ No request passed the budget of 40,000."),
        "{text}"
    );

    let measured = figures::Figures::read(&measured);
    let (picture, curve) = (turns::picture(&measured), curve::picture(&measured));
    assert!(
        curve.contains("pays from"),
        "the losing side is shown: {curve}"
    );
    hold_table(&text, [&picture, &curve]);
    hold_figures(&text, [&picture, &curve]);
    let arrows = measured.samples.iter().filter(|sample| sample.passed);
    assert_eq!(picture.matches("l5 9h-10z").count(), arrows.count());
    let line = |colour: &str| picture.lines().find(|line| line.contains(colour)).unwrap();
    let (agent, area) = (line("stroke=\"#b45309\""), line("fill=\"#a5e8f5\""));
    // Two corners a turn for the agent; the area also goes back to the axis.
    assert_eq!(
        agent.matches('L').count() + 1,
        area.matches('L').count() - 1
    );
}

#[test]
fn a_budget_that_no_agent_fits_in_is_wrong_usage() {
    let output = demo(&["--budget", "3999"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("4000"));
}

#[test]
fn the_readme_says_what_a_larger_budget_saves() {
    let output = demo(&["--budget", "80000"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let defaults = file("config/plimsoll.toml");
    assert!(defaults.contains("\ntokens = 80000\n"), "the default");
    let (saved, in_view) = (saved(&text), in_view(&text));
    let row = format!(
        "| this session, at the default budget of 80,000 tokens | {saved} less | {in_view} |"
    );
    assert!(opening().contains(&row), "the README does not say: {row}");
    let sentence = format!(
        "`plimsoll demo --budget 80000` saves {saved}. Of what calls needed of evicted work, {in_view} was in view there"
    );
    assert!(
        joined(MEASURED).contains(&sentence),
        "{MEASURED} does not say: {sentence}"
    );
}
